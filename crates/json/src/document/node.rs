//! Values in a document: their kinds, contents and texts.

use std::borrow::Cow;

use bytes::Bytes;

use super::ambiguity::{self, AmbiguousValue};
use super::index::{self, IndexTokens, IndexedContainer};
use super::{JsonDocument, walk};
use crate::error::JsonError;
use crate::pointer;
use crate::string::{self, unescape};

/// The kind of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueKind {
    /// `null`
    Null,
    /// `true` or `false`
    Bool(bool),
    /// A number; see [`JsonNode::number`].
    Number,
    /// A string; see [`JsonNode::string`].
    String,
    /// An array.
    Array,
    /// An object.
    Object,
}

impl ValueKind {
    /// The name of the kind, for messages.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "a boolean",
            Self::Number => "a number",
            Self::String => "a string",
            Self::Array => "an array",
            Self::Object => "an object",
        }
    }
}

/// A number. For [`Self::Big`], only its text has the exact value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum JsonNumber {
    /// A nonnegative integer.
    Unsigned(u64),
    /// A negative integer.
    Negative(i64),
    /// A number with a fraction or an exponent, or `-0`.
    Real(f64),
    /// An integer of more than 64 bits, or a number beyond the range of doubles.
    Big,
}

/// The location of a value in its document, with its index entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId {
    start: u32,
    container_index: u32,
}

/// A value in a document. It is cheap to copy, and only borrows the document.
#[derive(Clone, Copy, Debug)]
pub struct JsonNode<'a> {
    document: &'a JsonDocument,
    start: usize,
    /// The index entry of the first container that begins here or later.
    container_index: usize,
}

impl<'a> JsonNode<'a> {
    /// Creates the node for the value at `start`; `place` is the index entry of the first container from
    /// there on.
    #[inline]
    pub(crate) fn new(document: &'a JsonDocument, start: usize, container_index: usize) -> Self {
        Self { document, start, container_index }
    }

    /// Returns the value at a spot, if the spot is within the text.
    #[inline]
    pub(crate) fn from_id(document: &'a JsonDocument, node_id: NodeId) -> Option<Self> {
        let (start, place) = (node_id.start as usize, node_id.container_index as usize);
        (start < document.text.len()).then_some(Self { document, start, container_index: place })
    }

    /// Returns the kind of the value.
    #[must_use]
    #[inline]
    pub fn kind(self) -> ValueKind {
        match self.document.text.get(self.start) {
            Some(b'{') => ValueKind::Object,
            Some(b'[') => ValueKind::Array,
            Some(b'"') => ValueKind::String,
            Some(b't') => ValueKind::Bool(true),
            Some(b'f') => ValueKind::Bool(false),
            Some(b'n') => ValueKind::Null,
            _ => ValueKind::Number,
        }
    }

    /// Returns the position of its text in the document's text; the inverse is [`JsonDocument::node_at`].
    #[must_use]
    pub fn start(self) -> usize {
        self.start
    }

    /// Returns its location in the document; the inverse is [`JsonDocument::node_by_id`], which needs no
    /// lookup.
    #[must_use]
    #[inline]
    pub fn node_id(self) -> NodeId {
        // Texts have less than 4 GiB, and the number of containers is smaller than that of bytes.
        NodeId { start: self.start as u32, container_index: self.container_index as u32 }
    }

    /// Returns its original text.
    #[must_use]
    #[inline]
    pub fn text(self) -> &'a [u8] {
        let text = &self.document.text[..];
        text.get(self.start..self.end()).unwrap_or_default()
    }

    /// Returns its text as a slice that shares the document's memory.
    #[must_use]
    pub fn slice(self) -> Bytes {
        let len = self.text().len();
        self.document.text.slice(self.start..self.start + len)
    }

    /// Whether its text is longer than `bytes`. For a scalar, the length includes the whitespace up to the
    /// next token. A container that is not in the index is short.
    #[must_use]
    pub fn is_longer_than(self, bytes: usize) -> bool {
        self.extent().len() > bytes
    }

    /// Returns the text from its beginning to the next token, sharing the document's memory. For a scalar
    /// this includes trailing whitespace, so that its end need not be searched.
    #[must_use]
    pub fn slice_with_whitespace(self) -> Bytes {
        self.document.text.slice(self.extent())
    }

    fn extent(self) -> std::ops::Range<usize> {
        let end = match self.kind() {
            ValueKind::Array | ValueKind::Object => {
                self.index_entry().map_or(self.start, |own| own.end as usize)
            }
            _ => {
                let mut tokens = self.document.tokens_from(self.start);
                tokens.advance();
                tokens.peek()
            }
        };
        self.start..end.max(self.start)
    }

    /// Returns the number of items or members; 0 for scalars.
    #[must_use]
    pub fn count(self) -> usize {
        match self.kind() {
            ValueKind::Array => {
                self.index_entry().map_or_else(|| self.items().count(), |own| own.count as usize)
            }
            ValueKind::Object => {
                self.index_entry().map_or_else(|| self.members().count(), |own| own.count as usize)
            }
            _ => 0,
        }
    }

    /// Returns its index entry, if it is a container in the index.
    #[inline]
    fn index_entry(self) -> Option<&'a IndexedContainer> {
        let container = self.document.containers.get(self.container_index)?;
        (container.start as usize == self.start).then_some(container)
    }

    /// Returns the position after its text.
    fn end(self) -> usize {
        let text = &self.document.text[..];
        match text.get(self.start) {
            Some(b'{' | b'[') => match self.index_entry() {
                Some(container) => container.end as usize,
                None => walk::skip_container(text, self.start),
            },
            Some(b'"') => walk::skip_string(text, self.start),
            _ => walk::skip_scalar(text, self.start),
        }
    }

    /// Returns the items of an array, in order; empty for other values.
    #[must_use]
    #[inline]
    pub fn items(self) -> ArrayItems<'a> {
        ArrayItems(ChildCursor::new(self, ValueKind::Array))
    }

    /// Returns this item and the following items of the array that contains it.
    #[must_use]
    #[inline]
    pub fn with_following_items(self) -> ArrayItems<'a> {
        let Self { document, start, container_index: place } = self;
        ArrayItems(ChildCursor {
            document,
            tokens: Some(document.tokens_from(start)),
            container_index: place,
        })
    }

    /// Returns the members of an object in their original order, including those with duplicate names; empty
    /// for other values.
    #[must_use]
    #[inline]
    pub fn members(self) -> ObjectMembers<'a> {
        ObjectMembers(ChildCursor::new(self, ValueKind::Object))
    }

    /// Returns the member `name` of an object. Of duplicate names it is the first, as in JSON Pointer.
    #[must_use]
    pub fn member(self, name: &[u8]) -> Option<Self> {
        let mut children = ChildCursor::new(self, ValueKind::Object);
        loop {
            let (key, start) = children.next_key()?;
            if key.equals(name) {
                return Some(Self::new(self.document, start, children.container_index));
            }
            children.next_value(start);
        }
    }

    /// Returns the member `name` of an object. Of duplicate names it is the last, as in JavaScript.
    #[must_use]
    pub fn last_member(self, name: &[u8]) -> Option<Self> {
        self.members().filter(|(key, _)| key.equals(name)).last().map(|(_, value)| value)
    }

    /// Returns the item of an array with this index.
    #[must_use]
    pub fn item(self, index: usize) -> Option<Self> {
        self.items().nth(index)
    }

    /// Returns the value that a JSON Pointer (RFC 6901) selects, starting here.
    ///
    /// # Errors
    /// If the text is not a pointer.
    pub fn pointer(self, pointer: &str) -> Result<Option<Self>, JsonError> {
        if pointer.is_empty() {
            return Ok(Some(self));
        }
        let mut json_node = Some(self);
        for step in pointer.strip_prefix('/').ok_or(JsonError::NotPointer)?.split('/') {
            let step = pointer::parse_step(step)?;
            json_node = json_node.and_then(|node| match node.kind() {
                ValueKind::Array => node.item(pointer::parse_index(&step)?),
                _ => node.member(step.as_bytes()),
            });
        }
        Ok(json_node)
    }

    /// Returns the content of a string in UTF-8, or `None` for other values. An unpaired surrogate is
    /// replaced by U+FFFD.
    #[must_use]
    pub fn string(self) -> Option<Cow<'a, [u8]>> {
        (self.kind() == ValueKind::String).then(|| unescape(strip_quotes(self.text())))
    }

    /// Returns a scalar as plain text: the content of a string, or the text of a number or boolean; `None`
    /// for other values.
    #[must_use]
    pub fn scalar_text(self) -> Option<Cow<'a, str>> {
        let bytes = match self.kind() {
            ValueKind::String => self.string()?,
            ValueKind::Bool(_) | ValueKind::Number => Cow::Borrowed(self.text()),
            ValueKind::Null | ValueKind::Array | ValueKind::Object => return None,
        };
        Some(match bytes {
            Cow::Borrowed(bytes) => String::from_utf8_lossy(bytes),
            Cow::Owned(bytes) => Cow::Owned(String::from_utf8_lossy(&bytes).into_owned()),
        })
    }

    /// Whether it is a string with an unpaired surrogate, which only its original text represents exactly.
    #[must_use]
    pub fn has_unpaired_surrogate(self) -> bool {
        self.kind() == ValueKind::String && string::has_unpaired_surrogate(strip_quotes(self.text()))
    }

    /// Checks in linear time that all parsers interpret the value, and everything in it, in the same way.
    ///
    /// # Errors
    /// If an object has duplicate names, after resolving escapes, or if a string or name has an unpaired
    /// surrogate.
    pub fn check_unambiguous(self) -> Result<(), AmbiguousValue> {
        ambiguity::check_ambiguity(self)
    }

    /// Returns the value of a number, or `None` for other values.
    #[must_use]
    pub fn number(self) -> Option<JsonNumber> {
        if self.kind() != ValueKind::Number {
            return None;
        }
        if let Some(number) = self.parse_short_integer() {
            return Some(JsonNumber::Unsigned(number));
        }
        let text = std::str::from_utf8(self.text()).ok()?;
        let whole = !text.contains(['.', 'e', 'E']) && text != "-0";
        if let (true, Ok(number)) = (whole, text.parse()) {
            return Some(JsonNumber::Unsigned(number));
        }
        if let (true, Ok(number)) = (whole, text.parse()) {
            return Some(JsonNumber::Negative(number));
        }
        let real = text.parse::<f64>().ok()?;
        Some(if whole || real.is_infinite() { JsonNumber::Big } else { JsonNumber::Real(real) })
    }

    /// A fast path for nonnegative integers of few digits, which most numbers are.
    fn parse_short_integer(self) -> Option<u64> {
        const MAX_DIGITS: usize = 18;
        let text = self.document.text.get(self.start..)?;
        let mut number = 0;
        for byte in text.iter().take(MAX_DIGITS) {
            match byte {
                b'0'..=b'9' => number = number * 10 + u64::from(byte - b'0'),
                b',' | b'}' | b']' | b' ' | b'\t' | b'\n' | b'\r' => return Some(number),
                _ => return None,
            }
        }
        None
    }
}

/// The text between the quotes.
fn strip_quotes(text: &[u8]) -> &[u8] {
    text.get(1..text.len().saturating_sub(1)).unwrap_or_default()
}

/// The name of a member.
#[derive(Clone, Copy, Debug)]
pub struct MemberName<'a> {
    node: JsonNode<'a>,
    /// The position of the colon after it, which follows its closing quote.
    colon: usize,
}

impl<'a> MemberName<'a> {
    /// Whether it equals this name.
    #[must_use]
    #[inline(always)]
    pub fn equals(self, name: &[u8]) -> bool {
        let raw = self.node.document.text.get(self.node.start + 1..self.colon).unwrap_or_default();
        if raw.len() <= name.len() {
            return false;
        }
        let same = raw.iter().zip(name).take_while(|(raw, name)| raw == name && **raw != b'\\').count();
        match raw.get(same) {
            // The name is followed by its closing quote.
            Some(b'"') => same == name.len(),
            Some(b'\\') => string::content_equals(&raw[same..], &name[same..]),
            _ => false,
        }
    }

    /// Returns the name as a string value.
    #[must_use]
    pub fn node(self) -> JsonNode<'a> {
        self.node
    }
}

/// The expected text of a member's name, with its quotes and the following colon, for a fast comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyPattern {
    text: Box<[u8]>,
    /// Its first bytes, and a mask of the bytes that belong to the text.
    head: u128,
    mask: u128,
}

/// The number of bytes of a [`KeyPattern`] that are compared together.
const HEAD_LENGTH: usize = size_of::<u128>();

impl KeyPattern {
    /// Creates the spelling for this text: `"name":`.
    #[must_use]
    pub fn new(text: &[u8]) -> Self {
        let (mut head, mut mask) = ([0; HEAD_LENGTH], [0; HEAD_LENGTH]);
        for ((head, mask), byte) in head.iter_mut().zip(&mut mask).zip(text) {
            (*head, *mask) = (*byte, u8::MAX);
        }
        Self { text: text.into(), head: u128::from_ne_bytes(head), mask: u128::from_ne_bytes(mask) }
    }

    /// Returns the text.
    #[must_use]
    #[inline]
    pub fn text(&self) -> &[u8] {
        &self.text
    }

    /// Whether a text begins with it.
    #[inline(always)]
    fn is_prefix_of(&self, text: &[u8]) -> bool {
        let Some(head) = text.first_chunk::<HEAD_LENGTH>() else { return text.starts_with(&self.text) };
        u128::from_ne_bytes(*head) & self.mask == self.head
            && (self.text.len() <= HEAD_LENGTH || text.starts_with(&self.text))
    }
}

/// A cursor over the children of a container.
#[derive(Clone, Debug)]
struct ChildCursor<'a> {
    document: &'a JsonDocument,
    /// At the token of a child, or after the last one.
    tokens: Option<IndexTokens<'a>>,
    container_index: usize,
}

impl<'a> ChildCursor<'a> {
    #[inline]
    fn new(node: JsonNode<'a>, kind: ValueKind) -> Self {
        let JsonNode { document, start, container_index: place } = node;
        let tokens = (node.kind() == kind).then(|| document.tokens_from(start + 1));
        Self { document, tokens, container_index: place + usize::from(node.index_entry().is_some()) }
    }

    /// Returns the next token, unless the container ends with it.
    #[inline(always)]
    fn next_token(&mut self) -> Option<usize> {
        match self.tokens.as_mut()?.next() {
            (Some(b'}' | b']') | None, _) => {
                self.tokens = None;
                None
            }
            (Some(_), at) => Some(at),
        }
    }

    /// Returns the name of the next member, and the position of its value.
    #[inline(always)]
    fn next_key(&mut self) -> Option<(MemberName<'a>, usize)> {
        let name = self.next_token()?;
        let node = JsonNode::new(self.document, name, self.container_index);
        let tokens = self.tokens.as_mut()?;
        let (colon, start) = (tokens.advance(), tokens.advance());
        Some((MemberName { node, colon }, start))
    }

    /// Returns the value that begins at `start`, and advances past it and its comma.
    #[inline(always)]
    fn next_value(&mut self, start: usize) -> JsonNode<'a> {
        let node = JsonNode::new(self.document, start, self.container_index);
        if matches!(node.kind(), ValueKind::Array | ValueKind::Object) {
            self.skip_container(node);
        }
        self.next_token();
        node
    }

    /// Like [`Self::next_value`], but also returns the end of the value, which is the next token except for
    /// whitespace.
    #[inline(always)]
    fn next_value_with_end(&mut self, start: usize) -> (JsonNode<'a>, usize) {
        let node = JsonNode::new(self.document, start, self.container_index);
        if matches!(node.kind(), ValueKind::Array | ValueKind::Object) {
            self.skip_container(node);
        }
        let text = &self.document.text[..];
        let (byte, end) = self.tokens.as_mut().map_or((None, text.len()), IndexTokens::next);
        if !matches!(byte, Some(b',')) {
            self.tokens = None;
        }
        (node, if self.document.has_whitespace { self.trimmed_end(start, end) } else { end })
    }

    /// Returns the end of the value that begins at `start`, before the whitespace that ends at `end`.
    #[cold]
    fn trimmed_end(&self, start: usize, end: usize) -> usize {
        let text = self.document.text.get(start..end).unwrap_or_default();
        start + text.trim_ascii_end().len()
    }

    /// Returns the spot of the next child, or `None` after the last one.
    fn next_node_id(&self) -> Option<NodeId> {
        let start = self.tokens.map(|mut tokens| tokens.peek())?;
        Some(JsonNode::new(self.document, start, self.container_index).node_id())
    }

    #[inline(always)]
    fn skip_container(&mut self, node: JsonNode<'a>) {
        if let Some(container) = node.index_entry() {
            self.tokens = Some(self.document.tokens_from(container.end as usize));
            self.container_index = container.next as usize;
            return;
        }
        let mut depth = 1_usize;
        while let Some(tokens) = self.tokens.as_mut().filter(|_| depth > 0) {
            match tokens.next().0 {
                Some(b'{' | b'[') => depth += 1,
                Some(b'}' | b']') => depth -= 1,
                Some(_) => {}
                None => self.tokens = None,
            }
        }
    }
}

impl<'a> ObjectMembers<'a> {
    /// Returns the members of an object, beginning with the one whose name is at this spot, as returned by
    /// [`ObjectMembers::next_node_id`].
    pub(crate) fn from_id(document: &'a JsonDocument, node_id: NodeId) -> Self {
        let tokens = Some(document.tokens_from(node_id.start as usize));
        Self(ChildCursor { document, tokens, container_index: node_id.container_index as usize })
    }

    /// Returns the spot of the next member, so that an iteration may continue there later, or `None` after
    /// the last one.
    #[must_use]
    pub fn next_node_id(&self) -> Option<NodeId> {
        self.0.next_node_id()
    }

    /// Returns the next member if its name and the following colon have exactly this text. Otherwise it
    /// remains the next.
    #[must_use]
    #[inline(always)]
    pub fn next_matching(&mut self, name: &KeyPattern) -> Option<PassedValue<'a>> {
        let tokens = self.0.tokens.as_mut()?;
        let start = tokens.peek();
        if !name.is_prefix_of(self.0.document.text.get(start..)?) {
            return None;
        }
        let (_name, _colon, value) = (tokens.advance(), tokens.advance(), tokens.advance());
        let (document, place) = (self.0.document, self.0.container_index);
        let (_value, end) = self.0.next_value_with_end(value);
        Some(PassedValue { document, start, value, container_index: place, end })
    }

    /// Whether the next member's name and the following colon have exactly this text.
    #[must_use]
    #[inline(always)]
    pub fn next_matches(&self, name: &KeyPattern) -> bool {
        let start = self.0.tokens.map(|mut tokens| tokens.peek());
        start.and_then(|start| self.0.document.text.get(start..)).is_some_and(|text| name.is_prefix_of(text))
    }
}

/// A value that an iteration has passed. Its kind is determined from its parts, since creating a [`JsonNode`]
/// takes longer.
#[derive(Clone, Copy, Debug)]
pub struct PassedValue<'a> {
    document: &'a JsonDocument,
    /// The beginning, including the name if it is a member.
    pub start: usize,
    /// The beginning of the value.
    pub value: usize,
    container_index: usize,
    /// The end of the value.
    pub end: usize,
}

impl<'a> PassedValue<'a> {
    /// Returns the value.
    #[must_use]
    #[inline]
    pub fn node(&self) -> JsonNode<'a> {
        JsonNode::new(self.document, self.value, self.container_index)
    }

    /// Returns the first byte of the value, which indicates its kind.
    #[must_use]
    #[inline(always)]
    pub fn first_byte(&self) -> u8 {
        self.document.text.get(self.value).copied().unwrap_or_default()
    }

    /// Whether the value is a nonnegative integer of at most eight digits. This fast check covers most
    /// numbers, but may return `false` for one at the very end of a text.
    #[must_use]
    #[inline(always)]
    pub fn is_short_integer(&self) -> bool {
        let text = self.document.text.get(self.value..).unwrap_or_default();
        let Some(word) = text.first_chunk::<8>() else { return false };
        let length = self.end.wrapping_sub(self.value);
        (1..=8).contains(&length) && length <= index::leading_digits(*word)
    }
}

/// The items of an array.
#[derive(Clone, Debug)]
pub struct ArrayItems<'a>(ChildCursor<'a>);

impl<'a> ArrayItems<'a> {
    /// Returns the spot of the next item, so that an iteration may continue there later with
    /// [`JsonNode::with_following_items`], or `None` after the last one.
    #[must_use]
    pub fn next_node_id(&self) -> Option<NodeId> {
        self.0.next_node_id()
    }

    /// Returns the next item with its positions.
    #[must_use]
    #[inline(always)]
    pub fn next_with_positions(&mut self) -> Option<PassedValue<'a>> {
        let start = self.0.next_token()?;
        let (document, place) = (self.0.document, self.0.container_index);
        let (_item, end) = self.0.next_value_with_end(start);
        Some(PassedValue { document, start, value: start, container_index: place, end })
    }
}

impl<'a> Iterator for ArrayItems<'a> {
    type Item = JsonNode<'a>;

    #[inline]
    fn next(&mut self) -> Option<JsonNode<'a>> {
        let start = self.0.next_token()?;
        Some(self.0.next_value(start))
    }
}

/// The members of an object.
#[derive(Clone, Debug)]
pub struct ObjectMembers<'a>(ChildCursor<'a>);

impl<'a> Iterator for ObjectMembers<'a> {
    type Item = (MemberName<'a>, JsonNode<'a>);

    #[inline]
    fn next(&mut self) -> Option<(MemberName<'a>, JsonNode<'a>)> {
        let (key, start) = self.0.next_key()?;
        Some((key, self.0.next_value(start)))
    }
}
