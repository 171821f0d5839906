//! The parameters in a URL's query. Unknown names are errors and not ignored.

use serde_json::{Map, Value};

use crate::problem::ErrorResponse;

/// Names and values of the request. Each name is known to the route and unique.
#[derive(Debug, Default)]
pub(crate) struct Parameters(Vec<(String, String)>);

impl Parameters {
    /// Checks the names against those that the route has.
    pub(crate) fn new(pairs: Vec<(String, String)>, known: &[&str]) -> Result<Self, ErrorResponse> {
        for (place, (name, _)) in pairs.iter().enumerate() {
            if !known.contains(&name.as_str()) {
                return Err(ErrorResponse::unknown_parameter(name, known));
            }
            if pairs.iter().take(place).any(|(earlier, _)| earlier == name) {
                return Err(ErrorResponse::parameter(name, "given once"));
            }
        }
        Ok(Self(pairs))
    }

    /// Converts GraphQL arguments of valid names: lists are joined by commas, the enum value `_created` is
    /// `-created`.
    pub(crate) fn of(arguments: &Map<String, Value>) -> Self {
        let given = arguments.iter().filter(|(_, value)| !value.is_null());
        Self(given.map(|(name, value)| (name.clone(), spelt(value))).collect())
    }

    /// Returns the value as text.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Returns a non-negative integer.
    pub(crate) fn number(&self, name: &str) -> Result<Option<i64>, ErrorResponse> {
        let wrong = || ErrorResponse::parameter(name, "a whole number from 0 on");
        self.text(name).map(|text| natural(text).ok_or_else(wrong)).transpose()
    }

    /// Returns comma-separated non-negative integers as a JSON array for SQL; an empty text is an empty list.
    pub(crate) fn numbers(&self, name: &str) -> Result<Option<String>, ErrorResponse> {
        let Some(text) = self.text(name) else { return Ok(None) };
        if !text.is_empty() && text.split(',').any(|part| natural(part).is_none()) {
            return Err(ErrorResponse::parameter(name, "whole numbers from 0 on with commas between them"));
        }
        let numbers: Vec<i64> = text.split(',').filter_map(natural).collect();
        Ok(serde_json::to_string(&numbers).ok())
    }

    /// Returns the value of one of several words.
    pub(crate) fn choice<T: Copy>(
        &self,
        name: &str,
        choices: &[(&str, T)],
    ) -> Result<Option<T>, ErrorResponse> {
        let Some(text) = self.text(name) else { return Ok(None) };
        let found = choices.iter().find(|(word, _)| *word == text);
        let words: Vec<&str> = choices.iter().map(|(word, _)| *word).collect();
        let wrong = || ErrorResponse::parameter(name, &format!("one of {}", words.join(", ")));
        found.map(|(_, value)| Some(*value)).ok_or_else(wrong)
    }
}

fn spelt(value: &Value) -> String {
    match value {
        Value::String(text) => text.strip_prefix('_').map_or_else(|| text.clone(), |rest| format!("-{rest}")),
        Value::Array(items) => items.iter().map(spelt).collect::<Vec<_>>().join(","),
        other => other.to_string(),
    }
}

/// Parses an ID, which consists of digits only: `-1`, `+1` and `1.0` are not valid.
fn natural(text: &str) -> Option<i64> {
    if text.bytes().all(|byte| byte.is_ascii_digit()) { text.parse().ok() } else { None }
}
