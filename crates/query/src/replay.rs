//! A recorded run once more: the same program, with a recording in the place of services, clock and chance.
//!
//! It goes through the same `run`, host functions and limits; only what came from outside comes from the
//! recording, at the host call where the program saw it (`player.rs`). So it reaches the same bytes, or ends at
//! the same host call, and if it does not, that is told with its place. A program that was changed since can
//! be run as well, as long as it asks for what was recorded.

mod player;

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use offload::OffloadPool;
use serde_json::json;
use services::{Call, Problem, ServiceConfig, Services};

use crate::ask::Language;
use crate::config::QueryConfig;
use crate::guest::{Answer, Guest};
use crate::limits::{Limit, Limits};
use crate::problem::QueryError;
use crate::record::{End, Recording, Tape};
use crate::route;
use crate::run::{Ended, Stage, run};
use crate::runtime::Runtime;

pub(crate) use player::{Player, Stop};

/// How much more CPU time a replay may take: this machine may be slower, and is not a gateway's alone.
const SLOWER: u64 = 20;
/// How long a replay may take, in milliseconds. It waits for nobody.
const DEADLINE: u64 = 600_000;

/// A run that was replayed.
#[derive(Debug)]
pub struct Replay {
    /// How it ended.
    pub end: Replayed,
    /// Whether that is how the recorded run ended. It always is when the program is the recorded one.
    pub same: bool,
    /// The last that the program logged.
    pub console: String,
    /// How many host calls it made.
    pub calls: usize,
}

/// How a replayed run ended.
#[derive(Debug)]
pub enum Replayed {
    /// With an answer.
    Answer {
        /// Its status.
        status: StatusCode,
        /// The headers that the program set.
        headers: HeaderMap,
        /// Its body.
        body: Bytes,
    },
    /// With a problem.
    Problem {
        /// Its code.
        code: String,
        /// What it says.
        detail: String,
        /// The line in the program where it has one, from 1, and the column.
        place: Option<(u32, u32)>,
    },
}

/// Why a recording can't be replayed with a program.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The program did something else than what is recorded.
    #[error("{0}")]
    Diverged(String),
    /// The program can't be run at all.
    #[error("{detail}")]
    Program {
        /// The code of the problem that a gateway would answer with.
        code: &'static str,
        /// What is wrong.
        detail: String,
    },
    /// The recording names what can't be.
    #[error("{0}")]
    Malformed(String),
}

impl Recording {
    /// Runs a program as this recording says.
    ///
    /// # Errors
    /// A program that can't be run, or that does something else than what is recorded.
    pub async fn replay(
        self,
        runtime: &Arc<Runtime>,
        language: Language,
        program: Bytes,
    ) -> Result<Replay, ReplayError> {
        let exact = self.is_of(&program);
        let end = self.end.clone();
        let known = runtime.stored(language, &program).map_err(|error| unfit(&error))?;
        let program = &known.program;
        let (mut guest, input) = (guest(&self, runtime.offload().clone())?, self.input.0.clone());
        guest.tape = Tape::Plays(Box::new(Player::new(self, exact)));
        let stage = Stage::new(runtime, program, guest, None, None);
        let ended = run(runtime, program, stage, &input, None).await;
        judge(ended, end, exact)
    }
}

/// The JavaScript of a program in JavaScript or TypeScript, every token at its place.
///
/// # Errors
/// What does not parse, or is no text.
pub fn javascript(language: Language, source: &[u8]) -> Result<Arc<str>, ReplayError> {
    crate::program::javascript(language, source, drop).map_err(|error| unfit(&error))
}

/// The recorded limits, but for those of time.
fn limits(words: &BTreeMap<String, u64>) -> Result<Limits, ReplayError> {
    let mut limits = Limits::caps(&crate::config::LimitsConfig::default());
    for limit in Limit::ALL {
        let value = words.get(limit.word()).copied();
        let missing = || ReplayError::Malformed(format!("`limits` has no `{}`", limit.word()));
        limits = limits.with(limit, value.ok_or_else(missing)?);
    }
    let cpu = limits.value(Limit::Cpu).saturating_mul(SLOWER).min(DEADLINE);
    Ok(limits.with(Limit::Cpu, cpu).with(Limit::Deadline, DEADLINE))
}

/// A guest whose services are names and no more: nothing is sent to them.
fn guest(recording: &Recording, offload: OffloadPool) -> Result<Guest, ReplayError> {
    let malformed = |what: String| ReplayError::Malformed(what);
    let nowhere = |name: &String| {
        let config: Result<ServiceConfig, _> =
            serde_json::from_value(json!({ "url": "http://recorded.invalid" }));
        config.map(|config| (name.clone(), config)).map_err(|error| malformed(error.to_string()))
    };
    let config: BTreeMap<_, _> = recording.services.iter().map(nowhere).collect::<Result<_, _>>()?;
    let services = Services::new(&config).map_err(|problems| malformed(first(&problems)))?;
    let route = json!({ "services": recording.services, "methods": recording.methods });
    let route: QueryConfig = serde_json::from_value(route).map_err(|error| malformed(error.to_string()))?;
    let mut problems = Vec::new();
    let access = Arc::new(route::access(&route, &services, &mut problems));
    if !problems.is_empty() {
        return Err(malformed(first(&problems)));
    }
    let limits = limits(&recording.limits)?;
    let call = Call {
        budget: Arc::new(crate::run::budget(&limits, std::time::Instant::now())),
        ..Call::unlimited()
    };
    Ok(Guest::new(access, call, offload, limits, recording.safe_only))
}

fn first(problems: &[services::ConfigProblem]) -> String {
    problems.first().map_or_else(String::new, |problem| problem.message.clone())
}

fn unfit(error: &QueryError) -> ReplayError {
    ReplayError::Program { code: error.code(), detail: error.to_string() }
}

/// Compares an end with the recorded one.
fn judge(ended: Ended, recorded: End, exact: bool) -> Result<Replay, ReplayError> {
    let Tape::Plays(player) = ended.tape else {
        return Err(ReplayError::Malformed("the recording is gone".into()));
    };
    let (calls, rest) = player.place();
    let over = matches!(&ended.result, Err(QueryError::Replay(Stop::Over)));
    let end = match &ended.result {
        Ok(()) => End::of(&ended.answer),
        Err(QueryError::Replay(Stop::Over)) => recorded.clone(),
        Err(QueryError::Replay(stop)) => return Err(ReplayError::Diverged(stop.to_string())),
        Err(error) => End::failed(error, false),
    };
    let same = over || (rest == 0 && end.is_like(&recorded));
    if exact && !same {
        let diverged = format!("the run ended with {end}, the recorded one with {recorded}");
        return Err(ReplayError::Diverged(diverged));
    }
    Ok(Replay { end: replayed(end, ended.answer), same, console: ended.console.into_text(), calls })
}

fn replayed(end: End, answer: Answer) -> Replayed {
    match end {
        End::Answer { .. } => Replayed::Answer {
            status: answer.status.unwrap_or_default(),
            headers: answer.headers,
            body: answer.body.unwrap_or_default(),
        },
        End::Problem { code, detail, line, column, .. } => {
            Replayed::Problem { code, detail, place: line.zip(column) }
        }
    }
}
