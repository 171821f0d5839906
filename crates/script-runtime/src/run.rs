//! Runs: the execution of a handler, from the request to its response and until it has ended.
//!
//! Depending on its handler's class, a run does not access state, reads the last durable version, or is the
//! only writer of its group until it commits. A writer's response is held back until its writes are durable.
//! A run belongs to its caller and ends with it, except that a writer continues to its end, and so does the
//! work of a handler after `respond`.
//!
//! `composed.rs` responds without a worker, by a recipe. Otherwise `entered.rs` sends the run to a worker,
//! `heard.rs` handles the worker's messages, `calls.rs` makes resource calls, and `lost.rs` handles the loss
//! of the worker.

mod calls;
mod composed;
mod entered;
mod heard;
mod lost;

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

use crate::answer::HandlerReply;
use crate::ask::ScriptRequest;
use crate::frame::{self, LongFrame};
use crate::generation::ProgramGeneration;
use crate::problem::ScriptError;
use crate::scripts::RunInFlightGuard;
use crate::setup::RunSetup;
use crate::state::{self, DurableCommit, DynamicInstance, HeldLocks, ReadTicket, WriteTicket};
use crate::table::RoutingResult;
use crate::work::{at_once, spawn};
use crate::workers::{RunEvent, WorkerLoss, WorkerSlot};
use calls::{CallResult, RunCalls};
use entered::DispatchedRun;

/// A request to a service, with its origin.
pub(crate) struct RunRequest {
    pub(crate) setup: Arc<RunSetup>,
    pub(crate) generation: Arc<ProgramGeneration>,
    pub(crate) origin: RunOrigin,
    pub(crate) ask: ScriptRequest,
}

/// The origin of a request.
#[derive(Clone)]
pub(crate) struct RunOrigin {
    /// The caller, trace and hops; each run has a budget of its own.
    pub(crate) call: Arc<RequestCall>,
    /// The groups that are locked by the runs waiting for the response.
    pub(crate) held: HeldLocks,
    /// The time at which the caller stops waiting.
    pub(crate) deadline: Instant,
    /// The time by which a client's response must begin, and the corresponding limit.
    pub(crate) answer_by: Option<(Instant, Duration)>,
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
    ask: ScriptRequest,
    instance: Option<DynamicInstance>,
    /// The origin, whose call contains the run's own budget.
    origin: RunOrigin,
    /// Declared before the ticket, so that it is dropped first: the worker must roll back the run's writes
    /// before the next writer's turn.
    entered: Option<DispatchedRun>,
    ticket: StateTicket,
    held: HeldLocks,
    /// The run's commit, until it is durable.
    durable: Option<DurableCommit>,
    version: Option<u64>,
    calls: RunCalls,
    /// The response, held back until the run's writes are durable.
    reply: Option<HandlerReply>,
    is_answered: bool,
    /// Whether the run can be repeated without a visible effect: it has made no unsafe call, committed
    /// nothing and not responded.
    is_clean: bool,
    removes: bool,
    lost: u32,
    cpu: Duration,
    turn: ByteTurn,
    _under_way: RunInFlightGuard,
}

/// A run's permission to access state.
enum StateTicket {
    None,
    Read(ReadTicket),
    Write(WriteTicket),
}

/// Handles a request, with or without a handler.
pub(crate) async fn answer(asked: RunRequest) -> Result<RunResponse, RunFailure> {
    let RunRequest { setup, generation, origin, ask } = asked;
    let found = generation.table.find(generation.service(), &generation.edition, Some(ask.method), &ask.path);
    let of_nobody = |reply| {
        let header_reads = HeaderReads::Named(Vec::new());
        Ok(RunResponse { reply, version: None, header_reads, cost: RunCost::default() })
    };
    match found.await.map_err(ScriptError::from)? {
        RoutingResult::Handler { handler, path, instance } => {
            let ask = ScriptRequest { path, ..ask };
            ScriptRun::new(setup, generation, handler, instance, origin, ask).begin().await
        }
        RoutingResult::Options(allow) => of_nobody(HandlerReply::options(&allow)),
        RoutingResult::Delete(path) => {
            let at = format!("DELETE {path}");
            let removal = Box::pin(generation.edition.remove(&path, &origin.held, &at));
            match timeout_at(origin.deadline, pin!(removal)).await {
                Some(removed) => removed.map_err(ScriptError::from)?,
                None => return Err(ScriptError::Wall { limit: setup.limits.timeout.0 }.into()),
            };
            of_nobody(HandlerReply::empty())
        }
        RoutingResult::Method(allow) => {
            Err(ScriptError::Method { method: ask.method.word().to_owned(), allow }.into())
        }
        RoutingResult::Nothing => Err(ScriptError::NotFound.into()),
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
            ask,
            instance,
            ticket: StateTicket::None,
            held: origin.held.clone(),
            durable: None,
            version: None,
            entered: None,
            calls: RunCalls::default(),
            reply: None,
            is_answered: false,
            is_clean: true,
            removes: false,
            lost: 0,
            cpu: Duration::ZERO,
            turn: ByteTurn::default(),
            _under_way: setup.scripts.begin(),
            origin,
            generation,
            setup,
        })
    }

    /// Waits for its turn and runs; a writer in a task of its own, so that it does not end with its caller.
    async fn begin(mut self: Box<Self>) -> Result<RunResponse, RunFailure> {
        let entered = timeout_at(self.answer_by(), pin!(self.prepare())).await;
        if let Err(error) = entered.unwrap_or_else(|| Err(self.late())) {
            return Err(self.failed(error));
        }
        if !matches!(self.ticket, StateTicket::Write(_)) {
            let (answered, rest) = self.first().await;
            rest.map(|rest| spawn(rest.finish()));
            return answered;
        }
        let (answer, answered) = oneshot::channel();
        spawn(async move {
            let (answered, rest) = self.first().await;
            let _ = answer.send(answered); // The client may have disconnected.
            if let Some(rest) = rest {
                rest.finish().await;
            }
        });
        answered.await.unwrap_or_else(|_| Err(ScriptError::Lost.into()))
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
            Box::pin(self.line_up()).await?;
        }
        if let StateTicket::Write(ticket) = &self.ticket {
            self.held = ticket.held();
        }
        match handler.recipe {
            Some(_) => Ok(()),
            None => self.enter(false).await,
        }
    }

    /// Waits until the run may access state.
    async fn line_up(&mut self) -> Result<(), ScriptError> {
        let generation = Arc::clone(&self.generation);
        let handler = &generation.service().handlers[self.handler];
        let (edition, at) = (&generation.edition, generation.place(self.handler));
        let (number, path, held) = (self.handler, self.ask.path.clone(), self.origin.held.clone());
        let ask = || state::StateRequest { handler: number, path: &path, held: &held, at };
        while let Some(ticket) = edition.initialise(ask()).await? {
            self.initialise(ticket).await?;
        }
        self.ticket = match handler.class {
            ConcurrencyClass::Stateless => StateTicket::None,
            ConcurrencyClass::Reader => StateTicket::Read(edition.read(ask()).await?),
            ConcurrencyClass::Writer => {
                let _waits = generation.pool.waits();
                StateTicket::Write(edition.write(ask()).await?)
            }
        };
        Ok(())
    }

    /// Runs until the response; also returns the run, if it continues afterwards.
    async fn first(mut self: Box<Self>) -> (Result<RunResponse, RunFailure>, Option<Box<Self>>) {
        let result = timeout_at(self.answer_by(), pin!(self.until_answer())).await;
        match result.unwrap_or_else(|| Err(self.late())) {
            Ok(reply) => {
                let header_reads = self.generation.service().handlers[self.handler].header_reads.clone();
                let answered = RunResponse { reply, version: self.version, header_reads, cost: self.cost() };
                (Ok(answered), (!self.is_over()).then_some(self))
            }
            Err(error) => (Err(self.failed(error)), None),
        }
    }

    /// Completes the run after its response. An error is only logged.
    async fn finish(mut self: Box<Self>) {
        let deadline = self.origin.deadline;
        let rest = async {
            while !self.is_over() {
                self.step().await?;
            }
            match self.durable.take() {
                Some(durable) => durable.wait().await.map_err(ScriptError::from),
                None => Ok(()),
            }
        };
        let ended = timeout_at(deadline, pin!(rest)).await;
        let error = match ended {
            Some(Ok(())) => return,
            Some(Err(error)) => error,
            None => self.over_wall(),
        };
        let at = self.generation.place(self.handler);
        tracing::error!(target: "script", at, "the handler failed after its response: {error}");
    }

    async fn until_answer(&mut self) -> Result<HandlerReply, ScriptError> {
        if self.entered.is_none() {
            if let Some(reply) = Box::pin(self.composed()).await {
                self.generation.pool.note_composed();
                return Ok(reply);
            }
            self.enter(false).await?;
        }
        loop {
            if let Some(reply) = self.step().await? {
                self.is_answered = true;
                self.is_clean = false;
                return Ok(reply);
            }
        }
    }

    /// Processes one event from the worker or one completed call; returns the response, if it may be sent.
    async fn step(&mut self) -> Result<Option<HandlerReply>, ScriptError> {
        match std::future::poll_fn(|context| self.poll(context)).await {
            RunStep::Back(back) => {
                self.turn.consume_bytes(back.bytes()).await;
                self.back(back).await
            }
            RunStep::Event(RunEvent::From(from)) => {
                self.turn.consume_bytes(0).await;
                let from = match from {
                    frame::WorkerMessage::Long(long) => {
                        let Some(entered) = &self.entered else { return Ok(None) };
                        let place = Arc::clone(&entered.place);
                        Box::pin(self.parsed(&place, long)).await?
                    }
                    from => from,
                };
                self.hear(from).await
            }
            RunStep::Event(RunEvent::Lost { loss, was_busy }) => {
                Box::pin(self.lost(&loss, was_busy)).await.map(|()| None)
            }
        }
    }

    /// Parses a long frame in the pool. An invalid frame or a report of damage ends the worker, as a short
    /// one does.
    async fn parsed(
        &mut self,
        place: &WorkerSlot,
        long: LongFrame,
    ) -> Result<frame::WorkerMessage, ScriptError> {
        let (pool, payer) = (&self.setup.scripts.offload, self.origin.call.quota_key().for_responses());
        let parsed = at_once(pool, "script-frame", payer, self.origin.deadline, || long.parse()).await;
        let parsed = parsed.map_err(|error| self.unfinished(error))?;
        if let Ok(frame::WorkerMessage::Fail(fail)) = &parsed
            && fail.is_damage()
        {
            self.generation.strike(self.handler, 1);
            place.worker.lose(WorkerLoss::damage(place.run, Some(fail.clone())));
        }
        parsed.map_err(|error| {
            place.worker.lose(WorkerLoss::of(format!("its connection: {error}")));
            let at = self.generation.place(self.handler).to_owned();
            ScriptError::Protocol { at, message: error.to_string() }
        })
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<RunStep> {
        if let Some(entered) = &self.entered
            && let Poll::Ready(event) = entered.place.poll_event(context)
        {
            return Poll::Ready(RunStep::Event(event));
        }
        if !self.calls.outside.is_empty()
            && let Poll::Ready(Some(back)) = self.calls.outside.poll_next_unpin(context)
        {
            return Poll::Ready(RunStep::Back(back));
        }
        Poll::Pending
    }

    fn is_over(&self) -> bool {
        self.entered.as_ref().is_none_or(|entered| entered.is_over)
    }

    /// Records that the worker has completed the run.
    fn over(&mut self, cpu_micros: u32) {
        self.cpu += Duration::from_micros(cpu_micros.into());
        if let Some(payer) = &self.origin.call.payer {
            payer.charge(Duration::from_micros(cpu_micros.into()));
        }
        if let Some(entered) = &mut self.entered {
            entered.is_over = true;
        }
    }

    /// Returns the time by which the response must begin: the earlier of the two limits.
    fn answer_by(&self) -> Instant {
        let deadline = self.origin.deadline;
        self.origin.answer_by.map_or(deadline, |(moment, _)| moment.min(deadline))
    }

    /// Returns the error for a response that did not begin in time.
    fn late(&self) -> ScriptError {
        match self.origin.answer_by {
            Some((moment, limit)) if moment < self.origin.deadline => ScriptError::Deadline { limit },
            _ => self.over_wall(),
        }
    }

    /// Returns the error for a removed resource.
    fn gone(&self) -> ScriptError {
        ScriptError::Kept(state::StateError::Gone { path: self.ask.path.as_str().into() })
    }

    fn over_wall(&self) -> ScriptError {
        ScriptError::Wall { limit: self.setup.limits.timeout.0 }
    }

    /// Returns the error for work that the pool did not do.
    fn unfinished(&self, error: OffloadError) -> ScriptError {
        match error {
            OffloadError::DeadlineExceeded => self.late(),
            _ => UnfinishedResponse.into(),
        }
    }

    fn cost(&self) -> RunCost {
        RunCost { made: self.origin.call.budget.take_call_records(), cpu: self.cpu }
    }

    /// Ends a run without a response. A writer's turn ends without a commit, although its worker may have
    /// completed the run: its response is invalid, or was not read in time.
    fn failed(&mut self, error: ScriptError) -> RunFailure {
        if self.entered.is_some()
            && let StateTicket::Write(ticket) = std::mem::replace(&mut self.ticket, StateTicket::None)
        {
            self.entered = None; // The worker rolls back the run's writes before the next writer's turn.
            ticket.give_up();
        }
        let is_removed = self.instance.as_ref().is_some_and(DynamicInstance::is_removed);
        let error = match error {
            // The run's writes could not be stored because its resource has been removed.
            ScriptError::Kept(state::StateError::Store(_)) if is_removed => self.gone(),
            error => error,
        };
        RunFailure { error, cost: self.cost() }
    }
}

enum RunStep {
    Event(RunEvent),
    Back(CallResult),
}

impl<E: Into<ScriptError>> std::convert::From<E> for RunFailure {
    fn from(error: E) -> Self {
        Self { error: error.into(), cost: RunCost::default() }
    }
}
