//! Old keys and values of version 0.1, which configs may still have.
//!
//! They are renamed before validation, with a warning each, so that everything else sees new names only.
//! `docs/decisions/0001-public-names-follow-the-fields-vocabulary.md` has the reasons.

#[cfg(test)]
mod tests;

use diagnostics::Diagnostic;
use json::pointer::append_step;
use serde_json::{Map, Value, json};

use super::source::FieldPositions;

/// The renamed keys and values of the maps in one place of a file.
pub(crate) struct RenamedIn {
    /// The path of the maps, in which `*` is every member or item. Empty for the whole file.
    path: &'static str,
    /// The old and the new keys.
    keys: &'static [(&'static str, &'static str)],
    /// Keys, with an old and a new value.
    values: &'static [(&'static str, &'static str, &'static str)],
}

/// The renamed keys of `orfa.yaml`.
pub(super) const CONFIG: &[RenamedIn] = &[
    RenamedIn::with_keys(
        "routes/*/limits",
        &[("deadline", "timeout"), ("body", "request_body"), ("body_rate", "min_request_body_rate")],
    ),
    RenamedIn::with_keys(
        "routes/*/query/limits",
        &[
            ("deadline", "timeout"),
            ("parallel", "concurrency"),
            ("received", "upstream_bytes"),
            ("output", "response_body"),
            ("program", "program_bytes"),
            ("body", "request_body"),
        ],
    ),
    RenamedIn::with_keys("rights/*/limits", CALLER_LIMITS),
    RenamedIn::with_keys("trust/*/limits", CALLER_LIMITS),
    RenamedIn::with_keys(
        "routes/*/script/limits",
        &[
            ("time", "cpu"),
            ("wall", "timeout"),
            ("parallel", "concurrency"),
            ("received", "upstream_bytes"),
            ("body", "request_body"),
        ],
    ),
    RenamedIn::with_keys("routes/*/aggregate/limits", COMPOSED_LIMITS),
    RenamedIn::with_keys("routes/*/graphql/limits", COMPOSED_LIMITS),
    RenamedIn::with_keys("routes/*/filters/*/limits", &[("time", "cpu"), ("start", "startup_cpu")]),
    RenamedIn::with_keys("rights/*/rate", &[("at_once", "max_in_flight")]),
    RenamedIn::with_keys("services/*", &[("dns", "dns_refresh_rate")]),
    RenamedIn::with_keys(
        "services/*/health",
        &[("every", "interval"), ("healthy", "healthy_threshold"), ("unhealthy", "unhealthy_threshold")],
    ),
    RenamedIn::with_keys("routes/*/script/workers", &[("least", "min"), ("most", "max")]),
    RenamedIn::with_keys("routes/*/script/resources", &[("most", "max")]),
    RenamedIn::with_keys("routes/*/graphql", &[("persisted", "apq")]),
    RenamedIn::with_keys("trust/*", &[("public", "public_key")]),
    RenamedIn::with_keys("runtime", &[("folder", "cache_dir"), ("folder_size", "cache_dir_size")]),
    RenamedIn::with_keys("scripts", &[("state", "state_dir")]),
];

/// The limits of a caller or of a developer's key.
const CALLER_LIMITS: &[(&str, &str)] = &[
    ("deadline", "timeout"),
    ("parallel", "concurrency"),
    ("received", "upstream_bytes"),
    ("output", "response_body"),
];

/// The limits of an aggregate or a GraphQL route.
const COMPOSED_LIMITS: &[(&str, &str)] = &[
    ("deadline", "timeout"),
    ("parallel", "concurrency"),
    ("received", "upstream_bytes"),
    ("body", "request_body"),
];

/// The renamed keys and values in the declaration of an aggregate.
pub(crate) const DECLARATION: &[RenamedIn] = &[
    RenamedIn::with_keys("", &[("answer", "response")]),
    RenamedIn {
        path: "input/*",
        keys: &[("of", "items"), ("values", "enum"), ("longest", "max_length")],
        values: &[("type", "list", "array"), ("items", "list", "array")],
    },
];

/// Renames old keys and values. The source gets a warning for each; keys that are there under both names are
/// returned as mistakes.
pub(super) fn apply_renames(
    table: &[RenamedIn],
    value: &mut Value,
    source: &mut FieldPositions,
) -> Vec<Diagnostic> {
    let mut mistakes = Vec::new();
    for renamed in table {
        let mut maps = Vec::new();
        find_maps(value, &renamed.steps(), String::new(), &mut maps);
        for (pointer, members) in maps {
            mistakes.extend(renamed.rename_keys(members, &pointer, source));
            renamed.rename_values(members, &pointer, source);
        }
    }
    mistakes
}

/// Adds the old keys to the schema of `orfa.yaml`, as deprecated.
pub(super) fn deprecate(schema: &mut Value) {
    for renamed in CONFIG {
        for pointer in find_schemas(schema, "", &renamed.steps()) {
            if let Some(Value::Object(schema)) = schema.pointer_mut(&pointer) {
                renamed.keys.iter().for_each(|(old, new)| deprecate_key(schema, old, new));
            }
        }
    }
}

impl RenamedIn {
    const fn with_keys(path: &'static str, keys: &'static [(&'static str, &'static str)]) -> Self {
        Self { path, keys, values: &[] }
    }

    fn steps(&self) -> Vec<&'static str> {
        self.path.split('/').filter(|step| !step.is_empty()).collect()
    }

    fn rename_keys(
        &self,
        members: &mut Map<String, Value>,
        pointer: &str,
        source: &mut FieldPositions,
    ) -> Vec<Diagnostic> {
        let mut mistakes = Vec::new();
        for &(old, new) in self.keys {
            let Some(value) = members.remove(old) else { continue };
            let old_pointer = append_step(pointer, old);
            if members.contains_key(new) {
                let message = format!("`{old}` is the old name of `{new}`, which is set too");
                let hint = format!("remove `{old}`");
                mistakes.push(source.mistake_in_key(&old_pointer, message, Some(hint)));
                continue;
            }
            let message = format!("the key `{old}` is deprecated");
            let warning = source.mistake_in_key(&old_pointer, message, Some(format!("write `{new}`")));
            source.warn(warning);
            source.rename(&old_pointer, &append_step(pointer, new), &value);
            members.insert(new.to_owned(), value);
        }
        mistakes
    }

    fn rename_values(&self, members: &mut Map<String, Value>, pointer: &str, source: &mut FieldPositions) {
        for &(key, old, new) in self.values {
            let Some(value) = members.get_mut(key).filter(|value| value.as_str() == Some(old)) else {
                continue;
            };
            let message = format!("the value `{old}` is deprecated");
            let warning = source.mistake(&append_step(pointer, key), message, Some(format!("write `{new}`")));
            source.warn(warning);
            *value = Value::from(new);
        }
    }
}

/// Collects the maps that a path leads to, with their JSON Pointers.
fn find_maps<'a>(
    value: &'a mut Value,
    path: &[&str],
    pointer: String,
    found: &mut Vec<(String, &'a mut Map<String, Value>)>,
) {
    match (path, value) {
        ([], Value::Object(members)) => found.push((pointer, members)),
        (["*", rest @ ..], Value::Object(members)) => {
            for (name, member) in members {
                find_maps(member, rest, append_step(&pointer, name), found);
            }
        }
        (["*", rest @ ..], Value::Array(items)) => {
            for (index, item) in items.iter_mut().enumerate() {
                find_maps(item, rest, format!("{pointer}/{index}"), found);
            }
        }
        ([name, rest @ ..], Value::Object(members)) => {
            if let Some(member) = members.get_mut(*name) {
                find_maps(member, rest, append_step(&pointer, name), found);
            }
        }
        _ => {}
    }
}

/// Returns the JSON Pointers of the schemas of the maps that a path leads to.
fn find_schemas(root: &Value, pointer: &str, path: &[&str]) -> Vec<String> {
    let Some(schema) = root.pointer(pointer) else { return Vec::new() };
    if let Some(definition) = schema.get("$ref").and_then(Value::as_str) {
        return find_schemas(root, definition.trim_start_matches('#'), path);
    }
    let mut found = Vec::new();
    for key in ["anyOf", "oneOf"] {
        for index in 0..schema.get(key).and_then(Value::as_array).map_or(0, Vec::len) {
            found.extend(find_schemas(root, &format!("{pointer}/{key}/{index}"), path));
        }
    }
    match path {
        [] if schema.get("properties").is_some() => found.push(pointer.to_owned()),
        [] => {}
        ["*", rest @ ..] => {
            for key in ["items", "additionalProperties"] {
                found.extend(find_schemas(root, &format!("{pointer}/{key}"), rest));
            }
        }
        [name, rest @ ..] => {
            found.extend(find_schemas(root, &format!("{pointer}/properties/{name}"), rest));
        }
    }
    found
}

/// Adds an old key to the schema of a map.
fn deprecate_key(schema: &mut Map<String, Value>, old: &str, new: &str) {
    let Some(Value::Object(properties)) = schema.get_mut("properties") else { return };
    let Some(Value::Object(mut property)) = properties.get(new).cloned() else { return };
    property.insert("description".to_owned(), format!("Renamed to `{new}`.").into());
    property.insert("deprecated".to_owned(), true.into());
    properties.insert(old.to_owned(), property.into());
    // A required setting is there under either name.
    let Some(Value::Array(required)) = schema.get_mut("required") else { return };
    if let Some(index) = required.iter().position(|key| key == new) {
        required.remove(index);
        schema.insert("anyOf".to_owned(), json!([{ "required": [new] }, { "required": [old] }]));
    }
}
