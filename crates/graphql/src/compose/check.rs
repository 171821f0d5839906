//! Checks of each schema on its own, before the schemas are merged.

use diagnostics::Diagnostics;

use super::error::{CompositionErrorKind, ReportError};
use super::fieldsets;
use super::model::{FieldOverride, SubgraphSchema, SubgraphType, SubgraphTypeKind};

/// Checks a schema, and normalizes constructs of Federation v1 to those of v2.
pub(super) fn check_subgraph(schema: &mut SubgraphSchema<'_>, errors: &mut Diagnostics) {
    if schema.is_federation_v1 {
        clean_interfaces(schema);
    }
    fieldsets::check_field_sets(schema, errors);
    mark_interface_fields(schema);
    if schema.is_federation_v1 {
        drop_unused_externals(schema);
    }
    for (name, of) in &schema.types {
        match of.kind {
            SubgraphTypeKind::Object => check_object(schema, name, of, errors),
            SubgraphTypeKind::Interface => check_interface(schema, name, of, errors),
            _ => {}
        }
        check_member_kinds(schema, name, of, errors);
        check_not_empty(schema, name, of, errors);
    }
}

/// Federation v1 accepts these directives on interfaces, but ignores them.
fn clean_interfaces(schema: &mut SubgraphSchema<'_>) {
    for of in schema.types.values_mut().filter(|of| of.kind == SubgraphTypeKind::Interface) {
        of.keys.clear();
        for field in of.fields.values_mut() {
            (field.is_external, field.requires, field.provides, field.overrides) = (false, None, None, None);
        }
    }
}

fn mark_interface_fields(schema: &mut SubgraphSchema<'_>) {
    let mut marked = Vec::new();
    for (index, of) in schema.types.values().enumerate() {
        let interfaces = of.interfaces.iter().filter_map(|name| schema.types.get(name));
        let fields = interfaces.flat_map(|interface| interface.fields.keys());
        marked.extend(fields.filter_map(|field| Some((index, of.fields.get_index_of(field)?))));
    }
    for (of, field) in marked {
        schema.types[of].fields[field].usage.by_interface = true;
    }
}

fn drop_unused_externals(schema: &mut SubgraphSchema<'_>) {
    for of in schema.types.values_mut() {
        let had_fields = !of.fields.is_empty();
        of.fields.retain(|_, field| !field.is_external || field.usage.is_used());
        if had_fields && of.fields.is_empty() {
            of.is_defined = false;
        }
    }
    schema.types.retain(|_, of| {
        of.kind != SubgraphTypeKind::Object || of.is_defined || !of.fields.is_empty() || !of.keys.is_empty()
    });
}

fn check_object(schema: &SubgraphSchema<'_>, name: &str, of: &SubgraphType<'_>, errors: &mut Diagnostics) {
    let service = &schema.name;
    if of.is_interface_object && of.keys.is_empty() {
        let message = format!("\"{name}\" of \"{service}\" has @interfaceObject, but no @key.");
        errors.report(
            CompositionErrorKind::InterfaceObjectUsageError,
            &[service],
            name,
            message,
            "give it the @key of the interface",
        );
    }
    for (field_name, field) in &of.fields {
        let at = format!("{name}.{field_name}");
        if field.is_external && !schema.is_federation_v1 {
            if !field.usage.is_used() {
                let message = format!(
                    "\"{at}\" of \"{service}\" is external, but no directive and no interface uses it."
                );
                errors.report(
                    CompositionErrorKind::ExternalUnused,
                    &[service],
                    &at,
                    message,
                    "remove the field from that schema",
                );
            }
            if field.metadata.is_inaccessible || !field.metadata.tags.is_empty() {
                let message =
                    format!("\"{at}\" of \"{service}\" is external, but has @inaccessible or @tag.");
                let hint = "move the directive to the service that resolves the field";
                errors.report(
                    CompositionErrorKind::MergedDirectiveApplicationOnExternal,
                    &[service],
                    &at,
                    message,
                    hint,
                );
            }
        }
        if let Some(overrides) = &field.overrides {
            check_override(schema, &at, field.is_external, overrides, errors);
        }
    }
}

fn check_override(
    schema: &SubgraphSchema<'_>,
    at: &str,
    is_external: bool,
    overrides: &FieldOverride,
    errors: &mut Diagnostics,
) {
    let service = &schema.name;
    if is_external {
        let message = format!("\"{at}\" of \"{service}\" has @override, but is external.");
        let hint = "remove one of them: a service resolves the fields that it overrides";
        errors.report(
            CompositionErrorKind::OverrideCollisionWithAnotherDirective,
            &[service],
            at,
            message,
            hint,
        );
    }
    if overrides.from_service == **service {
        let message = format!("\"{at}\" of \"{service}\" overrides itself.");
        errors.report(
            CompositionErrorKind::OverrideFromSelfError,
            &[service],
            at,
            message,
            "name the service that resolved the field before",
        );
    }
    if overrides.label.as_deref().is_some_and(|label| !is_label(label)) {
        let message = format!("The label of @override at \"{at}\" of \"{service}\" is invalid.");
        let hint =
            "write \"percent(25)\", or a name of letters, digits and _ - : . / that begins with a letter";
        errors.report(CompositionErrorKind::OverrideLabelInvalid, &[service], at, message, hint);
    }
}

/// Whether a text is a valid label of `@override`: a percentage or a name.
pub(super) fn is_label(label: &str) -> bool {
    if let Some(share) = label.strip_prefix("percent(").and_then(|label| label.strip_suffix(')')) {
        let (whole, part) = share.split_once('.').unwrap_or((share, "0"));
        let digits = |text: &str, most| {
            (1..=most).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit())
        };
        return digits(whole, 3) && digits(part, 8) && share.parse::<f64>().is_ok_and(|share| share <= 100.0);
    }
    let rest = |byte: u8| byte.is_ascii_alphanumeric() || b"_-:./".contains(&byte);
    label.starts_with(|first: char| first.is_ascii_alphabetic()) && label.bytes().all(rest)
}

fn check_interface(schema: &SubgraphSchema<'_>, name: &str, of: &SubgraphType<'_>, errors: &mut Diagnostics) {
    let service = &schema.name;
    for (field_name, field) in &of.fields {
        let at = format!("{name}.{field_name}");
        let wrong = [
            (field.requires.is_some(), CompositionErrorKind::RequiresUnsupportedOnInterface, "@requires"),
            (field.provides.is_some(), CompositionErrorKind::ProvidesUnsupportedOnInterface, "@provides"),
            (field.overrides.is_some(), CompositionErrorKind::OverrideOnInterface, "@override"),
            (field.is_external, CompositionErrorKind::ExternalOnInterface, "@external"),
            (
                field.is_shareable && !schema.is_federation_v1,
                CompositionErrorKind::InvalidShareableUsage,
                "@shareable",
            ),
        ];
        for (_, code, directive) in wrong.into_iter().filter(|(is_wrong, _, _)| *is_wrong) {
            let message =
                format!("\"{at}\" of \"{service}\" is an interface's field and can't have {directive}.");
            errors.report(
                code,
                &[service],
                &at,
                message,
                "move it to the types that implement the interface",
            );
        }
    }
    let implementations = schema.types.iter().filter(|(_, other)| other.interfaces.contains(name));
    for (other_name, other) in implementations.filter(|(_, other)| other.kind == SubgraphTypeKind::Object) {
        let lacks = |key: &&super::model::EntityKey| {
            key.is_resolvable
                && !other
                    .keys
                    .iter()
                    .any(|entity_key| entity_key.fields.selection.is_same(&key.fields.selection))
        };
        for key in of.keys.iter().filter(lacks) {
            let fields = &key.fields.text;
            errors.report(
                CompositionErrorKind::InterfaceKeyNotOnImplementation,
                &[service],
                *other_name,
                format!("\"{other_name}\" of \"{service}\" implements \"{name}\", but lacks its @key(fields: \"{fields}\")."),
                format!("add that @key to \"{other_name}\" there"),
            );
        }
    }
}

/// Reports a type without any elements.
fn check_not_empty(schema: &SubgraphSchema<'_>, name: &str, of: &SubgraphType<'_>, errors: &mut Diagnostics) {
    let is_empty = match of.kind {
        SubgraphTypeKind::Object | SubgraphTypeKind::Interface => of.fields.is_empty(),
        SubgraphTypeKind::Input => of.inputs.is_empty(),
        SubgraphTypeKind::Enum => of.values.is_empty(),
        SubgraphTypeKind::Union => of.members.is_empty(),
        SubgraphTypeKind::Scalar => false,
    };
    if is_empty {
        let service = &schema.name;
        let message = format!("\"{name}\" of \"{service}\" is empty.");
        errors.report(
            CompositionErrorKind::InvalidGraphql,
            &[service],
            name,
            message,
            "add an element, or remove it",
        );
    }
}

/// Reports types that implement something other than interfaces, and unions whose members are not objects.
fn check_member_kinds(
    schema: &SubgraphSchema<'_>,
    name: &str,
    of: &SubgraphType<'_>,
    errors: &mut Diagnostics,
) {
    let service = &schema.name;
    for interface_name in &of.interfaces {
        let Some(interface) = schema.types.get(interface_name) else { continue };
        if interface.kind != SubgraphTypeKind::Interface {
            let message = format!(
                "\"{name}\" of \"{service}\" implements \"{interface_name}\", which is not an interface there."
            );
            errors.report(
                CompositionErrorKind::InvalidGraphql,
                &[service],
                name,
                message,
                "name an interface",
            );
        }
    }
    for member in &of.members {
        if schema.types.get(member).is_some_and(|of| of.kind != SubgraphTypeKind::Object) {
            let message = format!(
                "The union \"{name}\" of \"{service}\" has the member \"{member}\", which is not an object type."
            );
            errors.report(
                CompositionErrorKind::InvalidGraphql,
                &[service],
                name,
                message,
                "name object types only",
            );
        }
    }
}
