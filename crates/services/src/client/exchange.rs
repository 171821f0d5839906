//! An exchange with a service: endpoint selection, the attempts, and the response.
//!
//! A safe request with a complete body is retried if an endpoint closed the connection before its response,
//! was too slow to begin it, or responded with an error status. Any other request is retried only if nothing
//! of it was sent, or if the endpoint reports that it did not process the request. Each retry goes to another
//! endpoint, within the service's retry budget and before the deadline. If there is no other endpoint, a
//! request that was refused unprocessed is retried on another connection to the same endpoint.

use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use http::{Response, StatusCode};
use http_body::Body as _;
use http_body_util::BodyExt;

use super::clock::{ExchangeTimers, ExpiredTimeout};
use super::leased_body::LeasedBody;
use super::message::{RequestMessage, StreamedUpload};
use crate::body::StreamedServiceBody;
use crate::call::{AwaitedEvent, CallError};
use crate::call::{CallerId, RequestBudget, UpstreamCallOutcome};
use crate::config::DurationConfig;
use crate::endpoints::{BackgroundDependencies, EndpointLease, EndpointPeer, RequestVerdict};
use crate::service::UpstreamService;
use crate::service::retry::is_safe_method;
use crate::transport::{TransportError, is_private_address_error, upgrade};

/// The error for a 101 response to a request that did not offer that protocol.
const UNEXPECTED_SWITCH: &str = "it switched to a protocol that was not offered";

/// The exchange of one call.
pub(super) struct CallExchange {
    pub(super) dependencies: Arc<BackgroundDependencies>,
    pub(super) service: Arc<UpstreamService>,
    /// The index of the call among the calls of the request.
    pub(super) number: usize,
    /// The caller, and the address of its client: together the account that is charged for decoding the
    /// response.
    pub(super) caller: CallerId,
    pub(super) client: Option<IpAddr>,
}

/// A response whose head has arrived, with the lease of its endpoint.
pub(super) struct LeasedResponse {
    pub(super) response: Response<StreamedServiceBody>,
    pub(super) lease: EndpointLease,
    /// Whether the successful end of the response is still to be reported to the endpoint.
    pub(super) is_success_unreported: bool,
    /// The request's body, which may still be in transit.
    upload: Option<Arc<StreamedUpload>>,
}

/// The failure of one attempt.
enum AttemptFailure {
    Transport(TransportError),
    Late(ExpiredTimeout),
}

impl CallExchange {
    /// Sends the message, with retries, until there is a response or a final error.
    pub(super) async fn send_with_retries(
        &self,
        budget: &RequestBudget,
        clock: &mut ExchangeTimers,
        message: &mut RequestMessage,
    ) -> Result<LeasedResponse, CallError> {
        let service = &*self.service;
        service.counters.requests.fetch_add(1, Relaxed);
        let result = self.run_attempts(budget, clock, message).await;
        let is_failure = match &result {
            Ok(answer) if !answer.response.status().is_server_error() => false,
            Err(CallError::Stalled { .. }) => false,
            _ => !is_client_fault(&result, message),
        };
        if is_failure {
            service.counters.failures.fetch_add(1, Relaxed);
        }
        if result.is_ok() {
            service.counters.response_time.observe(clock.attempt_start().elapsed());
        }
        result
    }

    async fn run_attempts(
        &self,
        budget: &RequestBudget,
        clock: &mut ExchangeTimers,
        message: &mut RequestMessage,
    ) -> Result<LeasedResponse, CallError> {
        let (service, targets) = (&*self.service, &self.service.targets);
        if !targets.is_ready() {
            let ready = clock
                .within_total_timeout(pin!(targets.wait_until_ready(&self.dependencies)))
                .await
                .map_err(|timeout| self.timeout_error(timeout))?;
            ready.map_err(|source| self.unreachable_error(source))?;
        }
        let safe = is_safe_method(&message.method);
        let (mut tried, mut sent): (Vec<Arc<EndpointPeer>>, bool) = (Vec::new(), false);
        let mut lease = targets.pick(&tried).ok_or_else(|| self.unreachable_error("no endpoint".into()))?;
        let others = targets.endpoint_count() > 1;
        let again = service.retries.attempts > 0 && (others || lease.peer.endpoint.origin.is_multiplexed());
        if again {
            service.counters.retry_budget.deposit(clock.started());
        }
        budget.record_sent(self.number, lease.peer.endpoint.address);
        loop {
            let more = again && tried.len() < service.retries.attempts as usize;
            let result = self.send_attempt(clock, message, &lease, more).await?;
            let verdict = attempt_verdict(&result, message);
            let given_back = is_refused_unprocessed(&result);
            sent |= !given_back
                && !matches!(result, Err(AttemptFailure::Transport(TransportError::Unreachable(_))));
            let untold = verdict == Some(RequestVerdict::Success) && !lease.is_probe();
            if let Some(verdict) = verdict.filter(|_| !untold) {
                lease.record_outcome(verdict);
            }
            if more && (others || given_back) && can_retry(&result, safe, message) {
                tried.push(Arc::clone(&lease.peer));
                if let Some(next) = self.next_lease(clock, &tried, &result) {
                    lease = next;
                    budget.record_retry(self.number, lease.peer.endpoint.address);
                    continue;
                }
            }
            if !sent {
                budget.set_outcome(self.number, UpstreamCallOutcome::NotSent);
            }
            let upload = message.payload.upload().cloned();
            let response = result.map_err(|failure| self.attempt_error(failure))?;
            return Ok(LeasedResponse { response, lease, is_success_unreported: untold, upload });
        }
    }

    /// Leases another endpoint for a retry, if the deadline, the retry budget and the health of the endpoints
    /// permit it; any endpoint, if the last one refused the request unprocessed. A retry after an attempt
    /// that reached no endpoint takes nothing out of the budget, since it added no load.
    fn next_lease(
        &self,
        clock: &mut ExchangeTimers,
        tried: &[Arc<EndpointPeer>],
        last: &Result<Response<StreamedServiceBody>, AttemptFailure>,
    ) -> Option<EndpointLease> {
        let (tally, retries) = (&self.service.counters, &self.service.retries);
        if !clock.start_attempt() {
            return None;
        }
        if !is_connection_refused(last) && !tally.retry_budget.withdraw(retries.budget, clock.attempt_start())
        {
            tally.retries_refused.fetch_add(1, Relaxed);
            return None;
        }
        let targets = &self.service.targets;
        let lease = targets
            .pick(tried)
            .or_else(|| is_refused_unprocessed(last).then(|| targets.pick(&[])).flatten())?;
        tally.retries.fetch_add(1, Relaxed);
        Some(lease)
    }

    /// Sends the message to one endpoint, and waits until the response begins.
    async fn send_attempt(
        &self,
        clock: &ExchangeTimers,
        message: &mut RequestMessage,
        lease: &EndpointLease,
        keep: bool,
    ) -> Result<Result<Response<StreamedServiceBody>, AttemptFailure>, CallError> {
        let endpoint = &lease.peer.endpoint;
        let request = message.build_request(&endpoint.origin, keep)?;
        let upload = message.payload.upload().map(|upload| &**upload);
        let mut sent = self.dependencies.transport.send(endpoint, request);
        let answer = clock.wait_for_response(upload, sent.as_mut()).await;
        Ok(match answer {
            Ok(Ok(response))
                if upgrade::is_protocol_switch(&response) && !is_offered_switch(message, &response) =>
            {
                Err(AttemptFailure::Transport(TransportError::Broken(UNEXPECTED_SWITCH.into())))
            }
            Ok(Ok(response)) => Ok(response),
            Ok(Err(error)) => Err(AttemptFailure::Transport(error)),
            Err(timeout) => Err(AttemptFailure::Late(timeout)),
        })
    }

    /// Returns the response with a body that holds the lease: the request counts as in flight until the body
    /// ends.
    pub(super) fn with_leased_body(&self, answer: LeasedResponse) -> Response<StreamedServiceBody> {
        let LeasedResponse { response, lease, is_success_unreported: untold, upload } = answer;
        if response.body().is_end_stream() {
            if untold {
                lease.record_outcome(RequestVerdict::Success);
            }
            return response;
        }
        let idle = self.service.idle_timeout;
        response.map(|body| LeasedBody::new(body, lease, untold, idle, upload).boxed_unsync())
    }

    fn attempt_error(&self, failure: AttemptFailure) -> CallError {
        match failure {
            AttemptFailure::Transport(
                TransportError::Unreachable(source) | TransportError::Refused(source),
            ) => self.unreachable_error(source),
            AttemptFailure::Transport(TransportError::Broken(source)) => self.broken_error(source),
            AttemptFailure::Transport(TransportError::Timeout(_)) => self.timeout_error(
                ExpiredTimeout::Service(AwaitedEvent::CompleteResponse, self.service.timeout()),
            ),
            AttemptFailure::Late(late) => self.timeout_error(late),
        }
    }

    pub(super) fn timeout_error(&self, expired_timeout: ExpiredTimeout) -> CallError {
        let (waited, timeout) = match expired_timeout {
            ExpiredTimeout::Service(waited, timeout) => (waited, timeout),
            ExpiredTimeout::Deadline(timeout) => (AwaitedEvent::Deadline, timeout),
            ExpiredTimeout::Client(timeout) => {
                return CallError::Stalled { timeout: DurationConfig(timeout) };
            }
        };
        CallError::Timeout { service: self.service.name().clone(), timeout: DurationConfig(timeout), waited }
    }

    pub(super) fn unexpected_switch_error(&self) -> CallError {
        self.broken_error(UNEXPECTED_SWITCH.into())
    }

    pub(super) fn broken_error(&self, source: crate::body::BodyError) -> CallError {
        CallError::Broken { service: self.service.name().clone(), source }
    }

    fn unreachable_error(&self, source: crate::body::BodyError) -> CallError {
        let service = self.service.name().clone();
        match is_private_address_error(&source) {
            true => CallError::PrivateAddress { service, source },
            false => CallError::Unreachable { service, source },
        }
    }
}

/// Whether a switch of protocols is permitted: the request offered the protocol.
fn is_offered_switch(message: &RequestMessage, response: &Response<StreamedServiceBody>) -> bool {
    message.upgrade.as_ref().is_some_and(|offer| offer.is_accepted(response))
}

/// Returns the verdict of an attempt on its endpoint; `None` if the client may be the cause, or
/// its deadline passed.
fn attempt_verdict(
    result: &Result<Response<StreamedServiceBody>, AttemptFailure>,
    message: &RequestMessage,
) -> Option<RequestVerdict> {
    let verdict = match result {
        Ok(response) => match response.status() {
            StatusCode::INTERNAL_SERVER_ERROR => RequestVerdict::Error,
            status if is_temporary_failure(status) => RequestVerdict::Failure,
            _ => return Some(RequestVerdict::Success),
        },
        Err(AttemptFailure::Late(ExpiredTimeout::Deadline(_) | ExpiredTimeout::Client(_))) => return None,
        // An endpoint that shuts down or is full for a moment is healthy. One that only ever refuses is not.
        Err(AttemptFailure::Transport(TransportError::Refused(_))) => RequestVerdict::Error,
        Err(_) => RequestVerdict::Failure,
    };
    (!is_client_fault(result, message)).then_some(verdict)
}

/// Whether the request may be repeated on another endpoint.
fn can_retry(
    result: &Result<Response<StreamedServiceBody>, AttemptFailure>,
    safe: bool,
    message: &RequestMessage,
) -> bool {
    let repeatable = match result {
        Ok(response) => {
            safe && (is_temporary_failure(response.status())
                || response.status() == StatusCode::INTERNAL_SERVER_ERROR)
        }
        Err(AttemptFailure::Transport(TransportError::Unreachable(_) | TransportError::Refused(_))) => true,
        Err(
            AttemptFailure::Transport(TransportError::Broken(_))
            | AttemptFailure::Late(ExpiredTimeout::Service(AwaitedEvent::FirstByte, _)),
        ) => safe,
        Err(AttemptFailure::Transport(TransportError::Timeout(_)) | AttemptFailure::Late(_)) => false,
    };
    repeatable && message.payload.is_resendable()
}

/// Whether the endpoint reported that it did not process the request.
fn is_refused_unprocessed(result: &Result<Response<StreamedServiceBody>, AttemptFailure>) -> bool {
    matches!(result, Err(AttemptFailure::Transport(TransportError::Refused(_))))
}

/// Whether the connection was refused, or there is no route to the endpoint.
fn is_connection_refused(result: &Result<Response<StreamedServiceBody>, AttemptFailure>) -> bool {
    use std::io::ErrorKind::{AddrNotAvailable, ConnectionRefused, HostUnreachable, NetworkUnreachable};
    let Err(AttemptFailure::Transport(TransportError::Unreachable(error))) = result else { return false };
    let mut causes =
        std::iter::successors(Some(&**error as &(dyn std::error::Error + 'static)), |error| error.source());
    let kind = causes.find_map(|error| Some(error.downcast_ref::<std::io::Error>()?.kind()));
    kind.is_some_and(|kind| {
        [AddrNotAvailable, ConnectionRefused, HostUnreachable, NetworkUnreachable].contains(&kind)
    })
}

/// Whether the status indicates a temporary failure of the service (RFC 9110, sections 15.6.3 to 15.6.5).
fn is_temporary_failure(status: StatusCode) -> bool {
    matches!(status, StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT)
}

/// Whether the client may have caused the failure of its own request. An error response needs more evidence
/// than an error of the transport: a service that is not kept waiting can respond with an error at any time.
fn is_client_fault<T, E>(result: &Result<T, E>, message: &RequestMessage) -> bool {
    message.payload.upload().is_some_and(|upload| match result {
        Ok(_) => upload.is_interrupted(),
        Err(_) => upload.is_client_fault(),
    })
}
