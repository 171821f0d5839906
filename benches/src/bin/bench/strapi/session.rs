//! A client's run with Strapi's REST or GraphQL, which both return results in `data`.

use anyhow::{Result, bail};
use benches::call::PreparedCall;
use benches::client::BenchClient;
use benches::jobs;
use http::Method;
use http::header::{AUTHORIZATION, HeaderValue};
use serde_json::{Value, json};

/// A run of a client.
pub(super) struct StrapiSession<'a>(jobs::RestSession<'a>);

impl<'a> StrapiSession<'a> {
    pub(super) fn new(client: &'a BenchClient, authorization: HeaderValue, at_once: bool) -> Self {
        Self(jobs::RestSession::new(client, at_once).with_header(AUTHORIZATION, authorization))
    }

    /// The number of requests so far.
    pub(super) fn requests(&self) -> usize {
        self.0.requests()
    }

    /// The number of bytes that gzip would have saved.
    pub(super) fn gzip_saves(&self) -> std::io::Result<u64> {
        self.0.gzip_saves()
    }

    /// Makes one call that later ones depend on. Returns the `data` of its response.
    pub(super) async fn call(&mut self, call: PreparedCall) -> Result<Value> {
        response_data(self.0.call(call).await?)
    }

    /// Makes independent calls. Returns the `data` of their responses in the same order.
    pub(super) async fn call_all(&mut self, calls: Vec<PreparedCall>) -> Result<Vec<Value>> {
        self.0.call_all(calls).await?.into_iter().map(response_data).collect()
    }

    /// Makes a GraphQL request. Returns the `data` of its response.
    pub(super) async fn graphql(&mut self, query: &str) -> Result<Value> {
        self.call(graphql_call(query)).await
    }
}

/// A GraphQL request to Strapi.
pub(super) fn graphql_call(query: &str) -> PreparedCall {
    PreparedCall::json(Method::POST, "/graphql", &json!({ "query": query }))
}

/// A PUT request.
pub(super) fn put_call(path: impl Into<String>, body: &Value) -> PreparedCall {
    PreparedCall::json(Method::PUT, path, body)
}

fn response_data(mut answer: Value) -> Result<Value> {
    if let Some(errors) = answer.get("errors") {
        bail!("Strapi responded with errors: {errors}");
    }
    Ok(answer["data"].take())
}
