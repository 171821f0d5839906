//! What is GraphQL over HTTP and refused before its document is looked at: told as GraphQL tells errors.

use std::borrow::Cow;

use http::StatusCode;
use serde_json::json;

use super::media::Media;

/// Why nothing is planned.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("the {place} is not JSON: {error}")]
    Json { place: &'static str, error: json::Error },
    #[error("several operations in one request are not answered: send a request for each")]
    Batch,
    #[error("the body is {0}, and has to be an object with `query`")]
    NotObject(&'static str),
    #[error("`{name}` has to be {must}, and is {is}")]
    Parameter { name: &'static str, must: &'static str, is: &'static str },
    #[error("`{0}` stands there twice")]
    Twice(Cow<'static, str>),
    #[error("there is no `query`")]
    NoQuery,
    #[error("the hash is no SHA-256 in hexadecimal")]
    Hash,
    #[error("the document's hash is another than the one that came with it")]
    Mismatch,
    // Clients of Apollo's protocol look for these very words.
    #[error("PersistedQueryNotFound")]
    NotFound,
    #[error("PersistedQueryNotSupported")]
    NotSupported,
    #[error("no document is known as `{0}`")]
    Unknown(String),
    #[error("only documents that the operator has listed are answered")]
    NotListed,
    #[error("the schema is not told to this caller")]
    Introspection,
}

impl Refusal {
    pub(crate) fn code(&self) -> &'static str {
        match self {
            Self::Json { .. } => "graphql-json",
            Self::Batch => "graphql-batch",
            Self::NotObject(_) | Self::Parameter { .. } | Self::Twice(_) | Self::NoQuery => {
                "graphql-parameter"
            }
            Self::Hash | Self::Mismatch => "persisted-mismatch",
            Self::NotFound => "persisted-not-found",
            Self::NotSupported => "persisted-off",
            Self::Unknown(_) => "document-unknown",
            Self::NotListed => "document-not-listed",
            Self::Introspection => "introspection-off",
        }
    }

    /// The status of the answer. Apollo's protocol has 200 where a document is not known yet, since its clients send it
    /// then.
    pub(crate) fn status(&self, media: Media) -> StatusCode {
        match self {
            Self::NotFound | Self::NotSupported => StatusCode::OK,
            Self::NotListed | Self::Introspection => StatusCode::FORBIDDEN,
            Self::Unknown(_) => status_of_document(media),
            _ => StatusCode::BAD_REQUEST,
        }
    }

    pub(crate) fn error(&self) -> serde_json::Value {
        json!({ "message": self.to_string(), "extensions": { "code": self.code() } })
    }
}

/// The status where a document is wrong, and nothing was executed: only one of the media types has its own.
pub(crate) fn status_of_document(media: Media) -> StatusCode {
    match media {
        Media::Response => StatusCode::BAD_REQUEST,
        Media::Json => StatusCode::OK,
    }
}
