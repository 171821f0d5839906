//! A canonical summary of a supergraph, with a line for each element, independent of order and formatting.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use graphql_tools::parser::schema::{Definition, Directive, Field, InputValue, Text, TypeDefinition, Value};

pub(super) fn summarize(sdl: &str) -> String {
    let document = graphql_tools::parser::parse_schema::<&str>(sdl).unwrap();
    let mut out = String::new();
    for definition in &document.definitions {
        let Definition::TypeDefinition(definition) = definition else { continue };
        if ["join__", "link__"].iter().any(|own| type_name(definition).starts_with(own)) {
            continue;
        }
        match definition {
            TypeDefinition::Scalar(of) => {
                write_directives(&mut out, &format!("scalar {}", of.name), &of.directives)
            }
            TypeDefinition::Object(of) => {
                write_fielded_type(
                    &mut out,
                    "type",
                    of.name,
                    &of.directives,
                    &of.implements_interfaces,
                    &of.fields,
                );
            }
            TypeDefinition::Interface(of) => {
                write_fielded_type(
                    &mut out,
                    "interface",
                    of.name,
                    &of.directives,
                    &of.implements_interfaces,
                    &of.fields,
                );
            }
            TypeDefinition::Union(of) => {
                let members: BTreeSet<_> = of.types.iter().collect();
                write_directives(&mut out, &format!("union {} = {members:?}", of.name), &of.directives);
            }
            TypeDefinition::Enum(of) => {
                write_directives(&mut out, &format!("enum {}", of.name), &of.directives);
                for value in &of.values {
                    write_directives(
                        &mut out,
                        &format!("value {}.{}", of.name, value.name),
                        &value.directives,
                    );
                }
            }
            TypeDefinition::InputObject(of) => {
                write_directives(&mut out, &format!("input {}", of.name), &of.directives);
                for field in &of.fields {
                    write_directives(
                        &mut out,
                        &format!("input {}.{}", of.name, format_input(field)),
                        &field.directives,
                    );
                }
            }
        }
    }
    out
}

pub(super) fn type_name<'d, 'a, T: Text<'a>>(definition: &'d TypeDefinition<'a, T>) -> &'d str {
    let name = match definition {
        TypeDefinition::Scalar(of) => &of.name,
        TypeDefinition::Object(of) => &of.name,
        TypeDefinition::Interface(of) => &of.name,
        TypeDefinition::Union(of) => &of.name,
        TypeDefinition::Enum(of) => &of.name,
        TypeDefinition::InputObject(of) => &of.name,
    };
    name.as_ref()
}

fn write_fielded_type<'a>(
    out: &mut String,
    word: &str,
    name: &str,
    directives: &[Directive<'a, &'a str>],
    interfaces: &[&str],
    fields: &[Field<'a, &'a str>],
) {
    write_directives(out, &format!("{word} {name}"), directives);
    let _ = writeln!(out, "{word} {name} implements {:?}", interfaces.iter().collect::<BTreeSet<_>>());
    for of in fields {
        write_field(out, name, directives, of);
    }
}

fn write_directives<'a>(out: &mut String, what: &str, directives: &[Directive<'a, &'a str>]) {
    let _ = writeln!(out, "{what}");
    let all: BTreeSet<String> = directives.iter().map(format_directive).collect();
    all.iter().for_each(|directive| writeln!(out, "{what} {directive}").unwrap());
}

fn format_directive<'a>(directive: &Directive<'a, &'a str>) -> String {
    let mut arguments: BTreeMap<&str, String> = BTreeMap::new();
    for (name, value) in &directive.arguments {
        let is_default = matches!(
            (*name, value),
            ("extension", _)
                | ("resolvable", Value::Boolean(true))
                | ("external" | "isInterfaceObject", Value::Boolean(false))
        );
        if !is_default {
            arguments.insert(name, value.to_string().split_whitespace().collect());
        }
    }
    format!("@{} {arguments:?}", directive.name)
}

fn format_input<'a>(of: &InputValue<'a, &'a str>) -> String {
    let default = of.default_value.as_ref().map(|value| format!(" = {value}"));
    format!("{}: {}{}", of.name, of.value_type, default.unwrap_or_default())
}

fn write_field<'a>(
    out: &mut String,
    of: &str,
    directives: &[Directive<'a, &'a str>],
    field: &Field<'a, &'a str>,
) {
    let arguments: BTreeSet<String> = field.arguments.iter().map(format_input).collect();
    let at = format!("field {of}.{}", field.name);
    let _ = writeln!(out, "{at}({arguments:?}): {}", field.field_type);
    let (joins, others): (Vec<_>, Vec<_>) =
        field.directives.iter().cloned().partition(|one| one.name == "join__field");
    write_directives(out, &at, &others);
    let mut lines: BTreeSet<String> = BTreeSet::new();
    if joins.is_empty() {
        let types = directives.iter().filter(|directive| directive.name == "join__type");
        let graphs = types.filter_map(|of| of.arguments.iter().find(|(name, _)| *name == "graph"));
        lines.extend(graphs.map(|(_, graph)| format!("@join__field {{\"graph\": \"{graph}\"}}")));
    }
    // An external field is not resolved by its service, so this declaration makes no difference.
    let is_idle = |join: &&Directive<'a, &'a str>| {
        let has = |wanted| {
            join.arguments.iter().any(|(name, value)| *name == wanted && *value != Value::Boolean(false))
        };
        has("external") && !has("requires")
    };
    // The oracle omits it for `Query`.
    let is_own = |value: &Value<'a, &'a str>| *value == Value::String(field.field_type.to_string());
    let plain = |join: &Directive<'a, &'a str>| {
        let mut join = join.clone();
        join.arguments.retain(|(name, value)| *name != "type" || !(is_own(value) || of == "Query"));
        format_directive(&join)
    };
    lines.extend(joins.iter().filter(|join| !is_idle(join)).map(plain));
    lines.iter().for_each(|line| writeln!(out, "{at} {line}").unwrap());
}
