//! A cell: a durable value, the change sets since, and the resulting tree.
//!
//! The texts of a value and of its changes are sent to the store and to workers, so they are retained. The
//! tree is built on the first write, to validate change sets and to produce the next text. When the changes
//! become larger than the value, a new text replaces both; its cost is amortised over the bytes of the
//! changes.

use std::collections::VecDeque;

use bytes::Bytes;

use super::changes::{self, Changes, Part, Refused};
use super::tree::{self, Node, SizeChange, Undo};
use super::workers::Frame;

/// The minimum weight of changes for a compaction.
const LIGHT: usize = 4 << 10;
/// The weight of a change besides its text.
const ENTRY: usize = 128;

#[derive(Debug)]
pub(crate) struct Cell {
    /// The number by which workers refer to the cell.
    pub(crate) id: u32,
    /// The durable value at `version`; `None` if it has none.
    value: Option<Bytes>,
    version: u64,
    changes: VecDeque<Change>,
    /// The weights of the durable and of the pending changes.
    weight: usize,
    pending: usize,
    /// The weight of changes that became durable since the last compaction in the store.
    since: usize,
    /// The length of its text with all changes applied. After changes of another gateway it is an upper bound
    /// until the tree is built.
    bytes: usize,
    /// The value with all changes applied, if it has been built.
    tree: Option<Option<Node>>,
    /// Whether the cell is in the store, or will be.
    pub(crate) exists: bool,
    /// Its version in the store, and the version after all submitted commits.
    pub(crate) stored: u64,
    pub(crate) sent: u64,
}

#[derive(Debug)]
struct Change {
    version: u64,
    text: Bytes,
    /// The new value, if the change only sets the whole value.
    whole: Option<Bytes>,
    is_durable: bool,
    /// The undo steps, as long as the change is not durable.
    undos: Vec<Undo>,
    size_change: SizeChange,
}

impl Change {
    fn weight(&self) -> usize {
        self.text.len() + ENTRY
    }
}

/// The operation of the store for a change set.
#[derive(Debug)]
pub(crate) enum Write {
    Create(Bytes),
    Replace(Bytes),
    Append(Bytes),
}

impl Cell {
    /// Returns a cell that is not in the store.
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

    /// Returns a cell from the store.
    pub(crate) fn loaded(id: u32, version: u64, log: store::Log) -> Result<Self, Refused> {
        let mut cell = Self::missing(id, version);
        cell.refresh(version, log)?;
        Ok(cell)
    }

    /// Applies the changes of another gateway, as of `version`. There must be no pending changes of this
    /// gateway.
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

    /// Applies a change, which is not durable yet.
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

    /// Rolls back all changes after `version`.
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

    /// Rolls back all changes that are not durable.
    pub(crate) fn reset(&mut self) {
        self.take_back(
            self.changes.iter().rfind(|change| change.is_durable).map_or(self.version, |last| last.version),
        );
        (self.exists, self.sent) = (self.stored > 0, self.stored);
    }

    /// Marks the change of a version as durable.
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

    /// The length of its text with all changes applied, durable or not.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    fn size(&self) -> usize {
        self.value.as_ref().map_or(0, Bytes::len)
    }

    fn compact_if_it_pays(&mut self) -> Result<(), Refused> {
        // Compaction rolls back pending changes and applies them again.
        if self.weight > self.size().max(LIGHT).max(self.pending) {
            self.compact()?;
        }
        Ok(())
    }

    /// Returns a new text for the store, which has requested a compaction and repeats its request until it
    /// gets one.
    pub(crate) fn text_for_store(&mut self) -> Result<Option<(u64, Bytes)>, Refused> {
        if self.since < self.size().max(LIGHT).max(self.pending) {
            return Ok(None);
        }
        self.since = 0;
        self.compact()?;
        Ok(Some((self.stored, self.value.clone().unwrap_or_default())))
    }

    /// Replaces the value and its durable changes by a single text.
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

    /// Adds the frames that update a worker's copy to `version`. Returns the resulting version of the copy.
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
        // Durable changes are sent in one frame; the others one by one, since a reader may need a version
        // between them.
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

/// Returns the stored form: an empty text represents a missing value.
fn text(root: Option<&Node>) -> Bytes {
    let mut text = Vec::new();
    if let Some(root) = root {
        root.write(&mut text);
    }
    text.into()
}
