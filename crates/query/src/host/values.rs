//! JSON values in the form that programs read: a record of four words, and the text of strings and big
//! numbers.

use std::borrow::Cow;

use bytes::Bytes;
use json::{JsonDocument, JsonNode, JsonNumber, ValueKind};
use query_abi::{JSON_VALUE_BYTES, JsonKind};

use super::documents::{DocumentValue, ScalarPlace};
use super::steps::PartOutcome;

/// A value's record, with its text if it has one.
#[derive(Debug)]
struct ValueRecord<T> {
    kind: JsonKind,
    /// The number of children of a container. Not used for texts, which have their own length.
    len: u32,
    /// The last two words of the record. The first one is a text's address, which is set when the text is
    /// written.
    payload: [u32; 2],
    text: Option<T>,
}

impl<'a> ValueRecord<Cow<'a, [u8]>> {
    /// Creates the record of a value at this position in its document.
    fn from_node(node: JsonNode<'a>, place: u32) -> Self {
        let plain = |kind, len, rest| Self { kind, len, payload: rest, text: None };
        let whole = |kind, number: u64| plain(kind, 0, [number as u32, (number >> 32) as u32]);
        let text = |kind, text| Self { kind, len: 0, payload: [0, place], text: Some(text) };
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
            ValueKind::Array => {
                plain(JsonKind::Array, to_word(node.count()), [to_word(node.text().len()), place])
            }
            ValueKind::Object => {
                plain(JsonKind::Object, to_word(node.count()), [to_word(node.text().len()), place])
            }
        }
    }
}

/// A scalar that was read in the pool.
#[derive(Debug)]
pub(super) struct LongScalar {
    /// The JSON text of the scalar, including trailing white space.
    json_text: Bytes,
    /// The length of the text without the white space.
    len: usize,
    record: ValueRecord<Bytes>,
}

impl LongScalar {
    /// Reads a scalar, possibly followed by white space, from this position in its document.
    pub(super) fn read(json_text: Bytes, place: usize) -> Self {
        // The document has been validated as a whole. A program may point to a colon or a comma, which is not
        // a value.
        let document = JsonDocument::from_checked(json_text.clone()).ok();
        let root = document.as_ref().map(JsonDocument::root);
        let record = root.map(|root| ValueRecord::from_node(root, to_word(place)));
        let record = record.map(|ValueRecord { kind, len, payload: rest, text }| {
            let text = text.map(|text| match text {
                Cow::Borrowed(text) => json_text.slice_ref(text),
                Cow::Owned(text) => text.into(),
            });
            ValueRecord { kind, len, payload: rest, text }
        });
        let none = || ValueRecord { kind: JsonKind::Big, len: 0, payload: [0, to_word(place)], text: None };
        let len = root.map_or(0, |root| root.text().len());
        Self { len, record: record.unwrap_or_else(none), json_text }
    }

    /// Returns the maximum number of bytes used during reading and afterwards: the tokens, and the decoded
    /// text.
    pub(super) fn max_bytes(spelt: &Bytes) -> usize {
        2 * spelt.len()
    }

    /// Returns the bytes that count towards the run's memory.
    pub(super) fn held_bytes(&self) -> usize {
        Self::max_bytes(&self.json_text)
    }

    /// Returns the scalar's JSON text.
    pub(super) fn scalar_text(&self) -> Bytes {
        self.json_text.slice(..self.len.min(self.json_text.len()))
    }
}

/// Guest memory for values. The range has been checked.
pub(super) struct OutputRange<'a> {
    bytes: &'a mut [u8],
    /// The address of the next text, and the end of the space for texts.
    pub(super) text_address: u32,
    end: u32,
    /// The content of strings with escapes, in bytes.
    escaped_bytes: usize,
}

/// The result of writing a value.
pub(super) enum WriteOutcome {
    Complete,
    /// There is not enough space for the text, which has this size in bytes.
    DoesNotFit(usize),
    /// The scalar has to be read first.
    Unread(ScalarPlace),
    /// The text still has to be copied to this address, where space is reserved for it.
    Text(Bytes, u32),
}

impl WriteOutcome {
    /// Returns the next step of a call that writes a single value.
    pub(super) fn into_step<R>(self, result: R) -> PartOutcome<R> {
        match self {
            Self::Complete | Self::DoesNotFit(_) => PartOutcome::Done(result),
            Self::Unread(place) => PartOutcome::Read(place),
            Self::Text(bytes, to) => PartOutcome::Copy { bytes, address: to, result: Some(result) },
        }
    }
}

impl<'a> OutputRange<'a> {
    pub(super) fn new(bytes: &'a mut [u8], text_address: u32, end: u32) -> Self {
        Self { bytes, text_address, end, escaped_bytes: 0 }
    }

    /// Returns the bytes of strings with escapes since the last call.
    pub(super) fn take_escaped(&mut self) -> usize {
        std::mem::take(&mut self.escaped_bytes)
    }

    /// Writes a value at `at`, and its text if there is enough space.
    pub(super) fn write_value(&mut self, at: u32, found: DocumentValue<'_>) -> WriteOutcome {
        match found {
            DocumentValue::Short(node) => self.write_node(at, node),
            DocumentValue::Long(LongScalar { record, .. }) => match &record.text {
                None => self.write_plain(at, record),
                Some(text) => match self.reserve_text(at, record, text.len()) {
                    Some(to) => WriteOutcome::Text(text.clone(), to),
                    None => WriteOutcome::DoesNotFit(text.len() + 1),
                },
            },
            DocumentValue::Unread(place) => WriteOutcome::Unread(place),
        }
    }

    /// Writes the record of a missing value.
    pub(super) fn write_missing(&mut self, at: u32) {
        self.write_record(at, JsonKind::Missing, 0, [0, 0]);
    }

    /// Writes the record of a missing document, with the position of the error in its text.
    pub(super) fn write_no_document(&mut self, at: u32, place: u32) {
        self.write_record(at, JsonKind::Null, 0, [0, place]);
    }

    fn write_node(&mut self, at: u32, node: JsonNode<'_>) -> WriteOutcome {
        let record = ValueRecord::from_node(node, to_word(node.start()));
        let Some(text) = &record.text else { return self.write_plain(at, &record) };
        if let Cow::Owned(text) = text {
            self.escaped_bytes += text.len();
        }
        let Some(to) = self.reserve_text(at, &record, text.len()) else {
            return WriteOutcome::DoesNotFit(text.len() + 1);
        };
        self.bytes[to as usize..][..text.len()].copy_from_slice(text);
        WriteOutcome::Complete
    }

    fn write_plain<T>(&mut self, at: u32, record: &ValueRecord<T>) -> WriteOutcome {
        self.write_record(at, record.kind, record.len, record.payload);
        WriteOutcome::Complete
    }

    /// Writes the record and the terminating NUL of a text. Returns the text's address, or `None` if it does
    /// not fit.
    fn reserve_text<T>(&mut self, at: u32, record: &ValueRecord<T>, len: usize) -> Option<u32> {
        let to = self.text_address;
        let fits = len < (self.end - to) as usize;
        self.write_record(at, record.kind, to_word(len), [if fits { to } else { 0 }, record.payload[1]]);
        if !fits {
            return None;
        }
        self.bytes[to as usize + len] = 0;
        self.text_address += to_word(len + 1);
        Some(to)
    }

    fn write_record(&mut self, at: u32, kind: JsonKind, len: u32, rest: [u32; 2]) {
        let words = [kind as u32, len, rest[0], rest[1]];
        let out = &mut self.bytes[at as usize..][..JSON_VALUE_BYTES as usize];
        out.as_chunks_mut::<4>().0.iter_mut().zip(words).for_each(|(out, word)| *out = word.to_le_bytes());
    }
}

/// Converts a position or length in a document, which is smaller than 4 GiB.
pub(super) fn to_word(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
