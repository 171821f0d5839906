//! The ORFA paper's table 5b: workflows per second where all processes that answer them share the servers'
//! core.

use std::time::Duration;

use anyhow::{Context, Result};
use benches::call::Call;
use serde::Serialize;

use crate::Tools;
use crate::load::{Load, load as measure};
use crate::process::Server;
use crate::progress::Progress;

const ROUNDS: usize = 2;
/// A warm-up before the rounds, for servers with a JIT compiler.
const WARM_UP: Duration = Duration::from_secs(1);

/// The speed of a service.
#[derive(Clone, Copy)]
pub(crate) enum Pace {
    /// Takes almost no time.
    Fast,
    /// Answers some tens of requests per second.
    Slow,
}

/// A round of a variant.
#[derive(Serialize)]
pub(crate) struct Row {
    busy: &'static str,
    way: String,
    round: usize,
    per_second: f64,
}

/// A variant of a workflow: the server, and all calls of one run.
pub(crate) struct Asked<'a> {
    pub(crate) way: String,
    pub(crate) server: &'a Server,
    pub(crate) calls: Vec<Call>,
}

/// Runs rounds of all variants of a workflow in turn.
pub(crate) fn rounds(
    tools: &Tools,
    progress: &Progress,
    workflow: &'static str,
    ways: &[Asked<'_>],
    pace: Pace,
) -> Result<Vec<Row>> {
    let scripts = ways.iter().map(|way| Call::script(&way.calls)).collect::<Result<Vec<_>>>()?;
    let mut rows = Vec::new();
    for round in 0..=tools.rounds(ROUNDS) {
        for (Asked { way, server, calls }, script) in ways.iter().zip(&scripts) {
            let (load, time) = match pace {
                Pace::Fast => (Load::Script(script), Duration::from_secs(2)),
                Pace::Slow => (Load::Slow(script), Duration::from_secs(3)),
            };
            let time = tools.time(if round == 0 { WARM_UP } else { time });
            let measured = measure(server, load, time).with_context(|| way.clone())?;
            let per_second = measured.per_second / calls.len() as f64;
            if round > 0 {
                progress.say(&format!("{workflow} {way:<22} {per_second:>8.1} a second"));
                rows.push(Row { busy: workflow, way: way.clone(), round, per_second });
            }
        }
    }
    Ok(rows)
}
