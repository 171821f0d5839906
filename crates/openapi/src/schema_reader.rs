//! Reading of schemas, from the keywords of JSON Schema to the model in `schema.rs`.

use std::collections::{HashMap, HashSet};

use diagnostics::Diagnostic;
use serde_json::{Map, Value};

use crate::reader::{DocumentReader, SCHEMAS, member_pointer};
use crate::schema::{self, DiscriminatedUnion, MemberAccess, MemberSchema, ObjectSchema, OpenApiSchema};

/// The schemas that were read, and the problems found.
pub(crate) struct ReadSchemas {
    pub(crate) schemas: Vec<(String, OpenApiSchema)>,
    pub(crate) descriptions: HashMap<String, String>,
    pub(crate) warnings: Vec<Diagnostic>,
}

/// Reads all the schemas that are referred to, and returns them with the problems found.
pub(crate) fn read_named_schemas(mut reader: DocumentReader<'_>) -> ReadSchemas {
    let (mut schemas, mut descriptions) = (Vec::new(), HashMap::new());
    while let Some((pointer, name)) = reader.next_pending_schema() {
        let value = reader.root().pointer(&pointer);
        let description = value.and_then(|value| value.get("description")).and_then(Value::as_str);
        descriptions.extend(description.map(|text| (name.clone(), text.to_owned())));
        let schema = value.map(|value| read_schema(&mut reader, value, &pointer));
        schemas.push((name, schema.unwrap_or(OpenApiSchema::Unknown)));
    }
    for name in schema::break_cycles(&mut schemas) {
        reader.add_warning(&format!("{SCHEMAS}/{name}"), "the schema refers only to itself: read as unknown");
    }
    ReadSchemas { schemas, descriptions, warnings: reader.into_warnings() }
}

/// Reads the schema at a pointer.
pub(crate) fn read_schema<'a>(
    reader: &mut DocumentReader<'a>,
    value: &'a Value,
    pointer: &str,
) -> OpenApiSchema {
    match value {
        Value::Bool(true) => OpenApiSchema::Unknown,
        Value::Bool(false) => OpenApiSchema::Never,
        Value::Object(schema) => {
            let read = read_without_nullable(reader, schema, pointer);
            let is_nullable = |key| schema.get(key) == Some(&Value::Bool(true));
            if is_nullable("nullable") || is_nullable("x-nullable") {
                union_of(vec![read, OpenApiSchema::Null])
            } else {
                read
            }
        }
        _ => reader.unknown_schema(pointer, "this is not a schema"),
    }
}

/// Reads all of a schema except for `nullable`.
fn read_without_nullable<'a>(
    reader: &mut DocumentReader<'a>,
    schema: &'a Map<String, Value>,
    pointer: &str,
) -> OpenApiSchema {
    let mut parts = Vec::new();
    parts.extend(schema.get("$ref").map(|reference| reader.referenced_schema(reference, pointer)));
    let literals = schema.get("enum").or_else(|| schema.get("const"));
    match literals {
        Some(Value::Array(values)) if schema.contains_key("enum") => {
            parts.push(read_literals(reader, values.clone(), &format!("{pointer}/enum")));
        }
        Some(value) if !schema.contains_key("enum") => {
            parts.push(read_literals(reader, vec![value.clone()], &format!("{pointer}/const")));
        }
        Some(_) => parts.push(reader.unknown_schema(pointer, "`enum` is not a list")),
        // Beside a reference, a bare `type` only repeats the type of its target.
        None if parts.is_empty() || describes_members(schema) => {
            parts.extend(read_typed(reader, schema, pointer))
        }
        None => {}
    }
    parts.extend(read_branches(reader, schema, pointer, "allOf"));
    for key in ["oneOf", "anyOf"] {
        let branches = read_branches(reader, schema, pointer, key);
        if !branches.is_empty() {
            let is_open = branches.contains(&OpenApiSchema::Unknown);
            parts.push(match schema.get("discriminator").filter(|_| !is_open) {
                Some(discriminator) => read_discriminated(reader, discriminator, schema.get(key), branches),
                None => union_of(branches),
            });
        }
    }
    intersection_of(parts)
}

fn describes_members(schema: &Map<String, Value>) -> bool {
    schema.contains_key("properties") || schema.contains_key("required")
}

fn read_branches<'a>(
    reader: &mut DocumentReader<'a>,
    schema: &'a Map<String, Value>,
    pointer: &str,
    key: &str,
) -> Vec<OpenApiSchema> {
    let Some(branches) = schema.get(key) else { return Vec::new() };
    let pointer = format!("{pointer}/{key}");
    let Some(branches) = branches.as_array() else {
        return vec![reader.unknown_schema(&pointer, "this is not a list of schemas")];
    };
    let branches = branches.iter().enumerate();
    branches.map(|(index, branch)| read_schema(reader, branch, &format!("{pointer}/{index}"))).collect()
}

/// Returns the alternatives of a discriminator: by its mapping, or else by the names of their schemas.
fn read_discriminated(
    reader: &mut DocumentReader<'_>,
    discriminator: &Value,
    value: Option<&Value>,
    branches: Vec<OpenApiSchema>,
) -> OpenApiSchema {
    // Before OpenAPI 3 the discriminator was only a name.
    let by = discriminator.get("propertyName").unwrap_or(discriminator).as_str();
    let Some(by) = by.map(str::to_owned) else { return union_of(branches) };
    let mut values = Vec::new();
    for (text, target) in discriminator.get("mapping").and_then(Value::as_object).into_iter().flatten() {
        let target = target.as_str().unwrap_or_default();
        let name = if target.contains('#') {
            reader.referenced_name(target)
        } else {
            reader.referenced_name(&schema_pointer(target))
        };
        values.extend(name.map(|name| (text.clone(), name)));
    }
    for branch in value.and_then(Value::as_array).into_iter().flatten() {
        let Some(target) = branch.get("$ref").and_then(Value::as_str) else { continue };
        let Some(name) = reader.referenced_name(target) else { continue };
        let text = target.rsplit('/').next().unwrap_or_default();
        if !values.iter().any(|(_, known)| *known == name) {
            values.push((text.replace("~1", "/").replace("~0", "~"), name));
        }
    }
    if values.is_empty() {
        union_of(branches)
    } else {
        OpenApiSchema::Discriminated(DiscriminatedUnion { discriminator: by, branches, values })
    }
}

fn schema_pointer(name: &str) -> String {
    member_pointer("#/components/schemas", name)
}

fn read_literals(reader: &mut DocumentReader<'_>, values: Vec<Value>, pointer: &str) -> OpenApiSchema {
    if values.is_empty() {
        return reader.unknown_schema(pointer, "the list of values is empty");
    }
    if values.iter().any(|value| value.is_array() || value.is_object()) {
        return reader.unknown_schema(pointer, "values that are lists or objects have no type of their own");
    }
    OpenApiSchema::Literals(values)
}

/// Reads the schema by its `type`, or by its other keywords if that is missing.
fn read_typed<'a>(
    reader: &mut DocumentReader<'a>,
    schema: &'a Map<String, Value>,
    pointer: &str,
) -> Option<OpenApiSchema> {
    match schema.get("type") {
        Some(Value::String(name)) => Some(read_named_type(reader, name, schema, pointer)),
        Some(Value::Array(names)) => {
            let names = names.iter().filter_map(Value::as_str);
            Some(union_of(names.map(|name| read_named_type(reader, name, schema, pointer)).collect()))
        }
        Some(_) => Some(reader.unknown_schema(&format!("{pointer}/type"), "this is not a type")),
        None if describes_members(schema)
            || schema.contains_key("additionalProperties")
            || schema.contains_key("patternProperties") =>
        {
            Some(read_object(reader, schema, pointer))
        }
        None if schema.contains_key("items") || schema.contains_key("prefixItems") => {
            Some(read_list(reader, schema, pointer))
        }
        None => None,
    }
}

fn read_named_type<'a>(
    reader: &mut DocumentReader<'a>,
    name: &str,
    schema: &'a Map<String, Value>,
    pointer: &str,
) -> OpenApiSchema {
    let format = || schema.get("format").and_then(Value::as_str).map(str::to_owned);
    match name {
        "null" => OpenApiSchema::Null,
        "boolean" => OpenApiSchema::Boolean,
        "integer" => OpenApiSchema::Integer(integer_format(schema, format())),
        "number" => OpenApiSchema::Number,
        "string" => OpenApiSchema::Text(format()),
        "file" => OpenApiSchema::Text(Some("binary".into())),
        "array" => read_list(reader, schema, pointer),
        "object" => read_object(reader, schema, pointer),
        _ => reader.unknown_schema(&format!("{pointer}/type"), &format!("there is no type `{name}`")),
    }
}

/// The format of an integer. Bounds take precedence if they are more specific.
fn integer_format(schema: &Map<String, Value>, format: Option<String>) -> Option<String> {
    let bound = |key| schema.get(key).and_then(Value::as_f64);
    let fits = |bound: f64| (f64::from(i32::MIN)..=f64::from(i32::MAX)).contains(&bound);
    match (bound("minimum"), bound("maximum")) {
        (Some(least), Some(most)) if fits(least) && fits(most) && format.is_some() => {
            Some("int32".to_owned())
        }
        (least, most)
            if format.is_none() && [least, most].into_iter().flatten().any(|bound| !fits(bound)) =>
        {
            Some("int64".to_owned())
        }
        _ => format,
    }
}

fn read_list<'a>(
    reader: &mut DocumentReader<'a>,
    schema: &'a Map<String, Value>,
    pointer: &str,
) -> OpenApiSchema {
    // Before OpenAPI 3.1 a list in `items` had the meaning of `prefixItems`.
    let first = schema.get("prefixItems").or_else(|| schema.get("items").filter(|items| items.is_array()));
    let items = schema.get("items").filter(|items| !items.is_array());
    let items = items.map(|items| read_schema(reader, items, &format!("{pointer}/items")));
    let Some(first) = first.and_then(Value::as_array) else {
        return OpenApiSchema::List(Box::new(items.unwrap_or(OpenApiSchema::Unknown)));
    };
    let first = first.iter().enumerate();
    let first =
        first.map(|(index, item)| read_schema(reader, item, &format!("{pointer}/prefixItems/{index}")));
    let first = first.collect();
    OpenApiSchema::Tuple(
        first,
        Some(items.unwrap_or(OpenApiSchema::Unknown))
            .filter(|api_schema| *api_schema != OpenApiSchema::Never)
            .map(Box::new),
    )
}

fn read_object<'a>(
    reader: &mut DocumentReader<'a>,
    schema: &'a Map<String, Value>,
    pointer: &str,
) -> OpenApiSchema {
    let required: Vec<&str> = schema
        .get("required")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let mut members = Vec::new();
    let at = format!("{pointer}/properties");
    match schema.get("properties") {
        Some(Value::Object(properties)) => {
            for (name, value) in properties {
                let description = value.get("description").and_then(Value::as_str).unwrap_or_default();
                let says = |word: &str| value.get(word) == Some(&Value::Bool(true));
                members.push(MemberSchema {
                    name: name.clone(),
                    schema: read_schema(reader, value, &member_pointer(&at, name)),
                    is_required: required.contains(&&**name),
                    description: description.to_owned(),
                    access: match (says("readOnly"), says("writeOnly")) {
                        (true, false) => MemberAccess::ReadOnly,
                        (false, true) => MemberAccess::WriteOnly,
                        _ => MemberAccess::Both,
                    },
                    is_deprecated: says("deprecated"),
                });
            }
        }
        Some(_) => reader.add_warning(&at, "this is not an object of schemas: left out"),
        None => {}
    }
    // Required members that another part describes, or none.
    let known: HashSet<&str> = members.iter().map(|member| &*member.name).collect();
    let others: Vec<&str> = required.into_iter().filter(|name| !known.contains(name)).collect();
    let mut seen = HashSet::new();
    for name in others.into_iter().filter(|name| seen.insert(*name)) {
        members.push(MemberSchema {
            name: name.to_owned(),
            schema: OpenApiSchema::Unknown,
            is_required: true,
            description: String::new(),
            access: MemberAccess::Both,
            is_deprecated: false,
        });
    }
    let patterns = schema.get("patternProperties").map(|_| OpenApiSchema::Unknown);
    let others = match schema.get("additionalProperties") {
        None | Some(Value::Bool(false)) => patterns,
        Some(others) => {
            let others = read_schema(reader, others, &format!("{pointer}/additionalProperties"));
            Some(patterns.unwrap_or(others))
        }
    };
    OpenApiSchema::Object(ObjectSchema { members, additional: others.map(Box::new) })
}

/// Returns a union. It is unknown if any branch is.
fn union_of(branches: Vec<OpenApiSchema>) -> OpenApiSchema {
    let mut flat: Vec<OpenApiSchema> = Vec::new();
    for branch in branches {
        match branch {
            OpenApiSchema::Any(inner) => flat.extend(inner),
            other => flat.push(other),
        }
    }
    flat.dedup();
    if flat
        .iter()
        .any(|branch| matches!(branch, OpenApiSchema::Literals(values) if values.contains(&Value::Null)))
    {
        flat.retain(|branch| *branch != OpenApiSchema::Null);
    }
    match flat.len() {
        _ if flat.contains(&OpenApiSchema::Unknown) => OpenApiSchema::Unknown,
        0 | 1 => flat.pop().unwrap_or(OpenApiSchema::Unknown),
        _ => OpenApiSchema::Any(flat),
    }
}

/// Returns an intersection. Unknown parts are ignored.
fn intersection_of(mut parts: Vec<OpenApiSchema>) -> OpenApiSchema {
    parts.retain(|part| *part != OpenApiSchema::Unknown);
    match parts.len() {
        0 | 1 => parts.pop().unwrap_or(OpenApiSchema::Unknown),
        _ => OpenApiSchema::All(parts),
    }
}
