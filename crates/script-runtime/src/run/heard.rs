//! A worker's messages about a run: its response, its commit, its end. A writer's response is held back here
//! until its writes are durable.

use bytes::Bytes;

use super::{ScriptRun, StateTicket};
use crate::answer::HandlerReply;
use crate::frame::{self, WorkerMessage};
use crate::problem::ScriptError;
use crate::work::at_once;

/// The maximum length of headers, as JSON, that are read on the serving thread: a byte takes up to 50 ns.
const SHORT_HEADERS: usize = 8 << 10;

impl ScriptRun {
    /// Handles a message of the worker.
    pub(super) async fn hear(&mut self, from: WorkerMessage) -> Result<Option<HandlerReply>, ScriptError> {
        match from {
            WorkerMessage::Call(call) => self.calls(call).map(|()| None),
            WorkerMessage::Declare(declare) => {
                self.declares(declare);
                Ok(None)
            }
            WorkerMessage::Answer(answer) => {
                let reply = self.reply_of(answer).await?;
                self.given(reply).await
            }
            WorkerMessage::Commit { changes } => {
                self.commit(changes).await?;
                match self.reply.take() {
                    Some(reply) => self.let_go(reply).await,
                    None => Ok(None),
                }
            }
            WorkerMessage::Remove => {
                self.removes = true;
                Ok(None)
            }
            WorkerMessage::End { answer, changes, cpu_micros } => {
                self.over(cpu_micros);
                self.end(answer, changes).await
            }
            WorkerMessage::Twice { stack } => {
                let at = self.generation.origin(self.handler, 0, &stack);
                tracing::error!(target: "script", at, "a second `respond` in one run: the first one counts (S rule 13)");
                Ok(None)
            }
            WorkerMessage::Fail(fail) => {
                self.over(0);
                self.ticket = StateTicket::None; // The worker has rolled back the run's writes.
                Err(self.blamed(fail))
            }
            other => {
                let at = self.generation.place(self.handler).to_owned();
                Err(ScriptError::Protocol { at, message: format!("unexpected for a run: {other:?}") })
            }
        }
    }

    async fn end(
        &mut self,
        answer: Option<frame::HandlerAnswer>,
        changes: Option<Bytes>,
    ) -> Result<Option<HandlerReply>, ScriptError> {
        // A handler can respond once: the first response is used.
        let given = if self.is_answered { None } else { self.reply.take() };
        let reply = match (given, answer) {
            _ if self.is_answered => None,
            (Some(reply), _) => Some(reply),
            (None, Some(answer)) => Some(self.reply_of(answer).await?),
            (None, None) => Some(HandlerReply::empty()),
        };
        match (changes, self.removes) {
            (None, false) => self.ticket = StateTicket::None,
            (changes, _) => self.commit(changes.unwrap_or_default()).await?,
        }
        if self.removes && !matches!(self.ticket, StateTicket::Write(_)) {
            let at = self.generation.place(self.handler);
            Box::pin(self.generation.edition.remove(&self.ask.path, &self.held, at)).await?;
        }
        match reply {
            Some(reply) => self.let_go(reply).await,
            None => Ok(None),
        }
    }

    /// Handles a response; it is sent at once unless writes have to become durable first.
    pub(super) async fn given(&mut self, reply: HandlerReply) -> Result<Option<HandlerReply>, ScriptError> {
        if self.is_answered || self.reply.is_some() {
            let at = self.generation.place(self.handler);
            tracing::error!(target: "script", at, "the handler answered twice; the first answer is used");
            return Ok(None);
        }
        if matches!(self.ticket, StateTicket::Write(_)) {
            self.reply = Some(reply);
            return Ok(None);
        }
        self.let_go(reply).await
    }

    async fn let_go(&mut self, reply: HandlerReply) -> Result<Option<HandlerReply>, ScriptError> {
        if let Some(durable) = self.durable.take() {
            durable.wait().await?;
        }
        Ok(Some(reply))
    }

    /// Commits and ends the writer's turn: the next writer can build on the changes while they are written to
    /// disk. Once begun, a commit is completed even if this run is cancelled meanwhile.
    async fn commit(&mut self, changes: Bytes) -> Result<(), ScriptError> {
        let StateTicket::Write(ticket) = std::mem::replace(&mut self.ticket, StateTicket::None) else {
            return Ok(());
        };
        let Some(worker) = self.entered.as_ref().map(|entered| entered.place.worker.id) else {
            return Err(ScriptError::Lost);
        };
        self.generation.pool.note_commit();
        let is_removed = std::mem::take(&mut self.removes);
        self.is_clean = false;
        self.version = self.version.map(|version| version + u64::from(!changes.is_empty()));
        self.held = self.origin.held.clone();
        let payer = self.origin.call.quota_key().for_responses();
        let removes = is_removed.then(|| self.ask.path.as_str().into());
        self.durable = Some(Box::pin(ticket.commit_paced(worker, changes, removes, payer)).await?);
        Ok(())
    }

    /// Converts a response of the worker; many headers in the pool.
    async fn reply_of(&mut self, answer: frame::HandlerAnswer) -> Result<HandlerReply, ScriptError> {
        let reply = if answer.headers.len() <= SHORT_HEADERS {
            HandlerReply::of(answer)
        } else {
            let (pool, payer) = (&self.setup.scripts.offload, self.origin.call.quota_key().for_responses());
            let reply =
                at_once(pool, "script-answer", payer, self.origin.deadline, || HandlerReply::of(answer))
                    .await;
            reply.map_err(|error| self.unfinished(error))?
        };
        reply.map_err(|message| {
            let at = self.generation.place(self.handler).to_owned();
            ScriptError::Answer { at, message }
        })
    }

    /// Converts a handler's failure to the error for the client; logs the details.
    pub(super) fn blamed(&self, fail: frame::HandlerFailure) -> ScriptError {
        let at = self.generation.origin(self.handler, fail.site, &fail.stack);
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
            (4, _) => ScriptError::Time { at, limit: self.setup.limits.cpu.0 },
            (5, _) => ScriptError::BodyJson(message),
            (6, _) if let Some(error) = self.calls.refused.get(&fail.site) => {
                let at = at.as_str();
                tracing::warn!(target: "script", at, "a resource can't be declared, and the handler failed with it: {error}");
                ScriptError::Kept(error.clone())
            }
            (_, _) => ScriptError::Threw { at, message },
        }
    }
}
