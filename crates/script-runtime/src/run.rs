//! Runs: the execution of a handler, from the request to its response and until it has ended.
//!
//! Depending on its handler's class, a run does not access state, reads the last durable version, or is the
//! only writer of its group until it commits. A writer's response is held back until its writes are durable.
//! A run belongs to its caller and ends with it, except that a writer continues to its end, and so does the
//! work of a handler after `respond`.
//!
//! `script_run.rs` contains the run and its course. Its parts, each with data of its own:
//!
//! - `run_context.rs`: the handler, the request and its origin; `run_setup.rs`: the context of all runs of a
//!   route
//! - `worker_session.rs`: the session with the worker, and the recovery from its loss
//! - `state_access.rs`: the ticket and the commit
//! - `calls.rs`: the resource calls; `internal_call.rs`, `outbound_call.rs` and `call_result.rs`: a call to
//!   the same service, an external call, and its result
//! - `run_reply.rs`: the response
//!
//! `inline_run.rs` responds without a worker, by a recipe, which `inline_evaluation.rs` evaluates.

mod call_result;
mod calls;
mod inline_evaluation;
mod inline_run;
mod internal_call;
pub(crate) mod outbound_call;
mod run_context;
mod run_reply;
mod run_setup;
mod script_run;
mod state_access;
mod worker_session;

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use script::HeaderReads;
use services::{RequestCall, UpstreamCallRecord, timeout_at};

use crate::deployment::{ProgramGeneration, RoutingResult};
use crate::http_message::handler_reply::HandlerReply;
use crate::http_message::script_request::ScriptRequest;
use crate::problem::ScriptError;
use crate::state::HeldLocks;
use run_context::RunContext;
pub(crate) use run_setup::RunSetup;
use script_run::ScriptRun;

/// A request to a service, with its origin.
pub(crate) struct RunRequest {
    pub(crate) setup: Arc<RunSetup>,
    pub(crate) generation: Arc<ProgramGeneration>,
    pub(crate) origin: RunOrigin,
    pub(crate) request: ScriptRequest,
}

/// The origin of a request.
#[derive(Clone)]
pub(crate) struct RunOrigin {
    /// The caller, trace and hops; each run has a budget of its own.
    pub(crate) call: Arc<RequestCall>,
    /// The groups that are locked by the runs waiting for the response.
    pub(crate) held_locks: HeldLocks,
    /// The time at which the caller stops waiting.
    pub(crate) deadline: Instant,
    /// The time by which a client's response must begin, and the corresponding limit.
    pub(crate) response_deadline: Option<(Instant, Duration)>,
}

/// A response and its cost.
pub(crate) struct RunResponse {
    pub(crate) reply: HandlerReply,
    /// The version of the state that was read or written.
    pub(crate) version: Option<u64>,
    /// The client's headers that may have influenced the response.
    pub(crate) header_reads: HeaderReads,
    pub(crate) cost: RunCost,
}

/// The cost of a run.
#[derive(Default)]
pub(crate) struct RunCost {
    pub(crate) made: Vec<UpstreamCallRecord>,
    pub(crate) cpu: Duration,
}

/// A run without a response.
pub(crate) struct RunFailure {
    pub(crate) error: ScriptError,
    pub(crate) cost: RunCost,
}

/// Handles a request, with or without a handler.
pub(crate) async fn handle_run_request(run_request: RunRequest) -> Result<RunResponse, RunFailure> {
    let RunRequest { setup, generation, origin, request: ask } = run_request;
    let found =
        generation.table.route(generation.service(), &generation.edition, Some(ask.method), &ask.path);
    let of_nobody = |reply| {
        let header_reads = HeaderReads::Named(Vec::new());
        Ok(RunResponse { reply, version: None, header_reads, cost: RunCost::default() })
    };
    match found.await.map_err(ScriptError::from)? {
        RoutingResult::Handler { handler, path, instance } => {
            let script_request = ScriptRequest { path, ..ask };
            generation.pool.note_run();
            let run = RunContext::new(setup, generation, handler, instance, origin, script_request);
            ScriptRun::new(run).start().await
        }
        RoutingResult::Options(allow) => of_nobody(HandlerReply::options_response(&allow)),
        RoutingResult::Delete(path) => {
            let at = format!("DELETE {path}");
            let removal = Box::pin(generation.edition.remove_instance(&path, &origin.held_locks, &at));
            match timeout_at(origin.deadline, pin!(removal)).await {
                Some(removed) => removed.map_err(ScriptError::from)?,
                None => return Err(ScriptError::RunTimeout { limit: setup.limits.timeout.0 }.into()),
            };
            of_nobody(HandlerReply::empty())
        }
        RoutingResult::MethodNotAllowed(allow) => {
            Err(ScriptError::Method { method: ask.method.as_str().to_owned(), allow }.into())
        }
        RoutingResult::NotFound => Err(ScriptError::NotFound.into()),
    }
}

impl<E: Into<ScriptError>> std::convert::From<E> for RunFailure {
    fn from(error: E) -> Self {
        Self { error: error.into(), cost: RunCost::default() }
    }
}
