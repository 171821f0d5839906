//! JSON values in the form that programs read: a record of four words, and the text of strings and big
//! numbers.

use std::borrow::Cow;

use bytes::Bytes;
use json::{JsonDocument, JsonNode, JsonNumber, ValueKind};
use query_abi::{JSON_VALUE_BYTES, JsonKind};

use super::documents::{FoundValue, ScalarPlace};
use super::steps::PartOutcome;

/// A value's record, with its text if it has one.
#[derive(Debug)]
struct ValueRecord<T> {
    kind: JsonKind,
    /// The number of children of a container. Not used for texts, which have their own length.
    len: u32,
    /// The last two words of the record. The first one is a text's address, which is set when the text is
    /// written.
    rest: [u32; 2],
    text: Option<T>,
}

impl<'a> ValueRecord<Cow<'a, [u8]>> {
    /// Creates the record of a value at this position in its document.
    fn of(node: JsonNode<'a>, place: u32) -> Self {
        let plain = |kind, len, rest| Self { kind, len, rest, text: None };
        let whole = |kind, number: u64| plain(kind, 0, [number as u32, (number >> 32) as u32]);
        let text = |kind, text| Self { kind, len: 0, rest: [0, place], text: Some(text) };
        match node.kind() {
            ValueKind::Null => plain(JsonKind::Null, 0, [0, place]),
            ValueKind::Bool(false) => plain(JsonKind::False, 0, [0, place]),
            ValueKind::Bool(true) => plain(JsonKind::True, 0, [0, place]),
            ValueKind::Number => match node.number() {
                Some(JsonNumber::Unsigned(number)) => whole(JsonKind::Unsigned, number),
                Some(JsonNumber::Negative(number)) => whole(JsonKind::Negative, number.cast_unsigned()),
                Some(JsonNumber::Real(number)) => whole(JsonKind::Real, number.to_bits()),
                Some(JsonNumber::Big) | None => text(JsonKind::Big, Cow::Borrowed(node.text())),
            },
            ValueKind::String => {
                let kind = if node.has_unpaired_surrogate() { JsonKind::Unpaired } else { JsonKind::String };
                text(kind, node.string().unwrap_or_default())
            }
            ValueKind::Array => plain(JsonKind::Array, word(node.count()), [word(node.text().len()), place]),
            ValueKind::Object => {
                plain(JsonKind::Object, word(node.count()), [word(node.text().len()), place])
            }
        }
    }
}

/// A scalar that was read in the pool.
#[derive(Debug)]
pub(super) struct LongScalar {
    /// The JSON text of the scalar, including trailing white space.
    spelt: Bytes,
    /// The length of the text without the white space.
    len: usize,
    record: ValueRecord<Bytes>,
}

impl LongScalar {
    /// Reads a scalar, possibly followed by white space, from this position in its document.
    pub(super) fn read(spelt: Bytes, place: usize) -> Self {
        // The document has been validated as a whole. A program may point to a colon or a comma, which is not
        // a value.
        let document = JsonDocument::from_checked(spelt.clone()).ok();
        let root = document.as_ref().map(JsonDocument::root);
        let record = root.map(|root| ValueRecord::of(root, word(place)));
        let record = record.map(|ValueRecord { kind, len, rest, text }| {
            let text = text.map(|text| match text {
                Cow::Borrowed(text) => spelt.slice_ref(text),
                Cow::Owned(text) => text.into(),
            });
            ValueRecord { kind, len, rest, text }
        });
        let none = || ValueRecord { kind: JsonKind::Big, len: 0, rest: [0, word(place)], text: None };
        let len = root.map_or(0, |root| root.text().len());
        Self { len, record: record.unwrap_or_else(none), spelt }
    }

    /// Returns the maximum number of bytes used during reading and afterwards: the tokens, and the decoded
    /// text.
    pub(super) fn bytes_of(spelt: &Bytes) -> usize {
        2 * spelt.len()
    }

    /// Returns the bytes that count towards the run's memory.
    pub(super) fn bytes(&self) -> usize {
        Self::bytes_of(&self.spelt)
    }

    /// Returns the scalar's JSON text.
    pub(super) fn text(&self) -> Bytes {
        self.spelt.slice(..self.len.min(self.spelt.len()))
    }
}

/// Guest memory for values. The range has been checked.
pub(super) struct OutputRange<'a> {
    bytes: &'a mut [u8],
    /// The address of the next text, and the end of the space for texts.
    pub(super) text: u32,
    end: u32,
    /// The content of strings with escapes, in bytes.
    escaped: usize,
}

/// The result of writing a value.
pub(super) enum WriteOutcome {
    Whole,
    /// There is not enough space for the text, which has this size in bytes.
    Short(usize),
    /// The scalar has to be read first.
    Unread(ScalarPlace),
    /// The text still has to be copied to this address, where space is reserved for it.
    Text(Bytes, u32),
}

impl WriteOutcome {
    /// Returns the next step of a call that writes a single value.
    pub(super) fn last<R>(self, result: R) -> PartOutcome<R> {
        match self {
            Self::Whole | Self::Short(_) => PartOutcome::Done(result),
            Self::Unread(place) => PartOutcome::Read(place),
            Self::Text(bytes, to) => PartOutcome::Copy { bytes, to, then: Some(result) },
        }
    }
}

impl<'a> OutputRange<'a> {
    pub(super) fn new(bytes: &'a mut [u8], text: u32, end: u32) -> Self {
        Self { bytes, text, end, escaped: 0 }
    }

    /// Returns the bytes of strings with escapes since the last call.
    pub(super) fn take_escaped(&mut self) -> usize {
        std::mem::take(&mut self.escaped)
    }

    /// Writes a value at `at`, and its text if there is enough space.
    pub(super) fn write(&mut self, at: u32, found: FoundValue<'_>) -> WriteOutcome {
        match found {
            FoundValue::Short(node) => self.node(at, node),
            FoundValue::Long(LongScalar { record, .. }) => match &record.text {
                None => self.plain(at, record),
                Some(text) => match self.reserve(at, record, text.len()) {
                    Some(to) => WriteOutcome::Text(text.clone(), to),
                    None => WriteOutcome::Short(text.len() + 1),
                },
            },
            FoundValue::Unread(place) => WriteOutcome::Unread(place),
        }
    }

    /// Writes the record of a missing value.
    pub(super) fn missing(&mut self, at: u32) {
        self.record(at, JsonKind::Missing, 0, [0, 0]);
    }

    /// Writes the record of a missing document, with the position of the error in its text.
    pub(super) fn no_document(&mut self, at: u32, place: u32) {
        self.record(at, JsonKind::Null, 0, [0, place]);
    }

    fn node(&mut self, at: u32, node: JsonNode<'_>) -> WriteOutcome {
        let record = ValueRecord::of(node, word(node.start()));
        let Some(text) = &record.text else { return self.plain(at, &record) };
        if let Cow::Owned(text) = text {
            self.escaped += text.len();
        }
        let Some(to) = self.reserve(at, &record, text.len()) else {
            return WriteOutcome::Short(text.len() + 1);
        };
        self.bytes[to as usize..][..text.len()].copy_from_slice(text);
        WriteOutcome::Whole
    }

    fn plain<T>(&mut self, at: u32, record: &ValueRecord<T>) -> WriteOutcome {
        self.record(at, record.kind, record.len, record.rest);
        WriteOutcome::Whole
    }

    /// Writes the record and the terminating NUL of a text. Returns the text's address, or `None` if it does
    /// not fit.
    fn reserve<T>(&mut self, at: u32, record: &ValueRecord<T>, len: usize) -> Option<u32> {
        let to = self.text;
        let fits = len < (self.end - to) as usize;
        self.record(at, record.kind, word(len), [if fits { to } else { 0 }, record.rest[1]]);
        if !fits {
            return None;
        }
        self.bytes[to as usize + len] = 0;
        self.text += word(len + 1);
        Some(to)
    }

    fn record(&mut self, at: u32, kind: JsonKind, len: u32, rest: [u32; 2]) {
        let words = [kind as u32, len, rest[0], rest[1]];
        let out = &mut self.bytes[at as usize..][..JSON_VALUE_BYTES as usize];
        out.as_chunks_mut::<4>().0.iter_mut().zip(words).for_each(|(out, word)| *out = word.to_le_bytes());
    }
}

/// Converts a position or length in a document, which is smaller than 4 GiB.
pub(super) fn word(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
