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
use services::coop::ByteTurn;
use services::{RequestCall, process_text};

use super::RunSetup;
use super::calls::RunCalls;
use super::inline_evaluation::{InlineAction, InlineCall, InlineEvaluation, InlineValue};
use super::run_context::RunContext;
use crate::frame::{self, CallReply, FramePayload};
use crate::http_message::handler_reply::HandlerReply;

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

/// Executes the handler's recipe; `None` if it has none or a worker is needed.
pub(super) async fn try_inline(
    run: &RunContext,
    calls: &mut RunCalls,
    turn: &mut ByteTurn,
) -> Option<HandlerReply> {
    let recipe = run.generation.recipe(run.handler_index)?;
    if recipe.call_count() > run.setup.limits.calls as usize {
        return None;
    }
    evaluate_recipe(run, calls, turn, recipe).await
}

async fn evaluate_recipe(
    run: &RunContext,
    calls: &mut RunCalls,
    turn: &mut ByteTurn,
    recipe: Arc<InlinePlan>,
) -> Option<HandlerReply> {
    let (query, has_body) = (run.request.query.clone(), run.request.body.kind != frame::PayloadKind::None);
    let begin = move || InlineEvaluation::new(recipe, query, has_body);
    let bytes = run.request.query.len();
    let mut composition = run_on_text(run, bytes, begin).await??;
    let mut under_way = FuturesUnordered::new();
    let mut is_usual = true;
    loop {
        while is_usual {
            let next = if composition.bytes() <= SHORT_TEXT {
                composition.next_action()
            } else {
                let bytes = composition.bytes();
                let step = move || (composition.next_action(), composition);
                let (next, moved) = run_on_text(run, bytes, step).await?;
                composition = moved;
                next
            };
            match next {
                InlineAction::Call(call) => {
                    let (setup, origin) = (Arc::clone(&run.setup), Arc::clone(&run.origin.call));
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
                calls.store_fetched_result(site, outcome, body);
                turn.consume_bytes(bytes).await;
            }
            None if is_usual => break,
            None => return None,
        }
    }
    let bytes = composition.bytes();
    let body =
        run_on_text(run, bytes.saturating_mul(COMBINE_COST), move || composition.response_body()).await??;
    HandlerReply::from_answer(frame::HandlerAnswer { status: 0, headers: Bytes::new(), body }).ok()
}

/// Does a part of the work on texts of this length. `None` if the pool did not do it.
async fn run_on_text<T: Send + 'static>(
    run: &RunContext,
    bytes: usize,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    process_text(&run.setup.scripts.offload, JOB_KIND, &run.origin.call, bytes, work).await.ok()
}

async fn perform_call(setup: &RunSetup, origin: &RequestCall, call: InlineCall) -> InlineCallResult {
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
