//! Runs routes: parses the request, calls the route's handler with a connection on a blocking thread, and
//! makes a response of its result.

use std::sync::Arc;

use axum::Router;
use axum::extract::rejection::{BytesRejection, QueryRejection};
use axum::extract::{Path, Query};
use axum::http::Uri;
use axum::routing::{MethodFilter, MethodRouter, on};
use bytes::Bytes;

use crate::database::{Database, DatabaseAccess};
use crate::graphql::Graphql;
use crate::http::{HandlerInput, HandlerOutput, Route};
use crate::parameters::Parameters;
use crate::problem::ErrorResponse;

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
    Ok(HandlerInput::new(id.map(|Path(id)| id), parameters, body))
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
