//! A tree laid out as one text, in which what it has several times in memory stands once. So what the handler
//! knows to be the same is neither hashed nor compared again.

use std::collections::HashMap;

use bytes::Bytes;
use json::{DEPTH, Document, Tree};

use crate::number::SHORT;

/// A tree as a text without its repetitions.
#[derive(Debug, Default)]
pub(crate) struct Layout {
    pub(crate) text: Vec<u8>,
    pub(crate) shared: Shared,
}

/// What of a text stands there once and is meant several times.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    /// Where objects begin that may be meant again, in their order.
    pub(crate) firsts: Vec<u32>,
    /// Where they are, in their order, and which.
    pub(crate) again: Vec<(u32, usize)>,
}

/// Lays a tree out. `None` if it is too deep or too long. Texts are `tidied` if they have white space.
pub(crate) fn flatten(tree: &Tree, tidy: bool) -> Option<Layout> {
    let mut flattening = Flattening { layout: Layout::default(), known: HashMap::new(), tidy };
    flattening.value(tree, DEPTH)?;
    Some(flattening.layout)
}

struct Flattening {
    layout: Layout,
    /// The places of the objects that may be meant again, by their memory.
    known: HashMap<[usize; 3], usize>,
    tidy: bool,
}

impl Flattening {
    fn value(&mut self, tree: &Tree, depth: usize) -> Option<()> {
        let depth = depth.checked_sub(1)?;
        let place = self.layout.text.len();
        let memory = memory(tree);
        if let Some(first) = memory.and_then(|memory| self.known.get(&memory)) {
            self.layout.shared.again.push((u32::try_from(place).ok()?, *first));
            return Some(());
        }
        let first = self.layout.shared.firsts.len();
        if memory.is_some() {
            self.layout.shared.firsts.push(u32::try_from(place).ok()?);
        }
        self.written(tree, depth)?;
        if let Some(memory) = memory.filter(|_| self.layout.text.len() - place >= SHORT as usize) {
            self.known.insert(memory, first);
        }
        Some(())
    }

    fn written(&mut self, tree: &Tree, depth: usize) -> Option<()> {
        match tree {
            Tree::Text(text) => self.text(text)?,
            Tree::Object(members) => {
                self.layout.text.push(b'{');
                self.members(members, true, depth)?;
                self.layout.text.push(b'}');
            }
            Tree::Extended(text, members) => {
                self.text(text)?;
                self.layout.text.pop();
                let first = self.layout.text.last() == Some(&b'{');
                self.members(members, first, depth)?;
                self.layout.text.push(b'}');
            }
            Tree::Array(items) => {
                self.layout.text.push(b'[');
                for (place, item) in items.iter().enumerate() {
                    if place > 0 {
                        self.layout.text.push(b',');
                    }
                    self.value(item, depth)?;
                }
                self.layout.text.push(b']');
            }
        }
        Some(())
    }

    fn members(&mut self, members: &[json::Member], mut first: bool, depth: usize) -> Option<()> {
        for (name, value) in members {
            if !std::mem::take(&mut first) {
                self.layout.text.push(b',');
            }
            self.layout.text.extend_from_slice(name);
            self.layout.text.push(b':');
            self.value(value, depth)?;
        }
        Some(())
    }

    fn text(&mut self, text: &Bytes) -> Option<()> {
        if !self.tidy {
            self.layout.text.extend_from_slice(text);
            return Some(());
        }
        let document = Document::known(text.clone()).ok()?;
        self.layout.text.extend_from_slice(&tidied(&document));
        Some(())
    }
}

/// Where an object is in memory; `None` of all that is none.
pub(crate) fn memory(tree: &Tree) -> Option<[usize; 3]> {
    match tree {
        Tree::Text(text) if text.starts_with(b"{") => Some([text.as_ptr().addr(), text.len(), 0]),
        Tree::Object(members) => Some([members.as_ptr().addr(), members.len(), 0]),
        Tree::Extended(text, members) => Some([text.as_ptr().addr(), text.len(), members.as_ptr().addr()]),
        Tree::Text(_) | Tree::Array(_) => None,
    }
}

/// A text without the white space between its tokens.
pub(crate) fn tidied(document: &Document) -> Vec<u8> {
    let text = document.text();
    let mut tidy = Vec::with_capacity(text.len());
    let mut starts = document.tokens().map(|(_, at)| at).peekable();
    while let Some(start) = starts.next() {
        let end = starts.peek().copied().unwrap_or(text.len());
        tidy.extend_from_slice(text.get(start..end).unwrap_or_default().trim_ascii_end());
    }
    tidy
}
