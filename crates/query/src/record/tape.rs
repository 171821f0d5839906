//! Where host functions meet a recording: written in one run, played in another, and absent in most.

use serde_json::{Value, json};
use services::headers::MAX_CALL_HEAD;
use services::{CallError, Response};

use super::{HostCall, Recorder};
use crate::futures::Ended;
use crate::guest::View;
use crate::host::{HEADERS, head_len, most_waited};
use crate::limits::Limit;
use crate::problem::QueryError;
use crate::record::Data;
use crate::replay::Player;

/// The bytes of a text that a recording has at most: as many as a call's head may have.
const NOTED: u32 = MAX_CALL_HEAD as u32;

/// What becomes of the host calls of a run.
#[derive(Default)]
pub(crate) enum Tape {
    /// Nothing.
    #[default]
    Off,
    /// They are written down.
    Records(Box<Recorder>),
    /// They are answered by a recording.
    Plays(Box<Player>),
}

impl Tape {
    pub(crate) fn is_off(&self) -> bool {
        matches!(self, Self::Off)
    }

    /// A host function is called; the calls to services that are to be seen as ended from here on.
    pub(crate) fn called(&mut self, function: &'static str, with: Value) -> Result<Vec<Ended>, QueryError> {
        match self {
            Self::Off => Ok(Vec::new()),
            Self::Records(recorder) => recorder.called(function, with).map(|()| Vec::new()),
            Self::Plays(player) => player.called(function, &with),
        }
    }

    /// A call to a service ended.
    pub(crate) fn ended(
        &mut self,
        handle: i32,
        result: &Result<Response, CallError>,
    ) -> Result<(), QueryError> {
        match self {
            Self::Records(recorder) => recorder.ended(handle, result),
            Self::Off | Self::Plays(_) => Ok(()),
        }
    }

    /// The host function gives bytes, of the body of a response if they stand in it.
    pub(crate) fn gives(&mut self, bytes: &[u8], body: &[u8]) -> Result<(), QueryError> {
        match self {
            Self::Records(recorder) => recorder.gives(bytes, body),
            Self::Off | Self::Plays(_) => Ok(()),
        }
    }

    /// The host function returned.
    pub(crate) fn gave(&mut self, result: Option<i64>) -> Result<(), QueryError> {
        match self {
            Self::Off => Ok(()),
            Self::Records(recorder) => {
                recorder.gave(result);
                Ok(())
            }
            Self::Plays(player) => player.gave(result),
        }
    }

    /// In a replay what the host function gave when it was recorded.
    pub(crate) fn recorded(&self) -> Option<&HostCall> {
        match self {
            Self::Plays(player) => player.current(),
            Self::Off | Self::Records(_) => None,
        }
    }

    /// Whether calls to services are answered by a recording.
    pub(crate) fn plays(&self) -> bool {
        matches!(self, Self::Plays(_))
    }

    /// The program waits. In a replay whatever ended has ended by now.
    pub(crate) fn waits(&self) -> Result<(), QueryError> {
        match self {
            Self::Plays(player) => Err(player.waits()),
            Self::Off | Self::Records(_) => Ok(()),
        }
    }

    fn fits(&mut self, bytes: u32) -> Result<(), QueryError> {
        match self {
            Self::Records(recorder) => recorder.fits(bytes as usize),
            Self::Off | Self::Plays(_) => Ok(()),
        }
    }
}

/// Reading arguments for a recording. What is out of bounds reads as nothing: the host function itself says what
/// is wrong with it.
impl View<'_> {
    /// Bytes, text where they are UTF-8.
    pub(crate) fn note(&mut self, address: u32, len: u32) -> Result<Value, QueryError> {
        self.guest.tape.fits(len)?;
        let bytes = self.slice(address, len).unwrap_or_default();
        Ok(serde_json::to_value(Data(bytes.to_vec().into())).unwrap_or_default())
    }

    /// The beginning of a text, as far as recordings have it.
    pub(crate) fn note_text(&mut self, address: u32, len: u32) -> Result<Value, QueryError> {
        self.note(address, len.min(NOTED))
    }

    /// The hash of bytes that a replay makes itself. Of an answer that is too large there is none.
    pub(crate) fn note_hash(&self, address: u32, len: u32) -> Value {
        let is_small = len as usize <= self.guest.limits.size(Limit::Output);
        let bytes = self.slice(address, len).ok().filter(|_| is_small);
        json!({ "length": len, "sha256": super::sha256(bytes.unwrap_or_default()) })
    }

    /// Numbers in a row.
    pub(crate) fn note_numbers(&mut self, address: u32, count: u32) -> Result<Value, QueryError> {
        let count = if u64::from(count) > most_waited(self.guest) { 0 } else { count };
        let len = count.saturating_mul(4);
        self.guest.tape.fits(count.saturating_mul(size_of::<Value>() as u32))?;
        let words = self.slice(address, len).unwrap_or_default().as_chunks::<4>().0;
        Ok(words.iter().map(|word| i32::from_le_bytes(*word)).collect())
    }

    /// An `orfa_request`. One whose head is out of bounds or too large reads as nothing.
    pub(crate) fn note_request(&mut self, address: u32) -> Result<Value, QueryError> {
        let Ok(words) = self.words(address) else { return Ok(Value::Null) };
        if !head_len(self, words).is_ok_and(|len| len <= MAX_CALL_HEAD) {
            return Ok(Value::Null);
        }
        let [method, method_len, url, url_len, headers, count, body, body_len] = words;
        let (method, url) = (self.note_text(method, method_len)?, self.note_text(url, url_len)?);
        let headers = self.note_headers(headers, count)?;
        Ok(json!({ "method": method, "url": url, "headers": headers, "body": self.note(body, body_len)? }))
    }

    fn note_headers(&mut self, address: u32, count: u32) -> Result<Vec<(Value, Value)>, QueryError> {
        let mut headers = Vec::new();
        for index in 0..count.min(HEADERS) {
            let at = address.saturating_add(index * query_abi::HEADER_BYTES);
            let Ok([name, name_len, value, value_len]) = self.words(at) else { break };
            headers.push((self.note_text(name, name_len)?, self.note_text(value, value_len)?));
        }
        Ok(headers)
    }
}
