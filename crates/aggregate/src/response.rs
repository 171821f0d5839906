//! The response of an aggregate: one part, several parts by name, or a merge of several parts, with the list
//! of failures. `assemble.rs` builds the response tree.

pub(crate) mod assemble;

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use handler::HandlerResponse;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderName, HeaderValue};
use http::{Response, StatusCode};
use http_body::Body as _;
use json::{JsonDocument, JsonTree, TreeMember, ValueKind};

use crate::declaration::MemberConflict;
use crate::plan::{AggregatePlan, AggregateShape, ERRORS_MEMBER, json_name};
use crate::problem::{AggregateError, PartFailure};
use crate::value::stream::{StreamSegment, StreamedBody};
use crate::value::{AvailableValues, PartValue, index_text};
use assemble::PartAssembler;

/// The header that lists failed parts (RFC 9651).
pub(crate) const PARTS_HEADER: HeaderName = HeaderName::from_static("orfa-parts");
/// The maximum number of failed parts in the header.
const MAX_LISTED_FAILURES: usize = 20;
/// Shorter responses are copied when their first piece is taken, and then hold no text of the services.
const COPY_THRESHOLD: u64 = 4 << 10;
/// The maximum number of values of a response's tree. To free more of them one by one, after the response is
/// sent or its client has left, would block the serving thread.
const MAX_TREE_VALUES: usize = 8 << 10;

/// Returns the tree of the response, and the failures of optional parts.
pub(crate) fn response_tree(
    values: &AvailableValues<'_>,
    failed: Vec<PartFailure>,
) -> Result<(JsonTree, Vec<PartFailure>), AggregateError> {
    let assembly = PartAssembler { available_values: values, failures: RefCell::new(failed) };
    let mut members = match &values.plan.answer {
        AggregateShape::Part(part) => {
            let tree = assembly.part_tree(*part)?;
            return Ok((tree, assembly.failures.into_inner()));
        }
        AggregateShape::Parts(parts) => {
            let member = |(name, part): &(Bytes, usize)| Ok((name.clone(), assembly.part_tree(*part)?));
            parts.iter().map(member).collect::<Result<Vec<TreeMember>, AggregateError>>()?
        }
        AggregateShape::Merged(parts, conflict) => merge_members(&assembly, parts, *conflict)?,
    };
    let failures = assembly.failures.into_inner();
    if !failures.is_empty() {
        let entries: serde_json::Value = failures.iter().map(PartFailure::error_entry).collect();
        let errors = json_name(ERRORS_MEMBER);
        members.retain(|(name, _)| *name != errors);
        members.push((errors, JsonTree::Text(entries.to_string().into())));
    }
    Ok((JsonTree::Object(members.into()), failures))
}

/// Returns a response with long parts that are still arriving, or `None` if there are none.
pub(crate) async fn streamed_response(
    values: &AvailableValues<'_>,
    failed: &[PartFailure],
) -> Result<Option<HandlerResponse>, AggregateError> {
    let long = |part: usize| match values.value(part) {
        Some(PartValue::Streamed(held, _)) => held.take(),
        _ => None,
    };
    let parts = match &values.plan.answer {
        AggregateShape::Part(part) => match long(*part) {
            Some(long) => {
                return Ok(Some(build_streamed(values, vec![StreamSegment::Arriving(long)], failed)));
            }
            None => return Ok(None),
        },
        AggregateShape::Parts(parts) => parts,
        AggregateShape::Merged(..) => return Ok(None),
    };
    if !parts.iter().any(|(_, part)| matches!(values.value(*part), Some(PartValue::Streamed(..)))) {
        return Ok(None);
    }
    let assembly = PartAssembler { available_values: values, failures: RefCell::new(failed.to_vec()) };
    let mut segments = Vec::new();
    for (place, (name, part)) in parts.iter().enumerate() {
        let before = if place == 0 { &b"{"[..] } else { b"," };
        segments.push(StreamSegment::Text([before, name, b":"].concat().into()));
        let segment = match long(*part) {
            Some(long) => StreamSegment::Arriving(long),
            None => {
                let tree = assembly.part_tree(*part)?;
                let SizedTree { tree, length, .. } = measure_tree(tree, values.plan).await?;
                StreamSegment::Tree(tree, length)
            }
        };
        segments.push(segment);
    }
    let failures = assembly.failures.into_inner();
    let end = match failures.is_empty() {
        true => "}".to_owned(),
        false => {
            format!(
                ",\"{ERRORS_MEMBER}\":{}}}",
                failures.iter().map(PartFailure::error_entry).collect::<serde_json::Value>()
            )
        }
    };
    segments.push(StreamSegment::Text(end.into()));
    Ok(Some(build_streamed(values, segments, &failures)))
}

fn build_streamed(
    values: &AvailableValues<'_>,
    segments: Vec<StreamSegment>,
    failures: &[PartFailure],
) -> HandlerResponse {
    let status = if failures.is_empty() { StatusCode::OK } else { values.plan.partial_status };
    let mut response = StreamedBody::new_response(segments, status);
    set_response_headers(response.headers_mut(), failures);
    response.into()
}

/// Merges the members of several parts. Names are compared without their escapes.
fn merge_members(
    assembly: &PartAssembler<'_>,
    parts: &[usize],
    conflict: MemberConflict,
) -> Result<Vec<TreeMember>, AggregateError> {
    let mut members: Vec<(usize, TreeMember)> = Vec::new();
    let mut places: HashMap<Vec<u8>, usize> = HashMap::new();
    for number in parts {
        let part = &assembly.available_values.plan.parts[*number];
        for (name, value) in part_members(assembly, assembly.part_tree(*number)?, &part.name)? {
            let said = decode_name(&name);
            let Some(place) = places.get(&said).copied() else {
                places.insert(said, members.len());
                members.push((*number, (name, value)));
                continue;
            };
            match conflict {
                // The first of two members with the same name in one part counts.
                _ if members[place].0 == *number => {}
                MemberConflict::First => {}
                MemberConflict::Last => members[place] = (*number, (name, value)),
                MemberConflict::Error => {
                    let one = Arc::clone(&assembly.available_values.plan.parts[members[place].0].name);
                    let name = String::from_utf8_lossy(&said).chars().take(40).collect();
                    return Err(AggregateError::MergeConflict { one, other: Arc::clone(&part.name), name });
                }
            }
        }
    }
    Ok(members.into_iter().map(|(_, member)| member).collect())
}

/// Returns the members of a part's tree. An optional part that failed has none.
fn part_members(
    assembly: &PartAssembler<'_>,
    tree: JsonTree,
    part: &Arc<str>,
) -> Result<Vec<TreeMember>, AggregateError> {
    let memory = &assembly.available_values.memory;
    let of_text = |text: &Bytes| {
        let document = memory
            .charge_temporarily(|| index_text(text.clone(), memory))
            .map_err(|_| AggregateError::Memory)?;
        let count = if document.root().kind() == ValueKind::Object { document.root().count() } else { 0 };
        // The members of this part, those of the response, and the position of each name among them.
        memory.charge_for::<[(usize, TreeMember); 4]>(count)?;
        let member = |(key, value): (json::MemberName<'_>, json::JsonNode<'_>)| {
            (key.node().slice(), JsonTree::Text(value.slice()))
        };
        match document.root().kind() {
            ValueKind::Object => Ok(document.root().members().map(member).collect()),
            ValueKind::Null => Ok(Vec::new()),
            other => Err(AggregateError::MergeKind { part: Arc::clone(part), kind: other.name() }),
        }
    };
    match tree {
        JsonTree::Text(text) | JsonTree::Repeating(text, _) => of_text(&text),
        JsonTree::Object(members) => Ok(members.to_vec()),
        JsonTree::Extended(text, more) => {
            let mut members: Vec<TreeMember> = of_text(&text)?;
            members.extend(more.iter().cloned());
            Ok(members)
        }
        JsonTree::Array(_) => {
            Err(AggregateError::MergeKind { part: Arc::clone(part), kind: ValueKind::Array.name() })
        }
    }
}

/// Decodes a JSON name.
fn decode_name(name: &Bytes) -> Vec<u8> {
    let document = JsonDocument::new(name.clone()).ok();
    document
        .and_then(|document| Some(document.root().string()?.into_owned()))
        .unwrap_or_else(|| name.to_vec())
}

/// Returns the response for a tree, and whether it was written to a text of its own.
pub(crate) async fn build_response(
    tree: JsonTree,
    failures: &[PartFailure],
    plan: &AggregatePlan,
    is_head: bool,
) -> Result<(HandlerResponse, bool), AggregateError> {
    let SizedTree { tree, length, is_written } = measure_tree(tree, plan).await?;
    let body = match is_head {
        true => services::body::empty(),
        false => services::body::from_pieces(length, tree.clone().pieces_with_len(length)),
    };
    let mut response = Response::new(body);
    if !failures.is_empty() {
        *response.status_mut() = plan.partial_status;
    }
    set_response_headers(response.headers_mut(), failures);
    response.headers_mut().insert(CONTENT_LENGTH, length.into());
    Ok((HandlerResponse { json_tree: Some(tree), ..response.into() }, is_written))
}

/// Notes how much memory a response holds until it is sent. A single streamed part holds none. `sources` is
/// the size of the data that it was composed of, unless it holds only its own text.
pub(crate) fn record_held_memory(answer: &mut HandlerResponse, plan: &AggregatePlan, sources: Option<u64>) {
    let length = answer.response.body().size_hint().exact();
    let is_held = match length {
        Some(length) => length >= COPY_THRESHOLD,
        None => !matches!(plan.answer, AggregateShape::Part(_)),
    };
    if let Some(held) = sources.or(length).filter(|_| is_held) {
        answer.held_bytes = held;
    }
}

/// A tree, with the length of its text.
struct SizedTree {
    tree: JsonTree,
    length: usize,
    /// Whether it is a text that was written for it.
    is_written: bool,
}

/// Measures a tree, and writes one of many values to a text.
///
/// # Errors
/// If the text exceeds the limit of a response.
async fn measure_tree(tree: JsonTree, plan: &AggregatePlan) -> Result<SizedTree, AggregateError> {
    let config = plan.limits.response_body;
    let length = tree.len_within(config.as_usize()).ok_or(AggregateError::AnswerSize(config.0))?;
    if !tree.has_more_than(MAX_TREE_VALUES) {
        return Ok(SizedTree { tree, length, is_written: false });
    }
    offload::move_if_long(length).await;
    let mut text = Vec::with_capacity(length);
    tree.write(&mut text);
    Ok(SizedTree { tree: JsonTree::Text(text.into()), length, is_written: true })
}

fn set_response_headers(headers: &mut http::HeaderMap, failures: &[PartFailure]) {
    headers.insert(CONTENT_TYPE, const { HeaderValue::from_static("application/json") });
    if !failures.is_empty() {
        let items: Vec<String> =
            failures.iter().take(MAX_LISTED_FAILURES).map(PartFailure::header_item).collect();
        headers.extend(HeaderValue::from_str(&items.join(", ")).ok().map(|value| (PARTS_HEADER, value)));
    }
}
