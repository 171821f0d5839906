//! Decoding of deduplicated texts. Hostile input is rejected before anything is written, because the length
//! and depth of the result are computed first.

use bytes::Bytes;
use json::{DEPTH, JsonDocument, JsonNode, JsonNumber, ValueKind};

use crate::hash_cons::is_dollars;
use crate::write::{CutReplacement, CutSpan, INSERTED_DOLLAR, TextCut, write_span};

/// The reason why a deduplicated text is rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The text is not JSON.
    #[error("not JSON: {0}")]
    NotJson(#[from] json::JsonError),
    /// The text is not in a deduplicated form.
    #[error(
        "byte {0}: this is not a deduplicated text: expected an object whose first member is the table, `t`"
    )]
    NotDeduplicated(usize),
    /// A reference points to an entry that does not precede it.
    #[error("byte {0}: this reference has no preceding entry in the table")]
    Reference(usize),
    /// The result would exceed the caller's limit.
    #[error("the plain text would be longer than {0} bytes")]
    TooLong(usize),
    /// The result would be nested too deeply.
    #[error("byte {0}: with the referenced entry, the text is nested more than {DEPTH} levels deep")]
    TooDeep(usize),
}

impl DecodeError {
    /// Returns the stable error code.
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

/// Decodes a text of either form. The result has at most `cap` bytes.
///
/// # Errors
/// If the text is not in a deduplicated form, or its plain text is too long or too deep.
pub fn decode(text: &[u8], cap: usize) -> Result<Vec<u8>, DecodeError> {
    let document = JsonDocument::new(Bytes::copy_from_slice(text))?;
    let root = document.root();
    let mut members = root.members();
    let table = members.next().filter(|(name, value)| name.equals(b"t") && value.kind() == ValueKind::Array);
    let (_, table) = table.ok_or(DecodeError::NotDeduplicated(root.start()))?;
    let mut reading = DecoderState { entries: Vec::new(), cuts: Vec::new() };
    for node in table.items() {
        let entry = reading.decode_entry(DecodedValue::Value(node))?;
        reading.entries.push(entry);
    }
    let decoded_value = match members.next() {
        None => return if cap < 2 { Err(DecodeError::TooLong(cap)) } else { Ok(b"{}".to_vec()) },
        Some((name, value)) if name.equals(b"r") => DecodedValue::Value(value),
        Some((name, _)) => DecodedValue::MembersFrom(root, name.node().start()),
    };
    let table_entry = reading.decode_entry(decoded_value)?;
    if table_entry.plain_length > cap as u64 {
        return Err(DecodeError::TooLong(cap));
    }
    let mut plain = Vec::with_capacity(table_entry.plain_length as usize);
    write_span(&mut plain, document.text(), &reading.cuts, &table_entry.span, |number| match number {
        OPENING_BRACE => CutReplacement::Text("{"),
        number => match reading.entries.get(number as usize) {
            Some(entry) => CutReplacement::Span(&entry.span),
            None => CutReplacement::Text(""),
        },
    });
    Ok(plain)
}

/// A special cut number: the opening brace of an object without its table.
const OPENING_BRACE: u32 = INSERTED_DOLLAR - 1;

/// A value to decode.
#[derive(Clone, Copy)]
enum DecodedValue<'a> {
    Value(JsonNode<'a>),
    /// An object of which only the members from this offset on are decoded.
    MembersFrom(JsonNode<'a>, usize),
}

/// An entry of the table.
struct TableEntry {
    span: CutSpan,
    /// The length of its plain text.
    plain_length: u64,
    /// The nesting depth including the referenced entries.
    depth: usize,
}

struct DecoderState {
    entries: Vec<TableEntry>,
    cuts: Vec<TextCut>,
}

impl DecoderState {
    fn decode_entry(&mut self, decoded_value: DecodedValue<'_>) -> Result<TableEntry, DecodeError> {
        let cuts = self.cuts.len();
        let (node, depth) = match decoded_value {
            DecodedValue::Value(node) => (node, self.decode_value(node, 1)?),
            DecodedValue::MembersFrom(root, place) => {
                let cut = TextCut { start: root.start() as u32, end: place as u32, number: OPENING_BRACE };
                self.cuts.push(cut);
                let mut depth = 1;
                for (_, value) in root.members().skip(1) {
                    depth = depth.max(self.decode_value(value, 2)?);
                }
                (root, depth)
            }
        };
        let (start, end) = (node.start(), node.start() + node.text().len());
        let span =
            CutSpan { start: start as u32, end: end as u32, cuts: cuts as u32..self.cuts.len() as u32 };
        let plain =
            self.cuts.get(cuts..).unwrap_or_default().iter().fold((end - start) as u64, |plain, cut| {
                let fill = match cut.number {
                    OPENING_BRACE => 1,
                    number => self.entries.get(number as usize).map_or(0, |entry| entry.plain_length),
                };
                (plain - u64::from(cut.end - cut.start)).saturating_add(fill)
            });
        Ok(TableEntry { span, plain_length: plain, depth })
    }

    /// Records the cuts of a value at this nesting level, and returns its depth. The nesting limit of JSON
    /// texts bounds the recursion.
    fn decode_value(&mut self, node: JsonNode<'_>, level: usize) -> Result<usize, DecodeError> {
        let mut deepest = level;
        match node.kind() {
            ValueKind::Array => {
                for item in node.items() {
                    deepest = deepest.max(self.decode_value(item, level + 1)?);
                }
            }
            ValueKind::Object => {
                let mut members = node.members();
                let first = members.next().filter(|(name, _)| is_dollars(name.node().text()));
                if let (Some((name, value)), None) = (first, members.next()) {
                    if name.equals(b"$") {
                        return self.resolve_reference(node, value, level);
                    }
                    let place = name.node().start() as u32 + 1;
                    // The dollar sign may be escaped.
                    let spelt =
                        if name.node().text().starts_with(b"\"$") { 1 } else { "\\u0024".len() as u32 };
                    self.cuts.push(TextCut { start: place, end: place + spelt, number: INSERTED_DOLLAR });
                }
                for (_, value) in node.members() {
                    deepest = deepest.max(self.decode_value(value, level + 1)?);
                }
            }
            _ => return Ok(level - 1),
        }
        Ok(deepest)
    }

    fn resolve_reference(
        &mut self,
        node: JsonNode<'_>,
        index: JsonNode<'_>,
        level: usize,
    ) -> Result<usize, DecodeError> {
        let error = DecodeError::Reference(node.start());
        let Some(JsonNumber::Unsigned(index)) = index.number() else { return Err(error) };
        let index = usize::try_from(index).map_err(|_| error.clone())?;
        let entry = self.entries.get(index).ok_or(error)?;
        let depth = level + entry.depth - 1;
        if depth > DEPTH {
            return Err(DecodeError::TooDeep(node.start()));
        }
        let (start, end) = (node.start() as u32, (node.start() + node.text().len()) as u32);
        self.cuts.push(TextCut { start, end, number: index as u32 });
        Ok(depth)
    }
}
