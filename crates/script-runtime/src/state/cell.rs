//! A cell: a value that is durable, the change sets since, and the tree that they make.
//!
//! The text of a value and of its changes is what the store and the workers get, so it is kept; the tree is made when
//! the cell is first written to, to check change sets by and to make the next text of. When the changes outweigh the
//! value, a new text takes the place of both: what that costs was paid for by as many bytes of changes.

use std::collections::VecDeque;

use bytes::Bytes;

use super::changes::{self, Changes, Part, Refused};
use super::tree::{self, Node, SizeChange, Undo};
use super::workers::Frame;

/// Changes that weigh less are never worth a new text.
const LIGHT: usize = 4 << 10;
/// What a change weighs beside its text.
const ENTRY: usize = 128;

#[derive(Debug)]
pub(crate) struct Cell {
    /// What workers know it by.
    pub(crate) id: u32,
    /// Its durable value at `version`; none where it has none.
    value: Option<Bytes>,
    version: u64,
    changes: VecDeque<Change>,
    /// What the durable ones of them weigh, and the others.
    weight: usize,
    pending: usize,
    /// What became durable since the store was sent a new text.
    since: usize,
    /// The length of its text after all changes. After changes of another gateway it is an estimate, never too small, until
    /// there is a tree.
    bytes: usize,
    /// After all changes, if somebody asked.
    tree: Option<Option<Node>>,
    /// Whether the store has it, or will.
    pub(crate) exists: bool,
    /// Its version in the store, and the one that it will have when all that was sent there is done.
    pub(crate) stored: u64,
    pub(crate) sent: u64,
}

#[derive(Debug)]
struct Change {
    version: u64,
    text: Bytes,
    /// All that it does is to set the value to this.
    whole: Option<Bytes>,
    is_durable: bool,
    /// While it is not durable.
    undos: Vec<Undo>,
    size_change: SizeChange,
}

impl Change {
    fn weight(&self) -> usize {
        self.text.len() + ENTRY
    }
}

/// What becomes of a change set in the store.
#[derive(Debug)]
pub(crate) enum Write {
    Create(Bytes),
    Replace(Bytes),
    Append(Bytes),
}

impl Cell {
    /// One that the store does not have.
    pub(crate) fn missing(id: u32, version: u64) -> Self {
        let changes = VecDeque::new();
        Self {
            id,
            value: None,
            version,
            changes,
            weight: 0,
            pending: 0,
            since: 0,
            bytes: 0,
            tree: None,
            exists: false,
            stored: 0,
            sent: 0,
        }
    }

    /// One that the store has.
    pub(crate) fn loaded(id: u32, version: u64, log: store::Log) -> Result<Self, Refused> {
        let mut cell = Self::missing(id, version);
        cell.refresh(version, log)?;
        Ok(cell)
    }

    /// What another gateway did, as of `version`. There is nothing of our own under way.
    pub(crate) fn refresh(&mut self, version: u64, log: store::Log) -> Result<(), Refused> {
        self.tree = None;
        if let Some((_, value)) = log.snapshot {
            self.value = Some(value).filter(|value| !value.is_empty());
            self.version = version;
            self.changes.clear();
            if !log.changes.is_empty() {
                let root = changes::tree(self.value.as_ref(), log.changes.iter().map(|(_, text)| text))?;
                self.value = root.as_ref().map(|root| text(Some(root)));
                self.tree = Some(root);
            }
            self.bytes = self.size();
        } else {
            for (_, text) in log.changes {
                self.bytes += text.len();
                self.changes.push_back(Change {
                    version,
                    text,
                    whole: None,
                    is_durable: true,
                    undos: Vec::new(),
                    size_change: SizeChange::default(),
                });
            }
        }
        self.weight = self.changes.iter().map(Change::weight).sum();
        (self.exists, self.stored, self.sent) = (true, log.version, log.version);
        self.compact_if_it_pays()
    }

    /// Makes a change; it is not durable yet.
    pub(crate) fn change(&mut self, part: &Part, version: u64) -> Result<Write, Refused> {
        let edits = Changes::read(&part.text)?;
        let exists = self.exists;
        let root = self.tree()?;
        let undos = edits.apply(root)?;
        let write = match (&part.whole, exists) {
            (Some(whole), false) => Write::Create(whole.clone()),
            (Some(whole), true) => Write::Replace(whole.clone()),
            (None, false) => Write::Create(text(root.as_ref())),
            (None, true) => Write::Append(part.text.clone()),
        };
        self.exists = true;
        let (text, whole) = (part.text.clone(), part.whole.clone());
        let size_change: SizeChange = undos.iter().map(Undo::size_change).sum();
        self.bytes = size_change.apply(self.bytes);
        let change = Change { version, text, whole, is_durable: false, undos, size_change };
        self.pending += change.weight();
        self.changes.push_back(change);
        Ok(write)
    }

    /// Takes changes back, those after `version`.
    pub(crate) fn take_back(&mut self, version: u64) {
        while let Some(change) = self.changes.pop_back_if(|change| change.version > version) {
            self.pending -= change.weight();
            self.bytes = change.size_change.revert(self.bytes);
            if let Some(root) = &mut self.tree {
                tree::take_back(root, change.undos);
            }
        }
        self.exists = self.stored > 0 || !self.changes.is_empty();
    }

    /// Takes back all that is not durable.
    pub(crate) fn reset(&mut self) {
        self.take_back(
            self.changes.iter().rfind(|change| change.is_durable).map_or(self.version, |last| last.version),
        );
        (self.exists, self.sent) = (self.stored > 0, self.stored);
    }

    /// The change of a version is durable.
    pub(crate) fn settle(&mut self, version: u64, stored: u64) -> Result<(), Refused> {
        if self.sent < stored {
            self.sent = stored;
        }
        self.stored = stored;
        let place = self.changes.partition_point(|change| change.version < version);
        let Some(change) = self.changes.get_mut(place).filter(|change| change.version == version) else {
            return Ok(());
        };
        change.is_durable = true;
        change.undos = Vec::new();
        self.pending -= change.weight();
        self.weight += change.weight();
        self.since += change.weight();
        if let Some(whole) = change.whole.take() {
            (self.value, self.version) = (Some(whole), version);
            self.changes.drain(..=place);
            self.weight = 0;
        }
        self.compact_if_it_pays()
    }

    /// The length of its text after all changes, durable or not.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    fn size(&self) -> usize {
        self.value.as_ref().map_or(0, Bytes::len)
    }

    fn compact_if_it_pays(&mut self) -> Result<(), Refused> {
        // What is not durable is taken back for it, and made again.
        if self.weight > self.size().max(LIGHT).max(self.pending) {
            self.compact()?;
        }
        Ok(())
    }

    /// A new text for the store, which said that one pays, and says so until it has it.
    pub(crate) fn text_for_store(&mut self) -> Result<Option<(u64, Bytes)>, Refused> {
        if self.since < self.size().max(LIGHT).max(self.pending) {
            return Ok(None);
        }
        self.since = 0;
        self.compact()?;
        Ok(Some((self.stored, self.value.clone().unwrap_or_default())))
    }

    /// Puts one text in the place of value and durable changes.
    fn compact(&mut self) -> Result<(), Refused> {
        let rest = self.changes.iter().position(|change| !change.is_durable).unwrap_or(self.changes.len());
        if rest > 0 {
            self.tree()?;
            let mut root = self.tree.take().flatten();
            for change in self.changes.iter_mut().skip(rest).rev() {
                tree::take_back(&mut root, std::mem::take(&mut change.undos));
            }
            self.value = root.as_ref().map(|root| text(Some(root)));
            self.version = self.changes.get(rest - 1).map_or(self.version, |last| last.version);
            self.changes.drain(..rest);
            self.weight = 0;
            for change in &mut self.changes {
                change.undos = Changes::read(&change.text)?.apply(&mut root)?;
            }
            self.tree = Some(root);
        }
        Ok(())
    }

    fn tree(&mut self) -> Result<&mut Option<Node>, Refused> {
        let root = match self.tree.take() {
            Some(root) => root,
            None => {
                let root =
                    changes::tree(self.value.as_ref(), self.changes.iter().map(|change| &change.text))?;
                self.bytes = root.as_ref().map_or(0, Node::size);
                root
            }
        };
        Ok(self.tree.insert(root))
    }

    /// What brings a worker from the version that it has to `version`. Gives what it has then.
    pub(crate) fn ship(&self, has: Option<u64>, version: u64, frames: &mut Vec<Frame>) -> u64 {
        let cell = self.id;
        let mut now = match has {
            Some(has) if has >= self.version => has,
            _ => {
                frames.push(match &self.value {
                    Some(value) => Frame::Whole { cell, version: self.version, value: value.clone() },
                    None => Frame::Unset { cell, version: self.version },
                });
                self.version
            }
        };
        let lacks = self.changes.iter().filter(|change| change.version > now && change.version <= version);
        let lacks: Vec<&Change> = lacks.collect();
        // Durable ones at once; a reader may ask for what lies between the others.
        let durable = lacks.iter().take_while(|change| change.is_durable).count();
        let (durable, others) = lacks.split_at(durable);
        for changes in std::iter::once(durable).chain(others.chunks(1)) {
            let Some(last) = changes.last() else { continue };
            let texts: Vec<&[u8]> = changes.iter().map(|change| &*change.text).collect();
            let changes = [b"[", &texts.join(&b","[..])[..], b"]"].concat().into();
            frames.push(Frame::Changes { cell, version: last.version, changes });
            now = last.version;
        }
        now
    }
}

/// As the store keeps it: nothing stands for no value.
fn text(root: Option<&Node>) -> Bytes {
    let mut text = Vec::new();
    if let Some(root) = root {
        root.write(&mut text);
    }
    text.into()
}
