//! Paths that select one value, or all items of arrays.
//!
//! The syntax is `.page.items[*].id`, `[0]["a b"]`, or a JSON Pointer (RFC 6901) with the additional step `*`
//! for all items: `/page/items/*/id`. The empty path selects the value itself.

use crate::document::{JsonNode, ValueKind};
use crate::pointer;

/// A path from one value to others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JsonPath(Box<[JsonPathStep]>);

/// A step from a value to its children.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JsonPathStep {
    /// Selects a member, or an array's item by its index.
    Name(Box<str>),
    /// Selects all items of an array.
    Wildcard,
}

/// The error for a text that is not a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this is not a path: write `.name`, `[0]`, `[*]` or `[\"name\"]` for each step, or a JSON Pointer")]
pub struct NotPath;

/// The error for a path that selects all items of a value other than an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`[*]` requires an array, but found {}", .0.map_or("nothing", ValueKind::name))]
pub struct NotArray(pub Option<ValueKind>);

impl JsonPath {
    /// Parses a path.
    ///
    /// # Errors
    /// If the text is not a path.
    pub fn parse(text: &str) -> Result<Self, NotPath> {
        let mut steps = Vec::new();
        if let Some(pointer) = text.strip_prefix('/') {
            for step in pointer.split('/') {
                steps.push(match step {
                    "*" => JsonPathStep::Wildcard,
                    name => JsonPathStep::Name(pointer::parse_step(name).map_err(|_| NotPath)?.into()),
                });
            }
            return Ok(Self(steps.into()));
        }
        let mut rest = text;
        while !rest.is_empty() {
            let (step, behind) = parse_step(rest).ok_or(NotPath)?;
            steps.push(step);
            rest = behind;
        }
        Ok(Self(steps.into()))
    }

    /// The steps of the path.
    #[must_use]
    pub fn steps(&self) -> &[JsonPathStep] {
        &self.0
    }

    /// Whether it may select several values.
    #[must_use]
    pub fn has_wildcard(&self) -> bool {
        self.0.contains(&JsonPathStep::Wildcard)
    }

    /// Returns the single value that the path selects.
    #[must_use]
    pub fn find<'a>(&self, from: JsonNode<'a>) -> Option<JsonNode<'a>> {
        self.0.iter().try_fold(from, |node, step| select_child(node, step))
    }

    /// Calls `see` with every selected value, in order. Below an item, missing values are skipped; `null`
    /// counts as an empty array.
    ///
    /// # Errors
    /// If there is anything else in place of an array.
    pub fn visit<'a>(&self, from: JsonNode<'a>, see: &mut dyn FnMut(JsonNode<'a>)) -> Result<(), NotArray> {
        visit_steps(&self.0, from, false, see)
    }

    /// Returns the number of values that [`JsonPath::visit`] passes, or more, as an estimate of its work:
    /// each selected value, each item of an array, and the children of other containers on the way. It is
    /// `most` if there are more. Counting takes a small part of the time of a visit.
    #[must_use]
    pub fn count_up_to(&self, from: JsonNode<'_>, most: usize) -> usize {
        count_steps(&self.0, from, most)
    }
}

fn count_steps(steps: &[JsonPathStep], node: JsonNode<'_>, most: usize) -> usize {
    let counted = match steps {
        [] => 1,
        [JsonPathStep::Wildcard, rest @ ..] if !rest.contains(&JsonPathStep::Wildcard) => match node.kind() {
            ValueKind::Array => node.count(),
            _ => 0,
        },
        [JsonPathStep::Wildcard, rest @ ..] => {
            let mut counted = 0;
            for item in node.items() {
                if counted >= most {
                    break;
                }
                counted += 1 + count_steps(rest, item, most - counted);
            }
            counted
        }
        [step, rest @ ..] => {
            node.count() + select_child(node, step).map_or(0, |node| count_steps(rest, node, most))
        }
    };
    counted.min(most)
}

fn visit_steps<'a>(
    steps: &[JsonPathStep],
    node: JsonNode<'a>,
    is_item: bool,
    see: &mut dyn FnMut(JsonNode<'a>),
) -> Result<(), NotArray> {
    match steps {
        [] => {
            see(node);
            Ok(())
        }
        [JsonPathStep::Wildcard, rest @ ..] => match node.kind() {
            ValueKind::Array => node.items().try_for_each(|item| visit_steps(rest, item, true, see)),
            ValueKind::Null => Ok(()),
            other => Err(NotArray(Some(other))),
        },
        [step, rest @ ..] => match select_child(node, step) {
            Some(node) => visit_steps(rest, node, is_item, see),
            None if !is_item && rest.contains(&JsonPathStep::Wildcard) => Err(NotArray(None)),
            None => Ok(()),
        },
    }
}

fn select_child<'a>(node: JsonNode<'a>, step: &JsonPathStep) -> Option<JsonNode<'a>> {
    let JsonPathStep::Name(name) = step else { return None };
    match node.kind() {
        ValueKind::Array => node.item(pointer::parse_index(name)?),
        _ => node.member(name.as_bytes()),
    }
}

/// Parses the first step of a path that is not a pointer, and returns it with the remaining text.
fn parse_step(text: &str) -> Option<(JsonPathStep, &str)> {
    if let Some(rest) = text.strip_prefix("[*]") {
        return Some((JsonPathStep::Wildcard, rest));
    }
    if let Some(rest) = text.strip_prefix('.') {
        let end = rest.find(['.', '[', '/']).unwrap_or(rest.len());
        let (name, rest) = rest.split_at(end);
        return (!name.is_empty() && !name.contains(['"', ']']))
            .then(|| (JsonPathStep::Name(name.into()), rest));
    }
    let inside = text.strip_prefix('[')?;
    for quote in ['"', '\''] {
        if let Some(quoted) = inside.strip_prefix(quote) {
            let (name, rest) = quoted.split_once(quote)?;
            return Some((JsonPathStep::Name(name.into()), rest.strip_prefix(']')?));
        }
    }
    let (number, rest) = inside.split_once(']')?;
    pointer::parse_index(number)?;
    Some((JsonPathStep::Name(number.into()), rest))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::document::JsonDocument;

    fn select_texts(text: &'static str, path: &str) -> Result<Vec<String>, NotArray> {
        let document = JsonDocument::new(Bytes::from_static(text.as_bytes())).unwrap();
        let mut found = Vec::new();
        let see = &mut |node: JsonNode<'_>| found.push(String::from_utf8(node.text().to_vec()).unwrap());
        JsonPath::parse(path).unwrap().visit(document.root(), see)?;
        Ok(found)
    }

    #[test]
    fn paths_select_items_with_original_number_texts() {
        let text = r#"{"a":[{"id":1.0},{"id":[2]},{}],"b c":{"*":3}}"#;
        assert_eq!(select_texts(text, ".a[*].id").unwrap(), ["1.0", "[2]"]);
        assert_eq!(select_texts(text, "/a/*/id").unwrap(), ["1.0", "[2]"]);
        assert_eq!(select_texts(text, ".a[1].id[0]").unwrap(), ["2"]);
        assert_eq!(select_texts(text, r#"["b c"]['*']"#).unwrap(), ["3"]);
        assert_eq!(select_texts("[1]", "").unwrap(), ["[1]"]);
        assert!(select_texts(text, ".c").unwrap().is_empty());
    }

    #[test]
    fn reports_non_arrays_and_treats_null_as_empty() {
        assert_eq!(select_texts(r#"{"a":7}"#, ".a[*]").unwrap_err(), NotArray(Some(ValueKind::Number)));
        assert_eq!(
            select_texts("{}", ".a[*].id").unwrap_err().to_string(),
            "`[*]` requires an array, but found nothing"
        );
        assert!(select_texts(r#"{"a":null}"#, ".a[*]").unwrap().is_empty());
        // Below an item, an array may be missing.
        assert_eq!(select_texts(r#"[{"x":[1]},{},{"x":null}]"#, "[*].x[*]").unwrap(), ["1"]);
    }

    #[test]
    fn counts_at_least_the_values_of_a_visit() {
        let text = r#"{"a":[{"ids":[1,2,3]},{"ids":[]},{},{"ids":[4]}],"b":7}"#;
        let document = JsonDocument::new(Bytes::from_static(text.as_bytes())).unwrap();
        for (path, selected, counted) in [
            ("", 1, 1),
            (".b", 1, 3),
            (".c", 0, 2),
            (".a[*]", 4, 6),
            (".a[*].ids", 3, 6),
            (".a[*].ids[*]", 4, 13),
            (".a[0].ids[1]", 1, 11),
            (".b[*]", 0, 2),
        ] {
            let (path, mut found) = (JsonPath::parse(path).unwrap(), 0);
            let _ = path.visit(document.root(), &mut |_| found += 1);
            assert_eq!((found, path.count_up_to(document.root(), 100)), (selected, counted), "{path:?}");
            assert_eq!(path.count_up_to(document.root(), 2), counted.min(2), "{path:?}");
        }
    }

    #[test]
    fn rejects_invalid_paths() {
        for text in ["a", ".", ".a.", "[", "[a]", "[-1]", r#"["a]"#, "/~2", ".a b[01]", ".a/b"] {
            assert_eq!(JsonPath::parse(text), Err(NotPath), "{text}");
        }
    }
}
