//! Resource calls of a run. External calls are futures of the run's own task; calls to the same service are
//! runs of their own, each in a task, see `internal_call.rs`. A waiting call never occupies a slot that
//! another one waits for.

use std::collections::HashMap;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use http::HeaderMap;
use services::RequestCall;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

use super::call_result::{CallResult, refused_reply, send_call_result, validate_result};
use super::internal_call::{InternalCall, MAX_URL};
use super::outbound_call::{OutboundCall, is_safe};
use super::run_context::RunContext;
use super::state_access::RunStateAccess;
use super::worker_session::WorkerSession;
use super::{RunOrigin, RunSetup};
use crate::frame::{CallReply, DeclareMessage, FramePayload, ResourceCall};
use crate::http_message::handler_reply::{HandlerReply, failed_reply};
use crate::http_message::script_request::ScriptRequest;
use crate::problem::ScriptError;
use crate::state::{ResourceDeclaration, StateError};
use crate::work::spawn;

/// The calls of a run.
#[derive(Default)]
pub(super) struct RunCalls {
    /// External calls, and calls whose response is passed to the client.
    external: FuturesUnordered<BoxFuture<'static, CallResult>>,
    /// Tasks of internal calls, which are aborted if this run is cancelled.
    internal_tasks: Vec<AbortHandle>,
    made_calls: u32,
    /// Results of calls that were made before the run entered a worker, by call site: these calls are not
    /// repeated.
    fetched_results: Vec<(u32, CallReply, FramePayload)>,
    /// The last error of each refused declaration, by its site.
    refused_declarations: HashMap<u32, StateError>,
}

impl Drop for RunCalls {
    fn drop(&mut self) {
        self.internal_tasks.iter().for_each(AbortHandle::abort);
    }
}

impl RunCalls {
    /// Discards all calls, but keeps their number and the fetched results.
    pub(super) fn reset(&mut self) {
        let (made, fetched) = (self.made_calls, std::mem::take(&mut self.fetched_results));
        *self = Self::default();
        (self.made_calls, self.fetched_results) = (made, fetched);
    }

    /// Polls for the next result. Pending if there is no call that the run itself waits for.
    pub(super) fn poll_result(&mut self, context: &mut Context<'_>) -> Poll<CallResult> {
        if self.external.is_empty() {
            return Poll::Pending;
        }
        match self.external.poll_next_unpin(context) {
            Poll::Ready(Some(result)) => Poll::Ready(result),
            Poll::Ready(None) | Poll::Pending => Poll::Pending,
        }
    }

    /// Keeps the result of a call that was made before the run entered a worker.
    pub(super) fn store_fetched_result(&mut self, site: u32, outcome: CallReply, body: FramePayload) {
        self.fetched_results.push((site, outcome, body));
    }

    /// The last error of the declaration at this site, if one was refused.
    pub(super) fn refused_declaration(&self, site: u32) -> Option<&StateError> {
        self.refused_declarations.get(&site)
    }

    /// Handles a resource call of the handler.
    pub(super) fn start_call(
        &mut self,
        run: &RunContext,
        session: &mut WorkerSession,
        state: &RunStateAccess,
        call: ResourceCall,
    ) -> Result<(), ScriptError> {
        let limit = run.setup.limits.calls;
        self.made_calls += 1;
        if self.made_calls > limit {
            let at = run.error_origin(call.site, "");
            return Err(ScriptError::Calls { at, limit });
        }
        let Some(method) = script::HandlerMethod::ALL.get(usize::from(call.method)).copied() else {
            let at = run.error_origin(call.site, "");
            return Err(ScriptError::Protocol { at, message: format!("{} is not a method", call.method) });
        };
        if !is_safe(method) {
            session.forbid_repetition();
        }
        let Some(slot) = session.slot() else { return Ok(()) };
        slot.begin_wait();
        let (number, passes, is_unread) = (call.number, call.passes_through, call.is_unread);
        if let Some((_, outcome, body)) = self.fetched_results.iter().find(|(site, ..)| *site == call.site) {
            let (setup, origin) = (Arc::clone(&run.setup), Arc::clone(&run.origin.call));
            let (outcome, body) = (outcome.clone(), body.clone());
            let fetched = async move {
                let (outcome, body) = validate_result(&setup, &origin, outcome, body, is_unread).await;
                CallResult::Done { call: number, outcome, body }
            };
            self.external.push(fetched.boxed());
            return Ok(());
        }
        if call.url.len() > MAX_URL {
            let text = format!("the URL has {} bytes, more than the maximum of {MAX_URL}", call.url.len());
            send_call_result(slot, number, &CallReply::Refused(403, text), FramePayload::default());
            return Ok(());
        }
        if !call.url.starts_with('/') {
            let errand = OutboundCall { method, url: call.url, body: call.body };
            let call = match passes {
                true => passed_through_call(&run.setup, &run.origin.call, number, errand),
                false => external_call(&run.setup, &run.origin.call, number, is_unread, errand),
            };
            self.external.push(call);
            return Ok(());
        }
        let Some(internal) = run.setup.scripts.acquire_internal_call() else {
            let error = ScriptError::InternalCalls { limit: run.setup.scripts.max_internal_calls() };
            send_call_result(slot, number, &refused_reply(&error), FramePayload::default());
            return Ok(());
        };
        let internal_call = InternalCall {
            setup: Arc::clone(&run.setup),
            generation: Arc::clone(&run.generation),
            origin: RunOrigin {
                held_locks: state.held_locks().clone(),
                response_deadline: None,
                ..run.origin.clone()
            },
            request: ScriptRequest {
                method,
                path: call.url,
                query: call.query,
                headers: HeaderMap::new(),
                body: call.body,
            },
            after_commit: state.pending_commit().cloned(),
            permit: internal,
        };
        if passes {
            let (send, receive) = oneshot::channel();
            let task = spawn(internal_call.into_pass_task(number, send)).abort_handle();
            self.internal_tasks.push(task);
            let lost = || failed_reply(502, "the call was cancelled");
            self.external.push(
                async move {
                    receive.await.unwrap_or_else(|_| {
                        let (outcome, body) = lost();
                        CallResult::Done { call: number, outcome, body }
                    })
                }
                .boxed(),
            );
        } else {
            let slot = Arc::downgrade(slot);
            let task = spawn(internal_call.into_call_task(number, is_unread, slot)).abort_handle();
            push_unfinished(&mut self.internal_tasks, task, AbortHandle::is_finished);
        }
        Ok(())
    }

    /// Handles the declaration of a nested resource: a separate commit, which the handler waits for.
    pub(super) fn start_declaration(
        &mut self,
        run: &RunContext,
        session: &mut WorkerSession,
        state: &RunStateAccess,
        declare: DeclareMessage,
    ) {
        session.forbid_repetition();
        let Some(slot) = session.slot() else { return };
        slot.begin_wait();
        let (generation, after) = (Arc::clone(&run.generation), state.pending_commit().cloned());
        self.external.push(
            async move {
                let declaration = ResourceDeclaration {
                    resource: usize::from(declare.resource),
                    path: &declare.path,
                    captures: declare.captures,
                    initials: declare.initial,
                    after_commit: after.as_ref(),
                };
                let refused = generation.edition.declare(declaration).await.err();
                CallResult::Declared { call: declare.call, site: declare.site, refused }
            }
            .boxed(),
        );
    }

    /// Sends the result of a call to the handler; returns the response, if it bypasses the handler.
    pub(super) fn deliver_result(
        &mut self,
        session: &WorkerSession,
        result: CallResult,
    ) -> Option<HandlerReply> {
        let slot = session.slot()?;
        match result {
            CallResult::Done { call, outcome, body } => {
                send_call_result(slot, call, &outcome, body);
                None
            }
            CallResult::PassedThrough { call, reply } => {
                send_call_result(slot, call, &CallReply::PassedThrough, FramePayload::default());
                Some(reply)
            }
            CallResult::Declared { call, site, refused } => {
                let outcome = refused.as_ref().map_or(CallReply::Ok, |error| {
                    CallReply::Refused(error.status(), format!("{error} ({})", error.code()))
                });
                send_call_result(slot, call, &outcome, FramePayload::default());
                self.refused_declarations.extend(refused.map(|error| (site, error)));
                None
            }
        }
    }
}

fn external_call(
    setup: &Arc<RunSetup>,
    allowance: &Arc<RequestCall>,
    call: u32,
    is_unread: bool,
    errand: OutboundCall,
) -> BoxFuture<'static, CallResult> {
    let (setup, allowance) = (Arc::clone(setup), Arc::clone(allowance));
    async move {
        let (outcome, body) = setup.external_calls.send(&setup.scripts.offload, &allowance, errand).await;
        let (outcome, body) = validate_result(&setup, &allowance, outcome, body, is_unread).await;
        CallResult::Done { call, outcome, body }
    }
    .boxed()
}

/// Makes a call whose response goes to the client.
fn passed_through_call(
    setup: &Arc<RunSetup>,
    allowance: &Arc<RequestCall>,
    call: u32,
    errand: OutboundCall,
) -> BoxFuture<'static, CallResult> {
    let (setup, allowance) = (Arc::clone(setup), Arc::clone(allowance));
    async move {
        match setup.external_calls.stream(&allowance, errand, setup.limits.upstream_bytes.0).await {
            Ok(reply) => CallResult::PassedThrough { call, reply },
            Err((outcome, body)) => CallResult::Done { call, outcome, body },
        }
    }
    .boxed()
}

/// Adds an item to a list. Finished items are removed only when the list is full, and then there is room for
/// at least as many as remain, so that the work for each item is constant on average.
fn push_unfinished<T>(items: &mut Vec<T>, item: T, is_finished: impl Fn(&T) -> bool) {
    if items.len() == items.capacity() {
        items.retain(|item| !is_finished(item));
        items.reserve(items.len());
    }
    items.push(item);
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn finished_calls_are_removed_in_constant_time_on_average() {
        const COUNT: usize = 10_000;
        for under_way in [0, 1, 1023, COUNT] {
            let (mut calls, checks) = (Vec::new(), Cell::new(0));
            for number in 0..COUNT {
                push_unfinished(&mut calls, number, |call| {
                    checks.set(checks.get() + 1);
                    number - call > under_way
                });
                assert!(calls.len() <= 4 * under_way.max(4), "{} calls are kept", calls.len());
            }
            assert!(checks.get() <= 4 * COUNT, "{} checks, {under_way} under way", checks.get());
        }
    }
}
