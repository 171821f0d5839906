//! The execution of a request: runs every part concurrently, as soon as its dependencies have completed.

mod each;
mod render;

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
use crate::value::stream::{self, PartStart, SharedArrivingResponse};
use crate::value::{AvailableValues, JsonText, PartValue, concatenate_arrays, index_text, work_of_texts};
use render::{PartRenderer, RenderError};

/// A request in flight.
pub(crate) struct AggregateRun<'a> {
    pub(crate) available_values: &'a AvailableValues<'a>,
    pub(crate) calls: RequestCalls,
    /// Whether the response body is not needed.
    pub(crate) is_head: bool,
}

/// The result of a part: its value, and its failure if it is optional.
type PartResult = Result<(PartValue, Option<PartFailure>), AggregateError>;

impl<'a> AggregateRun<'a> {
    /// Runs all parts, and returns the failures of optional parts.
    ///
    /// # Errors
    /// Returns the first failure of a required part. Calls in flight are cancelled.
    pub(crate) async fn run_parts(&self) -> Result<Vec<PartFailure>, AggregateError> {
        let parts = &self.available_values.plan.parts;
        let mut waits: Vec<usize> = parts.iter().map(|part| part.dependencies.len()).collect();
        let ready = (0..parts.len()).filter(|part| waits[*part] == 0);
        let mut under_way: FuturesUnordered<_> = ready.map(|part| self.run_part(part)).collect();
        let mut failures = Vec::new();
        while let Some((done, result)) = under_way.next().await {
            let (value, failure) = result?;
            failures.extend(failure.map(|failure| (done, failure)));
            self.available_values.set_value(done, value);
            for (number, part) in parts.iter().enumerate() {
                if part.dependencies.contains(&done) {
                    waits[number] -= 1;
                    if waits[number] == 0 {
                        under_way.push(self.run_part(number));
                    }
                }
            }
        }
        failures.sort_by_key(|(part, _)| *part);
        Ok(failures.into_iter().map(|(_, failure)| failure).collect())
    }

    async fn run_part(&self, number: usize) -> (usize, PartResult) {
        let part = &self.available_values.plan.parts[number];
        let work = async {
            match &part.each {
                None => Ok((self.call_single(part).await?, None)),
                Some(each) => {
                    let parts = &self.available_values.plan.parts;
                    let is_needed = parts.iter().any(|part| part.dependencies.contains(&number));
                    self.call_each(part, &each.source, is_needed || !part.children.is_empty()).await
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
                limit.min(self.available_values.plan.limits.timeout.0),
            ))))
        };
        let result =
            timeout(limit, work).await.map_or_else(|_| late(), |done| done.unwrap_or_else(|_| late()));
        let over = match result {
            Ok((value, failure)) => Ok((value, failure)),
            Err(RenderError::Request(error)) => Err(error),
            Err(RenderError::Part(reason)) => {
                let failure = part_failure(part, reason);
                match fallback_value(part) {
                    Some(body) => Ok((PartValue::Single(body), Some(failure))),
                    None => Err(failure.into()),
                }
            }
        };
        (number, over)
    }

    async fn call_single(&self, part: &'a PartPlan) -> Result<PartValue, RenderError> {
        let most = self.available_values.plan.limits.calls;
        let mut requests = PartRenderer { available_values: self.available_values, part, item: None }
            .render_requests(most)
            .await?;
        Ok(PartValue::Single(match (requests.pop(), requests.is_empty()) {
            (None, _) => JsonText::from_literal("[]"),
            (Some(request), true) if part.is_streamable && !self.is_head => {
                return self.call_streamed(part, request).await;
            }
            (Some(request), true) => self.call_service(part, request).await?,
            (Some(last), false) => {
                requests.push(last);
                let calls = requests.into_iter().map(|request| self.call_service(part, request));
                let bodies = try_join_bounded(calls, self.available_values.plan.concurrency).await?;
                offload::move_if_long(work_of_texts(&bodies)).await;
                concatenate_arrays(&bodies, &self.available_values.memory)?
            }
        }))
    }

    /// Makes a call whose response may be streamed.
    async fn call_streamed(
        &self,
        part: &PartPlan,
        request: ServiceRequest,
    ) -> Result<PartValue, RenderError> {
        let start = stream::start_part(self.calls.services(), self.calls.call(), part, request).await?;
        Ok(match start {
            PartStart::Complete(answer) => {
                PartValue::Single(read_response(part, answer, &self.available_values.memory).await?)
            }
            PartStart::Arriving(long) => {
                PartValue::Streamed(SharedArrivingResponse::new(long), JsonText::from_literal("null"))
            }
        })
    }

    /// Makes a call, and returns the part's value in the response.
    async fn call_service(
        &self,
        part: &PartPlan,
        request: ServiceRequest,
    ) -> Result<JsonText, PartFailureReason> {
        let answer = self.calls.send(&part.service, request).await.map_err(PartFailureReason::Call)?;
        read_response(part, answer, &self.available_values.memory).await
    }
}

/// Returns the part's value in a response. Long responses are processed off the serving thread.
async fn read_response(
    part: &PartPlan,
    answer: services::ProgramResponse,
    memory: &MemoryBudget,
) -> Result<JsonText, PartFailureReason> {
    if !answer.status.is_success() {
        return Err(PartFailureReason::Status(answer.status));
    }
    let is_empty = matches!(answer.status, StatusCode::NO_CONTENT | StatusCode::RESET_CONTENT);
    if part.method == Method::HEAD || (is_empty && answer.body.is_empty()) {
        return Ok(JsonText::from_literal("null"));
    }
    if answer.body.is_empty() {
        return Err(PartFailureReason::NoBody);
    }
    offload::move_if_long(answer.body.len()).await;
    let document = index_text(answer.body, memory)?;
    let node_id = match document.root().pointer(&part.pointer) {
        Ok(Some(node)) => node.node_id(),
        _ => return Err(PartFailureReason::PathMissing(part.pointer.clone())),
    };
    Ok(JsonText::from_node(document, node_id))
}

/// Returns the value of a part that failed, or `None` if the part is required.
fn fallback_value(part: &PartPlan) -> Option<JsonText> {
    match &part.fallback {
        FailureFallback::Required => None,
        FailureFallback::Null => Some(JsonText::from_literal("null")),
        FailureFallback::Default(document) => Some(JsonText::from_document(Arc::clone(document))),
    }
}

pub(crate) fn part_failure(part: &PartPlan, reason: PartFailureReason) -> PartFailure {
    PartFailure {
        part: Arc::clone(&part.name),
        service: Arc::clone(part.service.name()),
        reason,
        items: Vec::new(),
    }
}
