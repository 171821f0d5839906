//! The calls of one request, for ways of asking that know many of them at once: equal safe ones are made once, also
//! with those of other requests where that is wanted; of many only some are under way at a time, and lists of ids are
//! divided so that no URL grows too long.

use std::collections::HashMap;
use std::future::Future;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use futures_util::future::{BoxFuture, Shared};
use futures_util::{FutureExt, StreamExt, TryStreamExt, stream};
use http::uri::PathAndQuery;
use http::{HeaderMap, Method};

use crate::call::{Budget, Call};
use crate::client::{CallError, Request, Response, Services};
use crate::flights::Flights;
use crate::retry::is_safe;
use crate::service::Service;

/// URLs are kept this short where a list can be divided: what common servers take at least.
pub const ROOM: usize = 8000;

/// What a call brought, for everybody who asked for the same.
pub type Answered<T = Response> = Result<T, Arc<CallError>>;

/// The calls of one request. `T` is what is made of an answer, once for all who get it.
pub struct Calls<T = Response> {
    services: Services,
    call: Call,
    coalescer: Option<Arc<Coalescer<T>>>,
    known: Mutex<HashMap<Key, Vec<Known<T>>>>,
}

/// What two calls that are equal have in common, but for their headers and bodies.
type Key = (Arc<str>, Method, PathAndQuery);

/// A call that changes nothing and was made, or is under way.
struct Known<T> {
    headers: HeaderMap,
    body: Bytes,
    answer: Shared<BoxFuture<'static, Answered<T>>>,
}

/// Equal calls of several requests that are under way at the same time are made once: same method, URL, body, and all headers
/// that the service gets, credentials among them.
#[derive(Debug)]
pub struct Coalescer<T> {
    pub(crate) flights: Arc<Flights<Landed<T>>>,
    /// The most bytes of an answer.
    pub(crate) received: u64,
}

/// What a call brought that was made for several requests, and what it took.
#[derive(Clone, Debug)]
pub(crate) struct Landed<T> {
    pub(crate) answer: Answered<T>,
    pub(crate) received: u64,
    pub(crate) budget: Arc<Budget>,
}

impl<T> Coalescer<T> {
    /// Nothing is under way yet. No answer may be longer than so many bytes.
    #[must_use]
    pub fn new(received: u64) -> Self {
        Self { flights: Arc::default(), received }
    }
}

impl<T: From<Response> + Clone + Send + Sync + 'static> Calls<T> {
    /// None yet.
    #[must_use]
    pub fn new(services: Services, call: Call) -> Self {
        Self { services, call, coalescer: None, known: Mutex::default() }
    }

    /// The same; those that change nothing are made together with equal ones of other requests.
    #[must_use]
    pub fn together(self, coalescer: Arc<Coalescer<T>>) -> Self {
        Self { coalescer: Some(coalescer), ..self }
    }

    /// What they are made for.
    #[must_use]
    pub fn call(&self) -> &Call {
        &self.call
    }

    /// The services that they go to.
    #[must_use]
    pub fn services(&self) -> &Services {
        &self.services
    }

    /// Sends a request, as [`Services::send`] does. A safe one without a body that equals one before it gets that one's
    /// answer, and takes nothing out of the allowance.
    pub fn send(
        &self,
        service: &Arc<Service>,
        request: Request,
    ) -> impl Future<Output = Answered<T>> + Send + 'static + use<T> {
        match is_safe(&request.method) && request.body.is_empty() {
            true => self.ask(service, request).left_future(),
            false => {
                let answer = self.services.send(&self.call, service, request);
                answer.map(|answer| answer.map(T::from).map_err(Arc::new)).right_future()
            }
        }
    }

    /// The same for a request of which the sender knows that it changes nothing, whatever its method says of it: one that
    /// equals one before it gets that one's answer.
    pub fn ask(
        &self,
        service: &Arc<Service>,
        request: Request,
    ) -> impl Future<Output = Answered<T>> + Send + 'static + use<T> {
        let key = (Arc::clone(service.name()), request.method.clone(), request.path_and_query.clone());
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let known = known.entry(key).or_default();
        let is_same = |known: &&Known<T>| known.headers == request.headers && known.body == request.body;
        if let Some(same) = known.iter().find(is_same) {
            return same.answer.clone();
        }
        let (headers, body) = (request.headers.clone(), request.body.clone());
        let answer = match &self.coalescer {
            Some(coalescer) => self.services.send_together(coalescer, &self.call, service, request).boxed(),
            None => {
                let answer = self.services.send(&self.call, service, request);
                answer.map(|answer| answer.map(T::from).map_err(Arc::new)).boxed()
            }
        };
        let answer = answer.shared();
        known.push(Known { headers, body, answer: answer.clone() });
        answer
    }
}

/// Waits for many futures, of which only so many are under way at once. The results are in the order of the futures; the
/// first error ends those under way.
///
/// # Errors
/// That of the first future in order that failed.
pub async fn at_once<T, E, F>(futures: impl Iterator<Item = F>, most: usize) -> Result<Vec<T>, E>
where
    F: Future<Output = Result<T, E>>,
{
    stream::iter(futures).buffered(most.max(1)).try_collect().await
}

/// Divides values that stand in a URL, each behind `between` bytes: at most `most` of them together, and as many bytes
/// as there is `room` for. A value that is longer than the room is alone.
#[must_use]
pub fn divide(lengths: &[usize], between: usize, most: usize, room: usize) -> Vec<Range<usize>> {
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

/// A request for a GET without more ado.
#[must_use]
pub fn get(path_and_query: PathAndQuery) -> Request {
    Request { method: Method::GET, path_and_query, headers: HeaderMap::new(), body: Bytes::new() }
}

#[cfg(test)]
mod tests;
