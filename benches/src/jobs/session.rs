//! A run of a REST client: it counts requests and round trips, and sends independent calls sequentially or
//! concurrently.

use anyhow::{Context, Result};
use bytes::Bytes;
use futures_util::future::try_join_all;
use http::header::{HeaderName, HeaderValue};
use serde_json::Value;

use crate::call::PreparedCall;
use crate::client::{BenchClient, gzip_saves};

/// A run of a REST client. With several services, the first segment of a call's path is the service.
#[derive(Debug)]
pub struct RestSession<'a> {
    client: &'a BenchClient,
    is_parallel: bool,
    /// A header that is added to each call.
    header: Option<(HeaderName, HeaderValue)>,
    /// The number of sequential steps.
    pub round_trips: usize,
    /// The responses so far. The savings of gzip are computed later, outside of the measured time.
    bodies: Vec<Bytes>,
}

impl<'a> RestSession<'a> {
    /// Creates a session that sends independent calls sequentially, or concurrently if `at_once`.
    #[must_use]
    pub fn new(client: &'a BenchClient, is_parallel: bool) -> Self {
        Self { client, is_parallel, header: None, round_trips: 0, bodies: Vec::new() }
    }

    /// Adds a header to each call.
    #[must_use]
    pub fn with_header(self, name: HeaderName, value: HeaderValue) -> Self {
        Self { header: Some((name, value)), ..self }
    }

    /// The number of requests so far.
    #[must_use]
    pub fn requests(&self) -> usize {
        self.bodies.len()
    }

    /// The number of bytes that gzip would have saved.
    ///
    /// # Errors
    /// Fails as [`gzip_saves`] does.
    pub fn gzip_saves(&self) -> std::io::Result<u64> {
        self.bodies.iter().map(|body| gzip_saves(body)).sum()
    }

    /// The response bodies.
    #[must_use]
    pub fn into_bodies(self) -> Vec<Bytes> {
        self.bodies
    }

    /// Makes one call that later ones depend on.
    ///
    /// # Errors
    /// Fails if the call fails, or its response is not JSON.
    pub async fn call(&mut self, call: PreparedCall) -> Result<Value> {
        self.round_trips += 1;
        let answer = self.send(call).await?;
        self.parse_response(answer)
    }

    /// Makes independent calls. The results have the same order.
    ///
    /// # Errors
    /// Fails if one fails, or its response is not JSON.
    pub async fn call_all(&mut self, calls: Vec<PreparedCall>) -> Result<Vec<Value>> {
        if self.is_parallel {
            self.round_trips += usize::from(!calls.is_empty());
            let answers = try_join_all(calls.into_iter().map(|call| self.send(call))).await?;
            return answers.into_iter().map(|answer| self.parse_response(answer)).collect();
        }
        let mut answers = Vec::with_capacity(calls.len());
        for call in calls {
            answers.push(self.call(call).await?);
        }
        Ok(answers)
    }

    /// Makes two independent calls.
    pub(super) async fn call_both(
        &mut self,
        first: PreparedCall,
        second: PreparedCall,
    ) -> Result<(Value, Value)> {
        let answers: Result<[Value; 2], _> = self.call_all(vec![first, second]).await?.try_into();
        let [first, second] = answers.map_err(|_| anyhow::anyhow!("two calls have two responses"))?;
        Ok((first, second))
    }

    async fn send(&self, call: PreparedCall) -> Result<Bytes> {
        let call = match self.header.clone() {
            Some((name, value)) => call.with_header(name, value),
            None => call,
        };
        Ok(call.send(self.client).await?.body)
    }

    fn parse_response(&mut self, answer: Bytes) -> Result<Value> {
        let value = serde_json::from_slice(&answer).context("a service's response is not JSON");
        self.bodies.push(answer);
        value
    }
}
