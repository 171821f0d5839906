//! The data of a request: the client's inputs and body, and the responses of the parts. Values are positions
//! in indexed JSON texts. `stream.rs` passes on long responses while they arrive.

pub(crate) mod stream;

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use json::{JsonDocument, JsonNode, JsonPath, NodeId, NotArray, ValueKind};
use offload::{SHORT_TEXT, work};

use crate::memory::MemoryBudget;
use crate::plan::AggregatePlan;
use crate::plan::input::AggregateInputValues;
use crate::problem::PartFailureReason;
use stream::SharedArrivingResponse;

/// The data of a request that is available so far.
pub(crate) struct AvailableValues<'a> {
    pub(crate) plan: &'a AggregatePlan,
    pub(crate) inputs: AggregateInputValues,
    /// The client's body, if the aggregate reads it.
    pub(crate) body: Option<JsonDocument>,
    values: Vec<OnceLock<PartValue>>,
    pub(crate) memory: MemoryBudget,
}

/// A value in a JSON text.
#[derive(Clone, Debug)]
pub(crate) struct JsonText {
    document: Arc<JsonDocument>,
    node_id: NodeId,
}

/// The value of a part.
#[derive(Debug)]
pub(crate) enum PartValue {
    Single(JsonText),
    Each(FanOutResponses),
    /// A long response that is streamed and not read by other parts, which see `null`.
    Streamed(SharedArrivingResponse, JsonText),
}

/// The responses of an `each`.
#[derive(Debug)]
pub(crate) struct FanOutResponses {
    /// The distinct responses.
    pub(crate) answers: Vec<JsonText>,
    /// The index of each item's response, or `None` for `null`.
    pub(crate) item_responses: Vec<Option<u32>>,
    /// The list of all responses, if other parts read it. Empty otherwise.
    list: JsonText,
}

impl<'a> AvailableValues<'a> {
    pub(crate) fn new(
        plan: &'a AggregatePlan,
        inputs: AggregateInputValues,
        body: Option<JsonDocument>,
    ) -> Self {
        let values = plan.parts.iter().map(|_| OnceLock::new()).collect();
        Self { plan, inputs, body, values, memory: MemoryBudget::new(plan.limits.memory.0) }
    }

    /// Returns the value of a completed part.
    pub(crate) fn value(&self, part: usize) -> Option<&PartValue> {
        self.values.get(part)?.get()
    }

    /// Stores the value of a completed part.
    pub(crate) fn set_value(&self, part: usize, value: PartValue) {
        let _ = self.values[part].set(value);
    }
}

impl JsonText {
    /// Returns the root of a document as a value.
    pub(crate) fn from_document(document: Arc<JsonDocument>) -> Self {
        let node_id = document.root().node_id();
        Self { document, node_id }
    }

    /// Returns the value at a position in a document.
    pub(crate) fn from_node(document: JsonDocument, node_id: NodeId) -> Self {
        Self { document: Arc::new(document), node_id }
    }

    /// Returns the value of a JSON literal.
    pub(crate) fn from_literal(text: &'static str) -> Self {
        match JsonDocument::new(Bytes::from_static(text.as_bytes())) {
            Ok(document) => Self::from_document(Arc::new(document)),
            Err(_) => unreachable!("{text} is JSON"),
        }
    }

    pub(crate) fn root(&self) -> JsonNode<'_> {
        self.document.node_by_id(self.node_id).unwrap_or_else(|| self.document.root())
    }
}

/// Returns the work for the texts of values, such as to concatenate them, for [`offload::move_if_long`].
pub(crate) fn work_of_texts(bodies: &[JsonText]) -> usize {
    bodies.iter().map(|body| body.root().slice_with_whitespace().len()).sum()
}

/// Returns the work for the values that a path selects.
pub(crate) fn work_of_values(root: JsonNode<'_>, path: &JsonPath) -> usize {
    let bytes = root.slice_with_whitespace().len();
    // To count the values of a long text would take long itself.
    if bytes > SHORT_TEXT {
        bytes
    } else {
        bytes + work::VALUE * path.count_up_to(root, work::LONG_VALUE_COUNT)
    }
}

/// Returns the work for the targets of a path (see [`visit_targets`]).
pub(crate) fn work_of_targets(root: JsonNode<'_>, path: &JsonPath) -> usize {
    let values = work_of_values(root, path);
    if values > SHORT_TEXT {
        return values;
    }
    let mut items = 0;
    // A path that leads to no array is reported by the visit that follows.
    let _ = path.visit(root, &mut |node| {
        if node.kind() == ValueKind::Array {
            items += node.count();
        }
    });
    values + work::VALUE * items
}

impl PartValue {
    /// Returns the JSON value. For an `each` it is the list of its responses.
    pub(crate) fn root(&self) -> JsonNode<'_> {
        match self {
            Self::Single(body) | Self::Streamed(_, body) => body.root(),
            Self::Each(fan) => fan.list.root(),
        }
    }
}

impl FanOutResponses {
    pub(crate) fn new(answers: Vec<JsonText>, item_responses: Vec<Option<u32>>) -> Self {
        Self { answers, item_responses, list: JsonText::from_literal("[]") }
    }

    /// Builds the list of all responses. One response can belong to several items.
    pub(crate) async fn with_list(mut self, memory: &MemoryBudget) -> Result<Self, PartFailureReason> {
        offload::move_if_long(work_of_texts(&self.answers)).await;
        let answers: Vec<&[u8]> = self.answers.iter().map(|body| body.root().text()).collect();
        let texts = self
            .item_responses
            .iter()
            .map(|answer| answer.and_then(|answer| answers.get(answer as usize)).copied().unwrap_or(b"null"));
        let length: usize = texts.clone().map(|text| text.len() + 1).sum();
        memory.charge(length)?;
        offload::move_if_long(length).await;
        self.list = JsonText::from_document(Arc::new(index_text(array_text(length, texts), memory)?));
        Ok(self)
    }
}

/// Indexes a text, and charges the index to the request's memory.
pub(crate) fn index_text(text: Bytes, memory: &MemoryBudget) -> Result<JsonDocument, PartFailureReason> {
    let document =
        JsonDocument::with_memory_limit(text, memory.remaining()).map_err(|error| match error {
            json::JsonError::IndexTooLarge(_) => PartFailureReason::Memory,
            error => PartFailureReason::NotJson(error),
        })?;
    memory.charge(document.index_bytes())?;
    Ok(document)
}

/// Concatenates the arrays that several calls returned for one list.
pub(crate) fn concatenate_arrays(
    bodies: &[JsonText],
    memory: &MemoryBudget,
) -> Result<JsonText, PartFailureReason> {
    if bodies.iter().any(|body| body.root().kind() != ValueKind::Array) {
        return Err(PartFailureReason::BatchNotArray);
    }
    let length = bodies.iter().map(|body| body.root().text().len()).sum();
    memory.charge(length)?;
    let text = array_text(length, bodies.iter().flat_map(|body| body.root().items()).map(JsonNode::text));
    Ok(JsonText::from_document(Arc::new(index_text(text, memory)?)))
}

/// Returns the text of an array of about this length.
fn array_text<'a>(length: usize, items: impl Iterator<Item = &'a [u8]>) -> Bytes {
    let mut text = Vec::with_capacity(length + 1);
    text.push(b'[');
    for item in items {
        if text.len() > 1 {
            text.push(b',');
        }
        text.extend_from_slice(item);
    }
    text.push(b']');
    text.into()
}

/// Visits every target of a path: the items of the arrays that it leads to, and any other values that it
/// leads to.
pub(crate) fn visit_targets<'a>(
    root: JsonNode<'a>,
    path: &JsonPath,
    see: &mut dyn FnMut(JsonNode<'a>),
) -> Result<(), NotArray> {
    path.visit(root, &mut |node| match node.kind() {
        ValueKind::Array => node.items().for_each(&mut *see),
        _ => see(node),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn estimate_work(text: &str, path: &str) -> (usize, usize) {
        let document = JsonDocument::new(Bytes::copy_from_slice(text.as_bytes())).unwrap();
        let path = JsonPath::parse(path).unwrap();
        (work_of_values(document.root(), &path), work_of_targets(document.root(), &path))
    }

    #[test]
    fn work_grows_with_bytes_and_values() {
        let numbers = format!("[{}]", vec!["7"; 2_000].join(","));
        let (bytes, values) = (numbers.len(), 2_000 * work::VALUE);
        assert_eq!(estimate_work(&numbers, ""), (bytes + work::VALUE, bytes + work::VALUE + values));
        assert_eq!(estimate_work(&numbers, "[*]"), (bytes + values, bytes + values));
        let nested = format!("[{}]", [numbers.as_str(); 3].join(","));
        let (values, targets) = estimate_work(&nested, "[*][*]");
        assert!(values > SHORT_TEXT && targets == values, "{values}, {targets}");
        let text = format!("\"{}\"", "x".repeat(SHORT_TEXT));
        assert_eq!(estimate_work(&text, ""), (text.len(), text.len()));
    }
}
