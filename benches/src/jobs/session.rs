//! A REST client's run: it counts requests and round trips, and sends what does not depend on one
//! another one by one or all at once.

use anyhow::{Context, Result};
use bytes::Bytes;
use futures_util::future::try_join_all;
use http::header::{HeaderName, HeaderValue};
use serde_json::Value;

use crate::call::Call;
use crate::client::{Client, gzip_saves};

/// A run of a REST client. The first segment of a call's path is the service, where there are several.
#[derive(Debug)]
pub struct Session<'a> {
    client: &'a Client,
    at_once: bool,
    /// What each call has beside its own.
    header: Option<(HeaderName, HeaderValue)>,
    /// How many requests had to wait for the one before.
    pub round_trips: usize,
    /// The answers so far. What gzip would save is counted when nobody takes the time.
    bodies: Vec<Bytes>,
}

impl<'a> Session<'a> {
    /// One that sends what does not depend on one another one by one, or all at once.
    #[must_use]
    pub fn new(client: &'a Client, at_once: bool) -> Self {
        Self { client, at_once, header: None, round_trips: 0, bodies: Vec::new() }
    }

    /// The same with a header in each call.
    #[must_use]
    pub fn with(self, name: HeaderName, value: HeaderValue) -> Self {
        Self { header: Some((name, value)), ..self }
    }

    /// Requests so far.
    #[must_use]
    pub fn requests(&self) -> usize {
        self.bodies.len()
    }

    /// Bytes by which gzip would have made the answers smaller.
    ///
    /// # Errors
    /// Those of [`gzip_saves`].
    pub fn gzip_saves(&self) -> std::io::Result<u64> {
        self.bodies.iter().map(|body| gzip_saves(body)).sum()
    }

    /// The answers themselves.
    #[must_use]
    pub fn into_bodies(self) -> Vec<Bytes> {
        self.bodies
    }

    /// One call, which has to be waited for.
    ///
    /// # Errors
    /// If it fails, or its answer is no JSON.
    pub async fn one(&mut self, call: Call) -> Result<Value> {
        self.round_trips += 1;
        let answer = self.send(call).await?;
        self.read(answer)
    }

    /// Calls that don't depend on one another; their answers in the same order.
    ///
    /// # Errors
    /// If one fails, or its answer is no JSON.
    pub async fn all(&mut self, calls: Vec<Call>) -> Result<Vec<Value>> {
        if self.at_once {
            self.round_trips += usize::from(!calls.is_empty());
            let answers = try_join_all(calls.into_iter().map(|call| self.send(call))).await?;
            return answers.into_iter().map(|answer| self.read(answer)).collect();
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

    async fn send(&self, call: Call) -> Result<Bytes> {
        let call = match self.header.clone() {
            Some((name, value)) => call.with(name, value),
            None => call,
        };
        Ok(call.send(self.client).await?.body)
    }

    fn read(&mut self, answer: Bytes) -> Result<Value> {
        let value = serde_json::from_slice(&answer).context("a service answered no JSON");
        self.bodies.push(answer);
        value
    }
}
