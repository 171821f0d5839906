//! Parts that are called for each item of an array. Equal calls are made once, and an item with a long list
//! has several.

use std::collections::HashMap;
use std::ops::Range;

use http::uri::PathAndQuery;
use json::{JsonNode, JsonPathStep, ValueKind};
use offload::work;
use services::ServiceRequest;
use services::calls::try_join_bounded;

use super::render::{PartItem, PartRenderer, RenderError};
use super::{AggregateRun, fallback_value, part_failure};
use crate::memory::{BudgetedVec, MemoryBudget, MemoryExhausted};
use crate::plan::template::SlotSource;
use crate::plan::{ItemSource, PartPlan, is_safe};
use crate::problem::{PartFailure, PartFailureReason};
use crate::value::{
    FanOutResponses, JsonText, PartValue, concatenate_arrays, visit_targets, work_of_targets, work_of_texts,
};

/// The calls of all items.
struct ItemCalls<'b> {
    requests: Vec<ServiceRequest>,
    /// The request indexes of each set, concatenated.
    request_indexes: Vec<u32>,
    sets: Vec<Range<usize>>,
    keys: CallKeys<'b>,
}

/// The requests and sets that are shared by later items, which are needed until all requests are rendered.
struct CallKeys<'b> {
    /// The indexes of requests by URL.
    by_url: HashMap<PathAndQuery, u32>,
    /// The sets of earlier items, by the values that these put into the URL.
    by_item: HashMap<Vec<u8>, u32>,
    memory: &'b MemoryBudget,
    /// The memory of `by_item`, which is released when the keys are dropped.
    charged_bytes: usize,
}

impl CallKeys<'_> {
    /// Adds the set of an item. Services control the number of distinct items, even if these have no calls or
    /// equal ones.
    fn add_item(&mut self, item: Vec<u8>, set: u32) -> Result<(), MemoryExhausted> {
        let bytes = item.len() + 2 * size_of::<(Vec<u8>, u32)>();
        self.memory.charge(bytes)?;
        self.charged_bytes += bytes;
        self.by_item.insert(item, set);
        Ok(())
    }
}

impl Drop for CallKeys<'_> {
    fn drop(&mut self) {
        self.memory.release(self.charged_bytes);
    }
}

impl<'b> ItemCalls<'b> {
    fn new(memory: &'b MemoryBudget) -> Self {
        let keys = CallKeys { by_url: HashMap::new(), by_item: HashMap::new(), memory, charged_bytes: 0 };
        Self { requests: Vec::new(), request_indexes: Vec::new(), sets: Vec::new(), keys }
    }

    /// Adds a set of requests, and returns its index. If `are_alike` is true, requests with equal URLs are
    /// made once.
    fn add_set(
        &mut self,
        requests: Vec<ServiceRequest>,
        are_alike: bool,
        most: u32,
    ) -> Result<u32, PartFailureReason> {
        let start = self.request_indexes.len();
        for request in requests {
            let next = self.requests.len() as u32;
            let number = match are_alike {
                true => *self.keys.by_url.entry(request.path_and_query.clone()).or_insert(next),
                false => next,
            };
            if number == next {
                if next == most {
                    return Err(PartFailureReason::FanOut(most));
                }
                self.requests.push(request);
            }
            self.request_indexes.push(number);
        }
        self.sets.push(start..self.request_indexes.len());
        Ok(self.sets.len() as u32 - 1)
    }
}

impl<'a> AggregateRun<'a> {
    /// Calls a part for each of its items. Rendering stops at the first request that exceeds the limit.
    pub(super) async fn call_each(
        &self,
        part: &'a PartPlan,
        over: &'a ItemSource,
        is_looked_into: bool,
    ) -> Result<(PartValue, Option<PartFailure>), RenderError> {
        let items = self.list_items(over).await?;
        let memory = &self.available_values.memory;
        let are_alike = is_safe(&part.method) && !uses_items_outside_url(part);
        let most = self.available_values.plan.limits.fan_out;
        let mut calls = ItemCalls::new(memory);
        // Its set, its position, and its index if it fails.
        memory.charge_for::<([Option<u32>; 2], usize)>(items.len()).map_err(PartFailureReason::from)?;
        let (mut of_item, mut failure) = (Vec::with_capacity(items.len()), None::<PartFailure>);
        for (number, item) in items.into_iter().enumerate() {
            let Some(item) = item else {
                of_item.push(None);
                continue;
            };
            let renderer = PartRenderer { available_values: self.available_values, part, item: Some(item) };
            let set = match self.item_request_set(&renderer, &mut calls, are_alike, most).await {
                Err(RenderError::Part(reason)) if reason.is_item_specific() && !part.is_required() => {
                    failure.get_or_insert_with(|| part_failure(part, reason)).items.push(number);
                    None
                }
                set => Some(set?),
            };
            of_item.push(set);
        }
        // The keys of many items are freed here, and not when a client leaves during the calls.
        let ItemCalls { requests, request_indexes: numbers, sets, keys } = calls;
        drop(keys);
        let made = requests.into_iter().map(|request| async {
            match self.call_service(part, request).await {
                Err(reason) if part.is_required() => Err(reason),
                answer => Ok(answer),
            }
        });
        let texts = try_join_bounded(made, self.available_values.plan.concurrency).await?;
        offload::move_if_long(work::VALUE * of_item.len()).await;
        let mut answers = ItemResponses { responses: texts, combined_indexes: HashMap::new(), memory };
        let instead = fallback_value(part).unwrap_or_else(|| JsonText::from_literal("null"));
        let mut places: Vec<u32> = Vec::with_capacity(sets.len());
        for set in sets {
            places.push(answers.response_index(numbers.get(set).unwrap_or_default()).await);
        }
        let mut found = Vec::with_capacity(of_item.len());
        for (item, set) in of_item.into_iter().enumerate() {
            let place = set.and_then(|set| places.get(set as usize).copied());
            if let Some(Err(reason)) = place.and_then(|place| answers.responses.get(place as usize)) {
                if part.is_required() {
                    return Err(reason.clone().into());
                }
                failure.get_or_insert_with(|| part_failure(part, reason.clone())).items.push(item);
            }
            found.push(place);
        }
        if let Some(wrong) = &mut failure {
            wrong.items.sort_unstable();
        }
        let answers = answers.responses.into_iter().map(|answer| answer.unwrap_or_else(|_| instead.clone()));
        let fan = FanOutResponses::new(answers.collect(), found);
        let fan = if is_looked_into { fan.with_list(memory).await? } else { fan };
        Ok((PartValue::Each(fan), failure))
    }

    /// Returns the set of an item's requests. Items that put the same values into the URL share a set.
    async fn item_request_set(
        &self,
        renderer: &PartRenderer<'a>,
        calls: &mut ItemCalls<'_>,
        are_alike: bool,
        most: u32,
    ) -> Result<u32, RenderError> {
        if !are_alike {
            return Ok(calls.add_set(renderer.render_requests(most).await?, false, most)?);
        }
        let key = renderer.item_key().await?;
        if let Some(known) = calls.keys.by_item.get(&key) {
            return Ok(*known);
        }
        let set = calls.add_set(renderer.render_requests(most).await?, true, most)?;
        self.available_values.memory.charge_for::<Range<usize>>(1).map_err(PartFailureReason::from)?;
        calls.keys.add_item(key, set).map_err(PartFailureReason::from)?;
        Ok(set)
    }

    /// Returns the items of an `each`. An item is `None` for `null`, for which no call is made.
    async fn list_items(&self, over: &'a ItemSource) -> Result<Vec<Option<PartItem<'a>>>, RenderError> {
        let (part, path) = match over {
            ItemSource::Part(part, path) => (*part, path),
            ItemSource::Input(input) => {
                let value = self.available_values.inputs.get(*input).and_then(Option::as_ref);
                let items = value
                    .into_iter()
                    .flat_map(|value| value.texts.iter().map(|text| (text, value.is_unquoted)));
                return Ok(items.map(|(text, is_bare)| Some(PartItem::Text(text, is_bare))).collect());
            }
        };
        let name = &self.available_values.plan.parts[part].name;
        let not_array = |kind: &'static str| {
            RenderError::from(PartFailureReason::EachNotArray(format!("$.{name}"), kind))
        };
        let Some(value) = self.available_values.value(part) else { return Ok(Vec::new()) };
        offload::move_if_long(work_of_targets(value.root(), path)).await;
        let (mut value_kind, mut items) = (None, BudgetedVec::new(&self.available_values.memory));
        let visited = path.visit(value.root(), &mut |node| match node.kind() {
            ValueKind::Array | ValueKind::Null => {}
            kind => value_kind = Some(kind),
        });
        visited.map_err(|not| not_array(not.0.map_or("nothing", ValueKind::name)))?;
        if let Some(kind) = value_kind.filter(|_| !path.steps().ends_with(&[JsonPathStep::Wildcard])) {
            return Err(not_array(kind.name()));
        }
        let add = &mut |node: JsonNode<'a>| {
            items.push((node.kind() != ValueKind::Null).then_some(PartItem::Node(node)))
        };
        visit_targets(value.root(), path, add)
            .map_err(|not| not_array(not.0.map_or("nothing", ValueKind::name)))?;
        Ok(items.finish().map_err(PartFailureReason::from)?)
    }
}

/// The responses of the calls, followed by the combined responses of items with no call or several.
struct ItemResponses<'b> {
    responses: Vec<Result<JsonText, PartFailureReason>>,
    combined_indexes: HashMap<Vec<u32>, u32>,
    memory: &'b MemoryBudget,
}

impl ItemResponses<'_> {
    /// Returns the index of the response of a set of calls.
    async fn response_index(&mut self, numbers: &[u32]) -> u32 {
        if let [only] = numbers {
            return *only;
        }
        if let Some(place) = self.combined_indexes.get(numbers) {
            return *place;
        }
        let bodies = numbers.iter().filter_map(|number| self.responses.get(*number as usize).cloned());
        let answer = match bodies.collect::<Result<Vec<JsonText>, PartFailureReason>>() {
            Ok(bodies) => {
                offload::move_if_long(work::VALUE + work_of_texts(&bodies)).await;
                concatenate_arrays(&bodies, self.memory)
            }
            Err(reason) => Err(reason),
        };
        self.responses.push(answer);
        let place = self.responses.len() as u32 - 1;
        self.combined_indexes.insert(numbers.to_vec(), place);
        place
    }
}

/// Whether the calls for two items may differ in more than the URL.
fn uses_items_outside_url(part: &PartPlan) -> bool {
    part.non_url_slots().any(|slot| matches!(slot.source, SlotSource::Each(_)))
}
