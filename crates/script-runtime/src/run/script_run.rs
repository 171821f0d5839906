//! A run in flight, from its turn to its end. It reacts to the messages of its worker and to the results of
//! its calls.

use std::future::poll_fn;
use std::pin::pin;
use std::task::{Context, Poll};
use std::time::Duration;

use services::coop::ByteTurn;
use services::timeout_at;
use tokio::sync::oneshot;

use super::call_result::CallResult;
use super::calls::RunCalls;
use super::inline_run::try_inline;
use super::run_context::RunContext;
use super::run_reply::{RunReply, convert_answer};
use super::state_access::{RunStateAccess, initialisation_ticket};
use super::worker_session::{WorkerSession, parse_long_frame};
use super::{RunCost, RunFailure, RunResponse};
use crate::frame::WorkerMessage;
use crate::http_message::handler_reply::HandlerReply;
use crate::problem::ScriptError;
use crate::runtime::RunInFlightGuard;
use crate::state::StateError;
use crate::work::spawn;
use crate::workers::{RunEvent, WorkerLoss};

/// A run in flight.
pub(super) struct ScriptRun {
    context: RunContext,
    /// Declared before the state, so that it is dropped first: the worker must roll back the run's writes
    /// before the next writer's turn.
    session: WorkerSession,
    state: RunStateAccess,
    calls: RunCalls,
    reply: RunReply,
    cpu: Duration,
    turn: ByteTurn,
    _in_flight: RunInFlightGuard,
}

/// An event that a run reacts to.
enum RunStep {
    Event(RunEvent),
    CallResult(CallResult),
}

impl ScriptRun {
    /// Returns a boxed run: it is large, and would otherwise be copied from future to future.
    pub(super) fn new(context: RunContext) -> Box<Self> {
        Box::new(Self {
            session: WorkerSession::new(),
            state: RunStateAccess::new(context.origin.held_locks.clone()),
            calls: RunCalls::default(),
            reply: RunReply::default(),
            cpu: Duration::ZERO,
            turn: ByteTurn::default(),
            _in_flight: context.setup.scripts.track_run(),
            context,
        })
    }

    /// Waits for its turn and runs; a writer in a task of its own, so that it does not end with its caller.
    pub(super) async fn start(mut self: Box<Self>) -> Result<RunResponse, RunFailure> {
        let prepared = timeout_at(self.context.response_deadline(), pin!(self.prepare())).await;
        if let Err(error) = prepared.unwrap_or_else(|| Err(self.context.deadline_error())) {
            return Err(self.fail(error));
        }
        if !self.state.is_writer() {
            let (response, run) = self.run_until_response().await;
            run.map(|script_run| spawn(script_run.finish()));
            return response;
        }
        let (answer, answered) = oneshot::channel();
        spawn(async move {
            let (run_response, rest) = self.run_until_response().await;
            let _ = answer.send(run_response); // The client may have disconnected.
            if let Some(rest) = rest {
                rest.finish().await;
            }
        });
        answered.await.unwrap_or_else(|_| Err(ScriptError::WorkerLost.into()))
    }

    /// Waits for its turn and enters a worker, unless the handler has a recipe.
    async fn prepare(&mut self) -> Result<(), ScriptError> {
        let handler = self.context.handler();
        let (has_cells, has_recipe) = (!handler.cells.is_empty(), handler.recipe.is_some());
        if has_cells || self.context.instance.is_some() {
            // State and captured variables are in the response, and no service has made them public.
            self.context.origin.call.budget.cache_notes().record_private();
        }
        if has_cells {
            // Boxed, since most handlers do not use state, and their futures would otherwise reserve space
            // for it.
            Box::pin(self.acquire_state()).await?;
        }
        if has_recipe {
            return Ok(());
        }
        self.session.enter(&self.context, &mut self.state, false).await
    }

    /// Waits until the run may access state; initialises cells that have no value yet.
    async fn acquire_state(&mut self) -> Result<(), ScriptError> {
        while let Some(ticket) = initialisation_ticket(&self.context).await? {
            self.session.initialise_cells(&self.context, ticket).await?;
        }
        self.state.acquire(&self.context).await
    }

    /// Runs until the response; also returns the run, if it continues afterwards.
    async fn run_until_response(mut self: Box<Self>) -> (Result<RunResponse, RunFailure>, Option<Box<Self>>) {
        let result = timeout_at(self.context.response_deadline(), pin!(self.wait_for_reply())).await;
        match result.unwrap_or_else(|| Err(self.context.deadline_error())) {
            Ok(reply) => {
                let header_reads = self.context.handler().header_reads.clone();
                let response = RunResponse {
                    reply,
                    version: self.state.version(),
                    header_reads,
                    cost: self.take_cost(),
                };
                (Ok(response), (!self.session.is_completed()).then_some(self))
            }
            Err(error) => (Err(self.fail(error)), None),
        }
    }

    /// Completes the run after its response. An error is only logged.
    async fn finish(mut self: Box<Self>) {
        let deadline = self.context.origin.deadline;
        let rest = async {
            while !self.session.is_completed() {
                self.process_event().await?;
            }
            self.state.wait_until_durable().await
        };
        let ended = timeout_at(deadline, pin!(rest)).await;
        let error = match ended {
            Some(Ok(())) => return,
            Some(Err(error)) => error,
            None => self.context.timeout_error(),
        };
        let at = self.context.position();
        tracing::error!(target: "script", at, "the handler failed after its response: {error}");
    }

    async fn wait_for_reply(&mut self) -> Result<HandlerReply, ScriptError> {
        if self.session.slot().is_none() {
            let inline = try_inline(&self.context, &mut self.calls, &mut self.turn);
            if let Some(reply) = Box::pin(inline).await {
                self.context.generation.pool.note_inline_run();
                return Ok(reply);
            }
            self.session.enter(&self.context, &mut self.state, false).await?;
        }
        loop {
            if let Some(reply) = self.process_event().await? {
                self.reply.mark_sent();
                self.session.forbid_repetition();
                return Ok(reply);
            }
        }
    }

    /// Processes one event from the worker or one completed call; returns the response, if it may be sent.
    async fn process_event(&mut self) -> Result<Option<HandlerReply>, ScriptError> {
        match poll_fn(|context| self.poll_step(context)).await {
            RunStep::CallResult(result) => {
                self.turn.consume_bytes(result.bytes()).await;
                match self.calls.deliver_result(&self.session, result) {
                    Some(reply) => self.accept_reply(reply).await,
                    None => Ok(None),
                }
            }
            RunStep::Event(RunEvent::Message(message)) => {
                self.turn.consume_bytes(0).await;
                let message = match message {
                    WorkerMessage::Long(long) => {
                        let Some(slot) = self.session.slot() else { return Ok(None) };
                        Box::pin(parse_long_frame(&self.context, slot, long)).await?
                    }
                    message => message,
                };
                self.handle_message(message).await
            }
            RunStep::Event(RunEvent::Lost { loss, was_busy }) => {
                Box::pin(self.recover_from_loss(&loss, was_busy)).await.map(|()| None)
            }
        }
    }

    fn poll_step(&mut self, context: &mut Context<'_>) -> Poll<RunStep> {
        if let Poll::Ready(event) = self.session.poll_event(context) {
            return Poll::Ready(RunStep::Event(event));
        }
        self.calls.poll_result(context).map(RunStep::CallResult)
    }

    /// Handles a message of the worker.
    async fn handle_message(&mut self, message: WorkerMessage) -> Result<Option<HandlerReply>, ScriptError> {
        match message {
            WorkerMessage::Call(call) => {
                self.calls.start_call(&self.context, &mut self.session, &self.state, call).map(|()| None)
            }
            WorkerMessage::Declare(declare) => {
                self.calls.start_declaration(&self.context, &mut self.session, &self.state, declare);
                Ok(None)
            }
            WorkerMessage::Answer(answer) => {
                let reply = convert_answer(&self.context, answer).await?;
                self.accept_reply(reply).await
            }
            WorkerMessage::Commit { changes } => {
                let worker = self.begin_commit();
                self.state.commit(&self.context, worker, changes).await?;
                let reply = self.reply.take();
                self.release_reply(reply).await
            }
            WorkerMessage::RemoveInstance => {
                self.state.set_removes_instance(true);
                Ok(None)
            }
            WorkerMessage::End { answer, changes, cpu_micros } => {
                self.record_completion(cpu_micros);
                let reply = self.reply.take_final(&self.context, answer).await?;
                let worker = self.begin_commit();
                self.state.end(&self.context, worker, changes).await?;
                self.release_reply(reply).await
            }
            WorkerMessage::RespondedTwice { stack } => {
                let at = self.context.error_origin(0, &stack);
                tracing::error!(target: "script", at, "a second `respond` in one run: the first one counts (S rule 13)");
                Ok(None)
            }
            WorkerMessage::Fail(fail) => {
                self.record_completion(0);
                self.state.release(); // The worker has rolled back the run's writes.
                let refused = self.calls.refused_declaration(fail.site);
                Err(self.context.handler_error(fail, refused))
            }
            other => Err(self.context.protocol_error(format!("unexpected for a run: {other:?}"))),
        }
    }

    /// Forbids to repeat a writer, which may commit now. Returns the worker that made the changes.
    fn begin_commit(&mut self) -> Option<u32> {
        if self.state.is_writer() {
            self.session.forbid_repetition();
        }
        self.session.worker_id()
    }

    /// Handles a response; it is sent at once unless writes have to become durable first.
    async fn accept_reply(&mut self, reply: HandlerReply) -> Result<Option<HandlerReply>, ScriptError> {
        let reply = self.reply.accept(&self.context, reply, self.state.is_writer());
        self.release_reply(reply).await
    }

    /// Returns a response once the run's writes are durable.
    async fn release_reply(
        &mut self,
        reply: Option<HandlerReply>,
    ) -> Result<Option<HandlerReply>, ScriptError> {
        if reply.is_some() {
            self.state.wait_until_durable().await?;
        }
        Ok(reply)
    }

    /// Records that the worker has completed the run.
    fn record_completion(&mut self, cpu_micros: u32) {
        let cpu = Duration::from_micros(cpu_micros.into());
        self.cpu += cpu;
        if let Some(payer) = &self.context.origin.call.payer {
            payer.charge(cpu);
        }
        self.session.mark_completed();
    }

    /// Repeats the run after the loss of its worker, if that has no visible effect.
    async fn recover_from_loss(&mut self, loss: &WorkerLoss, was_busy: bool) -> Result<(), ScriptError> {
        let failure = loss.failure.as_ref();
        let refused = failure.and_then(|fail| self.calls.refused_declaration(fail.site));
        let is_suspect = self.session.leave_lost_worker(&self.context, loss, was_busy, refused)?;
        self.calls.reset();
        self.reply.discard();
        self.state.set_removes_instance(false);
        if is_suspect {
            let at = self.context.position();
            tracing::warn!(
                target: "script", at,
                "the worker ended, perhaps because of the handler, which is run again, alone: {}", loss.text
            );
        }
        self.session.enter(&self.context, &mut self.state, is_suspect).await
    }

    fn take_cost(&self) -> RunCost {
        RunCost { made: self.context.origin.call.budget.take_call_records(), cpu: self.cpu }
    }

    /// Ends a run without a response. A writer's turn ends without a commit, although its worker may have
    /// completed the run: its response is invalid, or was not read in time.
    fn fail(&mut self, error: ScriptError) -> RunFailure {
        if self.session.slot().is_some()
            && let Some(ticket) = self.state.take_write_ticket()
        {
            self.session.leave(); // The worker rolls back the run's writes before the next writer's turn.
            ticket.abandon();
        }
        let error = match error {
            // The run's writes could not be stored because its resource has been removed.
            ScriptError::StateAccess(StateError::Store(_)) if self.context.is_instance_removed() => {
                self.context.removed_error()
            }
            error => error,
        };
        RunFailure { error, cost: self.take_cost() }
    }
}
