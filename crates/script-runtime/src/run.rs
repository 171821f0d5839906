//! Runs: the execution of a handler, from the request to its response and until it has ended.
//!
//! Depending on its handler's class, a run does not access state, reads the last durable version, or is the
//! only writer of its group until it commits. A writer's response is held back until its writes are durable.
//! A run belongs to its caller and ends with it, except that a writer continues to its end, and so does the
//! work of a handler after `respond`.
//!
//! `inline_run.rs` responds without a worker, by a recipe. Otherwise `dispatch.rs` sends the run to a worker,
//! `worker_events.rs` handles the worker's messages, `calls.rs` makes resource calls, and `worker_loss.rs`
//! handles the loss of the worker.

mod calls;
mod dispatch;
mod inline_run;
mod worker_events;
mod worker_loss;

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use offload::OffloadError;
use script::{ConcurrencyClass, HeaderReads};
use services::coop::ByteTurn;
use services::{RequestBudget, RequestCall, UnfinishedResponse, UpstreamCallRecord, timeout_at};
use tokio::sync::oneshot;

use crate::frame::{self, LongFrame};
use crate::generation::ProgramGeneration;
use crate::handler_reply::HandlerReply;
use crate::problem::ScriptError;
use crate::script_request::ScriptRequest;
use crate::scripts::RunInFlightGuard;
use crate::setup::RunSetup;
use crate::state::{self, DurableCommit, DynamicInstance, HeldLocks, ReadTicket, WriteTicket};
use crate::table::RoutingResult;
use crate::work::{run_then_charge, spawn};
use crate::workers::{RunEvent, WorkerLoss, WorkerSlot};
use calls::{CallResult, RunCalls};
use dispatch::DispatchedRun;

/// A request to a service, with its origin.
pub(crate) struct RunRequest {
    pub(crate) setup: Arc<RunSetup>,
    pub(crate) generation: Arc<ProgramGeneration>,
    pub(crate) origin: RunOrigin,
    pub(crate) request: ScriptRequest,
}

/// The origin of a request.
#[derive(Clone)]
pub(crate) struct RunOrigin {
    /// The caller, trace and hops; each run has a budget of its own.
    pub(crate) call: Arc<RequestCall>,
    /// The groups that are locked by the runs waiting for the response.
    pub(crate) held_locks: HeldLocks,
    /// The time at which the caller stops waiting.
    pub(crate) deadline: Instant,
    /// The time by which a client's response must begin, and the corresponding limit.
    pub(crate) response_deadline: Option<(Instant, Duration)>,
}

/// A response and its cost.
pub(crate) struct RunResponse {
    pub(crate) reply: HandlerReply,
    /// The version of the state that was read or written.
    pub(crate) version: Option<u64>,
    /// The client's headers that may have influenced the response.
    pub(crate) header_reads: HeaderReads,
    pub(crate) cost: RunCost,
}

/// The cost of a run.
#[derive(Default)]
pub(crate) struct RunCost {
    pub(crate) made: Vec<UpstreamCallRecord>,
    pub(crate) cpu: Duration,
}

/// A run without a response.
pub(crate) struct RunFailure {
    pub(crate) error: ScriptError,
    pub(crate) cost: RunCost,
}

/// A run in flight.
pub(crate) struct ScriptRun {
    setup: Arc<RunSetup>,
    generation: Arc<ProgramGeneration>,
    handler: usize,
    request: ScriptRequest,
    instance: Option<DynamicInstance>,
    /// The origin, whose call contains the run's own budget.
    origin: RunOrigin,
    /// Declared before the ticket, so that it is dropped first: the worker must roll back the run's writes
    /// before the next writer's turn.
    dispatched: Option<DispatchedRun>,
    ticket: StateTicket,
    held_locks: HeldLocks,
    /// The run's commit, until it is durable.
    pending_commit: Option<DurableCommit>,
    version: Option<u64>,
    calls: RunCalls,
    /// The response, held back until the run's writes are durable.
    reply: Option<HandlerReply>,
    is_answered: bool,
    /// Whether the run can be repeated without a visible effect: it has made no unsafe call, committed
    /// nothing and not responded.
    is_repeatable: bool,
    removes_instance: bool,
    lost_workers: u32,
    cpu: Duration,
    turn: ByteTurn,
    _in_flight: RunInFlightGuard,
}

/// A run's permission to access state.
enum StateTicket {
    None,
    Read(ReadTicket),
    Write(WriteTicket),
}

/// Handles a request, with or without a handler.
pub(crate) async fn handle_run_request(asked: RunRequest) -> Result<RunResponse, RunFailure> {
    let RunRequest { setup, generation, origin, request: ask } = asked;
    let found =
        generation.table.route(generation.service(), &generation.edition, Some(ask.method), &ask.path);
    let of_nobody = |reply| {
        let header_reads = HeaderReads::Named(Vec::new());
        Ok(RunResponse { reply, version: None, header_reads, cost: RunCost::default() })
    };
    match found.await.map_err(ScriptError::from)? {
        RoutingResult::Handler { handler, path, instance } => {
            let ask = ScriptRequest { path, ..ask };
            ScriptRun::new(setup, generation, handler, instance, origin, ask).start_run().await
        }
        RoutingResult::Options(allow) => of_nobody(HandlerReply::options_response(&allow)),
        RoutingResult::Delete(path) => {
            let at = format!("DELETE {path}");
            let removal = Box::pin(generation.edition.remove_instance(&path, &origin.held_locks, &at));
            match timeout_at(origin.deadline, pin!(removal)).await {
                Some(removed) => removed.map_err(ScriptError::from)?,
                None => return Err(ScriptError::RunTimeout { limit: setup.limits.timeout.0 }.into()),
            };
            of_nobody(HandlerReply::empty())
        }
        RoutingResult::MethodNotAllowed(allow) => {
            Err(ScriptError::Method { method: ask.method.as_str().to_owned(), allow }.into())
        }
        RoutingResult::NotFound => Err(ScriptError::NotFound.into()),
    }
}

impl ScriptRun {
    /// Returns a boxed run: it is large, and would otherwise be copied from future to future.
    fn new(
        setup: Arc<RunSetup>,
        generation: Arc<ProgramGeneration>,
        handler: usize,
        instance: Option<DynamicInstance>,
        origin: RunOrigin,
        ask: ScriptRequest,
    ) -> Box<Self> {
        generation.pool.note_run();
        let limits = &setup.limits;
        let now = Instant::now();
        let timeout = limits.timeout.0.min(origin.deadline.saturating_duration_since(now));
        let budget = RequestBudget::new_at(
            now,
            timeout,
            limits.calls,
            limits.upstream_bytes.0,
            limits.concurrency as usize,
        );
        let budget = budget.with_parent(&origin.call.budget);
        let call = RequestCall { budget: Arc::new(budget), ..Arc::unwrap_or_clone(origin.call) };
        let origin = RunOrigin { call: Arc::new(call), deadline: now + timeout, ..origin };
        Box::new(Self {
            handler,
            request: ask,
            instance,
            ticket: StateTicket::None,
            held_locks: origin.held_locks.clone(),
            pending_commit: None,
            version: None,
            dispatched: None,
            calls: RunCalls::default(),
            reply: None,
            is_answered: false,
            is_repeatable: true,
            removes_instance: false,
            lost_workers: 0,
            cpu: Duration::ZERO,
            turn: ByteTurn::default(),
            _in_flight: setup.scripts.track_run(),
            origin,
            generation,
            setup,
        })
    }

    /// Waits for its turn and runs; a writer in a task of its own, so that it does not end with its caller.
    async fn start_run(mut self: Box<Self>) -> Result<RunResponse, RunFailure> {
        let entered = timeout_at(self.response_deadline(), pin!(self.prepare())).await;
        if let Err(error) = entered.unwrap_or_else(|| Err(self.deadline_error())) {
            return Err(self.fail_run(error));
        }
        if !matches!(self.ticket, StateTicket::Write(_)) {
            let (answered, rest) = self.run_until_response().await;
            rest.map(|rest| spawn(rest.finish_run()));
            return answered;
        }
        let (answer, answered) = oneshot::channel();
        spawn(async move {
            let (answered, rest) = self.run_until_response().await;
            let _ = answer.send(answered); // The client may have disconnected.
            if let Some(rest) = rest {
                rest.finish_run().await;
            }
        });
        answered.await.unwrap_or_else(|_| Err(ScriptError::WorkerLost.into()))
    }

    /// Waits for its turn and enters a worker, unless the handler has a recipe.
    async fn prepare(&mut self) -> Result<(), ScriptError> {
        let generation = Arc::clone(&self.generation);
        let handler = &generation.service().handlers[self.handler];
        if !handler.cells.is_empty() || self.instance.is_some() {
            // State and captured variables are in the response, and no service has made them public.
            self.origin.call.budget.cache_notes().record_private();
        }
        if !handler.cells.is_empty() {
            // Boxed, since most handlers do not use state, and their futures would otherwise reserve space
            // for it.
            Box::pin(self.acquire_ticket()).await?;
        }
        if let StateTicket::Write(ticket) = &self.ticket {
            self.held_locks = ticket.held_locks();
        }
        match handler.recipe {
            Some(_) => Ok(()),
            None => self.enter_worker(false).await,
        }
    }

    /// Waits until the run may access state.
    async fn acquire_ticket(&mut self) -> Result<(), ScriptError> {
        let generation = Arc::clone(&self.generation);
        let handler = &generation.service().handlers[self.handler];
        let (edition, at) = (&generation.edition, generation.handler_position(self.handler));
        let (number, path, held) = (self.handler, self.request.path.clone(), self.origin.held_locks.clone());
        let ask = || state::StateRequest { handler: number, path: &path, held_locks: &held, position: at };
        while let Some(ticket) = edition.initialisation_ticket(ask()).await? {
            self.initialise_cells(ticket).await?;
        }
        self.ticket = match handler.class {
            ConcurrencyClass::Stateless => StateTicket::None,
            ConcurrencyClass::Reader => StateTicket::Read(edition.read_ticket(ask()).await?),
            ConcurrencyClass::Writer => {
                let _waits = generation.pool.count_waiting_writer();
                StateTicket::Write(edition.write_ticket(ask()).await?)
            }
        };
        Ok(())
    }

    /// Runs until the response; also returns the run, if it continues afterwards.
    async fn run_until_response(mut self: Box<Self>) -> (Result<RunResponse, RunFailure>, Option<Box<Self>>) {
        let result = timeout_at(self.response_deadline(), pin!(self.wait_for_reply())).await;
        match result.unwrap_or_else(|| Err(self.deadline_error())) {
            Ok(reply) => {
                let header_reads = self.generation.service().handlers[self.handler].header_reads.clone();
                let answered =
                    RunResponse { reply, version: self.version, header_reads, cost: self.take_cost() };
                (Ok(answered), (!self.is_completed()).then_some(self))
            }
            Err(error) => (Err(self.fail_run(error)), None),
        }
    }

    /// Completes the run after its response. An error is only logged.
    async fn finish_run(mut self: Box<Self>) {
        let deadline = self.origin.deadline;
        let rest = async {
            while !self.is_completed() {
                self.process_event().await?;
            }
            match self.pending_commit.take() {
                Some(durable) => durable.wait().await.map_err(ScriptError::from),
                None => Ok(()),
            }
        };
        let ended = timeout_at(deadline, pin!(rest)).await;
        let error = match ended {
            Some(Ok(())) => return,
            Some(Err(error)) => error,
            None => self.timeout_error(),
        };
        let at = self.generation.handler_position(self.handler);
        tracing::error!(target: "script", at, "the handler failed after its response: {error}");
    }

    async fn wait_for_reply(&mut self) -> Result<HandlerReply, ScriptError> {
        if self.dispatched.is_none() {
            if let Some(reply) = Box::pin(self.try_inline()).await {
                self.generation.pool.note_inline_run();
                return Ok(reply);
            }
            self.enter_worker(false).await?;
        }
        loop {
            if let Some(reply) = self.process_event().await? {
                self.is_answered = true;
                self.is_repeatable = false;
                return Ok(reply);
            }
        }
    }

    /// Processes one event from the worker or one completed call; returns the response, if it may be sent.
    async fn process_event(&mut self) -> Result<Option<HandlerReply>, ScriptError> {
        match std::future::poll_fn(|context| self.poll_step(context)).await {
            RunStep::CallResult(back) => {
                self.turn.consume_bytes(back.bytes()).await;
                self.handle_call_result(back).await
            }
            RunStep::Event(RunEvent::Message(from)) => {
                self.turn.consume_bytes(0).await;
                let from = match from {
                    frame::WorkerMessage::Long(long) => {
                        let Some(entered) = &self.dispatched else { return Ok(None) };
                        let place = Arc::clone(&entered.slot);
                        Box::pin(self.parse_long_frame(&place, long)).await?
                    }
                    from => from,
                };
                self.handle_message(from).await
            }
            RunStep::Event(RunEvent::Lost { loss, was_busy }) => {
                Box::pin(self.recover_from_loss(&loss, was_busy)).await.map(|()| None)
            }
        }
    }

    /// Parses a long frame in the pool. An invalid frame or a report of damage ends the worker, as a short
    /// one does.
    async fn parse_long_frame(
        &mut self,
        place: &WorkerSlot,
        long: LongFrame,
    ) -> Result<frame::WorkerMessage, ScriptError> {
        let (pool, payer) = (&self.setup.scripts.offload, self.origin.call.quota_key().for_responses());
        let parsed =
            run_then_charge(pool, "script-frame", payer, self.origin.deadline, || long.parse()).await;
        let parsed = parsed.map_err(|error| self.offload_error(error))?;
        if let Ok(frame::WorkerMessage::Fail(fail)) = &parsed
            && fail.is_damage()
        {
            self.generation.record_strike(self.handler, 1);
            place.worker.mark_lost(WorkerLoss::from_damage(place.run, Some(fail.clone())));
        }
        parsed.map_err(|error| {
            place.worker.mark_lost(WorkerLoss::new(format!("its connection: {error}")));
            let at = self.generation.handler_position(self.handler).to_owned();
            ScriptError::Protocol { at, message: error.to_string() }
        })
    }

    fn poll_step(&mut self, context: &mut Context<'_>) -> Poll<RunStep> {
        if let Some(entered) = &self.dispatched
            && let Poll::Ready(event) = entered.slot.poll_event(context)
        {
            return Poll::Ready(RunStep::Event(event));
        }
        if !self.calls.external.is_empty()
            && let Poll::Ready(Some(back)) = self.calls.external.poll_next_unpin(context)
        {
            return Poll::Ready(RunStep::CallResult(back));
        }
        Poll::Pending
    }

    fn is_completed(&self) -> bool {
        self.dispatched.as_ref().is_none_or(|entered| entered.is_completed)
    }

    /// Records that the worker has completed the run.
    fn record_completion(&mut self, cpu_micros: u32) {
        self.cpu += Duration::from_micros(cpu_micros.into());
        if let Some(payer) = &self.origin.call.payer {
            payer.charge(Duration::from_micros(cpu_micros.into()));
        }
        if let Some(entered) = &mut self.dispatched {
            entered.is_completed = true;
        }
    }

    /// Returns the time by which the response must begin: the earlier of the two limits.
    fn response_deadline(&self) -> Instant {
        let deadline = self.origin.deadline;
        self.origin.response_deadline.map_or(deadline, |(moment, _)| moment.min(deadline))
    }

    /// Returns the error for a response that did not begin in time.
    fn deadline_error(&self) -> ScriptError {
        match self.origin.response_deadline {
            Some((moment, limit)) if moment < self.origin.deadline => ScriptError::RouteDeadline { limit },
            _ => self.timeout_error(),
        }
    }

    /// Returns the error for a removed resource.
    fn removed_error(&self) -> ScriptError {
        ScriptError::StateAccess(state::StateError::ResourceRemoved {
            path: self.request.path.as_str().into(),
        })
    }

    fn timeout_error(&self) -> ScriptError {
        ScriptError::RunTimeout { limit: self.setup.limits.timeout.0 }
    }

    /// Returns the error for work that the pool did not do.
    fn offload_error(&self, error: OffloadError) -> ScriptError {
        match error {
            OffloadError::DeadlineExceeded => self.deadline_error(),
            _ => UnfinishedResponse.into(),
        }
    }

    fn take_cost(&self) -> RunCost {
        RunCost { made: self.origin.call.budget.take_call_records(), cpu: self.cpu }
    }

    /// Ends a run without a response. A writer's turn ends without a commit, although its worker may have
    /// completed the run: its response is invalid, or was not read in time.
    fn fail_run(&mut self, error: ScriptError) -> RunFailure {
        if self.dispatched.is_some()
            && let StateTicket::Write(ticket) = std::mem::replace(&mut self.ticket, StateTicket::None)
        {
            self.dispatched = None; // The worker rolls back the run's writes before the next writer's turn.
            ticket.abandon();
        }
        let is_removed = self.instance.as_ref().is_some_and(DynamicInstance::is_removed);
        let error = match error {
            // The run's writes could not be stored because its resource has been removed.
            ScriptError::StateAccess(state::StateError::Store(_)) if is_removed => self.removed_error(),
            error => error,
        };
        RunFailure { error, cost: self.take_cost() }
    }
}

enum RunStep {
    Event(RunEvent),
    CallResult(CallResult),
}

impl<E: Into<ScriptError>> std::convert::From<E> for RunFailure {
    fn from(error: E) -> Self {
        Self { error: error.into(), cost: RunCost::default() }
    }
}
