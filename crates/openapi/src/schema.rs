//! Schemas: what values look like, as far as a type can say it. What only narrows values down (lengths, patterns, `not`)
//! has no place here.

use std::collections::{BTreeSet, HashMap, HashSet};

use serde_json::{Map, Value};

use crate::reader::{Reader, member};

/// What a value looks like.
#[derive(Clone, Debug, PartialEq)]
pub enum Schema {
    /// Anything, as far as is known.
    Unknown,
    /// Nothing.
    Never,
    /// `null`.
    Null,
    /// `true` or `false`.
    Boolean,
    /// A whole number, with its `format`.
    Integer(Option<String>),
    /// A number.
    Number,
    /// A text, with its `format`.
    Text(Option<String>),
    /// One of these texts, numbers, booleans or `null`.
    Literals(Vec<Value>),
    /// A list.
    List(Box<Schema>),
    /// A list that begins with these, and goes on with others, if any may follow.
    Tuple(Vec<Schema>, Option<Box<Schema>>),
    /// An object.
    Object(Object),
    /// One of the document's named schemas.
    Named(String),
    /// At least one of these.
    Any(Vec<Schema>),
    /// One of these, told apart by a member of theirs.
    Told(Told),
    /// All of these at once.
    All(Vec<Schema>),
}

/// Several objects of which a value is one, as its member says.
#[derive(Clone, Debug, PartialEq)]
pub struct Told {
    /// The member.
    pub by: String,
    /// What there is.
    pub branches: Vec<Schema>,
    /// What the member says, and the name of the schema that it means.
    pub values: Vec<(String, String)>,
}

/// An object: its members, and what others may be.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Object {
    /// The members that are known by name.
    pub members: Vec<Member>,
    /// What members of other names are; `None` where nothing is said of them.
    pub others: Option<Box<Schema>>,
}

/// A member of an object.
#[derive(Clone, Debug, PartialEq)]
pub struct Member {
    /// As it stands in the JSON.
    pub name: String,
    /// What it looks like.
    pub schema: Schema,
    /// Whether it has to be there.
    pub is_required: bool,
    /// What it means; empty where nothing is said.
    pub description: String,
    /// Who may say it.
    pub access: Access,
    /// Whether it should not be used any more.
    pub is_deprecated: bool,
}

/// In which direction a member goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Access {
    /// In both.
    #[default]
    Both,
    /// It is answered, and never sent.
    ReadOnly,
    /// It is sent, and never answered.
    WriteOnly,
}

/// Reads the schema at a pointer.
pub(crate) fn read<'a>(reader: &mut Reader<'a>, value: &'a Value, pointer: &str) -> Schema {
    match value {
        Value::Bool(true) => Schema::Unknown,
        Value::Bool(false) => Schema::Never,
        Value::Object(schema) => {
            let read = whole(reader, schema, pointer);
            let is_nullable = |key| schema.get(key) == Some(&Value::Bool(true));
            if is_nullable("nullable") || is_nullable("x-nullable") {
                any(vec![read, Schema::Null])
            } else {
                read
            }
        }
        _ => reader.unknown(pointer, "this is no schema"),
    }
}

/// All that a schema says, but for `nullable`.
fn whole<'a>(reader: &mut Reader<'a>, schema: &'a Map<String, Value>, pointer: &str) -> Schema {
    let mut parts = Vec::new();
    parts.extend(schema.get("$ref").map(|reference| reader.named(reference, pointer)));
    let literals = schema.get("enum").or_else(|| schema.get("const"));
    match literals {
        Some(Value::Array(values)) if schema.contains_key("enum") => {
            parts.push(literal(reader, values.clone(), &format!("{pointer}/enum")));
        }
        Some(value) if !schema.contains_key("enum") => {
            parts.push(literal(reader, vec![value.clone()], &format!("{pointer}/const")));
        }
        Some(_) => parts.push(reader.unknown(pointer, "`enum` is no list")),
        // Beside a reference, a bare `type` only repeats what is there.
        None if parts.is_empty() || says_members(schema) => parts.extend(typed(reader, schema, pointer)),
        None => {}
    }
    parts.extend(several(reader, schema, pointer, "allOf"));
    for key in ["oneOf", "anyOf"] {
        let branches = several(reader, schema, pointer, key);
        if !branches.is_empty() {
            let is_open = branches.contains(&Schema::Unknown);
            parts.push(match schema.get("discriminator").filter(|_| !is_open) {
                Some(discriminator) => told(reader, discriminator, schema.get(key), branches),
                None => any(branches),
            });
        }
    }
    all(parts)
}

fn says_members(schema: &Map<String, Value>) -> bool {
    schema.contains_key("properties") || schema.contains_key("required")
}

fn several<'a>(
    reader: &mut Reader<'a>,
    schema: &'a Map<String, Value>,
    pointer: &str,
    key: &str,
) -> Vec<Schema> {
    let Some(branches) = schema.get(key) else { return Vec::new() };
    let pointer = format!("{pointer}/{key}");
    let Some(branches) = branches.as_array() else {
        return vec![reader.unknown(&pointer, "this is no list of schemas")];
    };
    let branches = branches.iter().enumerate();
    branches.map(|(index, branch)| read(reader, branch, &format!("{pointer}/{index}"))).collect()
}

/// Branches that a discriminator tells apart: by its mapping, else by the names of their schemas.
fn told(
    reader: &mut Reader<'_>,
    discriminator: &Value,
    written: Option<&Value>,
    branches: Vec<Schema>,
) -> Schema {
    // Before OpenAPI 3 it was the name alone.
    let by = discriminator.get("propertyName").unwrap_or(discriminator).as_str();
    let Some(by) = by.map(str::to_owned) else { return any(branches) };
    let mut values = Vec::new();
    for (text, target) in discriminator.get("mapping").and_then(Value::as_object).into_iter().flatten() {
        let target = target.as_str().unwrap_or_default();
        let name =
            if target.contains('#') { reader.name_of(target) } else { reader.name_of(&in_schemas(target)) };
        values.extend(name.map(|name| (text.clone(), name)));
    }
    for branch in written.and_then(Value::as_array).into_iter().flatten() {
        let Some(target) = branch.get("$ref").and_then(Value::as_str) else { continue };
        let Some(name) = reader.name_of(target) else { continue };
        let text = target.rsplit('/').next().unwrap_or_default();
        if !values.iter().any(|(_, known)| *known == name) {
            values.push((text.replace("~1", "/").replace("~0", "~"), name));
        }
    }
    if values.is_empty() { any(branches) } else { Schema::Told(Told { by, branches, values }) }
}

fn in_schemas(name: &str) -> String {
    member("#/components/schemas", name)
}

fn literal(reader: &mut Reader<'_>, values: Vec<Value>, pointer: &str) -> Schema {
    if values.is_empty() {
        return reader.unknown(pointer, "the list of values is empty");
    }
    if values.iter().any(|value| value.is_array() || value.is_object()) {
        return reader.unknown(pointer, "values that are lists or objects have no type of their own");
    }
    Schema::Literals(values)
}

/// What `type` says, or what follows from the other words where it is missing.
fn typed<'a>(reader: &mut Reader<'a>, schema: &'a Map<String, Value>, pointer: &str) -> Option<Schema> {
    match schema.get("type") {
        Some(Value::String(name)) => Some(of_type(reader, name, schema, pointer)),
        Some(Value::Array(names)) => {
            let names = names.iter().filter_map(Value::as_str);
            Some(any(names.map(|name| of_type(reader, name, schema, pointer)).collect()))
        }
        Some(_) => Some(reader.unknown(&format!("{pointer}/type"), "this is no type")),
        None if says_members(schema)
            || schema.contains_key("additionalProperties")
            || schema.contains_key("patternProperties") =>
        {
            Some(object(reader, schema, pointer))
        }
        None if schema.contains_key("items") || schema.contains_key("prefixItems") => {
            Some(list(reader, schema, pointer))
        }
        None => None,
    }
}

fn of_type<'a>(reader: &mut Reader<'a>, name: &str, schema: &'a Map<String, Value>, pointer: &str) -> Schema {
    let format = || schema.get("format").and_then(Value::as_str).map(str::to_owned);
    match name {
        "null" => Schema::Null,
        "boolean" => Schema::Boolean,
        "integer" => Schema::Integer(width(schema, format())),
        "number" => Schema::Number,
        "string" => Schema::Text(format()),
        "file" => Schema::Text(Some("binary".into())),
        "array" => list(reader, schema, pointer),
        "object" => object(reader, schema, pointer),
        _ => reader.unknown(&format!("{pointer}/type"), &format!("there is no type `{name}`")),
    }
}

/// The format of a whole number: bounds that say more go before it.
fn width(schema: &Map<String, Value>, format: Option<String>) -> Option<String> {
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

fn list<'a>(reader: &mut Reader<'a>, schema: &'a Map<String, Value>, pointer: &str) -> Schema {
    // Before OpenAPI 3.1 a list of `items` was what `prefixItems` is.
    let first = schema.get("prefixItems").or_else(|| schema.get("items").filter(|items| items.is_array()));
    let items = schema.get("items").filter(|items| !items.is_array());
    let items = items.map(|items| read(reader, items, &format!("{pointer}/items")));
    let Some(first) = first.and_then(Value::as_array) else {
        return Schema::List(Box::new(items.unwrap_or(Schema::Unknown)));
    };
    let first = first.iter().enumerate();
    let first = first.map(|(index, item)| read(reader, item, &format!("{pointer}/prefixItems/{index}")));
    let first = first.collect();
    Schema::Tuple(
        first,
        Some(items.unwrap_or(Schema::Unknown)).filter(|rest| *rest != Schema::Never).map(Box::new),
    )
}

fn object<'a>(reader: &mut Reader<'a>, schema: &'a Map<String, Value>, pointer: &str) -> Schema {
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
                members.push(Member {
                    name: name.clone(),
                    schema: read(reader, value, &member(&at, name)),
                    is_required: required.contains(&&**name),
                    description: description.to_owned(),
                    access: match (says("readOnly"), says("writeOnly")) {
                        (true, false) => Access::ReadOnly,
                        (false, true) => Access::WriteOnly,
                        _ => Access::Both,
                    },
                    is_deprecated: says("deprecated"),
                });
            }
        }
        Some(_) => reader.note(&at, "this is no object of schemas: left out"),
        None => {}
    }
    // Said of members that another part describes, or nobody.
    let known: HashSet<&str> = members.iter().map(|member| &*member.name).collect();
    let others: Vec<&str> = required.into_iter().filter(|name| !known.contains(name)).collect();
    let mut seen = HashSet::new();
    for name in others.into_iter().filter(|name| seen.insert(*name)) {
        members.push(Member {
            name: name.to_owned(),
            schema: Schema::Unknown,
            is_required: true,
            description: String::new(),
            access: Access::Both,
            is_deprecated: false,
        });
    }
    let patterns = schema.get("patternProperties").map(|_| Schema::Unknown);
    let others = match schema.get("additionalProperties") {
        None | Some(Value::Bool(false)) => patterns,
        Some(others) => {
            let others = read(reader, others, &format!("{pointer}/additionalProperties"));
            Some(patterns.unwrap_or(others))
        }
    };
    Schema::Object(Object { members, others: others.map(Box::new) })
}

/// One of several: what is anything makes all of it anything.
fn any(branches: Vec<Schema>) -> Schema {
    let mut flat: Vec<Schema> = Vec::new();
    for branch in branches {
        match branch {
            Schema::Any(inner) => flat.extend(inner),
            other => flat.push(other),
        }
    }
    flat.dedup();
    if flat.iter().any(|branch| matches!(branch, Schema::Literals(values) if values.contains(&Value::Null))) {
        flat.retain(|branch| *branch != Schema::Null);
    }
    match flat.len() {
        _ if flat.contains(&Schema::Unknown) => Schema::Unknown,
        0 | 1 => flat.pop().unwrap_or(Schema::Unknown),
        _ => Schema::Any(flat),
    }
}

/// All of several: what says nothing adds nothing.
fn all(mut parts: Vec<Schema>) -> Schema {
    parts.retain(|part| *part != Schema::Unknown);
    match parts.len() {
        0 | 1 => parts.pop().unwrap_or(Schema::Unknown),
        _ => Schema::All(parts),
    }
}

/// Finds names that stand for nothing but themselves, as `a: b`, `b: a` do, and makes them unknown. A circle through a
/// list or an object is fine.
pub(crate) fn break_circles(schemas: &mut [(String, Schema)]) -> Vec<String> {
    let index: HashMap<&str, usize> =
        schemas.iter().enumerate().map(|(index, (name, _))| (&**name, index)).collect();
    let edges: Vec<Vec<usize>> = schemas.iter().map(|(_, schema)| direct(schema, &index)).collect();
    let mut state = vec![State::New; edges.len()];
    let mut circular = BTreeSet::new();
    for start in 0..edges.len() {
        // Depth first, with a stack of its own: a chain may be as long as the document.
        let mut path = vec![(start, 0)];
        while let Some((at, next)) = path.pop() {
            if next == 0 && state[at] != State::New {
                continue;
            }
            state[at] = State::Open;
            match edges[at].get(next) {
                None => state[at] = State::Done,
                Some(&to) => {
                    path.push((at, next + 1));
                    match state[to] {
                        State::Open => drop(circular.insert(at)),
                        State::New => path.push((to, 0)),
                        State::Done => {}
                    }
                }
            }
        }
    }
    let names = circular.into_iter().map(|at| {
        schemas[at].1 = Schema::Unknown;
        schemas[at].0.clone()
    });
    names.collect()
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    New,
    Open,
    Done,
}

/// The names that a schema is, without anything between.
fn direct(schema: &Schema, index: &HashMap<&str, usize>) -> Vec<usize> {
    match schema {
        Schema::Named(name) => index.get(&**name).copied().into_iter().collect(),
        Schema::Any(parts) | Schema::All(parts) | Schema::Told(Told { branches: parts, .. }) => {
            parts.iter().flat_map(|part| direct(part, index)).collect()
        }
        _ => Vec::new(),
    }
}
