//! Writes a recording while its program runs, and keeps it within its size.

use std::collections::BTreeMap;

use bytes::Bytes;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use services::{CallError, Caller, Problem, Response};

use super::{Data, End, HostCall, ProgramFacts, Received, Recording, VERSION, sha256};
use crate::ask::Ask;
use crate::guest::{Access, Answer};
use crate::host;
use crate::limits::Limits;
use crate::problem::QueryError;

/// What everything in a recording takes at least beside its bytes: names, quotes, braces.
const ITEM: u64 = 32;

/// Who may have runs of a query route recorded, and how much of them.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Recordings {
    /// The callers, by name; `anyone` for everybody. A recording holds nothing that its program could not have
    /// answered with, so a caller learns from it what it could ask for anyway.
    #[schemars(length(min = 1))]
    pub callers: Vec<String>,
    /// The keys whose signed programs may be recorded, by name; those of others answer only what they answer. Stored programs
    /// are never recorded.
    #[serde(default)]
    pub keys: Vec<String>,
    /// Bytes of a recording. A run that needs more ends with `recording-too-large`.
    #[serde(default = "size")]
    pub size: services::Bytes,
}

/// Every caller, in [`Recordings::callers`].
pub const ANYONE: &str = "anyone";

fn size() -> services::Bytes {
    services::Bytes(4 << 20)
}

impl Recordings {
    /// Whether a run of this caller's may be recorded, of a program that this key signed or nobody did.
    pub(crate) fn allow(&self, caller: &Caller, key: Option<&str>) -> Result<(), QueryError> {
        let is_caller = self.callers.iter().any(|name| match caller {
            _ if name == ANYONE => true,
            Caller::Named(caller) => **caller == **name,
            Caller::Subject(_) | Caller::Anonymous => false,
        });
        let is_open = key.is_none_or(|key| self.keys.iter().any(|name| name == key));
        match (is_caller, is_open) {
            (true, true) => Ok(()),
            (true, false) => Err(QueryError::RecordingProgram),
            (false, _) => Err(QueryError::RecordingCaller),
        }
    }
}

/// A recording that is being written.
pub(crate) struct Recorder {
    recording: Recording,
    /// How large it may become, and how large it is at least.
    limit: u64,
    size: u64,
    /// The program is inside of the last host function.
    inside: bool,
}

impl Recorder {
    pub(crate) fn new(program: ProgramFacts, ask: &Ask, access: &Access, limits: &Limits, size: u64) -> Self {
        let recording = Recording {
            version: VERSION,
            program,
            services: access.names.split_terminator(',').map(str::to_owned).collect(),
            methods: access.methods.iter().map(ToString::to_string).collect(),
            safe_only: ask.safe_only,
            limits: limits.words().map(|(word, value)| (word.to_owned(), value)).collect(),
            input: Data(ask.input.clone()),
            calls: Vec::new(),
            responses: BTreeMap::new(),
            end: End::Answer { status: 200, headers: Data::default(), length: 0, sha256: String::new() },
        };
        Self { recording, limit: size, size: ask.input.len() as u64, inside: false }
    }

    /// Counts what is about to be kept.
    pub(super) fn fits(&mut self, bytes: usize) -> Result<(), QueryError> {
        self.size = self.size.saturating_add(bytes as u64).saturating_add(ITEM);
        if self.size > self.limit { Err(QueryError::RecordingSize(self.limit)) } else { Ok(()) }
    }

    pub(super) fn called(&mut self, function: &str, with: Value) -> Result<(), QueryError> {
        self.fits(function.len())?;
        self.inside = true;
        let call = HostCall { function: function.to_owned(), with, ..HostCall::default() };
        self.recording.calls.push(call);
        Ok(())
    }

    /// A call to a service ended.
    pub(super) fn ended(
        &mut self,
        handle: i32,
        result: &Result<Response, CallError>,
    ) -> Result<(), QueryError> {
        let received = match result {
            Ok(response) => {
                let headers = host::header_text(&response.headers);
                self.fits(headers.len().saturating_add(response.body.len()))?;
                let (headers, body) = (Data(headers.into()), Data(response.body.clone()));
                Received::Answer { status: response.status.as_u16(), headers, body }
            }
            Err(error) => Received::Error(host::code(error) as i32),
        };
        self.recording.responses.insert(handle, received);
        self.last(|call| call.ended.push(handle));
        Ok(())
    }

    /// The host function gave these bytes of a response's body, or others.
    pub(super) fn gives(&mut self, bytes: &[u8], body: &[u8]) -> Result<(), QueryError> {
        let part = part(bytes, body);
        self.fits(if part.is_some() { 0 } else { bytes.len() })?;
        let data = part.is_none().then(|| Data(Bytes::copy_from_slice(bytes)));
        self.last(|call| (call.part, call.data) = (part, data));
        Ok(())
    }

    pub(super) fn gave(&mut self, result: Option<i64>) {
        self.inside = false;
        self.last(|call| call.result = result);
    }

    fn last(&mut self, note: impl FnOnce(&mut HostCall)) {
        if let Some(call) = self.recording.calls.last_mut() {
            note(call);
        }
    }

    /// The document, when the run is over.
    pub(crate) fn finish(
        mut self,
        result: Result<(), &QueryError>,
        answer: &Answer,
    ) -> Result<Bytes, QueryError> {
        self.recording.end = match result {
            Ok(()) => End::of(answer),
            Err(error) => End::failed(error, self.inside),
        };
        let text = serde_json::to_vec(&self.recording);
        let text = text.map_err(|error| QueryError::Gateway(error.to_string()))?;
        if text.len() as u64 > self.limit {
            return Err(QueryError::RecordingSize(self.limit));
        }
        Ok(text.into())
    }
}

impl End {
    pub(crate) fn of(answer: &Answer) -> Self {
        let body = answer.body.as_deref().unwrap_or_default();
        Self::Answer {
            status: answer.status.map_or(200, |status| status.as_u16()),
            headers: Data(host::header_text(&answer.headers).into()),
            length: body.len(),
            sha256: sha256(body),
        }
    }

    pub(crate) fn failed(error: &QueryError, inside: bool) -> Self {
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

/// Where bytes stand in a body that they were not copied from.
fn part(bytes: &[u8], body: &[u8]) -> Option<(usize, usize)> {
    let start = bytes.as_ptr().addr().checked_sub(body.as_ptr().addr())?;
    let inside = start.checked_add(bytes.len()).is_some_and(|end| end <= body.len());
    (inside && !bytes.is_empty()).then_some((start, bytes.len()))
}
