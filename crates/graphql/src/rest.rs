//! Calls to REST services: an operation and its values become a request, and the result is a value in the
//! response.

mod request;

use std::sync::Arc;

use bytes::Bytes;
use http::{Method, StatusCode};
use json::{JsonDocument, JsonPath, JsonPathStep, NodeId};
use services::{ServiceRequest, UpstreamService};

use crate::answer::ServiceResponse;
use crate::fetched::{FetchOutcome, FetchedValues, ValueLocation};
use crate::reason::CallFailureReason;
use crate::sources::{ArgumentValues, CallContext};
use crate::subgraph::{ParameterSource, RestOperation};
use openapi::ParameterLocation;

pub(crate) use request::{RequestKey, RestRequestRenderer};

/// A value in a response.
pub(crate) struct RestValue {
    pub(crate) document: Arc<JsonDocument>,
    pub(crate) spot: NodeId,
}

/// Fetches the value of a root field.
pub(crate) async fn root(
    ground: &CallContext,
    service: &str,
    operation: &RestOperation,
    arguments: &ArgumentValues,
) -> FetchedValues {
    let service = match ground.service(service) {
        Ok(service) => service,
        Err(reason) => return FetchedValues::failed(1, reason.of(&service.into())),
    };
    let request = RestRequestRenderer { operation, arguments, key: RequestKey::None }.request();
    let value = match request {
        Ok(request) => one(ground, service, operation, request).await,
        Err(reason) => Err(reason),
    };
    match value {
        Ok(None) => FetchedValues { found: vec![FetchOutcome::Nothing], ..FetchedValues::default() },
        Ok(Some(RestValue { document, spot })) => {
            let found = vec![FetchOutcome::One(ValueLocation { document: 0, spot })];
            FetchedValues { documents: vec![document], found, ..FetchedValues::default() }
        }
        Err(reason) => FetchedValues::failed(1, reason.of(service.name())),
    }
}

/// Sends a request and locates the value in the response; `None` if there is none.
pub(crate) async fn one(
    ground: &CallContext,
    service: &Arc<UpstreamService>,
    operation: &RestOperation,
    request: ServiceRequest,
) -> Result<Option<RestValue>, CallFailureReason> {
    let answer = ground.calls.send(service, request).await.map_err(CallFailureReason::Call)?;
    read(operation, &answer).await
}

async fn read(
    operation: &RestOperation,
    answer: &ServiceResponse,
) -> Result<Option<RestValue>, CallFailureReason> {
    let (status, body) = (answer.status(), answer.body());
    if status == StatusCode::NOT_FOUND && is_one_by_key(operation) {
        return Ok(None);
    }
    if !status.is_success() {
        return Err(CallFailureReason::Status(status));
    }
    if operation.is_empty {
        return whole(Bytes::from_static(b"true")).map(Some);
    }
    if matches!(status, StatusCode::NO_CONTENT | StatusCode::RESET_CONTENT) && body.is_empty() {
        return Ok(None);
    }
    if operation.is_text {
        offload::move_if_long(body.len()).await;
        let text = std::str::from_utf8(body).map_err(|_| CallFailureReason::NotText)?;
        return whole(serde_json::Value::from(text).to_string().into()).map(Some);
    }
    let document = answer.document().await?;
    let node = operation.at.find(document.root());
    let spot = node.ok_or_else(|| CallFailureReason::NothingAt(shown(&operation.at)))?.node_id();
    Ok(Some(RestValue { document: Arc::clone(document), spot }))
}

/// Creates a value from JSON text that the gateway wrote.
pub(crate) fn whole(text: Bytes) -> Result<RestValue, CallFailureReason> {
    let document = JsonDocument::new(text).map_err(|error| CallFailureReason::NotJson(error, false))?;
    Ok(RestValue { spot: document.root().node_id(), document: Arc::new(document) })
}

/// Whether an operation reads a resource that is named by a value in its path. A 404 then means null instead
/// of an error.
fn is_one_by_key(operation: &RestOperation) -> bool {
    let is_named = |from: &ParameterSource| !matches!(from, ParameterSource::Fixed(_));
    matches!(operation.method, Method::GET | Method::HEAD)
        && operation
            .parameters
            .iter()
            .any(|parameter| parameter.place == ParameterLocation::Path && is_named(&parameter.from))
}

fn shown(path: &JsonPath) -> String {
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
