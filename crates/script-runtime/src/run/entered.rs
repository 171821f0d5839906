//! Entering a worker: the state that a run needs is sent before it on the same connection.

use std::future::poll_fn;
use std::sync::{Arc, Weak};

use bytes::Bytes;
use script::ConcurrencyClass;
use tokio::runtime::Handle;
use tokio::task::yield_now;

use super::lost::AGAIN;
use super::{ScriptRun, StateTicket};
use crate::ask;
use crate::frame::{self, DiscardKind, OutgoingBytes, StateKind, WorkerMessage};
use crate::generation::ProgramGeneration;
use crate::problem::ScriptError;
use crate::state::{DynamicInstance, PrecedingFrame, WriteTicket};
use crate::work::spawn;
use crate::workers::{RunEvent, WorkerSlot};

/// The result of sending a run to a worker.
enum DispatchResult {
    Run,
    /// A part of the state that it needs: others have their turn before the next one.
    Part,
    /// Nothing: its instance is removed.
    Nothing,
}

/// A run in a worker. Dropping this before the run is over cancels it: the worker rolls back its writes.
pub(super) struct DispatchedRun {
    pub(super) place: Arc<WorkerSlot>,
    pub(super) is_over: bool,
    generation: Weak<ProgramGeneration>,
    handler: usize,
}

impl DispatchedRun {
    fn new(place: WorkerSlot, generation: &Arc<ProgramGeneration>, handler: usize) -> Self {
        Self { place: Arc::new(place), is_over: false, generation: Arc::downgrade(generation), handler }
    }
}

impl Drop for DispatchedRun {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        let run = self.place.run;
        if !self.place.worker.is_gone() {
            self.place.worker.say(|out| {
                out.cancel(run);
                out.ping(run);
            });
        }
        // There is no runtime, and no next run, while the gateway ends.
        if Handle::try_current().is_ok() {
            spawn(follow_cancelled(Arc::clone(&self.place), self.generation.clone(), self.handler));
        }
    }
}

/// Waits until a worker has cancelled a run, and records it for the handler if the run ends the worker first:
/// its client may disconnect before that.
async fn follow_cancelled(place: Arc<WorkerSlot>, generation: Weak<ProgramGeneration>, handler: usize) {
    loop {
        match poll_fn(|context| place.poll_event(context)).await {
            RunEvent::From(WorkerMessage::Pong) => return,
            RunEvent::From(_) => {}
            RunEvent::Lost { loss, .. } => {
                if loss.culprit == Some(place.run)
                    && let Some(generation) = generation.upgrade()
                {
                    generation.strike(handler, 1);
                }
                return;
            }
        }
    }
}

impl ScriptRun {
    /// Enters a worker; a dedicated one, if the handler must run alone.
    pub(super) async fn enter(&mut self, alone: bool) -> Result<(), ScriptError> {
        let generation = Arc::clone(&self.generation);
        let handler = &generation.service().handlers[self.handler];
        let place = generation.slot(self.handler, &self.ask.path, alone).await;
        let mut entered = DispatchedRun::new(place, &generation, self.handler);
        let worker = Arc::clone(&entered.place.worker);
        let reads = handler.reads;
        let query = if reads.query { self.ask.query.clone() } else { Bytes::new() };
        let headers = if reads.headers { ask::headers(&self.ask.headers) } else { Bytes::new() };
        // The members of a JSON body are parameters too.
        let body =
            if reads.query || reads.body { self.ask.body.clone() } else { frame::FramePayload::default() };
        let sent = loop {
            let sent = worker.say(|out| {
                self.instance.iter().for_each(|instance| ship(out, instance.ship(worker.id)));
                let (cells, version, durable, is_behind) = match &mut self.ticket {
                    StateTicket::None => (&[][..], 0, 0, false),
                    StateTicket::Read(ticket) => {
                        ship(out, ticket.ship(worker.id));
                        (ticket.cells(), ticket.version(), ticket.durable(), ticket.is_behind())
                    }
                    StateTicket::Write(ticket) => {
                        ship(out, ticket.ship(worker.id));
                        (ticket.cells(), ticket.version(), ticket.durable(), ticket.is_behind())
                    }
                };
                // The cells of a removed instance have no values.
                if self.instance.as_ref().is_some_and(DynamicInstance::is_removed) {
                    return DispatchResult::Nothing;
                }
                if is_behind {
                    return DispatchResult::Part;
                }
                let run = frame::RunMessage {
                    program: generation.number,
                    service: u16::try_from(generation.service).unwrap_or(u16::MAX),
                    handler: u16::try_from(self.handler).unwrap_or(u16::MAX),
                    is_writer: handler.class == ConcurrencyClass::Writer,
                    initialises: None,
                    method: self.ask.method as u8,
                    path: &self.ask.path,
                    query: &query,
                    headers: &headers,
                    instance: self.instance.as_ref().map_or(0, DynamicInstance::id),
                    cells,
                    version,
                    durable,
                    body: body.clone(),
                };
                out.run(entered.place.run, run);
                self.version = (!cells.is_empty()).then_some(version);
                DispatchResult::Run
            });
            match sent {
                DispatchResult::Part => yield_now().await,
                sent => break sent,
            }
        };
        if matches!(sent, DispatchResult::Nothing) {
            entered.is_over = true; // It never began.
            return Err(self.gone());
        }
        self.entered = Some(entered);
        Ok(())
    }

    /// Initialises cells that have no value yet. After the loss of the worker they still have none, and the
    /// next attempt runs alone.
    pub(super) async fn initialise(&mut self, mut ticket: WriteTicket) -> Result<(), ScriptError> {
        let generation = Arc::clone(&self.generation);
        let place = generation.slot(self.handler, &self.ask.path, self.lost > 0).await;
        let mut entered = DispatchedRun::new(place, &generation, self.handler);
        let (place, worker) = (Arc::clone(&entered.place), Arc::clone(&entered.place.worker));
        let planned: Vec<u16> =
            ticket.planned().iter().map(|cell| u16::try_from(*cell).unwrap_or(u16::MAX)).collect();
        loop {
            let is_sent = worker.say(|out| {
                self.instance.iter().for_each(|instance| ship(out, instance.ship(worker.id)));
                ship(out, ticket.ship(worker.id));
                if ticket.is_behind() {
                    return false;
                }
                let run = frame::RunMessage {
                    program: generation.number,
                    service: u16::try_from(generation.service).unwrap_or(u16::MAX),
                    handler: u16::try_from(self.handler).unwrap_or(u16::MAX),
                    is_writer: true,
                    initialises: Some(&planned),
                    method: self.ask.method as u8,
                    path: &self.ask.path,
                    query: &Bytes::new(),
                    headers: b"",
                    instance: self.instance.as_ref().map_or(0, DynamicInstance::id),
                    cells: ticket.cells(),
                    version: ticket.version(),
                    durable: ticket.durable(),
                    body: frame::FramePayload::default(),
                };
                out.run(place.run, run);
                true
            });
            if is_sent {
                break;
            }
            yield_now().await;
        }
        ticket.begin();
        let event = match poll_fn(|context| place.poll_event(context)).await {
            RunEvent::From(WorkerMessage::Long(frame)) => match self.parsed(&place, frame).await {
                Ok(from) => RunEvent::From(from),
                Err(error) => {
                    drop(entered);
                    ticket.give_up();
                    return Err(error);
                }
            },
            event => event,
        };
        match event {
            RunEvent::From(WorkerMessage::End { changes, .. }) => {
                entered.is_over = true;
                let payer = self.origin.call.quota_key().for_responses();
                let durable =
                    ticket.commit_paced(worker.id, changes.unwrap_or_default(), None, payer).await?;
                // Readers see durable versions only, so the first reader must wait for this commit.
                Ok(durable.wait().await?)
            }
            RunEvent::From(WorkerMessage::Fail(fail)) => {
                entered.is_over = true;
                ticket.end();
                let at = generation.origin(self.handler, fail.site, &fail.stack);
                Err(ScriptError::State { at, message: format!("an initial value: {}", fail.message) })
            }
            RunEvent::From(other) => {
                let at = generation.place(self.handler).to_owned();
                Err(ScriptError::Protocol {
                    at,
                    message: format!("unexpected during an initialisation: {other:?}"),
                })
            }
            RunEvent::Lost { loss, .. } => {
                entered.is_over = true;
                ticket.end();
                if let Some(error) = self.culprit_error(&place, &loss) {
                    return Err(error);
                }
                self.lost += 1;
                if self.lost > AGAIN { Err((&*loss).into()) } else { Ok(()) }
            }
        }
    }
}

fn ship(out: &mut OutgoingBytes, frames: Vec<PrecedingFrame>) {
    for frame in frames {
        match frame {
            PrecedingFrame::Whole { cell, version, value } => {
                out.state(cell, StateKind::Whole, version, value)
            }
            PrecedingFrame::Changes { cell, version, changes } => out.changes(cell, version, changes),
            PrecedingFrame::Unset { cell, version } => {
                out.state(cell, StateKind::Unset, version, Bytes::new())
            }
            PrecedingFrame::Instance { id, captures } => out.instance(id, captures),
            PrecedingFrame::Forget { what, id } => out.forget(
                match what {
                    crate::state::DiscardedKind::Cell => DiscardKind::Cell,
                    crate::state::DiscardedKind::Instance => DiscardKind::Instance,
                },
                id,
            ),
        }
    }
}
