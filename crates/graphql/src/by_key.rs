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

use crate::fetched::{Fetched, Found, Place, SourceError};
use crate::reason::Reason;
use crate::rest::{self, Key, Renderer, Value};
use crate::sources::{Arguments, Endpoint, Ground, Keys};
use crate::subgraph::{Ask, How, Operation};

/// The selection on the objects of a GraphQL service; empty for a REST service.
#[derive(Clone, Debug, Default)]
pub(crate) struct Selection<'a> {
    /// The fields without braces; empty if the field has no selection.
    pub(crate) text: &'a str,
    /// The variables in the selection, as a document declares them: `$first: Int`.
    pub(crate) declares: &'a str,
    /// The values of the variables.
    pub(crate) variables: &'a [(&'a str, Bytes)],
}

/// Fetches the values for these objects. There is one target for each object.
pub(crate) async fn by_key(
    ground: &Ground,
    endpoint: &Endpoint<'_>,
    how: &How,
    keys: &Keys<'_>,
    arguments: &Arguments,
    selection: &Selection<'_>,
) -> Fetched {
    let service = match ground.service(endpoint.service) {
        Ok(service) => service,
        Err(reason) => return Fetched::failed(keys.len(), reason.of(&endpoint.name(ground))),
    };
    let asking = Asking { ground, endpoint, service, keys, arguments, selection };
    match how {
        How::Each(Ask::Rest(operation)) => asking.each(operation).await,
        How::Each(Ask::Field { name, arguments }) => asking.each_field(name, arguments).await,
        How::List(ask, joined) => asking.whole(ask, joined).await,
        How::Ids(ask, joined) => asking.ids(ask, joined).await,
    }
}

/// A fetch of values by key.
struct Asking<'a> {
    ground: &'a Ground,
    endpoint: &'a Endpoint<'a>,
    service: &'a Arc<UpstreamService>,
    keys: &'a Keys<'a>,
    arguments: &'a Arguments,
    selection: &'a Selection<'a>,
}

impl<'a> Asking<'a> {
    /// Makes one call for each object that has a key.
    async fn each(&self, operation: &Operation) -> Fetched {
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
            offload::leave_for(work::of_text(self.arguments.text()) + key_bytes).await;
            let key = Key::One(self.keys.fields, row);
            let request = Renderer { operation, arguments: self.arguments, key }.request()?;
            rest::one(self.ground, self.service, operation, request).await
        };
        let calls = rows().map(|row| call(row).boxed()).collect();
        let values = all(calls, self.ground.limits.concurrency).await;
        let mut fetched = Fetched::default();
        for value in values {
            let found = match value {
                Ok(None) => Found::Nothing,
                Ok(Some(Value { document, spot })) => {
                    fetched.documents.push(document);
                    let document = fetched.documents.len() as u32 - 1;
                    Found::One(Place { document, spot })
                }
                Err(reason) => {
                    fetched.errors.push(self.error(reason));
                    Found::Failed(fetched.errors.len() as u32 - 1)
                }
            };
            fetched.found.push(found);
        }
        fetched
    }

    /// Checks that a field may cause this number of calls.
    fn may_call(&self, calls: usize) -> Result<(), Reason> {
        let most = self.ground.limits.calls;
        if calls > most { Err(Reason::TooMany(calls, most)) } else { Ok(()) }
    }

    fn error(&self, reason: Reason) -> SourceError {
        reason.of(self.service.name())
    }

    fn failed(&self, reason: Reason) -> Fetched {
        Fetched::failed(self.keys.len(), self.error(reason))
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
