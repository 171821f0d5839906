//! Runs routes: parses the request, calls the route's handler with a connection on a blocking thread, and
//! makes a response of its result.
//!
//! Routes are rows of a table. The same table is used for the router, the check of parameter names, and the
//! comparison with the OpenAPI documents.

use std::sync::Arc;

use axum::Router;
use axum::extract::rejection::{BytesRejection, QueryRejection};
use axum::extract::{Path, Query};
use axum::http::{HeaderValue, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodFilter, MethodRouter, on};
use bytes::Bytes;
use rusqlite::Connection;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::database::{Database, DatabaseAccess};
use crate::graphql::Graphql;
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
    access: DatabaseAccess,
    run: RequestHandler,
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
        let gone = Self { status: StatusCode::NO_CONTENT, ..Self::ok(Vec::new()) };
        if rows == 0 { Err(ErrorResponse::not_found(what, id)) } else { Ok(gone) }
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

/// Creates the router of a service, including its GraphQL endpoint.
pub(crate) fn router(routes: &'static [Route], graphql: Graphql, database: Database) -> Router {
    let (database, graphql) = (Arc::new(database), Arc::new(graphql));
    let add = |router: Router, route: &'static Route| router.route(route.path, endpoint(route, &database));
    let by_graphql = {
        let database = Arc::clone(&database);
        async move |body: Result<Bytes, BytesRejection>| {
            by_graphql(graphql.clone(), database.clone(), body).await
        }
    };
    routes
        .iter()
        .fold(Router::new().route("/graphql", on(MethodFilter::POST, by_graphql)), add)
        .fallback(async |uri: Uri| ErrorResponse::no_route(uri.path()))
        .method_not_allowed_fallback(async || ErrorResponse::method())
}

fn endpoint(route: &'static Route, database: &Arc<Database>) -> MethodRouter {
    let database = Arc::clone(database);
    let filter = MethodFilter::try_from(route.method.clone()).unwrap_or(MethodFilter::GET);
    on(filter, async move |id: Option<Path<String>>, query: Pairs, body: Result<Bytes, BytesRejection>| {
        let request = request(route, id, query, body)?;
        run(route, database, request).await
    })
}

async fn by_graphql(
    graphql: Arc<Graphql>,
    database: Arc<Database>,
    body: Result<Bytes, BytesRejection>,
) -> Result<HandlerOutput, ErrorResponse> {
    let body = body.map_err(|error| ErrorResponse::unreadable(error.status(), error.body_text()))?;
    let turn = database.turn().clone().acquire_owned().await.ok();
    let work = move || {
        let answer = graphql.answer(&database, &body);
        drop(turn);
        answer
    };
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|_| Err(ErrorResponse::internal()))
}

type Pairs = Result<Query<Vec<(String, String)>>, QueryRejection>;

fn request(
    route: &Route,
    id: Option<Path<String>>,
    query: Pairs,
    body: Result<Bytes, BytesRejection>,
) -> Result<HandlerInput, ErrorResponse> {
    let Query(pairs) = query.map_err(|error| ErrorResponse::unreadable(error.status(), error.body_text()))?;
    let body = body.map_err(|error| ErrorResponse::unreadable(error.status(), error.body_text()))?;
    let parameters = Parameters::new(pairs, route.parameters)?;
    Ok(HandlerInput { id: id.map(|Path(id)| id), parameters, body })
}

async fn run(
    route: &'static Route,
    database: Arc<Database>,
    request: HandlerInput,
) -> Result<HandlerOutput, ErrorResponse> {
    let turn = match route.access {
        DatabaseAccess::Read => database.turn().clone().acquire_owned().await.ok(),
        DatabaseAccess::Write => None,
    };
    let work = move || {
        let answer = database.run(route.access, |db| (route.run)(db, &request));
        drop(turn);
        answer
    };
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|_| Err(ErrorResponse::internal()))
}
