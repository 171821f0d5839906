//! GraphQL over HTTP: the parsing of requests and the creation of responses.
//!
//! `ask.rs` parses GET and POST requests by the GraphQL-over-HTTP specification. `persisted.rs` and
//! `listed.rs` store documents that clients refer to by hash or name. `media.rs` selects the media type of
//! the response, and `answer.rs` creates it. `problem.rs` and `refusal.rs` contain the errors that can occur
//! before a document is processed. `page.rs` serves GraphiQL.

mod answer;
mod ask;
mod listed;
mod media;
mod page;
mod persisted;
mod problem;
mod refusal;

pub(crate) use answer::{errors, not_kept, response};
pub(crate) use ask::{DocumentHash, GraphqlRequest, RequestParseError};
pub use listed::DocumentFile;
pub(crate) use listed::{StoredDocuments, hash};
pub(crate) use media::{ResponseMediaType, asks_for_page};
pub(crate) use page::page;
pub(crate) use persisted::{DocumentOwner, PersistedDocuments};
pub(crate) use problem::{HttpError, METHODS};
pub(crate) use refusal::{GraphqlRefusal, status_of_document};
