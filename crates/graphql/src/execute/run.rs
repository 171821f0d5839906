//! The steps of a request, and what they found.

use std::collections::HashMap;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use json::Document;

use super::gather::Gathered;
use super::numbers::Numbers;
use super::source::{Asked, Source};
use super::val::Val;
use super::variables::Variables;
use crate::plan::Plan;
use crate::plan::data::{Call, Step, StepId};
use crate::plan::values::Speller;
use crate::{Fetched, Found, OperationKind, Place, SourceError};

/// A request that is being answered.
pub(crate) struct Run<'p> {
    pub(super) plan: &'p Plan,
    pub(super) variables: Arc<Variables>,
    pub(super) documents: Vec<Arc<Document>>,
    /// What went wrong.
    pub(super) errors: Vec<SourceError>,
    /// Those of items of lists, by where these stand.
    pub(super) items: HashMap<Place, u32>,
    /// Those that are of a step as a whole, beside all that it found.
    pub(super) aside: Vec<(StepId, u32)>,
    /// By step what its groups have; nothing before it was made.
    pub(super) made: Vec<Option<Box<[Made]>>>,
}

/// What a step found for a group.
#[derive(Debug, Default)]
pub(super) struct Made {
    /// By the places of the slots that decide it.
    pub(super) numbers: Numbers,
    pub(super) found: Vec<Found>,
}

impl<'p> Run<'p> {
    pub(crate) fn new(plan: &'p Plan, variables: Arc<Variables>) -> Self {
        let made = plan.steps.iter().map(|_| None).collect();
        let (documents, errors, items, aside) = (Vec::new(), Vec::new(), HashMap::new(), Vec::new());
        Self { plan, variables, documents, errors, items, aside, made }
    }

    /// Makes all steps, each as soon as those before it are made.
    pub(crate) async fn drive(&mut self, source: &dyn Source) {
        let plan = self.plan;
        let mut open: Vec<usize> = plan.steps.iter().map(|step| step.after.len()).collect();
        let mut ready: Vec<StepId> = (0..plan.steps.len()).filter(|step| open[*step] == 0).collect();
        let mut calls = FuturesUnordered::new();
        for ahead in plan.steps.iter().filter_map(|step| self.ahead(step, source)) {
            calls.push(ahead.map(|()| None).left_future());
        }
        let mut left = plan.steps.len();
        while left > 0 {
            let mut done: Vec<StepId> = Vec::new();
            while let Some(number) = ready.pop() {
                let step = &plan.steps[number];
                match self.prepare(step) {
                    None => {
                        self.made[number] = Some(step.groups.iter().map(|_| Made::default()).collect());
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

    /// The call of a step that waits for others, although what it asks for does not depend on them. Who asks for the same in
    /// the end gets what it brought.
    fn ahead<'a>(&self, step: &'a Step, source: &'a dyn Source) -> Option<BoxFuture<'a, ()>> {
        let is_early =
            self.plan.kind == OperationKind::Query && !step.after.is_empty() && self.is_wanted(step);
        if !is_early || !step.is_list() {
            return None;
        }
        Some(source.ahead(step, self.asked(step)))
    }

    /// Whether a step is made, by what the variables say.
    fn is_wanted(&self, step: &Step) -> bool {
        step.conditions.iter().all(|(name, value)| self.variables.is_true(name) == *value)
    }

    /// What a step is made with, and for whom; nothing if it is for nobody.
    fn prepare(&self, step: &Step) -> Option<(Asked, Vec<Gathered>)> {
        if !self.is_wanted(step) {
            return None;
        }
        let mut asked = self.asked(step);
        let gathered = match &step.call {
            Call::Operation(..) | Call::Document(_) => Vec::new(),
            Call::Keys(..) | Call::Linked { .. } | Call::Entities(..) => self.gather(step, &mut asked)?,
        };
        Some((asked, gathered))
    }

    /// What a step is made with, whoever it is for.
    fn asked(&self, step: &Step) -> Asked {
        let speller = Speller { types: &self.plan.types, bindings: Some(&step.bindings) };
        let mut asked = Asked::default();
        match &step.call {
            Call::Operation(_, arguments) | Call::Keys(_, arguments) => {
                asked.arguments = self.variables.arguments(arguments, &speller);
            }
            Call::Document(document) | Call::Entities(document, _) => {
                asked.variables = self.variables.pairs(&document.variables, &speller);
            }
            Call::Linked { arguments, variables, .. } => {
                asked.arguments = self.variables.arguments(arguments, &speller);
                asked.variables = self.variables.pairs(variables, &speller);
            }
        }
        asked
    }

    /// Notes what a step brought, its documents and errors behind those that there are.
    fn absorb(&mut self, step: StepId, gathered: Vec<Gathered>, fetched: Fetched) {
        let documents = u32::try_from(self.documents.len()).unwrap_or(u32::MAX);
        let errors = u32::try_from(self.errors.len()).unwrap_or(u32::MAX);
        let place = |place: Place| Place { document: place.document + documents, ..place };
        let mut found: Vec<Found> = fetched.found;
        let mut is_told = vec![false; fetched.errors.len()];
        for found in &mut found {
            if let Found::Partial(_, error) | Found::Failed(error) = found
                && let Some(told) = is_told.get_mut(*error as usize)
            {
                *told = true;
            }
            match found {
                Found::Nothing => {}
                Found::One(at) => *at = place(*at),
                Found::Many(places) => places.iter_mut().for_each(|at| *at = place(*at)),
                Found::Partial(at, error) => {
                    *at = place(*at);
                    *error += errors;
                }
                Found::Failed(error) => *error += errors,
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
            true => Box::new([Made { numbers: Numbers::default(), found }]) as Box<[Made]>,
            false => gathered
                .into_iter()
                .map(|gathered| {
                    let found = found.get(gathered.range).unwrap_or_default().to_vec();
                    Made { numbers: gathered.numbers, found }
                })
                .collect(),
        };
        self.made[step] = Some(made);
    }

    /// Everything that a step found for a group, each once.
    pub(super) fn all_found(&self, step: StepId, group: usize) -> impl Iterator<Item = Val<'_>> {
        let made = self.made.get(step).and_then(Option::as_ref).and_then(|made| made.get(group));
        made.map(|made| made.found.as_slice()).unwrap_or_default().iter().map(|found| self.val(found))
    }

    pub(super) fn val<'r>(&'r self, found: &'r Found) -> Val<'r> {
        match found {
            Found::Nothing => Val::Absent,
            Found::One(place) => self.item(*place),
            Found::Partial(place, error) => self.at(*place, Some(*error)),
            Found::Many(places) => Val::Many(places),
            Found::Failed(error) => Val::Failed(*error),
        }
    }

    /// The value at a place, which may be an item of a list.
    pub(super) fn item(&self, place: Place) -> Val<'_> {
        self.at(place, self.items.get(&place).copied())
    }

    /// The value at a place.
    fn at(&self, place: Place, error: Option<u32>) -> Val<'_> {
        let document = self.documents.get(place.document as usize);
        let node = document.and_then(|document| document.at(place.spot));
        node.map_or(Val::Absent, |node| Val::At(place.document, node, error))
    }
}
