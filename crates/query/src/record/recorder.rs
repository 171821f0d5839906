//! Writes a recording while its program runs, within a size limit.
//!
//! Host calls are serialised at once: other representations take many times the memory of the text, and a
//! program may make very many calls. Long arguments, and the document as a whole, are serialised in the pool.

use std::collections::BTreeMap;
use std::io::{self, Write};

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;
use services::{CallError, ProgramResponse, ToProblem};

use super::response_format::{abi_code, header_text};
use super::{
    HostCall, ProgramFacts, RecordedBytes, RecordedResponse, RunEnd, RunRecording, VERSION, sha256_hex,
};
use crate::limits::RunLimits;
use crate::problem::QueryError;
use crate::program::CallPermissions;

/// The minimum size of a response in a recording in addition to its bytes: names, quotes, braces.
const RESPONSE_OVERHEAD: usize = 32;

/// A recording in progress.
pub(crate) struct RunRecorder {
    /// The recording without its calls.
    recording: RunRecording,
    /// The calls, as a JSON array without its closing bracket. The last one has no closing bracket either.
    calls: BoundedText,
    /// The rest of the last call, which may still be incomplete.
    last_call: Option<CallEnd>,
    /// The bytes of all other stored data, and the bytes that were copied for the next call.
    stored_bytes: usize,
    noted_bytes: usize,
    /// Whether the program is within the last host call.
    is_in_call: bool,
}

/// The members of a [`HostCall`] that follow its arguments.
#[derive(Default, Serialize)]
struct CallEnd {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    ended: Vec<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<RecordedBytes>,
    #[serde(skip_serializing_if = "Option::is_none")]
    part: Option<(usize, usize)>,
}

/// Text with a maximum size.
struct BoundedText {
    text: Vec<u8>,
    limit: usize,
}

impl Write for BoundedText {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.len() > self.limit.saturating_sub(self.text.len()) {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.text.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl BoundedText {
    /// Creates a text of at most `limit` bytes, and reserves them: to grow it would copy megabytes at a time.
    /// Pages that are not written to take no memory.
    fn new(limit: usize) -> Self {
        let mut text = Vec::new();
        // A limit that the system refuses is not reserved.
        let _ = text.try_reserve_exact(limit);
        Self { text, limit }
    }

    /// Appends a value as JSON.
    fn append_json(&mut self, value: &impl Serialize) -> Result<(), QueryError> {
        serde_json::to_writer(&mut *self, value).map_err(|error| match error.io_error_kind() {
            Some(_) => QueryError::RecordingSize(self.limit as u64),
            None => QueryError::Gateway(error.to_string()),
        })
    }
}

impl RunRecorder {
    pub(crate) fn new(
        program: ProgramFacts,
        (input, safe_only): (&Bytes, bool),
        access: &CallPermissions,
        limits: &RunLimits,
        size: u64,
    ) -> Self {
        let recording = RunRecording {
            version: VERSION,
            program,
            services: access.service_names.split_terminator(',').map(str::to_owned).collect(),
            methods: access.methods.iter().map(ToString::to_string).collect(),
            safe_only,
            limits: limits.iter_by_name().map(|(word, value)| (word.to_owned(), value)).collect(),
            input: RecordedBytes(input.clone()),
            calls: Vec::new(),
            responses: BTreeMap::new(),
            end: RunEnd::Answer {
                status: 200,
                headers: RecordedBytes::default(),
                length: 0,
                sha256: String::new(),
            },
        };
        let mut calls = BoundedText::new(usize::try_from(size).unwrap_or(usize::MAX));
        calls.text.push(b'[');
        Self {
            recording,
            calls,
            last_call: None,
            stored_bytes: input.len(),
            noted_bytes: 0,
            is_in_call: false,
        }
    }

    /// Counts bytes that will be copied for the next call.
    pub(super) fn check_fits(&mut self, bytes: usize) -> Result<(), QueryError> {
        self.noted_bytes = self.noted_bytes.saturating_add(bytes);
        let size = self.calls.text.len().saturating_add(self.stored_bytes).saturating_add(self.noted_bytes);
        if size > self.calls.limit { Err(QueryError::RecordingSize(self.calls.limit as u64)) } else { Ok(()) }
    }

    /// Counts bytes that are stored in addition to the calls.
    fn add_stored(&mut self, bytes: usize) -> Result<(), QueryError> {
        self.stored_bytes = self.stored_bytes.saturating_add(bytes);
        self.check_fits(0)
    }

    pub(crate) fn record_call(&mut self, function: &str, with: Value) -> Result<(), QueryError> {
        self.end_last_call()?;
        self.noted_bytes = 0;
        self.is_in_call = true;
        if self.calls.text.len() > 1 {
            self.calls.text.push(b',');
        }
        self.calls.append_json(&HostCall { function: function.to_owned(), with, ..HostCall::default() })?;
        // The rest of the call follows in place of its closing bracket.
        self.calls.text.pop();
        self.last_call = Some(CallEnd::default());
        self.check_fits(0)
    }

    /// Writes the rest of the last call, which is complete now.
    fn end_last_call(&mut self) -> Result<(), QueryError> {
        let Some(end) = self.last_call.take() else { return Ok(()) };
        let start = self.calls.text.len();
        self.calls.append_json(&end)?;
        if self.calls.text.len() == start + "{}".len() {
            self.calls.text.remove(start);
        } else if let Some(bracket) = self.calls.text.get_mut(start) {
            *bracket = b',';
        }
        Ok(())
    }

    /// Records the result of an upstream call.
    pub(super) fn record_upstream_result(
        &mut self,
        handle: i32,
        result: &Result<ProgramResponse, CallError>,
    ) -> Result<(), QueryError> {
        let received = match result {
            Ok(response) => {
                let headers = header_text(&response.headers);
                self.add_stored(
                    headers.len().saturating_add(response.body.len()).saturating_add(RESPONSE_OVERHEAD),
                )?;
                let (headers, body) = (RecordedBytes(headers.into()), RecordedBytes(response.body.clone()));
                RecordedResponse::Answer { status: response.status.as_u16(), headers, body }
            }
            Err(error) => RecordedResponse::Error(abi_code(error) as i32),
        };
        self.recording.responses.insert(handle, received);
        self.update_last_call(|call| call.ended.push(handle));
        Ok(())
    }

    /// Records the bytes that a host function returned: as a part of a response's body, or as data.
    pub(super) fn record_data(&mut self, bytes: &[u8], body: &[u8]) -> Result<(), QueryError> {
        let part = part_of_body(bytes, body);
        self.check_fits(if part.is_some() { 0 } else { bytes.len() })?;
        let data = part.is_none().then(|| RecordedBytes(Bytes::copy_from_slice(bytes)));
        self.update_last_call(|call| (call.part, call.data) = (part, data));
        Ok(())
    }

    pub(super) fn record_result(&mut self, result: Option<i64>) {
        self.is_in_call = false;
        self.update_last_call(|call| call.result = result);
    }

    fn update_last_call(&mut self, note: impl FnOnce(&mut CallEnd)) {
        if let Some(call) = &mut self.last_call {
            note(call);
        }
    }

    /// Returns the end of a run that failed.
    pub(crate) fn failed_end(&self, error: &QueryError) -> RunEnd {
        RunEnd::from_error(error, self.is_in_call)
    }

    /// Returns the size of the document so far, in bytes.
    pub(crate) fn document_size(&self) -> usize {
        self.calls.text.len().saturating_add(self.stored_bytes)
    }

    /// Completes the document after the run.
    pub(crate) fn finish(mut self, end: RunEnd) -> Result<Bytes, QueryError> {
        self.recording.end = end;
        self.end_last_call()?;
        self.calls.text.push(b']');
        let RunRecording {
            version,
            program,
            services,
            methods,
            safe_only,
            limits,
            input,
            responses,
            end,
            ..
        } = &self.recording;
        let calls = String::from_utf8(std::mem::take(&mut self.calls.text)).unwrap_or_default();
        let calls = RawValue::from_string(calls);
        let calls = &*calls.map_err(|error| QueryError::Gateway(error.to_string()))?;
        let mut document = BoundedText::new(self.calls.limit);
        document.append_json(&RecordingDocument {
            version,
            program,
            services,
            methods,
            safe_only,
            limits,
            input,
            calls,
            responses,
            end,
        })?;
        Ok(document.text.into())
    }
}

/// A [`RunRecording`] with serialised calls.
#[derive(Serialize)]
struct RecordingDocument<'r> {
    version: &'r u64,
    program: &'r ProgramFacts,
    services: &'r [String],
    methods: &'r [String],
    safe_only: &'r bool,
    limits: &'r BTreeMap<String, u64>,
    input: &'r RecordedBytes,
    calls: &'r RawValue,
    responses: &'r BTreeMap<i32, RecordedResponse>,
    end: &'r RunEnd,
}

impl RunEnd {
    pub(crate) fn from_answer(status: StatusCode, headers: &HeaderMap, body: &[u8]) -> Self {
        Self::Answer {
            status: status.as_u16(),
            headers: RecordedBytes(header_text(headers).into()),
            length: body.len(),
            sha256: sha256_hex(body),
        }
    }

    pub(crate) fn from_error(error: &QueryError, inside: bool) -> Self {
        let members = error.members();
        let number = |name: &str| members.get(name)?.as_u64().and_then(|number| u32::try_from(number).ok());
        Self::Problem {
            code: error.code().to_owned(),
            detail: error.to_string(),
            line: number("line"),
            column: number("column"),
            inside,
        }
    }
}

/// Returns the position of bytes in a body, if they are a slice of it and not a copy.
fn part_of_body(bytes: &[u8], body: &[u8]) -> Option<(usize, usize)> {
    let start = bytes.as_ptr().addr().checked_sub(body.as_ptr().addr())?;
    let inside = start.checked_add(bytes.len()).is_some_and(|end| end <= body.len());
    (inside && !bytes.is_empty()).then_some((start, bytes.len()))
}

#[cfg(test)]
impl RunRecorder {
    /// Returns a recorder for a recording of at most `size` bytes.
    pub(crate) fn for_tests(size: u64) -> Self {
        let facts = ProgramFacts { media_type: String::new(), sha256: String::new(), environment: None };
        let limits = RunLimits::from_config(&crate::config::QueryLimitsConfig::default());
        Self::new(facts, (&Bytes::from_static(b"in"), true), &CallPermissions::none(), &limits, size)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn writes_the_arguments_of_a_call_when_it_begins() {
        let mut recorder = RunRecorder::for_tests(10_000);
        recorder.record_call("log", json!({ "text": "a".repeat(1000) })).unwrap();
        assert!(recorder.document_size() > 1000, "{}", recorder.document_size());
        let before = recorder.document_size();
        recorder.record_result(Some(7));
        recorder.record_call("clock", Value::Null).unwrap();
        assert!(recorder.document_size() < before + 100, "only the result and the next call follow");
        assert!(recorder.record_call("log", json!({ "text": "a".repeat(10_000) })).is_err());
    }

    #[test]
    fn writes_every_member_of_a_call() {
        let mut recorder = RunRecorder::for_tests(10_000);
        recorder.record_call("clock", Value::Null).unwrap();
        recorder.record_call("random", json!({ "len": 3 })).unwrap();
        recorder.record_data(b"abc", &[]).unwrap();
        recorder.record_result(None);
        recorder.record_call("Future_wait", json!({ "futures": [1, 2] })).unwrap();
        for handle in [2, 1] {
            recorder.record_upstream_result(handle, &Err(CallError::Limit("limit-calls"))).unwrap();
        }
        recorder.record_result(Some(1));
        recorder.record_call("Response_json", json!({ "future": 1 })).unwrap();
        let body = b"[1,22]";
        recorder.record_data(&body[3..5], body).unwrap();
        recorder.record_result(Some(2));
        let document = recorder.finish(RunEnd::from_answer(StatusCode::OK, &HeaderMap::new(), b"")).unwrap();
        let call = |function: &str| HostCall { function: function.to_owned(), ..HostCall::default() };
        let expected = [
            call("clock"),
            HostCall {
                with: json!({ "len": 3 }),
                data: Some(RecordedBytes(Bytes::from_static(b"abc"))),
                ..call("random")
            },
            HostCall {
                with: json!({ "futures": [1, 2] }),
                ended: vec![2, 1],
                result: Some(1),
                ..call("Future_wait")
            },
            HostCall {
                with: json!({ "future": 1 }),
                result: Some(2),
                part: Some((3, 2)),
                ..call("Response_json")
            },
        ];
        assert_eq!(RunRecording::parse(&document).unwrap().calls, expected);
    }
}
