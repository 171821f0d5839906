//! Reading the JSON of an answer in place: the text and its index stay with the host, and a program is
//! given the values that it asks for.
//!
//! A node is the place in the text where a value begins. A program may name any place: where no value
//! begins there, what it reads is nonsense from its own document, and nothing else.

use bytes::Bytes;
use json::{Document, Kind, Node, Spot};
use query_abi::{Code, HOST_MODULE, JSON_VALUE_BYTES};
use sandbox::{Caller, GuestResult, Linker, Trapped};
use serde_json::json;

use super::documents::{Found, OpenDocument};
use super::steps::{Pass, Step, call_in_steps, copy_out};
use super::values::{Out, Written, word};
use super::{TEXT, call};
use crate::guest::{Guest, View};

pub(super) fn add(linker: &mut Linker<Guest>) -> GuestResult<()> {
    linker.func_wrap_async(
        HOST_MODULE,
        "Json_root",
        |mut caller: Caller<'_, Guest>, (future, value, data, len): (i32, u32, u32, u32)| {
            Box::new(async move {
                caller.data_mut().index(future).await.map_err(Trapped::new)?;
                let with = move |_: &mut View<'_>| Ok(json!({ "future": future, "len": len }));
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
        |mut caller: Caller<'_, Guest>,
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
                let with = move |view: &mut View<'_>| {
                    let name = view.note_text(name, name_len)?;
                    Ok(json!({ "future": future, "node": node, "name": name, "last": last != 0, "len": len }))
                };
                let wanted = Wanted { node, name: (name, name_len), last: last != 0 };
                let mut search = Search::default();
                call_in_steps(&mut caller, "Json_member", with, move |view| {
                    json_member(view, future, &wanted, (value, data, len), &mut search)
                })
                .await
            })
        },
    )?;
    linker.func_wrap(
        HOST_MODULE,
        "Json_column",
        |mut caller: Caller<'_, Guest>,
         future: i32,
         node: u32,
         name: u32,
         name_len: u32,
         last: i32,
         values: u32,
         count: u32,
         data: u32,
         len: u32| {
            let with = |view: &mut View<'_>| {
                let name = view.note_text(name, name_len)?;
                let (last, count) = (last != 0, count);
                Ok(json!({ "future": future, "node": node, "name": name, "last": last, "count": count, "len": len }))
            };
            let wanted = Wanted { node, name: (name, name_len), last: last != 0 };
            call(&mut caller, "Json_column", with, |view| {
                json_column(view, future, &wanted, (values, count), (data, len))
            })
        },
    )?;
    linker.func_wrap_async(
        HOST_MODULE,
        "Json_children",
        |mut caller: Caller<'_, Guest>, (future, node, data, len): (i32, u32, u32, u32)| {
            Box::new(async move {
                let with = move |_: &mut View<'_>| Ok(json!({ "future": future, "node": node, "len": len }));
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
        |mut caller: Caller<'_, Guest>, (future, node, data, len): (i32, u32, u32, u32)| {
            Box::new(async move {
                let with = move |_: &mut View<'_>| Ok(json!({ "future": future, "node": node, "len": len }));
                call_in_steps(&mut caller, "Json_text", with, move |view| {
                    json_text(view, future, node, (data, len))
                })
                .await
            })
        },
    )?;
    Ok(())
}

/// Values that one call of `Json_column` gives at most: a program that asks for more asks again.
const COLUMN: u32 = 1024;
/// The bytes from the first item to the last one of a column, and of one item: all their members may be read, which may be short.
const NEAR: usize = 96 << 10;

/// The member that is asked for.
struct Wanted {
    node: u32,
    name: (u32, u32),
    last: bool,
}

impl Wanted {
    fn of<'a>(&self, object: Node<'a>, name: &[u8]) -> Option<Node<'a>> {
        if self.last { object.last_member(name) } else { object.member(name) }
    }
}

/// In a run that is recorded an answer looks as if it were no array or object: then an environment reads and parses
/// it whole, as the mocks do, which have no index.
fn json_root(
    view: &mut View<'_>,
    future: i32,
    value: u32,
    (data, len): (u32, u32),
) -> GuestResult<Step<i32>> {
    view.slice(data, len)?;
    view.slice(value, JSON_VALUE_BYTES)?;
    let is_taped = !view.guest.tape.is_off();
    let mut out = Out { bytes: view.bytes, text: data, end: data + len };
    let (code, place) = match view.guest.document("Json_root", future)? {
        Ok(opened) => {
            let root = opened.document.root();
            if !is_taped || !matches!(root.kind(), Kind::Array | Kind::Object) {
                return Ok(out.write(value, opened.value(root)).last(Code::Ok as i32));
            }
            (Code::Ok, 0)
        }
        Err(error) => (error.code, word(error.place)),
    };
    out.no_document(value, place);
    view.guest.tape.gives(&place.to_le_bytes(), &[]).map_err(Trapped::new)?;
    Ok(Step::Done(code as i32))
}

/// How far the members of an object were looked through.
#[derive(Default)]
struct Search {
    next: Option<Spot>,
    found: Option<Spot>,
    is_over: bool,
}

impl Search {
    /// Looks through one part more.
    fn goes_on(&mut self, document: &Document, wanted: &Wanted, name: &[u8]) {
        let members = match self.next {
            Some(next) => Some(document.members_at(next)),
            None => document.node(wanted.node as usize).map(Node::members),
        };
        let mut pass = Pass::default();
        for (key, value) in members.into_iter().flatten() {
            let here = key.node();
            if pass.is_over(here.start()) {
                self.next = Some(here.spot());
                return;
            }
            if key.is(name) {
                self.found = Some(value.spot());
                if !wanted.last {
                    break;
                }
            }
        }
        self.is_over = true;
    }
}

fn json_member(
    view: &mut View<'_>,
    future: i32,
    wanted: &Wanted,
    (value, data, len): (u32, u32, u32),
    search: &mut Search,
) -> GuestResult<Step<i32>> {
    let (name, name_len) = wanted.name;
    view.slice(data, len)?;
    view.slice(value, JSON_VALUE_BYTES)?;
    view.slice(name, name_len)?;
    let opened = match view.guest.document("Json_member", future)? {
        Ok(opened) => opened,
        Err(error) => return Ok(Step::Done(error.code as i32)),
    };
    if name_len > TEXT {
        return Ok(Step::Done(Code::Invalid as i32));
    }
    let name = &view.bytes[name as usize..][..name_len as usize];
    if !search.is_over {
        search.goes_on(opened.document, wanted, name);
    }
    if !search.is_over {
        return Ok(Step::Turn);
    }
    let Some(found) = search.found.and_then(|spot| opened.document.at(spot)) else {
        return Ok(Step::Done(Code::Missing as i32));
    };
    let mut out = Out { bytes: view.bytes, text: data, end: data + len };
    Ok(out.write(value, opened.value(found)).last(Code::Ok as i32))
}

/// A program that reads one member of many items asks once for some of them: passing from one item to the next costs
/// less than a call does. It is given fewer where to go on would take long.
fn json_column(
    view: &mut View<'_>,
    future: i32,
    wanted: &Wanted,
    (values, count): (u32, u32),
    (data, len): (u32, u32),
) -> GuestResult<i32> {
    view.slice(data, len)?;
    let room = count.saturating_mul(JSON_VALUE_BYTES);
    view.slice(values, room)?;
    let room = room.min(COLUMN * JSON_VALUE_BYTES);
    view.slice(wanted.name.0, wanted.name.1)?;
    let opened = match view.guest.document("Json_column", future)? {
        Ok(opened) => opened,
        Err(error) => return Ok(error.code as i32),
    };
    if wanted.name.1 > TEXT {
        return Ok(Code::Invalid as i32);
    }
    let name = view.bytes[wanted.name.0 as usize..][..wanted.name.1 as usize].to_vec();
    let mut out = Out { bytes: view.bytes, text: data, end: data + len };
    let places = (values..values + room).step_by(JSON_VALUE_BYTES as usize);
    let first = wanted.node as usize;
    let items = opened.document.node(first).into_iter().flat_map(Node::and_following);
    let is_long = opened.document.text().len() > NEAR;
    let is_near = |item: Node<'_>| item.start() - first <= NEAR && !item.is_longer(NEAR);
    let filled = places.zip(items).take_while(|(at, item)| {
        if is_long && !is_near(*item) {
            return false;
        }
        let Some(found) = wanted.of(*item, &name) else {
            out.missing(*at);
            return true;
        };
        matches!(out.write(*at, opened.value(found)), Written::Whole)
    });
    Ok(length(filled.count()))
}

/// How many of the children of a container were written, and where the next goes.
struct Filling {
    /// The next child, a member's name if it is an object's.
    next: Option<Spot>,
    is_object: bool,
    /// How much of the next child was written: its name, or all of it.
    written: usize,
    at: u32,
    /// Where the next text goes.
    text: u32,
    /// The bytes of the texts for which there was no room.
    missing: usize,
}

impl Filling {
    /// Begins with the first child.
    fn new(node: Node<'_>, data: u32, records: u32) -> Self {
        let is_object = node.kind() == Kind::Object;
        let first = match is_object {
            true => node.members().next().map(|(key, _)| key.node()),
            false => node.items().next(),
        };
        let next = first.map(Node::spot);
        Self { next, is_object, written: 0, at: data, text: data + records, missing: 0 }
    }

    /// Writes one part more; how the call goes on, unless all is written.
    fn goes_on(&mut self, opened: &OpenDocument<'_>, out: &mut Out<'_>) -> Option<Step<i32>> {
        let document = opened.document;
        let next = self.next?;
        let members = self.is_object.then(|| document.members_at(next)).into_iter().flatten();
        let items = document.at(next).filter(|_| !self.is_object).map(Node::and_following);
        let items = items.into_iter().flatten().map(|item| (item, None));
        let mut pass = Pass::default();
        for (name, value) in members.map(|(key, value)| (key.node(), Some(value))).chain(items) {
            self.next = Some(name.spot());
            if pass.is_over(name.start()) {
                return Some(Step::Turn);
            }
            for node in [Some(name), value].into_iter().flatten().skip(self.written) {
                let written = out.write(self.at, opened.value(node));
                if let Written::Unread(place) = written {
                    return Some(Step::Read(place));
                }
                self.at += JSON_VALUE_BYTES;
                self.written += 1;
                match written {
                    Written::Short(bytes) => self.missing += bytes,
                    Written::Text(bytes, to) => return Some(Step::Copy { bytes, to, then: None }),
                    _ => {}
                }
            }
            self.written = 0;
        }
        None
    }
}

fn json_children(
    view: &mut View<'_>,
    future: i32,
    node: u32,
    (data, len): (u32, u32),
    filling: &mut Option<Filling>,
) -> GuestResult<Step<i32>> {
    view.slice(data, len)?;
    let opened = match view.guest.document("Json_children", future)? {
        Ok(opened) => opened,
        Err(error) => return Ok(Step::Done(error.code as i32)),
    };
    let filling = match filling {
        Some(filling) => filling,
        none => {
            let Some(node) = opened.document.node(node as usize) else { return Ok(Step::Done(0)) };
            let records = node.count() * if node.kind() == Kind::Object { 2 } else { 1 };
            let records = word(records).saturating_mul(JSON_VALUE_BYTES);
            if records > len {
                return Ok(Step::Done(length(records as usize + node.text().len())));
            }
            none.insert(Filling::new(node, data, records))
        }
    };
    let mut out = Out { bytes: view.bytes, text: filling.text, end: data + len };
    let step = filling.goes_on(&opened, &mut out);
    filling.text = out.text;
    Ok(step.unwrap_or_else(|| Step::Done(length((filling.text - data) as usize + filling.missing))))
}

fn json_text(view: &mut View<'_>, future: i32, node: u32, out: (u32, u32)) -> GuestResult<Step<i32>> {
    let opened = match view.guest.document("Json_text", future)? {
        Ok(opened) => opened,
        Err(error) => return Ok(Step::Done(error.code as i32)),
    };
    let text = match opened.document.node(node as usize).map(|node| opened.value(node)) {
        Some(Found::Short(node)) => node.slice(),
        Some(Found::Long(scalar)) => scalar.text(),
        Some(Found::Unread(place)) => return Ok(Step::Read(place)),
        None => Bytes::new(),
    };
    copy_out(view, &text, out)
}

fn length(bytes: usize) -> i32 {
    i32::try_from(bytes).unwrap_or(i32::MAX)
}
