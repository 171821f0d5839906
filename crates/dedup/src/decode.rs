//! The plain text of a deduplicated one. What is hostile is refused before anything is written: the length and the
//! depth of the result are known first.

use bytes::Bytes;
use json::{DEPTH, Document, Kind, Node, Number};

use crate::number::{Cut, DOLLAR, Span, is_dollars};
use crate::write::{Fill, write};

/// Why a deduplicated text is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// It is not JSON.
    #[error("not JSON: {0}")]
    NotJson(#[from] json::Error),
    /// It is no deduplicated text.
    #[error(
        "byte {0}: this is no deduplicated text: an object is expected whose first member is the table, `t`"
    )]
    NotDeduplicated(usize),
    /// A reference leads to no entry that stands before it.
    #[error("byte {0}: this refers to no entry of the table that stands before it")]
    Reference(usize),
    /// Nobody wants so much.
    #[error("the plain text would be longer than {0} bytes")]
    TooLong(usize),
    /// The result would be nested too deeply.
    #[error("byte {0}: with what this refers to, the text is nested more than {DEPTH} levels deep")]
    TooDeep(usize),
}

impl Error {
    /// A word for it that does not change.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::NotJson(_) => "not-json",
            Self::NotDeduplicated(_) => "not-deduplicated",
            Self::Reference(_) => "dedup-reference",
            Self::TooLong(_) => "dedup-too-long",
            Self::TooDeep(_) => "dedup-too-deep",
        }
    }
}

/// The plain text of a deduplicated one of either form, of at most `cap` bytes.
///
/// # Errors
/// When it is no deduplicated text, or what it means is too long or too deep.
pub fn decode(text: &[u8], cap: usize) -> Result<Vec<u8>, Error> {
    let document = Document::new(Bytes::copy_from_slice(text))?;
    let root = document.root();
    let mut members = root.members();
    let table = members.next().filter(|(name, value)| name.is(b"t") && value.kind() == Kind::Array);
    let (_, table) = table.ok_or(Error::NotDeduplicated(root.start()))?;
    let mut reading = Reading { entries: Vec::new(), cuts: Vec::new() };
    for entry in table.items() {
        let entry = reading.entry(Whole::Value(entry))?;
        reading.entries.push(entry);
    }
    let whole = match members.next() {
        None => return if cap < 2 { Err(Error::TooLong(cap)) } else { Ok(b"{}".to_vec()) },
        Some((name, value)) if name.is(b"r") => Whole::Value(value),
        Some((name, _)) => Whole::Behind(root, name.node().start()),
    };
    let whole = reading.entry(whole)?;
    if whole.plain > cap as u64 {
        return Err(Error::TooLong(cap));
    }
    let mut plain = Vec::with_capacity(whole.plain as usize);
    write(&mut plain, document.text(), &reading.cuts, &whole.span, |number| match number {
        OPEN => Fill::Text("{"),
        number => match reading.entries.get(number as usize) {
            Some(entry) => Fill::Span(&entry.span),
            None => Fill::Text(""),
        },
    });
    Ok(plain)
}

/// In place of a number: the brace of an object whose table is left out.
const OPEN: u32 = DOLLAR - 1;

/// What is read.
#[derive(Clone, Copy)]
enum Whole<'a> {
    Value(Node<'a>),
    /// An object, of which only the members from this place on count.
    Behind(Node<'a>, usize),
}

/// An entry of the table.
struct Entry {
    span: Span,
    /// The length of its plain text.
    plain: u64,
    /// How deep it is nested, with what it refers to.
    depth: usize,
}

struct Reading {
    entries: Vec<Entry>,
    cuts: Vec<Cut>,
}

impl Reading {
    fn entry(&mut self, whole: Whole<'_>) -> Result<Entry, Error> {
        let cuts = self.cuts.len();
        let (node, depth) = match whole {
            Whole::Value(node) => (node, self.value(node, 1)?),
            Whole::Behind(root, place) => {
                let cut = Cut { start: root.start() as u32, end: place as u32, number: OPEN };
                self.cuts.push(cut);
                let mut depth = 1;
                for (_, value) in root.members().skip(1) {
                    depth = depth.max(self.value(value, 2)?);
                }
                (root, depth)
            }
        };
        let (start, end) = (node.start(), node.start() + node.text().len());
        let span = Span { start: start as u32, end: end as u32, cuts: cuts as u32..self.cuts.len() as u32 };
        let plain =
            self.cuts.get(cuts..).unwrap_or_default().iter().fold((end - start) as u64, |plain, cut| {
                let fill = match cut.number {
                    OPEN => 1,
                    number => self.entries.get(number as usize).map_or(0, |entry| entry.plain),
                };
                (plain - u64::from(cut.end - cut.start)).saturating_add(fill)
            });
        Ok(Entry { span, plain, depth })
    }

    /// Notes the cuts of a value that stands so deep; how deep it goes. No text is nested so deeply that this
    /// recursion could hurt.
    fn value(&mut self, node: Node<'_>, level: usize) -> Result<usize, Error> {
        let mut deepest = level;
        match node.kind() {
            Kind::Array => {
                for item in node.items() {
                    deepest = deepest.max(self.value(item, level + 1)?);
                }
            }
            Kind::Object => {
                let mut members = node.members();
                let first = members.next().filter(|(name, _)| is_dollars(name.node().text()));
                if let (Some((name, value)), None) = (first, members.next()) {
                    if name.is(b"$") {
                        return self.reference(node, value, level);
                    }
                    let place = name.node().start() as u32 + 1;
                    // However it is spelt.
                    let spelt =
                        if name.node().text().starts_with(b"\"$") { 1 } else { "\\u0024".len() as u32 };
                    self.cuts.push(Cut { start: place, end: place + spelt, number: DOLLAR });
                }
                for (_, value) in node.members() {
                    deepest = deepest.max(self.value(value, level + 1)?);
                }
            }
            _ => return Ok(level - 1),
        }
        Ok(deepest)
    }

    fn reference(&mut self, node: Node<'_>, index: Node<'_>, level: usize) -> Result<usize, Error> {
        let wrong = Error::Reference(node.start());
        let Some(Number::Unsigned(index)) = index.number() else { return Err(wrong) };
        let index = usize::try_from(index).map_err(|_| wrong.clone())?;
        let entry = self.entries.get(index).ok_or(wrong)?;
        let depth = level + entry.depth - 1;
        if depth > DEPTH {
            return Err(Error::TooDeep(node.start()));
        }
        let (start, end) = (node.start() as u32, (node.start() + node.text().len()) as u32);
        self.cuts.push(Cut { start, end, number: index as u32 });
        Ok(depth)
    }
}
