//! Lists in which objects find their items: fetched completely, or by as many keys per call as possible.

use futures_util::FutureExt;
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use http::StatusCode;
use json::{JsonDocument, JsonNode, NodeId, ValueKind};
use offload::work;
use serde_json::Value as JsonValue;
use services::calls::{MAX_URL_BYTES, split_into_groups};
use services::path::percent_encode;

use super::key_join::KeyJoin;
use super::{KeyedFetch, join_bounded, keyed_field};
use crate::fetch::call_failure::CallFailureReason;
use crate::fetch::outcome::FetchedValues;
use crate::fetch::rest::{self, RequestKey, RestRequestRenderer, RestValue};
use crate::subgraph::{BoundCall, ItemMatch, ParameterSource, RestOperation};

/// The maximum number of keys in a call if the service specifies no limit.
const MAX_KEYS: usize = 1000;

/// A fetched list.
pub(super) struct FetchedList {
    pub(super) document: Arc<JsonDocument>,
    /// The location of the list in the document.
    pub(super) node_id: NodeId,
    /// The errors that the service reported, and its status.
    pub(super) reported_errors: Vec<JsonValue>,
    pub(super) status: StatusCode,
}

/// A key by which a list is fetched.
pub(super) struct ListKey<'a> {
    pub(super) node: JsonNode<'a>,
    text: Cow<'a, str>,
}

impl<'a> KeyedFetch<'a> {
    /// Fetches the complete list.
    pub(super) async fn fetch_whole(&self, call: &BoundCall, joined: &ItemMatch) -> FetchedValues {
        let list = self.fetch_list(call, joined, &[]).await;
        offload::move_if_long(work::RESULT * self.keys.len()).await;
        match list {
            Ok(_) if self.keys.values.is_empty() => FetchedValues::default(),
            Ok(list) => self.join_lists(call, joined, vec![Ok(list)], &[]).await,
            Err(reason) => self.failed_fetch(reason),
        }
    }

    /// Fetches the items that belong to the keys.
    pub(super) async fn fetch_by_ids(&self, call: &BoundCall, joined: &ItemMatch) -> FetchedValues {
        let Some(nodes) = list_key_field(call).and_then(|field| self.keys.column(field)) else {
            return self.failed_fetch(CallFailureReason::NoValue(joined.key.clone()));
        };
        let (mut ids, mut seen) = (Vec::with_capacity(self.keys.len()), HashSet::new());
        for node in nodes.flat_map(key_nodes) {
            let Some(text) = node.scalar_text() else {
                return self
                    .failed_fetch(CallFailureReason::WrongKind(joined.key.clone(), node.kind().name()));
            };
            if seen.insert(text.clone()) {
                ids.push(ListKey { node, text });
            }
        }
        let (lengths, between, room) = match call {
            BoundCall::Rest(operation) => self.url_room(operation, &ids),
            BoundCall::Field { .. } => (vec![0; ids.len()], 0, 0),
        };
        let parts = split_into_groups(&lengths, between, joined.batch.unwrap_or(MAX_KEYS), room);
        if let Err(reason) = self.check_calls(parts.len()) {
            return self.failed_fetch(reason);
        }
        let parts: Vec<&[ListKey<'_>]> = parts.into_iter().filter_map(|part| ids.get(part)).collect();
        let lists = parts.iter().map(|part| self.fetch_list(call, joined, part).boxed()).collect();
        let lists = join_bounded(lists, self.context.limits.concurrency).await;
        self.join_lists(call, joined, lists, &parts).await
    }

    /// Returns the lengths of the keys in a URL, the number of bytes between two of them, and the number of
    /// bytes available for all.
    fn url_room(&self, operation: &RestOperation, ids: &[ListKey<'_>]) -> (Vec<usize>, usize, usize) {
        let lengths = ids.iter().map(|id| percent_encode(&id.text).len()).collect();
        let is_list = |from: &ParameterSource| matches!(from, ParameterSource::Key(_));
        let list = operation.parameters.iter().find(|parameter| is_list(&parameter.source));
        let between =
            list.filter(|list| list.is_repeated).map_or(1, |list| percent_encode(&list.name).len() + 2);
        let key = RequestKey::Many(&[Cow::Borrowed("0")]);
        let request = RestRequestRenderer { operation, arguments: self.arguments, key }.build_request();
        let used = request.map_or(0, |request| request.path_and_query.as_str().len());
        (lengths, between, MAX_URL_BYTES.saturating_sub(used))
    }

    /// Fetches a list by these keys, or completely.
    async fn fetch_list(
        &self,
        call: &BoundCall,
        joined: &ItemMatch,
        ids: &[ListKey<'_>],
    ) -> Result<FetchedList, CallFailureReason> {
        let operation = match call {
            BoundCall::Rest(operation) => operation,
            BoundCall::Field { name, arguments } => {
                return self.fetch_field_list(name, arguments, joined, ids).await;
            }
        };
        let id = |id: &ListKey<'_>| work::JOIN_BY_KEY + id.text.len();
        let ids_work: usize = ids.iter().map(id).sum();
        offload::move_if_long(work::estimate_text(self.arguments.text()) + ids_work).await;
        let texts: Vec<Cow<'_, str>> = ids.iter().map(|id| id.text.clone()).collect();
        let request =
            RestRequestRenderer { operation, arguments: self.arguments, key: RequestKey::Many(&texts) }
                .build_request()?;
        let value = rest::fetch_value(self.context, self.service, operation, request).await?;
        let RestValue { document, node_id: spot } = match value {
            Some(value) => value,
            None => rest::from_json_text("[]".into())?,
        };
        Ok(FetchedList { document, node_id: spot, reported_errors: Vec::new(), status: StatusCode::OK })
    }

    /// Joins the objects with their items in the fetched lists. `parts` contains the keys of each list's
    /// call.
    async fn join_lists(
        &self,
        call: &BoundCall,
        joined: &ItemMatch,
        lists: Vec<Result<FetchedList, CallFailureReason>>,
        parts: &[&[ListKey<'_>]],
    ) -> FetchedValues {
        let known = lists.iter().flatten();
        let items: usize =
            known.filter_map(|list| list.document.node_by_id(list.node_id)).map(JsonNode::count).sum();
        offload::move_if_long(work::JOIN_BY_KEY * (items + self.keys.len())).await;
        let Some(column) = self.keys.column(&joined.key) else {
            return self.failed_fetch(CallFailureReason::NoValue(joined.key.clone()));
        };
        let (mut fetched, mut arrays, mut failed) = (FetchedValues::default(), Vec::new(), HashMap::new());
        let mut told = Vec::new();
        for (number, list) in lists.into_iter().enumerate() {
            let list =
                list.and_then(|list| match list.document.node_by_id(list.node_id).map(JsonNode::kind) {
                    Some(ValueKind::Array | ValueKind::Null) => Ok(list),
                    kind => Err(CallFailureReason::NotList(kind.map_or("nothing", ValueKind::name))),
                });
            match list {
                Ok(list) => {
                    told.push((list.reported_errors, list.status));
                    fetched.documents.push(list.document);
                    arrays.push(list.node_id);
                }
                Err(reason) => {
                    let Some(part) = parts.get(number) else { return self.failed_fetch(reason) };
                    failed.extend(part.iter().map(|id| (&*id.text, fetched.errors.len() as u32)));
                    fetched.errors.push(self.source_error(reason));
                }
            }
        }
        let item = match call {
            BoundCall::Rest(_) => &*joined.item,
            BoundCall::Field { .. } => keyed_field::ITEM_KEY,
        };
        let FetchedValues { documents, outcomes: found, errors, item_errors: items } = &mut fetched;
        let lists: Vec<JsonNode<'_>> =
            documents.iter().zip(arrays).filter_map(|(document, spot)| document.node_by_id(spot)).collect();
        let first = errors.len() as u32;
        let mut join =
            KeyJoin { item_match: joined, failed_keys: failed, errors: Vec::new(), first_error: first };
        *found = join.find_items(&lists, item, column);
        errors.extend(join.errors.into_iter().map(|reason| self.source_error(reason)));
        for (document, (list, (told, status))) in lists.iter().zip(told).enumerate() {
            if !told.is_empty() {
                let (sorted, locations) = keyed_field::group_item_errors(told, *list, document as u32, found);
                items.extend(locations.into_iter().zip(errors.len() as u32..));
                errors.extend(sorted.into_errors(self.service.name(), status));
            }
        }
        fetched
    }
}

/// Returns the key field by which a list is fetched.
fn list_key_field(call: &BoundCall) -> Option<&str> {
    let mut sources: Box<dyn Iterator<Item = &ParameterSource>> = match call {
        BoundCall::Rest(operation) => {
            Box::new(operation.parameters.iter().map(|parameter| &parameter.source))
        }
        BoundCall::Field { arguments, .. } => Box::new(arguments.iter().map(|(_, _, from)| from)),
    };
    sources.find_map(|from| if let ParameterSource::Key(field) = from { Some(&**field) } else { None })
}

/// Returns the keys in a value: the value itself, or the items of a list; `null` is not a key.
pub(super) fn key_nodes(node: JsonNode<'_>) -> impl Iterator<Item = JsonNode<'_>> {
    let itself = (node.kind() != ValueKind::Array).then_some(node);
    itself.into_iter().chain(node.items()).filter(|node| node.kind() != ValueKind::Null)
}
