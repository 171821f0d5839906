//! A recording: all that crossed the ABI in one run, as the document that `ORFA-Debug` is answered with.
//!
//! What a program may not see is not in it either: requests are noted as the program made them, before the
//! gateway adds what the operator's config and the client's own headers say, responses as the program could read
//! them. A response stands there once, however often it was read. The words are those of docs/debugging.md;
//! besides `replay.rs` the mocks in `sdk/` read them.
//!
//! `recorder.rs` writes one, `tape.rs` is where host functions meet it, `data.rs` how bytes are written.

mod data;
mod recorder;
mod tape;

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::claim::Claim;
use crate::program::Program;
use crate::stored::hex;

pub(crate) use data::Data;
pub use recorder::ANYONE;
pub(crate) use recorder::{Recorder, Recordings};
pub(crate) use tape::Tape;

/// The version of the format: another one means that something else is to be understood.
const VERSION: u64 = 1;
/// The media type of a recording.
pub(crate) const MEDIA_TYPE: &str = "application/vnd.orfa.recording+json";

/// A recorded run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recording {
    version: u64,
    pub(crate) program: ProgramFacts,
    /// The services that the program could call.
    pub(crate) services: Vec<String>,
    /// The methods that it could use.
    pub(crate) methods: Vec<String>,
    /// It came with QUERY: only safe calls could be made.
    pub(crate) safe_only: bool,
    /// The limits that held, in the words of `ORFA-Limit`.
    pub(crate) limits: BTreeMap<String, u64>,
    pub(crate) input: Data,
    /// The host functions that it called, in order.
    pub(crate) calls: Vec<HostCall>,
    /// What came of the calls to services, by handle.
    pub(crate) responses: BTreeMap<i32, Received>,
    pub(crate) end: End,
}

/// Which program it was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ProgramFacts {
    pub(crate) media_type: String,
    /// Of its bytes as they were sent.
    pub(crate) sha256: String,
    /// The environment that it ran beside; none for a module with its own memory.
    pub(crate) environment: Option<String>,
}

/// One call of a host function.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct HostCall {
    pub(crate) function: String,
    /// What it was called with, by the names of the ABI.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub(crate) with: Value,
    /// The calls to services that the program could see as ended from here on, in this order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) ended: Vec<i32>,
    /// What it returned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) result: Option<i64>,
    /// The bytes that it gave, where they are not those of a response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) data: Option<Data>,
    /// Which bytes of the response's body it gave: the first, and how many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) part: Option<(usize, usize)>,
}

/// What came of a call to a service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "lowercase")]
pub(crate) enum Received {
    /// An answer.
    Answer {
        status: u16,
        /// Those that a program may read, as the lines that it reads.
        headers: Data,
        body: Data,
    },
    /// None; the `orfa_code` that says why.
    Error(i32),
}

/// How the run ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "lowercase")]
pub(crate) enum End {
    /// With this answer, of which the recording keeps the hash: a replay has the bytes.
    Answer { status: u16, headers: Data, length: usize, sha256: String },
    /// With this problem; `inside` of the last host function, or behind it.
    Problem { code: String, detail: String, line: Option<u32>, column: Option<u32>, inside: bool },
}

/// Why something is no recording that can be replayed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordingError {
    /// It ends before its end.
    #[error("the recording is cut short, at line {line}, column {column}")]
    Short {
        /// Where, from 1.
        line: usize,
        /// Where, from 1.
        column: usize,
    },
    /// It is of another version.
    #[error("the recording is of version {0}, and this `orfa` reads version {VERSION}")]
    Version(String),
    /// It is something else.
    #[error("this is no recording: {0}")]
    Malformed(String),
}

impl ProgramFacts {
    pub(crate) fn of(claim: &Claim, program: &Program) -> Self {
        Self {
            media_type: claim.language.media_type().to_owned(),
            sha256: hex(&claim.hash),
            environment: program.environment().map(str::to_owned),
        }
    }
}

impl Recording {
    /// Reads a recording.
    ///
    /// # Errors
    /// What is cut short, of another version, or no recording.
    pub fn read(text: &[u8]) -> Result<Self, RecordingError> {
        /// As much as every version has.
        #[derive(Deserialize)]
        struct Versioned {
            version: Option<Value>,
        }
        let versioned: Versioned = serde_json::from_slice(text).map_err(|error| wrong(&error))?;
        match versioned.version {
            Some(version) if version == VERSION => {}
            Some(version) => return Err(RecordingError::Version(version.to_string())),
            None => return Err(RecordingError::Malformed("it has no `version`".into())),
        }
        let recording: Self = serde_json::from_slice(text).map_err(|error| wrong(&error))?;
        recording.check()?;
        Ok(recording)
    }

    /// Whether these are the bytes of the recorded program.
    #[must_use]
    pub fn is_of(&self, program: &[u8]) -> bool {
        self.program.sha256 == sha256(program)
    }

    /// The memory that the program could use, in bytes.
    #[must_use]
    pub fn memory(&self) -> u64 {
        self.limits.get("memory").copied().unwrap_or_default()
    }

    /// How many host calls it made, and how it ended, in words.
    #[must_use]
    pub fn summary(&self) -> String {
        format!("{} host calls, ended with {}", self.calls.len(), self.end)
    }

    /// That every call that ended has what came of it.
    fn check(&self) -> Result<(), RecordingError> {
        let mut ended = self.calls.iter().flat_map(|call| &call.ended);
        match ended.find(|handle| !self.responses.contains_key(handle)) {
            Some(handle) => Err(RecordingError::Malformed(format!("`responses` has no {handle}"))),
            None => Ok(()),
        }
    }
}

impl End {
    /// The same answer, or the same problem, whatever it says.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Problem { code, .. }, Self::Problem { code: other, .. }) => code == other,
            _ => self == other,
        }
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Answer { status, length, .. } => {
                write!(f, "an answer of status {status} and {length} bytes")
            }
            Self::Problem { code, .. } => write!(f, "`{code}`"),
        }
    }
}

fn wrong(error: &serde_json::Error) -> RecordingError {
    if error.is_eof() {
        return RecordingError::Short { line: error.line(), column: error.column() };
    }
    RecordingError::Malformed(error.to_string())
}

/// A hash as recordings write it.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes).into())
}
