//! Reads the JSON of a response in place: text and index stay in the host, and a program gets the values that
//! it asks for.
//!
//! A node is the position in the text where a value begins. A program may pass any position; if no value
//! begins there, it reads nonsense from its own document, but nothing else.

use bytes::Bytes;
use json::{JsonDocument, JsonNode, NodeId, ValueKind};
use query_abi::{AbiCode, HOST_MODULE, JSON_VALUE_BYTES};
use sandbox::{Caller, GuestResult, Linker, Trapped};
use serde_json::json;

use super::MAX_TEXT_BYTES;
use super::documents::{DocumentValue, NoDocument, OpenDocument};
use super::guest::{MemoryView, QueryGuest};
use super::steps::{PartOutcome, TraversalPart, call_in_steps, copy_out};
use super::values::{OutputRange, WriteOutcome, to_word};

pub(super) fn add_to_linker(linker: &mut Linker<QueryGuest>) -> GuestResult<()> {
    linker.func_wrap_async(
        HOST_MODULE,
        "Json_root",
        |mut caller: Caller<'_, QueryGuest>, (future, value, data, len): (i32, u32, u32, u32)| {
            Box::new(async move {
                caller.data_mut().index_document(future).await.map_err(Trapped::new)?;
                let with = move |_: &mut MemoryView<'_>| Ok(json!({ "future": future, "len": len }));
                call_in_steps(&mut caller, "Json_root", with, move |view| {
                    json_root(view, future, value, (data, len))
                })
                .await
            })
        },
    )?;
    linker.func_wrap_async(
        HOST_MODULE,
        "Json_member",
        |mut caller: Caller<'_, QueryGuest>,
         (future, node, name, name_len, last, value, data, len): (
            i32,
            u32,
            u32,
            u32,
            i32,
            u32,
            u32,
            u32,
        )| {
            Box::new(async move {
                let with = move |view: &mut MemoryView<'_>| {
                    let name = view.note_text(name, name_len)?;
                    Ok(json!({ "future": future, "node": node, "name": name, "last": last != 0, "len": len }))
                };
                let member = RequestedMember { node, name: (name, name_len), last: last != 0 };
                let mut search = MemberSearch::default();
                call_in_steps(&mut caller, "Json_member", with, move |view| {
                    json_member(view, future, &member, (value, data, len), &mut search)
                })
                .await
            })
        },
    )?;
    linker.func_wrap_async(
        HOST_MODULE,
        "Json_column",
        |mut caller: Caller<'_, QueryGuest>,
         (future, node, name, name_len, last, values, count, data, len): (
            i32,
            u32,
            u32,
            u32,
            i32,
            u32,
            u32,
            u32,
            u32,
        )| {
            Box::new(async move {
                let with = move |view: &mut MemoryView<'_>| {
                    let name = view.note_text(name, name_len)?;
                    let (last, count) = (last != 0, count);
                    Ok(json!({ "future": future, "node": node, "name": name, "last": last, "count": count, "len": len }))
                };
                let wanted_member = RequestedMember { node, name: (name, name_len), last: last != 0 };
                call_in_steps(&mut caller, "Json_column", with, move |view| {
                    json_column(view, future, &wanted_member, (values, count), (data, len))
                })
                .await
            })
        },
    )?;
    linker.func_wrap_async(
        HOST_MODULE,
        "Json_children",
        |mut caller: Caller<'_, QueryGuest>, (future, node, data, len): (i32, u32, u32, u32)| {
            Box::new(async move {
                let with =
                    move |_: &mut MemoryView<'_>| Ok(json!({ "future": future, "node": node, "len": len }));
                let mut filling = None;
                call_in_steps(&mut caller, "Json_children", with, move |view| {
                    json_children(view, future, node, (data, len), &mut filling)
                })
                .await
            })
        },
    )?;
    linker.func_wrap_async(
        HOST_MODULE,
        "Json_text",
        |mut caller: Caller<'_, QueryGuest>, (future, node, data, len): (i32, u32, u32, u32)| {
            Box::new(async move {
                let with =
                    move |_: &mut MemoryView<'_>| Ok(json!({ "future": future, "node": node, "len": len }));
                call_in_steps(&mut caller, "Json_text", with, move |view| {
                    json_text(view, future, node, (data, len))
                })
                .await
            })
        },
    )?;
    Ok(())
}

/// The maximum number of values per call of `Json_column`. A program that needs more calls again.
const MAX_COLUMN_VALUES: u32 = 1024;
/// The maximum length of the text that one call of `Json_column` traverses, and of one item: members may be
/// short.
const MAX_COLUMN_TEXT: usize = 48 << 10;

/// The requested member.
struct RequestedMember {
    node: u32,
    name: (u32, u32),
    last: bool,
}

impl RequestedMember {
    fn find_in<'a>(&self, object: JsonNode<'a>, name: &[u8]) -> Option<JsonNode<'a>> {
        if self.last { object.last_member(name) } else { object.member(name) }
    }
}

/// In recorded runs, a response appears not to be an array or object. Environments then read and parse it
/// whole, as the mocks do, which have no index.
fn json_root(
    view: &mut MemoryView<'_>,
    future: i32,
    value: u32,
    (data, len): (u32, u32),
) -> GuestResult<PartOutcome<i32>> {
    view.slice(data, len)?;
    view.slice(value, JSON_VALUE_BYTES)?;
    let is_taped = !view.guest.tape.is_off();
    let mut out = OutputRange::new(view.bytes, data, data + len);
    let (code, place) = match view.guest.document("Json_root", future)? {
        Ok(document) => {
            let root = document.document.root();
            if !is_taped || !matches!(root.kind(), ValueKind::Array | ValueKind::Object) {
                return Ok(out.write_value(value, document.read_value(root)).into_step(AbiCode::Ok as i32));
            }
            (AbiCode::Ok, 0)
        }
        Err(NoDocument::Failed { code, position: place }) => (code, to_word(place)),
        Err(NoDocument::IndexPending) => return Ok(PartOutcome::Yield),
    };
    out.write_no_document(value, place);
    view.guest.tape.record_data(&place.to_le_bytes(), &[]).map_err(Trapped::new)?;
    Ok(PartOutcome::Done(code as i32))
}

/// The progress of a search through an object's members.
#[derive(Default)]
struct MemberSearch {
    next: Option<NodeId>,
    found: Option<NodeId>,
    is_over: bool,
}

impl MemberSearch {
    /// Searches the next part.
    fn search_part(&mut self, document: &JsonDocument, member: &RequestedMember, name: &[u8]) {
        let members = match self.next {
            Some(next) => Some(document.members_at(next)),
            None => document.node_at(member.node as usize).map(JsonNode::members),
        };
        let mut pass = TraversalPart::default();
        for (key, value) in members.into_iter().flatten() {
            let here = key.node();
            if pass.count_value(here.start()) {
                self.next = Some(here.node_id());
                return;
            }
            if key.equals(name) {
                self.found = Some(value.node_id());
                if !member.last {
                    break;
                }
            }
        }
        self.is_over = true;
    }
}

fn json_member(
    view: &mut MemoryView<'_>,
    future: i32,
    member: &RequestedMember,
    (value, data, len): (u32, u32, u32),
    search: &mut MemberSearch,
) -> GuestResult<PartOutcome<i32>> {
    let (name, name_len) = member.name;
    view.slice(data, len)?;
    view.slice(value, JSON_VALUE_BYTES)?;
    view.slice(name, name_len)?;
    let document = match view.guest.document("Json_member", future)? {
        Ok(open_document) => open_document,
        Err(error) => return Ok(error.next_step()),
    };
    if name_len > MAX_TEXT_BYTES {
        return Ok(PartOutcome::Done(AbiCode::Invalid as i32));
    }
    let name = &view.bytes[name as usize..][..name_len as usize];
    if !search.is_over {
        search.search_part(document.document, member, name);
    }
    if !search.is_over {
        return Ok(PartOutcome::Yield);
    }
    let Some(node) = search.found.and_then(|node_id| document.document.node_by_id(node_id)) else {
        return Ok(PartOutcome::Done(AbiCode::Missing as i32));
    };
    let mut out = OutputRange::new(view.bytes, data, data + len);
    Ok(out.write_value(value, document.read_value(node)).into_step(AbiCode::Ok as i32))
}

/// Reads one member of many items in one call, since advancing to the next item costs less than a call.
/// Returns fewer items if continuing would take long.
fn json_column(
    view: &mut MemoryView<'_>,
    future: i32,
    member: &RequestedMember,
    (values, count): (u32, u32),
    (data, len): (u32, u32),
) -> GuestResult<PartOutcome<i32>> {
    view.slice(data, len)?;
    let room = count.saturating_mul(JSON_VALUE_BYTES);
    view.slice(values, room)?;
    let room = room.min(MAX_COLUMN_VALUES * JSON_VALUE_BYTES);
    view.slice(member.name.0, member.name.1)?;
    let document = match view.guest.document("Json_column", future)? {
        Ok(open_document) => open_document,
        Err(error) => return Ok(error.next_step()),
    };
    if member.name.1 > MAX_TEXT_BYTES {
        return Ok(PartOutcome::Done(AbiCode::Invalid as i32));
    }
    let name = view.bytes[member.name.0 as usize..][..member.name.1 as usize].to_vec();
    let mut out = OutputRange::new(view.bytes, data, data + len);
    let places = (values..values + room).step_by(JSON_VALUE_BYTES as usize);
    let first = member.node as usize;
    let items = document.document.node_at(first).into_iter().flat_map(JsonNode::with_following_items);
    let is_long = document.document.text().len() > MAX_COLUMN_TEXT;
    let is_near =
        |item: JsonNode<'_>| item.start() - first <= MAX_COLUMN_TEXT && !item.is_longer_than(MAX_COLUMN_TEXT);
    let filled = places.zip(items).take_while(|(at, item)| {
        if is_long && !is_near(*item) {
            return false;
        }
        let Some(node) = member.find_in(*item, &name) else {
            out.write_missing(*at);
            return true;
        };
        matches!(out.write_value(*at, document.read_value(node)), WriteOutcome::Complete)
    });
    Ok(PartOutcome::Done(to_length(filled.count())))
}

/// The progress of writing a container's children.
struct ContainerFill {
    /// The next child: a member's name for objects.
    next_child: Option<NodeId>,
    is_object: bool,
    /// The number of values of the next child that were written: 1 after a member's name.
    written: usize,
    record_address: u32,
    /// The address of the next text.
    text_address: u32,
    /// The size of the texts that did not fit, in bytes.
    missing_bytes: usize,
}

impl ContainerFill {
    /// Starts with the first child.
    fn new(node: JsonNode<'_>, data: u32, records: u32) -> Self {
        let is_object = node.kind() == ValueKind::Object;
        let first = match is_object {
            true => node.members().next().map(|(key, _)| key.node()),
            false => node.items().next(),
        };
        let next_child = first.map(JsonNode::node_id);
        Self {
            next_child,
            is_object,
            written: 0,
            record_address: data,
            text_address: data + records,
            missing_bytes: 0,
        }
    }

    /// Writes the next part. Returns the next step of the call, or `None` if all children are written.
    fn write_part(
        &mut self,
        open_document: &OpenDocument<'_>,
        out: &mut OutputRange<'_>,
    ) -> Option<PartOutcome<i32>> {
        let document = open_document.document;
        let next = self.next_child?;
        let members = self.is_object.then(|| document.members_at(next)).into_iter().flatten();
        let items = document.node_by_id(next).filter(|_| !self.is_object).map(JsonNode::with_following_items);
        let items = items.into_iter().flatten().map(|item| (item, None));
        let mut pass = TraversalPart::default();
        for (name, value) in members.map(|(key, value)| (key.node(), Some(value))).chain(items) {
            self.next_child = Some(name.node_id());
            if pass.count_value(name.start()) {
                return Some(PartOutcome::Yield);
            }
            for node in [Some(name), value].into_iter().flatten().skip(self.written) {
                let outcome = out.write_value(self.record_address, open_document.read_value(node));
                pass.count_escaped(out.take_escaped());
                if let WriteOutcome::Unread(place) = outcome {
                    return Some(PartOutcome::Read(place));
                }
                self.record_address += JSON_VALUE_BYTES;
                self.written += 1;
                match outcome {
                    WriteOutcome::DoesNotFit(bytes) => self.missing_bytes += bytes,
                    WriteOutcome::Text(bytes, to) => {
                        return Some(PartOutcome::Copy { bytes, address: to, result: None });
                    }
                    _ => {}
                }
            }
            self.written = 0;
        }
        None
    }
}

fn json_children(
    view: &mut MemoryView<'_>,
    future: i32,
    node: u32,
    (data, len): (u32, u32),
    filling: &mut Option<ContainerFill>,
) -> GuestResult<PartOutcome<i32>> {
    view.slice(data, len)?;
    let document = match view.guest.document("Json_children", future)? {
        Ok(open_document) => open_document,
        Err(error) => return Ok(error.next_step()),
    };
    let filling = match filling {
        Some(filling) => filling,
        none => {
            let Some(node) = document.document.node_at(node as usize) else {
                return Ok(PartOutcome::Done(0));
            };
            let records = node.count() * if node.kind() == ValueKind::Object { 2 } else { 1 };
            let records = to_word(records).saturating_mul(JSON_VALUE_BYTES);
            if records > len {
                return Ok(PartOutcome::Done(to_length(records as usize + node.text().len())));
            }
            none.insert(ContainerFill::new(node, data, records))
        }
    };
    let mut out = OutputRange::new(view.bytes, filling.text_address, data + len);
    let step = filling.write_part(&document, &mut out);
    filling.text_address = out.text_address;
    Ok(step.unwrap_or_else(|| {
        PartOutcome::Done(to_length((filling.text_address - data) as usize + filling.missing_bytes))
    }))
}

fn json_text(
    view: &mut MemoryView<'_>,
    future: i32,
    node: u32,
    out: (u32, u32),
) -> GuestResult<PartOutcome<i32>> {
    let document = match view.guest.document("Json_text", future)? {
        Ok(open_document) => open_document,
        Err(error) => return Ok(error.next_step()),
    };
    let text = match document.document.node_at(node as usize).map(|node| document.read_value(node)) {
        Some(DocumentValue::Short(node)) => value_text(node),
        Some(DocumentValue::Long(scalar)) => scalar.scalar_text(),
        Some(DocumentValue::Unread(place)) => return Ok(PartOutcome::Read(place)),
        None => Bytes::new(),
    };
    copy_out(view, &text, out)
}

/// Returns the JSON text of a short value. A program may point to a colon, which is not a value: its text
/// would extend to the next comma, within a string of any length.
fn value_text(node: JsonNode<'_>) -> Bytes {
    match node.kind() {
        ValueKind::Array | ValueKind::Object => node.slice(),
        _ => {
            let text = node.slice_with_whitespace();
            text.slice(..text.trim_ascii_end().len())
        }
    }
}

fn to_length(bytes: usize) -> i32 {
    i32::try_from(bytes).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_of_a_colon_ends_at_the_next_token() {
        let text = r#"{ "a" : "b; c" , "d": 1 }"#;
        let document = JsonDocument::new(text.into()).unwrap();
        let text_at = |start: usize| value_text(document.node_at(start).unwrap());
        assert_eq!(text_at(0), text);
        assert_eq!(text_at(6), ":");
        assert_eq!(text_at(8), r#""b; c""#);
        assert_eq!(text_at(22), "1");
    }
}
