//! A REST client's run: it counts requests and round trips, and sends what does not depend on one
//! another one by one or all at once.

use crate::client::{Client, gzip_saves};
use anyhow::{Context, Result, bail};
use bytes::Bytes;
use futures_util::future::try_join_all;
use http::{Method, Request};
use http_body_util::Full;
use serde_json::Value;

/// A run of a REST client.
#[derive(Debug)]
pub struct Session<'a> {
    client: &'a Client,
    at_once: bool,
    /// Requests so far.
    pub requests: usize,
    /// How many of them had to wait for the one before.
    pub round_trips: usize,
    /// Bytes by which gzip would have made the answers smaller.
    pub gzip_saves: u64,
}

/// A request to be sent; the first segment of the path is the service.
#[derive(Clone, Debug)]
pub(super) struct Call {
    method: Method,
    path: String,
    body: Option<Value>,
}

impl Call {
    pub(super) fn get(path: impl Into<String>) -> Self {
        Self { method: Method::GET, path: path.into(), body: None }
    }

    pub(super) fn post(path: impl Into<String>, body: Value) -> Self {
        Self { method: Method::POST, path: path.into(), body: Some(body) }
    }

    /// Sends it; the answer's body, which is JSON.
    pub(super) async fn send(&self, client: &Client) -> Result<Bytes> {
        let Self { method, path, body } = self;
        let mut request = Request::builder().method(method).uri(path);
        if body.is_some() {
            request = request.header("content-type", "application/json");
        }
        let body = body.as_ref().map(Value::to_string).unwrap_or_default();
        let answer = client.send(request.body(Full::new(Bytes::from(body)))?).await;
        let answer = answer.with_context(|| format!("{method} {path}"))?;
        if !answer.status.is_success() {
            bail!("{method} {path}: {} {}", answer.status, String::from_utf8_lossy(&answer.body));
        }
        Ok(answer.body)
    }
}

impl<'a> Session<'a> {
    /// One that sends what does not depend on one another one by one, or all at once.
    #[must_use]
    pub fn new(client: &'a Client, at_once: bool) -> Self {
        Self { client, at_once, requests: 0, round_trips: 0, gzip_saves: 0 }
    }

    /// One call, which has to be waited for.
    pub(super) async fn one(&mut self, call: Call) -> Result<Value> {
        self.requests += 1;
        self.round_trips += 1;
        let answer = call.send(self.client).await?;
        self.read(&answer)
    }

    /// Calls that don't depend on one another; their answers in the same order.
    pub(super) async fn all(&mut self, calls: Vec<Call>) -> Result<Vec<Value>> {
        if self.at_once {
            self.requests += calls.len();
            self.round_trips += usize::from(!calls.is_empty());
            let answers = try_join_all(calls.iter().map(|call| call.send(self.client))).await?;
            return answers.iter().map(|answer| self.read(answer)).collect();
        }
        let mut answers = Vec::with_capacity(calls.len());
        for call in calls {
            answers.push(self.one(call).await?);
        }
        Ok(answers)
    }

    /// Two calls that don't depend on one another.
    pub(super) async fn both(&mut self, first: Call, second: Call) -> Result<(Value, Value)> {
        let answers: Result<[Value; 2], _> = self.all(vec![first, second]).await?.try_into();
        let [first, second] = answers.map_err(|_| anyhow::anyhow!("two calls have two answers"))?;
        Ok((first, second))
    }

    fn read(&mut self, answer: &Bytes) -> Result<Value> {
        self.gzip_saves += gzip_saves(answer)?;
        serde_json::from_slice(answer).context("a service answered no JSON")
    }
}
