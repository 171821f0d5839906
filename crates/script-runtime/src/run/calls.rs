//! Resource calls of a run. External calls are futures of the run's own task; calls to the same service are
//! runs of their own, each in a task, since they can nest a hundred thousand deep. A waiting call never
//! occupies a slot that another one waits for.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use http::HeaderMap;
use services::{ToProblem, process_text};
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

use super::{RunOrigin, RunRequest, ScriptRun, handle_run_request};
use crate::frame::{CallReply, DeclareMessage, FramePayload, ResourceCall};
use crate::generation::ProgramGeneration;
use crate::handler_reply::{HandlerReply, failed_reply};
use crate::location::RedirectTarget;
use crate::outbound_call::{OutboundCall, REDIRECTS, error_reply, is_safe};
use crate::problem::ScriptError;
use crate::script_request::{self, ScriptRequest};
use crate::scripts::InternalCallPermit;
use crate::setup::RunSetup;
use crate::state::{self, DurableCommit, ResourceDeclaration};
use crate::work::spawn;
use crate::workers::WorkerSlot;

/// The calls of a run.
#[derive(Default)]
pub(super) struct RunCalls {
    /// External calls, and calls whose response is passed to the client.
    pub(super) external: FuturesUnordered<BoxFuture<'static, CallResult>>,
    /// Tasks of internal calls, which are aborted if this run is cancelled.
    internal_tasks: Vec<AbortHandle>,
    made_calls: u32,
    /// Results of calls that were made before the run entered a worker, by call site: these calls are not
    /// repeated.
    pub(super) fetched_results: Vec<(u32, CallReply, FramePayload)>,
    /// The last error of each refused declaration, by its site.
    pub(super) refused_declarations: HashMap<u32, state::StateError>,
}

/// The maximum length of a URL, as for external calls. A longer redirect is not followed.
const MAX_URL: usize = u16::MAX as usize - 1;

/// The result of a call.
pub(super) enum CallResult {
    /// For the handler.
    Done { call: u32, outcome: CallReply, body: FramePayload },
    /// For the client, bypassing the handler.
    PassedThrough { call: u32, reply: HandlerReply },
    /// The result of a declaration.
    Declared { call: u32, site: u32, refused: Option<state::StateError> },
}

impl CallResult {
    /// The length of its body.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Done { body, .. } => body.bytes.len(),
            Self::PassedThrough { .. } | Self::Declared { .. } => 0,
        }
    }
}

/// A call to the same service.
struct InternalCall {
    setup: Arc<RunSetup>,
    generation: Arc<ProgramGeneration>,
    origin: RunOrigin,
    /// The request, except for parameters in its path.
    request: ScriptRequest,
    /// The caller's commit that is not durable yet: the callee must see the caller's writes.
    after_commit: Option<DurableCommit>,
    _permit: InternalCallPermit,
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
}

impl ScriptRun {
    /// Handles a resource call of the handler.
    pub(super) fn start_call(&mut self, call: ResourceCall) -> Result<(), ScriptError> {
        let limit = self.setup.limits.calls;
        self.calls.made_calls += 1;
        if self.calls.made_calls > limit {
            let at = self.generation.error_origin(self.handler, call.site, "");
            return Err(ScriptError::Calls { at, limit });
        }
        let Some(method) = script::HandlerMethod::ALL.get(usize::from(call.method)).copied() else {
            let at = self.generation.error_origin(self.handler, call.site, "");
            return Err(ScriptError::Protocol { at, message: format!("{} is not a method", call.method) });
        };
        self.is_repeatable &= is_safe(method);
        let Some(entered) = &self.dispatched else { return Ok(()) };
        entered.slot.begin_wait();
        let (number, passes, is_unread) = (call.number, call.passes_through, call.is_unread);
        if let Some((_, outcome, body)) =
            self.calls.fetched_results.iter().find(|(site, ..)| *site == call.site)
        {
            let (setup, origin) = (Arc::clone(&self.setup), Arc::clone(&self.origin.call));
            let (outcome, body) = (outcome.clone(), body.clone());
            let fetched = async move {
                let (outcome, body) = validate_result(&setup, &origin, outcome, body, is_unread).await;
                CallResult::Done { call: number, outcome, body }
            };
            self.calls.external.push(fetched.boxed());
            return Ok(());
        }
        if call.url.len() > MAX_URL {
            let text = format!("the URL has {} bytes, more than the maximum of {MAX_URL}", call.url.len());
            send_call_result(&entered.slot, number, &CallReply::Refused(403, text), FramePayload::default());
            return Ok(());
        }
        if !call.url.starts_with('/') {
            let errand = OutboundCall { method, url: call.url, body: call.body };
            let call = match passes {
                true => passed_through_call(&self.setup, &self.origin.call, number, errand),
                false => external_call(&self.setup, &self.origin.call, number, is_unread, errand),
            };
            self.calls.external.push(call);
            return Ok(());
        }
        let Some(internal) = self.setup.scripts.acquire_internal_call() else {
            let error = ScriptError::InternalCalls { limit: self.setup.scripts.max_internal_calls() };
            send_call_result(&entered.slot, number, &refused_reply(&error), FramePayload::default());
            return Ok(());
        };
        let inside = InternalCall {
            setup: Arc::clone(&self.setup),
            generation: Arc::clone(&self.generation),
            origin: RunOrigin {
                held_locks: self.held_locks.clone(),
                response_deadline: None,
                ..self.origin.clone()
            },
            request: ScriptRequest {
                method,
                path: call.url,
                query: call.query,
                headers: HeaderMap::new(),
                body: call.body,
            },
            after_commit: self.pending_commit.clone(),
            _permit: internal,
        };
        if passes {
            let (send, receive) = oneshot::channel();
            let task = spawn(inside.into_pass_task(number, send)).abort_handle();
            self.calls.internal_tasks.push(task);
            let lost = || failed_reply(502, "the call was cancelled");
            self.calls.external.push(
                async move {
                    receive.await.unwrap_or_else(|_| {
                        let (outcome, body) = lost();
                        CallResult::Done { call: number, outcome, body }
                    })
                }
                .boxed(),
            );
        } else {
            let place = Arc::downgrade(&entered.slot);
            let task = spawn(inside.into_call_task(number, is_unread, place)).abort_handle();
            push_unfinished(&mut self.calls.internal_tasks, task, AbortHandle::is_finished);
        }
        Ok(())
    }

    /// Handles the declaration of a nested resource: a separate commit, which the handler waits for.
    pub(super) fn start_declaration(&mut self, declare: DeclareMessage) {
        self.is_repeatable = false;
        let Some(entered) = &self.dispatched else { return };
        entered.slot.begin_wait();
        let (generation, after) = (Arc::clone(&self.generation), self.pending_commit.clone());
        self.calls.external.push(
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

    /// Handles the result of a call; returns the response, if this was the response and it may be sent.
    pub(super) async fn handle_call_result(
        &mut self,
        back: CallResult,
    ) -> Result<Option<HandlerReply>, ScriptError> {
        let Some(entered) = &self.dispatched else { return Ok(None) };
        match back {
            CallResult::Done { call, outcome, body } => {
                send_call_result(&entered.slot, call, &outcome, body);
                Ok(None)
            }
            CallResult::PassedThrough { call, reply } => {
                send_call_result(&entered.slot, call, &CallReply::PassedThrough, FramePayload::default());
                self.accept_reply(reply).await
            }
            CallResult::Declared { call, site, refused } => {
                let outcome = refused.as_ref().map_or(CallReply::Ok, |error| {
                    CallReply::Refused(error.status(), format!("{error} ({})", error.code()))
                });
                send_call_result(&entered.slot, call, &outcome, FramePayload::default());
                self.calls.refused_declarations.extend(refused.map(|error| (site, error)));
                Ok(None)
            }
        }
    }
}

/// Returns the result of a call for its handler. A body that no code reads is copied into a response
/// unchanged, so it is validated here, a long one in the pool; otherwise the worker validates it.
async fn validate_result(
    setup: &RunSetup,
    call: &services::RequestCall,
    outcome: CallReply,
    body: FramePayload,
    is_unread: bool,
) -> (CallReply, FramePayload) {
    if !is_unread || outcome != CallReply::Ok {
        return (outcome, body);
    }
    let (text, pool) = (body.clone(), &setup.scripts.offload);
    match process_text(pool, "script-check", call, body.bytes.len(), move || text.validate()).await {
        Ok(Ok(())) => (outcome, body),
        Ok(Err(error)) => {
            let message = format!("the answer is not the JSON that its type claims: {error}");
            (CallReply::Failed(502, message), body)
        }
        Err(error) => error_reply(&error),
    }
}

/// Sends the result of a call to the handler.
fn send_call_result(place: &WorkerSlot, call: u32, outcome: &CallReply, body: FramePayload) {
    place.end_wait();
    place.worker.send_frames(|out| out.put_call_result(place.run, call, outcome, body));
}

fn external_call(
    setup: &Arc<RunSetup>,
    allowance: &Arc<services::RequestCall>,
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
    allowance: &Arc<services::RequestCall>,
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

impl InternalCall {
    /// Boxed rather than an `async fn`, since runs call runs.
    fn into_call_task(self, call: u32, is_unread: bool, place: Weak<WorkerSlot>) -> BoxFuture<'static, ()> {
        async move {
            let (setup, origin) = (Arc::clone(&self.setup), Arc::clone(&self.origin.call));
            let path = self.request.path.split('?').next().unwrap_or_default();
            let method = self.request.method;
            let what = format!("{} {path}", method.as_str());
            let (outcome, body) = match self.send_request().await {
                Ok(reply) => {
                    let (limit, pool) = (setup.limits.upstream_bytes.0, &setup.scripts.offload);
                    let delivered =
                        reply.into_call_reply((method, what.as_str()), limit, pool, &origin).await;
                    delivered.unwrap_or_else(|error| error_reply(&error))
                }
                Err(error) => (refused_reply(&error), FramePayload::default()),
            };
            let (outcome, body) = validate_result(&setup, &origin, outcome, body, is_unread).await;
            if let Some(place) = place.upgrade() {
                send_call_result(&place, call, &outcome, body);
            }
        }
        .boxed()
    }

    fn into_pass_task(self, call: u32, back: oneshot::Sender<CallResult>) -> BoxFuture<'static, ()> {
        async move {
            let _ = back.send(match self.send_request().await {
                Ok(reply) => CallResult::PassedThrough { call, reply },
                Err(error) => {
                    CallResult::Done { call, outcome: refused_reply(&error), body: FramePayload::default() }
                }
            }); // The caller is gone.
        }
        .boxed()
    }

    /// Makes the request, and follows redirects within the service under the same rules as external ones.
    async fn send_request(self) -> Result<HandlerReply, ScriptError> {
        let Self { setup, generation, origin, request: mut ask, after_commit: after, _permit: _internal } =
            self;
        if let Some(after) = after {
            after.wait().await?;
        }
        if let Some((path, query)) = ask.path.split_once('?') {
            let (path, query) = (path.to_owned(), parse_parameters(&setup, &origin.call, query).await?);
            ask = ScriptRequest { path, query, ..ask };
        }
        for _ in 0..REDIRECTS {
            let (method, from) = (ask.method, ask.path.clone());
            let asked = RunRequest {
                setup: Arc::clone(&setup),
                generation: Arc::clone(&generation),
                origin: origin.clone(),
                request: ask,
            };
            let reply = match handle_run_request(asked).await {
                Ok(answered) => answered.reply,
                Err(failure) => return Err(failure.error),
            };
            let location = reply.location().filter(|_| is_safe(method));
            let location = match location.map(|to| RedirectTarget::resolve(to, &from)) {
                Some(RedirectTarget::SameAuthority(location)) if location.len() <= MAX_URL => location,
                _ => return Ok(reply),
            };
            let (path, query) = location.split_once('?').unwrap_or((&location, ""));
            let (path, query) = (path.to_owned(), parse_parameters(&setup, &origin.call, query).await?);
            ask = ScriptRequest {
                method,
                path,
                query,
                headers: HeaderMap::new(),
                body: FramePayload::default(),
            };
        }
        Err(ScriptError::Loop(format!("stopped after {REDIRECTS} redirects")))
    }
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

/// Converts the query parameters of a URL to JSON.
async fn parse_parameters(
    setup: &RunSetup,
    call: &services::RequestCall,
    query: &str,
) -> Result<Bytes, ScriptError> {
    let read = script_request::query_to_json_pooled(&setup.scripts.offload, call, query).await;
    read.map_err(|_| services::UnfinishedResponse.into())
}

/// Converts an error for the calling handler, in full, since both belong to the same script.
fn refused_reply(error: &ScriptError) -> CallReply {
    CallReply::Refused(error.status().as_u16(), format!("{error} ({})", error.code()))
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
