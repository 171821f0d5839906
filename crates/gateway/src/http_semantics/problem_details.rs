//! The only place where an error becomes an HTTP response: problem details (RFC 9457).
//!
//! Internal errors are masked: the client receives a request ID, and the log contains the details.

use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use bytes::Bytes;
use handler::{HandlerResponse, LoggedProblem};
use http::{HeaderMap, HeaderValue, Response, header};
use serde_json::{Map, Value};
use services::{FaultParty, GatewayOverloaded, ToProblem, body};

/// The prefix of a problem's `type`, followed by its code. It never changes.
const TYPE: &str = "urn:orfa:error:";
/// The maximum length of a problem's `detail` in bytes. It may quote from a request's body.
const MAX_DETAIL: usize = 32 << 10;

/// Returns the response for a problem.
pub(crate) fn problem_response(problem: &dyn ToProblem) -> HandlerResponse {
    let request_id = (problem.fault() == FaultParty::Gateway).then(|| log_masked_problem(problem));
    // The text is shrunk, since it may wait for its client.
    let text = problem_document(problem, request_id.as_deref()).to_string().into_boxed_str();
    build_response(problem, problem_headers(problem), text.into_boxed_bytes().into(), request_id)
}

/// Returns the response for [`GatewayOverloaded`]. It is serialised once, because it is needed when the
/// gateway has no time to spare.
pub(crate) fn overloaded_response() -> HandlerResponse {
    static OVERLOADED_RESPONSE: LazyLock<(HeaderMap, Bytes)> = LazyLock::new(|| {
        (problem_headers(&GatewayOverloaded), problem_document(&GatewayOverloaded, None).to_string().into())
    });
    let (headers, text) = &*OVERLOADED_RESPONSE;
    build_response(&GatewayOverloaded, headers.clone(), text.clone(), None)
}

fn build_response(
    problem: &dyn ToProblem,
    headers: HeaderMap,
    text: Bytes,
    request_id: Option<String>,
) -> HandlerResponse {
    let mut response = Response::new(body::full(text));
    *response.status_mut() = problem.status();
    *response.headers_mut() = headers;
    let problem = Some(LoggedProblem { code: problem.code(), request_id });
    HandlerResponse { problem, ..response.into() }
}

fn problem_headers(problem: &dyn ToProblem) -> HeaderMap {
    let mut headers = problem.headers();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers
}

fn problem_document(problem: &dyn ToProblem, request_id: Option<&str>) -> Value {
    let mut document = Map::new();
    let mut put = |name: &str, value: Value| drop(document.insert(name.to_owned(), value));
    put("type", format!("{TYPE}{}", problem.code()).into());
    put("title", problem_title(problem.code()).into());
    put("status", problem.status().as_u16().into());
    put("code", problem.code().into());
    if let Some(id) = request_id {
        put("detail", "The gateway failed. Its log has the details under this request's id.".into());
        put("instance", format!("urn:orfa:request:{id}").into());
        put("request_id", id.into());
        return Value::Object(document);
    }
    let mut detail = problem.to_string();
    if detail.len() > MAX_DETAIL {
        detail.truncate(detail.floor_char_boundary(MAX_DETAIL));
        detail.push('…');
    }
    put("detail", detail.into());
    let hint = problem.hint();
    if !hint.is_empty() {
        put("hint", hint.into());
    }
    for (name, value) in problem.members() {
        document.entry(name).or_insert(value);
    }
    Value::Object(document)
}

/// Converts a code to a title: `limit-cpu` becomes `Limit cpu`.
fn problem_title(code: &str) -> String {
    let spaced = code.replace('-', " ");
    let mut letters = spaced.chars();
    letters.next().map(|first| first.to_ascii_uppercase()).into_iter().chain(letters).collect()
}

/// Logs an error that the client must not see, and returns the ID of its log entry.
fn log_masked_problem(problem: &dyn ToProblem) -> String {
    let id = new_request_id();
    let mut text = problem.to_string();
    let mut cause = problem.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    tracing::error!(request_id = %id, code = problem.code(), "{text}");
    id
}

/// Returns an ID that is unique within this process and reveals nothing about the request.
fn new_request_id() -> String {
    static KEY: LazyLock<RandomState> = LazyLock::new(RandomState::new);
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("{:016x}", KEY.hash_one(NEXT.fetch_add(1, Relaxed)))
}

#[cfg(test)]
mod tests {
    use http::StatusCode;

    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{0}")]
    struct JsonQuoting(String);

    impl ToProblem for JsonQuoting {
        fn code(&self) -> &'static str {
            "quoting"
        }

        fn status(&self) -> StatusCode {
            StatusCode::BAD_REQUEST
        }

        fn fault(&self) -> FaultParty {
            FaultParty::Client
        }
    }

    #[test]
    fn cuts_a_detail_of_any_length() {
        let detail =
            |text: String| problem_document(&JsonQuoting(text), None)["detail"].as_str().unwrap().to_owned();
        let short = "é".repeat(MAX_DETAIL / 2);
        assert_eq!(detail(short.clone()), short);
        assert_eq!(detail(format!("x{short}{short}")).len(), MAX_DETAIL - 1 + '…'.len_utf8());
    }
}
