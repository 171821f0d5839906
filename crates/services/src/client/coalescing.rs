//! Request coalescing: one call for several requests that need the same response at the same time.
//!
//! The call is taken out of the budget of each request, as if the request had made it alone, so that limits
//! do not depend on concurrent requests. The shared call itself has a budget of its own, so that the short
//! deadline or small limit of one request cannot end it for the others. Its response counts in the account of
//! the client that started it. If that has no room, the next request starts the call again; a request that
//! has waited for several such calls, or has no time for another one, makes it alone.

use std::future::Future;
use std::sync::Arc;

use bytes::Bytes;
use offload::polls::PollSite;
use tokio::time::{Instant, timeout_at};

use super::exchange::CallExchange;
use super::in_flight::{InFlightMap, WorkFingerprint};
use super::message::{RequestMessage, RequestPayload};
use super::{ProgramResponse, ServiceRequest, ServiceSet, acquire_permit};
use crate::call::trace::{TRACEPARENT, TRACESTATE};
use crate::call::{CallError, DEADLINE_EXCEEDED, HELD_UNIT, ReceivedPermit, RequestBudget, RequestCall};
use crate::problem::UnfinishedResponse;
use crate::service::UpstreamService;

/// The maximum number of shared calls that a request waits for, if the clients that started them have no room
/// for the response.
const MAX_SHARED_ATTEMPTS: usize = 3;

/// The response or error of a call, shared by all callers of an equal call.
pub type SharedCallResult<T = ProgramResponse> = Result<T, Arc<CallError>>;

/// Request coalescing across requests: equal calls that are in flight at the same time are made once. Calls
/// are equal if they have the same method, URL and body, and the same headers as sent to the service,
/// credentials included.
#[derive(Debug)]
pub struct CallCoalescer<T> {
    in_flight: Arc<InFlightMap<CoalescedResponse<T>>>,
    /// The maximum size of a shared response in bytes.
    max_response_bytes: u64,
}

/// The result of a coalesced call, with its cost.
#[derive(Clone, Debug)]
struct CoalescedResponse<T> {
    result: SharedCallResult<T>,
    received_bytes: u64,
    /// The start of the call.
    started: Instant,
    budget: Arc<RequestBudget>,
}

impl<T> CallCoalescer<T> {
    /// Creates a coalescer without calls in flight, for responses of at most this number of bytes.
    #[must_use]
    pub fn new(max_response_bytes: u64) -> Self {
        Self { in_flight: Arc::default(), max_response_bytes }
    }
}

/// The text of a shared response, which counts in the account of the client that started the call until the
/// last request drops it.
struct SharedText {
    text: Bytes,
    _permit: Arc<dyn ReceivedPermit>,
}

impl AsRef<[u8]> for SharedText {
    fn as_ref(&self) -> &[u8] {
        &self.text
    }
}

impl ServiceSet {
    /// Sends a request as [`ServiceSet::send`] does, unless an equal one is in flight: then shares its
    /// response.
    pub(crate) fn send_coalesced<T>(
        &self,
        coalescer: &Arc<CallCoalescer<T>>,
        call: &RequestCall,
        service: &Arc<UpstreamService>,
        request: ServiceRequest,
    ) -> impl Future<Output = SharedCallResult<T>> + Send + 'static + use<T>
    where
        T: From<ProgramResponse> + Clone + Send + Sync + 'static,
    {
        let begun = self.prepare_call(call, service, request);
        let (coalescer, call, service) = (Arc::clone(coalescer), call.clone(), Arc::clone(service));
        async move {
            let (exchange, message) = begun?;
            let number = exchange.number;
            let answer = join_shared_call(&coalescer, &call, &service, exchange, message).await;
            call.budget.end_call(number);
            answer
        }
    }
}

async fn join_shared_call<T>(
    coalescer: &CallCoalescer<T>,
    call: &RequestCall,
    service: &UpstreamService,
    exchange: CallExchange,
    message: RequestMessage,
) -> SharedCallResult<T>
where
    T: From<ProgramResponse> + Clone + Send + Sync + 'static,
{
    let number = exchange.number;
    let deadline = Instant::from(call.budget.deadline);
    let permit = acquire_permit(&call.budget).await?;
    if let RequestPayload::Buffered(body) = &message.payload {
        // Hashing takes less time per byte than parsing.
        offload::move_if_long(body.len() / 4).await;
    }
    let key = fingerprint(service, &message);
    let mut own = Some((exchange, message));
    let mut attempts = 0;
    let response = loop {
        let flight = coalescer.in_flight.join(&key, PollSite::Request, || {
            let budget = RequestBudget::new(service.timeout() * 2, 1, coalescer.max_response_bytes, 1);
            let budget = budget.into_shared().with_starter(&call.budget);
            let own = own.take().map(|(mut exchange, message)| {
                let path = message.path.as_str().to_owned();
                exchange.number = budget.begin_call(Arc::clone(service.name()), message.method.clone(), path);
                (exchange, message)
            });
            let budget = Arc::new(budget);
            async move {
                let begun = Instant::now();
                let mut answer = match own {
                    Some((exchange, message)) => exchange.run(&budget, message).await,
                    // Not reached: the call begins once.
                    None => Err(UnfinishedResponse.into()),
                };
                let received = answer.as_ref().map_or(0, |answer| answer.body.len() as u64);
                if let Ok(answer) = &mut answer
                    && received > HELD_UNIT
                    && let Some(permit) = budget.received_permit()
                {
                    let text = std::mem::take(&mut answer.body);
                    answer.body = Bytes::from_owner(SharedText { text, _permit: permit });
                }
                CoalescedResponse {
                    result: answer.map(T::from).map_err(Arc::new),
                    received_bytes: received,
                    started: begun,
                    budget,
                }
            }
        });
        let coalesced_response = timeout_at(deadline, flight).await.map_err(|_| DEADLINE_EXCEEDED)?;
        let landed = coalesced_response.ok_or_else(|| cancelled_call_error(service))?;
        if own.is_none() || !landed.budget.has_reached_client_limit() {
            break landed;
        }
        // This client's account may have room. It must have time left to make the call alone.
        attempts += 1;
        let left = deadline.saturating_duration_since(Instant::now());
        let is_last = attempts == MAX_SHARED_ATTEMPTS || left < landed.started.elapsed() * 2;
        if is_last && let Some((exchange, message)) = own.take() {
            drop(permit);
            return exchange.run(&call.budget, message).await.map(T::from).map_err(Arc::new);
        }
    };
    let is_starter = own.is_none();
    call.budget.copy_call_record(number, &response.budget);
    call.budget.cache_notes().record_all(response.budget.cache_notes());
    if response.received_bytes <= HELD_UNIT && !is_starter {
        call.budget.receive(response.received_bytes)?;
    } else if !call.budget.take_received(response.received_bytes) {
        return Err(Arc::new(CallError::Limit("limit-received")));
    }
    response.result
}

/// Returns the fingerprint of all parts of a request that the service sees, except for its trace context.
fn fingerprint(service: &UpstreamService, message: &RequestMessage) -> WorkFingerprint {
    let mut key = WorkFingerprint::default();
    key.add(service.name().as_bytes());
    key.add(message.method.as_str().as_bytes());
    key.add(message.path.as_str().as_bytes());
    if let RequestPayload::Buffered(body) = &message.payload {
        key.add(body);
    }
    for (name, value) in &message.headers {
        if ![TRACEPARENT, TRACESTATE].contains(name) {
            key.add(name.as_str().as_bytes());
            key.add(value.as_bytes());
        }
    }
    key
}

fn cancelled_call_error(service: &UpstreamService) -> CallError {
    CallError::Broken { service: Arc::clone(service.name()), source: "the shared call was cancelled".into() }
}
