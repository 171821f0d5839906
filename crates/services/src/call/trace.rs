//! The trace that a request belongs to (W3C Trace Context): its propagation to services, and the durations of
//! the request's phases.
//!
//! Most requests have no trace and incur no cost. A trace that arrives with a `traceparent` and is not
//! recorded here is propagated unchanged, so that it stays complete. A recorded request has its own span with
//! a child span for each upstream call. The ids of child spans are derived from the parent id and the index
//! of the call, so they need not be stored.

mod context;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use http::{HeaderMap, HeaderName, HeaderValue};

pub use context::SpanContext;

/// The trace id, the parent span id, and the sampled flag.
pub const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
/// Vendor-specific data of tracing systems.
pub const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// The maximum number of recorded phases per request.
const MAX_PHASES: usize = 64;

/// The trace of a request, if it has one. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct RequestTrace(Option<Arc<RequestTraceInner>>);

#[derive(Debug)]
struct RequestTraceInner {
    context: SpanContext,
    state: Option<HeaderValue>,
    /// The completed phases, if spans are recorded.
    phases: Option<Mutex<Vec<TracePhase>>>,
}

/// A timed part of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TracePhase {
    /// The name: `compile`, `run`.
    pub name: &'static str,
    /// The start and the end.
    pub span: (Instant, Instant),
}

/// A phase in progress, which ends on drop.
#[derive(Debug)]
#[must_use = "a phase ends when it is dropped"]
pub struct RunningPhase<'a> {
    phases: Option<(&'a Mutex<Vec<TracePhase>>, Instant)>,
    name: &'static str,
}

impl RequestTrace {
    /// Creates a trace that is propagated unchanged, from the headers of a request.
    #[must_use]
    pub fn new_propagated(context: SpanContext, headers: &HeaderMap) -> Self {
        Self(Some(Arc::new(RequestTraceInner {
            context,
            state: context::parse_tracestate(headers),
            phases: None,
        })))
    }

    /// Creates a trace that is recorded here, in a span with this context. `headers` are those of a request
    /// that belongs to the trace already.
    #[must_use]
    pub fn new_recorded(context: SpanContext, headers: Option<&HeaderMap>) -> Self {
        let phases = Some(Mutex::default());
        Self(Some(Arc::new(RequestTraceInner {
            context,
            state: headers.and_then(context::parse_tracestate),
            phases,
        })))
    }

    /// The request's position in its trace.
    #[must_use]
    pub fn context(&self) -> Option<&SpanContext> {
        self.0.as_ref().map(|inner| &inner.context)
    }

    /// The `tracestate` of other tracing systems.
    #[must_use]
    pub fn trace_state(&self) -> Option<&HeaderValue> {
        self.0.as_ref()?.state.as_ref()
    }

    /// Whether spans are recorded.
    #[must_use]
    pub fn is_recorded(&self) -> bool {
        self.0.as_ref().is_some_and(|inner| inner.phases.is_some())
    }

    /// Starts a phase of the request.
    pub fn start_phase(&self, name: &'static str) -> RunningPhase<'_> {
        let phases = self.0.as_ref().and_then(|inner| inner.phases.as_ref());
        RunningPhase { phases: phases.map(|phases| (phases, Instant::now())), name }
    }

    /// Returns the completed phases.
    #[must_use]
    pub fn completed_phases(&self) -> Vec<TracePhase> {
        let phases = self.0.as_ref().and_then(|inner| inner.phases.as_ref());
        phases.map_or_else(Vec::new, |phases| lock(phases).clone())
    }

    /// Sets the trace headers of a request to a service. `call` is the index of the call among the calls
    /// of the request.
    pub fn inject_headers(&self, headers: &mut HeaderMap, call: usize) {
        let Some(inner) = &self.0 else { return };
        let context = match inner.phases {
            Some(_) => inner.context.child(call),
            None => inner.context,
        };
        if let Ok(value) = HeaderValue::try_from(context.to_string()) {
            headers.insert(TRACEPARENT, value);
        }
        match &inner.state {
            Some(state) => drop(headers.insert(TRACESTATE, state.clone())),
            None => drop(headers.remove(TRACESTATE)),
        }
    }
}

impl Drop for RunningPhase<'_> {
    fn drop(&mut self) {
        let Some((phases, started)) = self.phases.take() else { return };
        let mut phases = lock(phases);
        if phases.len() < MAX_PHASES {
            phases.push(TracePhase { name: self.name, span: (started, Instant::now()) });
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
