//! Routes, and the input and output of their handlers.
//!
//! Routes are rows of a table. The same table is used for the router, the check of parameter names, and the
//! comparison with the OpenAPI documents.

use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use rusqlite::Connection;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::database::DatabaseAccess;
use crate::parameters::Parameters;
use crate::problem::ErrorResponse;

pub(crate) type RequestHandler = fn(&Connection, &HandlerInput) -> Result<HandlerOutput, ErrorResponse>;

/// A method, a path, and their handler.
#[derive(Debug)]
pub struct Route {
    /// The HTTP method.
    pub method: Method,
    /// The path. The only possible variable is `{id}`.
    pub path: &'static str,
    /// The names of the parameters in the URL's query; others are rejected.
    pub parameters: &'static [&'static str],
    pub(crate) access: DatabaseAccess,
    pub(crate) run: RequestHandler,
}

/// The input of a handler.
pub(crate) struct HandlerInput {
    id: Option<String>,
    pub(crate) parameters: Parameters,
    body: Bytes,
}

/// The response of a handler.
pub(crate) struct HandlerOutput {
    status: StatusCode,
    body: Vec<u8>,
    total: Option<i64>,
    location: Option<String>,
}

impl Route {
    pub(crate) const fn get(
        path: &'static str,
        parameters: &'static [&'static str],
        run: RequestHandler,
    ) -> Self {
        Self { method: Method::GET, path, parameters, access: DatabaseAccess::Read, run }
    }

    /// A route that changes rows.
    pub(crate) const fn write(method: Method, path: &'static str, run: RequestHandler) -> Self {
        Self { method, path, parameters: &[], access: DatabaseAccess::Write, run }
    }

    /// A POST that changes nothing.
    pub(crate) const fn ask(path: &'static str, run: RequestHandler) -> Self {
        Self { method: Method::POST, path, parameters: &[], access: DatabaseAccess::Read, run }
    }
}

impl HandlerInput {
    /// Creates a request from the `{id}` of its path, the parameters in its URL's query, and its body.
    pub(crate) fn new(id: Option<String>, parameters: Parameters, body: Bytes) -> Self {
        Self { id, parameters, body }
    }

    /// Creates a request from the arguments of a GraphQL field: `id` is that of the path, `input` is the
    /// body.
    pub(crate) fn of(mut arguments: Map<String, Value>) -> Self {
        let id = arguments.remove("id").map(|id| id.to_string());
        let body = arguments.remove("input").map(|input| input.to_string().into()).unwrap_or_default();
        Self { id, parameters: Parameters::of(&arguments), body }
    }

    /// Returns the `{id}` of the path.
    pub(crate) fn id(&self) -> Result<i64, ErrorResponse> {
        let id = self.id.as_deref().and_then(|id| id.parse().ok());
        id.ok_or_else(|| ErrorResponse::parameter("id", "a whole number"))
    }

    /// Parses the body, which must be JSON of this type.
    pub(crate) fn body<T: DeserializeOwned>(&self) -> Result<T, ErrorResponse> {
        serde_json::from_slice(&self.body).map_err(|error| ErrorResponse::body(&error))
    }
}

impl HandlerOutput {
    /// 200 with a JSON text.
    pub(crate) fn ok(body: Vec<u8>) -> Self {
        Self { status: StatusCode::OK, body, total: None, location: None }
    }

    /// A page of a list that has `total` rows.
    pub(crate) fn list(body: Vec<u8>, total: i64) -> Self {
        Self { total: Some(total), ..Self::ok(body) }
    }

    /// 201 with the new row and its path.
    pub(crate) fn created(body: Vec<u8>, location: String) -> Self {
        Self { status: StatusCode::CREATED, location: Some(location), ..Self::ok(body) }
    }

    /// 200 with the row, or 404 if there is none.
    pub(crate) fn found(row: Option<Vec<u8>>, what: &str, id: i64) -> Result<Self, ErrorResponse> {
        row.map(Self::ok).ok_or_else(|| ErrorResponse::not_found(what, id))
    }

    /// 204 if a row was deleted, else 404.
    pub(crate) fn deleted(rows: usize, what: &str, id: i64) -> Result<Self, ErrorResponse> {
        let output = Self { status: StatusCode::NO_CONTENT, ..Self::ok(Vec::new()) };
        if rows == 0 { Err(ErrorResponse::not_found(what, id)) } else { Ok(output) }
    }

    /// The JSON text; `None` if the body is empty.
    pub(crate) fn text(&self) -> Option<&[u8]> {
        (!self.body.is_empty()).then_some(&self.body)
    }
}

impl IntoResponse for HandlerOutput {
    fn into_response(self) -> Response {
        let mut response = (self.status, self.body).into_response();
        let headers = response.headers_mut();
        if self.status == StatusCode::NO_CONTENT {
            headers.remove(header::CONTENT_TYPE);
        } else {
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        if let Some(total) = self.total {
            headers.insert("x-total-count", HeaderValue::from(total));
        }
        if let Some(location) = self.location.and_then(|location| HeaderValue::try_from(location).ok()) {
            headers.insert(header::LOCATION, location);
        }
        response
    }
}
