//! A run: from what is asked of a handler to its answer, and on to its end.
//!
//! By its class it has nothing to do with state, reads the last durable version, or is its group's only writer until it
//! commits. What a writer answers is held back until its writes are durable. The run belongs to whoever asked: it ends
//! with them, but for writers, which go on to their end, and for what a handler does behind its `respond`.
//!
//! `composed.rs` answers without a worker, by a recipe. Otherwise `entered.rs` is its way into one, `heard.rs` what is
//! said of it there, `calls.rs` what its resource calls do, `lost.rs` what becomes of it when its worker is lost.

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
use script::{Class, HeaderReads};
use services::{Budget, Call, Made, by};
use tokio::sync::oneshot;

use crate::answer::Reply;
use crate::ask::Ask;
use crate::generation::Generation;
use crate::problem::ScriptError;
use crate::scripts::UnderWay;
use crate::setup::Setup;
use crate::state::{self, Durable, Held, Instance, ReadTicket, WriteTicket};
use crate::table::Found;
use crate::workers::Event;
use calls::{Back, Calls};
use entered::Entered;

/// What is asked of a service, by whom.
pub(crate) struct Asked {
    pub(crate) setup: Arc<Setup>,
    pub(crate) generation: Arc<Generation>,
    pub(crate) origin: Origin,
    pub(crate) ask: Ask,
}

/// On whose behalf something is asked.
#[derive(Clone)]
pub(crate) struct Origin {
    /// Caller, trace and hops; each run has a budget of its own.
    pub(crate) call: Arc<Call>,
    /// What is held by those who wait for the answer.
    pub(crate) held: Held,
    /// When nobody waits any more.
    pub(crate) deadline: Instant,
    /// When a client's answer has to begin, and how long it had.
    pub(crate) answer_by: Option<(Instant, Duration)>,
}

/// An answer, and what it took.
pub(crate) struct Answered {
    pub(crate) reply: Reply,
    /// The state's version that was seen or made.
    pub(crate) version: Option<u64>,
    /// Which of the client's headers may have shaped it.
    pub(crate) header_reads: HeaderReads,
    pub(crate) cost: Cost,
}

/// What a run took.
#[derive(Default)]
pub(crate) struct Cost {
    pub(crate) made: Vec<Made>,
    pub(crate) cpu: Duration,
}

/// A run that did not answer.
pub(crate) struct Failure {
    pub(crate) error: ScriptError,
    pub(crate) cost: Cost,
}

/// A run that is under way.
pub(crate) struct Run {
    setup: Arc<Setup>,
    generation: Arc<Generation>,
    handler: usize,
    ask: Ask,
    instance: Option<Instance>,
    /// Its call has the run's own budget.
    origin: Origin,
    /// Before the ticket, so that it goes before it: the worker has undone what it wrote when the next writer's turn comes.
    entered: Option<Entered>,
    ticket: Ticket,
    held: Held,
    /// What was committed, on its way to the disk.
    durable: Option<Durable>,
    version: Option<u64>,
    calls: Calls,
    /// Given, and held back until what was written is durable.
    reply: Option<Reply>,
    is_answered: bool,
    /// Whether nobody could tell if it was run once more: no unsafe call was made, nothing committed or answered.
    is_clean: bool,
    removes: bool,
    lost: u32,
    cpu: Duration,
    _under_way: UnderWay,
}

/// A run's right to look at state.
enum Ticket {
    None,
    Read(ReadTicket),
    Write(WriteTicket),
}

/// Answers what is asked, by a handler or without one.
pub(crate) async fn answer(asked: Asked) -> Result<Answered, Failure> {
    let Asked { setup, generation, origin, ask } = asked;
    let found = generation.table.find(generation.service(), &generation.edition, Some(ask.method), &ask.path);
    let of_nobody = |reply| {
        let header_reads = HeaderReads::Named(Vec::new());
        Ok(Answered { reply, version: None, header_reads, cost: Cost::default() })
    };
    match found.await.map_err(ScriptError::from)? {
        Found::Handler { handler, path, instance } => {
            let ask = Ask { path, ..ask };
            Run::new(setup, generation, handler, instance, origin, ask).begin().await
        }
        Found::Options(allow) => of_nobody(Reply::options(&allow)),
        Found::Delete(path) => {
            let at = format!("DELETE {path}");
            let removal = Box::pin(generation.edition.remove(&path, &origin.held, &at));
            match by(origin.deadline, pin!(removal)).await {
                Some(removed) => removed.map_err(ScriptError::from)?,
                None => return Err(ScriptError::Wall { limit: setup.limits.wall.0 }.into()),
            };
            of_nobody(Reply::empty())
        }
        Found::Method(allow) => {
            Err(ScriptError::Method { method: ask.method.word().to_owned(), allow }.into())
        }
        Found::Nothing => Err(ScriptError::NotFound.into()),
    }
}

impl Run {
    /// Boxed, since it is large, and would be copied from one future into the next.
    fn new(
        setup: Arc<Setup>,
        generation: Arc<Generation>,
        handler: usize,
        instance: Option<Instance>,
        origin: Origin,
        ask: Ask,
    ) -> Box<Self> {
        generation.pool.note_run();
        let limits = &setup.limits;
        let now = Instant::now();
        let wall = limits.wall.0.min(origin.deadline.saturating_duration_since(now));
        let budget = Budget::since(now, wall, limits.calls, limits.received.0, limits.parallel as usize);
        let budget = budget.part_of(&origin.call.budget);
        let call = Call { budget: Arc::new(budget), ..Arc::unwrap_or_clone(origin.call) };
        let origin = Origin { call: Arc::new(call), deadline: now + wall, ..origin };
        Box::new(Self {
            handler,
            ask,
            instance,
            ticket: Ticket::None,
            held: origin.held.clone(),
            durable: None,
            version: None,
            entered: None,
            calls: Calls::default(),
            reply: None,
            is_answered: false,
            is_clean: true,
            removes: false,
            lost: 0,
            cpu: Duration::ZERO,
            _under_way: setup.scripts.begin(),
            origin,
            generation,
            setup,
        })
    }

    /// Gets in line and runs: a writer in a task of its own, which nobody's leaving ends.
    async fn begin(mut self: Box<Self>) -> Result<Answered, Failure> {
        let entered = by(self.answer_by(), pin!(self.prepare())).await;
        if let Err(error) = entered.unwrap_or_else(|| Err(self.late())) {
            return Err(self.failed(error));
        }
        if !matches!(self.ticket, Ticket::Write(_)) {
            let (answered, rest) = self.first().await;
            rest.map(|rest| tokio::spawn(rest.finish()));
            return answered;
        }
        let (answer, answered) = oneshot::channel();
        tokio::spawn(async move {
            let (answered, rest) = self.first().await;
            let _ = answer.send(answered); // Its client may have left.
            if let Some(rest) = rest {
                rest.finish().await;
            }
        });
        answered.await.unwrap_or_else(|_| Err(ScriptError::Lost.into()))
    }

    /// Waits for its turn, and is sent to a worker, unless it can perhaps do without.
    async fn prepare(&mut self) -> Result<(), ScriptError> {
        let generation = Arc::clone(&self.generation);
        let handler = &generation.service().handlers[self.handler];
        if !handler.cells.is_empty() {
            // Boxed, since most handlers have nothing to do with state, and their futures would keep the room for it.
            Box::pin(self.line_up()).await?;
        }
        if let Ticket::Write(ticket) = &self.ticket {
            self.held = ticket.held();
        }
        match handler.recipe {
            Some(_) => Ok(()),
            None => self.enter(false).await,
        }
    }

    /// Waits until it may look at state.
    async fn line_up(&mut self) -> Result<(), ScriptError> {
        let generation = Arc::clone(&self.generation);
        let handler = &generation.service().handlers[self.handler];
        let (edition, at) = (&generation.edition, generation.place(self.handler));
        let (number, path, held) = (self.handler, self.ask.path.clone(), self.origin.held.clone());
        let ask = || state::Ask { handler: number, path: &path, held: &held, at };
        while let Some(ticket) = edition.initialise(ask()).await? {
            self.initialise(ticket).await?;
        }
        self.ticket = match handler.class {
            Class::Stateless => Ticket::None,
            Class::Reader => Ticket::Read(edition.read(ask()).await?),
            Class::Writer => {
                let _waits = generation.pool.waits();
                Ticket::Write(edition.write(ask()).await?)
            }
        };
        Ok(())
    }

    /// To the answer; what is left to do behind it comes along.
    async fn first(mut self: Box<Self>) -> (Result<Answered, Failure>, Option<Box<Self>>) {
        let result = by(self.answer_by(), pin!(self.until_answer())).await;
        match result.unwrap_or_else(|| Err(self.late())) {
            Ok(reply) => {
                let header_reads = self.generation.service().handlers[self.handler].header_reads.clone();
                let answered = Answered { reply, version: self.version, header_reads, cost: self.cost() };
                (Ok(answered), (!self.is_over()).then_some(self))
            }
            Err(error) => (Err(self.failed(error)), None),
        }
    }

    /// What a handler does behind its answer. Nobody hears of an error but the log.
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
        let ended = by(deadline, pin!(rest)).await;
        let error = match ended {
            Some(Ok(())) => return,
            Some(Err(error)) => error,
            None => self.over_wall(),
        };
        let at = self.generation.place(self.handler);
        tracing::error!(target: "script", at, "behind its answer, the handler failed: {error}");
    }

    async fn until_answer(&mut self) -> Result<Reply, ScriptError> {
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

    /// One thing that is said of the run or comes back to it; the answer, if that may go.
    async fn step(&mut self) -> Result<Option<Reply>, ScriptError> {
        match std::future::poll_fn(|context| self.poll(context)).await {
            Step::Back(back) => self.back(back).await,
            Step::Event(Event::From(from)) => self.hear(from).await,
            Step::Event(Event::Lost { loss, was_busy }) => {
                Box::pin(self.lost(&loss, was_busy)).await.map(|()| None)
            }
        }
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Step> {
        if let Some(entered) = &self.entered
            && let Poll::Ready(event) = entered.place.poll_event(context)
        {
            return Poll::Ready(Step::Event(event));
        }
        if !self.calls.outside.is_empty()
            && let Poll::Ready(Some(back)) = self.calls.outside.poll_next_unpin(context)
        {
            return Poll::Ready(Step::Back(back));
        }
        Poll::Pending
    }

    fn is_over(&self) -> bool {
        self.entered.as_ref().is_none_or(|entered| entered.is_over)
    }

    /// Its worker is done with it.
    fn over(&mut self, cpu_micros: u32) {
        self.cpu += Duration::from_micros(cpu_micros.into());
        if let Some(payer) = &self.origin.call.payer {
            payer.charge(Duration::from_micros(cpu_micros.into()));
        }
        if let Some(entered) = &mut self.entered {
            entered.is_over = true;
        }
    }

    /// When its answer has to begin: the smaller limit holds.
    fn answer_by(&self) -> Instant {
        let deadline = self.origin.deadline;
        self.origin.answer_by.map_or(deadline, |(moment, _)| moment.min(deadline))
    }

    /// Its answer did not begin in time.
    fn late(&self) -> ScriptError {
        match self.origin.answer_by {
            Some((moment, limit)) if moment < self.origin.deadline => ScriptError::Deadline { limit },
            _ => self.over_wall(),
        }
    }

    /// Its resource was removed.
    fn gone(&self) -> ScriptError {
        ScriptError::Kept(state::Error::Gone { path: self.ask.path.as_str().into() })
    }

    fn over_wall(&self) -> ScriptError {
        ScriptError::Wall { limit: self.setup.limits.wall.0 }
    }

    fn cost(&self) -> Cost {
        Cost { made: self.origin.call.budget.take_made(), cpu: self.cpu }
    }

    fn failed(&self, error: ScriptError) -> Failure {
        let is_removed = self.instance.as_ref().is_some_and(Instance::is_removed);
        let error = match error {
            // What it wrote could not be kept, since its resource is no longer there.
            ScriptError::Kept(state::Error::Store(_)) if is_removed => self.gone(),
            error => error,
        };
        Failure { error, cost: self.cost() }
    }
}

enum Step {
    Event(Event),
    Back(Back),
}

impl<E: Into<ScriptError>> std::convert::From<E> for Failure {
    fn from(error: E) -> Self {
        Self { error: error.into(), cost: Cost::default() }
    }
}
