//! Errors as problem details (RFC 9457).

use std::borrow::Cow;

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::{Value, json};

/// An error response.
#[derive(Debug, Serialize)]
pub(crate) struct ErrorResponse {
    status: u16,
    title: &'static str,
    /// Stable, for programs.
    code: &'static str,
    detail: Cow<'static, str>,
    /// The offending parameter or field.
    #[serde(skip_serializing_if = "Option::is_none")]
    parameter: Option<String>,
}

impl ErrorResponse {
    fn new(status: StatusCode, code: &'static str, detail: impl Into<Cow<'static, str>>) -> Self {
        let title = status.canonical_reason().unwrap_or("Error");
        Self { status: status.as_u16(), title, code, detail: detail.into(), parameter: None }
    }

    /// A parameter with a value that it can't have.
    pub(crate) fn parameter(name: &str, expected: &str) -> Self {
        let detail = format!("the parameter `{name}` must be {expected}");
        Self::about(name, Self::new(StatusCode::BAD_REQUEST, "bad-parameter", detail))
    }

    /// A parameter that the route does not have.
    pub(crate) fn unknown_parameter(name: &str, known: &[&str]) -> Self {
        let known = if known.is_empty() { "none".into() } else { known.join(", ") };
        let detail = format!("there is no parameter `{name}` here; there are: {known}");
        Self::about(name, Self::new(StatusCode::BAD_REQUEST, "unknown-parameter", detail))
    }

    /// A field of the body with a value that it can't have.
    pub(crate) fn field(name: &str, expected: &str) -> Self {
        let detail = format!("the field `{name}` must be {expected}");
        Self::about(name, Self::new(StatusCode::BAD_REQUEST, "bad-body", detail))
    }

    /// A body that is not JSON of the expected type.
    pub(crate) fn body(error: &serde_json::Error) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "bad-body", format!("the body does not fit: {error}"))
    }

    /// A body or a query string that could not be read.
    pub(crate) fn unreadable(status: StatusCode, detail: String) -> Self {
        Self::new(status, "unreadable", detail)
    }

    /// No row with this id.
    pub(crate) fn not_found(what: &str, id: i64) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not-found", format!("there is no {what} with the id {id}"))
    }

    /// No such path.
    pub(crate) fn no_route(path: &str) -> Self {
        Self::new(StatusCode::NOT_FOUND, "no-route", format!("there is nothing at {path}"))
    }

    /// A path that exists with other methods.
    pub(crate) fn method() -> Self {
        let detail = "this path has other methods; see the header Allow";
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "method-not-allowed", detail)
    }

    /// A login with a wrong email address or password.
    pub(crate) fn login() -> Self {
        let detail = "no user has this email address and password";
        Self::new(StatusCode::UNAUTHORIZED, "wrong-login", detail)
    }

    /// An internal error, without details for the client.
    pub(crate) fn internal() -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", "the service failed; try again later")
    }

    /// A field of introspection.
    pub(crate) fn introspection() -> Self {
        let detail = "there is no introspection here; the schema is a file of the service";
        Self::new(StatusCode::BAD_REQUEST, "no-introspection", detail)
    }

    /// Whether the requested row doesn't exist.
    pub(crate) fn is_not_found(&self) -> bool {
        self.code == "not-found"
    }

    /// Converts the problem to a GraphQL error of the field with this key.
    pub(crate) fn graphql(&self, key: &str) -> Value {
        json!({ "message": self.detail, "path": [key], "extensions": { "code": self.code } })
    }

    fn about(name: &str, problem: Self) -> Self {
        Self { parameter: Some(name.into()), ..problem }
    }
}

impl From<rusqlite::Error> for ErrorResponse {
    fn from(error: rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            Some(rusqlite::ErrorCode::ConstraintViolation) => {
                Self::new(StatusCode::CONFLICT, "conflict", "another row has this value already")
            }
            _ => Self::internal(),
        }
    }
}

impl IntoResponse for ErrorResponse {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let body = serde_json::to_vec(&self).unwrap_or_default();
        (status, [(header::CONTENT_TYPE, "application/problem+json")], body).into_response()
    }
}
