//! GraphQL over HTTP: the parsing of requests and the creation of responses.
//!
//! `graphql_request.rs` parses GET and POST requests by the GraphQL-over-HTTP specification.
//! `persisted_documents.rs` and `stored_documents.rs` store documents that clients refer to by hash or name.
//! `media_type.rs` selects the media type of the response, and `http_response.rs` creates it. `problem.rs`
//! and `refusal.rs` contain the errors that can occur before a document is processed. `page.rs` serves
//! GraphiQL.

mod graphql_request;
mod http_response;
mod media_type;
mod page;
mod persisted_documents;
mod problem;
mod refusal;
mod stored_documents;

pub(crate) use graphql_request::{DocumentHash, GraphqlRequest, RequestParseError};
pub(crate) use http_response::{build_response, error_response, with_no_store};
pub(crate) use media_type::{ResponseMediaType, accepts_page};
pub(crate) use page::graphiql_page;
pub(crate) use persisted_documents::{DocumentOwner, PersistedDocuments};
pub(crate) use problem::{HttpError, METHODS};
pub(crate) use refusal::{GraphqlRefusal, invalid_document_status};
pub use stored_documents::DocumentFile;
pub(crate) use stored_documents::{StoredDocuments, hash_document};
