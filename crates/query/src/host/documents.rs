//! The JSON documents of a run: parsed on first use, stored by the handles of their responses.

use bytes::Bytes;
use json::{JsonDocument, JsonNode, ValueKind};
use offload::SHORT_TEXT;
use query_abi::AbiCode;
use sandbox::{GuestResult, Trapped};

use super::futures::HandleState;
use super::guest::QueryGuest;
use super::steps::PartOutcome;
use super::values::LongScalar;
use crate::limits::LimitKind;
use crate::problem::QueryError;
use crate::record::abi_code;

/// The longest scalar that is read with others, in bytes. Escapes take a hundredth of a microsecond per byte.
const SHORT_SCALAR: usize = 32 << 10;
/// The longest response that is indexed at once, in bytes. A longer one, up to [`SHORT_TEXT`], is indexed in
/// the next part of the call, since the guest may have run for a millisecond before.
const SHORT_INDEX: usize = 64 << 10;

/// The documents of a run, or the errors of parsing them.
#[derive(Debug, Default)]
pub(crate) struct RunDocuments {
    entries: Vec<(i32, Result<JsonDocument, json::JsonError>)>,
    /// The most recently read long scalar. Programs ask for a scalar twice: first for its length, then for
    /// its text.
    scalar: Option<(ScalarPlace, LongScalar)>,
    /// The handle whose response is indexed in the next part of a call.
    pending_index: Option<i32>,
}

/// The position of a scalar: the handle of its response, and the offset in the document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ScalarPlace {
    handle: i32,
    start: usize,
}

/// A document with its handle and the cached scalar.
pub(super) struct OpenDocument<'a> {
    pub(super) document: &'a JsonDocument,
    handle: i32,
    scalar: Option<&'a (ScalarPlace, LongScalar)>,
}

/// A value of a document. Long scalars may not be available yet.
pub(super) enum DocumentValue<'a> {
    Short(JsonNode<'a>),
    Long(&'a LongScalar),
    /// Has to be read in the pool first.
    Unread(ScalarPlace),
}

/// The reason why a response has no document.
pub(super) enum NoDocument {
    /// An error code, and the position in the body.
    Failed { code: AbiCode, position: usize },
    /// Indexed in the next part of the call.
    IndexPending,
}

/// The result of resolving a JSON Pointer.
pub(super) type PointerResult = Result<Option<Bytes>, json::JsonError>;

/// Resolves a JSON Pointer.
pub(super) fn pointer_value(document: &JsonDocument, pointer: &str) -> PointerResult {
    document.root().pointer(pointer).map(|node| node.map(JsonNode::slice))
}

impl RunDocuments {
    /// Returns the document of a handle. Searches from the end: there are few documents, and usually the last
    /// one is used.
    fn get(&self, handle: i32) -> Option<&Result<JsonDocument, json::JsonError>> {
        self.entries.iter().rev().find(|(known, _)| *known == handle).map(|(_, document)| document)
    }

    fn insert(&mut self, handle: i32, document: Result<JsonDocument, json::JsonError>) {
        self.entries.push((handle, document));
    }

    /// Removes and returns a document.
    fn take(&mut self, handle: i32) -> Option<Result<JsonDocument, json::JsonError>> {
        let place = self.entries.iter().position(|(known, _)| *known == handle)?;
        Some(self.entries.swap_remove(place).1)
    }

    /// Deletes a document. Returns the bytes that it used in addition to its text.
    pub(crate) fn delete(&mut self, handle: i32) -> usize {
        let index = self.take(handle).and_then(Result::ok).map_or(0, |document| document.index_bytes());
        index + self.drop_scalar(|place| place.handle == handle)
    }

    /// Drops the cached long scalar if it matches. Returns the bytes that it used.
    fn drop_scalar(&mut self, is_it: impl FnOnce(&ScalarPlace) -> bool) -> usize {
        let scalar = self.scalar.take_if(|(place, _)| is_it(place));
        scalar.map_or(0, |(_, scalar)| scalar.held_bytes())
    }
}

impl<'a> OpenDocument<'a> {
    /// Returns a value. Only the index of arrays and objects is used, not their contents.
    pub(super) fn read_value(&self, node: JsonNode<'a>) -> DocumentValue<'a> {
        let is_container = matches!(node.kind(), ValueKind::Array | ValueKind::Object);
        let is_short = self.document.text().len() <= SHORT_SCALAR;
        if is_short || is_container || !node.is_longer_than(SHORT_SCALAR) {
            return DocumentValue::Short(node);
        }
        let place = ScalarPlace { handle: self.handle, start: node.start() };
        match self.scalar.filter(|(read, _)| *read == place) {
            Some((_, scalar)) => DocumentValue::Long(scalar),
            None => DocumentValue::Unread(place),
        }
    }
}

impl NoDocument {
    /// Returns the next step of a call that needs the document.
    pub(super) fn next_step(self) -> PartOutcome<i32> {
        match self {
            Self::Failed { code, .. } => PartOutcome::Done(code as i32),
            Self::IndexPending => PartOutcome::Yield,
        }
    }
}

impl From<AbiCode> for NoDocument {
    fn from(code: AbiCode) -> Self {
        Self::Failed { code, position: 0 }
    }
}

impl From<json::JsonError> for NoDocument {
    fn from(error: json::JsonError) -> Self {
        match error {
            json::JsonError::TooDeep(place) => Self::Failed { code: AbiCode::TooDeep, position: place },
            json::JsonError::NotJson(place) => Self::Failed { code: AbiCode::NotJson, position: place },
            json::JsonError::TooLong | json::JsonError::IndexTooLarge(_) | json::JsonError::NotPointer => {
                AbiCode::Invalid.into()
            }
        }
    }
}

impl QueryGuest {
    /// Parses a long response before its first use. The pool does this work, so that the thread can serve
    /// other requests meanwhile.
    pub(super) async fn index_document(&mut self, handle: i32) -> Result<(), QueryError> {
        let Some(HandleState::Ended(Ok(response))) = self.futures.get(handle) else { return Ok(()) };
        if response.body.len() <= SHORT_TEXT || self.documents.get(handle).is_some() {
            return Ok(());
        }
        let (text, most) = (response.body.clone(), self.remaining_memory());
        let index =
            move || JsonDocument::with_memory_limit(text, most).inspect(JsonDocument::build_lookup_table);
        let document = self.run_in_pool("json-index", response.body.len(), index).await?;
        self.store_document(handle, document)
    }

    /// Resolves a JSON Pointer in a long document, in the pool. Returns `None` if the document is short or
    /// missing.
    pub(super) async fn resolve_pointer(
        &mut self,
        handle: i32,
        pointer: String,
    ) -> Result<Option<PointerResult>, QueryError> {
        let Some(Ok(document)) = self.documents.get(handle) else { return Ok(None) };
        let bytes = document.text().len();
        if bytes <= SHORT_TEXT {
            return Ok(None);
        }
        let Some(Ok(document)) = self.documents.take(handle) else { return Ok(None) };
        let work = move || {
            let found = pointer_value(&document, &pointer);
            (document, found)
        };
        let (document, found) = self.run_in_pool("json-pointer", bytes, work).await?;
        self.documents.insert(handle, Ok(document));
        Ok(Some(found))
    }

    /// Reads a long scalar in the pool. It counts towards the run's memory until another one is read.
    pub(super) async fn read_scalar(&mut self, place: ScalarPlace) -> Result<(), QueryError> {
        let forgotten = self.documents.drop_scalar(|_| true);
        self.release_memory(forgotten);
        let Some(Ok(document)) = self.documents.get(place.handle) else { return Ok(()) };
        let Some(node) = document.node_at(place.start) else { return Ok(()) };
        let text = node.slice_with_whitespace();
        self.hold_memory(LongScalar::max_bytes(&text))?;
        let read = move |text| LongScalar::read(text, place.start);
        let scalar = self.run_in_pool("json-scalar", text.len(), move || read(text)).await?;
        self.documents.scalar = Some((place, scalar));
        Ok(())
    }

    /// Runs work on a text; on a long one in the pool, without the run permit.
    pub(super) async fn run_in_pool<T: Send + 'static>(
        &mut self,
        kind: &'static str,
        bytes: usize,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, QueryError> {
        if bytes > SHORT_TEXT {
            self.release_run_permit();
        }
        let done = services::process_text(&self.offload, kind, &self.call, bytes, work);
        done.await.map_err(|error| {
            self.run_ending_error(&error)
                .unwrap_or_else(|| self.limits.exceeded_error(LimitKind::Deadline).into())
        })
    }

    /// Stores the document of a response and counts its memory.
    fn store_document(
        &mut self,
        handle: i32,
        document: Result<JsonDocument, json::JsonError>,
    ) -> Result<(), QueryError> {
        match &document {
            Ok(document) => self.hold_memory(document.index_bytes())?,
            Err(json::JsonError::IndexTooLarge(_)) => {
                return Err(self.limits.exceeded_error(LimitKind::Memory).into());
            }
            Err(_) => {}
        }
        self.documents.insert(handle, document);
        Ok(())
    }

    /// Returns the document of a response, parsed on first use, which may take another part of the call. A
    /// long response has to be parsed by [`QueryGuest::index_document`] first.
    pub(super) fn document(
        &mut self,
        function: &'static str,
        handle: i32,
    ) -> GuestResult<Result<OpenDocument<'_>, NoDocument>> {
        if self.documents.get(handle).is_none() {
            let body = match self.updated_slot(function, handle).map_err(Trapped::new)? {
                HandleState::Ended(Ok(response)) => response.body.clone(),
                HandleState::Ended(Err(error)) => return Ok(Err(abi_code(error).into())),
                _ => return Ok(Err(AbiCode::NotReady.into())),
            };
            if body.len() > SHORT_TEXT {
                return Ok(Err(AbiCode::NotReady.into()));
            }
            if body.len() > SHORT_INDEX && self.documents.pending_index.replace(handle) != Some(handle) {
                return Ok(Err(NoDocument::IndexPending));
            }
            let document = JsonDocument::with_memory_limit(body, self.remaining_memory());
            self.store_document(handle, document).map_err(Trapped::new)?;
        }
        Ok(match self.documents.get(handle) {
            Some(Ok(document)) => {
                Ok(OpenDocument { document, handle, scalar: self.documents.scalar.as_ref() })
            }
            Some(Err(error)) => Err((*error).into()),
            None => Err(AbiCode::Invalid.into()),
        })
    }
}
