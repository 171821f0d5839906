//! The JSON Schema of the config, and the translation of validation errors into plain diagnostics.
//!
//! The schema is derived from the structs, with one change: an optional field may be absent but not `null`,
//! since an empty `cors:` in YAML is a null that is most likely a mistake.

use diagnostics::Diagnostic;
use json::pointer::append_step;
use jsonschema::error::{TypeKind, ValidationErrorKind};
use jsonschema::{JsonType, ValidationError};
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value};
use services::config::did_you_mean;

use super::GatewayConfig;
use super::renamed_keys;
use super::source::FieldPositions;

/// The string types with a format: name, description and hint.
const STRING_FORMATS: [(&str, &str, &str); 6] = [
    ("DurationConfig", "a time span", "write 50ms, 2s or 5m"),
    ("BytesConfig", "a number of bytes", "write 64KiB, 16MiB or 1GiB"),
    ("PercentConfig", "a part of a hundred", "write 20%"),
    ("StatusRange", "a status or a range of them", "write 204 or 200-299"),
    ("PerTime", "a rate", "write 100/s, 6000/m or 10/h"),
    ("CpuPerTime", "a rate of CPU time", "write 500ms/s or 2s/m"),
];

/// The JSON Schema of `orfa.yaml`, for editors and for `orfa config schema`. Old keys are deprecated in it.
#[must_use]
pub fn schema() -> Value {
    let mut schema = schema_for::<GatewayConfig>();
    renamed_keys::deprecate(&mut schema);
    schema
}

/// Returns the JSON Schema of a type in the style of the config.
pub(super) fn schema_for<T: JsonSchema>() -> Value {
    let generator = SchemaSettings::draft2020_12().into_generator();
    let mut schema = generator.into_root_schema_for::<T>().to_value();
    forbid_null(&mut schema);
    schema
}

/// Returns everything in the value that the schema does not allow.
pub(super) fn validate(value: &Value, source: &FieldPositions, schema: &Value) -> Vec<Diagnostic> {
    let validator = match jsonschema::validator_for(schema) {
        Ok(validator) => validator,
        Err(error) => return vec![source.mistake("", format!("the schema itself is wrong: {error}"), None)],
    };
    let speaker = SchemaErrorFormatter { schema, source };
    validator.iter_errors(value).flat_map(|error| speaker.format_error(&error)).collect()
}

struct SchemaErrorFormatter<'a> {
    schema: &'a Value,
    source: &'a FieldPositions,
}

impl SchemaErrorFormatter<'_> {
    fn format_error(&self, error: &ValidationError<'_>) -> Vec<Diagnostic> {
        let pointer = error.instance_path().as_str();
        if let Some((noun, hint)) = self.string_format(error) {
            let message = format!("{} is not {noun}", self.redacted_value(error));
            return vec![self.source.mistake(pointer, message, Some(hint))];
        }
        match error.kind() {
            ValidationErrorKind::AdditionalProperties { unexpected } => {
                unexpected.iter().map(|key| self.unknown_key(error, key)).collect()
            }
            ValidationErrorKind::AnyOf { context } | ValidationErrorKind::OneOfNotValid { context } => {
                self.format_branches(error, context)
            }
            _ => vec![self.format_single(error)],
        }
    }

    fn format_single(&self, error: &ValidationError<'_>) -> Diagnostic {
        let pointer = error.instance_path().as_str();
        let (message, hint) = match error.kind() {
            ValidationErrorKind::Required { property } => {
                (format!("`{}` is missing", property.as_str().unwrap_or_default()), None)
            }
            ValidationErrorKind::Type { kind } => (self.type_message(error, &types_of(kind)), None),
            ValidationErrorKind::Enum { options } => self.not_allowed_message(error, &value_list(options)),
            ValidationErrorKind::Constant { expected_value } => {
                self.not_allowed_message(error, &[format_plain(expected_value)])
            }
            ValidationErrorKind::Minimum { limit } => {
                (format!("{} is less than {limit}", self.redacted_value(error)), None)
            }
            ValidationErrorKind::Maximum { limit } => {
                (format!("{} is more than {limit}", self.redacted_value(error)), None)
            }
            ValidationErrorKind::MinItems { limit } => {
                (format!("the list is too short: it needs at least {limit}"), None)
            }
            ValidationErrorKind::MinLength { .. } => ("the text must not be empty".to_owned(), None),
            _ => (error.masked_with("the value").to_string(), None),
        };
        self.source.mistake(pointer, message, hint)
    }

    fn type_message(&self, error: &ValidationError<'_>, types: &[&str]) -> String {
        let types = types.join(" or ");
        match self.source.is_hidden(error.instance_path().as_str()) {
            true => format!("has to be {types}"),
            false => format!("has to be {types}, not {}", self.redacted_value(error)),
        }
    }

    fn not_allowed_message(
        &self,
        error: &ValidationError<'_>,
        allowed: &[String],
    ) -> (String, Option<String>) {
        let message = format!("{} is none of the allowed values", self.redacted_value(error));
        let word = error.instance().as_str().unwrap_or_default();
        let near = (!self.source.is_hidden(error.instance_path().as_str()))
            .then(|| did_you_mean(word, allowed.iter().map(String::as_str)))
            .flatten();
        (message, Some(near.unwrap_or_else(|| format!("write {}", join_alternatives(allowed)))))
    }

    fn unknown_key(&self, error: &ValidationError<'_>, key: &str) -> Diagnostic {
        let known = self.enclosing_schema(error).and_then(|schema| schema.get("properties")?.as_object());
        let known: Vec<&str> = known.into_iter().flat_map(Map::keys).map(String::as_str).collect();
        let hint = did_you_mean(key, known.iter().copied()).unwrap_or_else(|| {
            let known: Vec<String> = known.iter().map(|&key| key.to_owned()).collect();
            format!("known here: {}", known.join(", "))
        });
        let pointer = append_step(error.instance_path().as_str(), key);
        self.source.mistake_in_key(&pointer, format!("unknown key `{key}`"), Some(hint))
    }

    /// Reports the errors of the intended branch: the one whose type matches.
    fn format_branches(
        &self,
        error: &ValidationError<'_>,
        branches: &[Vec<ValidationError<'static>>],
    ) -> Vec<Diagnostic> {
        let here = error.instance_path();
        let constants: Vec<String> = branches.iter().flatten().flat_map(allowed_values).collect();
        let is_other_type = |e: &ValidationError<'_>| {
            matches!(e.kind(), ValidationErrorKind::Type { .. }) && e.instance_path() == here
        };
        if let Some(meant) = branches
            .iter()
            .find(|branch| !branch.iter().any(|e| is_other_type(e) || !allowed_values(e).is_empty()))
        {
            return meant.iter().flat_map(|error| self.format_error(error)).collect();
        }
        let (message, hint) = if constants.is_empty() {
            let types = branches.iter().flatten().flat_map(|e| match e.kind() {
                ValidationErrorKind::Type { kind } => types_of(kind),
                _ => Vec::new(),
            });
            (self.type_message(error, &types.collect::<Vec<_>>()), None)
        } else {
            self.not_allowed_message(error, &constants)
        };
        vec![self.source.mistake(here.as_str(), message, hint)]
    }

    /// Returns the description and hint of a string type with a format.
    fn string_format(&self, error: &ValidationError<'_>) -> Option<(String, String)> {
        let name = error.schema_path().as_str().strip_prefix("/$defs/")?.split('/').next()?;
        if let Some((_, noun, hint)) = STRING_FORMATS.iter().find(|(form, ..)| *form == name) {
            return Some(((*noun).to_owned(), (*hint).to_owned()));
        }
        let ValidationErrorKind::Pattern { .. } = error.kind() else { return None };
        let schema = self.enclosing_schema(error)?;
        let noun = schema.get("title").and_then(Value::as_str).unwrap_or("of the required form");
        let examples = schema.get("examples").map(value_list).unwrap_or_default();
        Some((noun.to_owned(), format!("write {}", join_alternatives(&examples))))
    }

    /// Returns the schema that contains the failed keyword.
    fn enclosing_schema(&self, error: &ValidationError<'_>) -> Option<&Value> {
        let path = error.schema_path().as_str();
        self.schema.pointer(&path[..path.rfind('/')?])
    }

    /// The value, redacted if it must not be printed.
    fn redacted_value(&self, error: &ValidationError<'_>) -> String {
        if self.source.is_hidden(error.instance_path().as_str()) {
            return "the value".to_owned();
        }
        match error.instance().as_ref() {
            Value::Object(_) => "a map".to_owned(),
            Value::Array(_) => "a list".to_owned(),
            Value::Null => "nothing".to_owned(),
            short => short.to_string().chars().take(60).collect(),
        }
    }
}

/// Returns the values that would have been valid.
fn allowed_values(error: &ValidationError<'_>) -> Vec<String> {
    match error.kind() {
        ValidationErrorKind::Constant { expected_value } => vec![format_plain(expected_value)],
        ValidationErrorKind::Enum { options } => value_list(options),
        _ => Vec::new(),
    }
}

fn value_list(values: &Value) -> Vec<String> {
    values.as_array().into_iter().flatten().map(format_plain).collect()
}

fn format_plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn types_of(kind: &TypeKind) -> Vec<&'static str> {
    match kind {
        TypeKind::Single(one) => vec![type_name(*one)],
        TypeKind::Multiple(several) => several.iter().map(type_name).collect(),
    }
}

fn type_name(kind: JsonType) -> &'static str {
    match kind {
        JsonType::Array => "a list",
        JsonType::Boolean => "true or false",
        JsonType::Integer => "a whole number",
        JsonType::Null => "nothing",
        JsonType::Number => "a number",
        JsonType::Object => "a map",
        JsonType::String => "a text",
    }
}

/// Removes `null` from every schema with an alternative.
fn forbid_null(schema: &mut Value) {
    match schema {
        Value::Array(items) => items.iter_mut().for_each(forbid_null),
        Value::Object(members) => {
            members.values_mut().for_each(forbid_null);
            remove_null(members);
        }
        _ => {}
    }
}

fn remove_null(members: &mut Map<String, Value>) {
    if let Some(Value::Array(types)) = members.get_mut("type") {
        types.retain(|kind| kind != "null");
        if let [only] = types.as_slice() {
            let only = only.clone();
            members.insert("type".to_owned(), only);
        }
    }
    if members.get("default") == Some(&Value::Null) {
        members.remove("default");
    }
    let Some(Value::Array(branches)) = members.get_mut("anyOf") else { return };
    branches.retain(|branch| branch.get("type") != Some(&Value::from("null")));
    if let [Value::Object(only)] = branches.as_slice() {
        let only = only.clone();
        members.remove("anyOf");
        only.into_iter().for_each(|(key, value)| {
            members.entry(key).or_insert(value);
        });
    }
}

/// Joins words for a hint: `GET, POST or PUT`.
pub(super) fn join_alternatives(words: &[String]) -> String {
    match words {
        [] => String::new(),
        [only] => only.clone(),
        [most @ .., last] => format!("{} or {last}", most.join(", ")),
    }
}
