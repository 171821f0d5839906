//! A recording: all data that crossed the ABI in a run. It is the response to a request with `ORFA-Debug`.
//!
//! It contains nothing that the program could not see: requests are recorded as the program made them, before
//! the gateway adds headers from the config and from the client, and responses as the program could read
//! them. A response is recorded once, even if it was read several times. The format is specified in
//! docs/debugging.md; it is read by replays and by the mocks in `sdk/`.
//!
//! `recorder.rs` writes a recording, and `replay_state.rs` follows one during a replay. `host_call_mode.rs`
//! is their interface to the host functions. `recorded_bytes.rs` encodes bytes, and `response_format.rs`
//! defines how programs see upstream responses.

mod host_call_mode;
mod recorded_bytes;
mod recorder;
mod replay_state;
mod response_format;

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::program::{ResolvedProgram, to_hex};

pub(crate) use host_call_mode::{HostCallMode, note_bytes};
pub(crate) use recorded_bytes::RecordedBytes;
pub(crate) use recorder::RunRecorder;
pub(crate) use replay_state::ReplayState;
pub(crate) use response_format::{abi_code, header_len, header_text};

/// The version of the format. Changes with incompatible revisions.
const VERSION: u64 = 1;
/// The media type of a recording.
pub(crate) const MEDIA_TYPE: &str = "application/vnd.orfa.recording+json";

/// A recorded run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunRecording {
    version: u64,
    pub(crate) program: ProgramFacts,
    /// The services that the program could call.
    pub(crate) services: Vec<String>,
    /// The methods that the program could use.
    pub(crate) methods: Vec<String>,
    /// Whether the request had the method QUERY, so that only safe calls were allowed.
    pub(crate) safe_only: bool,
    /// The effective limits, by their names in `ORFA-Limit`.
    pub(crate) limits: BTreeMap<String, u64>,
    pub(crate) input: RecordedBytes,
    /// The host calls of the program, in order.
    pub(crate) calls: Vec<HostCall>,
    /// The results of the upstream calls, by handle.
    pub(crate) responses: BTreeMap<i32, RecordedResponse>,
    pub(crate) end: RunEnd,
}

/// The identity of the recorded program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ProgramFacts {
    pub(crate) media_type: String,
    /// The SHA-256 of the program's bytes as they were sent.
    pub(crate) sha256: String,
    /// The program's environment; `None` for a module with its own memory.
    pub(crate) environment: Option<String>,
}

/// A call of a host function.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct HostCall {
    pub(crate) function: String,
    /// The arguments, by their names in the ABI.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub(crate) with: Value,
    /// The upstream calls that the program could observe as finished from this call on, in this order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) ended: Vec<i32>,
    /// The return value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) result: Option<i64>,
    /// The bytes that the call returned, unless they are part of a response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) data: Option<RecordedBytes>,
    /// The part of the response's body that the call returned: its start and length.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) part: Option<(usize, usize)>,
}

/// The result of an upstream call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "lowercase")]
pub(crate) enum RecordedResponse {
    /// A response.
    Answer {
        status: u16,
        /// The headers that a program may read, in the form of lines.
        headers: RecordedBytes,
        body: RecordedBytes,
    },
    /// A failed call, with its `orfa_code`.
    Error(i32),
}

/// The end of the run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "lowercase")]
pub(crate) enum RunEnd {
    /// The run ended with an answer. The recording contains only its hash, since a replay produces the bytes.
    Answer { status: u16, headers: RecordedBytes, length: usize, sha256: String },
    /// The run ended with a problem: within the last host call if `inside`, otherwise after it.
    Problem { code: String, detail: String, line: Option<u32>, column: Option<u32>, inside: bool },
}

/// An error that makes a recording unusable for a replay.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordingError {
    /// The recording is incomplete.
    #[error("the recording is cut short, at line {line}, column {column}")]
    Short {
        /// The line of the end, from 1.
        line: usize,
        /// The column of the end, from 1.
        column: usize,
    },
    /// The recording has another version.
    #[error("the recording is of version {0}, and this `orfa` reads version {VERSION}")]
    Version(String),
    /// The document is not a recording.
    #[error("this is not a recording: {0}")]
    Malformed(String),
}

impl ProgramFacts {
    pub(crate) fn from_program(program: &ResolvedProgram, environment: Option<&str>) -> Self {
        Self {
            media_type: program.language.media_type().to_owned(),
            sha256: to_hex(&program.hash),
            environment: environment.map(str::to_owned),
        }
    }
}

impl RunRecording {
    /// Parses a recording.
    ///
    /// # Errors
    /// If it is incomplete, of another version, or not a recording.
    pub fn parse(text: &[u8]) -> Result<Self, RecordingError> {
        /// The part that all versions have in common.
        #[derive(Deserialize)]
        struct VersionHeader {
            version: Option<Value>,
        }
        let versioned: VersionHeader = serde_json::from_slice(text).map_err(|error| parse_error(&error))?;
        match versioned.version {
            Some(version) if version == VERSION => {}
            Some(version) => return Err(RecordingError::Version(version.to_string())),
            None => return Err(RecordingError::Malformed("it has no `version`".into())),
        }
        let recording: Self = serde_json::from_slice(text).map_err(|error| parse_error(&error))?;
        recording.check_results()?;
        Ok(recording)
    }

    /// Whether these are the bytes of the recorded program.
    #[must_use]
    pub fn is_recording_of(&self, program: &[u8]) -> bool {
        self.program.sha256 == sha256_hex(program)
    }

    /// Returns the memory limit of the recorded run, in bytes.
    #[must_use]
    pub fn memory_limit(&self) -> u64 {
        self.limits.get("memory").copied().unwrap_or_default()
    }

    /// Returns a summary: the number of host calls, and the end of the run.
    #[must_use]
    pub fn summary(&self) -> String {
        format!("{} host calls, ended with {}", self.calls.len(), self.end)
    }

    /// Checks that every finished call has a result.
    fn check_results(&self) -> Result<(), RecordingError> {
        let mut ended = self.calls.iter().flat_map(|call| &call.ended);
        match ended.find(|handle| !self.responses.contains_key(handle)) {
            Some(handle) => Err(RecordingError::Malformed(format!("`responses` has no {handle}"))),
            None => Ok(()),
        }
    }
}

impl RunEnd {
    /// Whether both are the same answer, or problems with the same code.
    pub(crate) fn is_equivalent(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Problem { code, .. }, Self::Problem { code: other, .. }) => code == other,
            _ => self == other,
        }
    }
}

impl fmt::Display for RunEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Answer { status, length, .. } => {
                write!(f, "an answer of status {status} and {length} bytes")
            }
            Self::Problem { code, .. } => write!(f, "`{code}`"),
        }
    }
}

fn parse_error(error: &serde_json::Error) -> RecordingError {
    if error.is_eof() {
        return RecordingError::Short { line: error.line(), column: error.column() };
    }
    RecordingError::Malformed(error.to_string())
}

/// Returns a hash in the format of recordings.
pub(crate) fn sha256_hex(bytes: &[u8]) -> String {
    to_hex(&Sha256::digest(bytes).into())
}
