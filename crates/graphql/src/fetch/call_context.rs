//! The context for upstream calls: the services of a route, a request's call budget, and the values passed to
//! calls.

use std::sync::Arc;

use bytes::Bytes;
use json::{JsonDocument, JsonNode};
use services::{CallCoalescer, CallError, PathError, RequestCall, RequestCalls, ServiceSet, UpstreamService};
use tokio::sync::{Semaphore, SemaphorePermit};

use super::call_failure::CallFailureReason;
use super::service_response::ServiceResponse;

/// The maximum total length in bytes of the documents that fetch objects by key for a request at a time. A
/// longer document is sent alone.
const MAX_KEYED_BYTES: usize = 4 << 20;

/// The services of a route.
pub(crate) struct RouteServices {
    services: ServiceSet,
    limits: SourceLimits,
    coalescer: Option<Arc<CallCoalescer<ServiceResponse>>>,
}

/// The limits on upstream calls.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SourceLimits {
    /// The maximum number of calls for the objects of one field.
    pub(crate) calls: usize,
    /// The maximum number of calls in flight.
    pub(crate) concurrency: usize,
    /// The maximum number of bytes of a response that several requests share.
    pub(crate) upstream_bytes: u64,
}

/// The context for the calls of one request.
pub(crate) struct CallContext {
    pub(crate) calls: RequestCalls<ServiceResponse>,
    pub(crate) limits: SourceLimits,
    /// The rest of [`MAX_KEYED_BYTES`].
    keyed_permits: Semaphore,
}

/// The GraphQL endpoint of a service.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GraphqlEndpoint<'a> {
    /// The service's name.
    pub(crate) service: &'a str,
    /// The path of its GraphQL endpoint; empty for a REST service.
    pub(crate) path: &'a str,
}

/// The values of a field's arguments, written as the service expects them: an object.
#[derive(Debug, Default)]
pub(crate) struct ArgumentValues(Option<JsonDocument>);

/// The distinct keys of the objects to fetch.
#[derive(Clone, Debug)]
pub(crate) struct ObjectKeys<'a> {
    /// The fields of the key.
    pub(crate) fields: &'a [Box<str>],
    /// Their values, object by object. `null` is the key of no object.
    pub(crate) values: Vec<JsonNode<'a>>,
}

impl RouteServices {
    /// Creates the services of a route. With `coalesces`, equal concurrent calls of several requests share
    /// one call.
    pub(crate) fn new(services: ServiceSet, limits: SourceLimits, coalesces: bool) -> Arc<Self> {
        let coalescer = coalesces.then(|| Arc::new(CallCoalescer::new(limits.upstream_bytes)));
        Arc::new(Self { services, limits, coalescer })
    }

    /// Creates the context for the calls of a request.
    pub(crate) fn call_context(&self, call: RequestCall) -> CallContext {
        let calls = RequestCalls::new(self.services.clone(), call);
        let calls = match &self.coalescer {
            Some(coalescer) => calls.with_coalescer(Arc::clone(coalescer)),
            None => calls,
        };
        CallContext { calls, limits: self.limits, keyed_permits: Semaphore::new(MAX_KEYED_BYTES) }
    }
}

impl CallContext {
    /// Returns the service of this name.
    pub(crate) fn service(&self, name: &str) -> Result<&Arc<UpstreamService>, CallFailureReason> {
        let unknown = || CallFailureReason::Call(Arc::new(CallError::Path(PathError::UnknownService)));
        self.calls.services().get(name).ok_or_else(unknown)
    }

    /// Waits until a document of about this length in bytes may be composed that fetches objects by key. It
    /// is counted until the permit is dropped.
    pub(crate) async fn keyed_permit(&self, bytes: usize) -> Option<SemaphorePermit<'_>> {
        let bytes = u32::try_from(bytes.min(MAX_KEYED_BYTES)).unwrap_or(u32::MAX);
        self.keyed_permits.acquire_many(bytes).await.ok()
    }
}

impl GraphqlEndpoint<'_> {
    /// The service's name, for messages.
    pub(crate) fn service_name(&self, context: &CallContext) -> Arc<str> {
        context
            .service(self.service)
            .map_or_else(|_| self.service.into(), |service| Arc::clone(service.name()))
    }
}

impl ArgumentValues {
    /// Parses the text of an object.
    ///
    /// # Errors
    /// If the text is not JSON.
    pub(crate) fn parse(text: Bytes) -> Result<Self, json::JsonError> {
        Ok(Self(Some(JsonDocument::new(text)?)))
    }

    /// The text of the object; empty if there are no arguments.
    pub(crate) fn text(&self) -> &[u8] {
        self.0.as_ref().map_or(&[][..], |document| &document.text()[..])
    }

    /// The value of an argument, unless it is absent.
    pub(crate) fn get(&self, name: &str) -> Option<JsonNode<'_>> {
        self.0.as_ref()?.root().member(name.as_bytes())
    }
}

impl<'a> ObjectKeys<'a> {
    /// The number of keys.
    pub(crate) fn len(&self) -> usize {
        match self.fields.len() {
            0 => 1,
            width => self.values.len() / width,
        }
    }

    /// The values of a key, in the order of the fields.
    pub(crate) fn row(&self, number: usize) -> &[JsonNode<'a>] {
        let width = self.fields.len();
        self.values.get(number * width..(number + 1) * width).unwrap_or_default()
    }

    /// The values of a field, object by object.
    pub(crate) fn column(&self, field: &str) -> Option<impl Iterator<Item = JsonNode<'a>> + use<'a, '_>> {
        let place = self.fields.iter().position(|known| **known == *field)?;
        Some(self.values.iter().skip(place).step_by(self.fields.len()).copied())
    }
}
