//! The frames between gateway and worker: `u32 length | u8 type | u32 run | payload`, little endian.
//!
//! What goes out is written into one buffer for each worker, however many frames a turn makes; a large body or
//! state is put beside it as it is and never copied. What comes in is not trusted: a worker may be anything once
//! a script has got hold of it, so that reading knows errors and no panics. `worker/frames.js` is the other side.

mod incoming;
mod outgoing;

pub(crate) use incoming::{Answer, Call, Declare, Fail, From, Reader};
pub(crate) use outgoing::{Forget, Out, Outcome, Run, StateKind};

use std::borrow::Cow;

use bytes::Bytes;
use json::{Checker, Document};

use crate::index::index;

/// The longest frame from a worker.
pub(crate) const LONGEST: usize = 256 << 20;

/// What some write in front of UTF-8.
const MARK: &[u8] = b"\xef\xbb\xbf";

/// A message's body and how it is to be read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Payload {
    pub(crate) kind: Kind,
    pub(crate) bytes: Bytes,
}

/// How a body is to be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// There is none; `undefined`.
    #[default]
    None,
    Text,
    Json,
    Bytes,
    /// A text of ASCII only, which the worker reads without decoding.
    AsciiText,
    AsciiJson,
}

impl Payload {
    /// Text, if it is one; otherwise bytes.
    pub(crate) fn text(bytes: Bytes) -> Self {
        // First what most texts are, and what is seen soonest.
        let kind = match bytes.is_ascii() {
            true => Kind::AsciiText,
            false if std::str::from_utf8(&bytes).is_ok() => Kind::Text,
            false => Kind::Bytes,
        };
        Self { kind, bytes }
    }

    /// What is said to be JSON, as Fetch reads it: a byte order mark is none of it, and what is no UTF-8 is U+FFFD.
    pub(crate) fn claimed_json(bytes: Bytes) -> Self {
        if bytes.is_ascii() {
            return Self { kind: Kind::AsciiJson, bytes };
        }
        let bytes = match bytes.strip_prefix(MARK) {
            Some(rest) => bytes.slice_ref(rest),
            None => bytes,
        };
        match String::from_utf8_lossy(&bytes) {
            Cow::Borrowed(_) => Self { kind: Kind::Json, bytes },
            Cow::Owned(text) => Self { kind: Kind::Json, bytes: text.into() },
        }
    }

    /// JSON, which somebody has checked to be that.
    pub(crate) fn json(bytes: Bytes) -> Self {
        let kind = if bytes.is_ascii() { Kind::AsciiJson } else { Kind::Json };
        Self { kind, bytes }
    }

    /// Checks what claims to be JSON, for those who hand it on without reading it. An index is the fastest check; a text
    /// whose index would be too large is checked without one.
    ///
    /// # Errors
    /// Why it is not the JSON that it claims to be.
    pub(crate) fn check(&self) -> Result<(), json::Error> {
        if !matches!(self.kind, Kind::Json | Kind::AsciiJson) {
            return Ok(());
        }
        match self.document() {
            Err(json::Error::IndexTooLarge(_)) => {
                let mut checker = Checker::default();
                checker.feed(&self.bytes)?;
                checker.end()
            }
            document => document.map(drop),
        }
    }

    /// The JSON that it claims to be.
    pub(crate) fn document(&self) -> Result<Document, json::Error> {
        index(self.bytes.clone())
    }

    pub(crate) fn bytes(bytes: Bytes) -> Self {
        Self { kind: Kind::Bytes, bytes }
    }
}

impl Kind {
    fn read(number: u8) -> Option<Self> {
        [Self::None, Self::Text, Self::Json, Self::Bytes, Self::AsciiText, Self::AsciiJson]
            .get(usize::from(number))
            .copied()
    }

    /// The type of an answer that names none.
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
