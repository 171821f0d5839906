//! Entering a worker: the state that a run needs is sent before it on the same connection.

use std::future::poll_fn;
use std::sync::{Arc, Weak};

use bytes::Bytes;
use script::ConcurrencyClass;
use tokio::runtime::Handle;
use tokio::task::yield_now;

use super::worker_loss::MAX_RETRIES;
use super::{ScriptRun, StateTicket};
use crate::frame::{self, DiscardKind, OutgoingBytes, StateKind, WorkerMessage};
use crate::generation::ProgramGeneration;
use crate::problem::ScriptError;
use crate::script_request;
use crate::state::{DynamicInstance, PrecedingFrame, WriteTicket};
use crate::work::spawn;
use crate::workers::{RunEvent, WorkerSlot};

/// The result of sending a run to a worker.
enum DispatchResult {
    Run,
    /// A part of the state that it needs: others have their turn before the next one.
    PartialState,
    /// Nothing: its instance is removed.
    InstanceRemoved,
}

/// A run in a worker. Dropping this before the run is over cancels it: the worker rolls back its writes.
pub(super) struct DispatchedRun {
    pub(super) slot: Arc<WorkerSlot>,
    pub(super) is_completed: bool,
    generation: Weak<ProgramGeneration>,
    handler: usize,
}

impl DispatchedRun {
    fn new(place: WorkerSlot, generation: &Arc<ProgramGeneration>, handler: usize) -> Self {
        Self { slot: Arc::new(place), is_completed: false, generation: Arc::downgrade(generation), handler }
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
async fn watch_cancellation(place: Arc<WorkerSlot>, generation: Weak<ProgramGeneration>, handler: usize) {
    loop {
        match poll_fn(|context| place.poll_event(context)).await {
            RunEvent::Message(WorkerMessage::Pong) => return,
            RunEvent::Message(_) => {}
            RunEvent::Lost { loss, .. } => {
                if loss.culprit == Some(place.run)
                    && let Some(generation) = generation.upgrade()
                {
                    generation.record_strike(handler, 1);
                }
                return;
            }
        }
    }
}

impl ScriptRun {
    /// Enters a worker; a dedicated one, if the handler must run alone.
    pub(super) async fn enter_worker(&mut self, alone: bool) -> Result<(), ScriptError> {
        let generation = Arc::clone(&self.generation);
        let handler = &generation.service().handlers[self.handler];
        let place = generation.acquire_slot(self.handler, &self.request.path, alone).await;
        let mut entered = DispatchedRun::new(place, &generation, self.handler);
        let worker = Arc::clone(&entered.slot.worker);
        let reads = handler.reads;
        let query = if reads.query { self.request.query.clone() } else { Bytes::new() };
        let headers =
            if reads.headers { script_request::headers_to_json(&self.request.headers) } else { Bytes::new() };
        // The members of a JSON body are parameters too.
        let body = if reads.query || reads.body {
            self.request.body.clone()
        } else {
            frame::FramePayload::default()
        };
        let sent = loop {
            let sent = worker.send_frames(|out| {
                self.instance
                    .iter()
                    .for_each(|instance| write_frames(out, instance.collect_frames(worker.id)));
                let (cells, version, durable, is_behind) = match &mut self.ticket {
                    StateTicket::None => (&[][..], 0, 0, false),
                    StateTicket::Read(ticket) => {
                        write_frames(out, ticket.collect_frames(worker.id));
                        (ticket.cells(), ticket.version(), ticket.durable(), ticket.has_more_frames())
                    }
                    StateTicket::Write(ticket) => {
                        write_frames(out, ticket.collect_frames(worker.id));
                        (ticket.cells(), ticket.version(), ticket.durable(), ticket.has_more_frames())
                    }
                };
                // The cells of a removed instance have no values.
                if self.instance.as_ref().is_some_and(DynamicInstance::is_removed) {
                    return DispatchResult::InstanceRemoved;
                }
                if is_behind {
                    return DispatchResult::PartialState;
                }
                let run = frame::RunMessage {
                    program: generation.number,
                    service: u16::try_from(generation.service).unwrap_or(u16::MAX),
                    handler: u16::try_from(self.handler).unwrap_or(u16::MAX),
                    is_writer: handler.class == ConcurrencyClass::Writer,
                    initialises: None,
                    method: self.request.method as u8,
                    path: &self.request.path,
                    query: &query,
                    headers: &headers,
                    instance: self.instance.as_ref().map_or(0, DynamicInstance::id),
                    cells,
                    version,
                    durable,
                    body: body.clone(),
                };
                out.put_run(entered.slot.run, run);
                self.version = (!cells.is_empty()).then_some(version);
                DispatchResult::Run
            });
            match sent {
                DispatchResult::PartialState => yield_now().await,
                sent => break sent,
            }
        };
        if matches!(sent, DispatchResult::InstanceRemoved) {
            entered.is_completed = true; // It never began.
            return Err(self.removed_error());
        }
        self.dispatched = Some(entered);
        Ok(())
    }

    /// Initialises cells that have no value yet. After the loss of the worker they still have none, and the
    /// next attempt runs alone.
    pub(super) async fn initialise_cells(&mut self, mut ticket: WriteTicket) -> Result<(), ScriptError> {
        let generation = Arc::clone(&self.generation);
        let place = generation.acquire_slot(self.handler, &self.request.path, self.lost_workers > 0).await;
        let mut entered = DispatchedRun::new(place, &generation, self.handler);
        let (place, worker) = (Arc::clone(&entered.slot), Arc::clone(&entered.slot.worker));
        let planned: Vec<u16> =
            ticket.planned_cells().iter().map(|cell| u16::try_from(*cell).unwrap_or(u16::MAX)).collect();
        loop {
            let is_sent = worker.send_frames(|out| {
                self.instance
                    .iter()
                    .for_each(|instance| write_frames(out, instance.collect_frames(worker.id)));
                write_frames(out, ticket.collect_frames(worker.id));
                if ticket.has_more_frames() {
                    return false;
                }
                let run = frame::RunMessage {
                    program: generation.number,
                    service: u16::try_from(generation.service).unwrap_or(u16::MAX),
                    handler: u16::try_from(self.handler).unwrap_or(u16::MAX),
                    is_writer: true,
                    initialises: Some(&planned),
                    method: self.request.method as u8,
                    path: &self.request.path,
                    query: &Bytes::new(),
                    headers: b"",
                    instance: self.instance.as_ref().map_or(0, DynamicInstance::id),
                    cells: ticket.cells(),
                    version: ticket.version(),
                    durable: ticket.durable(),
                    body: frame::FramePayload::default(),
                };
                out.put_run(place.run, run);
                true
            });
            if is_sent {
                break;
            }
            yield_now().await;
        }
        ticket.mark_started();
        let event = match poll_fn(|context| place.poll_event(context)).await {
            RunEvent::Message(WorkerMessage::Long(frame)) => match self.parse_long_frame(&place, frame).await
            {
                Ok(from) => RunEvent::Message(from),
                Err(error) => {
                    drop(entered);
                    ticket.abandon();
                    return Err(error);
                }
            },
            event => event,
        };
        match event {
            RunEvent::Message(WorkerMessage::End { changes, .. }) => {
                entered.is_completed = true;
                let payer = self.origin.call.quota_key().for_responses();
                let durable =
                    ticket.commit_offloaded(worker.id, changes.unwrap_or_default(), None, payer).await?;
                // Readers see durable versions only, so the first reader must wait for this commit.
                Ok(durable.wait().await?)
            }
            RunEvent::Message(WorkerMessage::Fail(fail)) => {
                entered.is_completed = true;
                ticket.mark_ended();
                let at = generation.error_origin(self.handler, fail.site, &fail.stack);
                Err(ScriptError::State { at, message: format!("an initial value: {}", fail.message) })
            }
            RunEvent::Message(other) => {
                let at = generation.handler_position(self.handler).to_owned();
                Err(ScriptError::Protocol {
                    at,
                    message: format!("unexpected during an initialisation: {other:?}"),
                })
            }
            RunEvent::Lost { loss, .. } => {
                entered.is_completed = true;
                ticket.mark_ended();
                if let Some(error) = self.culprit_error(&place, &loss) {
                    return Err(error);
                }
                self.lost_workers += 1;
                if self.lost_workers > MAX_RETRIES { Err((&*loss).into()) } else { Ok(()) }
            }
        }
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
                    crate::state::DiscardedKind::Cell => DiscardKind::Cell,
                    crate::state::DiscardedKind::Instance => DiscardKind::Instance,
                },
                id,
            ),
        }
    }
}
