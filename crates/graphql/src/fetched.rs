//! What calls brought: documents, and the places in them where the values of the targets stand.
//!
//! Nothing is copied or built: `execute/` reads what it needs at those places, when the answer is written.

use std::collections::HashMap;
use std::sync::Arc;

use json::{Document, Spot};

/// What one step brought for its targets.
#[derive(Debug, Default)]
pub struct Fetched {
    /// The answers, each checked JSON.
    pub documents: Vec<Arc<Document>>,
    /// What each target got, in the order of the targets. A root step has one target.
    pub found: Vec<Found>,
    /// What went wrong, for [`Found::Failed`].
    pub errors: Vec<SourceError>,
    /// Items of lists with which the service says that something is wrong, wherever they were joined: indexes into the errors.
    pub items: HashMap<Place, u32>,
}

/// What a target got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// There is none: `null`.
    Nothing,
    /// A value.
    One(Place),
    /// A list of values that were joined.
    Many(Vec<Place>),
    /// A value and what the service says is wrong with it: an index into the errors.
    Partial(Place, u32),
    /// An error: an index into the errors.
    Failed(u32),
}

/// Where a value stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Place {
    /// Which of the documents.
    pub document: u32,
    /// Where in the document.
    pub spot: Spot,
}

/// Why a call brought nothing: what an entry of `errors` says.
#[derive(Clone, Debug)]
pub struct SourceError {
    /// In plain words.
    pub message: String,
    /// The stable code (`extensions.code`), of docs/errors.md.
    pub code: &'static str,
    /// The service that was asked.
    pub service: Arc<str>,
    /// The status that it answered with, if it did.
    pub status: Option<u16>,
    /// Errors of a GraphQL service, as it told them, with their paths below the target.
    pub told: Vec<serde_json::Value>,
}

impl Found {
    /// Where its values stand.
    pub(crate) fn places(&self) -> &[Place] {
        match self {
            Self::One(place) | Self::Partial(place, _) => std::slice::from_ref(place),
            Self::Many(places) => places,
            Self::Nothing | Self::Failed(_) => &[],
        }
    }
}

impl Fetched {
    /// Nothing but an error, for all of so many targets.
    pub(crate) fn failed(targets: usize, error: SourceError) -> Self {
        Self { found: vec![Found::Failed(0); targets], errors: vec![error], ..Self::default() }
    }
}
