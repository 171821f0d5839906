//! Commits: from a run's change set to the disk.
//!
//! A valid change set is applied in memory at once, so that the group's next writer can build on it. A
//! *courier* submits finished commits to the store, in order and pipelined. It waits only for the first
//! version of a new cell, since the store chooses it. When the store refuses a commit, all commits based on
//! it are refused as well, and the group is rolled back to its durable version. Its cells then get new
//! numbers, so that workers do not mistake their copies for the current values.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use store::{Batch, Commit, Lease, Written};
use tokio::sync::{OwnedSemaphorePermit, watch};

use super::cell::Write;
use super::changes::{Changes, Part, Refused};
use super::error::Error;
use super::group::{Group, Inner, NEVER, State};
use super::home::Home;
use super::sizes::entry_size;
use super::workers::Forget;

/// The future result of a commit. Clones share it.
#[derive(Clone, Debug)]
pub struct Durable(watch::Receiver<Option<Result<(), Error>>>);

/// A commit in progress.
#[derive(Debug)]
pub(crate) struct Sealed {
    version: u64,
    writes: Vec<(Arc<str>, Write)>,
    lease: Option<Lease>,
    /// The instance that is removed with the commit, and the writer's permit, which is held until the commit
    /// is settled.
    removes: Option<(Arc<str>, OwnedSemaphorePermit)>,
    answer: watch::Sender<Option<Result<(), Error>>>,
}

/// A commit that was submitted to the store; without writes there is nothing to submit.
struct Sent {
    sealed: Sealed,
    commit: Option<Commit>,
}

impl Durable {
    /// Waits until the commit is durable.
    ///
    /// # Errors
    /// If the commit, or one that it is based on, was not stored.
    pub async fn wait(&self) -> Result<(), Error> {
        let mut answer = self.0.clone();
        let answer = answer.wait_for(Option::is_some).await;
        answer.ok().and_then(|answer| answer.clone()).unwrap_or(Err(Error::Store(store::Error::Stopped)))
    }
}

impl Group {
    /// Applies the change set of a run that has the slot. `slots` are the run's cells.
    pub(crate) fn commit(
        self: &Arc<Self>,
        slots: &[Arc<str>],
        built_on: u64,
        worker: u32,
        text: &[u8],
        removes: Option<(Arc<str>, OwnedSemaphorePermit)>,
    ) -> Result<Durable, Error> {
        let changes =
            Changes::read(&Bytes::copy_from_slice(text)).and_then(|changes| changes.parts(slots.len()));
        let mut inner = self.lock();
        let refused = |reason: Refused| Error::Changes {
            handler: Arc::clone(&inner.writer),
            reason: reason.to_string(),
        };
        let parts = changes.map_err(refused)?;
        if inner.state == State::Gone {
            return Err(Error::Gone { path: self.path.clone().unwrap_or_default() });
        }
        if inner.generation != built_on {
            return Err(Error::Store(store::Error::Abandoned));
        }
        let lease = inner.lease.as_ref().map(|(lease, _)| lease.clone());
        if lease.is_none() && (!parts.is_empty() || removes.is_some()) {
            return Err(Error::Store(store::Error::LeaseLost { name: Arc::clone(&self.lease_name) }));
        }
        let (sender, receiver) = watch::channel(None);
        let durable = Durable(receiver);
        if parts.is_empty() && removes.is_none() && inner.finished == inner.durable {
            sender.send_replace(Some(Ok(())));
            return Ok(durable);
        }
        let writes = inner.make(slots, &parts, &self.home)?;
        let cells: Vec<u32> = writes.iter().filter_map(|(key, _)| Some(inner.cells.get(key)?.id)).collect();
        let version = inner.finished;
        inner.queue.push_back(Sealed { version, writes, lease, removes, answer: sender });
        let is_carried = std::mem::replace(&mut inner.is_carried, true);
        drop(inner);
        self.home.shared.workers.wrote(worker, &cells, version);
        if is_carried {
            self.arrived.notify_one();
        } else {
            tokio::spawn(Arc::clone(self).carry());
        }
        Ok(durable)
    }

    /// Submits finished commits to the store until the queue is empty.
    async fn carry(self: Arc<Self>) {
        let mut line = self.home.shared.store.pipeline();
        let mut sent: VecDeque<Sent> = VecDeque::new();
        loop {
            while let Some((sealed, batch)) = self.take(&sent) {
                let commit = match batch {
                    Some(batch) => Some(line.submit(batch).await),
                    None => None,
                };
                sent.push_back(Sent { sealed, commit });
            }
            let Some(first) = sent.front_mut() else {
                if self.is_done() {
                    break;
                }
                continue;
            };
            let answer = match &mut first.commit {
                None => Ok(Vec::new()),
                Some(commit) => tokio::select! {
                    biased;
                    answer = commit => answer,
                    () = self.arrived.notified() => continue,
                },
            };
            let Some(Sent { sealed, .. }) = sent.pop_front() else { continue };
            match answer {
                Ok(written) => self.settle(sealed, &written).await,
                Err(error) => {
                    self.fail(error, std::iter::once(sealed).chain(sent.into_iter().map(|sent| sent.sealed)));
                    break;
                }
            }
        }
        if self.home.shared.is_draining() {
            self.release().await;
        }
    }

    /// Returns the next commit, and its batch for the store.
    fn take(&self, sent: &VecDeque<Sent>) -> Option<(Sealed, Option<Batch>)> {
        let creates =
            |sent: &Sent| sent.sealed.writes.iter().any(|(_, write)| matches!(write, Write::Create(_)));
        if sent.iter().any(creates) {
            return None;
        }
        let mut inner = self.lock();
        let mut sealed = inner.queue.pop_front()?;
        if sealed.writes.is_empty() && sealed.removes.is_none() {
            return Some((sealed, None));
        }
        let keys = &self.home.keys;
        let mut batch = Batch::new();
        if let Some(lease) = &sealed.lease {
            batch = batch.fenced(lease);
        }
        if let Some((path, _)) = &sealed.removes {
            let own = keys.instance(path);
            sealed.writes.retain(|(key, _)| !key.starts_with(&*own));
        }
        // Cells of an instance that was removed meanwhile are removed with it.
        sealed.writes.retain(|(key, _)| inner.cells.contains_key(key));
        for (key, write) in &sealed.writes {
            let Some(cell) = inner.cells.get_mut(key) else { continue };
            batch = match write {
                Write::Create(value) => batch.create(Arc::clone(key), value.clone()),
                Write::Replace(value) => batch.replace(Arc::clone(key), cell.sent, value.clone()),
                Write::Append(change) => batch.append(Arc::clone(key), cell.sent, change.clone()),
            };
            cell.sent += 1;
        }
        if let Some((path, _)) = &sealed.removes {
            batch = self.home.removal(batch, path, inner.finished);
        }
        Some((sealed, Some(batch)))
    }

    /// Whether the queue is empty; if so, the next commit starts a new courier.
    fn is_done(&self) -> bool {
        let mut inner = self.lock();
        inner.is_carried = !inner.queue.is_empty();
        !inner.is_carried
    }

    async fn settle(&self, sealed: Sealed, written: &[Written]) {
        let mut texts = Vec::new();
        {
            let mut inner = self.lock();
            inner.durable = sealed.version;
            for ((key, _), written) in sealed.writes.iter().zip(written) {
                let Some(cell) = inner.cells.get_mut(key) else { continue };
                let settled = cell.settle(sealed.version, written.version);
                let text =
                    if written.compact { settled.and_then(|()| cell.text_for_store()) } else { Ok(None) };
                texts.extend(text.ok().flatten().map(|text| (Arc::clone(key), text)));
            }
        }
        for (key, (version, text)) in texts {
            // If this fails, the store requests compaction again.
            drop(self.home.shared.store.submit(Batch::new().compact(key, version, text)).await);
        }
        if let Some((path, _permit)) = sealed.removes {
            self.home.removed(&path);
        }
        sealed.answer.send_replace(Some(Ok(())));
    }

    /// Rolls back a commit that the store refused, together with all commits based on it.
    fn fail(&self, error: store::Error, built: impl Iterator<Item = Sealed>) {
        let mut inner = self.lock();
        let built: Vec<Sealed> = built.chain(std::mem::take(&mut inner.queue)).collect();
        inner.generation += 1;
        inner.finished = inner.durable;
        inner.lease = None;
        inner.is_carried = false;
        inner.seen = NEVER;
        let shared = &self.home.shared;
        let mut ids = Vec::new();
        let is_there = inner.state != State::Gone;
        for (key, cell) in &mut inner.cells {
            ids.push(std::mem::replace(&mut cell.id, shared.cell_id()));
            cell.reset();
            if is_there {
                self.home.count(key, cell);
            }
        }
        drop(inner);
        shared.workers.forget(Forget::Cell, &ids);
        let mut error = Some(error);
        for sealed in built {
            let error = error.take().unwrap_or(store::Error::Abandoned);
            sealed.answer.send_replace(Some(Err(error.into())));
        }
    }
}

impl Inner {
    /// Applies all parts of a change set, atomically.
    fn make(
        &mut self,
        slots: &[Arc<str>],
        parts: &[Part],
        home: &Home,
    ) -> Result<Vec<(Arc<str>, Write)>, Error> {
        let version = self.finished + u64::from(!parts.is_empty());
        let mut writes = Vec::with_capacity(parts.len());
        for part in parts {
            let found = slots.get(part.slot).and_then(|key| Some((key, self.cells.get_mut(key)?)));
            let made =
                found.map(|(key, cell)| cell.change(part, version).map(|write| (Arc::clone(key), write)));
            match made {
                Some(Ok(write)) => writes.push(write),
                Some(Err(refused)) => {
                    self.take_back(slots, parts, home);
                    return Err(Error::Changes {
                        handler: Arc::clone(&self.writer),
                        reason: refused.to_string(),
                    });
                }
                None => {}
            }
        }
        let sizes = writes
            .iter()
            .filter_map(|(key, _)| self.cells.get(key).map(|cell| (key, entry_size(key, cell.bytes()))));
        let most = home.settings().size;
        if let Err(refused) = home.sizes.commit(most, sizes) {
            self.take_back(slots, parts, home);
            return Err(home.state_full(refused, most));
        }
        self.finished = version;
        Ok(writes)
    }

    /// Rolls back a refused change set. The worker's copies still contain it, so these cells get new numbers
    /// and are sent again.
    fn take_back(&mut self, slots: &[Arc<str>], parts: &[Part], home: &Home) {
        for cell in self.cells.values_mut() {
            cell.take_back(self.finished);
        }
        let mut ids = Vec::with_capacity(parts.len());
        for key in parts.iter().filter_map(|part| slots.get(part.slot)) {
            if let Some(cell) = self.cells.get_mut(key) {
                ids.push(std::mem::replace(&mut cell.id, home.shared.cell_id()));
            }
        }
        home.shared.workers.forget(Forget::Cell, &ids);
    }
}
