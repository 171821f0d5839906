//! The trace that a request belongs to, by the W3C's Trace Context: what services are told of it, and the
//! time that each phase of the request took.
//!
//! Most requests have none, and pay nothing. One that came with a `traceparent` and is not recorded here
//! hands it on as it is, so that the trace stays whole. One that is recorded has a span of its own, with one
//! below it for each upstream call: their ids follow from its own and the call's number, so that nobody has
//! to remember them.

mod context;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use http::{HeaderMap, HeaderName, HeaderValue};

pub use context::Context;

/// Trace, span, and whether it is sampled.
pub const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
/// What tracing systems add for themselves.
pub const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// Phases that are kept of one request.
const MAX_PHASES: usize = 64;

/// The trace of a request, if it has one. Clones are of the same one.
#[derive(Clone, Debug, Default)]
pub struct Trace(Option<Arc<Inner>>);

#[derive(Debug)]
struct Inner {
    context: Context,
    state: Option<HeaderValue>,
    /// Those that are over, where spans are recorded.
    phases: Option<Mutex<Vec<Phase>>>,
}

/// A part of a request that took time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Phase {
    /// What was done: `compile`, `run`.
    pub name: &'static str,
    /// From when to when.
    pub span: (Instant, Instant),
}

/// A phase that goes on until this is dropped.
#[derive(Debug)]
#[must_use = "a phase ends when it is dropped"]
pub struct Running<'a> {
    phases: Option<(&'a Mutex<Vec<Phase>>, Instant)>,
    name: &'static str,
}

impl Trace {
    /// The trace that a request's headers name, to be handed on as it is.
    #[must_use]
    pub fn handed_on(context: Context, headers: &HeaderMap) -> Self {
        Self(Some(Arc::new(Inner { context, state: context::state(headers), phases: None })))
    }

    /// A trace that is recorded here, in a span with this context. `headers` are those of a request that
    /// belongs to it already.
    #[must_use]
    pub fn recorded(context: Context, headers: Option<&HeaderMap>) -> Self {
        let phases = Some(Mutex::default());
        Self(Some(Arc::new(Inner { context, state: headers.and_then(context::state), phases })))
    }

    /// Where the request stands in its trace.
    #[must_use]
    pub fn context(&self) -> Option<&Context> {
        self.0.as_ref().map(|inner| &inner.context)
    }

    /// What other tracing systems said.
    #[must_use]
    pub fn state(&self) -> Option<&HeaderValue> {
        self.0.as_ref()?.state.as_ref()
    }

    /// Whether spans are recorded.
    #[must_use]
    pub fn is_recorded(&self) -> bool {
        self.0.as_ref().is_some_and(|inner| inner.phases.is_some())
    }

    /// A phase of the request, from now on.
    pub fn phase(&self, name: &'static str) -> Running<'_> {
        let phases = self.0.as_ref().and_then(|inner| inner.phases.as_ref());
        Running { phases: phases.map(|phases| (phases, Instant::now())), name }
    }

    /// The phases that are over.
    #[must_use]
    pub fn phases(&self) -> Vec<Phase> {
        let phases = self.0.as_ref().and_then(|inner| inner.phases.as_ref());
        phases.map_or_else(Vec::new, |phases| lock(phases).clone())
    }

    /// Tells a service of the trace: it is the call with this number of the request.
    pub fn mark(&self, headers: &mut HeaderMap, call: usize) {
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

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let Some((phases, started)) = self.phases.take() else { return };
        let mut phases = lock(phases);
        if phases.len() < MAX_PHASES {
            phases.push(Phase { name: self.name, span: (started, Instant::now()) });
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
