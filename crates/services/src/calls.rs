//! The calls of one request, for ways of asking that know many of them at once: equal safe ones are made once,
//! of many only some are under way at a time, and lists of ids are divided so that no URL grows too long.

use std::collections::HashMap;
use std::future::Future;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use futures_util::future::{BoxFuture, Shared};
use futures_util::{FutureExt, StreamExt, TryStreamExt, stream};
use http::uri::PathAndQuery;
use http::{HeaderMap, Method};

use crate::call::Call;
use crate::client::{CallError, Request, Response, Services};
use crate::retry::is_safe;
use crate::service::Service;

/// What a call brought, for everybody who asked for the same.
pub type Answered = Result<Response, Arc<CallError>>;

/// The calls of one request.
pub struct Calls {
    services: Services,
    call: Call,
    safe: Mutex<HashMap<Key, Vec<Known>>>,
}

/// What two calls that are equal have in common, but for their headers.
type Key = (Arc<str>, Method, PathAndQuery);

/// A safe call that was made, or is under way.
struct Known {
    headers: HeaderMap,
    answer: Shared<BoxFuture<'static, Answered>>,
}

impl Calls {
    /// None yet.
    #[must_use]
    pub fn new(services: Services, call: Call) -> Self {
        Self { services, call, safe: Mutex::default() }
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
    ) -> impl Future<Output = Answered> + Send + 'static + use<> {
        let is_shared = is_safe(&request.method) && request.body.is_empty();
        if !is_shared {
            let answer = self.services.send(&self.call, service, request);
            return answer.map(|answer| answer.map_err(Arc::new)).boxed().left_future();
        }
        let key = (Arc::clone(service.name()), request.method.clone(), request.path_and_query.clone());
        let mut safe = self.safe.lock().unwrap_or_else(PoisonError::into_inner);
        let known = safe.entry(key).or_default();
        if let Some(same) = known.iter().find(|known| known.headers == request.headers) {
            return same.answer.clone().right_future();
        }
        let headers = request.headers.clone();
        let answer = self.services.send(&self.call, service, request);
        let answer = answer.map(|answer| answer.map_err(Arc::new)).boxed().shared();
        known.push(Known { headers, answer: answer.clone() });
        answer.right_future()
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
