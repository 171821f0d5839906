//! Requests that are valid GraphQL over HTTP but are refused before their document is processed. They are
//! reported in GraphQL's error format.

use std::borrow::Cow;

use http::StatusCode;
use serde_json::json;

use super::media_type::ResponseMediaType;

/// The reason for refusing a request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum GraphqlRefusal {
    #[error("the {place} is not JSON: {error}")]
    Json { place: &'static str, error: json::JsonError },
    #[error("several operations in one request are not answered: send a request for each")]
    Batch,
    #[error("the body is {0}, and has to be an object with `query`")]
    NotObject(&'static str),
    #[error("`{name}` has to be {must}, and is {is}")]
    Parameter { name: &'static str, must: &'static str, is: &'static str },
    #[error("`{0}` is given twice")]
    DuplicateParameter(Cow<'static, str>),
    #[error("there is no `query`")]
    MissingQuery,
    #[error("the hash is not a hexadecimal SHA-256")]
    Hash,
    #[error("the hash of the document differs from the hash that was sent with it")]
    Mismatch,
    // Clients of Apollo's protocol recognise exactly these messages.
    #[error("PersistedQueryNotFound")]
    NotFound,
    #[error("PersistedQueryNotSupported")]
    NotSupported,
    #[error("there is no document with the ID `{0}`")]
    UnknownDocument(String),
    #[error("only documents that the operator has listed are executed")]
    NotListed,
    #[error("introspection is not allowed for this caller")]
    Introspection,
}

impl GraphqlRefusal {
    pub(crate) fn code(&self) -> &'static str {
        match self {
            Self::Json { .. } => "graphql-json",
            Self::Batch => "graphql-batch",
            Self::NotObject(_)
            | Self::Parameter { .. }
            | Self::DuplicateParameter(_)
            | Self::MissingQuery => "graphql-parameter",
            Self::Hash | Self::Mismatch => "persisted-mismatch",
            Self::NotFound => "persisted-not-found",
            Self::NotSupported => "persisted-off",
            Self::UnknownDocument(_) => "document-unknown",
            Self::NotListed => "document-not-listed",
            Self::Introspection => "introspection-off",
        }
    }

    /// The status of the response. Apollo's protocol uses 200 for unknown documents, because clients then
    /// send the document.
    pub(crate) fn status(&self, media: ResponseMediaType) -> StatusCode {
        match self {
            Self::NotFound | Self::NotSupported => StatusCode::OK,
            Self::NotListed | Self::Introspection => StatusCode::FORBIDDEN,
            Self::UnknownDocument(_) => invalid_document_status(media),
            _ => StatusCode::BAD_REQUEST,
        }
    }

    pub(crate) fn to_json(&self) -> serde_json::Value {
        json!({ "message": self.to_string(), "extensions": { "code": self.code() } })
    }
}

/// The status for an invalid document that was not executed. Only one of the media types has its own.
pub(crate) fn invalid_document_status(media: ResponseMediaType) -> StatusCode {
    match media {
        ResponseMediaType::Response => StatusCode::BAD_REQUEST,
        ResponseMediaType::Json => StatusCode::OK,
    }
}
