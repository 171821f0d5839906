//! The ORFA paper's table 5b: workflows per second where all processes that answer them share the servers'
//! core.

use std::time::Duration;

use anyhow::{Context, Result};
use benches::call::PreparedCall;
use serde::Serialize;

use crate::BenchTools;
use crate::load::{RepeatedRequests, load as measure};
use crate::process::ServerProcess;
use crate::progress::BenchProgress;

const ROUNDS: usize = 2;
/// A warm-up before the rounds, for servers with a JIT compiler.
const WARM_UP: Duration = Duration::from_secs(1);

/// The speed of a service.
#[derive(Clone, Copy)]
pub(crate) enum ServiceSpeed {
    /// Takes almost no time.
    Fast,
    /// Answers some tens of requests per second.
    Slow,
}

/// A round of a variant.
#[derive(Serialize)]
pub(crate) struct BusyRow {
    busy: &'static str,
    way: String,
    round: usize,
    per_second: f64,
}

/// A variant of a workflow: the server, and all calls of one run.
pub(crate) struct WorkflowVariant<'a> {
    pub(crate) way: String,
    pub(crate) server: &'a ServerProcess,
    pub(crate) calls: Vec<PreparedCall>,
}

/// Runs rounds of all variants of a workflow in turn.
pub(crate) fn run_rounds(
    tools: &BenchTools,
    progress: &BenchProgress,
    workflow: &'static str,
    ways: &[WorkflowVariant<'_>],
    pace: ServiceSpeed,
) -> Result<Vec<BusyRow>> {
    let scripts =
        ways.iter().map(|variant| PreparedCall::lua_script(&variant.calls)).collect::<Result<Vec<_>>>()?;
    let mut rows = Vec::new();
    for round in 0..=tools.rounds(ROUNDS) {
        for (WorkflowVariant { way, server, calls }, script) in ways.iter().zip(&scripts) {
            let (load, time) = match pace {
                ServiceSpeed::Fast => (RepeatedRequests::Script(script), Duration::from_secs(2)),
                ServiceSpeed::Slow => (RepeatedRequests::Slow(script), Duration::from_secs(3)),
            };
            let time = tools.round_time(if round == 0 { WARM_UP } else { time });
            let measured = measure(server, load, time).with_context(|| way.clone())?;
            let per_second = measured.per_second / calls.len() as f64;
            if round > 0 {
                progress.report(&format!("{workflow} {way:<22} {per_second:>8.1} a second"));
                rows.push(BusyRow { busy: workflow, way: way.clone(), round, per_second });
            }
        }
    }
    Ok(rows)
}
