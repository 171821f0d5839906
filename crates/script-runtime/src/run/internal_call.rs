//! Calls to the same service: runs of their own, each in a task, since they can nest a hundred thousand deep.

use std::sync::{Arc, Weak};

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use http::HeaderMap;
use services::RequestCall;
use tokio::sync::oneshot;

use super::call_result::{CallResult, refused_reply, send_call_result, validate_result};
use super::outbound_call::{REDIRECTS, error_reply, is_safe};
use super::{RunOrigin, RunRequest, RunSetup, handle_run_request};
use crate::deployment::ProgramGeneration;
use crate::frame::FramePayload;
use crate::http_message::handler_reply::HandlerReply;
use crate::http_message::location::RedirectTarget;
use crate::http_message::script_request::{self, ScriptRequest};
use crate::problem::ScriptError;
use crate::runtime::InternalCallPermit;
use crate::state::DurableCommit;
use crate::workers::WorkerSlot;

/// The maximum length of a URL, as for external calls. A longer redirect is not followed.
pub(super) const MAX_URL: usize = u16::MAX as usize - 1;

/// A call to the same service.
pub(super) struct InternalCall {
    pub(super) setup: Arc<RunSetup>,
    pub(super) generation: Arc<ProgramGeneration>,
    pub(super) origin: RunOrigin,
    /// The request, except for parameters in its path.
    pub(super) request: ScriptRequest,
    /// The caller's commit that is not durable yet: the callee must see the caller's writes.
    pub(super) after_commit: Option<DurableCommit>,
    pub(super) permit: InternalCallPermit,
}

impl InternalCall {
    /// Makes the call and sends the result to the handler. Boxed rather than an `async fn`, since runs call
    /// runs.
    pub(super) fn into_call_task(
        self,
        call: u32,
        is_unread: bool,
        slot: Weak<WorkerSlot>,
    ) -> BoxFuture<'static, ()> {
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
            if let Some(slot) = slot.upgrade() {
                send_call_result(&slot, call, &outcome, body);
            }
        }
        .boxed()
    }

    /// Makes the call and passes the response to the caller's run.
    pub(super) fn into_pass_task(
        self,
        call: u32,
        back: oneshot::Sender<CallResult>,
    ) -> BoxFuture<'static, ()> {
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
        let Self { setup, generation, origin, request: mut ask, after_commit: after, permit: _permit } = self;
        if let Some(after) = after {
            after.wait().await?;
        }
        if let Some((path, query)) = ask.path.split_once('?') {
            let (path, query) = (path.to_owned(), parse_parameters(&setup, &origin.call, query).await?);
            ask = ScriptRequest { path, query, ..ask };
        }
        for _ in 0..REDIRECTS {
            let (method, from) = (ask.method, ask.path.clone());
            let run_request = RunRequest {
                setup: Arc::clone(&setup),
                generation: Arc::clone(&generation),
                origin: origin.clone(),
                request: ask,
            };
            let reply = match handle_run_request(run_request).await {
                Ok(response) => response.reply,
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

/// Converts the query parameters of a URL to JSON.
async fn parse_parameters(setup: &RunSetup, call: &RequestCall, query: &str) -> Result<Bytes, ScriptError> {
    let read = script_request::query_to_json_pooled(&setup.scripts.offload, call, query).await;
    read.map_err(|_| services::UnfinishedResponse.into())
}
