//! Values of placeholders, and errors for values that are not valid in their place.

use std::borrow::Cow;
use std::collections::HashSet;

use json::{JsonNode, JsonPath, NotArray, ValueKind};
use services::path::{encode, is_segment};

use super::{Item, Renderer, Stop};
use crate::plan::Over;
use crate::problem::{AggregateError, Reason};
use crate::template::{Slot, Source};

/// The value of a placeholder.
pub(super) enum Found<'a> {
    Nothing,
    One(Text<'a>),
    Many(Vec<Text<'a>>),
}

/// A scalar as text.
pub(super) struct Text<'a> {
    pub(super) text: Cow<'a, str>,
    /// Whether the text is unquoted in JSON.
    pub(super) is_bare: bool,
}

/// A reason why a value is not valid in its place.
#[derive(Clone, Copy)]
pub(super) enum Wrong {
    /// An array or object.
    Kind(&'static str),
    /// A value other than an array, although its items are needed.
    NotArray(&'static str),
    HalfPair,
    Controls,
    NoSegment,
}

impl<'a> Renderer<'a> {
    /// Returns the JSON value that a placeholder refers to, and the path in it.
    pub(super) fn root<'s>(&self, source: &'s Source) -> Option<(JsonNode<'a>, &'s JsonPath)> {
        match (source, self.item) {
            (Source::Part(part, path), _) => Some((self.known.value(*part)?.root(), path)),
            (Source::Each(path), Some(Item::Node(node))) => Some((node, path)),
            (Source::Body(path), _) => Some((self.known.body.as_ref()?.root(), path)),
            _ => None,
        }
    }

    pub(super) fn find(&self, slot: &Slot) -> Result<Found<'a>, Stop> {
        match (&slot.source, self.item) {
            (Source::Input(input), _) => {
                let value = self.known.inputs.get(*input).and_then(Option::as_ref);
                let text = |value: &'a crate::input::Value, text: &'a String| Text {
                    text: Cow::Borrowed(text.as_str()),
                    is_bare: value.is_bare,
                };
                return Ok(match value {
                    None => Found::Nothing,
                    Some(value) if value.is_list => {
                        Found::Many(value.texts.iter().map(|item| text(value, item)).collect())
                    }
                    Some(value) => {
                        value.texts.first().map_or(Found::Nothing, |item| Found::One(text(value, item)))
                    }
                });
            }
            (Source::Each(path), Some(Item::Text(text, is_bare))) if path.steps().is_empty() => {
                return Ok(Found::One(Text { text: Cow::Borrowed(text), is_bare }));
            }
            _ => {}
        }
        let Some((root, path)) = self.root(&slot.source) else { return Ok(Found::Nothing) };
        if !path.is_many() {
            let Some(node) = path.find(root) else { return Ok(Found::Nothing) };
            let value = scalar(node).map_err(|wrong| self.wrong(slot, wrong))?;
            return Ok(value.map_or(Found::Nothing, Found::One));
        }
        let (mut values, mut wrong) = (Vec::new(), None);
        let (mut seen, mut is_full) = (HashSet::new(), false);
        let visited = path.visit(root, &mut |node| match scalar(node) {
            Ok(Some(value)) => {
                // Its entries in the list and the set, and its text there and in the URL.
                let bytes = 2 * (size_of::<Text<'_>>() + value.text.len() + size_of::<String>());
                if is_full || seen.contains(&value.text) {
                    return;
                }
                is_full = self.known.memory.take(bytes).is_err();
                if !is_full {
                    seen.insert(value.text.clone());
                    values.push(value);
                }
            }
            Ok(None) => {}
            Err(found) => wrong = Some(found),
        });
        if let Err(NotArray(kind)) = visited {
            return Err(self.wrong(slot, Wrong::NotArray(kind.map_or("nothing", ValueKind::name))));
        }
        if is_full {
            return Err(Reason::Memory.into());
        }
        wrong.map_or(Ok(Found::Many(values)), |wrong| Err(self.wrong(slot, wrong)))
    }

    /// Returns a value as a path segment, or as a part of one.
    pub(super) fn segment(&self, slot: &Slot, text: &str) -> Result<String, Stop> {
        if is_segment(text) {
            return Ok(encode(text));
        }
        Err(self.wrong(slot, Wrong::NoSegment))
    }

    /// Returns the error for a value that is not valid in its place. Values of the client are the client's
    /// fault.
    pub(super) fn wrong(&self, slot: &Slot, wrong: Wrong) -> Stop {
        let must = wrong.must().to_owned();
        let over = self.part.each.as_ref().map(|each| &each.over);
        match (&slot.source, over) {
            (Source::Input(input), _) | (Source::Each(_), Some(Over::Input(input))) => {
                let input =
                    self.known.plan.inputs.all.get(*input).map_or_else(|| "".into(), |it| it.name.clone());
                Stop::Request(AggregateError::InputInvalid { input, must })
            }
            (Source::Body(_), _) => {
                Stop::Request(AggregateError::BodyInvalid { place: slot.text.clone(), must })
            }
            (Source::Part(..) | Source::Each(_), _) => Stop::Part(wrong.reason(slot.text.clone())),
        }
    }

    pub(super) fn missing(&self, slot: &Slot) -> Stop {
        match slot.source {
            Source::Body(_) => Stop::Request(AggregateError::BodyLacks(slot.text.clone())),
            _ => Stop::Part(Reason::NoValue(slot.text.clone())),
        }
    }
}

impl Wrong {
    /// Returns the requirement that a client's value violates.
    fn must(self) -> &'static str {
        match self {
            Self::Kind(_) => "be a text, a number, `true` or `false`",
            Self::NotArray(_) => "be an array",
            Self::HalfPair => "have no half of a surrogate pair",
            Self::Controls => "have no control characters, which are not allowed in headers",
            Self::NoSegment => {
                "be a path segment: not empty, not `.` or `..`, as a whole or before a `;`, and without slashes, backslashes and control characters"
            }
        }
    }

    /// Returns the reason for the failure of the part.
    fn reason(self, slot: String) -> Reason {
        match self {
            Self::Kind(kind) => Reason::WrongKind(slot, kind),
            Self::NotArray(kind) => Reason::EachNotArray(slot, kind),
            Self::HalfPair => Reason::WrongKind(slot, "a text with half of a surrogate pair"),
            Self::Controls => Reason::WrongKind(slot, "a text with control characters"),
            Self::NoSegment => Reason::NoSegment(slot),
        }
    }
}

/// Returns a scalar as text, or `None` for `null`.
fn scalar(node: JsonNode<'_>) -> Result<Option<Text<'_>>, Wrong> {
    let kind = node.kind();
    match node.plain() {
        Some(_) if node.is_unpaired() => Err(Wrong::HalfPair),
        Some(text) => Ok(Some(Text { text, is_bare: kind != ValueKind::String })),
        None if kind == ValueKind::Null => Ok(None),
        None => Err(Wrong::Kind(kind.name())),
    }
}
