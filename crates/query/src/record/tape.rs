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
use crate::host::{MAX_HEADERS, head_len, max_waited_handles};
use crate::problem::QueryError;
use crate::record::RecordedBytes;
use crate::replay::ReplayState;

/// The maximum length of a text in a recording: the maximum size of a call's head.
const MAX_NOTED_BYTES: u32 = MAX_CALL_HEAD as u32;

/// The mode of a run's host calls.
#[derive(Default)]
pub(crate) enum HostCallMode {
    /// Neither recorded nor replayed.
    #[default]
    Off,
    /// Written to a recording.
    Recording(Box<RunRecorder>),
    /// Written to a recording by a job in the pool, which returns the recorder even if it does not run.
    RecordingInPool(oneshot::Receiver<Box<RunRecorder>>),
    /// Answered from a recording.
    Replaying(Box<ReplayState>),
}

impl HostCallMode {
    pub(crate) fn is_off(&self) -> bool {
        matches!(self, Self::Off)
    }

    /// Lends the recorder of a recorded run to a job. It returns when it is dropped.
    pub(crate) fn lend_recorder(
        &mut self,
    ) -> Option<impl DerefMut<Target = Box<RunRecorder>> + Send + 'static + use<>> {
        match std::mem::take(self) {
            Self::Recording(recorder) => {
                let (owner, returned) = oneshot::channel();
                *self = Self::RecordingInPool(returned);
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
            Self::Recording(recorder) => Some(recorder),
            Self::RecordingInPool(returned) => returned.await.ok(),
            Self::Off | Self::Replaying(_) => None,
        }
    }

    /// Reports a host call. In a replay, returns the upstream calls that finish at this point.
    pub(crate) fn record_call(
        &mut self,
        function: &'static str,
        with: Value,
    ) -> Result<Vec<UnstoredCall>, QueryError> {
        match self {
            Self::Off | Self::RecordingInPool(_) => Ok(Vec::new()),
            Self::Recording(recorder) => recorder.record_call(function, with).map(|()| Vec::new()),
            Self::Replaying(player) => player.replay_call(function, &with),
        }
    }

    /// Reports a finished upstream call.
    pub(crate) fn record_upstream_result(
        &mut self,
        handle: i32,
        result: &Result<ProgramResponse, CallError>,
    ) -> Result<(), QueryError> {
        match self {
            Self::Recording(recorder) => recorder.record_upstream_result(handle, result),
            Self::Off | Self::RecordingInPool(_) | Self::Replaying(_) => Ok(()),
        }
    }

    /// Reports the bytes that a host function returns. `body` is the response's body that they may be part
    /// of.
    pub(crate) fn record_data(&mut self, bytes: &[u8], body: &[u8]) -> Result<(), QueryError> {
        match self {
            Self::Recording(recorder) => recorder.record_data(bytes, body),
            Self::Off | Self::RecordingInPool(_) | Self::Replaying(_) => Ok(()),
        }
    }

    /// Reports the result of a host function.
    pub(crate) fn record_result(&mut self, result: Option<i64>) -> Result<(), QueryError> {
        match self {
            Self::Off | Self::RecordingInPool(_) => Ok(()),
            Self::Recording(recorder) => {
                recorder.record_result(result);
                Ok(())
            }
            Self::Replaying(player) => player.check_result(result),
        }
    }

    /// Returns the recorded host call in a replay.
    pub(crate) fn replayed_call(&self) -> Option<&HostCall> {
        match self {
            Self::Replaying(player) => player.current_call(),
            Self::Off | Self::Recording(_) | Self::RecordingInPool(_) => None,
        }
    }

    /// Whether upstream calls are answered from a recording.
    pub(crate) fn is_replaying(&self) -> bool {
        matches!(self, Self::Replaying(_))
    }

    /// Reports that the program waits. An error in a replay, where all calls that finish have finished by
    /// now.
    pub(crate) fn check_can_wait(&self) -> Result<(), QueryError> {
        match self {
            Self::Replaying(player) => Err(player.wait_error()),
            Self::Off | Self::Recording(_) | Self::RecordingInPool(_) => Ok(()),
        }
    }

    fn check_fits(&mut self, bytes: u32) -> Result<(), QueryError> {
        match self {
            Self::Recording(recorder) => recorder.check_fits(bytes as usize),
            Self::Off | Self::RecordingInPool(_) | Self::Replaying(_) => Ok(()),
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
    pub(crate) fn note_argument(&mut self, address: u32, len: u32) -> Result<Value, QueryError> {
        self.guest.tape.check_fits(len)?;
        let bytes = self.slice(address, len).unwrap_or_default();
        Ok(note_bytes(bytes.to_vec().into()))
    }

    /// Returns a text, cut to the maximum length in recordings.
    pub(crate) fn note_text(&mut self, address: u32, len: u32) -> Result<Value, QueryError> {
        self.note_argument(address, len.min(MAX_NOTED_BYTES))
    }

    /// Returns an array of numbers.
    pub(crate) fn note_numbers(&mut self, address: u32, count: u32) -> Result<Value, QueryError> {
        let count = if u64::from(count) > max_waited_handles(self.guest) { 0 } else { count };
        let len = count.saturating_mul(4);
        self.guest.tape.check_fits(count.saturating_mul(size_of::<Value>() as u32))?;
        let words = self.slice(address, len).unwrap_or_default().as_chunks::<4>().0;
        Ok(words.iter().map(|word| i32::from_le_bytes(*word)).collect())
    }

    /// Returns the body of an `orfa_request`, if it is too long to be recorded inline.
    pub(crate) fn long_body(&self, address: u32) -> Option<(u32, u32)> {
        if !matches!(self.guest.tape, HostCallMode::Recording(_)) {
            return None;
        }
        let [.., body, len] = self.read_words::<8>(address).ok()?;
        (len as usize > SHORT_TEXT && self.slice(body, len).is_ok()).then_some((body, len))
    }

    /// Returns an `orfa_request`, or null if its head is out of bounds or too large. Leaves out a body that
    /// is too long to be recorded inline.
    pub(crate) fn note_request(&mut self, address: u32) -> Result<Value, QueryError> {
        let Ok(words) = self.read_words(address) else { return Ok(Value::Null) };
        if !head_len(self, words).is_ok_and(|len| len <= MAX_CALL_HEAD) {
            return Ok(Value::Null);
        }
        let [method, method_len, url, url_len, headers, count, body, body_len] = words;
        let (method, url) = (self.note_text(method, method_len)?, self.note_text(url, url_len)?);
        let headers = self.note_headers(headers, count)?;
        let body = match self.long_body(address) {
            Some((_, len)) => self.guest.tape.check_fits(len).map(|()| Value::Null)?,
            None => self.note_argument(body, body_len)?,
        };
        Ok(json!({ "method": method, "url": url, "headers": headers, "body": body }))
    }

    fn note_headers(&mut self, address: u32, count: u32) -> Result<Vec<(Value, Value)>, QueryError> {
        let mut headers = Vec::new();
        for index in 0..count.min(MAX_HEADERS) {
            let at = address.saturating_add(index * query_abi::HEADER_BYTES);
            let Ok([name, name_len, value, value_len]) = self.read_words(at) else { break };
            headers.push((self.note_text(name, name_len)?, self.note_text(value, value_len)?));
        }
        Ok(headers)
    }
}
