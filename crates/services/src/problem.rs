//! The [`ToProblem`] trait, which all errors of the gateway implement.
//!
//! Errors become HTTP responses in one place, `gateway`, as problem details (RFC 9457). The trait supplies
//! the parts of the document: a stable code, a status, the party at fault, and additional members.

use http::{HeaderMap, HeaderValue, StatusCode, header};
use serde_json::{Map, Value};

/// The category of a failed upstream call, as reported to programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallErrorKind {
    /// The request is invalid.
    Invalid,
    /// The gateway's rules forbid the request.
    Forbidden,
    /// There is no service of this name.
    UnknownService,
    /// There was no connection to the service.
    Unreachable,
    /// The service did not respond in time.
    Timeout,
    /// The service's response was incomplete or not HTTP.
    Broken,
    /// The budget of the whole request is used up, so the request ends.
    Limit,
}

/// The party at fault for an error. Determines the status class, and whether the text is shown or masked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultParty {
    /// The client's request: 4xx.
    Client,
    /// The client's program refused, threw, trapped or exceeded a limit: 422.
    Program,
    /// A service behind the gateway: 502 or 504.
    Upstream,
    /// The gateway itself: 500. The text is only logged.
    Gateway,
    /// The gateway itself, temporarily: 503. The text is shown.
    Unavailable,
}

/// An error that can become a response.
pub trait ToProblem: std::error::Error + Send + Sync + 'static {
    /// The stable code, in kebab-case: `limit-cpu`. Its meaning never changes.
    fn code(&self) -> &'static str;

    /// The status of the response.
    fn status(&self) -> StatusCode;

    /// The party at fault.
    fn fault(&self) -> FaultParty;

    /// A suggested correction in one sentence; empty if there is none.
    fn hint(&self) -> String {
        String::new()
    }

    /// Members of the problem document in addition to those of RFC 9457: `calls`, `console`, `line`.
    fn members(&self) -> Map<String, Value> {
        Map::new()
    }

    /// Headers of the response: `Allow`, `Accept-Query`, `Retry-After`.
    fn headers(&self) -> HeaderMap {
        HeaderMap::new()
    }
}

impl<P: ToProblem> From<P> for Box<dyn ToProblem> {
    fn from(problem: P) -> Self {
        Box::new(problem)
    }
}

/// The gateway is overloaded. Any phase that detects overload rejects the request before useless work is
/// done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the gateway is overloaded")]
pub struct GatewayOverloaded;

/// The gateway is overloaded, and gave up a response that takes long to read or to compose. Unlike
/// [`GatewayOverloaded`], services may have been called before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the gateway is overloaded, and did not finish this response")]
pub struct UnfinishedResponse;

impl ToProblem for UnfinishedResponse {
    fn code(&self) -> &'static str {
        "answer-unfinished"
    }

    fn status(&self) -> StatusCode {
        StatusCode::SERVICE_UNAVAILABLE
    }

    fn fault(&self) -> FaultParty {
        FaultParty::Unavailable
    }

    fn hint(&self) -> String {
        "the request's calls to services may have had an effect; request less at once, or try later"
            .to_owned()
    }
}

/// A long response was not composed within the deadline of its route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the response was not composed within the route's `limits.timeout`")]
pub struct AnswerTimeout;

impl ToProblem for AnswerTimeout {
    fn code(&self) -> &'static str {
        "answer-timeout"
    }

    fn status(&self) -> StatusCode {
        StatusCode::SERVICE_UNAVAILABLE
    }

    fn fault(&self) -> FaultParty {
        FaultParty::Unavailable
    }

    fn hint(&self) -> String {
        "request less at once, or have the operator raise the route's `limits.timeout`".to_owned()
    }
}

impl ToProblem for GatewayOverloaded {
    fn code(&self) -> &'static str {
        "gateway-overloaded"
    }

    fn status(&self) -> StatusCode {
        StatusCode::SERVICE_UNAVAILABLE
    }

    fn fault(&self) -> FaultParty {
        FaultParty::Unavailable
    }

    fn hint(&self) -> String {
        "try again later, after a random wait".to_owned()
    }

    fn headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::with_capacity(4);
        headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        headers
    }
}
