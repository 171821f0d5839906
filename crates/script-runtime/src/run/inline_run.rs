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
use crate::frame::{self, CallReply, FramePayload};
use crate::handler_reply::HandlerReply;
use crate::inline_evaluation::{InlineAction, InlineEvaluation, InlineValue};
use crate::setup::RunSetup;

/// The kind of jobs.
const JOB_KIND: &str = "script-answer";
/// The factor by which it takes longer to combine texts than to read them: members of objects are sorted out.
const COMBINE_COST: usize = 4;

/// The result of a call.
enum InlineCallResult {
    /// A response that goes to the client.
    PassedThrough(HandlerReply),
    /// A response, with its value unless a worker has to handle it.
    Done(CallReply, FramePayload, Option<InlineValue>),
}

impl ScriptRun {
    /// Executes the handler's recipe; `None` if it has none or a worker is needed.
    pub(super) async fn try_inline(&mut self) -> Option<HandlerReply> {
        let recipe = self.generation.recipe(self.handler)?;
        if recipe.call_count() > self.setup.limits.calls as usize {
            return None;
        }
        self.evaluate_recipe(recipe).await
    }

    async fn evaluate_recipe(&mut self, recipe: Arc<InlinePlan>) -> Option<HandlerReply> {
        let (query, has_body) =
            (self.request.query.clone(), self.request.body.kind != frame::PayloadKind::None);
        let begin = move || InlineEvaluation::new(recipe, query, has_body);
        let bytes = self.request.query.len();
        let mut composition = self.run_on_text(bytes, begin).await??;
        let mut under_way = FuturesUnordered::new();
        let mut is_usual = true;
        loop {
            while is_usual {
                let next = if composition.bytes() <= SHORT_TEXT {
                    composition.next_action()
                } else {
                    let bytes = composition.bytes();
                    let step = move || (composition.next_action(), composition);
                    let (next, moved) = self.run_on_text(bytes, step).await?;
                    composition = moved;
                    next
                };
                match next {
                    InlineAction::Call(call) => {
                        let (setup, origin) = (Arc::clone(&self.setup), Arc::clone(&self.origin.call));
                        under_way.push(async move {
                            (call.step, call.site, perform_call(&setup, &origin, call).await)
                        });
                    }
                    InlineAction::Wait => break,
                    InlineAction::Unsupported => is_usual = false,
                }
            }
            match under_way.next().await {
                Some((_, _, InlineCallResult::PassedThrough(reply))) => return Some(reply),
                Some((step, site, InlineCallResult::Done(outcome, body, value))) => {
                    let bytes = body.bytes.len();
                    match value {
                        Some(value) => composition.store_result(step, value, bytes),
                        None => is_usual = false,
                    }
                    self.calls.fetched_results.push((site, outcome, body));
                    self.turn.consume_bytes(bytes).await;
                }
                None if is_usual => break,
                None => return None,
            }
        }
        let bytes = composition.bytes();
        let body = self
            .run_on_text(bytes.saturating_mul(COMBINE_COST), move || composition.response_body())
            .await??;
        HandlerReply::from_answer(frame::HandlerAnswer { status: 0, headers: Bytes::new(), body }).ok()
    }

    /// Does a part of the work on texts of this length. `None` if the pool did not do it.
    async fn run_on_text<T: Send + 'static>(
        &mut self,
        bytes: usize,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        process_text(&self.setup.scripts.offload, JOB_KIND, &self.origin.call, bytes, work).await.ok()
    }
}

async fn perform_call(
    setup: &RunSetup,
    origin: &RequestCall,
    call: crate::inline_evaluation::InlineCall,
) -> InlineCallResult {
    if !call.passes_through {
        let (outcome, body) = setup.external_calls.send(&setup.scripts.offload, origin, call.errand).await;
        if outcome != CallReply::Ok {
            return InlineCallResult::Done(outcome, body, None);
        }
        let text = body.clone();
        let value = process_text(&setup.scripts.offload, JOB_KIND, origin, body.bytes.len(), || {
            InlineValue::from_payload(text)
        });
        let value = value.await.ok().flatten();
        return InlineCallResult::Done(outcome, body, value);
    }
    match setup.external_calls.stream(origin, call.errand, setup.limits.upstream_bytes.0).await {
        Ok(reply) => InlineCallResult::PassedThrough(reply),
        Err((outcome, body)) => InlineCallResult::Done(outcome, body, None),
    }
}
