//! Reading the JSON of an answer in place: the text and its index stay with the host, and a program is
//! given the values that it asks for.
//!
//! A node is the place in the text where a value begins. A program may name any place: where no value
//! begins there, what it reads is nonsense from its own document, and nothing else.

use json::{Document, Kind, Node, Number};
use offload::SHORT_TEXT;
use query_abi::{Code, HOST_MODULE, JSON_VALUE_BYTES, JsonKind};
use sandbox::{Caller, GuestResult, Linker, Trapped};
use serde_json::json;

use super::calls::code;
use super::{TEXT, call};
use crate::futures::Slot;
use crate::guest::{Guest, View};
use crate::limits::Limit;
use crate::problem::QueryError;

pub(super) fn add(linker: &mut Linker<Guest>) -> GuestResult<()> {
    linker.func_wrap_async(
        HOST_MODULE,
        "Json_root",
        |mut caller: Caller<'_, Guest>, (future, value, data, len): (i32, u32, u32, u32)| {
            Box::new(async move {
                caller.data_mut().index(future).await.map_err(Trapped::new)?;
                let with = |_: &mut View<'_>| Ok(json!({ "future": future, "len": len }));
                call(&mut caller, "Json_root", with, |view| json_root(view, future, value, (data, len)))
            })
        },
    )?;
    linker.func_wrap(
        HOST_MODULE,
        "Json_member",
        |mut caller: Caller<'_, Guest>,
         future: i32,
         node: u32,
         name: u32,
         name_len: u32,
         last: i32,
         value: u32,
         data: u32,
         len: u32| {
            let with = |view: &mut View<'_>| {
                let name = view.note_text(name, name_len)?;
                Ok(json!({ "future": future, "node": node, "name": name, "last": last != 0, "len": len }))
            };
            let wanted = Wanted { node, name: (name, name_len), last: last != 0 };
            call(&mut caller, "Json_member", with, |view| {
                json_member(view, future, &wanted, value, (data, len))
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
    linker.func_wrap(
        HOST_MODULE,
        "Json_children",
        |mut caller: Caller<'_, Guest>, future: i32, node: u32, data: u32, len: u32| {
            let with = |_: &mut View<'_>| Ok(json!({ "future": future, "node": node, "len": len }));
            call(&mut caller, "Json_children", with, |view| json_children(view, future, node, (data, len)))
        },
    )?;
    linker.func_wrap(
        HOST_MODULE,
        "Json_text",
        |mut caller: Caller<'_, Guest>, future: i32, node: u32, data: u32, len: u32| {
            let with = |_: &mut View<'_>| Ok(json!({ "future": future, "node": node, "len": len }));
            call(&mut caller, "Json_text", with, |view| json_text(view, future, node, (data, len)))
        },
    )?;
    Ok(())
}

/// Values that one call of `Json_column` gives at most: a program that asks for more asks again.
const COLUMN: u32 = 1024;

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

/// The documents of a run, by the handles of the responses that they came with, or why there are none.
#[derive(Debug, Default)]
pub(crate) struct Documents(Vec<(i32, Result<Document, json::Error>)>);

impl Documents {
    /// The document of a handle. There are few, and the last one is the one that is read.
    fn get(&self, handle: i32) -> Option<&Result<Document, json::Error>> {
        self.0.iter().rev().find(|(known, _)| *known == handle).map(|(_, document)| document)
    }

    fn put(&mut self, handle: i32, document: Result<Document, json::Error>) {
        self.0.push((handle, document));
    }

    /// Lets go of a document; how many bytes its index took.
    pub(crate) fn delete(&mut self, handle: i32) -> usize {
        let place = self.0.iter().position(|(known, _)| *known == handle);
        let document = place.and_then(|place| self.0.swap_remove(place).1.ok());
        document.map_or(0, |document| document.index_bytes())
    }
}

/// Why a response has no document: the code, and the place in its body.
pub(super) struct NoDocument {
    pub(super) code: Code,
    place: usize,
}

impl From<Code> for NoDocument {
    fn from(code: Code) -> Self {
        Self { code, place: 0 }
    }
}

impl From<json::Error> for NoDocument {
    fn from(error: json::Error) -> Self {
        match error {
            json::Error::TooDeep(place) => Self { code: Code::TooDeep, place },
            json::Error::NotJson(place) => Self { code: Code::NotJson, place },
            json::Error::TooLong | json::Error::IndexTooLarge(_) | json::Error::NotPointer => {
                Code::Invalid.into()
            }
        }
    }
}

impl Guest {
    /// Makes the document of a long response before it is looked into: that is a job for the pool, and meanwhile
    /// others have the thread.
    pub(super) async fn index(&mut self, handle: i32) -> Result<(), QueryError> {
        let Some(Slot::Ended(Ok(response))) = self.futures.get(handle) else { return Ok(()) };
        if response.body.len() <= SHORT_TEXT || self.documents.get(handle).is_some() {
            return Ok(());
        }
        let (text, most) = (response.body.clone(), self.rest_memory());
        self.steps_aside();
        let bytes = text.len();
        let index = move || Document::within(text, most);
        let index = services::work_on_text(&self.offload, "json-index", &self.call, bytes, index);
        let document = index.await.map_err(|_| self.limits.exceeded(Limit::Deadline))?;
        self.keep(handle, document)
    }

    /// Keeps the document of a response.
    fn keep(&mut self, handle: i32, document: Result<Document, json::Error>) -> Result<(), QueryError> {
        match &document {
            Ok(document) => self.hold(document.index_bytes())?,
            Err(json::Error::IndexTooLarge(_)) => return Err(self.limits.exceeded(Limit::Memory)),
            Err(_) => {}
        }
        self.documents.put(handle, document);
        Ok(())
    }

    /// The document of a response, made when it is first asked for; that of a long one is there once
    /// [`Guest::index`] has made it.
    pub(super) fn document(
        &mut self,
        function: &'static str,
        handle: i32,
    ) -> GuestResult<Result<&Document, NoDocument>> {
        if self.documents.get(handle).is_none() {
            let body = match self.slot(function, handle).map_err(Trapped::new)? {
                Slot::Ended(Ok(response)) => response.body.clone(),
                Slot::Ended(Err(error)) => return Ok(Err(code(error).into())),
                _ => return Ok(Err(Code::NotReady.into())),
            };
            if body.len() > SHORT_TEXT {
                return Ok(Err(Code::NotReady.into()));
            }
            let document = Document::within(body, self.rest_memory());
            self.keep(handle, document).map_err(Trapped::new)?;
        }
        Ok(match self.documents.get(handle) {
            Some(Ok(document)) => Ok(document),
            Some(Err(error)) => Err((*error).into()),
            None => Err(Code::Invalid.into()),
        })
    }
}

/// In a run that is recorded an answer looks as if it were no array or object: then an environment reads and parses
/// it whole, as the mocks do, which have no index.
fn json_root(view: &mut View<'_>, future: i32, value: u32, (data, len): (u32, u32)) -> GuestResult<i32> {
    view.slice(data, len)?;
    view.slice(value, JSON_VALUE_BYTES)?;
    let is_taped = !view.guest.tape.is_off();
    let mut out = Out { bytes: view.bytes, text: data, end: data + len };
    let (code, place) = match view.guest.document("Json_root", future)? {
        Ok(document) if is_taped && matches!(document.root().kind(), Kind::Array | Kind::Object) => {
            (Code::Ok, 0)
        }
        Ok(document) => {
            out.node(value, document.root());
            return Ok(Code::Ok as i32);
        }
        Err(error) => (error.code, word(error.place)),
    };
    out.record(value, JsonKind::Null, 0, [0, place]);
    view.guest.tape.gives(&place.to_le_bytes(), &[]).map_err(Trapped::new)?;
    Ok(code as i32)
}

fn json_member(
    view: &mut View<'_>,
    future: i32,
    wanted: &Wanted,
    value: u32,
    (data, len): (u32, u32),
) -> GuestResult<i32> {
    let (name, name_len) = wanted.name;
    view.slice(data, len)?;
    view.slice(value, JSON_VALUE_BYTES)?;
    view.slice(name, name_len)?;
    let document = match view.guest.document("Json_member", future)? {
        Ok(document) => document,
        Err(error) => return Ok(error.code as i32),
    };
    if name_len > TEXT {
        return Ok(Code::Invalid as i32);
    }
    let name = &view.bytes[name as usize..][..name_len as usize];
    let found = document.node(wanted.node as usize).and_then(|object| wanted.of(object, name));
    let Some(found) = found else { return Ok(Code::Missing as i32) };
    Out { bytes: view.bytes, text: data, end: data + len }.node(value, found);
    Ok(Code::Ok as i32)
}

/// A program that reads one member of many items asks once for some of them: passing from one item to the next costs
/// less than a call does.
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
    let document = match view.guest.document("Json_column", future)? {
        Ok(document) => document,
        Err(error) => return Ok(error.code as i32),
    };
    if wanted.name.1 > TEXT {
        return Ok(Code::Invalid as i32);
    }
    let name = view.bytes[wanted.name.0 as usize..][..wanted.name.1 as usize].to_vec();
    let mut out = Out { bytes: view.bytes, text: data, end: data + len };
    let places = (values..values + room).step_by(JSON_VALUE_BYTES as usize);
    let items = document.node(wanted.node as usize).into_iter().flat_map(Node::and_following);
    let filled = places.zip(items).take_while(|(at, item)| match wanted.of(*item, &name) {
        Some(found) => out.node(*at, found) == 0,
        None => {
            out.record(*at, JsonKind::Missing, 0, [0, 0]);
            true
        }
    });
    Ok(length(filled.count()))
}

fn json_children(view: &mut View<'_>, future: i32, node: u32, (data, len): (u32, u32)) -> GuestResult<i32> {
    view.slice(data, len)?;
    let document = match view.guest.document("Json_children", future)? {
        Ok(document) => document,
        Err(error) => return Ok(error.code as i32),
    };
    let Some(node) = document.node(node as usize) else { return Ok(0) };
    let records = node.count() * if node.kind() == Kind::Object { 2 } else { 1 };
    let records = word(records).saturating_mul(JSON_VALUE_BYTES);
    if records > len {
        return Ok(length(records as usize + node.text().len()));
    }
    let mut out = Out { bytes: view.bytes, text: data + records, end: data + len };
    let mut places = (data..data + records).step_by(JSON_VALUE_BYTES as usize);
    let mut missing = 0;
    let mut add = |node| missing += places.next().map_or(0, |at| out.node(at, node));
    node.items().for_each(&mut add);
    for (key, value) in node.members() {
        add(key.node());
        add(value);
    }
    Ok(length((out.text - data) as usize + missing))
}

fn json_text(view: &mut View<'_>, future: i32, node: u32, (data, len): (u32, u32)) -> GuestResult<i32> {
    view.slice(data, len)?;
    let document = match view.guest.document("Json_text", future)? {
        Ok(document) => document,
        Err(error) => return Ok(error.code as i32),
    };
    let text = document.node(node as usize).map_or(&[][..], Node::text);
    let count = text.len().min(len as usize);
    view.bytes[data as usize..][..count].copy_from_slice(&text[..count]);
    Ok(length(text.len()))
}

/// Guest memory that values are written to: all of it was checked to be there.
struct Out<'a> {
    bytes: &'a mut [u8],
    /// Where the next text goes, and where the room for texts ends.
    text: u32,
    end: u32,
}

impl Out<'_> {
    /// Writes a value at `at`, and its text if there is room; else how many bytes it would take.
    fn node(&mut self, at: u32, node: Node<'_>) -> usize {
        let place = word(node.start());
        let whole = |number: u64| [number as u32, (number >> 32) as u32];
        match node.kind() {
            Kind::Null => self.record(at, JsonKind::Null, 0, [0, place]),
            Kind::Bool(false) => self.record(at, JsonKind::False, 0, [0, place]),
            Kind::Bool(true) => self.record(at, JsonKind::True, 0, [0, place]),
            Kind::Number => match node.number() {
                Some(Number::Unsigned(number)) => self.record(at, JsonKind::Unsigned, 0, whole(number)),
                Some(Number::Negative(number)) => {
                    self.record(at, JsonKind::Negative, 0, whole(number.cast_unsigned()));
                }
                Some(Number::Real(number)) => self.record(at, JsonKind::Real, 0, whole(number.to_bits())),
                Some(Number::Big) | None => return self.text(at, JsonKind::Big, node.text(), place),
            },
            Kind::String => {
                let kind = if node.is_unpaired() { JsonKind::Unpaired } else { JsonKind::String };
                return self.text(at, kind, &node.string().unwrap_or_default(), place);
            }
            Kind::Array => {
                self.record(at, JsonKind::Array, word(node.count()), [word(node.text().len()), place])
            }
            Kind::Object => {
                self.record(at, JsonKind::Object, word(node.count()), [word(node.text().len()), place]);
            }
        }
        0
    }

    fn text(&mut self, at: u32, kind: JsonKind, text: &[u8], place: u32) -> usize {
        let fits = text.len() < (self.end - self.text) as usize;
        let address = if fits { self.text } else { 0 };
        self.record(at, kind, word(text.len()), [address, place]);
        if !fits {
            return text.len() + 1;
        }
        let room = &mut self.bytes[self.text as usize..][..=text.len()];
        room[..text.len()].copy_from_slice(text);
        room[text.len()] = 0;
        self.text += word(room.len());
        0
    }

    fn record(&mut self, at: u32, kind: JsonKind, len: u32, rest: [u32; 2]) {
        let words = [kind as u32, len, rest[0], rest[1]];
        let out = &mut self.bytes[at as usize..][..JSON_VALUE_BYTES as usize];
        out.as_chunks_mut::<4>().0.iter_mut().zip(words).for_each(|(out, word)| *out = word.to_le_bytes());
    }
}

/// Places and lengths of a document fit: it has less than 4 GiB.
fn word(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

fn length(bytes: usize) -> i32 {
    i32::try_from(bytes).unwrap_or(i32::MAX)
}
