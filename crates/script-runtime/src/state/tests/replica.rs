//! A worker that only applies frames, using serde_json instead of JavaScript.

use std::collections::{BTreeMap, HashMap};

use serde_json::Value;

use crate::state::{DiscardedKind, PrecedingFrame, ReadTicket, WriteTicket};

/// A worker's cells, at each version that it has received.
#[derive(Debug)]
pub(super) struct WorkerReplica {
    pub(super) worker: u32,
    cells: HashMap<u32, BTreeMap<u64, Option<Value>>>,
    pub(super) frames: usize,
}

impl WorkerReplica {
    pub(super) fn new(worker: u32) -> Self {
        Self { worker, cells: HashMap::new(), frames: 0 }
    }

    /// Returns the values that a reader sees, by slot.
    pub(super) fn read_values(&mut self, ticket: &mut ReadTicket) -> Vec<Option<Value>> {
        self.apply_frames(ticket.collect_frames(self.worker));
        while ticket.has_more_frames() {
            self.apply_frames(ticket.collect_frames(self.worker));
        }
        ticket.cells().iter().map(|cell| self.value_at(*cell, ticket.version())).collect()
    }

    /// Returns the initial values of a writer, by slot.
    pub(super) fn begin_write(&mut self, ticket: &mut WriteTicket) -> Vec<Option<Value>> {
        self.apply_frames(ticket.collect_frames(self.worker));
        while ticket.has_more_frames() {
            self.apply_frames(ticket.collect_frames(self.worker));
        }
        ticket.cells().iter().map(|cell| self.value_at(*cell, ticket.version())).collect()
    }

    /// Stores the values of its own writer, at the version that the write produced.
    pub(super) fn record_write(&mut self, cells: &[u32], version: u64, values: &[Option<Value>]) {
        for (cell, value) in cells.iter().zip(values) {
            self.cells.entry(*cell).or_default().insert(version, value.clone());
        }
    }

    fn value_at(&self, cell: u32, version: u64) -> Option<Value> {
        let versions = self.cells.get(&cell).expect("a run refers only to cells that were sent");
        versions.range(..=version).next_back().expect("an earlier or equal version was sent").1.clone()
    }

    fn apply_frames(&mut self, frames: Vec<PrecedingFrame>) {
        self.frames += frames.len();
        for frame in frames {
            match frame {
                PrecedingFrame::FullValue { cell, version, value } => {
                    self.insert_version(cell, version, Some(serde_json::from_slice(&value).unwrap()));
                }
                PrecedingFrame::Unset { cell, version } => self.insert_version(cell, version, None),
                PrecedingFrame::Changes { cell, version, changes } => {
                    let mut value = self.cells[&cell].last_key_value().unwrap().1.clone();
                    for changes in changes {
                        let edits: Vec<Value> = serde_json::from_slice(&changes).unwrap();
                        edits.iter().for_each(|edit| apply_edit(&mut value, edit));
                    }
                    self.insert_version(cell, version, value);
                }
                PrecedingFrame::Discard { kind: DiscardedKind::Cell, id } => {
                    self.cells.remove(&id).expect("only sent cells are forgotten");
                }
                PrecedingFrame::Discard { .. } | PrecedingFrame::Instance { .. } => {}
            }
        }
    }

    fn insert_version(&mut self, cell: u32, version: u64, value: Option<Value>) {
        let versions = self.cells.entry(cell).or_default();
        let last = versions.last_key_value().map(|(last, _)| *last);
        assert!(last.is_none_or(|last| last < version), "cell {cell}: {version} is sent after {last:?}");
        versions.insert(version, value);
    }
}

/// Applies an edit as defined by the worker protocol.
pub(super) fn apply_edit(root: &mut Option<Value>, edit: &Value) {
    let edit = edit.as_array().unwrap();
    let path = edit[1].as_array().unwrap();
    let Some((last, above)) = path.split_last() else {
        *root = edit.get(2).cloned();
        return;
    };
    let mut place = root.as_mut().unwrap();
    for step in above {
        place = match step {
            Value::String(name) => place.get_mut(name).unwrap(),
            step => place.get_mut(usize::try_from(step.as_u64().unwrap()).unwrap()).unwrap(),
        };
    }
    if let (Value::Array(items), Some(values)) = (&mut *place, edit.get(3)) {
        let number = |value: &Value| usize::try_from(value.as_u64().unwrap()).unwrap();
        let first = number(last);
        items.splice(first..first + number(&edit[2]), values.as_array().unwrap().iter().cloned());
        return;
    }
    match (place, last, edit.get(2)) {
        (Value::Array(items), Value::String(_), Some(len)) => {
            items.truncate(usize::try_from(len.as_u64().unwrap()).unwrap());
        }
        (Value::Array(items), index, Some(value)) => {
            let index = usize::try_from(index.as_u64().unwrap()).unwrap();
            items.truncate(items.len().max(index));
            if index == items.len() {
                items.push(value.clone());
            } else {
                items[index] = value.clone();
            }
        }
        (Value::Object(members), Value::String(name), Some(value)) => {
            members.insert(name.clone(), value.clone());
        }
        (Value::Object(members), Value::String(name), None) => {
            members.shift_remove(name);
        }
        other => panic!("{other:?} is not an edit"),
    }
}
