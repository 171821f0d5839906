//! Replays a recorded run, with the recording in place of services, clock and random numbers.
//!
//! A replay uses the same `run`, host functions and limits as a request; only external data comes from the
//! recording, at the host call where the program received it (`record/replay_state.rs`). It therefore
//! produces the same bytes, or ends at the same host call, and any divergence is reported with its position.
//! A program that was changed after the recording can be replayed as well, as long as it makes the recorded
//! requests.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use offload::OffloadPool;
use serde_json::json;
use services::{RequestCall, ServiceConfig, ServiceSet, ToProblem};

use super::run::{ExecutionSlot, RunResult, run};
use crate::config::{QueryConfig, QueryLimitsConfig};
use crate::host::{AnswerBuilder, QueryGuest};
use crate::limits::{LimitKind, RunLimits};
use crate::problem::{QueryError, ReplayStop};
use crate::program::{CallPermissions, ProgramLanguage};
use crate::record::{HostCallMode, ReplayState, RunEnd, RunRecording};
use crate::runtime::{QueryRuntime, to_javascript};

/// The factor by which the CPU limit is raised, since this machine may be slower or busy.
const CPU_LIMIT_FACTOR: u64 = 20;
/// The deadline of a replay in milliseconds. A replay never waits for a service.
const REPLAY_DEADLINE_MILLIS: u64 = 600_000;

/// The result of a replay.
#[derive(Debug)]
pub struct ReplayResult {
    /// The end of the run.
    pub end: ReplayEnd,
    /// Whether the recorded run ended in the same way. Always true for the recorded program.
    pub is_same_end: bool,
    /// The end of the program's console output.
    pub console: String,
    /// The number of host calls.
    pub calls: usize,
}

/// The end of a replayed run.
#[derive(Debug)]
pub enum ReplayEnd {
    /// The program's answer.
    Answer {
        /// The status.
        status: StatusCode,
        /// The headers that the program set.
        headers: HeaderMap,
        /// The body.
        body: Bytes,
    },
    /// A problem.
    Problem {
        /// The problem's code.
        code: String,
        /// The message.
        detail: String,
        /// The line and column in the program, from 1, if known.
        position: Option<(u32, u32)>,
    },
}

/// An error of a replay.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The program diverged from the recording.
    #[error("{0}")]
    Diverged(String),
    /// The program can't run.
    #[error("{detail}")]
    Program {
        /// The code of the problem that a gateway would respond with.
        code: &'static str,
        /// The message.
        detail: String,
    },
    /// The recording is invalid.
    #[error("{0}")]
    Malformed(String),
}

impl RunRecording {
    /// Runs a program against this recording.
    ///
    /// # Errors
    /// A program that can't run, or that diverges from the recording.
    pub async fn replay(
        self,
        runtime: &Arc<QueryRuntime>,
        language: ProgramLanguage,
        program: Bytes,
    ) -> Result<ReplayResult, ReplayError> {
        let exact = self.is_recording_of(&program);
        let end = self.end.clone();
        let cached_program =
            runtime.compile_stored(language, &program).map_err(|error| program_error(&error))?;
        let program = &cached_program.program;
        let (mut guest, input) = (replay_guest(&self, runtime.offload().clone())?, self.input.0.clone());
        guest.tape = HostCallMode::Replaying(Box::new(ReplayState::new(self, exact)));
        let client = guest.call.quota_key();
        let slot = ExecutionSlot::new(runtime, program, guest, None, None);
        let result = run(runtime, program, client, slot, &input, false).await;
        compare_end(result, end, exact)
    }
}

/// Converts a program in JavaScript or TypeScript to JavaScript, with every token in its original position.
///
/// # Errors
/// Syntax errors, and bytes that are not UTF-8.
pub fn convert_to_javascript(language: ProgramLanguage, source: &[u8]) -> Result<Arc<str>, ReplayError> {
    to_javascript(language, source, drop).map_err(|error| program_error(&error))
}

/// Returns the recorded limits, with raised time limits.
fn replay_limits(words: &BTreeMap<String, u64>) -> Result<RunLimits, ReplayError> {
    let mut limits = RunLimits::from_config(&QueryLimitsConfig::default());
    for limit in LimitKind::ALL {
        let value = words.get(limit.word()).copied();
        let missing = || ReplayError::Malformed(format!("`limits` has no `{}`", limit.word()));
        limits = limits.with_value(limit, value.ok_or_else(missing)?);
    }
    let cpu = limits.value(LimitKind::Cpu).saturating_mul(CPU_LIMIT_FACTOR).min(REPLAY_DEADLINE_MILLIS);
    Ok(limits.with_value(LimitKind::Cpu, cpu).with_value(LimitKind::Deadline, REPLAY_DEADLINE_MILLIS))
}

/// Creates a guest whose services exist by name only: no requests are sent.
fn replay_guest(recording: &RunRecording, offload: OffloadPool) -> Result<QueryGuest, ReplayError> {
    let malformed = |what: String| ReplayError::Malformed(what);
    let nowhere = |name: &String| {
        let config: Result<ServiceConfig, _> =
            serde_json::from_value(json!({ "url": "http://recorded.invalid" }));
        config.map(|config| (name.clone(), config)).map_err(|error| malformed(error.to_string()))
    };
    let config: BTreeMap<_, _> = recording.services.iter().map(nowhere).collect::<Result<_, _>>()?;
    let services = ServiceSet::new(&config).map_err(|problems| malformed(first_message(&problems)))?;
    let route = json!({ "services": recording.services, "methods": recording.methods });
    let route: QueryConfig = serde_json::from_value(route).map_err(|error| malformed(error.to_string()))?;
    let mut problems = Vec::new();
    let access = Arc::new(CallPermissions::from_config(&route, &services, &mut problems));
    if !problems.is_empty() {
        return Err(malformed(first_message(&problems)));
    }
    let limits = replay_limits(&recording.limits)?;
    let call = RequestCall {
        budget: Arc::new(limits.call_limits().new_budget(std::time::Instant::now())),
        ..RequestCall::unlimited()
    };
    Ok(QueryGuest::new(access, call, offload, limits, recording.safe_only))
}

fn first_message(problems: &[diagnostics::Diagnostic]) -> String {
    problems.first().map_or_else(String::new, |problem| problem.message.clone())
}

fn program_error(error: &QueryError) -> ReplayError {
    ReplayError::Program { code: error.code(), detail: error.to_string() }
}

/// Compares the end of a run with the recorded one.
fn compare_end(result: RunResult, recorded: RunEnd, exact: bool) -> Result<ReplayResult, ReplayError> {
    let HostCallMode::Replaying(player) = result.tape else {
        return Err(ReplayError::Malformed("the recording is missing".into()));
    };
    let (calls, rest) = player.progress();
    let over = matches!(&result.result, Err(QueryError::Replay(ReplayStop::RecordedEnd)));
    let end = match &result.result {
        Ok(()) => result.answer.to_run_end(),
        Err(QueryError::Replay(ReplayStop::RecordedEnd)) => recorded.clone(),
        Err(QueryError::Replay(stop)) => return Err(ReplayError::Diverged(stop.to_string())),
        Err(error) => RunEnd::from_error(error, false),
    };
    let same = over || (rest == 0 && end.is_equivalent(&recorded));
    if exact && !same {
        let diverged = format!("the run ended with {end}, the recorded one with {recorded}");
        return Err(ReplayError::Diverged(diverged));
    }
    Ok(ReplayResult {
        end: to_replay_end(end, result.answer),
        is_same_end: same,
        console: result.console.into_text(),
        calls,
    })
}

fn to_replay_end(end: RunEnd, answer: AnswerBuilder) -> ReplayEnd {
    match end {
        RunEnd::Answer { .. } => ReplayEnd::Answer {
            status: answer.status.unwrap_or_default(),
            headers: answer.headers,
            body: answer.body.unwrap_or_default(),
        },
        RunEnd::Problem { code, detail, line, column, .. } => {
            ReplayEnd::Problem { code, detail, position: line.zip(column) }
        }
    }
}
