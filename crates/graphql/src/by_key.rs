//! Values for many objects at once: the calls of links, and of entities that are fetched by their keys.
//!
//! Either a list is fetched, completely or by the keys, and joined in memory, or there is one call for each
//! object. For a GraphQL service, such a call is a field of one document. Errors of some objects do not
//! affect the others.

mod field;
mod join;
mod lists;

use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt, stream};
use json::{JsonNode, ValueKind};
use offload::work;
use services::UpstreamService;

use crate::fetched::{FetchOutcome, FetchedValues, SourceError, ValueLocation};
use crate::reason::CallFailureReason;
use crate::rest::{self, RequestKey, RestRequestRenderer, RestValue};
use crate::sources::{ArgumentValues, CallContext, GraphqlEndpoint, ObjectKeys};
use crate::subgraph::{BatchStrategy, BoundCall, RestOperation};

/// The selection on the objects of a GraphQL service; empty for a REST service.
#[derive(Clone, Debug, Default)]
pub(crate) struct ObjectSelection<'a> {
    /// The fields without braces; empty if the field has no selection.
    pub(crate) text: &'a str,
    /// The variables in the selection, as a document declares them: `$first: Int`.
    pub(crate) declares: &'a str,
    /// The values of the variables.
    pub(crate) variables: &'a [(&'a str, Bytes)],
}

/// Fetches the values for these objects. There is one target for each object.
pub(crate) async fn by_key(
    ground: &CallContext,
    endpoint: &GraphqlEndpoint<'_>,
    how: &BatchStrategy,
    keys: &ObjectKeys<'_>,
    arguments: &ArgumentValues,
    selection: &ObjectSelection<'_>,
) -> FetchedValues {
    let service = match ground.service(endpoint.service) {
        Ok(service) => service,
        Err(reason) => return FetchedValues::failed(keys.len(), reason.of(&endpoint.name(ground))),
    };
    let asking = KeyedFetch { ground, endpoint, service, keys, arguments, selection };
    match how {
        BatchStrategy::Each(BoundCall::Rest(operation)) => asking.each(operation).await,
        BatchStrategy::Each(BoundCall::Field { name, arguments }) => asking.each_field(name, arguments).await,
        BatchStrategy::List(ask, joined) => asking.whole(ask, joined).await,
        BatchStrategy::Ids(ask, joined) => asking.ids(ask, joined).await,
    }
}

/// A fetch of values by key.
struct KeyedFetch<'a> {
    ground: &'a CallContext,
    endpoint: &'a GraphqlEndpoint<'a>,
    service: &'a Arc<UpstreamService>,
    keys: &'a ObjectKeys<'a>,
    arguments: &'a ArgumentValues,
    selection: &'a ObjectSelection<'a>,
}

impl<'a> KeyedFetch<'a> {
    /// Makes one call for each object that has a key.
    async fn each(&self, operation: &RestOperation) -> FetchedValues {
        let rows = || (0..self.keys.len()).map(|number| self.keys.row(number));
        let count = rows().filter(|row| has_key(row)).count();
        if let Err(reason) = self.may_call(count) {
            return self.failed(reason);
        }
        let call = |row| async move {
            if !has_key(row) {
                return Ok(None);
            }
            let key_bytes: usize = row.iter().map(|node| node.text().len()).sum();
            offload::move_if_long(work::estimate_text(self.arguments.text()) + key_bytes).await;
            let key = RequestKey::One(self.keys.fields, row);
            let request = RestRequestRenderer { operation, arguments: self.arguments, key }.request()?;
            rest::one(self.ground, self.service, operation, request).await
        };
        let calls = rows().map(|row| call(row).boxed()).collect();
        let values = all(calls, self.ground.limits.concurrency).await;
        let mut fetched = FetchedValues::default();
        for value in values {
            let found = match value {
                Ok(None) => FetchOutcome::Nothing,
                Ok(Some(RestValue { document, spot })) => {
                    fetched.documents.push(document);
                    let document = fetched.documents.len() as u32 - 1;
                    FetchOutcome::One(ValueLocation { document, spot })
                }
                Err(reason) => {
                    fetched.errors.push(self.error(reason));
                    FetchOutcome::Failed(fetched.errors.len() as u32 - 1)
                }
            };
            fetched.found.push(found);
        }
        fetched
    }

    /// Checks that a field may cause this number of calls.
    fn may_call(&self, calls: usize) -> Result<(), CallFailureReason> {
        let most = self.ground.limits.calls;
        if calls > most { Err(CallFailureReason::TooMany(calls, most)) } else { Ok(()) }
    }

    fn error(&self, reason: CallFailureReason) -> SourceError {
        reason.of(self.service.name())
    }

    fn failed(&self, reason: CallFailureReason) -> FetchedValues {
        FetchedValues::failed(self.keys.len(), self.error(reason))
    }
}

/// Awaits all futures, with at most `most` of them in flight at once.
#[cfg_attr(not(test), expect(clippy::disallowed_methods, reason = "as long as the `Vec`"))]
async fn all<T: Send>(futures: Vec<BoxFuture<'_, T>>, most: usize) -> Vec<T> {
    stream::iter(futures).buffered(most.max(1)).collect().await
}

/// Whether an object can be fetched by these values.
fn has_key(row: &[JsonNode<'_>]) -> bool {
    row.iter().all(|node| node.kind() != ValueKind::Null)
}

#[cfg(test)]
mod tests;
