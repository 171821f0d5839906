//! The access of a run to state: its ticket, its commit, and the version that it read or wrote.

use bytes::Bytes;
use script::ConcurrencyClass;

use super::run_context::RunContext;
use crate::problem::ScriptError;
use crate::state::{DurableCommit, HeldLocks, PrecedingFrame, ReadTicket, StateRequest, WriteTicket};

/// The access of a run to state.
pub(super) struct RunStateAccess {
    ticket: StateTicket,
    held_locks: HeldLocks,
    /// The run's commit, until it is durable.
    pending_commit: Option<DurableCommit>,
    version: Option<u64>,
    removes_instance: bool,
}

/// A run's permission to access state.
enum StateTicket {
    None,
    Read(ReadTicket),
    Write(WriteTicket),
}

/// The cells of a run's ticket, and their versions.
pub(super) struct TicketCells<'t> {
    pub(super) cells: &'t [u32],
    pub(super) version: u64,
    pub(super) durable: u64,
}

impl RunStateAccess {
    /// Creates the access of a run that does not access state yet.
    pub(super) fn new(held_locks: HeldLocks) -> Self {
        Self {
            ticket: StateTicket::None,
            held_locks,
            pending_commit: None,
            version: None,
            removes_instance: false,
        }
    }

    /// Waits until the run may access state whose cells are initialised.
    pub(super) async fn acquire(&mut self, run: &RunContext) -> Result<(), ScriptError> {
        let edition = &run.generation.edition;
        self.ticket = match run.handler().class {
            ConcurrencyClass::Stateless => StateTicket::None,
            ConcurrencyClass::Reader => StateTicket::Read(edition.read_ticket(state_request(run)).await?),
            ConcurrencyClass::Writer => {
                let _waits = run.generation.pool.count_waiting_writer();
                let ticket = edition.write_ticket(state_request(run)).await?;
                self.held_locks = ticket.held_locks();
                StateTicket::Write(ticket)
            }
        };
        Ok(())
    }

    /// Whether the run is the writer of its group, that is, until it commits.
    pub(super) fn is_writer(&self) -> bool {
        matches!(self.ticket, StateTicket::Write(_))
    }

    /// The groups that are locked by this run and the runs that wait for it.
    pub(super) fn held_locks(&self) -> &HeldLocks {
        &self.held_locks
    }

    /// The run's commit, until it is durable.
    pub(super) fn pending_commit(&self) -> Option<&DurableCommit> {
        self.pending_commit.as_ref()
    }

    /// The version of the state that the run read or wrote.
    pub(super) fn version(&self) -> Option<u64> {
        self.version
    }

    /// Returns the frames that a worker needs before the run.
    pub(super) fn collect_frames(&mut self, worker: u32) -> Vec<PrecedingFrame> {
        match &mut self.ticket {
            StateTicket::None => Vec::new(),
            StateTicket::Read(ticket) => ticket.collect_frames(worker),
            StateTicket::Write(ticket) => ticket.collect_frames(worker),
        }
    }

    /// Whether the worker needs more frames before the run.
    pub(super) fn has_more_frames(&self) -> bool {
        match &self.ticket {
            StateTicket::None => false,
            StateTicket::Read(ticket) => ticket.has_more_frames(),
            StateTicket::Write(ticket) => ticket.has_more_frames(),
        }
    }

    /// Returns the cells that the run accesses.
    pub(super) fn cells(&self) -> TicketCells<'_> {
        let (cells, version, durable) = match &self.ticket {
            StateTicket::None => (&[][..], 0, 0),
            StateTicket::Read(ticket) => (ticket.cells(), ticket.version(), ticket.durable()),
            StateTicket::Write(ticket) => (ticket.cells(), ticket.version(), ticket.durable()),
        };
        TicketCells { cells, version, durable }
    }

    /// Records the version of the cells that the run accesses.
    pub(super) fn record_version(&mut self) {
        let TicketCells { cells, version, .. } = self.cells();
        self.version = (!cells.is_empty()).then_some(version);
    }

    /// Sets whether the run's end removes its instance.
    pub(super) fn set_removes_instance(&mut self, removes_instance: bool) {
        self.removes_instance = removes_instance;
    }

    /// Ends the access without a commit.
    pub(super) fn release(&mut self) {
        self.ticket = StateTicket::None;
    }

    /// Ends the access; returns the ticket of a writer, which has not committed.
    pub(super) fn take_write_ticket(&mut self) -> Option<WriteTicket> {
        match std::mem::replace(&mut self.ticket, StateTicket::None) {
            StateTicket::Write(ticket) => Some(ticket),
            StateTicket::None | StateTicket::Read(_) => None,
        }
    }

    /// Ends the access of a run that has ended with these changes: commits them, and removes the instance if
    /// the handler did so.
    pub(super) async fn end(
        &mut self,
        run: &RunContext,
        worker: Option<u32>,
        changes: Option<Bytes>,
    ) -> Result<(), ScriptError> {
        match (changes, self.removes_instance) {
            (None, false) => self.release(),
            (changes, _) => self.commit(run, worker, changes.unwrap_or_default()).await?,
        }
        if self.removes_instance && !self.is_writer() {
            let edition = &run.generation.edition;
            Box::pin(edition.remove_instance(&run.request.path, &self.held_locks, run.position())).await?;
        }
        Ok(())
    }

    /// Commits and ends the writer's turn: the next writer can build on the changes while they are written to
    /// disk. Once begun, a commit is completed even if this run is cancelled meanwhile.
    pub(super) async fn commit(
        &mut self,
        run: &RunContext,
        worker: Option<u32>,
        changes: Bytes,
    ) -> Result<(), ScriptError> {
        let Some(ticket) = self.take_write_ticket() else { return Ok(()) };
        let worker = worker.ok_or(ScriptError::WorkerLost)?;
        run.generation.pool.note_commit();
        let is_removed = std::mem::take(&mut self.removes_instance);
        self.version = self.version.map(|version| version + u64::from(!changes.is_empty()));
        self.held_locks = run.origin.held_locks.clone();
        let removes = is_removed.then(|| run.request.path.as_str().into());
        self.pending_commit =
            Some(Box::pin(ticket.commit_offloaded(worker, changes, removes, run.quota_key())).await?);
        Ok(())
    }

    /// Waits until the run's commit is durable.
    pub(super) async fn wait_until_durable(&mut self) -> Result<(), ScriptError> {
        match self.pending_commit.take() {
            Some(durable) => Ok(durable.wait().await?),
            None => Ok(()),
        }
    }
}

/// Waits for the ticket of the writer that initialises the cells of a run; `None` once all have a value.
pub(super) async fn initialisation_ticket(run: &RunContext) -> Result<Option<WriteTicket>, ScriptError> {
    Ok(run.generation.edition.initialisation_ticket(state_request(run)).await?)
}

/// Returns the request of a run for its handler's cells.
fn state_request(run: &RunContext) -> StateRequest<'_> {
    StateRequest {
        handler: run.handler_index,
        path: &run.request.path,
        held_locks: &run.origin.held_locks,
        position: run.position(),
    }
}
