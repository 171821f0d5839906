//! The fields of objects and interfaces: the services that resolve them, their types, and their
//! representation in the supergraph.

use indexmap::IndexMap;

use super::error::{CompositionErrorKind, ReportError, quote_names};
use super::inputs::{self, InputKind};
use super::merge::SchemaMerger;
use super::merged_schema::{JoinField, MergedField, MergedTypes};
use super::model::{
    ElementMetadata, FieldOverride, SubgraphField, SubgraphSchema, SubgraphType, SubgraphTypeKind,
};

/// A field in one of the schemas.
#[derive(Clone, Copy)]
struct SourceField<'f, 'a> {
    source: usize,
    field: &'f SubgraphField<'a>,
    /// The directive of another service that overrides the field. The field then remains only if its own
    /// service uses it, or for a percentage of the requests.
    overridden_by: Option<&'f FieldOverride>,
}

impl SourceField<'_, '_> {
    fn is_overridden(&self) -> bool {
        self.overridden_by.is_some_and(|by| by.label.is_none())
    }

    fn is_resolved(&self) -> bool {
        !self.field.is_external && !self.is_overridden()
    }
}

/// Merges the fields of an object or interface.
pub(super) fn merge_fields<'a>(
    merger: &mut SchemaMerger<'_, 'a>,
    name: &str,
    kind: SubgraphTypeKind,
    each: &[(usize, &SubgraphType<'a>)],
) -> IndexMap<&'a str, MergedField<'a>> {
    let mut all: IndexMap<&'a str, Vec<(usize, &SubgraphField<'a>)>> = IndexMap::new();
    for (source, of) in each {
        for (field, subgraph_field) in &of.fields {
            all.entry(field).or_default().push((*source, subgraph_field));
        }
    }
    let owner = MergedOwner { name, kind, definitions: each };
    all.into_iter().map(|(field, found)| (field, owner.merge_field(merger, field, &found))).collect()
}

/// The type whose fields are merged.
struct MergedOwner<'o, 'a> {
    name: &'o str,
    kind: SubgraphTypeKind,
    definitions: &'o [(usize, &'o SubgraphType<'a>)],
}

impl<'a> MergedOwner<'_, 'a> {
    fn merge_field(
        &self,
        merger: &mut SchemaMerger<'_, 'a>,
        name: &str,
        found: &[(usize, &SubgraphField<'a>)],
    ) -> MergedField<'a> {
        let at = format!("{}.{name}", self.name);
        let overriding = |source: usize| {
            let service = merger.service(source);
            let others = found.iter().filter(|&&(other, _)| other != source);
            others.filter_map(|(_, field)| field.overrides.as_ref()).find(|by| by.from_service == **service)
        };
        let fields: Vec<_> = found
            .iter()
            .map(|&(source, field)| SourceField { source, field, overridden_by: overriding(source) })
            .collect();
        check_override_cycle(merger, &at, &fields);
        let resolved: Vec<_> =
            fields.iter().filter(|source_field| source_field.is_resolved()).copied().collect();
        if resolved.is_empty() && !self.has_interface_object_field(merger, name) {
            let services = merger.services(fields.iter().map(|found| found.source));
            let message = format!(
                "\"{at}\" is external in every service that has it: {}.",
                quote_names(services.iter().map(|name| &***name))
            );
            let hint = "add the field, without @external, to the service that resolves it";
            merger.errors.report(CompositionErrorKind::ExternalMissingOnBase, &services, &at, message, hint);
        }
        if self.kind == SubgraphTypeKind::Object
            || self.definitions.iter().any(|(_, of)| of.is_interface_object)
        {
            self.check_sharing(merger, name, &at, &resolved);
        }
        let source_fields = if resolved.is_empty() { &fields } else { &resolved };
        let mut merged = merge_definitions(merger, &at, source_fields);
        check_externals(merger, &at, &merged, fields.iter().filter(|found| found.field.is_external));
        merged.join = self.join_fields(merger, &merged, &fields);
        merged
    }

    /// Whether an interface of the type is an interface object with this field in some service.
    fn has_interface_object_field(&self, merger: &SchemaMerger<'_, 'a>, field: &str) -> bool {
        !interface_object_fields(merger.schemas, self.definitions, field).is_empty()
    }

    /// Checks that a field resolved by several services is shareable in all of them.
    fn check_sharing(
        &self,
        merger: &mut SchemaMerger<'_, 'a>,
        name: &str,
        at: &str,
        resolved: &[SourceField<'_, 'a>],
    ) {
        let is_counted = |source: usize| {
            self.kind == SubgraphTypeKind::Object
                || merger.schemas[source].types.get(self.name).is_some_and(|of| of.is_interface_object)
        };
        let mut sharing: Vec<(usize, &SubgraphField<'a>)> = resolved
            .iter()
            .filter(|source_field| is_counted(source_field.source) && source_field.overridden_by.is_none())
            .map(|found| (found.source, found.field))
            .collect();
        let is_refused = |field: &SubgraphField<'_>| !field.is_shareable && !field.usage.by_key;
        sharing.extend(interface_object_fields(merger.schemas, self.definitions, name));
        let refused: Vec<usize> =
            sharing.iter().filter(|(_, field)| is_refused(field)).map(|&(source, _)| source).collect();
        let is_subscription = self.name == "Subscription";
        if sharing.len() < 2 || (refused.is_empty() && !is_subscription) {
            return;
        }
        let services = merger.services(sharing.iter().map(|&(source, _)| source));
        let all = quote_names(services.iter().map(|name| &***name));
        let those = quote_names(refused.iter().map(|&source| &**merger.service(source)));
        let message = format!("\"{at}\" is resolved by {all}, but is not shareable in {those}.");
        let hint = if is_subscription {
            "keep it in one service only"
        } else {
            "mark it with @shareable in all of them if all return the same value, or rename it, or assign it to one by @override"
        };
        merger.errors.report(CompositionErrorKind::InvalidFieldSharing, &services, at, message, hint);
    }

    /// The `@join__field` directives of the field; empty if the defaults apply.
    fn join_fields(
        &self,
        merger: &SchemaMerger<'_, 'a>,
        merged: &MergedField<'a>,
        fields: &[SourceField<'_, 'a>],
    ) -> Vec<JoinField<'a>> {
        let joins: Vec<JoinField<'a>> =
            fields.iter().filter_map(|field| join_field(merger, merged, field)).collect();
        let sources = if self.name == "Query" { merger.schemas.len() } else { self.definitions.len() };
        if joins.len() == sources && joins.iter().all(JoinField::is_plain) { Vec::new() } else { joins }
    }
}

fn join_field<'a>(
    merger: &SchemaMerger<'_, 'a>,
    merged: &MergedField<'a>,
    source_field: &SourceField<'_, 'a>,
) -> Option<JoinField<'a>> {
    let SourceField { source, field, overridden_by } = *source_field;
    if source_field.is_overridden() && !field.is_external && !field.usage.is_used() {
        return None;
    }
    let is_known = |from: &str| merger.schemas.iter().any(|schema| *schema.name == *from);
    let overrides = field.overrides.as_ref().filter(|overrides| is_known(&overrides.from_service));
    let label = overridden_by.or(overrides).and_then(|overrides| overrides.label.clone());
    Some(JoinField {
        source: Some(source),
        type_ref: (field.type_ref != merged.type_ref).then(|| field.type_ref.clone()),
        is_external: field.is_external,
        requires: field.requires.as_ref().map(|set| set.text.clone()),
        provides: field.provides.as_ref().map(|set| set.text.clone()),
        overrides: overrides.map(|overrides| overrides.from_service.clone()),
        label,
        is_used_overridden: source_field.is_overridden() && !field.is_external,
    })
}

fn merge_definitions<'a>(
    merger: &mut SchemaMerger<'_, 'a>,
    at: &str,
    fields: &[SourceField<'_, 'a>],
) -> MergedField<'a> {
    let mut shown = ElementMetadata::default();
    // The description comes from the service that overrides the field, if there is one.
    let (first, rest): (Vec<&SourceField<'_, 'a>>, Vec<_>) =
        fields.iter().partition(|field| field.field.overrides.is_some());
    first.into_iter().chain(rest).for_each(|source_field| shown.merge(&source_field.field.metadata));
    let widest = merger.relations.most_general(fields.iter().map(|found| &found.field.type_ref)).cloned();
    let of = widest.unwrap_or_else(|| {
        let said = |found: &SourceField<'_, 'a>| {
            format!("{} in \"{}\"", found.field.type_ref, merger.service(found.source))
        };
        let said: Vec<String> = fields.iter().map(said).collect();
        let services = merger.services(fields.iter().map(|found| found.source));
        let message = format!("The type of \"{at}\" is {}.", said.join(", but "));
        let hint = "give it the same type in all services, or types that are subtypes of each other";
        merger.errors.report(CompositionErrorKind::FieldTypeMismatch, &services, at, message, hint);
        fields[0].field.type_ref.clone()
    });
    let arguments: Vec<_> = fields.iter().map(|found| (found.source, &found.field.arguments)).collect();
    let arguments = inputs::merge_common(merger, InputKind::Argument, &arguments, |argument| {
        format!("{at}({argument}:)")
    });
    MergedField { metadata: shown, type_ref: of, arguments, join: Vec::new() }
}

/// Checks that external declarations match the resolved field.
fn check_externals<'f, 'a: 'f>(
    merger: &mut SchemaMerger<'_, 'a>,
    at: &str,
    merged: &MergedField<'a>,
    externals: impl Iterator<Item = &'f SourceField<'f, 'a>>,
) {
    for &SourceField { source, field, .. } in externals {
        let service = merger.service(source);
        if !merger.relations.is_subtype(&merged.type_ref, &field.type_ref) {
            let message = format!(
                "\"{at}\" is of type {}, but \"{service}\" declares it as {}.",
                merged.type_ref, field.type_ref
            );
            let hint = "use the type from the service that resolves the field";
            merger.errors.report(CompositionErrorKind::ExternalTypeMismatch, &[service], at, message, hint);
        }
        for (name, argument) in &merged.arguments {
            let at = format!("{at}({name}:)");
            match field.arguments.get(name) {
                None => {
                    let message =
                        format!("\"{at}\" is missing in \"{service}\", where the field is external.");
                    merger.errors.report(
                        CompositionErrorKind::ExternalArgumentMissing,
                        &[service],
                        &at,
                        message,
                        "add the argument there",
                    );
                }
                Some(other) if !merger.relations.is_subtype(&other.type_ref, &argument.type_ref) => {
                    let message = format!(
                        "\"{at}\" is of type {}, but \"{service}\" declares it as {}.",
                        argument.type_ref, other.type_ref
                    );
                    let hint = "use the type from the service that resolves the field";
                    merger.errors.report(
                        CompositionErrorKind::ExternalArgumentTypeMismatch,
                        &[service],
                        &at,
                        message,
                        hint,
                    );
                }
                Some(_) => {}
            }
        }
    }
}

/// Checks that overrides do not form a cycle.
fn check_override_cycle(merger: &mut SchemaMerger<'_, '_>, at: &str, fields: &[SourceField<'_, '_>]) {
    let next = |source: usize| {
        let overrides = fields.iter().find(|field| field.source == source)?.field.overrides.as_ref()?;
        fields
            .iter()
            .find(|source_field| **merger.service(source_field.source) == *overrides.from_service)
            .map(|found| found.source)
    };
    let is_circle = |start: usize| {
        std::iter::successors(next(start), |&source| next(source))
            .take(fields.len())
            .any(|source| source == start)
    };
    let circle: Vec<usize> =
        fields.iter().map(|found| found.source).filter(|&source| is_circle(source)).collect();
    if circle.len() > 1 {
        let services = merger.services(circle);
        let by = quote_names(services.iter().map(|name| &***name));
        let message = format!("\"{at}\" is overridden in a cycle, by {by}.");
        let hint = "keep @override only in the service that should resolve the field";
        merger.errors.report(CompositionErrorKind::OverrideSourceHasOverride, &services, at, message, hint);
    }
}

/// The fields of this name that interface objects add to the type's interfaces.
fn interface_object_fields<'s, 'a>(
    schemas: &'s [SubgraphSchema<'a>],
    each: &[(usize, &SubgraphType<'a>)],
    field: &str,
) -> Vec<(usize, &'s SubgraphField<'a>)> {
    let mut interfaces: Vec<&str> = each.iter().flat_map(|(_, of)| of.interfaces.iter().copied()).collect();
    interfaces.sort_unstable();
    interfaces.dedup();
    let mut given = Vec::new();
    for name in interfaces {
        let all =
            schemas.iter().enumerate().filter_map(|(source, schema)| Some((source, schema.types.get(name)?)));
        let objects = all.filter(|(_, of)| of.is_interface_object);
        let fields = objects.filter_map(|(source, of)| Some((source, of.fields.get(field)?)));
        given.extend(fields.filter(|(_, field)| !field.is_external && !field.usage.by_key));
    }
    given
}

/// Copies the fields that services add to interface objects to the types that implement the interface.
pub(super) fn copy_interface_object_fields<'a>(schemas: &[SubgraphSchema<'a>], types: &mut MergedTypes<'a>) {
    let is_object = |name: &str| {
        let all = schemas.iter().filter_map(|schema| schema.types.get(name));
        all.into_iter().any(|of| of.is_interface_object)
    };
    let objects: Vec<&str> = types
        .iter()
        .filter(|(name, of)| of.kind == SubgraphTypeKind::Interface && is_object(name))
        .map(|(name, _)| *name)
        .collect();
    for interface in objects {
        let all = schemas
            .iter()
            .filter_map(|schema| schema.types.get(interface))
            .filter(|of| of.is_interface_object);
        let added: Vec<&'a str> = all
            .flat_map(|of| of.fields.iter().filter(|(_, field)| !field.is_external).map(|(name, _)| *name))
            .collect();
        let Some(of) = types.get(interface) else { continue };
        let copied = |name: &&'a str| {
            let field = of.fields.get(name)?;
            let join = vec![JoinField::default()];
            let (shown, of, arguments) =
                (field.metadata.clone(), field.type_ref.clone(), field.arguments.clone());
            Some((*name, MergedField { metadata: shown, type_ref: of, arguments, join }))
        };
        for (name, field) in added.iter().filter_map(copied).collect::<Vec<_>>() {
            let implementations = types.values_mut().filter(|of| of.kind == SubgraphTypeKind::Object);
            for implementation in implementations.filter(|of| of.interfaces.contains(interface)) {
                let copy = || MergedField {
                    metadata: field.metadata.clone(),
                    type_ref: field.type_ref.clone(),
                    arguments: field.arguments.clone(),
                    join: field.join.clone(),
                };
                implementation.fields.entry(name).or_insert_with(copy);
            }
        }
    }
}
