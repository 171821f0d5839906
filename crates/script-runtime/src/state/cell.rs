//! A cell: a durable value, the change sets since, and the resulting tree.
//!
//! The texts of a value and of its changes are sent to the store and to workers, so they are retained. The
//! tree is built on the first write, to validate change sets and to produce the next text. When the changes
//! become larger than the value, a new text replaces both; its cost is amortised over the bytes of the
//! changes.
//!
//! Cells are under their group's lock, so work on them has to be short. Long work is done on a [`CellDraft`]
//! or on a [`CellHistory`], outside of the lock, and its result is put back in a short step.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;

use super::changes::{self, CellEdits, ChangeSet, ChangeSetError};
use super::tree::{self, EditUndo, SizeChange, StateValue, WorkAllowance};
use super::workers::{PrecedingFrame, ShipmentRoom};

/// The minimum weight of changes for a compaction.
const MIN_COMPACTION_WEIGHT: usize = 4 << 10;
/// The weight of a change besides its text.
const CHANGE_OVERHEAD: usize = 128;
/// The maximum length of texts that are worked on under the group's lock. A byte of a change set, or of a
/// value of many small parts, takes up to 50 ns.
pub(crate) const MAX_LOCKED_TEXT: usize = 16 << 10;
/// The number of changes that are added to a history at once.
const CHANGES_PER_PAGE: usize = 4096;
/// The number of changes that are removed one by one: the others stay in place.
const MAX_SINGLE_REMOVALS: usize = 64;

/// The number of compactions outside of a lock so far.
static COMPACTIONS: AtomicU64 = AtomicU64::new(0);

#[derive(Debug)]
pub(crate) struct StateCell {
    /// The number by which workers refer to the cell.
    pub(crate) id: u32,
    /// The durable value at `version`; `None` if it has none.
    value: Option<Bytes>,
    version: u64,
    /// Boxed, so that few bytes move when their number grows.
    changes: VecDeque<Box<CellChange>>,
    /// The weights of the durable and of the pending changes.
    weight: usize,
    pending_weight: usize,
    /// The weight of changes that became durable since the last compaction in the store.
    weight_since_compaction: usize,
    /// The length of its text with all changes applied. After changes of another gateway it is an upper bound
    /// until the tree is built.
    bytes: usize,
    /// The value with all changes applied, if it has been built.
    tree: Option<Option<StateValue>>,
    /// Whether the tree is in a draft.
    has_draft: bool,
    /// The number of the compaction in progress.
    compaction_number: Option<u64>,
    /// Whether the cell is in the store, or will be.
    pub(crate) exists: bool,
    /// Its version in the store, and the version after all submitted commits.
    pub(crate) stored_version: u64,
    pub(crate) submitted_version: u64,
}

#[derive(Debug)]
struct CellChange {
    version: u64,
    text: Bytes,
    /// The new value, if the change only sets the whole value.
    replacement: Option<Bytes>,
    is_durable: bool,
    /// The undo steps, as long as the change is not durable.
    undos: Vec<EditUndo>,
    size_change: SizeChange,
}

impl CellChange {
    fn weight(&self) -> usize {
        self.text.len() + CHANGE_OVERHEAD
    }
}

/// The operation of the store for a change set.
#[derive(Debug)]
pub(crate) enum CellWrite {
    Create(Bytes),
    Replace(Bytes),
    Append(Bytes),
}

/// A change set that was applied to a tree.
#[derive(Debug)]
pub(crate) struct AppliedChanges {
    text: Bytes,
    replacement: Option<Bytes>,
    undos: Vec<EditUndo>,
    size_change: SizeChange,
    write: CellWrite,
}

impl AppliedChanges {
    fn new(
        root: &mut Option<StateValue>,
        part: &CellEdits,
        exists: bool,
        effort: &mut WorkAllowance,
    ) -> Result<Self, ChangeSetError> {
        let undos = ChangeSet::parse(&part.text)?.apply_with_allowance(root, effort)?;
        let write = match (&part.replacement, exists) {
            (Some(whole), false) => CellWrite::Create(whole.clone()),
            (Some(whole), true) => CellWrite::Replace(whole.clone()),
            (None, false) => CellWrite::Create(serialize_tree(root.as_ref())),
            (None, true) => CellWrite::Append(part.text.clone()),
        };
        let size_change = undos.iter().map(EditUndo::size_change).sum();
        Ok(Self { text: part.text.clone(), replacement: part.replacement.clone(), undos, size_change, write })
    }
}

/// The tree of a cell, taken out of it to apply a long change set outside of the group's lock. Meanwhile no
/// other change set is applied, since there is one writer at a time.
#[derive(Debug)]
pub(crate) struct CellDraft {
    tree: Option<Option<StateValue>>,
    /// The value and the changes, if the tree has to be built.
    value: Option<Bytes>,
    changes: Vec<Bytes>,
    bytes: usize,
    exists: bool,
}

impl CellDraft {
    /// The length of its text.
    pub(crate) fn text_length(&self) -> usize {
        self.bytes
    }

    /// Applies a change, which takes long.
    pub(crate) fn apply(&mut self, part: &CellEdits) -> Result<AppliedChanges, ChangeSetError> {
        let root = match self.tree.take() {
            Some(root) => root,
            None => {
                let root = changes::build_tree(self.value.as_ref(), self.changes.iter())?;
                self.bytes = root.as_ref().map_or(0, StateValue::text_size);
                root
            }
        };
        let root = self.tree.insert(root);
        let applied =
            AppliedChanges::new(root, part, self.exists, &mut WorkAllowance::new(WorkAllowance::UNLIMITED))?;
        self.bytes = applied.size_change.apply(self.bytes);
        Ok(applied)
    }

    /// Undoes the last change.
    pub(crate) fn undo(&mut self, applied: AppliedChanges) {
        self.bytes = applied.size_change.revert(self.bytes);
        if let Some(root) = &mut self.tree {
            tree::undo_edits(root, applied.undos);
        }
    }
}

/// The value and the durable changes of a cell, for a compaction outside of the group's lock.
#[derive(Debug)]
pub(crate) struct CellHistory {
    number: u64,
    value: Option<Bytes>,
    changes: Vec<Bytes>,
    weight: usize,
    version: u64,
    stored_version: u64,
}

/// The result of a compaction outside of the group's lock.
#[derive(Debug)]
pub(crate) struct CompactionResult {
    pub(crate) text: Bytes,
    /// The version of the text in the store.
    pub(crate) stored: u64,
    version: u64,
    /// The number of the changes that it includes, and their weight.
    changes: usize,
    weight: usize,
}

impl CellHistory {
    /// The number of the compaction.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Applies all changes to the value, which takes long.
    pub(crate) fn compact(self) -> Result<CompactionResult, ChangeSetError> {
        let Self { value, changes, weight, version, stored_version: stored, .. } = self;
        let root = changes::build_tree(value.as_ref(), changes.iter())?;
        Ok(CompactionResult {
            text: serialize_tree(root.as_ref()),
            stored,
            version,
            changes: changes.len(),
            weight,
        })
    }
}

/// The result of a check whether the changes of a cell outweigh its value.
#[derive(Debug)]
pub(crate) enum CompactionCheck {
    /// There is nothing more to do.
    Done,
    /// The store should get this text, at this version.
    Store(u64, Bytes),
    /// The compaction takes long: it continues with [`StateCell::start_history`]. Whether the store should
    /// get the text.
    Long(bool),
}

/// Data that is no longer needed. Dropping it may take long, so that is not done under the group's lock.
#[derive(Default)]
pub(crate) struct DiscardedData(Vec<Box<dyn Send>>);

impl DiscardedData {
    /// Adds data whose size corresponds to this length of text. Small data is dropped at once.
    pub(crate) fn add(&mut self, bytes: usize, data: impl Send + 'static) {
        if bytes > MAX_LOCKED_TEXT {
            self.0.push(Box::new(data));
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// A log from the store, with its changes applied to its snapshot.
#[derive(Debug)]
pub(crate) struct FoldedLog {
    pub(crate) version: u64,
    /// The value, and its tree if that was built.
    snapshot: Option<(Option<Bytes>, Option<Option<StateValue>>)>,
    /// The changes, if there is no snapshot.
    changes: Vec<Bytes>,
}

impl FoldedLog {
    /// The length of the texts that have to be parsed.
    pub(crate) fn parse_work(log: &store::KeyLog) -> usize {
        let snapshot = log.snapshot.as_ref().filter(|_| !log.changes.is_empty());
        let changes = || log.changes.iter().map(|(_, text)| text.len() + CHANGE_OVERHEAD).sum::<usize>();
        snapshot.map_or(0, |(_, value)| value.len() + changes())
    }

    pub(crate) fn from_log(log: store::KeyLog) -> Result<Self, ChangeSetError> {
        let version = log.version;
        let changes: Vec<Bytes> = log.changes.into_iter().map(|(_, text)| text).collect();
        let Some((_, value)) = log.snapshot else { return Ok(Self { version, snapshot: None, changes }) };
        let value = Some(value).filter(|value| !value.is_empty());
        if changes.is_empty() {
            return Ok(Self { version, snapshot: Some((value, None)), changes });
        }
        let root = changes::build_tree(value.as_ref(), changes.iter())?;
        let value = root.as_ref().map(|root| serialize_tree(Some(root)));
        Ok(Self { version, snapshot: Some((value, Some(root))), changes: Vec::new() })
    }
}

impl StateCell {
    /// Returns a cell that is not in the store.
    pub(crate) fn new_missing(id: u32, version: u64) -> Self {
        let changes = VecDeque::new();
        Self {
            id,
            value: None,
            version,
            changes,
            weight: 0,
            pending_weight: 0,
            weight_since_compaction: 0,
            bytes: 0,
            tree: None,
            has_draft: false,
            compaction_number: None,
            exists: false,
            stored_version: 0,
            submitted_version: 0,
        }
    }

    /// Returns a cell from the store.
    pub(crate) fn from_log(id: u32, version: u64, log: FoldedLog) -> Self {
        let mut cell = Self::new_missing(id, version);
        cell.apply_foreign(version, log, &mut DiscardedData::default());
        cell
    }

    /// Applies the changes of another gateway, as of `version`. There must be no pending changes of this
    /// gateway.
    pub(crate) fn apply_foreign(&mut self, version: u64, log: FoldedLog, waste: &mut DiscardedData) {
        waste.add(self.bytes, self.tree.take());
        (self.has_draft, self.compaction_number) = (false, None);
        if let Some((value, tree)) = log.snapshot {
            (self.value, self.tree, self.version) = (value, tree, version);
            waste.add(self.weight, std::mem::take(&mut self.changes));
            self.bytes = self.value_length();
        } else {
            for text in log.changes {
                self.bytes += text.len();
                self.changes.push_back(Box::new(CellChange {
                    version,
                    text,
                    replacement: None,
                    is_durable: true,
                    undos: Vec::new(),
                    size_change: SizeChange::default(),
                }));
            }
        }
        self.weight = self.changes.iter().map(|change| change.weight()).sum();
        (self.exists, self.stored_version, self.submitted_version) = (true, log.version, log.version);
    }

    /// Applies a change, which is not durable yet.
    pub(crate) fn apply_change(
        &mut self,
        part: &CellEdits,
        version: u64,
        effort: &mut WorkAllowance,
    ) -> Result<CellWrite, ChangeSetError> {
        let exists = self.exists;
        let applied = AppliedChanges::new(self.tree_mut(effort)?, part, exists, effort)?;
        self.bytes = applied.size_change.apply(self.bytes);
        Ok(self.push_applied(applied, version))
    }

    /// Adds a change that was applied to the tree.
    pub(crate) fn push_applied(&mut self, applied: AppliedChanges, version: u64) -> CellWrite {
        let AppliedChanges { text, replacement: whole, undos, size_change, write } = applied;
        self.exists = true;
        let change = CellChange { version, text, replacement: whole, is_durable: false, undos, size_change };
        self.pending_weight += change.weight();
        self.changes.push_back(Box::new(change));
        write
    }

    /// Takes the tree out of the cell, until [`StateCell::restore_draft`].
    pub(crate) fn take_draft(&mut self) -> CellDraft {
        self.has_draft = true;
        let tree = self.tree.take();
        let (value, changes) = match &tree {
            Some(_) => (None, Vec::new()),
            None => (self.value.clone(), self.changes.iter().map(|change| change.text.clone()).collect()),
        };
        CellDraft { tree, value, changes, bytes: self.bytes, exists: self.exists }
    }

    /// Whether the tree is in a draft that can be put back.
    pub(crate) fn has_draft(&self) -> bool {
        self.has_draft
    }

    /// Puts a draft back, unless the cell has been changed by others meanwhile.
    pub(crate) fn restore_draft(&mut self, draft: Option<CellDraft>, waste: &mut DiscardedData) {
        let was_out = std::mem::take(&mut self.has_draft);
        match draft {
            Some(draft) if was_out => {
                self.bytes = draft.bytes;
                self.tree = draft.tree;
            }
            draft => waste.add(draft.as_ref().map_or(0, CellDraft::text_length), draft),
        }
    }

    /// Rolls back all changes after `version`.
    pub(crate) fn roll_back_to(&mut self, version: u64) {
        while let Some(change) = self.changes.pop_back_if(|change| change.version > version) {
            self.pending_weight -= change.weight();
            self.bytes = change.size_change.revert(self.bytes);
            if let Some(root) = &mut self.tree {
                tree::undo_edits(root, change.undos);
            }
        }
        self.exists = self.stored_version > 0 || !self.changes.is_empty();
    }

    /// Rolls back all changes that are not durable.
    pub(crate) fn roll_back_pending(&mut self) {
        self.has_draft = false;
        self.roll_back_to(
            self.changes.iter().rfind(|change| change.is_durable).map_or(self.version, |last| last.version),
        );
        (self.exists, self.submitted_version) = (self.stored_version > 0, self.stored_version);
    }

    /// Marks the change of a version as durable.
    pub(crate) fn mark_durable(&mut self, version: u64, stored: u64, waste: &mut DiscardedData) {
        if self.submitted_version < stored {
            self.submitted_version = stored;
        }
        self.stored_version = stored;
        let place = self.changes.partition_point(|change| change.version < version);
        let Some(change) = self.changes.get_mut(place).filter(|change| change.version == version) else {
            return;
        };
        change.is_durable = true;
        waste.add(change.size_change.removed(), std::mem::take(&mut change.undos));
        self.pending_weight -= change.weight();
        self.weight += change.weight();
        self.weight_since_compaction += change.weight();
        if let Some(whole) = change.replacement.take() {
            (self.value, self.version) = (Some(whole), version);
            self.compaction_number = None;
            self.remove_changes(place + 1, self.weight, waste);
        }
    }

    /// Removes the first changes, which have this weight.
    fn remove_changes(&mut self, count: usize, weight: usize, waste: &mut DiscardedData) {
        if count <= MAX_SINGLE_REMOVALS {
            self.changes.drain(..count.min(self.changes.len()));
        } else if count <= self.changes.len() {
            let changes = self.changes.split_off(count);
            waste.add(weight, std::mem::replace(&mut self.changes, changes));
        }
        self.weight = self.weight.saturating_sub(weight);
    }

    /// The length of its text with all changes applied, durable or not.
    pub(crate) fn text_length(&self) -> usize {
        self.bytes
    }

    fn value_length(&self) -> usize {
        self.value.as_ref().map_or(0, Bytes::len)
    }

    /// The length of all its texts.
    fn total_text_length(&self) -> usize {
        self.value_length() + self.weight + self.pending_weight
    }

    /// Replaces the value and its durable changes by a single text, if the changes outweigh the value.
    /// `is_requested`: the store has requested a text, and repeats its request until it gets one.
    pub(crate) fn check_compaction(&mut self, is_requested: bool) -> Result<CompactionCheck, ChangeSetError> {
        // Compaction of a short cell rolls back pending changes and applies them again.
        let least = self.value_length().max(MIN_COMPACTION_WEIGHT).max(self.pending_weight);
        let for_store = is_requested && self.weight_since_compaction >= least;
        if !for_store && self.weight <= least || self.compaction_number.is_some() {
            return Ok(CompactionCheck::Done);
        }
        if for_store {
            self.weight_since_compaction = 0;
        }
        if self.has_draft || self.total_text_length() > MAX_LOCKED_TEXT {
            self.compaction_number = Some(COMPACTIONS.fetch_add(1, Ordering::Relaxed));
            return Ok(CompactionCheck::Long(for_store));
        }
        self.compact_in_place()?;
        Ok(match for_store {
            true => CompactionCheck::Store(self.stored_version, self.value.clone().unwrap_or_default()),
            false => CompactionCheck::Done,
        })
    }

    /// Replaces the value and its durable changes by a single text, which the tree yields.
    fn compact_in_place(&mut self) -> Result<(), ChangeSetError> {
        let rest = self.changes.iter().position(|change| !change.is_durable).unwrap_or(self.changes.len());
        if rest > 0 {
            self.tree_mut(&mut WorkAllowance::new(WorkAllowance::UNLIMITED))?;
            let mut root = self.tree.take().flatten();
            for change in self.changes.iter_mut().skip(rest).rev() {
                tree::undo_edits(&mut root, std::mem::take(&mut change.undos));
            }
            self.value = root.as_ref().map(|root| serialize_tree(Some(root)));
            self.version = self.changes.get(rest - 1).map_or(self.version, |last| last.version);
            self.changes.drain(..rest);
            self.weight = 0;
            for change in &mut self.changes {
                change.undos = ChangeSet::parse(&change.text)?.apply(&mut root)?;
            }
            self.tree = Some(root);
        }
        Ok(())
    }

    /// Begins the history of the compaction in progress.
    pub(crate) fn start_history(&self) -> Option<CellHistory> {
        Some(CellHistory {
            number: self.compaction_number?,
            value: self.value.clone(),
            changes: Vec::new(),
            weight: 0,
            version: self.version,
            stored_version: self.stored_version,
        })
    }

    /// Adds the next durable changes to a history. Returns whether it is complete; `None` if it is obsolete.
    pub(crate) fn extend_history(&self, history: &mut CellHistory) -> Option<bool> {
        if self.compaction_number != Some(history.number) {
            return None;
        }
        let before = history.changes.len();
        let durable = self.changes.iter().skip(before).take_while(|change| change.is_durable);
        for change in durable.take(CHANGES_PER_PAGE) {
            history.changes.push(change.text.clone());
            history.weight += change.weight();
            history.version = change.version;
        }
        history.stored_version = self.stored_version;
        Some(history.changes.len() < before + CHANGES_PER_PAGE)
    }

    /// Ends the compaction of this number: its result, if there is one, replaces the value and the durable
    /// changes. Returns it if it does.
    pub(crate) fn end_compaction(
        &mut self,
        number: u64,
        compacted: Option<CompactionResult>,
        waste: &mut DiscardedData,
    ) -> Option<CompactionResult> {
        if self.compaction_number != Some(number) {
            return None;
        }
        self.compaction_number = None;
        let compacted = compacted?;
        self.value = Some(compacted.text.clone()).filter(|text| !text.is_empty());
        self.version = compacted.version;
        self.remove_changes(compacted.changes, compacted.weight, waste);
        Some(compacted)
    }

    fn tree_mut(&mut self, effort: &mut WorkAllowance) -> Result<&mut Option<StateValue>, ChangeSetError> {
        let root = match self.tree.take() {
            Some(root) => root,
            None => {
                effort.spend(self.total_text_length()).map_err(|misfit| ChangeSetError::Misfit(0, misfit))?;
                let root =
                    changes::build_tree(self.value.as_ref(), self.changes.iter().map(|change| &change.text))?;
                self.bytes = root.as_ref().map_or(0, StateValue::text_size);
                root
            }
        };
        Ok(self.tree.insert(root))
    }

    /// Adds the frames that update a worker's copy towards `version`, as far as the shipment allows. Returns
    /// the resulting version of the copy.
    pub(crate) fn collect_frames(
        &self,
        has: Option<u64>,
        version: u64,
        shipment: &mut ShipmentRoom,
        frames: &mut Vec<PrecedingFrame>,
    ) -> u64 {
        let cell = self.id;
        let mut now = match has {
            Some(has) if has >= self.version => has,
            _ => {
                frames.push(match &self.value {
                    Some(value) => {
                        PrecedingFrame::FullValue { cell, version: self.version, value: value.clone() }
                    }
                    None => PrecedingFrame::Unset { cell, version: self.version },
                });
                self.version
            }
        };
        let first = self.changes.partition_point(|change| change.version <= now);
        let lacks = self.changes.range(first..).take_while(|change| change.version <= version);
        // Durable changes are sent in one frame; the others one by one, since a reader may need a version
        // between them.
        let mut durable = Vec::new();
        for change in lacks {
            // Changes of another gateway have the same version, and belong together.
            if change.version > now && !shipment.try_take(&change.text) {
                break;
            }
            if change.is_durable {
                durable.push(change.text.clone());
            } else {
                let changes = std::mem::take(&mut durable);
                if !changes.is_empty() {
                    frames.push(PrecedingFrame::Changes { cell, version: now, changes });
                }
                frames.push(PrecedingFrame::Changes {
                    cell,
                    version: change.version,
                    changes: vec![change.text.clone()],
                });
            }
            now = change.version;
        }
        if !durable.is_empty() {
            frames.push(PrecedingFrame::Changes { cell, version: now, changes: durable });
        }
        now
    }
}

/// Returns the stored form: an empty text represents a missing value.
fn serialize_tree(root: Option<&StateValue>) -> Bytes {
    let mut text = Vec::new();
    if let Some(root) = root {
        root.write_json(&mut text);
    }
    text.into()
}
