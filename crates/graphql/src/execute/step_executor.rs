//! The interface through which steps are executed: by services, or by a table in tests.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use json::{JsonDocument, JsonNode};
use offload::work;

use crate::fetch::call_context::{ArgumentValues, CallContext, GraphqlEndpoint, ObjectKeys};
use crate::fetch::keyed::{ObjectSelection, fetch_by_key};
use crate::fetch::outcome::{FetchedValues, ValueLocation};
use crate::fetch::remote::{self, RepresentationBatch};
use crate::fetch::rest;
use crate::plan::data::{PlanCall, PlanStep};

/// Executes the steps of a plan.
pub(crate) trait StepExecutor: Sync {
    /// Executes a step. The result has one entry for each of the step's objects.
    fn fetch<'a>(&'a self, step: &'a PlanStep, request: StepRequest) -> BoxFuture<'a, FetchedValues>;

    /// Fetches the list of a step before its objects are known.
    fn prefetch<'a>(&'a self, step: &'a PlanStep, request: StepRequest) -> BoxFuture<'a, ()>;
}

/// The request of a step.
#[derive(Debug, Default)]
pub(crate) struct StepRequest {
    /// The field's arguments as a JSON object; `None` if there are none.
    pub(crate) arguments: Option<Bytes>,
    /// The variables of a GraphQL document that have a value.
    pub(crate) variables: Vec<(Box<str>, Bytes)>,
    pub(crate) keys: KeyRows,
    /// The entity representations of each batch, in the order of the aliases.
    pub(crate) representations: Vec<Vec<Bytes>>,
}

/// The keys of objects without duplicates, as locations in documents.
#[derive(Debug, Default)]
pub(crate) struct KeyRows {
    documents: Vec<Arc<JsonDocument>>,
    locations: Vec<ValueLocation>,
    /// The execution-wide index of the document that was added last.
    last_document: Option<u32>,
}

impl StepRequest {
    /// The work of sending its arguments and variables.
    pub(super) fn sending_work(&self) -> usize {
        let values = self.arguments.iter().chain(self.variables.iter().map(|(_, value)| value));
        work::sum_estimates(values.map(|value| work::estimate_text(value)))
    }
}

impl KeyRows {
    /// Adds a key value; `number` is the execution-wide index of its document.
    pub(crate) fn add(&mut self, number: u32, document: &Arc<JsonDocument>, node: JsonNode<'_>) {
        if self.last_document != Some(number) {
            self.documents.push(Arc::clone(document));
            self.last_document = Some(number);
        }
        let document = u32::try_from(self.documents.len() - 1).unwrap_or(u32::MAX);
        self.locations.push(ValueLocation { document, node_id: node.node_id() });
    }

    /// Returns the values row by row.
    pub(crate) fn nodes(&self) -> Vec<JsonNode<'_>> {
        let node = |location: &ValueLocation| {
            self.documents.get(location.document as usize)?.node_by_id(location.node_id)
        };
        self.locations.iter().filter_map(node).collect()
    }
}

impl StepExecutor for CallContext {
    fn fetch<'a>(&'a self, step: &'a PlanStep, request: StepRequest) -> BoxFuture<'a, FetchedValues> {
        Box::pin(fetch_step(self, step, request))
    }

    fn prefetch<'a>(&'a self, step: &'a PlanStep, request: StepRequest) -> BoxFuture<'a, ()> {
        // The result is dropped: the later `fetch` of the same list shares this response.
        Box::pin(fetch_step(self, step, request).map(drop))
    }
}

async fn fetch_step(context: &CallContext, step: &PlanStep, request: StepRequest) -> FetchedValues {
    let StepRequest { arguments, variables, keys, representations } = request;
    // The arguments were serialized by this crate, so that they are valid JSON.
    let arguments = arguments.and_then(|text| ArgumentValues::parse(text).ok()).unwrap_or_default();
    let mut pairs: Vec<(&str, Bytes)> = Vec::with_capacity(variables.len());
    for (name, value) in &variables {
        pairs.push((name, value.clone()));
    }
    let (path, document) = match &step.call {
        PlanCall::Operation(operation, _) => {
            return rest::fetch_root(context, &step.service, operation, &arguments).await;
        }
        PlanCall::Keys(how, _) => {
            let keys = ObjectKeys { fields: step.needed_fields(), values: keys.nodes() };
            let endpoint = GraphqlEndpoint { service: &step.service, path: "" };
            return fetch_by_key(context, &endpoint, how, &keys, &arguments, &ObjectSelection::default())
                .await;
        }
        PlanCall::Linked { path, strategy: how, selection, declarations: declares, .. } => {
            let keys = ObjectKeys { fields: step.needed_fields(), values: keys.nodes() };
            let endpoint = GraphqlEndpoint { service: &step.service, path };
            let selection = ObjectSelection { text: selection, declarations: declares, variables: &pairs };
            return fetch_by_key(context, &endpoint, how, &keys, &arguments, &selection).await;
        }
        PlanCall::Document(document) => (&document.path, document),
        PlanCall::Entities(document, _) => (&document.path, document),
    };
    let endpoint = GraphqlEndpoint { service: &step.service, path };
    let PlanCall::Entities(_, aliases) = &step.call else {
        return remote::fetch_root(context, &endpoint, &document.query, &pairs, document.is_query).await;
    };
    let mut batches = Vec::with_capacity(aliases.len());
    for ((alias, variable), representations) in aliases.iter().zip(representations) {
        batches.push(RepresentationBatch { alias, variable, representations });
    }
    remote::fetch_entities(context, &endpoint, &document.query, batches, &pairs).await
}
