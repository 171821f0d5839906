//! The interface between host functions and recordings: writes a recording, replays one, or does nothing.

use std::ops::DerefMut;

use bytes::Bytes;
use offload::SHORT_TEXT;
use serde_json::{Value, json};
use services::headers::MAX_CALL_HEAD;
use services::{CallError, ProgramResponse};
use tokio::sync::oneshot;

use super::{HostCall, RunRecorder};
use crate::futures::UnstoredCall;
use crate::guest::MemoryView;
use crate::host::{HEADERS, head_len, most_waited};
use crate::problem::QueryError;
use crate::record::RecordedBytes;
use crate::replay::ReplayState;

/// The maximum length of a text in a recording: the maximum size of a call's head.
const NOTED: u32 = MAX_CALL_HEAD as u32;

/// The mode of a run's host calls.
#[derive(Default)]
pub(crate) enum HostCallMode {
    /// Neither recorded nor replayed.
    #[default]
    Off,
    /// Written to a recording.
    Records(Box<RunRecorder>),
    /// Written to a recording by a job in the pool, which returns the recorder even if it does not run.
    Lent(oneshot::Receiver<Box<RunRecorder>>),
    /// Answered from a recording.
    Plays(Box<ReplayState>),
}

impl HostCallMode {
    pub(crate) fn is_off(&self) -> bool {
        matches!(self, Self::Off)
    }

    /// Lends the recorder of a recorded run to a job. It returns when it is dropped.
    pub(crate) fn lend(
        &mut self,
    ) -> Option<impl DerefMut<Target = Box<RunRecorder>> + Send + 'static + use<>> {
        match std::mem::take(self) {
            Self::Records(recorder) => {
                let (owner, returned) = oneshot::channel();
                *self = Self::Lent(returned);
                // If the run was cancelled, nothing needs the recording any more.
                Some(scopeguard::guard(recorder, |recorder| drop(owner.send(recorder))))
            }
            other => {
                *self = other;
                None
            }
        }
    }

    /// Returns the recorder of a recorded run. Waits for the job that it is lent to.
    pub(crate) async fn into_recorder(self) -> Option<Box<RunRecorder>> {
        match self {
            Self::Records(recorder) => Some(recorder),
            Self::Lent(returned) => returned.await.ok(),
            Self::Off | Self::Plays(_) => None,
        }
    }

    /// Reports a host call. In a replay, returns the upstream calls that finish at this point.
    pub(crate) fn called(
        &mut self,
        function: &'static str,
        with: Value,
    ) -> Result<Vec<UnstoredCall>, QueryError> {
        match self {
            Self::Off | Self::Lent(_) => Ok(Vec::new()),
            Self::Records(recorder) => recorder.called(function, with).map(|()| Vec::new()),
            Self::Plays(player) => player.called(function, &with),
        }
    }

    /// Reports a finished upstream call.
    pub(crate) fn ended(
        &mut self,
        handle: i32,
        result: &Result<ProgramResponse, CallError>,
    ) -> Result<(), QueryError> {
        match self {
            Self::Records(recorder) => recorder.ended(handle, result),
            Self::Off | Self::Lent(_) | Self::Plays(_) => Ok(()),
        }
    }

    /// Reports the bytes that a host function returns. `body` is the response's body that they may be part
    /// of.
    pub(crate) fn gives(&mut self, bytes: &[u8], body: &[u8]) -> Result<(), QueryError> {
        match self {
            Self::Records(recorder) => recorder.gives(bytes, body),
            Self::Off | Self::Lent(_) | Self::Plays(_) => Ok(()),
        }
    }

    /// Reports the result of a host function.
    pub(crate) fn gave(&mut self, result: Option<i64>) -> Result<(), QueryError> {
        match self {
            Self::Off | Self::Lent(_) => Ok(()),
            Self::Records(recorder) => {
                recorder.gave(result);
                Ok(())
            }
            Self::Plays(player) => player.gave(result),
        }
    }

    /// Returns the recorded host call in a replay.
    pub(crate) fn recorded(&self) -> Option<&HostCall> {
        match self {
            Self::Plays(player) => player.current(),
            Self::Off | Self::Records(_) | Self::Lent(_) => None,
        }
    }

    /// Whether upstream calls are answered from a recording.
    pub(crate) fn plays(&self) -> bool {
        matches!(self, Self::Plays(_))
    }

    /// Reports that the program waits. An error in a replay, where all calls that finish have finished by
    /// now.
    pub(crate) fn waits(&self) -> Result<(), QueryError> {
        match self {
            Self::Plays(player) => Err(player.waits()),
            Self::Off | Self::Records(_) | Self::Lent(_) => Ok(()),
        }
    }

    fn fits(&mut self, bytes: u32) -> Result<(), QueryError> {
        match self {
            Self::Records(recorder) => recorder.fits(bytes as usize),
            Self::Off | Self::Lent(_) | Self::Plays(_) => Ok(()),
        }
    }
}

/// Returns bytes in the form that recordings have: as text if they are UTF-8.
pub(crate) fn note_bytes(bytes: Bytes) -> Value {
    serde_json::to_value(RecordedBytes(bytes)).unwrap_or_default()
}

/// Reads arguments for a recording. Arguments out of bounds are recorded as empty, since the host function
/// itself reports the error.
impl MemoryView<'_> {
    /// Returns bytes, as text if they are UTF-8.
    pub(crate) fn note(&mut self, address: u32, len: u32) -> Result<Value, QueryError> {
        self.guest.tape.fits(len)?;
        let bytes = self.slice(address, len).unwrap_or_default();
        Ok(note_bytes(bytes.to_vec().into()))
    }

    /// Returns a text, cut to the maximum length in recordings.
    pub(crate) fn note_text(&mut self, address: u32, len: u32) -> Result<Value, QueryError> {
        self.note(address, len.min(NOTED))
    }

    /// Returns an array of numbers.
    pub(crate) fn note_numbers(&mut self, address: u32, count: u32) -> Result<Value, QueryError> {
        let count = if u64::from(count) > most_waited(self.guest) { 0 } else { count };
        let len = count.saturating_mul(4);
        self.guest.tape.fits(count.saturating_mul(size_of::<Value>() as u32))?;
        let words = self.slice(address, len).unwrap_or_default().as_chunks::<4>().0;
        Ok(words.iter().map(|word| i32::from_le_bytes(*word)).collect())
    }

    /// Returns the body of an `orfa_request`, if it is too long to be recorded inline.
    pub(crate) fn long_body(&self, address: u32) -> Option<(u32, u32)> {
        if !matches!(self.guest.tape, HostCallMode::Records(_)) {
            return None;
        }
        let [.., body, len] = self.words::<8>(address).ok()?;
        (len as usize > SHORT_TEXT && self.slice(body, len).is_ok()).then_some((body, len))
    }

    /// Returns an `orfa_request`, or null if its head is out of bounds or too large. Leaves out a body that
    /// is too long to be recorded inline.
    pub(crate) fn note_request(&mut self, address: u32) -> Result<Value, QueryError> {
        let Ok(words) = self.words(address) else { return Ok(Value::Null) };
        if !head_len(self, words).is_ok_and(|len| len <= MAX_CALL_HEAD) {
            return Ok(Value::Null);
        }
        let [method, method_len, url, url_len, headers, count, body, body_len] = words;
        let (method, url) = (self.note_text(method, method_len)?, self.note_text(url, url_len)?);
        let headers = self.note_headers(headers, count)?;
        let body = match self.long_body(address) {
            Some((_, len)) => self.guest.tape.fits(len).map(|()| Value::Null)?,
            None => self.note(body, body_len)?,
        };
        Ok(json!({ "method": method, "url": url, "headers": headers, "body": body }))
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
