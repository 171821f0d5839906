//! The data of a run that does not change, and the errors that refer to it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use offload::{OffloadError, QuotaKey};
use script::ResourceHandler;
use services::UnfinishedResponse;

use super::{RunOrigin, RunSetup};
use crate::deployment::ProgramGeneration;
use crate::frame::HandlerFailure;
use crate::http_message::script_request::ScriptRequest;
use crate::problem::ScriptError;
use crate::state::{DynamicInstance, StateError};
use crate::workers::{WorkerLoss, WorkerSlot};

/// The handler of a run, its request and its origin.
pub(super) struct RunContext {
    pub(super) setup: Arc<RunSetup>,
    pub(super) generation: Arc<ProgramGeneration>,
    /// The index of the handler in its service.
    pub(super) handler_index: usize,
    pub(super) request: ScriptRequest,
    pub(super) instance: Option<DynamicInstance>,
    /// The origin, whose call contains the run's own budget.
    pub(super) origin: RunOrigin,
}

impl RunContext {
    /// Creates the context with a budget of its own, a part of its caller's.
    pub(super) fn new(
        setup: Arc<RunSetup>,
        generation: Arc<ProgramGeneration>,
        handler_index: usize,
        instance: Option<DynamicInstance>,
        origin: RunOrigin,
        request: ScriptRequest,
    ) -> Self {
        let now = Instant::now();
        let call = Arc::unwrap_or_clone(origin.call);
        let call = call.with_limits(now, origin.deadline, setup.limits.call_limits());
        let deadline = call.budget.deadline;
        let origin = RunOrigin { call: Arc::new(call), deadline, ..origin };
        Self { setup, generation, handler_index, request, instance, origin }
    }

    pub(super) fn handler(&self) -> &ResourceHandler {
        &self.generation.service().handlers[self.handler_index]
    }

    /// Returns the position of the handler in its script.
    pub(super) fn position(&self) -> &str {
        self.generation.handler_position(self.handler_index)
    }

    /// Returns the position of an error by its call site and its stack.
    pub(super) fn error_origin(&self, site: u32, stack: &str) -> String {
        self.generation.error_origin(self.handler_index, site, stack)
    }

    /// Records that the handler ended its worker.
    pub(super) fn record_strike(&self, times: u32) {
        self.generation.record_strike(self.handler_index, times);
    }

    /// Whether the handler's instance has been removed.
    pub(super) fn is_instance_removed(&self) -> bool {
        self.instance.as_ref().is_some_and(DynamicInstance::is_removed)
    }

    /// Returns the key that is charged for work on the handler's output.
    pub(super) fn quota_key(&self) -> QuotaKey {
        self.origin.call.quota_key().for_responses()
    }

    /// Returns the time by which the response must begin: the earlier of the two limits.
    pub(super) fn response_deadline(&self) -> Instant {
        let deadline = self.origin.deadline;
        self.origin.response_deadline.map_or(deadline, |(moment, _)| moment.min(deadline))
    }

    /// Returns the error for a response that did not begin in time.
    pub(super) fn deadline_error(&self) -> ScriptError {
        match self.origin.response_deadline {
            Some((moment, limit)) if moment < self.origin.deadline => ScriptError::RouteDeadline { limit },
            _ => self.timeout_error(),
        }
    }

    pub(super) fn timeout_error(&self) -> ScriptError {
        ScriptError::RunTimeout { limit: self.setup.limits.timeout.0 }
    }

    /// Returns the error for a removed resource.
    pub(super) fn removed_error(&self) -> ScriptError {
        ScriptError::StateAccess(StateError::ResourceRemoved { path: self.request.path.as_str().into() })
    }

    /// Returns the error for work that the pool did not do.
    pub(super) fn offload_error(&self, error: OffloadError) -> ScriptError {
        match error {
            OffloadError::DeadlineExceeded => self.deadline_error(),
            _ => UnfinishedResponse.into(),
        }
    }

    /// Returns the error for a worker that broke the rules of its protocol.
    pub(super) fn protocol_error(&self, message: String) -> ScriptError {
        ScriptError::Protocol { at: self.position().to_owned(), message }
    }

    /// Converts the handler's failure to the error for the client; logs the details. `refused` is the error
    /// of the declaration at the failure's site, if one was refused.
    pub(super) fn handler_error(&self, fail: HandlerFailure, refused: Option<&StateError>) -> ScriptError {
        let at = self.error_origin(fail.site, &fail.stack);
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
            (4, _) => ScriptError::CpuLimit { at, limit: self.cpu_limit() },
            (5, _) => ScriptError::BodyJson(message),
            (6, _) if let Some(error) = refused => {
                let at = at.as_str();
                tracing::warn!(target: "script", at, "a resource can't be declared, and the handler failed with it: {error}");
                ScriptError::StateAccess(error.clone())
            }
            (_, _) => ScriptError::HandlerThrew { at, message },
        }
    }

    /// Returns the error for the client if the run in this slot ended its worker; records it for its handler.
    /// `refused` is as in [`RunContext::handler_error`].
    pub(super) fn culprit_error(
        &self,
        slot: &WorkerSlot,
        loss: &WorkerLoss,
        refused: Option<&StateError>,
    ) -> Option<ScriptError> {
        let at = self.position();
        if loss.culprit == Some(slot.run) {
            self.record_strike(1);
            return Some(match &loss.failure {
                Some(fail) => self.handler_error(fail.clone(), refused),
                None => ScriptError::CpuLimit { at: at.to_owned(), limit: self.cpu_limit() },
            });
        }
        if loss.culprit.is_none() && slot.worker.is_dedicated() {
            // This run also ended the worker that it shared with others before.
            self.record_strike(2);
            tracing::error!(target: "script", at, "the handler ended its worker: {}", loss.text);
            return Some(loss.into());
        }
        None
    }

    fn cpu_limit(&self) -> Duration {
        self.setup.limits.cpu.0
    }
}
