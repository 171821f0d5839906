//! The results of the steps that have completed: documents, the locations of values in them, and errors.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use json::JsonDocument;

use super::object_index::ObjectIndex;
use super::slot_value::SlotValue;
use crate::fetch::outcome::{FetchOutcome, FetchedValues, SourceError, ValueLocation};
use crate::plan::data::StepId;

/// The results of a request's steps.
pub(super) struct StepResults {
    pub(super) documents: Vec<Arc<JsonDocument>>,
    /// The errors that services and calls reported.
    pub(super) errors: Vec<SourceError>,
    /// The errors of single list items, by the location of the item.
    item_errors: HashMap<ValueLocation, u32>,
    /// The errors that concern a step as a whole and none of its results.
    pub(super) step_errors: Vec<(StepId, u32)>,
    /// The results of each step by group; `None` until the step has completed.
    by_step: Vec<Option<Box<[GroupResults]>>>,
}

/// The results of a step for a group.
#[derive(Debug, Default)]
pub(super) struct GroupResults {
    /// The indexes into `outcomes`, by the locations of the key slots.
    pub(super) result_index: ObjectIndex,
    pub(super) outcomes: Vec<FetchOutcome>,
}

/// The objects that a step is executed for, of one group.
#[derive(Debug)]
pub(super) struct GatheredObjects {
    /// The index of each object's result within the group, by the locations of the key slots.
    pub(super) result_index: ObjectIndex,
    /// The range of this group's results within all results of the step.
    pub(super) range: Range<usize>,
}

impl StepResults {
    pub(super) fn new(steps: usize) -> Self {
        Self {
            documents: Vec::new(),
            errors: Vec::new(),
            item_errors: HashMap::new(),
            step_errors: Vec::new(),
            by_step: (0..steps).map(|_| None).collect(),
        }
    }

    /// The total size of the services' responses in bytes.
    pub(super) fn document_bytes(&self) -> usize {
        self.documents.iter().map(|document| document.text().len()).sum()
    }

    /// Stores that a step with this number of groups has no objects to fetch.
    pub(super) fn set_empty(&mut self, step: StepId, groups: usize) {
        self.by_step[step] = Some((0..groups).map(|_| GroupResults::default()).collect());
    }

    /// Stores the result of a step. Its documents and errors are appended to the existing ones, and their
    /// indexes shifted.
    pub(super) fn merge(&mut self, step: StepId, gathered: Vec<GatheredObjects>, fetched: FetchedValues) {
        let documents = u32::try_from(self.documents.len()).unwrap_or(u32::MAX);
        let errors = u32::try_from(self.errors.len()).unwrap_or(u32::MAX);
        let place =
            |location: ValueLocation| ValueLocation { document: location.document + documents, ..location };
        let mut fetch_outcomes: Vec<FetchOutcome> = fetched.outcomes;
        let mut is_told = vec![false; fetched.errors.len()];
        for outcome in &mut fetch_outcomes {
            if let FetchOutcome::Partial(_, error) | FetchOutcome::Failed(error) = outcome
                && let Some(told) = is_told.get_mut(*error as usize)
            {
                *told = true;
            }
            match outcome {
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
        let resultses = match gathered.is_empty() {
            true => {
                Box::new([GroupResults { result_index: ObjectIndex::default(), outcomes: fetch_outcomes }])
                    as Box<[GroupResults]>
            }
            false => gathered
                .into_iter()
                .map(|gathered| {
                    let found = fetch_outcomes.get(gathered.range).unwrap_or_default().to_vec();
                    GroupResults { result_index: gathered.result_index, outcomes: found }
                })
                .collect(),
        };
        self.by_step[step] = Some(resultses);
    }

    /// Returns the results of a step for a group; `None` until the step has completed.
    #[inline]
    pub(super) fn group(&self, step: StepId, group: usize) -> Option<&GroupResults> {
        self.by_step.get(step)?.as_ref()?.get(group)
    }

    /// Returns the values that a step fetched for a group, without duplicates.
    pub(super) fn group_values(&self, step: StepId, group: usize) -> impl Iterator<Item = SlotValue<'_>> {
        let outcomes = self.group(step, group).map(|results| results.outcomes.as_slice());
        outcomes.unwrap_or_default().iter().map(|outcome| self.outcome_value(outcome))
    }

    pub(super) fn outcome_value<'r>(&'r self, outcome: &'r FetchOutcome) -> SlotValue<'r> {
        match outcome {
            FetchOutcome::Null => SlotValue::Absent,
            FetchOutcome::One(place) => self.item_value(*place),
            FetchOutcome::Partial(place, error) => self.value_at(*place, Some(*error)),
            FetchOutcome::Many(places) => SlotValue::Many(places),
            FetchOutcome::Failed(error) => SlotValue::Failed(*error),
        }
    }

    /// Returns the value at a location, with its error if it is a failed list item.
    pub(super) fn item_value(&self, location: ValueLocation) -> SlotValue<'_> {
        self.value_at(location, self.item_errors.get(&location).copied())
    }

    /// Returns the value at a location.
    fn value_at(&self, location: ValueLocation, error: Option<u32>) -> SlotValue<'_> {
        let document = self.documents.get(location.document as usize);
        let node = document.and_then(|document| document.node_by_id(location.node_id));
        node.map_or(SlotValue::Absent, |node| SlotValue::Node(location.document, node, error))
    }
}
