//! The body of every message in the house, requests and responses alike: boxed, so that the types of
//! the parts stay readable, and `Send` only, since one task polls it.

use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Full, combinators::UnsyncBoxBody};

/// Why a body broke off.
pub type Error = Box<dyn std::error::Error + Send + Sync>;

/// A streamed body.
pub type Body = UnsyncBoxBody<Bytes, Error>;

/// A body that is there already.
pub fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

/// No body.
#[must_use]
pub fn empty() -> Body {
    Empty::new().map_err(|never| match never {}).boxed_unsync()
}
