//! Error messages for unreachable fields, which show what is missing.

use diagnostics::Diagnostics;
use indexmap::IndexMap;

use super::super::error::{CompositionErrorKind, ReportError, quote_names};
use super::super::model::SubgraphName;
use super::Satisfiability;

/// Reports fields of a type that are unreachable in a state, with one error for all fields of the same
/// services.
pub(super) fn report_fields(
    satisfiability: &Satisfiability<'_, '_>,
    index: usize,
    name: &str,
    missed: &[&str],
    errors: &mut Diagnostics,
) {
    let mut alike: IndexMap<(Vec<usize>, Vec<&str>), Vec<&str>> = IndexMap::new();
    for &field in missed {
        let has = |source: &usize| {
            satisfiability.type_views(name, *source).iter().any(|(view, of)| {
                of.fields.contains_key(field) && satisfiability.is_resolved(view, field, *source)
            })
        };
        let by: Vec<usize> = (0..satisfiability.schemas.len()).filter(has).collect();
        let joins =
            satisfiability.types.get(name).and_then(|of| of.fields.get(field)).map(|field| &field.join);
        let requires = joins.into_iter().flatten().filter_map(|join| join.requires.as_deref()).collect();
        alike.entry((by, requires)).or_default().push(field);
    }
    for ((by, requires), fields) in alike {
        report_missing(satisfiability, index, name, (&by, &requires), &fields, errors);
    }
}

fn report_missing(
    satisfiability: &Satisfiability<'_, '_>,
    index: usize,
    name: &str,
    (by, requires): (&[usize], &[&str]),
    fields: &[&str],
    errors: &mut Diagnostics,
) {
    let from = origin_services(satisfiability, index);
    let keys = key_texts(satisfiability, name, by);
    let services: Vec<&SubgraphName> =
        by.iter().map(|&source| &satisfiability.schemas[source].name).collect();
    let (there, here) = (quote_names(service_names(&services)), quote_names(service_names(&from)));
    let why = match (keys.is_empty(), requires.is_empty()) {
        (true, _) => "no @key resolves it there".to_owned(),
        (false, true) => format!("its @key there ({}) can't be resolved here", keys.join("; ")),
        (false, false) => format!(
            "the required fields (\"{}\") or its @key there ({}) can't be resolved here",
            requires.join("\", \""),
            keys.join("; ")
        ),
    };
    let coordinates: Vec<String> = fields.iter().map(|field| format!("{name}.{field}")).collect();
    let message = format!(
        "{} of {there} can't be resolved in `{}`, where a \"{name}\" comes from {here}: {why}.",
        quote_names(coordinates.iter().map(String::as_str)),
        example_query(satisfiability, index, fields[0]),
    );
    let hint = format!("give \"{name}\" a @key in {there}, with fields that {here} has too");
    let services: Vec<&SubgraphName> = services.into_iter().chain(from).collect();
    errors.report(
        CompositionErrorKind::SatisfiabilityError,
        &services,
        coordinates[0].as_str(),
        message,
        hint,
    );
}

/// Reports that no service can determine that an object is of this type.
pub(super) fn report_unknown_type(
    satisfiability: &Satisfiability<'_, '_>,
    index: usize,
    name: &str,
    errors: &mut Diagnostics,
) {
    let from = origin_services(satisfiability, index);
    let message = format!(
        "In `{}`, no service can determine that an object is a \"{name}\": {} does not distinguish the types that implement the interface.",
        example_query(satisfiability, index, "__typename"),
        quote_names(service_names(&from)),
    );
    let hint = "let the service that has the interface resolve it by the same @key";
    errors.report(CompositionErrorKind::SatisfiabilityError, &from, name, message, hint);
}

fn service_names<'n>(services: &[&'n SubgraphName]) -> impl Iterator<Item = &'n str> {
    services.iter().map(|name| &***name)
}

/// The services that the state's object comes from.
fn origin_services<'s>(satisfiability: &Satisfiability<'s, '_>, index: usize) -> Vec<&'s SubgraphName> {
    let mut sources: Vec<usize> =
        satisfiability.states[index].services.iter().map(|service| service.source).collect();
    sources.dedup();
    sources.into_iter().map(|source| &satisfiability.schemas[source].name).collect()
}

fn key_texts(satisfiability: &Satisfiability<'_, '_>, name: &str, sources: &[usize]) -> Vec<String> {
    let mut keys = Vec::new();
    for &source in sources {
        for (_, of) in satisfiability.type_views(name, source) {
            let resolvable = of.keys.iter().filter(|key| key.is_resolvable);
            keys.extend(resolvable.map(|key| format!("\"{}\"", key.fields.text)));
        }
    }
    keys
}

/// A query that leads to the state.
fn example_query(satisfiability: &Satisfiability<'_, '_>, index: usize, field: &str) -> String {
    let mut path = vec![field];
    let mut state = &satisfiability.states[index];
    while let Some((before, field)) = state.previous {
        path.push(field);
        state = &satisfiability.states[before];
    }
    let root = satisfiability.types.get_index(state.type_index).map_or("", |(name, _)| name).to_lowercase();
    path.reverse();
    format!("{root} {{ {}{}", path.join(" { "), " }".repeat(path.len()))
}
