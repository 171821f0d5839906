//! Evaluation of recipes: computes the calls and the response of a handler from the request and the services'
//! responses, with the same result as its JavaScript. Values that no code reads are passed through unchanged
//! (rule 16).
//!
//! Only common cases are supported. `None` and [`InlineAction::Unsupported`] mean that the handler must run
//! as JavaScript.

use std::borrow::Cow;
use std::collections::HashMap;
use std::collections::hash_map::Entry as MapEntry;
use std::sync::Arc;

use bytes::Bytes;
use json::{JsonDocument, JsonNode, ValueKind};
use script::InlinePlan;
use script::inline_plan::{InlineOperation, ObjectEntry, UrlPiece, ValuePart};
use serde_json::Value as JsonValue;
use services::path::is_safe_segment;

use super::outbound_call::OutboundCall;
use crate::frame::{self, FramePayload};
use crate::http_message::location::percent_encode;

/// Integers with up to this many digits have the same spelling in JSON and JavaScript.
const MAX_PLAIN_DIGITS: usize = 15;

/// The evaluation of a recipe in progress. It owns everything, so that long work can move to the pool.
pub(crate) struct InlineEvaluation {
    recipe: Arc<InlinePlan>,
    /// The request's parameters, if it has any.
    query: Option<JsonDocument>,
    values: Vec<Option<InlineValue>>,
    is_started: Vec<bool>,
    /// The length of all texts.
    bytes: usize,
}

/// The next action.
pub(crate) enum InlineAction {
    Call(InlineCall),
    /// A result is needed first, or no call is left.
    Wait,
    Unsupported,
}

/// The next call.
pub(crate) struct InlineCall {
    pub(crate) step: usize,
    pub(crate) site: u32,
    pub(crate) errand: OutboundCall,
    pub(crate) passes_through: bool,
}

/// The value of a step.
pub(crate) enum InlineValue {
    Undefined,
    Text(Bytes),
    Json(JsonDocument),
    /// A part of another step's document: the step's index and the offset of the value.
    Nested(usize, usize),
    /// Not supported, for example bytes.
    Unsupported,
}

/// A reference to a value.
enum ValueReference<'v> {
    Undefined,
    Text(&'v Bytes),
    Json(JsonNode<'v>),
    Constant(&'v JsonValue),
}

/// The value of an object's member.
enum MemberValue<'v> {
    Part(&'v ValuePart),
    Json(JsonNode<'v>),
}

impl InlineEvaluation {
    /// Starts the evaluation of a recipe for a request with these parameters.
    pub(crate) fn new(recipe: Arc<InlinePlan>, query: Bytes, has_body: bool) -> Option<Self> {
        let bytes = query.len();
        let query = if recipe.reads_query() {
            // The members of a body are parameters too, and have types of their own.
            if has_body {
                return None;
            }
            (!query.is_empty()).then(|| JsonDocument::new(query)).transpose().ok()?
        } else {
            None
        };
        let count = recipe.steps.len();
        Some(Self {
            recipe,
            query,
            values: std::iter::repeat_with(|| None).take(count).collect(),
            is_started: vec![false; count],
            bytes,
        })
    }

    /// The length of all texts, which the work of each step is proportional to.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the next action, in the order of the source.
    pub(crate) fn next_action(&mut self) -> InlineAction {
        let recipe = Arc::clone(&self.recipe);
        for (index, step) in recipe.steps.iter().enumerate() {
            if self.is_started[index] || step.after.iter().any(|step| self.values[*step].is_none()) {
                continue;
            }
            self.is_started[index] = true;
            let value = match &step.what {
                InlineOperation::Call { site, method, url, passes } => {
                    let (Some(url), Ok(site)) = (self.build_url(url), u32::try_from(*site)) else {
                        return InlineAction::Unsupported;
                    };
                    let errand = OutboundCall { method: *method, url, body: FramePayload::default() };
                    return InlineAction::Call(InlineCall {
                        step: index,
                        site,
                        errand,
                        passes_through: *passes,
                    });
                }
                InlineOperation::Member(of, name) => self.resolve_member(*of, name),
                InlineOperation::Text(part) => self.resolve_part(part).and_then(|reference| {
                    Some(InlineValue::Text(to_js_string(&reference)?.into_owned().into()))
                }),
            };
            match value {
                Some(value) => self.values[index] = Some(value),
                None => return InlineAction::Unsupported,
            }
        }
        InlineAction::Wait
    }

    /// Stores the result of a call, of this length.
    pub(crate) fn store_result(&mut self, step: usize, value: InlineValue, bytes: usize) {
        self.values[step] = Some(value);
        self.bytes += bytes;
    }

    /// Returns the body of the response when all steps are done.
    pub(crate) fn response_body(&self) -> Option<FramePayload> {
        let part = &self.recipe.answer;
        if matches!(part, ValuePart::Object(_) | ValuePart::List(_)) {
            let mut out = Vec::with_capacity(self.estimate_size());
            self.write_value(part, &mut out)?;
            return Some(FramePayload::json(out.into()));
        }
        Some(match self.resolve_part(part)? {
            ValueReference::Undefined | ValueReference::Constant(JsonValue::Null) => FramePayload::default(),
            ValueReference::Text(text) => FramePayload::text(text.clone()),
            ValueReference::Constant(JsonValue::String(text)) => FramePayload::text(text.clone().into()),
            ValueReference::Constant(value) => FramePayload::json(value.to_string().into()),
            seen @ ValueReference::Json(node) => match node.kind() {
                ValueKind::Null => FramePayload::default(),
                ValueKind::String => FramePayload::text(to_js_string(&seen)?.into_owned().into()),
                _ => FramePayload::json(node.slice()),
            },
        })
    }

    /// Estimates the size of the response.
    fn estimate_size(&self) -> usize {
        let long = |value: &Option<InlineValue>| match value {
            Some(InlineValue::Text(text)) => text.len() + text.len() / 8,
            Some(InlineValue::Json(document)) => document.text().len(),
            _ => 0,
        };
        64 + self.values.iter().map(long).sum::<usize>()
    }

    fn resolve_part<'v>(&'v self, part: &'v ValuePart) -> Option<ValueReference<'v>> {
        match part {
            ValuePart::Undefined => Some(ValueReference::Undefined),
            ValuePart::Constant(value) => Some(ValueReference::Constant(value)),
            ValuePart::Query(name) => {
                let node = self.query.as_ref().and_then(|query| query.root().last_member(name.as_bytes()));
                Some(node.map_or(ValueReference::Undefined, ValueReference::Json))
            }
            ValuePart::Step(step) => self.resolve_step(*step),
            ValuePart::Object(_) | ValuePart::List(_) => None,
        }
    }

    fn resolve_step(&self, step: usize) -> Option<ValueReference<'_>> {
        Some(match self.values.get(step)?.as_ref()? {
            InlineValue::Undefined => ValueReference::Undefined,
            InlineValue::Text(text) => ValueReference::Text(text),
            InlineValue::Json(document) => ValueReference::Json(document.root()),
            InlineValue::Nested(whole, start) => match self.values.get(*whole)? {
                Some(InlineValue::Json(document)) => ValueReference::Json(document.node_at(*start)?),
                _ => return None,
            },
            InlineValue::Unsupported => return None,
        })
    }

    /// Returns a member of an object. Values of other types have built-in members or none, so they are
    /// unsupported.
    fn resolve_member(&self, of: usize, name: &str) -> Option<InlineValue> {
        let ValueReference::Json(object) = self.resolve_step(of)? else { return None };
        if object.kind() != ValueKind::Object {
            return None;
        }
        let within = match self.values[of] {
            Some(InlineValue::Nested(whole, _)) => whole,
            _ => of,
        };
        let member = object.last_member(name.as_bytes());
        Some(member.map_or(InlineValue::Undefined, |member| InlineValue::Nested(within, member.start())))
    }

    /// Returns the URL of a call, or `None` if a value is not valid in the path: a worker reports why.
    fn build_url(&self, pieces: &[UrlPiece]) -> Option<String> {
        let mut url = String::new();
        let mut is_query = false;
        for piece in pieces {
            let part = match piece {
                UrlPiece::Text(text) => {
                    is_query |= text.contains('?');
                    url.push_str(text);
                    continue;
                }
                UrlPiece::Step(step) => {
                    let reference = self.resolve_step(*step)?;
                    let text = to_js_string(&reference)?;
                    is_query |= text.contains('?');
                    url.push_str(&text);
                    continue;
                }
                UrlPiece::Encoded(part) => part,
            };
            let value_reference = self.resolve_part(part)?;
            if is_query && value_reference.is_absent() {
                continue;
            }
            let text = to_js_string(&value_reference)?;
            if !is_query && !is_safe_segment(&text) {
                return None;
            }
            encode_uri_component(&text, &mut url);
        }
        Some(url)
    }

    /// Writes a value; nothing if it is undefined.
    fn write_value(&self, part: &ValuePart, out: &mut Vec<u8>) -> Option<()> {
        match part {
            ValuePart::Object(entries) => return self.write_object(entries, out),
            ValuePart::List(items) => {
                out.push(b'[');
                for (index, item) in items.iter().enumerate() {
                    if index > 0 {
                        out.push(b',');
                    }
                    let before = out.len();
                    self.write_value(item, out)?;
                    if out.len() == before {
                        out.extend_from_slice(b"null");
                    }
                }
                out.push(b']');
                return Some(());
            }
            _ => {}
        }
        match self.resolve_part(part)? {
            ValueReference::Undefined => {}
            ValueReference::Text(text) => serde_json::to_writer(out, std::str::from_utf8(text).ok()?).ok()?,
            ValueReference::Constant(value) => serde_json::to_writer(out, value).ok()?,
            ValueReference::Json(node) => out.extend_from_slice(node.text()),
        }
        Some(())
    }

    /// Writes an object: a repeated name keeps its first position and takes its last value.
    fn write_object(&self, entries: &[ObjectEntry], out: &mut Vec<u8>) -> Option<()> {
        let mut members: Vec<(&[u8], MemberValue<'_>)> = Vec::new();
        let mut places: HashMap<&[u8], usize> = HashMap::new();
        let mut put = |name, member| match places.entry(name) {
            MapEntry::Occupied(place) => members[*place.get()].1 = member,
            MapEntry::Vacant(place) => {
                place.insert(members.len());
                members.push((name, member));
            }
        };
        for entry in entries {
            let step = match entry {
                ObjectEntry::Named(name, part) => {
                    put(name.as_bytes(), MemberValue::Part(part));
                    continue;
                }
                ObjectEntry::Spread(step) => *step,
            };
            let node = match self.resolve_step(step)? {
                ValueReference::Json(node) => node,
                ValueReference::Undefined => continue,
                ValueReference::Text(_) | ValueReference::Constant(_) => return None,
            };
            match node.kind() {
                ValueKind::Object => {}
                ValueKind::Null | ValueKind::Bool(_) | ValueKind::Number => continue,
                ValueKind::String | ValueKind::Array => return None,
            }
            for (key, value) in node.members() {
                let name = strip_quotes(key.node().text());
                // The same name can have different spellings, and numeric names come before others.
                if name.first().is_some_and(u8::is_ascii_digit) || name.contains(&b'\\') {
                    return None;
                }
                put(name, MemberValue::Json(value));
            }
        }
        out.push(b'{');
        let start = out.len();
        for (name, member) in members {
            let before = out.len();
            if before > start {
                out.push(b',');
            }
            out.push(b'"');
            out.extend_from_slice(name);
            out.extend_from_slice(b"\":");
            let behind = out.len();
            match member {
                MemberValue::Part(part) => self.write_value(part, out)?,
                MemberValue::Json(node) => out.extend_from_slice(node.text()),
            }
            if out.len() == behind {
                out.truncate(before);
            }
        }
        out.push(b'}');
        Some(())
    }
}

impl ValueReference<'_> {
    /// Whether it is `undefined` or null.
    fn is_absent(&self) -> bool {
        match self {
            ValueReference::Undefined | ValueReference::Constant(JsonValue::Null) => true,
            ValueReference::Json(node) => node.kind() == ValueKind::Null,
            ValueReference::Text(_) | ValueReference::Constant(_) => false,
        }
    }
}

impl InlineValue {
    /// Converts the response of a service. Returns `None` if it claims to be JSON but is not: a worker must
    /// then handle the error.
    pub(crate) fn from_payload(body: FramePayload) -> Option<Self> {
        Some(match body.kind {
            frame::PayloadKind::None => Self::Undefined,
            frame::PayloadKind::Text | frame::PayloadKind::AsciiText => Self::Text(body.bytes),
            frame::PayloadKind::Json | frame::PayloadKind::AsciiJson => match body.parse_document() {
                Ok(document) => Self::Json(document),
                Err(json::JsonError::NotJson(_)) => return None,
                Err(_) => Self::Unsupported,
            },
            frame::PayloadKind::Bytes => Self::Unsupported,
        })
    }
}

/// Converts a value to a string as `String` does in JavaScript; only strings, booleans and numbers with a
/// single spelling are supported.
fn to_js_string<'s>(reference: &ValueReference<'s>) -> Option<Cow<'s, str>> {
    Some(match reference {
        ValueReference::Text(text) => Cow::Borrowed(std::str::from_utf8(text).ok()?),
        ValueReference::Constant(JsonValue::String(text)) => Cow::Borrowed(text),
        ValueReference::Constant(value @ (JsonValue::Number(_) | JsonValue::Bool(_))) => {
            Cow::Owned(value.to_string())
        }
        ValueReference::Json(node) => match node.kind() {
            ValueKind::String if !node.has_unpaired_surrogate() => node.scalar_text()?,
            ValueKind::Number if has_plain_spelling(node.text()) => node.scalar_text()?,
            ValueKind::Bool(_) => node.scalar_text()?,
            _ => return None,
        },
        ValueReference::Undefined | ValueReference::Constant(_) => return None,
    })
}

/// Whether a number has the same spelling in JavaScript: an integer that is not too long.
fn has_plain_spelling(number: &[u8]) -> bool {
    let digits = number.strip_prefix(b"-").unwrap_or(number);
    digits.len() <= MAX_PLAIN_DIGITS && digits.iter().all(u8::is_ascii_digit) && number != b"-0"
}

/// Appends a text, encoded like `encodeURIComponent`.
fn encode_uri_component(text: &str, url: &mut String) {
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.!~*'()".contains(&byte) {
            url.push(char::from(byte));
        } else {
            percent_encode(byte, url);
        }
    }
}

/// Returns the text between the quotes.
fn strip_quotes(text: &[u8]) -> &[u8] {
    text.get(1..text.len().saturating_sub(1)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expected results, shared with the worker's tests (rules.test.js).
    const URL_CASES: &str = include_str!("../../../../worker/tests/holes.json");

    /// Returns the URL of a call with this parameter value inserted after `before`.
    fn expand_url(before: &str, value: Option<&JsonValue>) -> Option<String> {
        let recipe = InlinePlan { steps: Vec::new(), answer: ValuePart::Undefined };
        let query = value.map(|value| {
            let text = serde_json::json!({ "value": value }).to_string();
            JsonDocument::new(text.into()).expect("JSON")
        });
        let composition = InlineEvaluation {
            recipe: Arc::new(recipe),
            query,
            values: Vec::new(),
            is_started: Vec::new(),
            bytes: 0,
        };
        composition
            .build_url(&[UrlPiece::Text(before.into()), UrlPiece::Encoded(ValuePart::Query("value".into()))])
    }

    #[test]
    fn url_templates_expand_as_in_a_worker() {
        let cases: Vec<JsonValue> = serde_json::from_str(URL_CASES).expect("cases");
        for case in &cases {
            let value = &case["value"];
            // Left to the worker: values without a string form, and numbers with several spellings.
            let is_left = value.is_array() || value.is_object() || value.is_f64();
            let expected = |member: &str, before: &str| {
                let filled = case[member].as_str().filter(|_| !is_left);
                filled.map(|filled| format!("{before}{filled}"))
            };
            for (member, before) in [("path", "http://x/items/"), ("query", "http://x/items?q=")] {
                assert_eq!(expand_url(before, Some(value)), expected(member, before), "{member}: {case}");
            }
        }
        assert_eq!(expand_url("http://x/items/", None), None);
        assert_eq!(expand_url("http://x/items?q=", None).as_deref(), Some("http://x/items?q="));
    }
}
