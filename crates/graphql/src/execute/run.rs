//! The execution of a request's steps, each as soon as the steps it depends on have completed.

use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use offload::work;

use super::gather::{TooManyVisits, gather_objects};
use super::object_reader::ObjectReader;
use super::step_executor::{StepExecutor, StepRequest};
use super::step_results::{GatheredObjects, StepResults};
use super::variables::CoercedVariables;
use crate::plan::QueryPlan;
use crate::plan::data::{PlanCall, PlanStep, StepId};
use crate::plan::values::ValueSpeller;
use crate::subgraph::OperationKind;

/// The number of objects that are visited for a step before the request leaves its serving thread.
const INLINE_VISITS: usize = 1_000;

/// A request in progress.
pub(super) struct ExecutionRun<'p> {
    plan: &'p QueryPlan,
    variables: &'p CoercedVariables,
    results: StepResults,
}

impl<'p> ExecutionRun<'p> {
    pub(super) fn new(plan: &'p QueryPlan, variables: &'p CoercedVariables) -> Self {
        Self { plan, variables, results: StepResults::new(plan.steps.len()) }
    }

    /// Returns the results of the steps.
    pub(super) fn into_results(self) -> StepResults {
        self.results
    }

    /// Executes all steps.
    pub(super) async fn execute_steps(&mut self, source: &dyn StepExecutor) {
        let plan = self.plan;
        let mut open: Vec<usize> = plan.steps.iter().map(|step| step.dependencies.len()).collect();
        let mut ready: Vec<StepId> = (0..plan.steps.len()).filter(|step| open[*step] == 0).collect();
        let mut calls = FuturesUnordered::new();
        for step in plan.steps.iter().filter(|step| self.can_prefetch(step)) {
            let request = self.prepare_request(step).await;
            calls.push(source.prefetch(step, request).map(|()| None).left_future());
        }
        let mut left = plan.steps.len();
        while left > 0 {
            let mut done: Vec<StepId> = Vec::new();
            while let Some(number) = ready.pop() {
                let step = &plan.steps[number];
                match self.prepare_step(step).await {
                    None => {
                        self.results.set_empty(number, step.groups.len());
                        done.push(number);
                    }
                    Some((asked, gathered)) => {
                        let fetch = async move { Some((number, gathered, source.fetch(step, asked).await)) };
                        calls.push(fetch.right_future());
                    }
                }
            }
            if done.is_empty() {
                match calls.next().await {
                    Some(Some((number, gathered, fetched))) => {
                        offload::move_if_long(work::RESULT * fetched.outcomes.len()).await;
                        self.results.merge(number, gathered, fetched);
                        done.push(number);
                    }
                    Some(None) => continue,
                    None => return,
                }
            }
            left -= done.len();
            for (number, step) in plan.steps.iter().enumerate() {
                let met = step.dependencies.iter().filter(|before| done.contains(before)).count();
                if met > 0 {
                    open[number] -= met;
                    if open[number] == 0 {
                        ready.push(number);
                    }
                }
            }
        }
    }

    /// Whether the call of a dependent step is started early, since the requested list does not depend on the
    /// results of other steps. The regular request for the same list later shares this response.
    fn can_prefetch(&self, step: &PlanStep) -> bool {
        self.plan.kind == OperationKind::Query
            && !step.dependencies.is_empty()
            && self.is_included(step)
            && step.is_list()
    }

    /// Whether a step is executed, according to the variables in its conditions.
    fn is_included(&self, step: &PlanStep) -> bool {
        step.conditions.iter().all(|(name, value)| self.variables.is_true(name) == *value)
    }

    /// Returns the request of a step and the objects that it is executed for, or `None` if there are no
    /// objects.
    async fn prepare_step(&self, step: &PlanStep) -> Option<(StepRequest, Vec<GatheredObjects>)> {
        if !self.is_included(step) {
            return None;
        }
        let mut request = self.prepare_request(step).await;
        if matches!(step.call, PlanCall::Operation(..) | PlanCall::Document(_)) {
            return Some((request, Vec::new()));
        }
        // Keys may be long texts, each of which is read to its end.
        offload::move_if_long(self.results.document_bytes() / 8).await;
        let objects = ObjectReader { plan: self.plan, results: &self.results };
        let (visits, gathered) = match gather_objects(objects, step, &mut request, INLINE_VISITS) {
            Ok(gathered) => gathered,
            Err(TooManyVisits) => {
                offload::move_to_pool().await;
                gather_objects(objects, step, &mut request, usize::MAX).ok()?
            }
        };
        offload::move_if_long(work::OBJECT * visits).await;
        Some((request, gathered?))
    }

    /// Builds the part of a step's request that does not depend on its objects. The work of sending it is
    /// announced, too, since the request is sent next.
    async fn prepare_request(&self, step: &PlanStep) -> StepRequest {
        offload::move_if_long(self.variables.long_bytes(step)).await;
        let request = self.build_request(step);
        offload::move_if_long(request.sending_work()).await;
        request
    }

    fn build_request(&self, step: &PlanStep) -> StepRequest {
        let speller = ValueSpeller { types: &self.plan.types, bindings: Some(&step.bindings) };
        let mut request = StepRequest::default();
        match &step.call {
            PlanCall::Operation(_, arguments) | PlanCall::Keys(_, arguments) => {
                request.arguments = self.variables.build_arguments(arguments, &speller);
            }
            PlanCall::Document(document) | PlanCall::Entities(document, _) => {
                request.variables = self.variables.spelled_variables(&document.variables, &speller);
            }
            PlanCall::Linked { arguments, variables, .. } => {
                request.arguments = self.variables.build_arguments(arguments, &speller);
                request.variables = self.variables.spelled_variables(variables, &speller);
            }
        }
        request
    }
}
