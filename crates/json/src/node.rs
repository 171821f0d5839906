//! A value in its document: what it is, what is in it, its text.

use std::borrow::Cow;

use bytes::Bytes;

use crate::string::{self, unescape};
use crate::{Document, Error, walk};

/// What a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `null`
    Null,
    /// `true` or `false`
    Bool(bool),
    /// A number; [`Node::number`] reads it.
    Number,
    /// A string; [`Node::string`] reads it.
    String,
    /// An array.
    Array,
    /// An object.
    Object,
}

/// A number. One that is neither is only what its text says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    /// A whole number from 0 on.
    Unsigned(u64),
    /// A whole number below 0.
    Negative(i64),
    /// A number with a fraction or an exponent, or `-0`.
    Real(f64),
    /// A whole number of more than 64 bits, or one beyond the doubles.
    Big,
}

/// A value of a document. Copying it costs nothing, and it borrows the document alone.
#[derive(Clone, Copy, Debug)]
pub struct Node<'a> {
    document: &'a Document,
    start: usize,
    end: usize,
    /// The first container in the index that begins here or behind.
    place: usize,
}

impl<'a> Node<'a> {
    /// The value that begins at `start`, of a document whose containers from there on begin at `place`.
    #[inline]
    pub(crate) fn new(document: &'a Document, start: usize, place: usize) -> Self {
        let text = &document.text[..];
        let start = start.min(text.len());
        let end = match text.get(start) {
            Some(b'{' | b'[') => match document.containers.get(place) {
                Some(container) if container.start as usize == start => container.end as usize,
                _ => walk::container(text, start),
            },
            Some(b'"') => walk::string(text, start).0,
            _ => walk::scalar(text, start),
        };
        Self { document, start, end, place }
    }

    /// What it is.
    #[must_use]
    #[inline]
    pub fn kind(self) -> Kind {
        match self.document.text.get(self.start) {
            Some(b'{') => Kind::Object,
            Some(b'[') => Kind::Array,
            Some(b'"') => Kind::String,
            Some(b't') => Kind::Bool(true),
            Some(b'f') => Kind::Bool(false),
            Some(b'n') => Kind::Null,
            _ => Kind::Number,
        }
    }

    /// Where its text begins in the document's; [`Document::node`] leads back.
    #[must_use]
    pub fn start(self) -> usize {
        self.start
    }

    /// Its text, as it was spelt.
    #[must_use]
    #[inline]
    pub fn text(self) -> &'a [u8] {
        &self.document.text[self.start..self.end]
    }

    /// Its text, sharing the document's memory.
    #[must_use]
    pub fn slice(self) -> Bytes {
        self.document.text.slice(self.start..self.end)
    }

    /// How many items or members it has; 0 where it is no container.
    #[must_use]
    pub fn count(self) -> usize {
        match self.kind() {
            Kind::Array => self.own().map_or_else(|| self.items().count(), |count| count as usize),
            Kind::Object => self.own().map_or_else(|| self.members().count(), |count| count as usize),
            _ => 0,
        }
    }

    /// The count of a container that is in the index.
    fn own(self) -> Option<u32> {
        let container = self.document.containers.get(self.place)?;
        (container.start as usize == self.start).then_some(container.count)
    }

    /// The items of an array, in order; of everything else none.
    #[must_use]
    #[inline]
    pub fn items(self) -> Items<'a> {
        Items(Children::new(self, Kind::Array))
    }

    /// The members of an object as they are spelt, those of equal names too; of everything else none.
    #[must_use]
    #[inline]
    pub fn members(self) -> Members<'a> {
        Members(Children::new(self, Kind::Object))
    }

    /// The member `name` of an object; of equal names the first, as JSON Pointers have it.
    #[must_use]
    pub fn member(self, name: &str) -> Option<Self> {
        self.members().find(|(key, _)| key.is(name)).map(|(_, value)| value)
    }

    /// The member `name` of an object; of equal names the last, as JavaScript has it.
    #[must_use]
    pub fn last_member(self, name: &str) -> Option<Self> {
        self.members().filter(|(key, _)| key.is(name)).last().map(|(_, value)| value)
    }

    /// The item number `index` of an array.
    #[must_use]
    pub fn item(self, index: usize) -> Option<Self> {
        self.items().nth(index)
    }

    /// The value that a JSON Pointer (RFC 6901) leads to from here.
    ///
    /// # Errors
    /// When it is no pointer.
    pub fn pointer(self, pointer: &str) -> Result<Option<Self>, Error> {
        if pointer.is_empty() {
            return Ok(Some(self));
        }
        let mut found = Some(self);
        for step in pointer.strip_prefix('/').ok_or(Error::NotPointer)?.split('/') {
            let step = string::pointer_step(step)?;
            found = found.and_then(|node| match node.kind() {
                Kind::Array => node.item(string::pointer_index(&step)?),
                _ => node.member(&step),
            });
        }
        Ok(found)
    }

    /// What a string says; `None` where it is none. An unpaired surrogate, which is no character, is
    /// replaced by U+FFFD.
    #[must_use]
    pub fn string(self) -> Option<Cow<'a, str>> {
        (self.kind() == Kind::String).then(|| unescape(inside(self.text())))
    }

    /// Whether it is a string with an unpaired surrogate: only its spelling says all of it.
    #[must_use]
    pub fn is_unpaired(self) -> bool {
        self.kind() == Kind::String && string::is_unpaired(inside(self.text()))
    }

    /// What a number says; `None` where it is none.
    #[must_use]
    pub fn number(self) -> Option<Number> {
        if self.kind() != Kind::Number {
            return None;
        }
        let text = std::str::from_utf8(self.text()).ok()?;
        let whole = !text.contains(['.', 'e', 'E']) && text != "-0";
        if let (true, Ok(number)) = (whole, text.parse()) {
            return Some(Number::Unsigned(number));
        }
        if let (true, Ok(number)) = (whole, text.parse()) {
            return Some(Number::Negative(number));
        }
        let real = text.parse::<f64>().ok()?;
        Some(if whole || real.is_infinite() { Number::Big } else { Number::Real(real) })
    }
}

/// What stands between the quotes.
fn inside(text: &[u8]) -> &[u8] {
    text.get(1..text.len().saturating_sub(1)).unwrap_or_default()
}

/// The name of a member.
#[derive(Clone, Copy, Debug)]
pub struct Key<'a> {
    raw: &'a [u8],
    escaped: bool,
}

impl<'a> Key<'a> {
    /// Whether it is this name.
    #[must_use]
    #[inline]
    pub fn is(self, name: &str) -> bool {
        if self.escaped { unescape(self.raw) == name } else { self.raw == name.as_bytes() }
    }

    /// The name.
    #[must_use]
    pub fn name(self) -> Cow<'a, str> {
        unescape(self.raw)
    }

    /// Whether it has an unpaired surrogate.
    #[must_use]
    pub fn is_unpaired(self) -> bool {
        self.escaped && string::is_unpaired(self.raw)
    }

    /// As it was spelt, without its quotes.
    #[must_use]
    pub fn spelt(self) -> &'a [u8] {
        self.raw
    }
}

/// Where a walk through a container is.
#[derive(Clone, Debug)]
struct Children<'a> {
    document: &'a Document,
    /// At a child or at the container's end.
    at: usize,
    end: usize,
    place: usize,
}

impl<'a> Children<'a> {
    #[inline]
    fn new(node: Node<'a>, kind: Kind) -> Self {
        let Node { document, start, end, place } = node;
        let end = if node.kind() == kind { end - 1 } else { start };
        let place = place + usize::from(node.own().is_some());
        Self { document, at: walk::space(&document.text, start + 1), end, place }
    }

    /// The value here; the walk goes on behind it.
    #[inline]
    fn value(&mut self) -> Node<'a> {
        let node = Node::new(self.document, self.at, self.place);
        if let Some(container) = self.document.containers.get(self.place)
            && container.start as usize == self.at
        {
            self.place = container.next as usize;
        }
        let comma = walk::space(&self.document.text, node.end);
        self.at = walk::space(&self.document.text, comma + 1);
        // What is no container has no bracket to end at.
        if comma >= self.end {
            self.at = self.end;
        }
        node
    }
}

/// The items of an array.
#[derive(Clone, Debug)]
pub struct Items<'a>(Children<'a>);

impl<'a> Iterator for Items<'a> {
    type Item = Node<'a>;

    #[inline]
    fn next(&mut self) -> Option<Node<'a>> {
        (self.0.at < self.0.end).then(|| self.0.value())
    }
}

/// The members of an object.
#[derive(Clone, Debug)]
pub struct Members<'a>(Children<'a>);

impl<'a> Iterator for Members<'a> {
    type Item = (Key<'a>, Node<'a>);

    #[inline]
    fn next(&mut self) -> Option<(Key<'a>, Node<'a>)> {
        let children = &mut self.0;
        if children.at >= children.end {
            return None;
        }
        let text = &children.document.text[..];
        let (end, escaped) = walk::string(text, children.at);
        let raw = text.get(children.at + 1..end - 1).unwrap_or_default();
        let colon = walk::space(text, end);
        children.at = walk::space(text, colon + 1);
        Some((Key { raw, escaped }, children.value()))
    }
}
