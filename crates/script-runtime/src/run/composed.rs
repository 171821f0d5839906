//! Handlers that only call resources and combine their responses run here, by their recipe, without entering
//! a worker. Long responses are parsed and combined in the pool.
//!
//! All unusual cases are left to a worker: a failed call, text in place of JSON data, an escaped member name,
//! work that the pool did not do. The run then enters a worker as usual, with the results fetched so far, so
//! that no call is repeated.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use offload::SHORT_TEXT;
use script::InlinePlan;
use services::{RequestCall, process_text};

use super::ScriptRun;
use crate::answer::HandlerReply;
use crate::compose::{InlineAction, InlineEvaluation, InlineValue};
use crate::frame::{self, CallReply, FramePayload};
use crate::setup::RunSetup;

/// The kind of jobs.
const KIND: &str = "script-answer";
/// The factor by which it takes longer to combine texts than to read them: members of objects are sorted out.
const COMBINED: usize = 4;

/// The result of a call.
enum InlineCallResult {
    /// A response that goes to the client.
    Passed(HandlerReply),
    /// A response, with its value unless a worker has to handle it.
    Done(CallReply, FramePayload, Option<InlineValue>),
}

impl ScriptRun {
    /// Executes the handler's recipe; `None` if it has none or a worker is needed.
    pub(super) async fn composed(&mut self) -> Option<HandlerReply> {
        let recipe = self.generation.recipe(self.handler)?;
        if recipe.calls() > self.setup.limits.calls as usize {
            return None;
        }
        self.follow(recipe).await
    }

    async fn follow(&mut self, recipe: Arc<InlinePlan>) -> Option<HandlerReply> {
        let (query, has_body) = (self.ask.query.clone(), self.ask.body.kind != frame::PayloadKind::None);
        let begin = move || InlineEvaluation::of(recipe, query, has_body);
        let bytes = self.ask.query.len();
        let mut composition = self.compose(bytes, begin).await??;
        let mut under_way = FuturesUnordered::new();
        let mut is_usual = true;
        loop {
            while is_usual {
                let next = if composition.bytes() <= SHORT_TEXT {
                    composition.next()
                } else {
                    let bytes = composition.bytes();
                    let step = move || (composition.next(), composition);
                    let (next, moved) = self.compose(bytes, step).await?;
                    composition = moved;
                    next
                };
                match next {
                    InlineAction::Call(call) => {
                        let (setup, origin) = (Arc::clone(&self.setup), Arc::clone(&self.origin.call));
                        under_way
                            .push(async move { (call.step, call.site, made(&setup, &origin, call).await) });
                    }
                    InlineAction::Wait => break,
                    InlineAction::Unusual => is_usual = false,
                }
            }
            match under_way.next().await {
                Some((_, _, InlineCallResult::Passed(reply))) => return Some(reply),
                Some((step, site, InlineCallResult::Done(outcome, body, value))) => {
                    let bytes = body.bytes.len();
                    match value {
                        Some(value) => composition.put(step, value, bytes),
                        None => is_usual = false,
                    }
                    self.calls.fetched.push((site, outcome, body));
                    self.turn.consume_bytes(bytes).await;
                }
                None if is_usual => break,
                None => return None,
            }
        }
        let bytes = composition.bytes();
        let body = self.compose(bytes.saturating_mul(COMBINED), move || composition.answer()).await??;
        HandlerReply::of(frame::HandlerAnswer { status: 0, headers: Bytes::new(), body }).ok()
    }

    /// Does a part of the work on texts of this length. `None` if the pool did not do it.
    async fn compose<T: Send + 'static>(
        &mut self,
        bytes: usize,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        process_text(&self.setup.scripts.offload, KIND, &self.origin.call, bytes, work).await.ok()
    }
}

async fn made(setup: &RunSetup, origin: &RequestCall, call: crate::compose::InlineCall) -> InlineCallResult {
    if !call.passes {
        let (outcome, body) = setup.outside.send(&setup.scripts.offload, origin, call.errand).await;
        if outcome != CallReply::Ok {
            return InlineCallResult::Done(outcome, body, None);
        }
        let text = body.clone();
        let value =
            process_text(&setup.scripts.offload, KIND, origin, body.bytes.len(), || InlineValue::of(text));
        let value = value.await.ok().flatten();
        return InlineCallResult::Done(outcome, body, value);
    }
    match setup.outside.stream(origin, call.errand, setup.limits.upstream_bytes.0).await {
        Ok(reply) => InlineCallResult::Passed(reply),
        Err((outcome, body)) => InlineCallResult::Done(outcome, body, None),
    }
}
