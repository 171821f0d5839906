//! The response that a handler returns.

use http::Response;
use json::JsonTree;
use services::{StreamedServiceBody, ToProblem};

/// The result of a handler: its response, or the error that becomes a problem document.
pub type HandlerResult = Result<HandlerResponse, Box<dyn ToProblem>>;

/// A handler's response to a client.
#[derive(Debug)]
pub struct HandlerResponse {
    /// The status, the headers and the body.
    pub response: Response<StreamedServiceBody>,
    /// The JSON value that the body is the text of, for deduplication; `None` if the handler does not have it
    /// as a tree.
    pub json_tree: Option<JsonTree>,
    /// The memory in bytes that the response occupies until its body is read, if it is composed from data in
    /// memory, or else 0. The current frame of such a body is a small part of this memory.
    pub held_bytes: u64,
    /// The error that the response reports, for the log and the metrics.
    pub problem: Option<LoggedProblem>,
}

/// The error that a response reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedProblem {
    /// The stable code of the error.
    pub code: &'static str,
    /// The ID of its entry in the gateway's own log, if its details are hidden from the client.
    pub request_id: Option<String>,
}

impl From<Response<StreamedServiceBody>> for HandlerResponse {
    /// Wraps a response that is not composed in memory and reports no error.
    fn from(response: Response<StreamedServiceBody>) -> Self {
        Self { response, json_tree: None, held_bytes: 0, problem: None }
    }
}

impl LoggedProblem {
    /// Describes an error whose details the client may see.
    #[must_use]
    pub fn new(code: &'static str) -> Self {
        Self { code, request_id: None }
    }
}
