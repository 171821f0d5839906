//! A client's run by Strapi's REST or GraphQL, both of which put what was asked for into `data`.

use anyhow::{Result, bail};
use benches::call::Call;
use benches::client::Client;
use benches::jobs;
use http::Method;
use http::header::{AUTHORIZATION, HeaderValue};
use serde_json::{Value, json};

/// A run of a client.
pub(super) struct Session<'a>(jobs::Session<'a>);

impl<'a> Session<'a> {
    pub(super) fn new(client: &'a Client, authorization: HeaderValue, at_once: bool) -> Self {
        Self(jobs::Session::new(client, at_once).with(AUTHORIZATION, authorization))
    }

    /// Requests so far.
    pub(super) fn requests(&self) -> usize {
        self.0.requests()
    }

    /// Bytes by which gzip would have made the answers smaller.
    pub(super) fn gzip_saves(&self) -> std::io::Result<u64> {
        self.0.gzip_saves()
    }

    /// One call, which has to be waited for; the `data` of its answer.
    pub(super) async fn one(&mut self, call: Call) -> Result<Value> {
        data(self.0.one(call).await?)
    }

    /// Calls that don't depend on one another; the `data` of their answers in the same order.
    pub(super) async fn all(&mut self, calls: Vec<Call>) -> Result<Vec<Value>> {
        self.0.all(calls).await?.into_iter().map(data).collect()
    }

    /// A GraphQL request; the `data` of its answer.
    pub(super) async fn graphql(&mut self, query: &str) -> Result<Value> {
        self.one(graphql(query)).await
    }
}

/// What a GraphQL client sends to Strapi.
pub(super) fn graphql(query: &str) -> Call {
    Call::json(Method::POST, "/graphql", &json!({ "query": query }))
}

/// What a call changes.
pub(super) fn put(path: impl Into<String>, body: &Value) -> Call {
    Call::json(Method::PUT, path, body)
}

fn data(mut answer: Value) -> Result<Value> {
    if let Some(errors) = answer.get("errors") {
        bail!("Strapi answered errors: {errors}");
    }
    Ok(answer["data"].take())
}
