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

use super::{RunOrigin, RunRequest, ScriptRun, answer};
use crate::answer::{HandlerReply, failed};
use crate::ask::{self, ScriptRequest};
use crate::call::{OutboundCall, REDIRECTS, is_safe, told};
use crate::frame::{CallReply, DeclareMessage, FramePayload, ResourceCall};
use crate::generation::ProgramGeneration;
use crate::location::RedirectTarget;
use crate::problem::ScriptError;
use crate::scripts::InternalCallPermit;
use crate::setup::RunSetup;
use crate::state::{self, DurableCommit, ResourceDeclaration};
use crate::work::spawn;
use crate::workers::WorkerSlot;

/// The calls of a run.
#[derive(Default)]
pub(super) struct RunCalls {
    /// External calls, and calls whose response is passed to the client.
    pub(super) outside: FuturesUnordered<BoxFuture<'static, CallResult>>,
    /// Tasks of internal calls, which are aborted if this run is cancelled.
    inside: Vec<AbortHandle>,
    made: u32,
    /// Results of calls that were made before the run entered a worker, by call site: these calls are not
    /// repeated.
    pub(super) fetched: Vec<(u32, CallReply, FramePayload)>,
    /// The last error of each refused declaration, by its site.
    pub(super) refused: HashMap<u32, state::StateError>,
}

/// The maximum length of a URL, as for external calls. A longer redirect is not followed.
const MAX_URL: usize = u16::MAX as usize - 1;

/// The result of a call.
pub(super) enum CallResult {
    /// For the handler.
    Done { call: u32, outcome: CallReply, body: FramePayload },
    /// For the client, bypassing the handler.
    Passed { call: u32, reply: HandlerReply },
    /// The result of a declaration.
    Declared { call: u32, site: u32, refused: Option<state::StateError> },
}

impl CallResult {
    /// The length of its body.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Done { body, .. } => body.bytes.len(),
            Self::Passed { .. } | Self::Declared { .. } => 0,
        }
    }
}

/// A call to the same service.
struct InternalCall {
    setup: Arc<RunSetup>,
    generation: Arc<ProgramGeneration>,
    origin: RunOrigin,
    /// The request, except for parameters in its path.
    ask: ScriptRequest,
    /// The caller's commit that is not durable yet: the callee must see the caller's writes.
    after: Option<DurableCommit>,
    _internal: InternalCallPermit,
}

impl Drop for RunCalls {
    fn drop(&mut self) {
        self.inside.iter().for_each(AbortHandle::abort);
    }
}

impl RunCalls {
    /// Discards all calls, but keeps their number and the fetched results.
    pub(super) fn begin_again(&mut self) {
        let (made, fetched) = (self.made, std::mem::take(&mut self.fetched));
        *self = Self::default();
        (self.made, self.fetched) = (made, fetched);
    }
}

impl ScriptRun {
    /// Handles a resource call of the handler.
    pub(super) fn calls(&mut self, call: ResourceCall) -> Result<(), ScriptError> {
        let limit = self.setup.limits.calls;
        self.calls.made += 1;
        if self.calls.made > limit {
            let at = self.generation.origin(self.handler, call.site, "");
            return Err(ScriptError::Calls { at, limit });
        }
        let Some(method) = script::HandlerMethod::ALL.get(usize::from(call.method)).copied() else {
            let at = self.generation.origin(self.handler, call.site, "");
            return Err(ScriptError::Protocol { at, message: format!("{} is not a method", call.method) });
        };
        self.is_clean &= is_safe(method);
        let Some(entered) = &self.entered else { return Ok(()) };
        entered.place.waits();
        let (number, passes, is_unread) = (call.number, call.passes, call.is_unread);
        if let Some((_, outcome, body)) = self.calls.fetched.iter().find(|(site, ..)| *site == call.site) {
            let (setup, origin) = (Arc::clone(&self.setup), Arc::clone(&self.origin.call));
            let (outcome, body) = (outcome.clone(), body.clone());
            let fetched = async move {
                let (outcome, body) = received(&setup, &origin, outcome, body, is_unread).await;
                CallResult::Done { call: number, outcome, body }
            };
            self.calls.outside.push(fetched.boxed());
            return Ok(());
        }
        if call.url.len() > MAX_URL {
            let text = format!("the URL has {} bytes, more than the maximum of {MAX_URL}", call.url.len());
            done(&entered.place, number, &CallReply::Refused(403, text), FramePayload::default());
            return Ok(());
        }
        if !call.url.starts_with('/') {
            let errand = OutboundCall { method, url: call.url, body: call.body };
            let call = match passes {
                true => passed(&self.setup, &self.origin.call, number, errand),
                false => outside(&self.setup, &self.origin.call, number, is_unread, errand),
            };
            self.calls.outside.push(call);
            return Ok(());
        }
        let Some(internal) = self.setup.scripts.internal() else {
            let error = ScriptError::InternalCalls { limit: self.setup.scripts.most_internal() };
            done(&entered.place, number, &refused(&error), FramePayload::default());
            return Ok(());
        };
        let inside = InternalCall {
            setup: Arc::clone(&self.setup),
            generation: Arc::clone(&self.generation),
            origin: RunOrigin { held: self.held.clone(), answer_by: None, ..self.origin.clone() },
            ask: ScriptRequest {
                method,
                path: call.url,
                query: call.query,
                headers: HeaderMap::new(),
                body: call.body,
            },
            after: self.durable.clone(),
            _internal: internal,
        };
        if passes {
            let (send, receive) = oneshot::channel();
            let task = spawn(inside.pass(number, send)).abort_handle();
            self.calls.inside.push(task);
            let lost = || failed(502, "the call was cancelled");
            self.calls.outside.push(
                async move {
                    receive.await.unwrap_or_else(|_| {
                        let (outcome, body) = lost();
                        CallResult::Done { call: number, outcome, body }
                    })
                }
                .boxed(),
            );
        } else {
            let place = Arc::downgrade(&entered.place);
            let task = spawn(inside.call(number, is_unread, place)).abort_handle();
            push_unfinished(&mut self.calls.inside, task, AbortHandle::is_finished);
        }
        Ok(())
    }

    /// Handles the declaration of a nested resource: a separate commit, which the handler waits for.
    pub(super) fn declares(&mut self, declare: DeclareMessage) {
        self.is_clean = false;
        let Some(entered) = &self.entered else { return };
        entered.place.waits();
        let (generation, after) = (Arc::clone(&self.generation), self.durable.clone());
        self.calls.outside.push(
            async move {
                let declaration = ResourceDeclaration {
                    resource: usize::from(declare.resource),
                    path: &declare.path,
                    captures: declare.captures,
                    initials: declare.initial,
                    after: after.as_ref(),
                };
                let refused = generation.edition.declare(declaration).await.err();
                CallResult::Declared { call: declare.call, site: declare.site, refused }
            }
            .boxed(),
        );
    }

    /// Handles the result of a call; returns the response, if this was the response and it may be sent.
    pub(super) async fn back(&mut self, back: CallResult) -> Result<Option<HandlerReply>, ScriptError> {
        let Some(entered) = &self.entered else { return Ok(None) };
        match back {
            CallResult::Done { call, outcome, body } => {
                done(&entered.place, call, &outcome, body);
                Ok(None)
            }
            CallResult::Passed { call, reply } => {
                done(&entered.place, call, &CallReply::TakenOver, FramePayload::default());
                self.given(reply).await
            }
            CallResult::Declared { call, site, refused } => {
                let outcome = refused.as_ref().map_or(CallReply::Ok, |error| {
                    CallReply::Refused(error.status(), format!("{error} ({})", error.code()))
                });
                done(&entered.place, call, &outcome, FramePayload::default());
                self.calls.refused.extend(refused.map(|error| (site, error)));
                Ok(None)
            }
        }
    }
}

/// Returns the result of a call for its handler. A body that no code reads is copied into a response
/// unchanged, so it is validated here, a long one in the pool; otherwise the worker validates it.
async fn received(
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
    match process_text(pool, "script-check", call, body.bytes.len(), move || text.check()).await {
        Ok(Ok(())) => (outcome, body),
        Ok(Err(error)) => {
            let message = format!("the answer is not the JSON that its type claims: {error}");
            (CallReply::Failed(502, message), body)
        }
        Err(error) => told(&error),
    }
}

/// Sends the result of a call to the handler.
fn done(place: &WorkerSlot, call: u32, outcome: &CallReply, body: FramePayload) {
    place.goes_on();
    place.worker.say(|out| out.done(place.run, call, outcome, body));
}

fn outside(
    setup: &Arc<RunSetup>,
    allowance: &Arc<services::RequestCall>,
    call: u32,
    is_unread: bool,
    errand: OutboundCall,
) -> BoxFuture<'static, CallResult> {
    let (setup, allowance) = (Arc::clone(setup), Arc::clone(allowance));
    async move {
        let (outcome, body) = setup.outside.send(&setup.scripts.offload, &allowance, errand).await;
        let (outcome, body) = received(&setup, &allowance, outcome, body, is_unread).await;
        CallResult::Done { call, outcome, body }
    }
    .boxed()
}

/// Makes a call whose response goes to the client.
fn passed(
    setup: &Arc<RunSetup>,
    allowance: &Arc<services::RequestCall>,
    call: u32,
    errand: OutboundCall,
) -> BoxFuture<'static, CallResult> {
    let (setup, allowance) = (Arc::clone(setup), Arc::clone(allowance));
    async move {
        match setup.outside.stream(&allowance, errand, setup.limits.upstream_bytes.0).await {
            Ok(reply) => CallResult::Passed { call, reply },
            Err((outcome, body)) => CallResult::Done { call, outcome, body },
        }
    }
    .boxed()
}

impl InternalCall {
    /// Boxed rather than an `async fn`, since runs call runs.
    fn call(self, call: u32, is_unread: bool, place: Weak<WorkerSlot>) -> BoxFuture<'static, ()> {
        async move {
            let (setup, origin) = (Arc::clone(&self.setup), Arc::clone(&self.origin.call));
            let path = self.ask.path.split('?').next().unwrap_or_default();
            let method = self.ask.method;
            let what = format!("{} {path}", method.word());
            let (outcome, body) = match self.ask().await {
                Ok(reply) => {
                    let (limit, pool) = (setup.limits.upstream_bytes.0, &setup.scripts.offload);
                    let delivered = reply.deliver((method, what.as_str()), limit, pool, &origin).await;
                    delivered.unwrap_or_else(|error| told(&error))
                }
                Err(error) => (refused(&error), FramePayload::default()),
            };
            let (outcome, body) = received(&setup, &origin, outcome, body, is_unread).await;
            if let Some(place) = place.upgrade() {
                done(&place, call, &outcome, body);
            }
        }
        .boxed()
    }

    fn pass(self, call: u32, back: oneshot::Sender<CallResult>) -> BoxFuture<'static, ()> {
        async move {
            let _ = back.send(match self.ask().await {
                Ok(reply) => CallResult::Passed { call, reply },
                Err(error) => {
                    CallResult::Done { call, outcome: refused(&error), body: FramePayload::default() }
                }
            }); // The caller is gone.
        }
        .boxed()
    }

    /// Makes the request, and follows redirects within the service under the same rules as external ones.
    async fn ask(self) -> Result<HandlerReply, ScriptError> {
        let Self { setup, generation, origin, mut ask, after, _internal } = self;
        if let Some(after) = after {
            after.wait().await?;
        }
        if let Some((path, query)) = ask.path.split_once('?') {
            let (path, query) = (path.to_owned(), parameters(&setup, &origin.call, query).await?);
            ask = ScriptRequest { path, query, ..ask };
        }
        for _ in 0..REDIRECTS {
            let (method, from) = (ask.method, ask.path.clone());
            let asked = RunRequest {
                setup: Arc::clone(&setup),
                generation: Arc::clone(&generation),
                origin: origin.clone(),
                ask,
            };
            let reply = match answer(asked).await {
                Ok(answered) => answered.reply,
                Err(failure) => return Err(failure.error),
            };
            let location = reply.location().filter(|_| is_safe(method));
            let location = match location.map(|to| RedirectTarget::of(to, &from)) {
                Some(RedirectTarget::Here(location)) if location.len() <= MAX_URL => location,
                _ => return Ok(reply),
            };
            let (path, query) = location.split_once('?').unwrap_or((&location, ""));
            let (path, query) = (path.to_owned(), parameters(&setup, &origin.call, query).await?);
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
async fn parameters(
    setup: &RunSetup,
    call: &services::RequestCall,
    query: &str,
) -> Result<Bytes, ScriptError> {
    let read = ask::parameters_of(&setup.scripts.offload, call, query).await;
    read.map_err(|_| services::UnfinishedResponse.into())
}

/// Converts an error for the calling handler, in full, since both belong to the same script.
fn refused(error: &ScriptError) -> CallReply {
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
