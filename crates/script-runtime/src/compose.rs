//! Evaluation of recipes: computes the calls and the response of a handler from the request and the services'
//! responses, with the same result as its JavaScript. Values that no code reads are passed through unchanged
//! (rule 16).
//!
//! Only common cases are supported. `None` and [`Next::Unusual`] mean that the handler must run as
//! JavaScript.

use std::borrow::Cow;
use std::collections::HashMap;
use std::collections::hash_map::Entry as Place;
use std::sync::Arc;

use bytes::Bytes;
use json::{JsonDocument, JsonNode, ValueKind};
use script::Recipe;
use script::recipe::{Entry, Part, Piece, What};
use serde_json::Value as Constant;
use services::path::is_segment;

use crate::call::Errand;
use crate::frame::{self, Payload};
use crate::location::percent_encode;

/// Integers with up to this many digits have the same spelling in JSON and JavaScript.
const DIGITS: usize = 15;

/// The evaluation of a recipe in progress. It owns everything, so that long work can move to the pool.
pub(crate) struct Composition {
    recipe: Arc<Recipe>,
    /// The request's parameters, if it has any.
    query: Option<JsonDocument>,
    values: Vec<Option<Value>>,
    is_begun: Vec<bool>,
    /// The length of all texts.
    bytes: usize,
}

/// The next action.
pub(crate) enum Next {
    Call(Call),
    /// A result is needed first, or no call is left.
    Wait,
    Unusual,
}

/// The next call.
pub(crate) struct Call {
    pub(crate) step: usize,
    pub(crate) site: u32,
    pub(crate) errand: Errand,
    pub(crate) passes: bool,
}

/// The value of a step.
pub(crate) enum Value {
    Undefined,
    Text(Bytes),
    Json(JsonDocument),
    /// A part of another step's document: the step's index and the offset of the value.
    Within(usize, usize),
    /// Not supported, for example bytes.
    Unusual,
}

/// A reference to a value.
enum Seen<'v> {
    Undefined,
    Text(&'v Bytes),
    Json(JsonNode<'v>),
    Constant(&'v Constant),
}

/// The value of an object's member.
enum Member<'v> {
    Part(&'v Part),
    Json(JsonNode<'v>),
}

impl Composition {
    /// Starts the evaluation of a recipe for a request with these parameters.
    pub(crate) fn of(recipe: Arc<Recipe>, query: Bytes, has_body: bool) -> Option<Self> {
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
            is_begun: vec![false; count],
            bytes,
        })
    }

    /// The length of all texts, which the work of each step is proportional to.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the next action, in the order of the source.
    pub(crate) fn next(&mut self) -> Next {
        let recipe = Arc::clone(&self.recipe);
        for (index, step) in recipe.steps.iter().enumerate() {
            if self.is_begun[index] || step.after.iter().any(|step| self.values[*step].is_none()) {
                continue;
            }
            self.is_begun[index] = true;
            let value = match &step.what {
                What::Call { site, method, url, passes } => {
                    let (Some(url), Ok(site)) = (self.url(url), u32::try_from(*site)) else {
                        return Next::Unusual;
                    };
                    let errand = Errand { method: *method, url, body: Payload::default() };
                    return Next::Call(Call { step: index, site, errand, passes: *passes });
                }
                What::Member(of, name) => self.member(*of, name),
                What::Text(part) => {
                    self.seen(part).and_then(|seen| Some(Value::Text(text(&seen)?.into_owned().into())))
                }
            };
            match value {
                Some(value) => self.values[index] = Some(value),
                None => return Next::Unusual,
            }
        }
        Next::Wait
    }

    /// Stores the result of a call, of this length.
    pub(crate) fn put(&mut self, step: usize, value: Value, bytes: usize) {
        self.values[step] = Some(value);
        self.bytes += bytes;
    }

    /// Returns the body of the response when all steps are done.
    pub(crate) fn answer(&self) -> Option<Payload> {
        let part = &self.recipe.answer;
        if matches!(part, Part::Object(_) | Part::List(_)) {
            let mut out = Vec::with_capacity(self.size());
            self.write(part, &mut out)?;
            return Some(Payload::json(out.into()));
        }
        Some(match self.seen(part)? {
            Seen::Undefined | Seen::Constant(Constant::Null) => Payload::default(),
            Seen::Text(text) => Payload::text(text.clone()),
            Seen::Constant(Constant::String(text)) => Payload::text(text.clone().into()),
            Seen::Constant(value) => Payload::json(value.to_string().into()),
            seen @ Seen::Json(node) => match node.kind() {
                ValueKind::Null => Payload::default(),
                ValueKind::String => Payload::text(text(&seen)?.into_owned().into()),
                _ => Payload::json(node.slice()),
            },
        })
    }

    /// Estimates the size of the response.
    fn size(&self) -> usize {
        let long = |value: &Option<Value>| match value {
            Some(Value::Text(text)) => text.len() + text.len() / 8,
            Some(Value::Json(document)) => document.text().len(),
            _ => 0,
        };
        64 + self.values.iter().map(long).sum::<usize>()
    }

    fn seen<'v>(&'v self, part: &'v Part) -> Option<Seen<'v>> {
        match part {
            Part::Undefined => Some(Seen::Undefined),
            Part::Constant(value) => Some(Seen::Constant(value)),
            Part::Query(name) => {
                let found = self.query.as_ref().and_then(|query| query.root().last_member(name.as_bytes()));
                Some(found.map_or(Seen::Undefined, Seen::Json))
            }
            Part::Step(step) => self.step(*step),
            Part::Object(_) | Part::List(_) => None,
        }
    }

    fn step(&self, step: usize) -> Option<Seen<'_>> {
        Some(match self.values.get(step)?.as_ref()? {
            Value::Undefined => Seen::Undefined,
            Value::Text(text) => Seen::Text(text),
            Value::Json(document) => Seen::Json(document.root()),
            Value::Within(whole, start) => match self.values.get(*whole)? {
                Some(Value::Json(document)) => Seen::Json(document.node(*start)?),
                _ => return None,
            },
            Value::Unusual => return None,
        })
    }

    /// Returns a member of an object. Values of other types have built-in members or none, so they are
    /// unsupported.
    fn member(&self, of: usize, name: &str) -> Option<Value> {
        let Seen::Json(object) = self.step(of)? else { return None };
        if object.kind() != ValueKind::Object {
            return None;
        }
        let within = match self.values[of] {
            Some(Value::Within(whole, _)) => whole,
            _ => of,
        };
        let member = object.last_member(name.as_bytes());
        Some(member.map_or(Value::Undefined, |member| Value::Within(within, member.start())))
    }

    /// Returns the URL of a call, or `None` if a value is not valid in the path: a worker reports why.
    fn url(&self, pieces: &[Piece]) -> Option<String> {
        let mut url = String::new();
        let mut is_query = false;
        for piece in pieces {
            let part = match piece {
                Piece::Text(text) => {
                    is_query |= text.contains('?');
                    url.push_str(text);
                    continue;
                }
                Piece::Step(step) => {
                    let seen = self.step(*step)?;
                    let text = text(&seen)?;
                    is_query |= text.contains('?');
                    url.push_str(&text);
                    continue;
                }
                Piece::Encoded(part) => part,
            };
            let seen = self.seen(part)?;
            if is_query && seen.is_absent() {
                continue;
            }
            let text = text(&seen)?;
            if !is_query && !is_segment(&text) {
                return None;
            }
            encode(&text, &mut url);
        }
        Some(url)
    }

    /// Writes a value; nothing if it is undefined.
    fn write(&self, part: &Part, out: &mut Vec<u8>) -> Option<()> {
        match part {
            Part::Object(entries) => return self.object(entries, out),
            Part::List(items) => {
                out.push(b'[');
                for (index, item) in items.iter().enumerate() {
                    if index > 0 {
                        out.push(b',');
                    }
                    let before = out.len();
                    self.write(item, out)?;
                    if out.len() == before {
                        out.extend_from_slice(b"null");
                    }
                }
                out.push(b']');
                return Some(());
            }
            _ => {}
        }
        match self.seen(part)? {
            Seen::Undefined => {}
            Seen::Text(text) => serde_json::to_writer(out, std::str::from_utf8(text).ok()?).ok()?,
            Seen::Constant(value) => serde_json::to_writer(out, value).ok()?,
            Seen::Json(node) => out.extend_from_slice(node.text()),
        }
        Some(())
    }

    /// Writes an object: a repeated name keeps its first position and takes its last value.
    fn object(&self, entries: &[Entry], out: &mut Vec<u8>) -> Option<()> {
        let mut members: Vec<(&[u8], Member<'_>)> = Vec::new();
        let mut places: HashMap<&[u8], usize> = HashMap::new();
        let mut put = |name, member| match places.entry(name) {
            Place::Occupied(place) => members[*place.get()].1 = member,
            Place::Vacant(place) => {
                place.insert(members.len());
                members.push((name, member));
            }
        };
        for entry in entries {
            let step = match entry {
                Entry::Named(name, part) => {
                    put(name.as_bytes(), Member::Part(part));
                    continue;
                }
                Entry::Spread(step) => *step,
            };
            let node = match self.step(step)? {
                Seen::Json(node) => node,
                Seen::Undefined => continue,
                Seen::Text(_) | Seen::Constant(_) => return None,
            };
            match node.kind() {
                ValueKind::Object => {}
                ValueKind::Null | ValueKind::Bool(_) | ValueKind::Number => continue,
                ValueKind::String | ValueKind::Array => return None,
            }
            for (key, value) in node.members() {
                let name = inside(key.node().text());
                // The same name can have different spellings, and numeric names come before others.
                if name.first().is_some_and(u8::is_ascii_digit) || name.contains(&b'\\') {
                    return None;
                }
                put(name, Member::Json(value));
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
                Member::Part(part) => self.write(part, out)?,
                Member::Json(node) => out.extend_from_slice(node.text()),
            }
            if out.len() == behind {
                out.truncate(before);
            }
        }
        out.push(b'}');
        Some(())
    }
}

impl Seen<'_> {
    /// Whether it is `undefined` or null.
    fn is_absent(&self) -> bool {
        match self {
            Seen::Undefined | Seen::Constant(Constant::Null) => true,
            Seen::Json(node) => node.kind() == ValueKind::Null,
            Seen::Text(_) | Seen::Constant(_) => false,
        }
    }
}

impl Value {
    /// Converts the response of a service. Returns `None` if it claims to be JSON but is not: a worker must
    /// then handle the error.
    pub(crate) fn of(body: Payload) -> Option<Self> {
        Some(match body.kind {
            frame::Kind::None => Self::Undefined,
            frame::Kind::Text | frame::Kind::AsciiText => Self::Text(body.bytes),
            frame::Kind::Json | frame::Kind::AsciiJson => match body.document() {
                Ok(document) => Self::Json(document),
                Err(json::JsonError::NotJson(_)) => return None,
                Err(_) => Self::Unusual,
            },
            frame::Kind::Bytes => Self::Unusual,
        })
    }
}

/// Converts a value to a string as `String` does in JavaScript; only strings, booleans and numbers with a
/// single spelling are supported.
fn text<'s>(seen: &Seen<'s>) -> Option<Cow<'s, str>> {
    Some(match seen {
        Seen::Text(text) => Cow::Borrowed(std::str::from_utf8(text).ok()?),
        Seen::Constant(Constant::String(text)) => Cow::Borrowed(text),
        Seen::Constant(value @ (Constant::Number(_) | Constant::Bool(_))) => Cow::Owned(value.to_string()),
        Seen::Json(node) => match node.kind() {
            ValueKind::String if !node.is_unpaired() => node.plain()?,
            ValueKind::Number if is_plain(node.text()) => node.plain()?,
            ValueKind::Bool(_) => node.plain()?,
            _ => return None,
        },
        Seen::Undefined | Seen::Constant(_) => return None,
    })
}

/// Whether a number has the same spelling in JavaScript: an integer that is not too long.
fn is_plain(number: &[u8]) -> bool {
    let digits = number.strip_prefix(b"-").unwrap_or(number);
    digits.len() <= DIGITS && digits.iter().all(u8::is_ascii_digit) && number != b"-0"
}

/// Appends a text, encoded like `encodeURIComponent`.
fn encode(text: &str, url: &mut String) {
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.!~*'()".contains(&byte) {
            url.push(char::from(byte));
        } else {
            percent_encode(byte, url);
        }
    }
}

/// Returns the text between the quotes.
fn inside(text: &[u8]) -> &[u8] {
    text.get(1..text.len().saturating_sub(1)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expected results, shared with the worker's tests (rules.test.js).
    const HOLES: &str = include_str!("../../../worker/tests/holes.json");

    /// Returns the URL of a call with this parameter value inserted after `before`.
    fn url(before: &str, value: Option<&Constant>) -> Option<String> {
        let recipe = Recipe { steps: Vec::new(), answer: Part::Undefined };
        let query = value.map(|value| {
            let text = serde_json::json!({ "value": value }).to_string();
            JsonDocument::new(text.into()).expect("JSON")
        });
        let composition = Composition {
            recipe: Arc::new(recipe),
            query,
            values: Vec::new(),
            is_begun: Vec::new(),
            bytes: 0,
        };
        composition.url(&[Piece::Text(before.into()), Piece::Encoded(Part::Query("value".into()))])
    }

    #[test]
    fn url_templates_expand_as_in_a_worker() {
        let cases: Vec<Constant> = serde_json::from_str(HOLES).expect("cases");
        for case in &cases {
            let value = &case["value"];
            // Left to the worker: values without a string form, and numbers with several spellings.
            let is_left = value.is_array() || value.is_object() || value.is_f64();
            let expected = |member: &str, before: &str| {
                let filled = case[member].as_str().filter(|_| !is_left);
                filled.map(|filled| format!("{before}{filled}"))
            };
            for (member, before) in [("path", "http://x/items/"), ("query", "http://x/items?q=")] {
                assert_eq!(url(before, Some(value)), expected(member, before), "{member}: {case}");
            }
        }
        assert_eq!(url("http://x/items/", None), None);
        assert_eq!(url("http://x/items?q=", None).as_deref(), Some("http://x/items?q="));
    }
}
