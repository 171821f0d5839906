//! The calls of one request, for handlers that issue many of them.
//!
//! Equal safe calls are made once, unless a write of the request is between them, and optionally also across
//! requests. Concurrency is bounded, and lists of ids are split so that no URL grows too long.

use std::collections::HashMap;
use std::future::Future;
use std::mem;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use futures_util::future::{BoxFuture, Shared};
use futures_util::{FutureExt, StreamExt, TryStreamExt, stream};
use http::uri::PathAndQuery;
use http::{HeaderMap, Method};

use super::in_flight::WorkFingerprint;
use super::{ProgramResponse, ServiceRequest, ServiceSet};
use crate::call::RequestCall;
use crate::service::UpstreamService;
use crate::service::retry::is_safe_method;

pub use super::coalescing::{CallCoalescer, SharedCallResult};

/// The longest URL for lists that can be split; common servers accept at least this length.
pub const MAX_URL_BYTES: usize = 8000;

/// The calls of one request. `T` is made from a response once, and shared by all callers that get the
/// response.
pub struct RequestCalls<T = ProgramResponse> {
    services: ServiceSet,
    call: RequestCall,
    coalescer: Option<Arc<CallCoalescer<T>>>,
    safe_calls: Arc<Mutex<SafeCalls<T>>>,
}

/// The calls without side effects that were made or are in flight.
struct SafeCalls<T> {
    /// The calls since the last write of the request began or ended.
    since_write: HashMap<CallKey, Shared<BoxFuture<'static, SharedCallResult<T>>>>,
    /// Whether the request has written. Equal calls of other requests may be older than that write.
    has_written: bool,
}

/// A write of a request. Responses from before its begin or its end may be outdated, and are not shared with
/// later calls.
struct WriteGuard<T>(Arc<Mutex<SafeCalls<T>>>);

impl<T> WriteGuard<T> {
    fn new(safe_calls: &Arc<Mutex<SafeCalls<T>>>) -> Self {
        let guard = Self(Arc::clone(safe_calls));
        guard.forget_calls();
        guard
    }

    fn forget_calls(&self) {
        let mut safe_calls = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        safe_calls.has_written = true;
        let outdated = mem::take(&mut safe_calls.since_write);
        // Calls are dropped without the lock.
        drop(safe_calls);
        drop(outdated);
    }
}

impl<T> Drop for WriteGuard<T> {
    fn drop(&mut self) {
        self.forget_calls();
    }
}

/// The parts of a call that distinguish it from others, with the fingerprint of its headers and its body.
type CallKey = (Arc<str>, Method, PathAndQuery, WorkFingerprint);

impl<T: From<ProgramResponse> + Clone + Send + Sync + 'static> RequestCalls<T> {
    /// Creates an empty set of calls.
    #[must_use]
    pub fn new(services: ServiceSet, call: RequestCall) -> Self {
        let safe_calls = SafeCalls { since_write: HashMap::new(), has_written: false };
        Self { services, call, coalescer: None, safe_calls: Arc::new(Mutex::new(safe_calls)) }
    }

    /// Coalesces calls without side effects with equal calls of other requests.
    #[must_use]
    pub fn with_coalescer(self, coalescer: Arc<CallCoalescer<T>>) -> Self {
        Self { coalescer: Some(coalescer), ..self }
    }

    /// The context that the calls are made in.
    #[must_use]
    pub fn call(&self) -> &RequestCall {
        &self.call
    }

    /// The services that the calls can use.
    #[must_use]
    pub fn services(&self) -> &ServiceSet {
        &self.services
    }

    /// Sends a request, as [`ServiceSet::send`] does. A safe request without a body that equals an earlier
    /// one since the last unsafe one shares its response, and takes nothing out of the budget.
    pub fn send(
        &self,
        service: &Arc<UpstreamService>,
        request: ServiceRequest,
    ) -> impl Future<Output = SharedCallResult<T>> + Send + 'static + use<T> {
        match is_safe_method(&request.method) && request.body.is_empty() {
            true => self.send_safe(service, request).left_future(),
            false => {
                let guard = (!is_safe_method(&request.method)).then(|| WriteGuard::new(&self.safe_calls));
                let answer = self.services.send(&self.call, service, request);
                let answer = answer.map(|answer| answer.map(T::from).map_err(Arc::new));
                answer.inspect(move |_| drop(guard)).right_future()
            }
        }
    }

    /// Like `send`, but treats the request as safe whatever its method. Duplicates share one response.
    pub fn send_safe(
        &self,
        service: &Arc<UpstreamService>,
        request: ServiceRequest,
    ) -> impl Future<Output = SharedCallResult<T>> + Send + 'static + use<T> {
        let mut fingerprint = WorkFingerprint::default();
        for (name, value) in &request.headers {
            fingerprint.add(name.as_str().as_bytes());
            fingerprint.add(value.as_bytes());
        }
        fingerprint.add(&request.body);
        let key =
            (Arc::clone(service.name()), request.method.clone(), request.path_and_query.clone(), fingerprint);
        let mut safe_calls = self.safe_calls.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(same) = safe_calls.since_write.get(&key) {
            return same.clone();
        }
        let answer = match self.coalescer.as_ref().filter(|_| !safe_calls.has_written) {
            Some(coalescer) => self.services.send_coalesced(coalescer, &self.call, service, request).boxed(),
            None => {
                let answer = self.services.send(&self.call, service, request);
                answer.map(|answer| answer.map(T::from).map_err(Arc::new)).boxed()
            }
        };
        let answer = answer.shared();
        safe_calls.since_write.insert(key, answer.clone());
        answer
    }
}

/// Runs futures with at most `most` of them in flight at a time. The results are in the order of the futures.
/// The first error cancels those in flight.
///
/// # Errors
/// The error of the first future in order that failed.
#[cfg_attr(not(test), expect(clippy::disallowed_methods, reason = "as long as the callers' limited lists"))]
pub async fn try_join_bounded<T, E, F>(futures: impl Iterator<Item = F>, most: usize) -> Result<Vec<T>, E>
where
    F: Future<Output = Result<T, E>>,
{
    stream::iter(futures).buffered(most.max(1)).try_collect().await
}

/// Splits values for URLs into groups of at most `most` values and `room` bytes. `between` is the number of
/// bytes that precede each value. A value longer than `room` gets a group of its own.
#[must_use]
pub fn split_into_groups(lengths: &[usize], between: usize, most: usize, room: usize) -> Vec<Range<usize>> {
    let mut parts: Vec<Range<usize>> = Vec::new();
    let mut used = 0;
    for (place, length) in lengths.iter().map(|length| length + between).enumerate() {
        match parts.last_mut().filter(|part| part.len() < most && used + length <= room) {
            Some(part) => part.end += 1,
            None => {
                parts.push(place..place + 1);
                used = 0;
            }
        }
        used += length;
    }
    parts
}

/// Returns a GET request without headers and body.
#[must_use]
pub fn get_request(path_and_query: PathAndQuery) -> ServiceRequest {
    ServiceRequest { method: Method::GET, path_and_query, headers: HeaderMap::new(), body: Bytes::new() }
}

#[cfg(test)]
mod tests;
