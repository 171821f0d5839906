//! Calls to REST services: an operation and its values become a request, and the result is a value in the
//! response.

mod request;

use std::sync::Arc;

use bytes::Bytes;
use http::{Method, StatusCode};
use json::{JsonDocument, JsonPath, JsonPathStep, NodeId};
use services::{ServiceRequest, UpstreamService};

use super::call_context::{ArgumentValues, CallContext};
use super::call_failure::CallFailureReason;
use super::outcome::{FetchOutcome, FetchedValues, ValueLocation};
use super::service_response::ServiceResponse;
use crate::subgraph::{ParameterSource, RestOperation};
use openapi::ParameterLocation;

pub(crate) use request::{RequestKey, RestRequestRenderer};

/// A value in a response.
pub(crate) struct RestValue {
    pub(crate) document: Arc<JsonDocument>,
    pub(crate) node_id: NodeId,
}

/// Fetches the value of a root field.
pub(crate) async fn fetch_root(
    context: &CallContext,
    service: &str,
    operation: &RestOperation,
    arguments: &ArgumentValues,
) -> FetchedValues {
    let service = match context.service(service) {
        Ok(service) => service,
        Err(reason) => return FetchedValues::all_failed(1, reason.into_source_error(&service.into())),
    };
    let request = RestRequestRenderer { operation, arguments, key: RequestKey::None }.build_request();
    let value = match request {
        Ok(request) => fetch_value(context, service, operation, request).await,
        Err(reason) => Err(reason),
    };
    match value {
        Ok(None) => FetchedValues { outcomes: vec![FetchOutcome::Null], ..FetchedValues::default() },
        Ok(Some(RestValue { document, node_id })) => {
            let fetch_outcomes = vec![FetchOutcome::One(ValueLocation { document: 0, node_id })];
            FetchedValues { documents: vec![document], outcomes: fetch_outcomes, ..FetchedValues::default() }
        }
        Err(reason) => FetchedValues::all_failed(1, reason.into_source_error(service.name())),
    }
}

/// Sends a request and locates the value in the response; `None` if there is none.
pub(crate) async fn fetch_value(
    context: &CallContext,
    service: &Arc<UpstreamService>,
    operation: &RestOperation,
    request: ServiceRequest,
) -> Result<Option<RestValue>, CallFailureReason> {
    let answer = context.calls.send(service, request).await.map_err(CallFailureReason::Call)?;
    read_response(operation, &answer).await
}

async fn read_response(
    operation: &RestOperation,
    answer: &ServiceResponse,
) -> Result<Option<RestValue>, CallFailureReason> {
    let (status, body) = (answer.status(), answer.body());
    if status == StatusCode::NOT_FOUND && is_keyed_resource(operation) {
        return Ok(None);
    }
    if !status.is_success() {
        return Err(CallFailureReason::Status(status));
    }
    if operation.is_empty {
        return from_json_text(Bytes::from_static(b"true")).map(Some);
    }
    if matches!(status, StatusCode::NO_CONTENT | StatusCode::RESET_CONTENT) && body.is_empty() {
        return Ok(None);
    }
    if operation.is_text {
        offload::move_if_long(body.len()).await;
        let text = std::str::from_utf8(body).map_err(|_| CallFailureReason::NotText)?;
        return from_json_text(serde_json::Value::from(text).to_string().into()).map(Some);
    }
    let document = answer.document().await?;
    let node = operation.response_path.find(document.root());
    let spot =
        node.ok_or_else(|| CallFailureReason::MissingPath(format_path(&operation.response_path)))?.node_id();
    Ok(Some(RestValue { document: Arc::clone(document), node_id: spot }))
}

/// Creates a value from JSON text that the gateway wrote.
pub(crate) fn from_json_text(text: Bytes) -> Result<RestValue, CallFailureReason> {
    let document = JsonDocument::new(text).map_err(|error| CallFailureReason::NotJson(error, false))?;
    Ok(RestValue { node_id: document.root().node_id(), document: Arc::new(document) })
}

/// Whether an operation reads a resource that is named by a value in its path. A 404 then means null instead
/// of an error.
fn is_keyed_resource(operation: &RestOperation) -> bool {
    let is_named = |from: &ParameterSource| !matches!(from, ParameterSource::Fixed(_));
    matches!(operation.method, Method::GET | Method::HEAD)
        && operation
            .parameters
            .iter()
            .any(|parameter| parameter.location == ParameterLocation::Path && is_named(&parameter.source))
}

fn format_path(path: &JsonPath) -> String {
    let step = |step: &JsonPathStep| match step {
        JsonPathStep::Name(name) => format!("/{name}"),
        JsonPathStep::Wildcard => "/*".to_owned(),
    };
    path.steps().iter().map(step).collect()
}

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;
