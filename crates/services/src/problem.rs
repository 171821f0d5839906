//! What every error of the house can say of itself.
//!
//! Errors become HTTP in one place, `gateway`, as problem details (RFC 9457). Here stands what it needs
//! to know: a stable code, a status, whose fault it is, and members of its own for the document.

use http::{HeaderMap, HeaderValue, StatusCode, header};
use serde_json::{Map, Value};

/// Why an upstream call brought no answer, in the few words that programs are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The request makes no sense.
    Invalid,
    /// The rules of the gateway forbid it.
    Forbidden,
    /// There is no such service.
    UnknownService,
    /// No connection to the service.
    Unreachable,
    /// The service did not answer in time.
    Timeout,
    /// The service broke off, or what came was not HTTP.
    Broken,
    /// The allowance of the whole request is used up: it ends here.
    Limit,
}

/// Whose fault an error is. It decides the status class, and whether the text is shown or masked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The request was wrong: 4xx.
    Client,
    /// The program that the client sent refused, threw, trapped or went over a limit: 422.
    Program,
    /// A service behind the gateway: 502 or 504.
    Upstream,
    /// The gateway itself: 500; the text stays in the log.
    Gateway,
    /// The gateway again, but only for now: 503. There is nothing to mask.
    Unavailable,
}

/// An error that can become an answer.
pub trait Problem: std::error::Error + Send + Sync + 'static {
    /// The stable code, in kebab-case: `limit-cpu`. It never changes its meaning.
    fn code(&self) -> &'static str;

    /// The status of the answer.
    fn status(&self) -> StatusCode;

    /// Whose fault it is.
    fn fault(&self) -> Fault;

    /// What the reader can do about it, in one sentence; empty where there is nothing to say.
    fn hint(&self) -> String {
        String::new()
    }

    /// Members of the problem document beyond those of RFC 9457: `calls`, `console`, `line`.
    fn members(&self) -> Map<String, Value> {
        Map::new()
    }

    /// Headers that belong to the answer: `Allow`, `Accept-Query`, `Retry-After`.
    fn headers(&self) -> HeaderMap {
        HeaderMap::new()
    }
}

/// The code of what went wrong, in the extensions of an answer that tells it in a form of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Told(pub &'static str);

impl<P: Problem> From<P> for Box<dyn Problem> {
    fn from(problem: P) -> Self {
        Box::new(problem)
    }
}

/// The gateway has more to do than it can: refused by any phase that knows, before work is done in vain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the gateway has more to do than it can just now")]
pub struct Overloaded;

/// The gateway has more to do than it can, and gives up an answer that takes long to read or to compose. Unlike with
/// [`Overloaded`], services were asked before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the gateway has more to do than it can just now, and has not finished this answer")]
pub struct Unfinished;

impl Problem for Unfinished {
    fn code(&self) -> &'static str {
        "answer-unfinished"
    }

    fn status(&self) -> StatusCode {
        StatusCode::SERVICE_UNAVAILABLE
    }

    fn fault(&self) -> Fault {
        Fault::Unavailable
    }

    fn hint(&self) -> String {
        "what the request asked of services may have had its effect; ask for less at once, or later"
            .to_owned()
    }
}

/// A long answer was not composed within the deadline of its route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the answer was not composed within the route's `deadline`")]
pub struct AnswerTimeout;

impl Problem for AnswerTimeout {
    fn code(&self) -> &'static str {
        "answer-timeout"
    }

    fn status(&self) -> StatusCode {
        StatusCode::SERVICE_UNAVAILABLE
    }

    fn fault(&self) -> Fault {
        Fault::Unavailable
    }

    fn hint(&self) -> String {
        "ask for less at once, or have the operator raise the route's `deadline`".to_owned()
    }
}

impl Problem for Overloaded {
    fn code(&self) -> &'static str {
        "gateway-overloaded"
    }

    fn status(&self) -> StatusCode {
        StatusCode::SERVICE_UNAVAILABLE
    }

    fn fault(&self) -> Fault {
        Fault::Unavailable
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
