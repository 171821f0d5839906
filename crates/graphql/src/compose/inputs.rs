//! Arguments and input objects: the intersection of the services' inputs.

use graphql_tools::parser::schema::Value as AstValue;
use indexmap::IndexMap;

use super::error::{CompositionErrorKind, ReportError, quote_names};
use super::merge::SchemaMerger;
use super::merged_schema::MergedInput;
use super::model::{ElementMetadata, SchemaValue, SubgraphInput, SubgraphType};

/// The kind of input to merge.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum InputKind {
    Argument,
    Field,
}

/// Merges the fields of an input object.
pub(super) fn merge_input_fields<'a>(
    merger: &mut SchemaMerger<'_, 'a>,
    name: &str,
    each: &[(usize, &SubgraphType<'a>)],
) -> IndexMap<&'a str, MergedInput<'a>> {
    let each: Vec<_> = each.iter().map(|&(source, of)| (source, &of.inputs)).collect();
    let merged = merge_common(merger, InputKind::Field, &each, |input| format!("{name}.{input}"));
    if merged.is_empty() && each.iter().any(|(_, inputs)| !inputs.is_empty()) {
        let services = merger.services(each.iter().map(|&(source, _)| source));
        let message = format!("No field of the input type \"{name}\" exists in all services that use it.");
        let hint = "give it the same fields in all services, or rename it in one";
        merger.errors.report(CompositionErrorKind::EmptyMergedInputType, &services, name, message, hint);
    }
    let joined = |input: &str, of: &SubgraphInput<'a>| {
        let types =
            each.iter().filter_map(|&(source, inputs)| Some((source, inputs.get(input)?.type_ref.clone())));
        let types: Vec<_> = types.collect();
        if types.iter().all(|(_, other)| *other == of.type_ref) { Vec::new() } else { types }
    };
    merged
        .into_iter()
        .map(|(name, input)| (name, MergedInput { join: joined(name, &input), input }))
        .collect()
}

/// Merges the inputs that all sources have.
pub(super) fn merge_common<'a>(
    merger: &mut SchemaMerger<'_, 'a>,
    kind: InputKind,
    each: &[(usize, &IndexMap<&'a str, SubgraphInput<'a>>)],
    coordinate: impl Fn(&str) -> String,
) -> IndexMap<&'a str, SubgraphInput<'a>> {
    let mut all: IndexMap<&'a str, Vec<(usize, &SubgraphInput<'a>)>> = IndexMap::new();
    for (source, inputs) in each {
        for (name, input) in *inputs {
            all.entry(name).or_default().push((*source, input));
        }
    }
    let mut merged = IndexMap::with_capacity(all.len());
    for (name, found) in all {
        if found.len() == each.len() {
            merged.insert(name, merge_input(merger, kind, &coordinate(name), &found));
        } else if found.iter().any(|(_, input)| input.is_required()) {
            report_missing(merger, kind, &coordinate(name), each.iter().map(|&(source, _)| source), &found);
        }
    }
    merged
}

fn merge_input<'a>(
    merger: &mut SchemaMerger<'_, 'a>,
    kind: InputKind,
    coordinate: &str,
    found: &[(usize, &SubgraphInput<'a>)],
) -> SubgraphInput<'a> {
    let mut shown = ElementMetadata::default();
    found.iter().for_each(|(_, input)| shown.merge(&input.metadata));
    let narrowest = merger.relations.most_specific(found.iter().map(|(_, input)| &input.type_ref)).cloned();
    let of = narrowest.unwrap_or_else(|| {
        let code = if kind == InputKind::Argument {
            CompositionErrorKind::FieldArgumentTypeMismatch
        } else {
            CompositionErrorKind::FieldTypeMismatch
        };
        let hint = "give it the same type in all services, or types that differ only in \"!\"";
        report_difference(merger, code, coordinate, "type", found, |input| input.type_ref.to_string(), hint);
        found[0].1.type_ref.clone()
    });
    let default = merge_defaults(found);
    if default == MergedDefault::Conflicting {
        let code = if kind == InputKind::Argument {
            CompositionErrorKind::FieldArgumentDefaultMismatch
        } else {
            CompositionErrorKind::InputFieldDefaultMismatch
        };
        let written =
            |input: &SubgraphInput<'_>| input.default.as_ref().map_or("none".to_owned(), ToString::to_string);
        report_difference(
            merger,
            code,
            coordinate,
            "default",
            found,
            written,
            "write the same default in all services",
        );
    }
    let default = if let MergedDefault::Same(value) = default { Some(value.clone()) } else { None };
    SubgraphInput { metadata: shown, type_ref: of, default }
}

/// The result of merging defaults. If one service has no default, the merged input has none.
#[derive(PartialEq)]
enum MergedDefault<'d, 'a> {
    None,
    Same(&'d SchemaValue<'a>),
    Conflicting,
}

fn merge_defaults<'d, 'a>(found: &[(usize, &'d SubgraphInput<'a>)]) -> MergedDefault<'d, 'a> {
    let mut defaults = found.iter().filter_map(|(_, input)| input.default.as_ref());
    let Some(first) = defaults.next() else { return MergedDefault::None };
    if defaults.any(|other| !is_same_value(first, other)) {
        MergedDefault::Conflicting
    } else if found.iter().all(|(_, input)| input.default.is_some()) {
        MergedDefault::Same(first)
    } else {
        MergedDefault::None
    }
}

/// Compares values; the members of objects may be in any order.
fn is_same_value<'a>(one: &SchemaValue<'a>, other: &SchemaValue<'a>) -> bool {
    match (one, other) {
        (AstValue::Object(one), AstValue::Object(other)) => {
            let holds = |name: &str, value| {
                other.iter().any(|(known, other)| *known == name && is_same_value(value, other))
            };
            one.len() == other.len() && one.iter().all(|(name, value)| holds(name, value))
        }
        (AstValue::List(one), AstValue::List(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| is_same_value(one, other))
        }
        _ => one == other,
    }
}

fn report_difference<'a>(
    merger: &mut SchemaMerger<'_, 'a>,
    code: CompositionErrorKind,
    coordinate: &str,
    what: &str,
    found: &[(usize, &SubgraphInput<'a>)],
    written: impl Fn(&SubgraphInput<'a>) -> String,
    hint: &str,
) {
    let services = merger.services(found.iter().map(|&(source, _)| source));
    let said: Vec<String> = found
        .iter()
        .map(|&(source, input)| format!("{} in \"{}\"", written(input), merger.service(source)))
        .collect();
    let message = format!("The {what} of \"{coordinate}\" is {}.", said.join(", but "));
    merger.errors.report(code, &services, coordinate, message, hint);
}

fn report_missing<'a>(
    merger: &mut SchemaMerger<'_, 'a>,
    kind: InputKind,
    coordinate: &str,
    all: impl Iterator<Item = usize> + Clone,
    found: &[(usize, &SubgraphInput<'a>)],
) {
    let has = |source: usize| found.iter().any(|&(other, _)| other == source);
    let required = found.iter().filter(|(_, input)| input.is_required());
    let message = format!(
        "\"{coordinate}\" is required in {}, but {} does not have it.",
        quote_names(required.map(|&(source, _)| &**merger.service(source))),
        quote_names(all.clone().filter(|&source| !has(source)).map(|source| &**merger.service(source))),
    );
    let code = match kind {
        InputKind::Argument => CompositionErrorKind::RequiredArgumentMissingInSomeSubgraph,
        InputKind::Field => CompositionErrorKind::RequiredInputFieldMissingInSomeSubgraph,
    };
    merger.errors.report(
        code,
        &merger.services(all),
        coordinate,
        message,
        "add it to that service, or give it a default in the services that require it",
    );
}
