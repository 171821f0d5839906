//! The execution of a request's steps, and their results.

use std::collections::HashMap;
use std::sync::Arc;

use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use json::JsonDocument;
use offload::work;

use super::gather::{GatheredObjects, TooManyVisits};
use super::object_index::ObjectIndex;
use super::slot_value::SlotValue;
use super::step_executor::{StepExecutor, StepRequest};
use super::variables::CoercedVariables;
use crate::plan::QueryPlan;
use crate::plan::data::{PlanCall, PlanStep, StepId};
use crate::plan::values::ValueSpeller;
use crate::{FetchOutcome, FetchedValues, OperationKind, SourceError, ValueLocation};

/// The number of objects that are visited for a step before the request leaves its serving thread.
const INLINE_VISITS: usize = 1_000;

/// A request in progress.
pub(crate) struct ExecutionRun<'p> {
    pub(super) plan: &'p QueryPlan,
    pub(super) variables: Arc<CoercedVariables>,
    pub(super) documents: Vec<Arc<JsonDocument>>,
    /// The errors that services and calls reported.
    pub(super) errors: Vec<SourceError>,
    /// The errors of single list items, by the location of the item.
    pub(super) item_errors: HashMap<ValueLocation, u32>,
    /// The errors that concern a step as a whole and none of its results.
    pub(super) step_errors: Vec<(StepId, u32)>,
    /// The results of each step by group; `None` until the step has completed.
    pub(super) results: Vec<Option<Box<[StepResult]>>>,
}

/// The results of a step for a group.
#[derive(Debug, Default)]
pub(super) struct StepResult {
    /// The indexes into `found`, by the locations of the key slots.
    pub(super) result_index: ObjectIndex,
    pub(super) outcomes: Vec<FetchOutcome>,
}

impl<'p> ExecutionRun<'p> {
    pub(crate) fn new(plan: &'p QueryPlan, variables: Arc<CoercedVariables>) -> Self {
        let results = plan.steps.iter().map(|_| None).collect();
        let (documents, errors, item_errors, step_errors) =
            (Vec::new(), Vec::new(), HashMap::new(), Vec::new());
        Self { plan, variables, documents, errors, item_errors, step_errors, results }
    }

    /// Executes all steps, each as soon as the steps it depends on have completed.
    pub(crate) async fn execute_steps(&mut self, source: &dyn StepExecutor) {
        let plan = self.plan;
        let mut open: Vec<usize> = plan.steps.iter().map(|step| step.dependencies.len()).collect();
        let mut ready: Vec<StepId> = (0..plan.steps.len()).filter(|step| open[*step] == 0).collect();
        let mut calls = FuturesUnordered::new();
        for step in plan.steps.iter().filter(|step| self.can_prefetch(step)) {
            let asked = self.prepare_request(step).await;
            calls.push(source.prefetch(step, asked).map(|()| None).left_future());
        }
        let mut left = plan.steps.len();
        while left > 0 {
            let mut done: Vec<StepId> = Vec::new();
            while let Some(number) = ready.pop() {
                let step = &plan.steps[number];
                match self.prepare_step(step).await {
                    None => {
                        self.results[number] =
                            Some(step.groups.iter().map(|_| StepResult::default()).collect());
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
                        self.merge_results(number, gathered, fetched);
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
        let mut asked = self.prepare_request(step).await;
        if matches!(step.call, PlanCall::Operation(..) | PlanCall::Document(_)) {
            return Some((asked, Vec::new()));
        }
        // Keys may be long texts, each of which is read to its end.
        offload::move_if_long(self.document_bytes() / 8).await;
        let (visits, gathered) = match self.gather(step, &mut asked, INLINE_VISITS) {
            Ok(gathered) => gathered,
            Err(TooManyVisits) => {
                offload::move_to_pool().await;
                self.gather(step, &mut asked, usize::MAX).ok()?
            }
        };
        offload::move_if_long(work::OBJECT * visits).await;
        Some((asked, gathered?))
    }

    /// The total size of the services' responses in bytes.
    pub(super) fn document_bytes(&self) -> usize {
        self.documents.iter().map(|document| document.text().len()).sum()
    }

    /// Builds the part of a step's request that does not depend on its objects. The work of sending it is
    /// announced, too, since the request is sent next.
    async fn prepare_request(&self, step: &PlanStep) -> StepRequest {
        offload::move_if_long(self.variables.long_bytes(step)).await;
        let asked = self.build_request(step);
        offload::move_if_long(asked.sending_work()).await;
        asked
    }

    fn build_request(&self, step: &PlanStep) -> StepRequest {
        let speller = ValueSpeller { types: &self.plan.types, bindings: Some(&step.bindings) };
        let mut asked = StepRequest::default();
        match &step.call {
            PlanCall::Operation(_, arguments) | PlanCall::Keys(_, arguments) => {
                asked.arguments = self.variables.build_arguments(arguments, &speller);
            }
            PlanCall::Document(document) | PlanCall::Entities(document, _) => {
                asked.variables = self.variables.spelled_variables(&document.variables, &speller);
            }
            PlanCall::Linked { arguments, variables, .. } => {
                asked.arguments = self.variables.build_arguments(arguments, &speller);
                asked.variables = self.variables.spelled_variables(variables, &speller);
            }
        }
        asked
    }

    /// Stores the result of a step. Its documents and errors are appended to the existing ones, and their
    /// indexes shifted.
    fn merge_results(&mut self, step: StepId, gathered: Vec<GatheredObjects>, fetched: FetchedValues) {
        let documents = u32::try_from(self.documents.len()).unwrap_or(u32::MAX);
        let errors = u32::try_from(self.errors.len()).unwrap_or(u32::MAX);
        let place = |place: ValueLocation| ValueLocation { document: place.document + documents, ..place };
        let mut found: Vec<FetchOutcome> = fetched.outcomes;
        let mut is_told = vec![false; fetched.errors.len()];
        for found in &mut found {
            if let FetchOutcome::Partial(_, error) | FetchOutcome::Failed(error) = found
                && let Some(told) = is_told.get_mut(*error as usize)
            {
                *told = true;
            }
            match found {
                FetchOutcome::Null => {}
                FetchOutcome::One(at) => *at = place(*at),
                FetchOutcome::Many(places) => places.iter_mut().for_each(|at| *at = place(*at)),
                FetchOutcome::Partial(at, error) => {
                    *at = place(*at);
                    *error += errors;
                }
                FetchOutcome::Failed(error) => *error += errors,
            }
        }
        for (at, error) in fetched.item_errors {
            if let Some(told) = is_told.get_mut(error as usize) {
                *told = true;
            }
            self.item_errors.insert(place(at), error + errors);
        }
        let aside = (errors..).zip(is_told).filter(|(_, is_told)| !is_told);
        self.step_errors.extend(aside.map(|(error, _)| (step, error)));
        self.documents.extend(fetched.documents);
        self.errors.extend(fetched.errors);
        let made = match gathered.is_empty() {
            true => Box::new([StepResult { result_index: ObjectIndex::default(), outcomes: found }])
                as Box<[StepResult]>,
            false => gathered
                .into_iter()
                .map(|gathered| {
                    let found = found.get(gathered.range).unwrap_or_default().to_vec();
                    StepResult { result_index: gathered.result_index, outcomes: found }
                })
                .collect(),
        };
        self.results[step] = Some(made);
    }

    /// Returns the results of a step for a group, without duplicates.
    pub(super) fn group_results(&self, step: StepId, group: usize) -> impl Iterator<Item = SlotValue<'_>> {
        let made = self.results.get(step).and_then(Option::as_ref).and_then(|made| made.get(group));
        made.map(|made| made.outcomes.as_slice())
            .unwrap_or_default()
            .iter()
            .map(|found| self.outcome_value(found))
    }

    pub(super) fn outcome_value<'r>(&'r self, found: &'r FetchOutcome) -> SlotValue<'r> {
        match found {
            FetchOutcome::Null => SlotValue::Absent,
            FetchOutcome::One(place) => self.item_value(*place),
            FetchOutcome::Partial(place, error) => self.value_at(*place, Some(*error)),
            FetchOutcome::Many(places) => SlotValue::Many(places),
            FetchOutcome::Failed(error) => SlotValue::Failed(*error),
        }
    }

    /// Returns the value at a location, with its error if it is a failed list item.
    pub(super) fn item_value(&self, place: ValueLocation) -> SlotValue<'_> {
        self.value_at(place, self.item_errors.get(&place).copied())
    }

    /// Returns the value at a location.
    fn value_at(&self, place: ValueLocation, error: Option<u32>) -> SlotValue<'_> {
        let document = self.documents.get(place.document as usize);
        let node = document.and_then(|document| document.node_by_id(place.node_id));
        node.map_or(SlotValue::Absent, |node| SlotValue::Node(place.document, node, error))
    }
}
