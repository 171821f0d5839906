//! Tests of the marketplace: one test binary, a file per subject.
//!
//! Most tests call a service's router in process, with a fresh database; `processes.rs` starts the program.
#![expect(clippy::unwrap_used, reason = "a test that finds no such value should fail")]

mod graphql;
mod lists;
mod openapi;
mod problems;
mod processes;
mod seed;
mod writes;

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, Request, StatusCode, header};
use http_body_util::BodyExt;
use marketplace::{DatabaseFolder, MarketplaceService};
use serde_json::Value;
use tower_service::Service as _;

/// A service with its own database.
pub(crate) struct Api(Router);

/// A response.
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) bytes: Vec<u8>,
}

impl Api {
    pub(crate) fn fresh(service: MarketplaceService) -> Self {
        Self(marketplace::router(service, &DatabaseFolder::fresh().unwrap()).unwrap())
    }

    pub(crate) async fn send(&self, method: &str, path: &str, body: &str) -> Reply {
        let request = Request::builder().method(method).uri(path);
        let request =
            request.header(header::CONTENT_TYPE, "application/json").body(Body::from(body.to_owned()));
        let response = self.0.clone().call(request.unwrap()).await.unwrap();
        let (parts, body) = response.into_parts();
        let bytes = body.collect().await.unwrap().to_bytes().to_vec();
        Reply { status: parts.status, headers: parts.headers, bytes }
    }

    /// Returns the JSON of a GET, which must succeed.
    pub(crate) async fn get(&self, path: &str) -> Value {
        let reply = self.send("GET", path, "").await;
        assert_eq!(reply.status, 200, "{path}: {}", String::from_utf8_lossy(&reply.bytes));
        reply.json()
    }

    /// Returns the IDs in a list.
    pub(crate) async fn ids(&self, path: &str) -> Vec<i64> {
        column(&self.get(path).await, "id")
    }
}

impl Reply {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.bytes).unwrap()
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }
}

/// Returns a field of every row, as numbers.
pub(crate) fn column(rows: &Value, name: &str) -> Vec<i64> {
    rows.as_array().unwrap().iter().map(|row| row[name].as_i64().unwrap()).collect()
}
