//! Plays a recording: follows the program from host call to host call and supplies the recorded results.

use http::StatusCode;
use serde_json::Value;
use services::{CallError, ProgramResponse};

use super::response_format::{read_headers, recorded_error};
use super::{HostCall, RecordedResponse, RunEnd, RunRecording};
use crate::problem::{QueryError, ReplayStop, short};

/// An upstream call that finishes at this point of a replay: its index and its recorded result.
pub(super) type ReplayedCall = (usize, Result<ProgramResponse, CallError>);

/// Host functions for output. A changed program may produce other output, as long as it requests the same
/// data.
const OUTPUT_FUNCTIONS: &[&str] = &["done", "fail", "header", "log", "status"];

/// The state of a replay.
pub(crate) struct ReplayState {
    recording: RunRecording,
    /// Whether the program is the recorded one.
    is_exact: bool,
    /// The number of recorded host calls that have been replayed.
    replayed_count: usize,
    /// The number of host calls that the program made.
    call_count: usize,
    /// The index of the current recorded host call.
    current: Option<usize>,
}

impl ReplayState {
    pub(crate) fn new(recording: RunRecording, is_exact: bool) -> Self {
        Self { recording, is_exact, replayed_count: 0, call_count: 0, current: None }
    }

    /// Returns the number of host calls that the program made, and the number of recorded calls that are
    /// left.
    pub(crate) fn progress(&self) -> (usize, usize) {
        (self.call_count, self.recording.calls.len() - self.replayed_count)
    }

    pub(crate) fn current_call(&self) -> Option<&HostCall> {
        self.recording.calls.get(self.current?)
    }

    /// Replays a host call. Returns the upstream calls that finish at this point.
    pub(crate) fn replay_call(
        &mut self,
        function: &str,
        with: &Value,
    ) -> Result<Vec<ReplayedCall>, QueryError> {
        self.call_count += 1;
        self.current = None;
        if !self.is_exact {
            if OUTPUT_FUNCTIONS.contains(&function) {
                return Ok(Vec::new());
            }
            self.skip_output_calls();
        }
        let Some(call) = self.recording.calls.get(self.replayed_count) else {
            return Err(self.after_end_error(function, with));
        };
        if call.function != function || call.with != *with {
            return Err(self.call_mismatch(function, with, format_call(&call.function, &call.with)));
        }
        self.current = Some(self.replayed_count);
        self.replayed_count += 1;
        if self.replayed_count == self.recording.calls.len()
            && matches!(self.recording.end, RunEnd::Problem { inside: true, .. })
        {
            return Err(ReplayStop::RecordedEnd.into());
        }
        Ok(self.current_call().map_or(Vec::new(), |call| {
            call.ended.iter().filter_map(|handle| self.recorded_result(*handle)).collect()
        }))
    }

    fn skip_output_calls(&mut self) {
        let calls = self.recording.calls.iter().skip(self.replayed_count);
        self.replayed_count += calls.take_while(|call| OUTPUT_FUNCTIONS.contains(&&*call.function)).count();
    }

    /// Returns the error for a host call after the end of the recording.
    fn after_end_error(&self, function: &str, with: &Value) -> QueryError {
        match self.recording.end {
            RunEnd::Problem { .. } => ReplayStop::RecordedEnd.into(),
            RunEnd::Answer { .. } => self.call_mismatch(function, with, "no more".into()),
        }
    }

    fn call_mismatch(&self, function: &str, with: &Value, recorded: String) -> QueryError {
        ReplayStop::Call { number: self.call_count, asked: format_call(function, with), recorded }.into()
    }

    /// Returns the error for a wait that does not end in the recording.
    pub(crate) fn wait_error(&self) -> QueryError {
        ReplayStop::Wait { number: self.call_count }.into()
    }

    /// Checks the result of a host function.
    pub(crate) fn check_result(&self, result: Option<i64>) -> Result<(), QueryError> {
        let Some(call) = self.current_call().filter(|call| call.result != result) else { return Ok(()) };
        let said = |result: Option<i64>| result.map_or("nothing".into(), |number| number.to_string());
        let (gives, recorded) = (said(result), said(call.result));
        Err(ReplayStop::Result {
            number: self.call_count,
            call: format_call(&call.function, &call.with),
            gives,
            recorded,
        }
        .into())
    }

    /// Returns the recorded result of an upstream call.
    fn recorded_result(&self, handle: i32) -> Option<ReplayedCall> {
        let number = usize::try_from(handle).ok()?.checked_sub(1)?;
        let result = match self.recording.responses.get(&handle)? {
            RecordedResponse::Error(code) => Err(recorded_error(*code)),
            RecordedResponse::Answer { status, headers, body } => Ok(ProgramResponse {
                status: StatusCode::from_u16(*status).ok()?,
                headers: read_headers(&headers.0),
                body: body.0.clone(),
            }),
        };
        Some((number, result))
    }
}

/// Formats a host call on one line.
fn format_call(function: &str, with: &Value) -> String {
    let with = if with.is_null() { String::new() } else { short(&with.to_string()) };
    format!("`{function}` {with}").trim_end().to_owned()
}
