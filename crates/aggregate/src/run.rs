//! The execution of a request: runs every part concurrently, as soon as its dependencies have completed.

mod each;

use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use http::{Method, StatusCode};
use services::calls::try_join_bounded;
use services::{DurationConfig, RequestCalls, ServiceRequest};
use tokio::time::{timeout, timeout_at};

use crate::memory::MemoryBudget;
use crate::plan::{FailureFallback, PartPlan};
use crate::problem::{AggregateError, PartFailure, PartFailureReason};
use crate::render::{PartRenderer, RenderError};
use crate::stream::{self, PartStart, SharedArrivingResponse};
use crate::value::{AvailableValues, JsonText, PartValue, indexed, joined, work_of_texts};

/// A request in flight.
pub(crate) struct AggregateRun<'a> {
    pub(crate) known: &'a AvailableValues<'a>,
    pub(crate) calls: RequestCalls,
    /// Whether the response body is not needed.
    pub(crate) is_head: bool,
}

/// The result of a part: its value, and its failure if it is optional.
type PartResult = Result<(PartValue, Option<PartFailure>), AggregateError>;

impl<'a> AggregateRun<'a> {
    /// Runs all parts, and returns the failures of optional parts.
    ///
    /// # Errors Returns the first failure of a required part. Calls in flight are cancelled.
    pub(crate) async fn all(&self) -> Result<Vec<PartFailure>, AggregateError> {
        let parts = &self.known.plan.parts;
        let mut waits: Vec<usize> = parts.iter().map(|part| part.needs.len()).collect();
        let ready = (0..parts.len()).filter(|part| waits[*part] == 0);
        let mut under_way: FuturesUnordered<_> = ready.map(|part| self.part(part)).collect();
        let mut failures = Vec::new();
        while let Some((done, result)) = under_way.next().await {
            let (value, failure) = result?;
            failures.extend(failure.map(|failure| (done, failure)));
            self.known.add(done, value);
            for (number, part) in parts.iter().enumerate() {
                if part.needs.contains(&done) {
                    waits[number] -= 1;
                    if waits[number] == 0 {
                        under_way.push(self.part(number));
                    }
                }
            }
        }
        failures.sort_by_key(|(part, _)| *part);
        Ok(failures.into_iter().map(|(_, failure)| failure).collect())
    }

    async fn part(&self, number: usize) -> (usize, PartResult) {
        let part = &self.known.plan.parts[number];
        let work = async {
            match &part.each {
                None => Ok((self.single(part).await?, None)),
                Some(each) => {
                    let parts = &self.known.plan.parts;
                    let is_needed = parts.iter().any(|part| part.needs.contains(&number));
                    self.each(part, &each.over, is_needed || !part.children.is_empty()).await
                }
            }
        };
        // The deadline also covers time outside of upstream calls: time in queues, and all calls of an
        // `each`.
        let deadline = self.calls.call().budget.deadline;
        let work = timeout_at(deadline.into(), work);
        let limit = part.timeout.unwrap_or(std::time::Duration::MAX);
        let late = || {
            Err(RenderError::Part(PartFailureReason::Time(DurationConfig(
                limit.min(self.known.plan.limits.timeout.0),
            ))))
        };
        let result =
            timeout(limit, work).await.map_or_else(|_| late(), |done| done.unwrap_or_else(|_| late()));
        let over = match result {
            Ok((value, failure)) => Ok((value, failure)),
            Err(RenderError::Request(error)) => Err(error),
            Err(RenderError::Part(reason)) => {
                let failure = failure(part, reason);
                match fallback(part) {
                    Some(body) => Ok((PartValue::One(body), Some(failure))),
                    None => Err(failure.into()),
                }
            }
        };
        (number, over)
    }

    async fn single(&self, part: &'a PartPlan) -> Result<PartValue, RenderError> {
        let most = self.known.plan.limits.calls;
        let mut requests = PartRenderer { known: self.known, part, item: None }.requests(most).await?;
        Ok(PartValue::One(match (requests.pop(), requests.is_empty()) {
            (None, _) => JsonText::literal("[]"),
            (Some(request), true) if part.streams && !self.is_head => return self.begun(part, request).await,
            (Some(request), true) => self.call(part, request).await?,
            (Some(last), false) => {
                requests.push(last);
                let calls = requests.into_iter().map(|request| self.call(part, request));
                let bodies = try_join_bounded(calls, self.known.plan.concurrency).await?;
                offload::move_if_long(work_of_texts(&bodies)).await;
                joined(&bodies, &self.known.memory)?
            }
        }))
    }

    /// Makes a call whose response may be streamed.
    async fn begun(&self, part: &PartPlan, request: ServiceRequest) -> Result<PartValue, RenderError> {
        let begun = stream::begin(self.calls.services(), self.calls.call(), part, request).await?;
        Ok(match begun {
            PartStart::Whole(answer) => PartValue::One(read(part, answer, &self.known.memory).await?),
            PartStart::Long(long) => {
                PartValue::Long(SharedArrivingResponse::new(long), JsonText::literal("null"))
            }
        })
    }

    /// Makes a call, and returns the part's value in the response.
    async fn call(&self, part: &PartPlan, request: ServiceRequest) -> Result<JsonText, PartFailureReason> {
        let answer = self.calls.send(&part.service, request).await.map_err(PartFailureReason::Call)?;
        read(part, answer, &self.known.memory).await
    }
}

/// Returns the part's value in a response. Long responses are processed off the serving thread.
async fn read(
    part: &PartPlan,
    answer: services::ProgramResponse,
    memory: &MemoryBudget,
) -> Result<JsonText, PartFailureReason> {
    if !answer.status.is_success() {
        return Err(PartFailureReason::Status(answer.status));
    }
    let is_empty = matches!(answer.status, StatusCode::NO_CONTENT | StatusCode::RESET_CONTENT);
    if part.method == Method::HEAD || (is_empty && answer.body.is_empty()) {
        return Ok(JsonText::literal("null"));
    }
    if answer.body.is_empty() {
        return Err(PartFailureReason::NoBody);
    }
    offload::move_if_long(answer.body.len()).await;
    let document = indexed(answer.body, memory)?;
    let spot = match document.root().pointer(&part.at) {
        Ok(Some(node)) => node.node_id(),
        _ => return Err(PartFailureReason::NothingAt(part.at.clone())),
    };
    Ok(JsonText::at(document, spot))
}

/// Returns the value of a part that failed, or `None` if the part is required.
fn fallback(part: &PartPlan) -> Option<JsonText> {
    match &part.fallback {
        FailureFallback::Required => None,
        FailureFallback::Null => Some(JsonText::literal("null")),
        FailureFallback::Default(document) => Some(JsonText::whole(Arc::clone(document))),
    }
}

pub(crate) fn failure(part: &PartPlan, reason: PartFailureReason) -> PartFailure {
    PartFailure {
        part: Arc::clone(&part.name),
        service: Arc::clone(part.service.name()),
        reason,
        items: Vec::new(),
    }
}
