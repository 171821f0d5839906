//! Values of placeholders, and errors for values that are not valid in their place.

use std::borrow::Cow;
use std::collections::HashSet;

use json::{JsonNode, JsonPath, NotArray, ValueKind};
use services::path::{is_safe_segment, percent_encode};

use super::{PartItem, PartRenderer, RenderError};
use crate::plan::ItemSource;
use crate::plan::template::{SlotSource, TemplateSlot};
use crate::problem::{AggregateError, PartFailureReason};

/// The value of a placeholder.
pub(super) enum PlaceholderValue<'a> {
    Missing,
    Single(ScalarText<'a>),
    List(Vec<ScalarText<'a>>),
}

/// A scalar as text.
pub(super) struct ScalarText<'a> {
    pub(super) text: Cow<'a, str>,
    /// Whether the text is unquoted in JSON.
    pub(super) is_unquoted: bool,
}

/// A reason why a value is not valid in its place.
#[derive(Clone, Copy)]
pub(super) enum PlaceholderError {
    /// An array or object.
    Kind(&'static str),
    /// A value other than an array, although its items are needed.
    NotArray(&'static str),
    UnpairedSurrogate,
    Controls,
    InvalidSegment,
}

impl<'a> PartRenderer<'a> {
    /// Returns the JSON value that a placeholder refers to, and the path in it.
    pub(super) fn slot_root<'s>(&self, source: &'s SlotSource) -> Option<(JsonNode<'a>, &'s JsonPath)> {
        match (source, self.item) {
            (SlotSource::Part(part, path), _) => Some((self.available_values.value(*part)?.root(), path)),
            (SlotSource::Each(path), Some(PartItem::Node(node))) => Some((node, path)),
            (SlotSource::Body(path), _) => Some((self.available_values.body.as_ref()?.root(), path)),
            _ => None,
        }
    }

    pub(super) fn find_value(&self, slot: &TemplateSlot) -> Result<PlaceholderValue<'a>, RenderError> {
        match (&slot.source, self.item) {
            (SlotSource::Input(input), _) => {
                let value = self.available_values.inputs.get(*input).and_then(Option::as_ref);
                let text = |value: &'a crate::plan::input::AggregateInputValue, text: &'a String| {
                    ScalarText { text: Cow::Borrowed(text.as_str()), is_unquoted: value.is_unquoted }
                };
                return Ok(match value {
                    None => PlaceholderValue::Missing,
                    Some(value) if value.is_list => {
                        PlaceholderValue::List(value.texts.iter().map(|item| text(value, item)).collect())
                    }
                    Some(value) => value.texts.first().map_or(PlaceholderValue::Missing, |item| {
                        PlaceholderValue::Single(text(value, item))
                    }),
                });
            }
            (SlotSource::Each(path), Some(PartItem::Text(text, is_bare))) if path.steps().is_empty() => {
                return Ok(PlaceholderValue::Single(ScalarText {
                    text: Cow::Borrowed(text),
                    is_unquoted: is_bare,
                }));
            }
            _ => {}
        }
        let Some((root, path)) = self.slot_root(&slot.source) else { return Ok(PlaceholderValue::Missing) };
        if !path.has_wildcard() {
            let Some(node) = path.find(root) else { return Ok(PlaceholderValue::Missing) };
            let value = scalar_text(node).map_err(|error| self.invalid_value_error(slot, error))?;
            return Ok(value.map_or(PlaceholderValue::Missing, PlaceholderValue::Single));
        }
        let (mut values, mut placeholder_error) = (Vec::new(), None);
        let (mut seen, mut is_full) = (HashSet::new(), false);
        let visited = path.visit(root, &mut |node| match scalar_text(node) {
            Ok(Some(value)) => {
                // Its entries in the list and the set, and its text there and in the URL.
                let bytes = 2 * (size_of::<ScalarText<'_>>() + value.text.len() + size_of::<String>());
                if is_full || seen.contains(&value.text) {
                    return;
                }
                is_full = self.available_values.memory.charge(bytes).is_err();
                if !is_full {
                    seen.insert(value.text.clone());
                    values.push(value);
                }
            }
            Ok(None) => {}
            Err(found) => placeholder_error = Some(found),
        });
        if let Err(NotArray(kind)) = visited {
            return Err(self.invalid_value_error(
                slot,
                PlaceholderError::NotArray(kind.map_or("nothing", ValueKind::name)),
            ));
        }
        if is_full {
            return Err(PartFailureReason::Memory.into());
        }
        placeholder_error
            .map_or(Ok(PlaceholderValue::List(values)), |wrong| Err(self.invalid_value_error(slot, wrong)))
    }

    /// Returns a value as a path segment, or as a part of one.
    pub(super) fn path_segment(&self, slot: &TemplateSlot, text: &str) -> Result<String, RenderError> {
        if is_safe_segment(text) {
            return Ok(percent_encode(text));
        }
        Err(self.invalid_value_error(slot, PlaceholderError::InvalidSegment))
    }

    /// Returns the error for a value that is not valid in its place. Values of the client are the client's
    /// fault.
    pub(super) fn invalid_value_error(&self, slot: &TemplateSlot, error: PlaceholderError) -> RenderError {
        let must = error.requirement().to_owned();
        let over = self.part.each.as_ref().map(|each| &each.source);
        match (&slot.source, over) {
            (SlotSource::Input(input), _) | (SlotSource::Each(_), Some(ItemSource::Input(input))) => {
                let input = self
                    .available_values
                    .plan
                    .inputs
                    .entries
                    .get(*input)
                    .map_or_else(|| "".into(), |it| it.name.clone());
                RenderError::Request(AggregateError::InputInvalid { input, must })
            }
            (SlotSource::Body(_), _) => {
                RenderError::Request(AggregateError::BodyInvalid { place: slot.text.clone(), must })
            }
            (SlotSource::Part(..) | SlotSource::Each(_), _) => {
                RenderError::Part(error.failure_reason(slot.text.clone()))
            }
        }
    }

    pub(super) fn missing_value_error(&self, slot: &TemplateSlot) -> RenderError {
        match slot.source {
            SlotSource::Body(_) => RenderError::Request(AggregateError::BodyValueMissing(slot.text.clone())),
            _ => RenderError::Part(PartFailureReason::NoValue(slot.text.clone())),
        }
    }
}

impl PlaceholderError {
    /// Returns the requirement that a client's value violates.
    fn requirement(self) -> &'static str {
        match self {
            Self::Kind(_) => "be a text, a number, `true` or `false`",
            Self::NotArray(_) => "be an array",
            Self::UnpairedSurrogate => "have no half of a surrogate pair",
            Self::Controls => "have no control characters, which are not allowed in headers",
            Self::InvalidSegment => {
                "be a path segment: not empty, not `.` or `..`, as a whole or before a `;`, and without slashes, backslashes and control characters"
            }
        }
    }

    /// Returns the reason for the failure of the part.
    fn failure_reason(self, slot: String) -> PartFailureReason {
        match self {
            Self::Kind(kind) => PartFailureReason::WrongKind(slot, kind),
            Self::NotArray(kind) => PartFailureReason::EachNotArray(slot, kind),
            Self::UnpairedSurrogate => {
                PartFailureReason::WrongKind(slot, "a text with half of a surrogate pair")
            }
            Self::Controls => PartFailureReason::WrongKind(slot, "a text with control characters"),
            Self::InvalidSegment => PartFailureReason::InvalidSegment(slot),
        }
    }
}

/// Returns a scalar as text, or `None` for `null`.
fn scalar_text(node: JsonNode<'_>) -> Result<Option<ScalarText<'_>>, PlaceholderError> {
    let kind = node.kind();
    match node.scalar_text() {
        Some(_) if node.has_unpaired_surrogate() => Err(PlaceholderError::UnpairedSurrogate),
        Some(text) => Ok(Some(ScalarText { text, is_unquoted: kind != ValueKind::String })),
        None if kind == ValueKind::Null => Ok(None),
        None => Err(PlaceholderError::Kind(kind.name())),
    }
}
