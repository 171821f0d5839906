//! A client's run by REST or GraphQL: it counts requests, and sends what does not depend on one another
//! one by one or all at once.

use anyhow::{Context, Result, bail};
use benches::client::{Client, gzip_saves};
use bytes::Bytes;
use futures_util::future::try_join_all;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use http::{Method, Request};
use http_body_util::Full;
use serde_json::{Value, json};

/// A run of a client.
pub(super) struct Session<'a> {
    client: &'a Client,
    authorization: HeaderValue,
    at_once: bool,
    /// Requests so far.
    pub(super) requests: usize,
    /// Bytes by which gzip would have made the answers smaller.
    pub(super) gzip_saves: u64,
}

/// A request to be sent.
pub(super) struct Call {
    method: Method,
    path: String,
    body: Option<Value>,
}

impl Call {
    pub(super) fn get(path: impl Into<String>) -> Self {
        Self { method: Method::GET, path: path.into(), body: None }
    }

    pub(super) fn put(path: impl Into<String>, body: Value) -> Self {
        Self { method: Method::PUT, path: path.into(), body: Some(body) }
    }

    /// What a GraphQL client sends.
    fn graphql(query: &str) -> Self {
        Self { method: Method::POST, path: "/graphql".into(), body: Some(json!({ "query": query })) }
    }
}

impl<'a> Session<'a> {
    pub(super) fn new(client: &'a Client, authorization: HeaderValue, at_once: bool) -> Self {
        Self { client, authorization, at_once, requests: 0, gzip_saves: 0 }
    }

    /// One call, which has to be waited for; the `data` of its answer.
    pub(super) async fn one(&mut self, call: Call) -> Result<Value> {
        let answer = self.send(&call).await?;
        self.read(&answer)
    }

    /// Calls that don't depend on one another; the `data` of their answers in the same order.
    pub(super) async fn all(&mut self, calls: Vec<Call>) -> Result<Vec<Value>> {
        let mut answers = Vec::with_capacity(calls.len());
        if self.at_once {
            answers = try_join_all(calls.iter().map(|call| self.send(call))).await?;
        } else {
            for call in &calls {
                answers.push(self.send(call).await?);
            }
        }
        answers.iter().map(|answer| self.read(answer)).collect()
    }

    /// A GraphQL request; the `data` of its answer.
    pub(super) async fn graphql(&mut self, query: &str) -> Result<Value> {
        self.one(Call::graphql(query)).await
    }

    async fn send(&self, Call { method, path, body }: &Call) -> Result<Bytes> {
        let mut request =
            Request::builder().method(method).uri(path).header(AUTHORIZATION, &self.authorization);
        if body.is_some() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        let body = body.as_ref().map(Value::to_string).unwrap_or_default();
        let answer = self.client.send(request.body(Full::new(Bytes::from(body)))?).await;
        let answer = answer.with_context(|| format!("{method} {path}"))?;
        if !answer.status.is_success() {
            bail!("{method} {path}: {} {}", answer.status, String::from_utf8_lossy(&answer.body));
        }
        Ok(answer.body)
    }

    /// Both Strapi's REST and GraphQL put what was asked for into `data`.
    fn read(&mut self, answer: &Bytes) -> Result<Value> {
        self.requests += 1;
        self.gzip_saves += gzip_saves(answer)?;
        let mut answer: Value = serde_json::from_slice(answer).context("Strapi answered no JSON")?;
        if let Some(errors) = answer.get("errors") {
            bail!("Strapi answered errors: {errors}");
        }
        Ok(answer["data"].take())
    }
}
