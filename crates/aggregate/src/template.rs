//! Texts with placeholders: `profile/buyers?limit={limit}`, and JSON bodies in which they stand.
//!
//! What is in braces is an input (`{limit}`), a value of another part's answer (`{$.buyers[*].id}`), of the item of an
//! `each` (`{each.id}`) or of the client's body (`{body.name}`). A `*` at its end writes a list as several query
//! parameters. Braces that are none of these are doubled.

use std::collections::BTreeSet;

use json::Path;
use serde_json::Value;

/// A text with placeholders.
pub(crate) type Template = Vec<Piece>;

/// A piece of a text.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Piece {
    Text(String),
    Slot(Slot),
}

/// A placeholder.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Slot {
    pub(crate) source: Source,
    /// As it is written, for messages.
    pub(crate) text: String,
    /// Whether a list becomes several query parameters.
    pub(crate) explode: bool,
}

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Source {
    Input(usize),
    Part(usize, Path),
    Each(Path),
    Body(Path),
}

/// The names that placeholders may say.
#[derive(Clone, Copy)]
pub(crate) struct Names<'a> {
    pub(crate) inputs: &'a [&'a str],
    pub(crate) parts: &'a [&'a str],
}

impl Source {
    /// Whether it may be several values.
    pub(crate) fn is_many(&self) -> bool {
        match self {
            Self::Input(_) => false,
            Self::Part(_, path) | Self::Each(path) | Self::Body(path) => path.is_many(),
        }
    }
}

impl Names<'_> {
    /// Reads a text with placeholders.
    pub(crate) fn template(self, text: &str) -> Result<Template, String> {
        let mut template = Template::new();
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
            let (inside, behind) = inside.ok_or("a brace stands alone: close it, or double it")?;
            if !plain.is_empty() {
                template.push(Piece::Text(std::mem::take(&mut plain)));
            }
            template.push(Piece::Slot(self.slot(inside)?));
            rest = behind;
        }
        plain.push_str(rest);
        if !plain.is_empty() {
            template.push(Piece::Text(plain));
        }
        Ok(template)
    }

    fn slot(self, text: &str) -> Result<Slot, String> {
        let (inside, explode) = match text.strip_suffix('*') {
            Some(inside) => (inside, true),
            None => (text, false),
        };
        Ok(Slot { source: self.source(inside.trim())?, text: text.to_owned(), explode })
    }

    fn source(self, text: &str) -> Result<Source, String> {
        if text.starts_with("$.") {
            let (part, path) = self.place(text)?;
            return Ok(Source::Part(part, path));
        }
        for (word, source) in [("each", Source::Each as fn(Path) -> Source), ("body", Source::Body)] {
            if let Some(path) = text.strip_prefix(word)
                && (path.is_empty() || path.starts_with(['.', '[', '/']))
            {
                return Ok(source(path_of(path)?));
            }
        }
        match self.inputs.iter().position(|name| *name == text) {
            Some(input) => Ok(Source::Input(input)),
            None => Err(format!("`{text}` is no input{}", known(self.inputs))),
        }
    }

    /// `$.part.path`, or a part's name alone.
    pub(crate) fn place(self, text: &str) -> Result<(usize, Path), String> {
        let text = text.strip_prefix("$.").unwrap_or(text);
        let longest = self.parts.iter().enumerate().filter_map(|(place, name)| {
            let path = text.strip_prefix(name)?;
            (path.is_empty() || path.starts_with(['.', '[', '/'])).then_some((name.len(), place, path))
        });
        match longest.max_by_key(|(length, ..)| *length) {
            Some((_, part, path)) => Ok((part, path_of(path)?)),
            None => Err(format!("`{text}` begins with the name of no part{}", known(self.parts))),
        }
    }
}

fn path_of(path: &str) -> Result<Path, String> {
    Path::parse(path).map_err(|error| format!("`{path}`: {error}"))
}

/// The names that there are, for a message.
fn known(names: &[&str]) -> String {
    match names {
        [] => String::new(),
        names => format!("; there are `{}`", names.join("`, `")),
    }
}

/// The placeholders of a text.
pub(crate) fn slots(template: &[Piece]) -> impl Iterator<Item = &Slot> {
    template.iter().filter_map(|piece| match piece {
        Piece::Slot(slot) => Some(slot),
        Piece::Text(_) => None,
    })
}

/// What is called.
#[derive(Clone, Debug)]
pub(crate) struct Url {
    pub(crate) path: Template,
    pub(crate) query: Vec<Pair>,
}

/// A parameter of a URL.
#[derive(Clone, Debug)]
pub(crate) struct Pair {
    /// As it is written.
    pub(crate) name: String,
    /// `None` where there is no `=`.
    pub(crate) value: Option<Template>,
}

impl Url {
    /// Takes apart what stands behind the service's name.
    pub(crate) fn parse(text: &str, names: Names<'_>) -> Result<Self, String> {
        let (path, query) = match text.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (text, None),
        };
        let path = names.template(path)?;
        let pair = |pair: &str| {
            let (name, value) = match pair.split_once('=') {
                Some((name, value)) => (name, Some(names.template(value)?)),
                None => (pair, None),
            };
            match name.contains(['{', '}']) {
                true => Err(format!("`{name}`: the name of a parameter is no place for a placeholder")),
                false => Ok(Pair { name: name.to_owned(), value }),
            }
        };
        let query = query.into_iter().flat_map(|query| query.split('&')).map(pair);
        Ok(Self { path, query: query.collect::<Result<_, _>>()? })
    }

    pub(crate) fn slots(&self) -> impl Iterator<Item = &Slot> {
        let pairs = self.query.iter().filter_map(|pair| pair.value.as_ref());
        slots(&self.path).chain(pairs.flat_map(|value| slots(value)))
    }
}

/// A JSON body that is sent.
#[derive(Clone, Debug)]
pub(crate) enum BodyTemplate {
    /// JSON text as it is written.
    Text(String),
    /// A value in its own type.
    Slot(Slot),
    /// A text with placeholders.
    Template(Template),
    Object(Vec<(String, BodyTemplate)>),
    Array(Vec<BodyTemplate>),
}

impl BodyTemplate {
    pub(crate) fn parse(value: &Value, names: Names<'_>) -> Result<Self, String> {
        Ok(match value {
            Value::String(text) => match names.template(text)?.as_slice() {
                [Piece::Slot(slot)] => Self::Slot(slot.clone()),
                [] | [Piece::Text(_)] => {
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

    pub(crate) fn slots(&self) -> Vec<&Slot> {
        match self {
            Self::Text(_) => Vec::new(),
            Self::Slot(slot) => vec![slot],
            Self::Template(template) => slots(template).collect(),
            Self::Object(members) => members.iter().flat_map(|(_, value)| value.slots()).collect(),
            Self::Array(items) => items.iter().flat_map(Self::slots).collect(),
        }
    }
}

/// The parts that placeholders need.
pub(crate) fn parts<'a>(slots: impl Iterator<Item = &'a Slot>) -> BTreeSet<usize> {
    slots
        .filter_map(|slot| match slot.source {
            Source::Part(part, _) => Some(part),
            _ => None,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: Names<'_> = Names { inputs: &["limit"], parts: &["buyers", "buyers.old"] };

    #[test]
    fn placeholders_are_found_wherever_they_stand() {
        let url = Url::parse("/a/{limit}/{{x}}?ids={$.buyers[*].id*}&y={each/a}-{body.b}&z", NAMES).unwrap();
        let texts: Vec<_> = url.slots().map(|slot| (slot.text.as_str(), slot.explode)).collect();
        assert_eq!(
            texts,
            [("limit", false), ("$.buyers[*].id*", true), ("each/a", false), ("body.b", false)]
        );
        assert_eq!(url.path[2], Piece::Text("/{x}".into()));
        assert!(url.query[2].value.is_none());
    }

    #[test]
    fn the_longest_name_of_a_part_counts() {
        assert_eq!(NAMES.place("$.buyers.old.id").unwrap().0, 1);
        assert_eq!(NAMES.place("buyers[0].old").unwrap().0, 0);
    }

    #[test]
    fn what_is_no_placeholder_says_why() {
        for (text, known) in [
            ("{limits}", "`limits` is no input; there are `limit`"),
            ("{$.order.id}", "begins with the name of no part"),
            ("{limit", "a brace stands alone"),
            ("limit}", "a brace stands alone"),
            ("{each.}", "this is no path"),
        ] {
            let error = NAMES.template(text).unwrap_err();
            assert!(error.contains(known), "{error}");
        }
    }
}
