//! Values for many objects at once: the calls of links, and of entities that are fetched by their keys.
//!
//! Either a list is fetched, completely or by the keys, and joined in memory, or there is one call for each
//! object. For a GraphQL service, such a call is a field of one document. Errors of some objects do not
//! affect the others.

mod key_join;
mod keyed_field;
mod keyed_lists;

use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt, stream};
use json::{JsonNode, ValueKind};
use offload::work;
use services::UpstreamService;

use super::call_context::{ArgumentValues, CallContext, GraphqlEndpoint, ObjectKeys};
use super::call_failure::CallFailureReason;
use super::outcome::{FetchOutcome, FetchedValues, SourceError, ValueLocation};
use super::rest::{self, RequestKey, RestRequestRenderer, RestValue};
use crate::subgraph::{BatchStrategy, BoundCall, RestOperation};

/// The selection on the objects of a GraphQL service; empty for a REST service.
#[derive(Clone, Debug, Default)]
pub(crate) struct ObjectSelection<'a> {
    /// The fields without braces; empty if the field has no selection.
    pub(crate) text: &'a str,
    /// The variables in the selection, as a document declares them: `$first: Int`.
    pub(crate) declarations: &'a str,
    /// The values of the variables.
    pub(crate) variables: &'a [(&'a str, Bytes)],
}

/// Fetches the values for these objects. There is one target for each object.
pub(crate) async fn fetch_by_key(
    call_context: &CallContext,
    endpoint: &GraphqlEndpoint<'_>,
    strategy: &BatchStrategy,
    keys: &ObjectKeys<'_>,
    arguments: &ArgumentValues,
    selection: &ObjectSelection<'_>,
) -> FetchedValues {
    let service = match call_context.service(endpoint.service) {
        Ok(service) => service,
        Err(reason) => {
            return FetchedValues::all_failed(
                keys.len(),
                reason.into_source_error(&endpoint.service_name(call_context)),
            );
        }
    };
    let asking = KeyedFetch { context: call_context, endpoint, service, keys, arguments, selection };
    match strategy {
        BatchStrategy::PerObject(BoundCall::Rest(operation)) => asking.fetch_each(operation).await,
        BatchStrategy::PerObject(BoundCall::Field { name, arguments }) => {
            asking.fetch_each_field(name, arguments).await
        }
        BatchStrategy::WholeList(ask, joined) => asking.fetch_whole(ask, joined).await,
        BatchStrategy::KeyBatches(ask, joined) => asking.fetch_by_ids(ask, joined).await,
    }
}

/// A fetch of values by key.
struct KeyedFetch<'a> {
    context: &'a CallContext,
    endpoint: &'a GraphqlEndpoint<'a>,
    service: &'a Arc<UpstreamService>,
    keys: &'a ObjectKeys<'a>,
    arguments: &'a ArgumentValues,
    selection: &'a ObjectSelection<'a>,
}

impl<'a> KeyedFetch<'a> {
    /// Makes one call for each object that has a key.
    async fn fetch_each(&self, operation: &RestOperation) -> FetchedValues {
        let rows = || (0..self.keys.len()).map(|number| self.keys.row(number));
        let count = rows().filter(|row| has_key(row)).count();
        if let Err(reason) = self.check_calls(count) {
            return self.failed_fetch(reason);
        }
        let call = |row| async move {
            if !has_key(row) {
                return Ok(None);
            }
            let key_bytes: usize = row.iter().map(|node| node.text().len()).sum();
            offload::move_if_long(work::estimate_text(self.arguments.text()) + key_bytes).await;
            let key = RequestKey::One(self.keys.fields, row);
            let request =
                RestRequestRenderer { operation, arguments: self.arguments, key }.build_request()?;
            rest::fetch_value(self.context, self.service, operation, request).await
        };
        let calls = rows().map(|row| call(row).boxed()).collect();
        let values = join_bounded(calls, self.context.limits.concurrency).await;
        let mut fetched = FetchedValues::default();
        for value in values {
            let outcome = match value {
                Ok(None) => FetchOutcome::Null,
                Ok(Some(RestValue { document, node_id: spot })) => {
                    fetched.documents.push(document);
                    let document = fetched.documents.len() as u32 - 1;
                    FetchOutcome::One(ValueLocation { document, node_id: spot })
                }
                Err(reason) => {
                    fetched.errors.push(self.source_error(reason));
                    FetchOutcome::Failed(fetched.errors.len() as u32 - 1)
                }
            };
            fetched.outcomes.push(outcome);
        }
        fetched
    }

    /// Checks that a field may cause this number of calls.
    fn check_calls(&self, calls: usize) -> Result<(), CallFailureReason> {
        let most = self.context.limits.calls;
        if calls > most { Err(CallFailureReason::TooManyCalls(calls, most)) } else { Ok(()) }
    }

    fn source_error(&self, reason: CallFailureReason) -> SourceError {
        reason.into_source_error(self.service.name())
    }

    fn failed_fetch(&self, reason: CallFailureReason) -> FetchedValues {
        FetchedValues::all_failed(self.keys.len(), self.source_error(reason))
    }
}

/// Awaits all futures, with at most `most` of them in flight at once.
#[cfg_attr(not(test), expect(clippy::disallowed_methods, reason = "as long as the `Vec`"))]
async fn join_bounded<T: Send>(futures: Vec<BoxFuture<'_, T>>, most: usize) -> Vec<T> {
    stream::iter(futures).buffered(most.max(1)).collect().await
}

/// Whether an object can be fetched by these values.
fn has_key(row: &[JsonNode<'_>]) -> bool {
    row.iter().all(|node| node.kind() != ValueKind::Null)
}

#[cfg(test)]
mod tests;
