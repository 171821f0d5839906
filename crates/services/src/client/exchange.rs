//! One exchange with a service: the endpoint, the answer, and another endpoint where that one failed.
//!
//! A safe request that can be sent whole is sent again after an endpoint broke off before its answer, was
//! too slow to begin it, or answered that it is not well; every other one only if nothing of it was sent, or
//! the endpoint says that it did nothing with it. Each time another endpoint gets it, within the service's
//! budget for retries and before its time is up; where there is no other one, what was given back goes to the
//! same one on another connection.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use http::{Response, StatusCode};
use http_body::Body as _;
use http_body_util::BodyExt;
use offload::QuotaKey;

use super::clock::{Clock, Late};
use super::message::{End, Message, Upload};
use super::watched::Watched;
use crate::body::Body;
use crate::call::{Budget, Outcome};
use crate::config::Duration;
use crate::error::{CallError, Waited};
use crate::hosts::is_private;
use crate::retry::is_safe;
use crate::service::Service;
use crate::targets::{Lease, Outside, Peer, Verdict};
use crate::transport::TransportError;
use crate::upgrade;

/// Why a 101 is no answer to a request that did not offer that protocol.
const UNASKED: &str = "it switched to a protocol that was not offered";

/// An exchange on behalf of one call.
pub(super) struct Exchange {
    pub(super) outside: Arc<Outside>,
    pub(super) service: Arc<Service>,
    /// Its number among the calls of the request.
    pub(super) number: usize,
    /// Who pays for the decoding of its answer; `None` where it is the answer of several callers.
    pub(super) payer: Option<QuotaKey>,
}

/// An answer that has begun, and the endpoint that gives it.
pub(super) struct Answer {
    pub(super) response: Response<Body>,
    pub(super) lease: Lease,
    /// Whether its endpoint is still to be told that it ended well.
    pub(super) untold: bool,
    /// The request's body, which may still be on its way.
    upload: Option<Arc<Upload>>,
}

/// How one attempt failed.
enum Failure {
    Transport(TransportError),
    Late(Late),
}

impl Exchange {
    /// Sends the message until there is an answer, or no reason to go on.
    pub(super) async fn answer(
        &self,
        budget: &Budget,
        clock: &mut Clock,
        message: &mut Message,
    ) -> Result<Answer, CallError> {
        let service = &*self.service;
        service.tally.requests.fetch_add(1, Relaxed);
        let result = self.attempts(budget, clock, message).await;
        let is_well = result.as_ref().is_ok_and(|answer| !answer.response.status().is_server_error());
        let is_clients_fault = broke_off(message) || matches!(result, Err(CallError::Stalled { .. }));
        if !is_well && !is_clients_fault {
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

    /// Another endpoint, if the time, the budget and the others' health allow it; any one, if the last gave
    /// the request back. Where nobody was there, nobody was burdened: that takes nothing from the budget.
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

    /// Sends the message to one endpoint, and waits until the answer begins.
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

    /// A client's answer: it counts as under way until its body ends.
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

/// Whether a response that switches protocols may: to one that was offered.
fn is_accepted(message: &Message, response: &Response<Body>) -> bool {
    message.upgrade.as_ref().is_some_and(|offer| offer.is_accepted(response))
}

/// What an attempt says of its endpoint; nothing, where the client broke off or its time was up.
fn verdict(result: &Result<Response<Body>, Failure>, message: &Message) -> Option<Verdict> {
    match result {
        Ok(response) => Some(match response.status() {
            StatusCode::INTERNAL_SERVER_ERROR => Verdict::Error,
            status if is_unwell(status) => Verdict::Failed,
            _ => Verdict::Good,
        }),
        Err(Failure::Late(Late::Deadline(_) | Late::Client(_))) => None,
        Err(_) if broke_off(message) => None,
        // Whoever goes away, or is full for a moment, is not ill; whoever only ever refuses is.
        Err(Failure::Transport(TransportError::Refused(_))) => Some(Verdict::Error),
        Err(_) => Some(Verdict::Failed),
    }
}

/// Whether another endpoint may be asked the same.
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

/// Whether the endpoint says that it did nothing with the request.
fn is_given_back(result: &Result<Response<Body>, Failure>) -> bool {
    matches!(result, Err(Failure::Transport(TransportError::Refused(_))))
}

/// Whether nobody listens at the endpoint, or no way leads there.
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

/// The statuses of a service that can't answer at the moment (RFC 9110, 15.6.3 to 15.6.5).
fn is_unwell(status: StatusCode) -> bool {
    matches!(status, StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT)
}

/// Whether the client broke its own request off.
fn broke_off(message: &Message) -> bool {
    message.payload.upload().is_some_and(|upload| matches!(upload.glance().end, Some(End::Broken)))
}
