//! Calls to GraphQL services: a document and its variables become a request, and the results come out of the
//! response.

mod introspect;
mod response;

use std::sync::Arc;

use bytes::Bytes;
use http::Method;
use http::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderValue};
use http::uri::PathAndQuery;
use json::{JsonNode, ValueKind};
use offload::work;
use serde_json::Value;
use services::{CallError, PathError, ServiceRequest};

use super::call_context::{CallContext, GraphqlEndpoint};
use super::call_failure::CallFailureReason;
use super::outcome::{FetchOutcome, FetchedValues, ValueLocation};

pub(crate) use introspect::introspect;
pub(crate) use response::{GraphqlServiceResponse, SortedErrors};

/// The JSON text of a document, as it is written into requests.
#[derive(Clone, Debug)]
pub(crate) struct EncodedDocument(Bytes);

impl EncodedDocument {
    pub(crate) fn new(text: &str) -> Self {
        Self(Value::from(text).to_string().into())
    }
}

/// The representations of entities that one field of a document fetches.
#[derive(Clone, Debug)]
pub(crate) struct RepresentationBatch<'a> {
    /// The key of the field in the response.
    pub(crate) alias: &'a str,
    /// The variable that contains the list of representations.
    pub(crate) variable: &'a str,
    /// The JSON text of each representation, including its `__typename`.
    pub(crate) representations: Vec<Bytes>,
}

/// Fetches root fields. There is one target, the object of all of them.
pub(crate) async fn fetch_root(
    context: &CallContext,
    endpoint: &GraphqlEndpoint<'_>,
    query: &EncodedDocument,
    variables: &[(&str, Bytes)],
    is_query: bool,
) -> FetchedValues {
    let body = build_body(query, |out| write_variables(out, variables));
    let response = match send_document(context, endpoint, body, is_query).await {
        Ok(response) => response,
        Err(reason) => return failed_fetch(context, endpoint, 1, reason),
    };
    let GraphqlServiceResponse { document, data, reported_errors: told, status } = response;
    let outcome = match (data, told.is_empty()) {
        (None, _) => {
            return failed_fetch(context, endpoint, 1, CallFailureReason::ReportedErrors(told, status));
        }
        (Some(spot), true) => FetchOutcome::One(ValueLocation { document: 0, node_id: spot }),
        (Some(spot), false) => FetchOutcome::Partial(ValueLocation { document: 0, node_id: spot }, 0),
    };
    let errors = match told.is_empty() {
        true => Vec::new(),
        false => vec![
            CallFailureReason::ReportedErrors(told, status)
                .into_source_error(&endpoint.service_name(context)),
        ],
    };
    FetchedValues { documents: vec![document], outcomes: vec![outcome], errors, ..FetchedValues::default() }
}

/// Fetches entities by their representations. There is one target for each representation, batch by batch.
pub(crate) async fn fetch_entities(
    context: &CallContext,
    endpoint: &GraphqlEndpoint<'_>,
    query: &EncodedDocument,
    batches: Vec<RepresentationBatch<'_>>,
    variables: &[(&str, Bytes)],
) -> FetchedValues {
    let body = build_body(query, |out| {
        write_variables(out, variables);
        for batch in &batches {
            write_name(out, batch.variable);
            write_list(out, batch.representations.iter().map(|text| &text[..]));
        }
    });
    // The representations are freed before the call: a cancelled call's future is dropped on a serving
    // thread.
    let counts: Vec<_> =
        batches.into_iter().map(|batch| (batch.alias, batch.representations.len())).collect();
    let count: usize = counts.iter().map(|(_, count)| count).sum();
    let response = send_document(context, endpoint, body, true).await;
    offload::move_if_long(work::RESULT * count).await;
    let response = match response {
        Ok(response) => response,
        Err(reason) => return failed_fetch(context, endpoint, count, reason),
    };
    assign_entities(response, &counts, &endpoint.service_name(context))
}

/// Assigns the entities and errors of a response to the targets, given the alias and the number of targets of
/// each batch.
fn assign_entities(
    response: GraphqlServiceResponse,
    counts: &[(&str, usize)],
    service: &Arc<str>,
) -> FetchedValues {
    // The alias, first target and number of targets of each batch.
    let mut firsts = Vec::with_capacity(counts.len());
    let mut first = 0;
    for &(alias, count) in counts {
        firsts.push((alias, first, count));
        first += count;
    }
    let mut sorted = SortedErrors::new(response.reported_errors, |path| {
        let [Value::String(alias), Value::Number(item), rest @ ..] = path else { return None };
        let (_, first, count) = firsts.iter().find(|(known, _, _)| known == alias)?;
        let item = usize::try_from(item.as_u64()?).ok().filter(|item| item < count)?;
        Some((first + item, rest))
    });
    let data = response.data.and_then(|node_id| response.document.node_by_id(node_id));
    let mut fetch_outcomes = Vec::with_capacity(first);
    for (alias, first, count) in &firsts {
        let list = data.and_then(|data| data.member(alias.as_bytes()));
        let mut items = list.into_iter().flat_map(JsonNode::items);
        fetch_outcomes
            .extend((*first..first + count).map(|target| sorted.target_outcome(target, items.next(), 0)));
    }
    let errors = sorted.into_errors(service, response.status);
    FetchedValues {
        documents: vec![response.document],
        outcomes: fetch_outcomes,
        errors,
        ..FetchedValues::default()
    }
}

/// Sends a document.
pub(crate) async fn send_document(
    context: &CallContext,
    endpoint: &GraphqlEndpoint<'_>,
    body: Bytes,
    is_query: bool,
) -> Result<GraphqlServiceResponse, CallFailureReason> {
    let service = context.service(endpoint.service)?;
    if is_query {
        // The fingerprint of the body takes less time per byte than parsing.
        offload::move_if_long(body.len() / 4).await;
    }
    let request = build_request(endpoint.path, body)?;
    let answer = match is_query {
        true => context.calls.send_safe(service, request).await,
        false => context.calls.send(service, request).await,
    };
    GraphqlServiceResponse::from_service(&answer.map_err(CallFailureReason::Call)?).await
}

fn build_request(path: &str, body: Bytes) -> Result<ServiceRequest, CallFailureReason> {
    let invalid = |_| CallFailureReason::Call(CallError::Path(PathError::Invalid).into());
    let path_and_query = PathAndQuery::try_from(path).map_err(invalid)?;
    let mut headers = HeaderMap::new();
    let accept = "application/graphql-response+json, application/json;q=0.9";
    headers.insert(ACCEPT, HeaderValue::from_static(accept));
    headers.insert(CONTENT_TYPE, const { HeaderValue::from_static("application/json") });
    Ok(ServiceRequest { method: Method::POST, path_and_query, headers, body })
}

/// Builds a request's body. `variables` writes the members of the variables, each followed by a comma.
pub(crate) fn build_body(query: &EncodedDocument, variables: impl FnOnce(&mut Vec<u8>)) -> Bytes {
    let mut out = Vec::with_capacity(query.0.len() + 64);
    out.extend_from_slice(b"{\"query\":");
    out.extend_from_slice(&query.0);
    out.extend_from_slice(b",\"variables\":{");
    variables(&mut out);
    if out.ends_with(b",") {
        out.pop();
    }
    out.extend_from_slice(b"}}");
    out.into()
}

pub(crate) fn write_variables(out: &mut Vec<u8>, variables: &[(&str, Bytes)]) {
    for (name, value) in variables {
        write_name(out, name);
        out.extend_from_slice(value);
        out.push(b',');
    }
}

/// Writes the name of a variable. GraphQL names need no escapes.
pub(crate) fn write_name(out: &mut Vec<u8>, name: &str) {
    out.push(b'"');
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"\":");
}

/// Writes a list, followed by a comma.
pub(crate) fn write_list<'t>(out: &mut Vec<u8>, items: impl Iterator<Item = &'t [u8]>) {
    out.push(b'[');
    for (place, item) in items.enumerate() {
        if place > 0 {
            out.push(b',');
        }
        out.extend_from_slice(item);
    }
    out.extend_from_slice(b"],");
}

fn failed_fetch(
    context: &CallContext,
    endpoint: &GraphqlEndpoint<'_>,
    targets: usize,
    reason: CallFailureReason,
) -> FetchedValues {
    FetchedValues::all_failed(targets, reason.into_source_error(&endpoint.service_name(context)))
}

/// Whether a value is not null.
pub(crate) fn is_not_null(node: &JsonNode<'_>) -> bool {
    node.kind() != ValueKind::Null
}

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;
