//! The responses of GraphQL services, and the assignment of their errors to targets.

use std::collections::BTreeMap;
use std::sync::Arc;

use http::StatusCode;
use json::{JsonDocument, JsonNode, NodeId, ValueKind};
use offload::work;
use serde_json::{Map, Value};

use crate::fetch::call_failure::CallFailureReason;
use crate::fetch::outcome::{FetchOutcome, SourceError, ValueLocation};
use crate::fetch::service_response::ServiceResponse;

/// The maximum number of errors that are passed on from a response.
const MAX_ERRORS: usize = 100;
/// The maximum length in bytes of an error that is parsed. The values of a JSON text can take 40 times its
/// length.
const MAX_ERROR_BYTES: usize = 16 << 10;
/// The maximum total length in bytes of the errors that are parsed from a response.
const MAX_PARSED_BYTES: usize = 256 << 10;
/// The maximum number of characters of the message of a longer error.
const MAX_MESSAGE_CHARS: usize = 1024;
/// The members of an error that are passed on. Locations are omitted, because they refer to the document sent
/// to the service.
const FORWARDED_MEMBERS: [&str; 3] = ["message", "path", "extensions"];

/// The response of a GraphQL service.
#[derive(Debug)]
pub(crate) struct GraphqlServiceResponse {
    pub(crate) document: Arc<JsonDocument>,
    /// The location of `data`; `None` if it is `null` or missing.
    pub(crate) data: Option<NodeId>,
    /// `errors`.
    pub(crate) reported_errors: Vec<Value>,
    pub(crate) status: StatusCode,
}

impl GraphqlServiceResponse {
    /// Reads a response regardless of its status: the body takes precedence (GraphQL over HTTP, 6.4).
    pub(crate) async fn from_service(answer: &ServiceResponse) -> Result<Self, CallFailureReason> {
        let status = answer.status();
        let or_status = |reason| if status.is_success() { reason } else { CallFailureReason::Status(status) };
        let document = answer.document().await.map_err(or_status)?;
        let (mut data, mut values, mut is_response) = (None, Vec::new(), false);
        for (key, value) in document.root().members() {
            if key.equals(b"data") && matches!(value.kind(), ValueKind::Object | ValueKind::Null) {
                data = (value.kind() == ValueKind::Object).then(|| value.node_id());
                is_response = true;
            } else if key.equals(b"errors") && value.kind() == ValueKind::Array {
                offload::move_if_long(work::ERROR_BYTE * value.text().len()).await;
                values = parse_errors(value);
                is_response |= !values.is_empty();
            }
        }
        if !is_response || (data.is_none() && values.is_empty()) {
            return Err(or_status(CallFailureReason::NotGraphql));
        }
        Ok(Self { document: Arc::clone(document), data, reported_errors: values, status })
    }
}

/// Returns the errors that are passed on.
fn parse_errors(list: JsonNode<'_>) -> Vec<Value> {
    let mut parsed_bytes = 0;
    let (mut values, objects) = (Vec::new(), |node: &JsonNode<'_>| node.kind() == ValueKind::Object);
    for node in list.items().take(MAX_ERRORS).filter(objects) {
        let length = node.text().len();
        if length > MAX_ERROR_BYTES {
            values.push(only_message(node));
            continue;
        }
        parsed_bytes += length;
        if parsed_bytes > MAX_PARSED_BYTES {
            break;
        }
        values.extend(parse_error(node));
    }
    values
}

/// Returns an error with nothing but the beginning of its message.
fn only_message(node: JsonNode<'_>) -> Value {
    let mut members = Map::new();
    if let Some(text) = node.last_member(b"message").and_then(JsonNode::string) {
        let cut: String = String::from_utf8_lossy(&text).chars().take(MAX_MESSAGE_CHARS).collect();
        members.insert("message".to_owned(), cut.into());
    }
    members.into()
}

/// Returns the members of an error that are passed on.
fn parse_error(node: JsonNode<'_>) -> Option<Value> {
    let Value::Object(members) = serde_json::from_slice(node.text()).ok()? else { return None };
    let told: Map<String, Value> =
        members.into_iter().filter(|(name, _)| FORWARDED_MEMBERS.contains(&&**name)).collect();
    Some(told.into())
}

/// The errors of a response, grouped by target.
pub(crate) struct SortedErrors {
    /// The errors of each target that has some, with paths relative to the target, and the index of the
    /// group.
    by_target: BTreeMap<usize, (u32, Vec<Value>)>,
    /// The errors that belong to no target or to several.
    unassigned: Vec<Value>,
    /// Whether a value is missing without an error that explains it.
    is_value_missing: bool,
}

impl SortedErrors {
    /// Groups errors. `target` maps an error's path to the target and the rest of the path below it.
    pub(crate) fn new(values: Vec<Value>, target: impl Fn(&[Value]) -> Option<(usize, &[Value])>) -> Self {
        let (mut by_target, mut unassigned) = (BTreeMap::<usize, (u32, Vec<Value>)>::new(), Vec::new());
        for mut error in values {
            let path = error.get("path").and_then(Value::as_array);
            match path.and_then(|path| target(path)).map(|(target, rest)| (target, rest.to_vec())) {
                Some((target, rest)) => {
                    error["path"] = rest.into();
                    by_target.entry(target).or_default().1.push(error);
                }
                None => unassigned.push(error),
            }
        }
        for (number, (place, _)) in by_target.values_mut().enumerate() {
            *place = number as u32;
        }
        Self { by_target, unassigned, is_value_missing: false }
    }

    /// Returns the targets with errors of their own, in the order of their indexes.
    pub(crate) fn targets(&self) -> impl Iterator<Item = usize> {
        self.by_target.keys().copied()
    }

    /// Returns the result of a target, given its node in the response.
    pub(crate) fn target_outcome(
        &mut self,
        target: usize,
        node: Option<JsonNode<'_>>,
        document: u32,
    ) -> FetchOutcome {
        let own = self.by_target.get(&target).map(|(number, _)| *number);
        let general = self.by_target.len() as u32;
        let location =
            node.filter(super::is_not_null).map(|node| ValueLocation { document, node_id: node.node_id() });
        match (location, own) {
            (Some(place), Some(error)) => FetchOutcome::Partial(place, error),
            (Some(place), None) => FetchOutcome::One(place),
            (None, Some(error)) => FetchOutcome::Failed(error),
            (None, None) if self.unassigned.is_empty() && node.is_some() => FetchOutcome::Null,
            (None, None) => {
                self.is_value_missing |= self.unassigned.is_empty();
                FetchOutcome::Failed(general)
            }
        }
    }

    /// Returns the errors in the order of their indexes.
    pub(crate) fn into_errors(self, service: &Arc<str>, status: StatusCode) -> Vec<SourceError> {
        let general = Some(self.unassigned).filter(|general| !general.is_empty());
        let told = self.by_target.into_values().map(|(_, told)| told).chain(general);
        let told = told.map(|values| CallFailureReason::ReportedErrors(values, status));
        told.chain(self.is_value_missing.then_some(CallFailureReason::MissingValue))
            .map(|reason| reason.into_source_error(service))
            .collect()
    }
}
