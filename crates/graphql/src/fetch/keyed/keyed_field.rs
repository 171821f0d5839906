//! Fetches by key from GraphQL services: fields of `Query`, with the keys as variables.

use std::collections::HashSet;

use futures_util::FutureExt;
use json::{JsonNode, ValueKind};
use offload::work;
use serde_json::Value as JsonValue;
use services::calls::split_into_groups;
use tokio::sync::SemaphorePermit;

use super::keyed_lists::{FetchedList, ListKey};
use super::{KeyedFetch, has_key, join_bounded};
use crate::fetch::call_failure::CallFailureReason;
use crate::fetch::outcome::{FetchOutcome, FetchedValues, ValueLocation};
use crate::fetch::remote::{
    self, EncodedDocument, GraphqlServiceResponse, SortedErrors, write_list, write_name, write_variables,
};
use crate::subgraph::{ItemMatch, ParameterSource};

/// The response key of an item's own key.
pub(super) const ITEM_KEY: &str = "orfa_key";
/// The response key of the list.
const LIST_KEY: &str = "orfa_list";
/// The maximum number of objects per document.
const MAX_FIELDS: usize = 50;
/// The maximum length of a document in bytes, unless it is for a single object: that of a client's document.
const MAX_DOCUMENT_BYTES: usize = 256 << 10;

/// The arguments of a field: name, type, and origin of the value.
type FieldArguments = [(Box<str>, Box<str>, ParameterSource)];

/// A document under construction: its declarations, fields and variables.
#[derive(Default)]
struct DocumentDraft {
    declarations: String,
    fields: String,
    variables: Vec<u8>,
}

impl KeyedFetch<'_> {
    /// Fetches a list by these keys, or completely.
    pub(super) async fn fetch_field_list(
        &self,
        name: &str,
        filled: &FieldArguments,
        joined: &ItemMatch,
        ids: &[ListKey<'_>],
    ) -> Result<FetchedList, CallFailureReason> {
        let id_bytes: usize = ids.iter().map(|id| 1 + id.node.text().len()).sum();
        let _permit = self.begin_document(1, self.field_bytes(&[]) + id_bytes).await;
        let mut draft = self.new_draft();
        let wanted = format!("{ITEM_KEY}:{} {}", joined.item, self.selection.text);
        draft.add_field((LIST_KEY, name, &wanted), "", filled, |from, out| match from {
            ParameterSource::Key(_) => {
                write_list(out, ids.iter().map(|id| id.node.text()));
                true
            }
            from => self.write_argument(from, &[], out),
        });
        let GraphqlServiceResponse { document, data, reported_errors: told, status } =
            self.send_document(draft).await?;
        let list = data.and_then(|spot| document.node_by_id(spot)?.member(LIST_KEY.as_bytes()));
        match list.filter(|list| list.kind() == ValueKind::Array).map(JsonNode::node_id) {
            Some(spot) => Ok(FetchedList { document, node_id: spot, reported_errors: told, status }),
            None if told.is_empty() => {
                Err(CallFailureReason::NotList(list.map_or("nothing", |list| list.kind().name())))
            }
            None => Err(CallFailureReason::ReportedErrors(told, status)),
        }
    }

    /// Fetches each object that has a key by a field of its own. Several fields share a document.
    pub(super) async fn fetch_each_field(&self, name: &str, filled: &FieldArguments) -> FetchedValues {
        let rows: Vec<usize> =
            (0..self.keys.len()).filter(|number| has_key(self.keys.row(*number))).collect();
        let lengths: Vec<usize> = rows.iter().map(|row| self.field_bytes(self.keys.row(*row))).collect();
        let parts = split_into_groups(&lengths, 0, MAX_FIELDS, MAX_DOCUMENT_BYTES);
        if let Err(reason) = self.check_calls(parts.len()) {
            return self.failed_fetch(reason);
        }
        let parts: Vec<&[usize]> = parts.into_iter().filter_map(|part| rows.get(part)).collect();
        let calls = parts.iter().map(|part| self.fetch_field_batch(name, filled, part).boxed()).collect();
        let responses = join_bounded(calls, self.context.limits.concurrency).await;
        let mut fetched =
            FetchedValues { outcomes: vec![FetchOutcome::Null; self.keys.len()], ..FetchedValues::default() };
        for (part, response) in parts.into_iter().zip(responses) {
            match response {
                Ok(response) => {
                    offload::move_if_long(work::FIELD * part.len()).await;
                    self.store_results(part, response, &mut fetched);
                }
                Err(reason) => {
                    let error = fetched.errors.len() as u32;
                    fetched.errors.push(self.source_error(reason));
                    part.iter().for_each(|row| set_outcome(&mut fetched, *row, FetchOutcome::Failed(error)));
                }
            }
        }
        fetched
    }

    async fn fetch_field_batch(
        &self,
        name: &str,
        filled: &FieldArguments,
        rows: &[usize],
    ) -> Result<GraphqlServiceResponse, CallFailureReason> {
        let bytes = rows.iter().map(|row| self.field_bytes(self.keys.row(*row))).sum();
        let _permit = self.begin_document(rows.len(), bytes).await;
        let mut draft = self.new_draft();
        for (place, row) in rows.iter().enumerate() {
            let (alias, suffix) = (field_alias(place), format!("_{place}"));
            let row = self.keys.row(*row);
            let field = (&*alias, name, self.selection.text);
            draft.add_field(field, &suffix, filled, |from, out| self.write_argument(from, row, out));
        }
        self.send_document(draft).await
    }

    /// Stores the results and errors for these objects.
    fn store_results(&self, rows: &[usize], response: GraphqlServiceResponse, fetched: &mut FetchedValues) {
        let GraphqlServiceResponse { document, data, reported_errors: told, status } = response;
        let mut sorted = SortedErrors::new(told, |path| {
            let [JsonValue::String(alias), rest @ ..] = path else { return None };
            let place: usize = alias.strip_prefix('f')?.parse().ok()?;
            (place < rows.len()).then_some((place, rest))
        });
        let data = data.and_then(|node_id| document.node_by_id(node_id));
        let (number, first) = (fetched.documents.len() as u32, fetched.errors.len() as u32);
        for (place, row) in rows.iter().enumerate() {
            let node = data.and_then(|data| data.member(field_alias(place).as_bytes()));
            let outcome = match sorted.target_outcome(place, node, number) {
                FetchOutcome::Partial(place, error) => FetchOutcome::Partial(place, first + error),
                FetchOutcome::Failed(error) => FetchOutcome::Failed(first + error),
                found => found,
            };
            set_outcome(fetched, *row, outcome);
        }
        fetched.errors.extend(sorted.into_errors(self.service.name(), status));
        fetched.documents.push(document);
    }

    /// Returns the length of a field in a document, with its arguments and the key of its object, and without
    /// its names.
    fn field_bytes(&self, row: &[JsonNode<'_>]) -> usize {
        let keys: usize = row.iter().map(|node| node.text().len()).sum();
        self.selection.text.len() + self.arguments.text().len() + keys
    }

    /// Waits until a document with this number of fields, of this total length, may be composed. Announces
    /// this work, which is done next. The permit is kept as long as the document.
    async fn begin_document(&self, fields: usize, bytes: usize) -> Option<SemaphorePermit<'_>> {
        let variables: usize = self.selection.variables.iter().map(|(_, value)| value.len()).sum();
        let permit = self.context.keyed_permit(variables + bytes).await;
        offload::move_if_long(work::FIELD * fields + (variables + bytes) / 2).await;
        permit
    }

    fn new_draft(&self) -> DocumentDraft {
        let mut draft = DocumentDraft {
            declarations: self.selection.declarations.to_owned(),
            ..DocumentDraft::default()
        };
        write_variables(&mut draft.variables, self.selection.variables);
        draft
    }

    async fn send_document(&self, draft: DocumentDraft) -> Result<GraphqlServiceResponse, CallFailureReason> {
        let DocumentDraft { declarations: declares, fields, variables } = draft;
        let declared = if declares.is_empty() { String::new() } else { format!("({declares})") };
        let query = EncodedDocument::new(&format!("query{declared}{{{fields}}}"));
        let body = remote::build_body(&query, |out| out.extend_from_slice(&variables));
        remote::send_document(self.context, self.endpoint, body, true).await
    }

    /// Writes a value followed by a comma; returns `false` if there is no value.
    fn write_argument(&self, from: &ParameterSource, row: &[JsonNode<'_>], out: &mut Vec<u8>) -> bool {
        let node = match from {
            ParameterSource::Fixed(value) => {
                out.extend_from_slice(value.to_string().as_bytes());
                out.push(b',');
                return true;
            }
            ParameterSource::Argument(name) => self.arguments.get(name),
            ParameterSource::Key(name) => {
                let place = self.keys.fields.iter().position(|field| field == name);
                place.and_then(|place| row.get(place).copied())
            }
        };
        let Some(node) = node else { return false };
        out.extend_from_slice(node.text());
        out.push(b',');
        true
    }
}

/// Groups the errors of a list's response. Errors of items that were joined belong to these items, whose
/// locations are returned in the same order. All others concern the list as a whole.
pub(super) fn group_item_errors(
    values: Vec<JsonValue>,
    list: JsonNode<'_>,
    document: u32,
    outcomes: &[FetchOutcome],
) -> (SortedErrors, Vec<ValueLocation>) {
    let value_locations: HashSet<ValueLocation> =
        outcomes.iter().flat_map(FetchOutcome::locations).copied().collect();
    let place = |item: JsonNode<'_>| ValueLocation { document, node_id: item.node_id() };
    let places: Vec<ValueLocation> = list.items().map(place).collect();
    let sorted = SortedErrors::new(values, |path| {
        let [JsonValue::String(alias), JsonValue::Number(item), rest @ ..] = path else { return None };
        let item = usize::try_from(item.as_u64()?).ok()?;
        (alias == LIST_KEY && value_locations.contains(places.get(item)?)).then_some((item, rest))
    });
    let places = sorted.targets().filter_map(|item| places.get(item).copied()).collect();
    (sorted, places)
}

impl DocumentDraft {
    /// Adds a field with its alias, name and selection. Its variables are named after the arguments, with a
    /// suffix.
    fn add_field(
        &mut self,
        (alias, name, wanted): (&str, &str, &str),
        suffix: &str,
        filled: &FieldArguments,
        mut write: impl FnMut(&ParameterSource, &mut Vec<u8>) -> bool,
    ) {
        self.fields.extend([alias, ":", name]);
        let mut before = "(";
        for (argument, kind, from) in filled {
            let variable = format!("orfa_{argument}{suffix}");
            let length = self.variables.len();
            write_name(&mut self.variables, &variable);
            if !write(from, &mut self.variables) {
                self.variables.truncate(length);
                continue;
            }
            let comma = if self.declarations.is_empty() { "" } else { "," };
            self.declarations.extend([comma, "$", &variable, ":", kind]);
            self.fields.extend([before, argument, ":$", &variable]);
            before = ",";
        }
        if before == "," {
            self.fields.push(')');
        }
        if !wanted.trim().is_empty() {
            self.fields.extend(["{", wanted, "}"]);
        }
        self.fields.push(' ');
    }
}

fn field_alias(place: usize) -> String {
    format!("f{place}")
}

fn set_outcome(fetched: &mut FetchedValues, row: usize, outcome: FetchOutcome) {
    if let Some(fetch_outcome) = fetched.outcomes.get_mut(row) {
        *fetch_outcome = outcome;
    }
}
