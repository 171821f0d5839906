//! Checks of the merged types: interfaces are implemented, and `Query` has fields.

use diagnostics::Diagnostics;

use super::error::{CompositionErrorKind, ReportError, quote_names};
use super::merged_schema::{MergedType, MergedTypes};
use super::model::{SubgraphName, SubgraphSchema, SubgraphTypeKind};
use super::relations::TypeRelations;

/// Checks all types.
pub(super) fn check_merged_types<'a>(
    schemas: &[SubgraphSchema<'a>],
    relations: &TypeRelations<'a>,
    types: &MergedTypes<'a>,
    errors: &mut Diagnostics,
) {
    if types.get("Query").is_none_or(|of| of.fields.is_empty()) {
        let services: Vec<&SubgraphName> = schemas.iter().map(|schema| &schema.name).collect();
        let message = "No service has a field of \"Query\".";
        errors.report(
            CompositionErrorKind::NoQueries,
            &services,
            "Query",
            message,
            "add a field: a GraphQL schema needs at least one query",
        );
    }
    for (name, of) in types {
        for interface in &of.interfaces {
            if let Some(merged_type) = types.get(interface) {
                check_implements(schemas, relations, (name, of), (interface, merged_type), errors);
            }
        }
        if of.kind == SubgraphTypeKind::Interface {
            check_interface_object(schemas, name, of, errors);
            check_interface_keys(schemas, types, name, of, errors);
        }
    }
}

/// Checks that a type has the fields of its interfaces, with compatible types.
fn check_implements<'a>(
    schemas: &[SubgraphSchema<'a>],
    relations: &TypeRelations<'a>,
    (name, of): (&str, &MergedType<'a>),
    (interface, wanted): (&str, &MergedType<'a>),
    errors: &mut Diagnostics,
) {
    let having = |name: &str, field: &str| -> Vec<&SubgraphName> {
        let has = |schema: &&SubgraphSchema<'_>| {
            schema.types.get(name).is_some_and(|of| of.fields.contains_key(field))
        };
        schemas.iter().filter(has).map(|schema| &schema.name).collect()
    };
    for (field, merged_field) in &wanted.fields {
        let at = format!("{name}.{field}");
        let by = having(interface, field);
        let listed_by = quote_names(by.iter().map(|name| &***name));
        let Some(found) = of.fields.get(field) else {
            let message = format!(
                "The interface \"{interface}\" has \"{field}\" in {listed_by}, but \"{name}\", which implements it, does not have it in any service."
            );
            errors.report(
                CompositionErrorKind::InterfaceFieldNoImplem,
                &by,
                &at,
                message,
                format!("add \"{at}\" to a service that can resolve it"),
            );
            continue;
        };
        if !relations.is_subtype(&found.type_ref, &merged_field.type_ref) {
            let message = format!(
                "\"{at}\" is of type {}, which is incompatible with \"{interface}.{field}\": {}.",
                found.type_ref, merged_field.type_ref
            );
            errors.report(
                CompositionErrorKind::InvalidGraphql,
                &having(name, field),
                at,
                message,
                "use the interface's type in every service",
            );
        }
    }
}

/// Checks that an interface object is an interface in another service, and that its implementations are not
/// in the same schema.
fn check_interface_object(
    schemas: &[SubgraphSchema<'_>],
    name: &str,
    of: &MergedType<'_>,
    errors: &mut Diagnostics,
) {
    let sources = of.sources.iter().map(|&source| &schemas[source]);
    let is_object =
        |schema: &SubgraphSchema<'_>| schema.types.get(name).is_some_and(|of| of.is_interface_object);
    let objects: Vec<&SubgraphSchema<'_>> = sources.filter(|schema| is_object(schema)).collect();
    let services: Vec<&SubgraphName> = objects.iter().map(|schema| &schema.name).collect();
    if objects.len() == of.sources.len() {
        let message =
            format!("\"{name}\" has @interfaceObject in every service: no service defines the interface.");
        errors.report(
            CompositionErrorKind::InterfaceObjectUsageError,
            &services,
            name,
            message,
            "define the interface in one of the services",
        );
    }
    for schema in objects {
        let implements = |other: &str| {
            let mut all = schemas.iter().filter_map(|schema| schema.types.get(other));
            all.any(|of| of.interfaces.contains(name))
        };
        for other in schema.types.keys().filter(|other| implements(other)) {
            let message = format!(
                "\"{name}\" has @interfaceObject in \"{}\", so that service can't have \"{other}\", a type that implements it.",
                schema.name
            );
            let hint = format!("remove \"{other}\" from that schema");
            errors.report(
                CompositionErrorKind::InterfaceObjectUsageError,
                &[&schema.name],
                *other,
                message,
                hint,
            );
        }
    }
}

/// Checks that a service that resolves an interface by a key has all types that implement the interface.
fn check_interface_keys(
    schemas: &[SubgraphSchema<'_>],
    types: &MergedTypes<'_>,
    name: &str,
    of: &MergedType<'_>,
    errors: &mut Diagnostics,
) {
    let all =
        types.iter().filter(|(_, of)| of.kind == SubgraphTypeKind::Object && of.interfaces.contains(name));
    let all: Vec<&str> = all.map(|(name, _)| *name).collect();
    for schema in of.sources.iter().map(|&source| &schemas[source]) {
        let Some(subgraph_type) = schema.types.get(name) else { continue };
        if subgraph_type.is_interface_object || !subgraph_type.keys.iter().any(|key| key.is_resolvable) {
            continue;
        }
        let knows = |other: &&&str| schema.types.get(**other).is_some_and(|of| of.interfaces.contains(name));
        let missing: Vec<&str> = all.iter().filter(|other| !knows(other)).copied().collect();
        if !missing.is_empty() {
            let service = &schema.name;
            let message = format!(
                "\"{service}\" resolves the interface \"{name}\" by a @key, but does not have all types that implement it: {} missing.",
                quote_names(missing) + " is"
            );
            let hint =
                "add the types to that service with the same @key, or mark the key with resolvable: false";
            errors.report(
                CompositionErrorKind::InterfaceKeyMissingImplementationType,
                &[service],
                name,
                message,
                hint,
            );
        }
    }
}
