//! The worker protocol: frames between gateway and worker, `u32 length | u8 type | u32 run | payload`, little
//! endian.
//!
//! Outgoing frames are written into one buffer for each worker, however many frames a turn makes; a large
//! body or state is queued separately and never copied. Incoming frames are untrusted, since a script can
//! take over its worker: parsing returns errors and never panics. `worker/frames.js` is the counterpart.
//!
//! `incoming.rs` parses frames, `outgoing.rs` writes them, and `json_index.rs` bounds the indexes of JSON
//! texts.

mod incoming;
pub(crate) mod json_index;
mod outgoing;

pub(crate) use incoming::{
    DeclareMessage, FrameReader, HandlerAnswer, HandlerFailure, LongFrame, ResourceCall, WorkerMessage,
};
pub(crate) use outgoing::{CallReply, DiscardKind, LARGE_PAYLOAD, OutgoingBytes, RunMessage, StateKind};

use std::borrow::Cow;

use bytes::Bytes;
use json::{JsonDocument, PartialChecker};

use json_index::build_index;

/// The maximum length of a frame from a worker.
pub(crate) const MAX_FRAME_LENGTH: usize = 256 << 20;

/// The byte order mark of UTF-8.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// A message's body and its representation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FramePayload {
    pub(crate) kind: PayloadKind,
    pub(crate) bytes: Bytes,
}

/// The representation of a body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum PayloadKind {
    /// No body; `undefined`.
    #[default]
    None,
    Text,
    Json,
    Bytes,
    /// A text of ASCII only, which the worker reads without decoding.
    AsciiText,
    AsciiJson,
}

impl FramePayload {
    /// Wraps text; bytes that are not UTF-8 remain bytes.
    pub(crate) fn text(bytes: Bytes) -> Self {
        // The most common case first, which is also the cheapest to check.
        let kind = match bytes.is_ascii() {
            true => PayloadKind::AsciiText,
            false if std::str::from_utf8(&bytes).is_ok() => PayloadKind::Text,
            false => PayloadKind::Bytes,
        };
        Self { kind, bytes }
    }

    /// Wraps a body that is declared to be text in UTF-8: invalid UTF-8 becomes U+FFFD.
    pub(crate) fn decode_text(bytes: Bytes) -> Self {
        match Self::text(bytes) {
            Self { kind: PayloadKind::Bytes, bytes } => {
                Self { kind: PayloadKind::Text, bytes: String::from_utf8_lossy(&bytes).into_owned().into() }
            }
            text => text,
        }
    }

    /// Wraps a body with a JSON media type, decoded as in Fetch: a byte order mark is removed, and invalid
    /// UTF-8 becomes U+FFFD.
    pub(crate) fn decode_json(bytes: Bytes) -> Self {
        if bytes.is_ascii() {
            return Self { kind: PayloadKind::AsciiJson, bytes };
        }
        let bytes = match bytes.strip_prefix(BYTE_ORDER_MARK) {
            Some(rest) => bytes.slice_ref(rest),
            None => bytes,
        };
        match String::from_utf8_lossy(&bytes) {
            Cow::Borrowed(_) => Self { kind: PayloadKind::Json, bytes },
            Cow::Owned(text) => Self { kind: PayloadKind::Json, bytes: text.into() },
        }
    }

    /// Wraps JSON that is known to be valid.
    pub(crate) fn json(bytes: Bytes) -> Self {
        let kind = if bytes.is_ascii() { PayloadKind::AsciiJson } else { PayloadKind::Json };
        Self { kind, bytes }
    }

    /// Validates a body with a JSON media type that is passed on without being read. Building an index is the
    /// fastest check; a text whose index would be too large is checked without one.
    ///
    /// # Errors
    /// Returns the reason why the body is not valid JSON.
    pub(crate) fn validate(&self) -> Result<(), json::JsonError> {
        if !matches!(self.kind, PayloadKind::Json | PayloadKind::AsciiJson) {
            return Ok(());
        }
        match self.parse_document() {
            Err(json::JsonError::IndexTooLarge(_)) => {
                let mut checker = PartialChecker::default();
                checker.feed(&self.bytes)?;
                checker.finish()
            }
            document => document.map(drop),
        }
    }

    /// Parses the body as JSON.
    pub(crate) fn parse_document(&self) -> Result<JsonDocument, json::JsonError> {
        build_index(self.bytes.clone())
    }

    pub(crate) fn bytes(bytes: Bytes) -> Self {
        Self { kind: PayloadKind::Bytes, bytes }
    }
}

impl PayloadKind {
    fn from_number(number: u8) -> Option<Self> {
        [Self::None, Self::Text, Self::Json, Self::Bytes, Self::AsciiText, Self::AsciiJson]
            .get(usize::from(number))
            .copied()
    }

    /// The default `Content-Type` of a response with such a body.
    pub(crate) fn content_type(self) -> Option<&'static str> {
        match self {
            Self::None => None,
            Self::Text | Self::AsciiText => Some("text/plain; charset=utf-8"),
            Self::Json | Self::AsciiJson => Some("application/json"),
            Self::Bytes => Some("application/octet-stream"),
        }
    }
}

#[cfg(test)]
mod tests;
