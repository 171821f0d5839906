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

use super::clock::{Clock, Late};
use super::message::{Message, Upload};
use super::watched::Watched;
use crate::body::Body;
use crate::call::{Budget, Caller, Outcome};
use crate::config::Duration;
use crate::error::{CallError, Waited};
use crate::hosts::is_private;
use crate::retry::is_safe;
use crate::service::Service;
use crate::targets::{Lease, Outside, Peer, Verdict};
use crate::transport::TransportError;
use crate::upgrade;

/// The error for a 101 response to a request that did not offer that protocol.
const UNASKED: &str = "it switched to a protocol that was not offered";

/// The exchange of one call.
pub(super) struct Exchange {
    pub(super) outside: Arc<Outside>,
    pub(super) service: Arc<Service>,
    /// The index of the call among the calls of the request.
    pub(super) number: usize,
    /// The caller, and the address of its client: together the account that is charged for decoding the
    /// response.
    pub(super) caller: Caller,
    pub(super) client: Option<IpAddr>,
}

/// A response whose head has arrived, with the lease of its endpoint.
pub(super) struct Answer {
    pub(super) response: Response<Body>,
    pub(super) lease: Lease,
    /// Whether the successful end of the response is still to be reported to the endpoint.
    pub(super) untold: bool,
    /// The request's body, which may still be in transit.
    upload: Option<Arc<Upload>>,
}

/// The failure of one attempt.
enum Failure {
    Transport(TransportError),
    Late(Late),
}

impl Exchange {
    /// Sends the message, with retries, until there is a response or a final error.
    pub(super) async fn answer(
        &self,
        budget: &Budget,
        clock: &mut Clock,
        message: &mut Message,
    ) -> Result<Answer, CallError> {
        let service = &*self.service;
        service.tally.requests.fetch_add(1, Relaxed);
        let result = self.attempts(budget, clock, message).await;
        let is_failure = match &result {
            Ok(answer) if !answer.response.status().is_server_error() => false,
            Err(CallError::Stalled { .. }) => false,
            _ => !is_clients_fault(&result, message),
        };
        if is_failure {
            service.tally.failures.fetch_add(1, Relaxed);
        }
        if result.is_ok() {
            service.tally.took.observe(clock.attempt().elapsed());
        }
        result
    }

    async fn attempts(
        &self,
        budget: &Budget,
        clock: &mut Clock,
        message: &mut Message,
    ) -> Result<Answer, CallError> {
        let (service, targets) = (&*self.service, &self.service.targets);
        if !targets.is_ready() {
            let ready =
                clock.whole(pin!(targets.ready(&self.outside))).await.map_err(|late| self.late(late))?;
            ready.map_err(|source| self.unreachable(source))?;
        }
        let safe = is_safe(&message.method);
        let (mut tried, mut sent): (Vec<Arc<Peer>>, bool) = (Vec::new(), false);
        let mut lease = targets.pick(&tried).ok_or_else(|| self.unreachable("no endpoint".into()))?;
        let others = targets.count() > 1;
        let again = service.retries.attempts > 0 && (others || lease.peer.endpoint.origin.is_shared());
        if again {
            service.tally.budget.deposit(clock.begun());
        }
        budget.sent(self.number, lease.peer.endpoint.address);
        loop {
            let more = again && tried.len() < service.retries.attempts as usize;
            let result = self.attempt(clock, message, &lease, more).await?;
            let verdict = verdict(&result, message);
            let given_back = is_given_back(&result);
            sent |= !given_back && !matches!(result, Err(Failure::Transport(TransportError::Unreachable(_))));
            let untold = verdict == Some(Verdict::Good) && !lease.is_chance();
            if let Some(verdict) = verdict.filter(|_| !untold) {
                lease.note(verdict);
            }
            if more && (others || given_back) && may_repeat(&result, safe, message) {
                tried.push(Arc::clone(&lease.peer));
                if let Some(next) = self.next(clock, &tried, &result) {
                    lease = next;
                    budget.again(self.number, lease.peer.endpoint.address);
                    continue;
                }
            }
            if !sent {
                budget.note(self.number, Outcome::NotSent);
            }
            let upload = message.payload.upload().cloned();
            let response = result.map_err(|failure| self.failed(failure))?;
            return Ok(Answer { response, lease, untold, upload });
        }
    }

    /// Leases another endpoint for a retry, if the deadline, the retry budget and the health of the endpoints
    /// permit it; any endpoint, if the last one refused the request unprocessed. A retry after an attempt
    /// that reached no endpoint takes nothing out of the budget, since it added no load.
    fn next(
        &self,
        clock: &mut Clock,
        tried: &[Arc<Peer>],
        last: &Result<Response<Body>, Failure>,
    ) -> Option<Lease> {
        let (tally, retries) = (&self.service.tally, &self.service.retries);
        if !clock.again() {
            return None;
        }
        if !is_nobody_there(last) && !tally.budget.withdraw(retries.budget, clock.attempt()) {
            tally.retries_refused.fetch_add(1, Relaxed);
            return None;
        }
        let targets = &self.service.targets;
        let lease =
            targets.pick(tried).or_else(|| is_given_back(last).then(|| targets.pick(&[])).flatten())?;
        tally.retries.fetch_add(1, Relaxed);
        Some(lease)
    }

    /// Sends the message to one endpoint, and waits until the response begins.
    async fn attempt(
        &self,
        clock: &Clock,
        message: &mut Message,
        lease: &Lease,
        keep: bool,
    ) -> Result<Result<Response<Body>, Failure>, CallError> {
        let endpoint = &lease.peer.endpoint;
        let request = message.bound(&endpoint.origin, keep)?;
        let upload = message.payload.upload().map(|upload| &**upload);
        let mut sent = self.outside.transport.send(endpoint, request);
        let answer = clock.answer(upload, sent.as_mut()).await;
        Ok(match answer {
            Ok(Ok(response)) if upgrade::is_switch(&response) && !is_accepted(message, &response) => {
                Err(Failure::Transport(TransportError::Broken(UNASKED.into())))
            }
            Ok(Ok(response)) => Ok(response),
            Ok(Err(error)) => Err(Failure::Transport(error)),
            Err(late) => Err(Failure::Late(late)),
        })
    }

    /// Returns the response with a body that holds the lease: the request counts as in flight until the body
    /// ends.
    pub(super) fn streamed(&self, answer: Answer) -> Response<Body> {
        let Answer { response, lease, untold, upload } = answer;
        if response.body().is_end_stream() {
            if untold {
                lease.note(Verdict::Good);
            }
            return response;
        }
        let idle = self.service.idle_timeout;
        response.map(|body| Watched::new(body, lease, untold, idle, upload).boxed_unsync())
    }

    fn failed(&self, failure: Failure) -> CallError {
        match failure {
            Failure::Transport(TransportError::Unreachable(source) | TransportError::Refused(source)) => {
                self.unreachable(source)
            }
            Failure::Transport(TransportError::Broken(source)) => self.broken(source),
            Failure::Transport(TransportError::Timeout(_)) => {
                self.late(Late::Service(Waited::Answer, self.service.timeout()))
            }
            Failure::Late(late) => self.late(late),
        }
    }

    pub(super) fn late(&self, late: Late) -> CallError {
        let (waited, timeout) = match late {
            Late::Service(waited, timeout) => (waited, timeout),
            Late::Deadline(timeout) => (Waited::Deadline, timeout),
            Late::Client(timeout) => return CallError::Stalled { timeout: Duration(timeout) },
        };
        CallError::Timeout { service: self.service.name().clone(), timeout: Duration(timeout), waited }
    }

    pub(super) fn switched(&self) -> CallError {
        self.broken(UNASKED.into())
    }

    pub(super) fn broken(&self, source: crate::body::Error) -> CallError {
        CallError::Broken { service: self.service.name().clone(), source }
    }

    fn unreachable(&self, source: crate::body::Error) -> CallError {
        let service = self.service.name().clone();
        match is_private(&source) {
            true => CallError::PrivateAddress { service, source },
            false => CallError::Unreachable { service, source },
        }
    }
}

/// Whether a switch of protocols is permitted: the request offered the protocol.
fn is_accepted(message: &Message, response: &Response<Body>) -> bool {
    message.upgrade.as_ref().is_some_and(|offer| offer.is_accepted(response))
}

/// Returns the verdict of an attempt on its endpoint; `None` if the client may be the cause, or
/// its deadline passed.
fn verdict(result: &Result<Response<Body>, Failure>, message: &Message) -> Option<Verdict> {
    let verdict = match result {
        Ok(response) => match response.status() {
            StatusCode::INTERNAL_SERVER_ERROR => Verdict::Error,
            status if is_unwell(status) => Verdict::Failed,
            _ => return Some(Verdict::Good),
        },
        Err(Failure::Late(Late::Deadline(_) | Late::Client(_))) => return None,
        // An endpoint that shuts down or is full for a moment is healthy. One that only ever refuses is not.
        Err(Failure::Transport(TransportError::Refused(_))) => Verdict::Error,
        Err(_) => Verdict::Failed,
    };
    (!is_clients_fault(result, message)).then_some(verdict)
}

/// Whether the request may be repeated on another endpoint.
fn may_repeat(result: &Result<Response<Body>, Failure>, safe: bool, message: &Message) -> bool {
    let repeatable = match result {
        Ok(response) => {
            safe && (is_unwell(response.status()) || response.status() == StatusCode::INTERNAL_SERVER_ERROR)
        }
        Err(Failure::Transport(TransportError::Unreachable(_) | TransportError::Refused(_))) => true,
        Err(
            Failure::Transport(TransportError::Broken(_))
            | Failure::Late(Late::Service(Waited::FirstByte, _)),
        ) => safe,
        Err(Failure::Transport(TransportError::Timeout(_)) | Failure::Late(_)) => false,
    };
    repeatable && message.payload.is_whole()
}

/// Whether the endpoint reported that it did not process the request.
fn is_given_back(result: &Result<Response<Body>, Failure>) -> bool {
    matches!(result, Err(Failure::Transport(TransportError::Refused(_))))
}

/// Whether the connection was refused, or there is no route to the endpoint.
fn is_nobody_there(result: &Result<Response<Body>, Failure>) -> bool {
    use std::io::ErrorKind::{AddrNotAvailable, ConnectionRefused, HostUnreachable, NetworkUnreachable};
    let Err(Failure::Transport(TransportError::Unreachable(error))) = result else { return false };
    let mut causes =
        std::iter::successors(Some(&**error as &(dyn std::error::Error + 'static)), |error| error.source());
    let kind = causes.find_map(|error| Some(error.downcast_ref::<std::io::Error>()?.kind()));
    kind.is_some_and(|kind| {
        [AddrNotAvailable, ConnectionRefused, HostUnreachable, NetworkUnreachable].contains(&kind)
    })
}

/// Whether the status indicates a temporary failure of the service (RFC 9110, sections 15.6.3 to 15.6.5).
fn is_unwell(status: StatusCode) -> bool {
    matches!(status, StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT)
}

/// Whether the client may have caused the failure of its own request. An error response needs more evidence
/// than an error of the transport: a service that is not kept waiting can respond with an error at any time.
fn is_clients_fault<T, E>(result: &Result<T, E>, message: &Message) -> bool {
    message.payload.upload().is_some_and(|upload| match result {
        Ok(_) => upload.is_interrupted(),
        Err(_) => upload.is_clients_fault(),
    })
}
