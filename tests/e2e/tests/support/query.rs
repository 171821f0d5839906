//! A builder for query requests, and assertions on problem documents.

use serde_json::Value;
use testkit::http::{TestResponse, request};

use super::TestGateway;

/// A request to a query route that has not been sent yet.
#[derive(Clone, Debug)]
pub(crate) struct TestQuery {
    path: String,
    method: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl TestQuery {
    /// Builds `POST /query` with a body of this content type.
    pub(crate) fn new(content_type: &str, body: impl Into<Vec<u8>>) -> Self {
        Self::untyped(body).header("content-type", content_type)
    }

    /// Builds `POST /query` without a content type.
    pub(crate) fn untyped(body: impl Into<Vec<u8>>) -> Self {
        Self { path: "/query".into(), method: "POST".into(), headers: Vec::new(), body: body.into() }
    }

    pub(crate) fn javascript(source: &str) -> Self {
        Self::new("text/javascript", source)
    }

    pub(crate) fn typescript(source: &str) -> Self {
        Self::new("text/typescript", source)
    }

    pub(crate) fn module(wasm: impl Into<Vec<u8>>) -> Self {
        Self::new("application/wasm", wasm)
    }

    /// Sets the path of the route.
    pub(crate) fn with_path(mut self, path: &str) -> Self {
        self.path = path.into();
        self
    }

    /// Puts input in front of the program.
    pub(crate) fn input(mut self, input: &str) -> Self {
        self.body.splice(..0, input.bytes());
        self.header("orfa-input", &input.len().to_string())
    }

    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    pub(crate) fn limit(self, limit: &str) -> Self {
        self.header("orfa-limit", limit)
    }

    pub(crate) fn method(mut self, method: &str) -> Self {
        self.method = method.into();
        self
    }

    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// Sends the request on a new connection. Dropping the future closes the connection.
    pub(crate) async fn send(&self, gateway: &TestGateway) -> TestResponse {
        let url = format!("{}{}", gateway.gateway.url, self.path);
        let headers: Vec<_> = self.headers.iter().map(|(name, value)| (&**name, &**value)).collect();
        let answer = request(&self.method, &url, &headers, self.body.clone()).await;
        answer.expect("an answer in HTTP")
    }
}

/// Asserts that an answer is a problem with this status and code and with everything that all problems have.
/// Returns its document.
#[track_caller]
pub(crate) fn assert_problem(response: &TestResponse, status: u16, code: &str) -> Value {
    let text = response.text();
    assert_eq!(response.header("content-type"), "application/problem+json", "{}: {text}", response.status);
    let document = response.json();
    let found = (response.status.as_u16(), &document["code"]);
    assert_eq!(found, (status, &Value::from(code)), "{text}");
    assert_eq!(document["status"], status);
    let row = format!("| `{code}` | {status} | ");
    assert!(include_str!("../../../../docs/errors.md").contains(&row), "docs/errors.md has no row {row}");
    assert_eq!(document["type"], format!("urn:orfa:error:{code}"));
    assert!(document["detail"].as_str().is_some_and(|detail| !detail.is_empty()), "{text}");
    assert!(response.header("server-timing").contains("total;dur="), "no Server-Timing with {text}");
    document
}
