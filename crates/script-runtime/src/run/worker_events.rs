//! A worker's messages about a run: its response, its commit, its end. A writer's response is held back here
//! until its writes are durable.

use bytes::Bytes;

use super::{ScriptRun, StateTicket};
use crate::frame::{self, WorkerMessage};
use crate::handler_reply::HandlerReply;
use crate::problem::ScriptError;
use crate::work::run_then_charge;

/// The maximum length of headers, as JSON, that are read on the serving thread: a byte takes up to 50 ns.
const SHORT_HEADERS: usize = 8 << 10;

impl ScriptRun {
    /// Handles a message of the worker.
    pub(super) async fn handle_message(
        &mut self,
        from: WorkerMessage,
    ) -> Result<Option<HandlerReply>, ScriptError> {
        match from {
            WorkerMessage::Call(call) => self.start_call(call).map(|()| None),
            WorkerMessage::Declare(declare) => {
                self.start_declaration(declare);
                Ok(None)
            }
            WorkerMessage::Answer(answer) => {
                let reply = self.convert_reply(answer).await?;
                self.accept_reply(reply).await
            }
            WorkerMessage::Commit { changes } => {
                self.commit_changes(changes).await?;
                match self.reply.take() {
                    Some(reply) => self.release_reply(reply).await,
                    None => Ok(None),
                }
            }
            WorkerMessage::RemoveInstance => {
                self.removes_instance = true;
                Ok(None)
            }
            WorkerMessage::End { answer, changes, cpu_micros } => {
                self.record_completion(cpu_micros);
                self.handle_end(answer, changes).await
            }
            WorkerMessage::RespondedTwice { stack } => {
                let at = self.generation.error_origin(self.handler, 0, &stack);
                tracing::error!(target: "script", at, "a second `respond` in one run: the first one counts (S rule 13)");
                Ok(None)
            }
            WorkerMessage::Fail(fail) => {
                self.record_completion(0);
                self.ticket = StateTicket::None; // The worker has rolled back the run's writes.
                Err(self.handler_error(fail))
            }
            other => {
                let at = self.generation.handler_position(self.handler).to_owned();
                Err(ScriptError::Protocol { at, message: format!("unexpected for a run: {other:?}") })
            }
        }
    }

    async fn handle_end(
        &mut self,
        answer: Option<frame::HandlerAnswer>,
        changes: Option<Bytes>,
    ) -> Result<Option<HandlerReply>, ScriptError> {
        // A handler can respond once: the first response is used.
        let given = if self.is_answered { None } else { self.reply.take() };
        let reply = match (given, answer) {
            _ if self.is_answered => None,
            (Some(reply), _) => Some(reply),
            (None, Some(answer)) => Some(self.convert_reply(answer).await?),
            (None, None) => Some(HandlerReply::empty()),
        };
        match (changes, self.removes_instance) {
            (None, false) => self.ticket = StateTicket::None,
            (changes, _) => self.commit_changes(changes.unwrap_or_default()).await?,
        }
        if self.removes_instance && !matches!(self.ticket, StateTicket::Write(_)) {
            let at = self.generation.handler_position(self.handler);
            Box::pin(self.generation.edition.remove_instance(&self.request.path, &self.held_locks, at))
                .await?;
        }
        match reply {
            Some(reply) => self.release_reply(reply).await,
            None => Ok(None),
        }
    }

    /// Handles a response; it is sent at once unless writes have to become durable first.
    pub(super) async fn accept_reply(
        &mut self,
        reply: HandlerReply,
    ) -> Result<Option<HandlerReply>, ScriptError> {
        if self.is_answered || self.reply.is_some() {
            let at = self.generation.handler_position(self.handler);
            tracing::error!(target: "script", at, "the handler answered twice; the first answer is used");
            return Ok(None);
        }
        if matches!(self.ticket, StateTicket::Write(_)) {
            self.reply = Some(reply);
            return Ok(None);
        }
        self.release_reply(reply).await
    }

    async fn release_reply(&mut self, reply: HandlerReply) -> Result<Option<HandlerReply>, ScriptError> {
        if let Some(durable) = self.pending_commit.take() {
            durable.wait().await?;
        }
        Ok(Some(reply))
    }

    /// Commits and ends the writer's turn: the next writer can build on the changes while they are written to
    /// disk. Once begun, a commit is completed even if this run is cancelled meanwhile.
    async fn commit_changes(&mut self, changes: Bytes) -> Result<(), ScriptError> {
        let StateTicket::Write(ticket) = std::mem::replace(&mut self.ticket, StateTicket::None) else {
            return Ok(());
        };
        let Some(worker) = self.dispatched.as_ref().map(|entered| entered.slot.worker.id) else {
            return Err(ScriptError::WorkerLost);
        };
        self.generation.pool.note_commit();
        let is_removed = std::mem::take(&mut self.removes_instance);
        self.is_repeatable = false;
        self.version = self.version.map(|version| version + u64::from(!changes.is_empty()));
        self.held_locks = self.origin.held_locks.clone();
        let payer = self.origin.call.quota_key().for_responses();
        let removes = is_removed.then(|| self.request.path.as_str().into());
        self.pending_commit = Some(Box::pin(ticket.commit_offloaded(worker, changes, removes, payer)).await?);
        Ok(())
    }

    /// Converts a response of the worker; many headers in the pool.
    async fn convert_reply(&mut self, answer: frame::HandlerAnswer) -> Result<HandlerReply, ScriptError> {
        let reply = if answer.headers.len() <= SHORT_HEADERS {
            HandlerReply::from_answer(answer)
        } else {
            let (pool, payer) = (&self.setup.scripts.offload, self.origin.call.quota_key().for_responses());
            let reply = run_then_charge(pool, "script-answer", payer, self.origin.deadline, || {
                HandlerReply::from_answer(answer)
            })
            .await;
            reply.map_err(|error| self.offload_error(error))?
        };
        reply.map_err(|message| {
            let at = self.generation.handler_position(self.handler).to_owned();
            ScriptError::Answer { at, message }
        })
    }

    /// Converts a handler's failure to the error for the client; logs the details.
    pub(super) fn handler_error(&self, fail: frame::HandlerFailure) -> ScriptError {
        let at = self.generation.error_origin(self.handler, fail.site, &fail.stack);
        let message = fail.message;
        match (fail.kind, fail.status) {
            (1, status) => {
                let at = at.as_str();
                tracing::warn!(target: "script", at, status, "a resource call failed, and the handler with it: {message}");
                match status {
                    504 => ScriptError::ResourceTime,
                    508 => ScriptError::Loop(message),
                    _ => ScriptError::Resource,
                }
            }
            (2, _) => ScriptError::State { at, message },
            (3, _) => ScriptError::Answer { at, message },
            (4, _) => ScriptError::CpuLimit { at, limit: self.setup.limits.cpu.0 },
            (5, _) => ScriptError::BodyJson(message),
            (6, _) if let Some(error) = self.calls.refused_declarations.get(&fail.site) => {
                let at = at.as_str();
                tracing::warn!(target: "script", at, "a resource can't be declared, and the handler failed with it: {error}");
                ScriptError::StateAccess(error.clone())
            }
            (_, _) => ScriptError::HandlerThrew { at, message },
        }
    }
}
