//! Errors of requests that are not valid GraphQL over HTTP. They are reported as a problem document, as in
//! all other handlers. Errors of valid GraphQL requests use GraphQL's own format: `refusal.rs`.

use std::time::Duration;

use http::header::{ALLOW, HeaderMap, HeaderValue, RETRY_AFTER};
use http::{Method, StatusCode};
use offload::OffloadError;
use services::{FaultParty, GatewayOverloaded, RequestBodyError, ToProblem};

/// The reason why a request was not accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum HttpError {
    #[error("GraphQL accepts GET, HEAD and POST, but not {0}")]
    Method(Method),
    #[error("a mutation cannot be sent by GET")]
    MutationByGet,
    #[error("the client accepts neither application/graphql-response+json nor application/json")]
    NotAcceptable,
    #[error("the request has no `Content-Type`")]
    ContentTypeMissing,
    #[error("`{0}` is not the content type of a GraphQL request")]
    ContentType(String),
    #[error("the body is in `{0}`, and has to be in UTF-8")]
    Charset(String),
    #[error("the body is encoded as `{0}`")]
    ContentEncoding(String),
    #[error("the request is larger than {0} bytes")]
    Size(u64),
    #[error(transparent)]
    Body(RequestBodyError),
    #[error("there is no schema yet: {0}")]
    NotReady(String),
    #[error("planning the caller's documents exceeds the caller's quota")]
    PlanRate(Duration),
    #[error("the document was not planned in time")]
    PlanTimeout,
    #[error("the gateway is overloaded")]
    Overloaded,
    #[error("the gateway failed to plan the document")]
    PlanFailed,
}

impl From<RequestBodyError> for HttpError {
    fn from(error: RequestBodyError) -> Self {
        match error {
            // As for the query of a URL.
            RequestBodyError::TooLarge(limit) => Self::Size(limit),
            error => Self::Body(error),
        }
    }
}

impl From<OffloadError> for HttpError {
    fn from(error: OffloadError) -> Self {
        match error {
            OffloadError::QuotaExceeded { retry_after } => Self::PlanRate(retry_after),
            OffloadError::QueueFull => Self::Overloaded,
            OffloadError::DeadlineExceeded => Self::PlanTimeout,
            OffloadError::Panicked => Self::PlanFailed,
        }
    }
}

/// The methods that are allowed on a GraphQL route.
pub(crate) const METHODS: &str = "GET, HEAD, POST";

impl ToProblem for HttpError {
    fn code(&self) -> &'static str {
        match self {
            Self::Method(_) | Self::MutationByGet => "method-not-allowed",
            Self::NotAcceptable => "not-acceptable",
            Self::ContentTypeMissing => "content-type-missing",
            Self::ContentType(_) => "content-type-unknown",
            Self::Charset(_) => "charset-unknown",
            Self::ContentEncoding(_) => "content-encoding-unknown",
            Self::Size(_) => "body-too-large",
            Self::Body(error) => error.code(),
            Self::NotReady(_) => "graphql-not-ready",
            Self::PlanRate(_) => "plan-rate",
            Self::PlanTimeout => "plan-timeout",
            Self::Overloaded => GatewayOverloaded.code(),
            Self::PlanFailed => "plan-failed",
        }
    }

    fn status(&self) -> StatusCode {
        match self {
            Self::Method(_) | Self::MutationByGet => StatusCode::METHOD_NOT_ALLOWED,
            Self::NotAcceptable => StatusCode::NOT_ACCEPTABLE,
            Self::ContentTypeMissing => StatusCode::BAD_REQUEST,
            Self::Body(error) => error.status(),
            Self::ContentType(_) | Self::Charset(_) | Self::ContentEncoding(_) => {
                StatusCode::UNSUPPORTED_MEDIA_TYPE
            }
            Self::Size(_) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::NotReady(_) | Self::PlanTimeout => StatusCode::SERVICE_UNAVAILABLE,
            Self::PlanRate(_) => StatusCode::TOO_MANY_REQUESTS,
            Self::Overloaded => GatewayOverloaded.status(),
            Self::PlanFailed => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    fn fault(&self) -> FaultParty {
        match self {
            Self::NotReady(_) | Self::PlanTimeout | Self::Overloaded => FaultParty::Unavailable,
            Self::PlanFailed => FaultParty::Gateway,
            Self::Body(error) => error.fault(),
            _ => FaultParty::Client,
        }
    }

    fn hint(&self) -> String {
        match self {
            Self::Body(error) => return error.hint(),
            Self::MutationByGet => "Send it by POST.",
            Self::ContentTypeMissing | Self::ContentType(_) => {
                "Send JSON: `Content-Type: application/json`, with `{\"query\": \"...\"}`."
            }
            Self::NotAcceptable => "Send `Accept: application/graphql-response+json`.",
            Self::ContentEncoding(_) => "Send the body without an encoding.",
            Self::PlanRate(_) => {
                "Send documents with variables, so that they are the same each time, or ask for less at once."
            }
            Self::PlanTimeout | Self::Overloaded => "Try again later, after a random wait.",
            Self::NotReady(_) => "The gateway asks the services again by itself; try again later.",
            _ => "",
        }
        .to_owned()
    }

    fn headers(&self) -> HeaderMap {
        let header = match self {
            Self::Method(_) => (ALLOW, METHODS),
            Self::MutationByGet => (ALLOW, "POST"),
            Self::NotReady(_) | Self::PlanTimeout | Self::Overloaded => (RETRY_AFTER, "1"),
            Self::PlanRate(after) => {
                let seconds = after.as_secs() + u64::from(after.subsec_nanos() > 0);
                return HeaderMap::from_iter([(RETRY_AFTER, seconds.max(1).into())]);
            }
            _ => return HeaderMap::new(),
        };
        HeaderMap::from_iter([(header.0, HeaderValue::from_static(header.1))])
    }
}
