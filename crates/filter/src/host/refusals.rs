//! Calls and host functions that are refused, and how refusals are reported.
//!
//! Many modules ignore statuses. A module that asks a service whether a request may pass, or answers the
//! request itself, would then let it pass. So such a refusal is recorded in the stream, and the request may
//! not pass any more (`on_refusal`). All refusals are counted and logged: calls with their target at
//! intervals, others once per filter, host function and status, so that clients can't flood the log. Calls
//! that were made and failed are logged like refused ones.

use std::fmt::Display;
use std::time::Duration;

use super::{FilterHost, HostResult};
use crate::abi::HostStatus;
use crate::context::PluginSpec;
use crate::telemetry::increment;

/// The interval in which refused calls of one filter and reason share one log line.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// The reason for which a call can't be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CallRefusal {
    #[error("it is neither a service nor a host that the filter may call")]
    Target,
    #[error("the call has no `{0}`")]
    Missing(&'static str),
    #[error("its headers are not valid")]
    Headers,
    #[error("its timeout is negative")]
    Timeout,
    #[error("its body is larger than the filter's `limits.buffer`")]
    TooLarge,
    #[error("the filter's `limits.calls` are used up")]
    TooMany,
    #[error("no call can be made at this moment")]
    Unavailable,
    #[error("no call can be made while a config is read")]
    NoRuntime,
    #[error("the module gave pointers outside of its memory")]
    Memory,
}

impl From<HostStatus> for CallRefusal {
    fn from(status: HostStatus) -> Self {
        if status == HostStatus::InvalidMemoryAccess { Self::Memory } else { Self::Unavailable }
    }
}

impl CallRefusal {
    /// The status for the module.
    pub(super) fn status(self) -> HostStatus {
        match self {
            Self::TooMany | Self::NoRuntime => HostStatus::InternalFailure,
            Self::Memory => HostStatus::InvalidMemoryAccess,
            _ => HostStatus::BadArgument,
        }
    }

    fn code(self) -> &'static str {
        match self {
            Self::Target => "target",
            Self::Missing(_) => "missing",
            Self::Headers => "headers",
            Self::Timeout => "timeout",
            Self::TooLarge => "body",
            Self::TooMany => "calls",
            Self::Unavailable => "moment",
            Self::NoRuntime => "start",
            Self::Memory => "memory",
        }
    }
}

/// Logs, at intervals, that a call was made and failed.
pub(super) fn log_failure(
    spec: &PluginSpec,
    function: &'static str,
    upstream: &str,
    code: &'static str,
    reason: &dyn Display,
) {
    if let Some(left_out) = spec.stats.refusals.admit(function, code, Some(LOG_INTERVAL)) {
        let filter = &*spec.name;
        tracing::warn!(target: "filter", filter, function, upstream, code, left_out, "a call failed: {reason}");
    }
}

impl FilterHost {
    /// Records the outcome of a call that the module requested.
    pub(super) fn note_call(
        &self,
        function: &'static str,
        upstream: &str,
        made: Result<(), CallRefusal>,
    ) -> HostResult {
        let Err(refusal) = made else { return Ok(()) };
        self.mark_stream_refused();
        if let Some(spec) = self.spec() {
            increment(&spec.stats.refused_calls);
            if let Some(left_out) = spec.stats.refusals.admit(function, refusal.code(), Some(LOG_INTERVAL)) {
                let filter = &*spec.name;
                tracing::warn!(target: "filter", filter, function, upstream, left_out, "a call can't be made: {refusal}");
            }
        }
        Err(refusal.status())
    }

    /// Records that the module was refused a call or a local response. A refusal in a callback about the
    /// response is not recorded, since the request has been served by then.
    pub(super) fn mark_stream_refused(&self) {
        if let Some(stream) = self.answerable_stream() {
            let mut state = stream.state();
            if !state.in_response {
                state.is_refused = true;
            }
        }
    }

    /// Records that a host function returned an error.
    pub(super) fn note_host_error(&self, function: &'static str, status: HostStatus) {
        let is_usual = match status {
            HostStatus::Ok | HostStatus::Empty => true,
            // Reading something that is missing is usual, but a missing property may be one of another host.
            HostStatus::NotFound => function != "proxy_get_property",
            _ => false,
        };
        let is_call = matches!(function, "proxy_http_call" | "proxy_grpc_call" | "proxy_grpc_stream");
        let Some(spec) = self.spec().filter(|_| !is_usual && !is_call) else { return };
        increment(&spec.stats.hostcall_errors);
        if spec.stats.refusals.admit(function, status.name(), None).is_some() {
            let (filter, status) = (&*spec.name, status.name());
            tracing::warn!(target: "filter", filter, function, status, "a host function returned an error; repetitions are counted but not logged");
        }
    }
}
