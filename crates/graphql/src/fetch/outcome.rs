//! The results of calls: documents, and the locations of the targets' values in them.
//!
//! Values are neither copied nor built. `execute/` reads them at these locations while it writes the
//! response.

use std::collections::HashMap;
use std::sync::Arc;

use json::{JsonDocument, NodeId};

/// The results of a step for its targets.
#[derive(Debug, Default)]
pub struct FetchedValues {
    /// The responses as valid JSON.
    pub documents: Vec<Arc<JsonDocument>>,
    /// The result of each target, in the order of the targets. A root step has one target.
    pub outcomes: Vec<FetchOutcome>,
    /// The errors, for [`FetchOutcome::Failed`].
    pub errors: Vec<SourceError>,
    /// The errors that a service reported for single list items, wherever these were joined: indexes into the
    /// errors.
    pub item_errors: HashMap<ValueLocation, u32>,
}

/// The result of a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FetchOutcome {
    /// The value is `null`.
    Null,
    /// One value.
    One(ValueLocation),
    /// A list of joined values.
    Many(Vec<ValueLocation>),
    /// A value, and the error that the service reported with it: an index into the errors.
    Partial(ValueLocation, u32),
    /// An error: an index into the errors.
    Failed(u32),
}

/// The location of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ValueLocation {
    /// The index of the document.
    pub document: u32,
    /// The location within the document.
    pub node_id: NodeId,
}

/// The error of a call, as reported in an entry of `errors`.
#[derive(Clone, Debug)]
pub struct SourceError {
    /// The message in plain words.
    pub message: String,
    /// The stable code (`extensions.code`), documented in docs/errors.md.
    pub code: &'static str,
    /// The service that was called.
    pub service: Arc<str>,
    /// The status of the service's response, if there was one.
    pub status: Option<u16>,
    /// The errors of a GraphQL service as reported, with paths relative to the target.
    pub reported_errors: Vec<serde_json::Value>,
}

impl FetchOutcome {
    /// Returns the locations of its values.
    pub(crate) fn locations(&self) -> &[ValueLocation] {
        match self {
            Self::One(place) | Self::Partial(place, _) => std::slice::from_ref(place),
            Self::Many(places) => places,
            Self::Null | Self::Failed(_) => &[],
        }
    }
}

impl FetchedValues {
    /// Returns an error for all of this number of targets.
    pub(crate) fn all_failed(targets: usize, error: SourceError) -> Self {
        Self { outcomes: vec![FetchOutcome::Failed(0); targets], errors: vec![error], ..Self::default() }
    }
}
