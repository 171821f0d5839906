//! The session of a run with its worker, from entering it to its completion or loss. The state that a run
//! needs is sent before it on the same connection.
//!
//! A run without effects is repeated in another worker, unnoticed by its client. If the run may have ended
//! the worker itself, but this is not certain, it runs alone the second time; if that worker ends too, the
//! run was the cause. Code of a handler may compute while its run waits for calls. But many runs may wait in
//! a worker, and few can run alone at once, so such a run becomes a suspect at its last repetition only. A
//! single bad request therefore costs two to four workers, but no response to other requests.

use std::future::poll_fn;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};

use bytes::Bytes;
use script::ConcurrencyClass;
use tokio::runtime::Handle;
use tokio::task::yield_now;

use super::run_context::RunContext;
use super::state_access::{RunStateAccess, TicketCells};
use crate::deployment::ProgramGeneration;
use crate::frame::{self, DiscardKind, LongFrame, OutgoingBytes, StateKind, WorkerMessage};
use crate::http_message::script_request;
use crate::problem::ScriptError;
use crate::state::{DiscardedKind, DynamicInstance, PrecedingFrame, StateError, WriteTicket};
use crate::work::{run_then_charge, spawn};
use crate::workers::{RunEvent, WorkerLoss, WorkerSlot};

/// The maximum number of repetitions of a run.
const MAX_RETRIES: u32 = 3;

/// The session of a run with its worker.
pub(super) struct WorkerSession {
    dispatched: Option<DispatchedRun>,
    /// Whether the run can be repeated without a visible effect: it has made no unsafe call, committed
    /// nothing and not responded.
    is_repeatable: bool,
    lost_workers: u32,
}

/// The result of sending a run to a worker.
enum DispatchResult {
    Run,
    /// A part of the state that it needs: others have their turn before the next one.
    PartialState,
    /// Nothing: its instance is removed.
    InstanceRemoved,
}

/// A run in a worker. Dropping this before the run is over cancels it: the worker rolls back its writes.
struct DispatchedRun {
    slot: Arc<WorkerSlot>,
    is_completed: bool,
    generation: Weak<ProgramGeneration>,
    handler: usize,
}

impl DispatchedRun {
    fn new(run: &RunContext, slot: WorkerSlot) -> Self {
        Self {
            slot: Arc::new(slot),
            is_completed: false,
            generation: Arc::downgrade(&run.generation),
            handler: run.handler_index,
        }
    }
}

impl Drop for DispatchedRun {
    fn drop(&mut self) {
        if self.is_completed {
            return;
        }
        let run = self.slot.run;
        if !self.slot.worker.is_lost() {
            self.slot.worker.send_frames(|out| {
                out.put_cancel(run);
                out.put_ping(run);
            });
        }
        // There is no runtime, and no next run, while the gateway ends.
        if Handle::try_current().is_ok() {
            spawn(watch_cancellation(Arc::clone(&self.slot), self.generation.clone(), self.handler));
        }
    }
}

/// Waits until a worker has cancelled a run, and records it for the handler if the run ends the worker first:
/// its client may disconnect before that.
async fn watch_cancellation(slot: Arc<WorkerSlot>, generation: Weak<ProgramGeneration>, handler: usize) {
    loop {
        match poll_fn(|context| slot.poll_event(context)).await {
            RunEvent::Message(WorkerMessage::Pong) => return,
            RunEvent::Message(_) => {}
            RunEvent::Lost { loss, .. } => {
                if loss.culprit == Some(slot.run)
                    && let Some(generation) = generation.upgrade()
                {
                    generation.record_strike(handler, 1);
                }
                return;
            }
        }
    }
}

impl WorkerSession {
    /// Creates the session of a run that has not entered a worker yet.
    pub(super) fn new() -> Self {
        Self { dispatched: None, is_repeatable: true, lost_workers: 0 }
    }

    /// The run's slot in its worker, if it has entered one.
    pub(super) fn slot(&self) -> Option<&Arc<WorkerSlot>> {
        self.dispatched.as_ref().map(|dispatched| &dispatched.slot)
    }

    /// The number of the worker that the run has entered.
    pub(super) fn worker_id(&self) -> Option<u32> {
        self.slot().map(|slot| slot.worker.id)
    }

    /// Whether the worker has completed the run. A run that has not entered a worker is completed as well.
    pub(super) fn is_completed(&self) -> bool {
        self.dispatched.as_ref().is_none_or(|dispatched| dispatched.is_completed)
    }

    /// Records that the worker has completed the run.
    pub(super) fn mark_completed(&mut self) {
        if let Some(dispatched) = &mut self.dispatched {
            dispatched.is_completed = true;
        }
    }

    /// Records that the run has had a visible effect.
    pub(super) fn forbid_repetition(&mut self) {
        self.is_repeatable = false;
    }

    /// Polls for the next event from the worker. Pending while the run is in no worker.
    pub(super) fn poll_event(&self, context: &mut Context<'_>) -> Poll<RunEvent> {
        self.slot().map_or(Poll::Pending, |slot| slot.poll_event(context))
    }

    /// Leaves the worker. If it has not completed the run, it rolls back the run's writes.
    pub(super) fn leave(&mut self) {
        self.dispatched = None;
    }

    /// Leaves a lost worker. Returns whether the run must be repeated alone, since it may have ended the
    /// worker. `refused` is as in [`RunContext::culprit_error`].
    ///
    /// # Errors
    /// If the run ended the worker, or must not be repeated.
    pub(super) fn leave_lost_worker(
        &mut self,
        run: &RunContext,
        loss: &WorkerLoss,
        was_busy: bool,
        refused: Option<&StateError>,
    ) -> Result<bool, ScriptError> {
        let Some(mut dispatched) = self.dispatched.take() else { return Err(loss.into()) };
        dispatched.is_completed = true;
        if let Some(error) = run.culprit_error(&dispatched.slot, loss, refused) {
            return Err(error);
        }
        self.lost_workers += 1;
        if !self.is_repeatable || self.lost_workers > MAX_RETRIES {
            return Err(loss.into());
        }
        Ok(loss.culprit.is_none() && (was_busy || self.lost_workers == MAX_RETRIES))
    }

    /// Enters a worker; a dedicated one, if the handler must run alone.
    pub(super) async fn enter(
        &mut self,
        run: &RunContext,
        state: &mut RunStateAccess,
        alone: bool,
    ) -> Result<(), ScriptError> {
        let handler = run.handler();
        let slot = run.generation.acquire_slot(run.handler_index, &run.request.path, alone).await;
        let mut dispatched = DispatchedRun::new(run, slot);
        let worker = Arc::clone(&dispatched.slot.worker);
        let reads = handler.reads;
        let query = if reads.query { run.request.query.clone() } else { Bytes::new() };
        let headers =
            if reads.headers { script_request::headers_to_json(&run.request.headers) } else { Bytes::new() };
        // The members of a JSON body are parameters too.
        let body =
            if reads.query || reads.body { run.request.body.clone() } else { frame::FramePayload::default() };
        let sent = loop {
            let sent = worker.send_frames(|out| {
                write_instance(out, run, worker.id);
                write_frames(out, state.collect_frames(worker.id));
                // The cells of a removed instance have no values.
                if run.is_instance_removed() {
                    return DispatchResult::InstanceRemoved;
                }
                if state.has_more_frames() {
                    return DispatchResult::PartialState;
                }
                let message = frame::RunMessage {
                    is_writer: handler.class == ConcurrencyClass::Writer,
                    query: &query,
                    headers: &headers,
                    body: body.clone(),
                    ..run_message(run, state.cells())
                };
                out.put_run(dispatched.slot.run, message);
                state.record_version();
                DispatchResult::Run
            });
            match sent {
                DispatchResult::PartialState => yield_now().await,
                sent => break sent,
            }
        };
        if matches!(sent, DispatchResult::InstanceRemoved) {
            dispatched.is_completed = true; // It never began.
            return Err(run.removed_error());
        }
        self.dispatched = Some(dispatched);
        Ok(())
    }

    /// Initialises cells that have no value yet. After the loss of the worker they still have none, and the
    /// next attempt runs alone.
    pub(super) async fn initialise_cells(
        &mut self,
        run: &RunContext,
        mut ticket: WriteTicket,
    ) -> Result<(), ScriptError> {
        let alone = self.lost_workers > 0;
        let slot = run.generation.acquire_slot(run.handler_index, &run.request.path, alone).await;
        let mut dispatched = DispatchedRun::new(run, slot);
        let (slot, worker) = (Arc::clone(&dispatched.slot), Arc::clone(&dispatched.slot.worker));
        let planned: Vec<u16> =
            ticket.planned_cells().iter().map(|cell| u16::try_from(*cell).unwrap_or(u16::MAX)).collect();
        loop {
            let is_sent = worker.send_frames(|out| {
                write_instance(out, run, worker.id);
                write_frames(out, ticket.collect_frames(worker.id));
                if ticket.has_more_frames() {
                    return false;
                }
                let cells = TicketCells {
                    cells: ticket.cells(),
                    version: ticket.version(),
                    durable: ticket.durable(),
                };
                let message = frame::RunMessage {
                    is_writer: true,
                    initialises: Some(&planned),
                    ..run_message(run, cells)
                };
                out.put_run(slot.run, message);
                true
            });
            if is_sent {
                break;
            }
            yield_now().await;
        }
        ticket.mark_started();
        let event = match poll_fn(|context| slot.poll_event(context)).await {
            RunEvent::Message(WorkerMessage::Long(frame)) => {
                match parse_long_frame(run, &slot, frame).await {
                    Ok(message) => RunEvent::Message(message),
                    Err(error) => {
                        drop(dispatched);
                        ticket.abandon();
                        return Err(error);
                    }
                }
            }
            event => event,
        };
        match event {
            RunEvent::Message(WorkerMessage::End { changes, .. }) => {
                dispatched.is_completed = true;
                let (changes, payer) = (changes.unwrap_or_default(), run.quota_key());
                let durable = ticket.commit_offloaded(worker.id, changes, None, payer).await?;
                // Readers see durable versions only, so the first reader must wait for this commit.
                Ok(durable.wait().await?)
            }
            RunEvent::Message(WorkerMessage::Fail(fail)) => {
                dispatched.is_completed = true;
                ticket.mark_ended();
                let at = run.error_origin(fail.site, &fail.stack);
                Err(ScriptError::State { at, message: format!("an initial value: {}", fail.message) })
            }
            RunEvent::Message(other) => {
                Err(run.protocol_error(format!("unexpected during an initialisation: {other:?}")))
            }
            RunEvent::Lost { loss, .. } => {
                dispatched.is_completed = true;
                ticket.mark_ended();
                if let Some(error) = run.culprit_error(&slot, &loss, None) {
                    return Err(error);
                }
                self.lost_workers += 1;
                if self.lost_workers > MAX_RETRIES { Err((&*loss).into()) } else { Ok(()) }
            }
        }
    }
}

/// Returns the message that begins a run with these cells, without parameters, headers and a body.
fn run_message<'r>(run: &'r RunContext, ticket: TicketCells<'r>) -> frame::RunMessage<'r> {
    static EMPTY: Bytes = Bytes::new();
    frame::RunMessage {
        program: run.generation.number,
        service: u16::try_from(run.generation.service).unwrap_or(u16::MAX),
        handler: u16::try_from(run.handler_index).unwrap_or(u16::MAX),
        is_writer: false,
        initialises: None,
        method: run.request.method as u8,
        path: &run.request.path,
        query: &EMPTY,
        headers: b"",
        instance: run.instance.as_ref().map_or(0, DynamicInstance::id),
        cells: ticket.cells,
        version: ticket.version,
        durable: ticket.durable,
        body: frame::FramePayload::default(),
    }
}

/// Parses a long frame in the pool. An invalid frame or a report of damage ends the worker, as a short one
/// does.
pub(super) async fn parse_long_frame(
    run: &RunContext,
    slot: &WorkerSlot,
    long: LongFrame,
) -> Result<WorkerMessage, ScriptError> {
    let pool = &run.setup.scripts.offload;
    let parsed =
        run_then_charge(pool, "script-frame", run.quota_key(), run.origin.deadline, || long.parse()).await;
    let parsed = parsed.map_err(|error| run.offload_error(error))?;
    if let Ok(WorkerMessage::Fail(fail)) = &parsed
        && fail.is_damage()
    {
        run.record_strike(1);
        slot.worker.mark_lost(WorkerLoss::from_damage(slot.run, Some(fail.clone())));
    }
    parsed.map_err(|error| {
        slot.worker.mark_lost(WorkerLoss::new(format!("its connection: {error}")));
        run.protocol_error(error.to_string())
    })
}

/// Writes the frames that a worker needs for the run's instance.
fn write_instance(out: &mut OutgoingBytes, run: &RunContext, worker: u32) {
    if let Some(instance) = &run.instance {
        write_frames(out, instance.collect_frames(worker));
    }
}

fn write_frames(out: &mut OutgoingBytes, frames: Vec<PrecedingFrame>) {
    for frame in frames {
        match frame {
            PrecedingFrame::FullValue { cell, version, value } => {
                out.put_state(cell, StateKind::Full, version, value)
            }
            PrecedingFrame::Changes { cell, version, changes } => out.put_changes(cell, version, changes),
            PrecedingFrame::Unset { cell, version } => {
                out.put_state(cell, StateKind::Unset, version, Bytes::new())
            }
            PrecedingFrame::Instance { id, captures } => out.put_instance(id, captures),
            PrecedingFrame::Discard { kind: what, id } => out.put_discard(
                match what {
                    DiscardedKind::Cell => DiscardKind::Cell,
                    DiscardedKind::Instance => DiscardKind::Instance,
                },
                id,
            ),
        }
    }
}
