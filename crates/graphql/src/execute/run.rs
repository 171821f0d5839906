//! The execution of a request's steps, and their results.

use std::collections::HashMap;
use std::sync::Arc;

use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use json::JsonDocument;
use offload::work;

use super::gather::{GatheredObjects, TooManyVisits};
use super::numbers::ObjectIndex;
use super::source::{StepExecutor, StepRequest};
use super::val::SlotValue;
use super::variables::CoercedVariables;
use crate::plan::QueryPlan;
use crate::plan::data::{PlanCall, PlanStep, StepId};
use crate::plan::values::ValueSpeller;
use crate::{FetchOutcome, FetchedValues, OperationKind, SourceError, ValueLocation};

/// The number of objects that are visited for a step before the request leaves its serving thread.
const FEW_VISITS: usize = 1_000;

/// A request in progress.
pub(crate) struct ExecutionRun<'p> {
    pub(super) plan: &'p QueryPlan,
    pub(super) variables: Arc<CoercedVariables>,
    pub(super) documents: Vec<Arc<JsonDocument>>,
    /// The errors that services and calls reported.
    pub(super) errors: Vec<SourceError>,
    /// The errors of single list items, by the location of the item.
    pub(super) items: HashMap<ValueLocation, u32>,
    /// The errors that concern a step as a whole and none of its results.
    pub(super) aside: Vec<(StepId, u32)>,
    /// The results of each step by group; `None` until the step has completed.
    pub(super) made: Vec<Option<Box<[StepResult]>>>,
}

/// The results of a step for a group.
#[derive(Debug, Default)]
pub(super) struct StepResult {
    /// The indexes into `found`, by the locations of the key slots.
    pub(super) numbers: ObjectIndex,
    pub(super) found: Vec<FetchOutcome>,
}

impl<'p> ExecutionRun<'p> {
    pub(crate) fn new(plan: &'p QueryPlan, variables: Arc<CoercedVariables>) -> Self {
        let made = plan.steps.iter().map(|_| None).collect();
        let (documents, errors, items, aside) = (Vec::new(), Vec::new(), HashMap::new(), Vec::new());
        Self { plan, variables, documents, errors, items, aside, made }
    }

    /// Executes all steps, each as soon as the steps it depends on have completed.
    pub(crate) async fn drive(&mut self, source: &dyn StepExecutor) {
        let plan = self.plan;
        let mut open: Vec<usize> = plan.steps.iter().map(|step| step.after.len()).collect();
        let mut ready: Vec<StepId> = (0..plan.steps.len()).filter(|step| open[*step] == 0).collect();
        let mut calls = FuturesUnordered::new();
        for step in plan.steps.iter().filter(|step| self.is_early(step)) {
            let asked = self.asked(step).await;
            calls.push(source.ahead(step, asked).map(|()| None).left_future());
        }
        let mut left = plan.steps.len();
        while left > 0 {
            let mut done: Vec<StepId> = Vec::new();
            while let Some(number) = ready.pop() {
                let step = &plan.steps[number];
                match self.prepare(step).await {
                    None => {
                        self.made[number] = Some(step.groups.iter().map(|_| StepResult::default()).collect());
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
                        offload::move_if_long(work::RESULT * fetched.found.len()).await;
                        self.absorb(number, gathered, fetched);
                        done.push(number);
                    }
                    Some(None) => continue,
                    None => return,
                }
            }
            left -= done.len();
            for (number, step) in plan.steps.iter().enumerate() {
                let met = step.after.iter().filter(|before| done.contains(before)).count();
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
    fn is_early(&self, step: &PlanStep) -> bool {
        self.plan.kind == OperationKind::Query
            && !step.after.is_empty()
            && self.is_wanted(step)
            && step.is_list()
    }

    /// Whether a step is executed, according to the variables in its conditions.
    fn is_wanted(&self, step: &PlanStep) -> bool {
        step.conditions.iter().all(|(name, value)| self.variables.is_true(name) == *value)
    }

    /// Returns the request of a step and the objects that it is executed for, or `None` if there are no
    /// objects.
    async fn prepare(&self, step: &PlanStep) -> Option<(StepRequest, Vec<GatheredObjects>)> {
        if !self.is_wanted(step) {
            return None;
        }
        let mut asked = self.asked(step).await;
        if matches!(step.call, PlanCall::Operation(..) | PlanCall::Document(_)) {
            return Some((asked, Vec::new()));
        }
        // Keys may be long texts, each of which is read to its end.
        offload::move_if_long(self.bytes() / 8).await;
        let (visits, gathered) = match self.gather(step, &mut asked, FEW_VISITS) {
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
    pub(super) fn bytes(&self) -> usize {
        self.documents.iter().map(|document| document.text().len()).sum()
    }

    /// Builds the part of a step's request that does not depend on its objects. The work of sending it is
    /// announced, too, since the request is sent next.
    async fn asked(&self, step: &PlanStep) -> StepRequest {
        offload::move_if_long(self.variables.long_bytes(step)).await;
        let asked = self.ask_for(step);
        offload::move_if_long(asked.work()).await;
        asked
    }

    fn ask_for(&self, step: &PlanStep) -> StepRequest {
        let speller = ValueSpeller { types: &self.plan.types, bindings: Some(&step.bindings) };
        let mut asked = StepRequest::default();
        match &step.call {
            PlanCall::Operation(_, arguments) | PlanCall::Keys(_, arguments) => {
                asked.arguments = self.variables.arguments(arguments, &speller);
            }
            PlanCall::Document(document) | PlanCall::Entities(document, _) => {
                asked.variables = self.variables.pairs(&document.variables, &speller);
            }
            PlanCall::Linked { arguments, variables, .. } => {
                asked.arguments = self.variables.arguments(arguments, &speller);
                asked.variables = self.variables.pairs(variables, &speller);
            }
        }
        asked
    }

    /// Stores the result of a step. Its documents and errors are appended to the existing ones, and their
    /// indexes shifted.
    fn absorb(&mut self, step: StepId, gathered: Vec<GatheredObjects>, fetched: FetchedValues) {
        let documents = u32::try_from(self.documents.len()).unwrap_or(u32::MAX);
        let errors = u32::try_from(self.errors.len()).unwrap_or(u32::MAX);
        let place = |place: ValueLocation| ValueLocation { document: place.document + documents, ..place };
        let mut found: Vec<FetchOutcome> = fetched.found;
        let mut is_told = vec![false; fetched.errors.len()];
        for found in &mut found {
            if let FetchOutcome::Partial(_, error) | FetchOutcome::Failed(error) = found
                && let Some(told) = is_told.get_mut(*error as usize)
            {
                *told = true;
            }
            match found {
                FetchOutcome::Nothing => {}
                FetchOutcome::One(at) => *at = place(*at),
                FetchOutcome::Many(places) => places.iter_mut().for_each(|at| *at = place(*at)),
                FetchOutcome::Partial(at, error) => {
                    *at = place(*at);
                    *error += errors;
                }
                FetchOutcome::Failed(error) => *error += errors,
            }
        }
        for (at, error) in fetched.items {
            if let Some(told) = is_told.get_mut(error as usize) {
                *told = true;
            }
            self.items.insert(place(at), error + errors);
        }
        let aside = (errors..).zip(is_told).filter(|(_, is_told)| !is_told);
        self.aside.extend(aside.map(|(error, _)| (step, error)));
        self.documents.extend(fetched.documents);
        self.errors.extend(fetched.errors);
        let made = match gathered.is_empty() {
            true => Box::new([StepResult { numbers: ObjectIndex::default(), found }]) as Box<[StepResult]>,
            false => gathered
                .into_iter()
                .map(|gathered| {
                    let found = found.get(gathered.range).unwrap_or_default().to_vec();
                    StepResult { numbers: gathered.numbers, found }
                })
                .collect(),
        };
        self.made[step] = Some(made);
    }

    /// Returns the results of a step for a group, without duplicates.
    pub(super) fn all_found(&self, step: StepId, group: usize) -> impl Iterator<Item = SlotValue<'_>> {
        let made = self.made.get(step).and_then(Option::as_ref).and_then(|made| made.get(group));
        made.map(|made| made.found.as_slice()).unwrap_or_default().iter().map(|found| self.val(found))
    }

    pub(super) fn val<'r>(&'r self, found: &'r FetchOutcome) -> SlotValue<'r> {
        match found {
            FetchOutcome::Nothing => SlotValue::Absent,
            FetchOutcome::One(place) => self.item(*place),
            FetchOutcome::Partial(place, error) => self.at(*place, Some(*error)),
            FetchOutcome::Many(places) => SlotValue::Many(places),
            FetchOutcome::Failed(error) => SlotValue::Failed(*error),
        }
    }

    /// Returns the value at a location, with its error if it is a failed list item.
    pub(super) fn item(&self, place: ValueLocation) -> SlotValue<'_> {
        self.at(place, self.items.get(&place).copied())
    }

    /// Returns the value at a location.
    fn at(&self, place: ValueLocation, error: Option<u32>) -> SlotValue<'_> {
        let document = self.documents.get(place.document as usize);
        let node = document.and_then(|document| document.node_by_id(place.spot));
        node.map_or(SlotValue::Absent, |node| SlotValue::At(place.document, node, error))
    }
}
