//! Texts with placeholders, `profile/buyers?limit={limit}`, and JSON bodies that contain such texts.
//!
//! A placeholder refers to an input (`{limit}`), a value in another part's response (`{$.buyers[*].id}`), a
//! value in the item of an `each` (`{each.id}`) or in the client's body (`{body.name}`). A `*` at its end
//! expands a list to several query parameters. Literal braces are doubled.

use std::collections::BTreeSet;

use json::JsonPath;
use serde_json::Value;

/// A text with placeholders.
pub(crate) type TextTemplate = Vec<TemplatePiece>;

/// A piece of a template.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum TemplatePiece {
    Text(String),
    Slot(TemplateSlot),
}

/// A placeholder.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TemplateSlot {
    pub(crate) source: SlotSource,
    /// The text in the declaration, for messages.
    pub(crate) text: String,
    /// Whether a list expands to several query parameters.
    pub(crate) explode: bool,
}

/// The source of a placeholder's value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum SlotSource {
    Input(usize),
    Part(usize, JsonPath),
    Each(JsonPath),
    Body(JsonPath),
}

/// The names that placeholders can refer to.
#[derive(Clone, Copy)]
pub(crate) struct TemplateScope<'a> {
    pub(crate) inputs: &'a [&'a str],
    pub(crate) parts: &'a [&'a str],
}

impl SlotSource {
    /// Whether it may have several values.
    pub(crate) fn is_many(&self) -> bool {
        match self {
            Self::Input(_) => false,
            Self::Part(_, path) | Self::Each(path) | Self::Body(path) => path.has_wildcard(),
        }
    }
}

impl TemplateScope<'_> {
    /// Parses a text with placeholders.
    pub(crate) fn parse_template(self, text: &str) -> Result<TextTemplate, String> {
        let mut template = TextTemplate::new();
        let mut plain = String::new();
        let mut rest = text;
        while let Some(at) = rest.find(['{', '}']) {
            let (before, from) = rest.split_at(at);
            plain.push_str(before);
            if let Some(behind) = from.strip_prefix("{{").or_else(|| from.strip_prefix("}}")) {
                plain.push_str(&from[..1]);
                rest = behind;
                continue;
            }
            let inside = from.strip_prefix('{').and_then(|inside| inside.split_once('}'));
            let (inside, behind) = inside.ok_or("a brace is unmatched: close it, or double it")?;
            if !plain.is_empty() {
                template.push(TemplatePiece::Text(std::mem::take(&mut plain)));
            }
            template.push(TemplatePiece::Slot(self.parse_slot(inside)?));
            rest = behind;
        }
        plain.push_str(rest);
        if !plain.is_empty() {
            template.push(TemplatePiece::Text(plain));
        }
        Ok(template)
    }

    fn parse_slot(self, text: &str) -> Result<TemplateSlot, String> {
        let (inside, explode) = match text.strip_suffix('*') {
            Some(inside) => (inside, true),
            None => (text, false),
        };
        Ok(TemplateSlot { source: self.parse_source(inside.trim())?, text: text.to_owned(), explode })
    }

    fn parse_source(self, text: &str) -> Result<SlotSource, String> {
        if text.starts_with("$.") {
            let (part, path) = self.parse_part_path(text)?;
            return Ok(SlotSource::Part(part, path));
        }
        for (word, source) in
            [("each", SlotSource::Each as fn(JsonPath) -> SlotSource), ("body", SlotSource::Body)]
        {
            if let Some(path) = text.strip_prefix(word)
                && (path.is_empty() || path.starts_with(['.', '[', '/']))
            {
                return Ok(source(parse_path(path)?));
            }
        }
        match self.inputs.iter().position(|name| *name == text) {
            Some(input) => Ok(SlotSource::Input(input)),
            None => Err(format!("`{text}` is not an input{}", list_names(self.inputs))),
        }
    }

    /// Parses `$.part.path`, or the name of a part.
    pub(crate) fn parse_part_path(self, text: &str) -> Result<(usize, JsonPath), String> {
        let text = text.strip_prefix("$.").unwrap_or(text);
        let longest = self.parts.iter().enumerate().filter_map(|(place, name)| {
            let path = text.strip_prefix(name)?;
            (path.is_empty() || path.starts_with(['.', '[', '/'])).then_some((name.len(), place, path))
        });
        match longest.max_by_key(|(length, ..)| *length) {
            Some((_, part, path)) => Ok((part, parse_path(path)?)),
            None => Err(format!("`{text}` does not begin with the name of a part{}", list_names(self.parts))),
        }
    }
}

fn parse_path(path: &str) -> Result<JsonPath, String> {
    JsonPath::parse(path).map_err(|error| format!("`{path}`: {error}"))
}

/// Lists the known names for a message.
fn list_names(names: &[&str]) -> String {
    match names {
        [] => String::new(),
        names => format!("; there are `{}`", names.join("`, `")),
    }
}

/// Returns the placeholders of a text.
pub(crate) fn template_slots(template: &[TemplatePiece]) -> impl Iterator<Item = &TemplateSlot> {
    template.iter().filter_map(|piece| match piece {
        TemplatePiece::Slot(slot) => Some(slot),
        TemplatePiece::Text(_) => None,
    })
}

/// The path and query of a call.
#[derive(Clone, Debug)]
pub(crate) struct UrlTemplate {
    pub(crate) path: TextTemplate,
    pub(crate) query: Vec<QueryPair>,
}

/// A query parameter.
#[derive(Clone, Debug)]
pub(crate) struct QueryPair {
    /// The name, as written in the declaration.
    pub(crate) name: String,
    /// The value, or `None` without an `=`.
    pub(crate) value: Option<TextTemplate>,
}

impl UrlTemplate {
    /// Parses the path and query after the service's name.
    pub(crate) fn parse(text: &str, names: TemplateScope<'_>) -> Result<Self, String> {
        let (path, query) = match text.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (text, None),
        };
        let path = names.parse_template(path)?;
        let pair = |pair: &str| {
            let (name, value) = match pair.split_once('=') {
                Some((name, value)) => (name, Some(names.parse_template(value)?)),
                None => (pair, None),
            };
            match name.contains(['{', '}']) {
                true => Err(format!("`{name}`: the name of a parameter can't contain a placeholder")),
                false => Ok(QueryPair { name: name.to_owned(), value }),
            }
        };
        let query = query.into_iter().flat_map(|query| query.split('&')).map(pair);
        Ok(Self { path, query: query.collect::<Result<_, _>>()? })
    }

    pub(crate) fn slots(&self) -> impl Iterator<Item = &TemplateSlot> {
        let pairs = self.query.iter().filter_map(|pair| pair.value.as_ref());
        template_slots(&self.path).chain(pairs.flat_map(|value| template_slots(value)))
    }
}

/// A JSON request body.
#[derive(Clone, Debug)]
pub(crate) enum BodyTemplate {
    /// Literal JSON text.
    Text(String),
    /// A value that keeps its type.
    Slot(TemplateSlot),
    /// A text with placeholders.
    Template(TextTemplate),
    Object(Vec<(String, BodyTemplate)>),
    Array(Vec<BodyTemplate>),
}

impl BodyTemplate {
    pub(crate) fn parse(value: &Value, names: TemplateScope<'_>) -> Result<Self, String> {
        Ok(match value {
            Value::String(text) => match names.parse_template(text)?.as_slice() {
                [TemplatePiece::Slot(slot)] => Self::Slot(slot.clone()),
                [] | [TemplatePiece::Text(_)] => {
                    Self::Text(Value::from(text.replace("{{", "{").replace("}}", "}")).to_string())
                }
                template => Self::Template(template.to_vec()),
            },
            Value::Array(items) => {
                Self::Array(items.iter().map(|item| Self::parse(item, names)).collect::<Result<_, _>>()?)
            }
            Value::Object(members) => {
                let member = |(name, value): (&String, &Value)| {
                    Ok((Value::from(name.as_str()).to_string(), Self::parse(value, names)?))
                };
                Self::Object(members.iter().map(member).collect::<Result<_, String>>()?)
            }
            other => Self::Text(other.to_string()),
        })
    }

    pub(crate) fn slots(&self) -> Vec<&TemplateSlot> {
        match self {
            Self::Text(_) => Vec::new(),
            Self::Slot(slot) => vec![slot],
            Self::Template(template) => template_slots(template).collect(),
            Self::Object(members) => members.iter().flat_map(|(_, value)| value.slots()).collect(),
            Self::Array(items) => items.iter().flat_map(Self::slots).collect(),
        }
    }
}

/// Returns the parts that placeholders refer to.
pub(crate) fn referenced_parts<'a>(slots: impl Iterator<Item = &'a TemplateSlot>) -> BTreeSet<usize> {
    slots
        .filter_map(|slot| match slot.source {
            SlotSource::Part(part, _) => Some(part),
            _ => None,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: TemplateScope<'_> = TemplateScope { inputs: &["limit"], parts: &["buyers", "buyers.old"] };

    #[test]
    fn finds_placeholders_in_path_and_query() {
        let url = UrlTemplate::parse("/a/{limit}/{{x}}?ids={$.buyers[*].id*}&y={each/a}-{body.b}&z", NAMES)
            .unwrap();
        let texts: Vec<_> = url.slots().map(|slot| (slot.text.as_str(), slot.explode)).collect();
        assert_eq!(
            texts,
            [("limit", false), ("$.buyers[*].id*", true), ("each/a", false), ("body.b", false)]
        );
        assert_eq!(url.path[2], TemplatePiece::Text("/{x}".into()));
        assert!(url.query[2].value.is_none());
    }

    #[test]
    fn longest_matching_part_name_wins() {
        assert_eq!(NAMES.parse_part_path("$.buyers.old.id").unwrap().0, 1);
        assert_eq!(NAMES.parse_part_path("buyers[0].old").unwrap().0, 0);
    }

    #[test]
    fn invalid_placeholders_report_the_reason() {
        for (text, known) in [
            ("{limits}", "`limits` is not an input; there are `limit`"),
            ("{$.order.id}", "does not begin with the name of a part"),
            ("{limit", "a brace is unmatched"),
            ("limit}", "a brace is unmatched"),
            ("{each.}", "this is not a path"),
        ] {
            let error = NAMES.parse_template(text).unwrap_err();
            assert!(error.contains(known), "{error}");
        }
    }
}
