//! The response of a run, which is held back until the run's writes are durable.

use super::run_context::RunContext;
use crate::frame::HandlerAnswer;
use crate::http_message::handler_reply::HandlerReply;
use crate::problem::ScriptError;
use crate::work::run_then_charge;

/// The maximum length of headers, as JSON, that are read on the serving thread: a byte takes up to 50 ns.
const SHORT_HEADERS: usize = 8 << 10;

/// The response of a run.
#[derive(Default)]
pub(super) struct RunReply {
    /// The response, held back until the run's writes are durable.
    held: Option<HandlerReply>,
    is_sent: bool,
}

impl RunReply {
    /// Takes a response of the handler. Returns it if it can be sent at once, that is, unless a writer's
    /// changes have to become durable first.
    pub(super) fn accept(
        &mut self,
        run: &RunContext,
        reply: HandlerReply,
        is_writer: bool,
    ) -> Option<HandlerReply> {
        if self.is_sent || self.held.is_some() {
            let at = run.position();
            tracing::error!(target: "script", at, "the handler answered twice; the first answer is used");
            return None;
        }
        if is_writer {
            self.held = Some(reply);
            return None;
        }
        Some(reply)
    }

    /// Returns the response that is held back.
    pub(super) fn take(&mut self) -> Option<HandlerReply> {
        self.held.take()
    }

    /// Returns the response of a run that has ended with this one, unless a response has been sent. A handler
    /// can respond once: the first response is used.
    pub(super) async fn take_final(
        &mut self,
        run: &RunContext,
        answer: Option<HandlerAnswer>,
    ) -> Result<Option<HandlerReply>, ScriptError> {
        if self.is_sent {
            return Ok(None);
        }
        Ok(Some(match (self.held.take(), answer) {
            (Some(reply), _) => reply,
            (None, Some(answer)) => convert_answer(run, answer).await?,
            (None, None) => HandlerReply::empty(),
        }))
    }

    /// Records that a response has been sent.
    pub(super) fn mark_sent(&mut self) {
        self.is_sent = true;
    }

    /// Discards the response that is held back.
    pub(super) fn discard(&mut self) {
        self.held = None;
    }
}

/// Converts a response of the worker; many headers in the pool.
pub(super) async fn convert_answer(
    run: &RunContext,
    answer: HandlerAnswer,
) -> Result<HandlerReply, ScriptError> {
    let reply = if answer.headers.len() <= SHORT_HEADERS {
        HandlerReply::from_answer(answer)
    } else {
        let pool = &run.setup.scripts.offload;
        let reply = run_then_charge(pool, "script-answer", run.quota_key(), run.origin.deadline, || {
            HandlerReply::from_answer(answer)
        })
        .await;
        reply.map_err(|error| run.offload_error(error))?
    };
    reply.map_err(|message| ScriptError::Answer { at: run.position().to_owned(), message })
}
