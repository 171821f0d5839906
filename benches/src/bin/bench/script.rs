//! S services: the cost of a handler next to the same in Fastify with undici and in Bun, of the paper's case
//! studies next to the same programs on a cluster of Node, of state, the capacity for connections, and the
//! time of the compiler. CPU time is that of all processes of a server. `curves` draws the paper's figures 2
//! to 4.

mod cases;
mod compile;
mod connections;
pub(crate) mod curves;
mod handlers;
mod servers;
mod state;

use std::time::Duration;

use anyhow::Result;
use serde::Serialize;

use crate::BenchTools;
use crate::process::ServerProcess;
use crate::progress::BenchProgress;

/// The approximate duration of the whole bench.
const EXPECTED_DURATION: Duration = Duration::from_secs(170);

#[derive(Serialize)]
#[serde(untagged)]
enum ScriptRow {
    Handler(handlers::HandlersRow),
    Case(cases::CaseStudyRow),
    Commits(state::CommitRates),
    Appends(state::AppendRates),
    Connections(connections::ConnectionsRow),
}

pub(crate) fn run(tools: &BenchTools) -> Result<()> {
    let progress = BenchProgress::new(tools, tools.round_time(EXPECTED_DURATION));
    let upstream = ServerProcess::start_upstream(&tools.upstream)?;
    let (mut rows, mut scores) = (Vec::new(), vec![compile::run(&progress)?]);
    let (measured, headlines) = handlers::run(tools, upstream.address, &progress)?;
    rows.extend(measured.into_iter().map(ScriptRow::Handler));
    scores.extend(headlines);
    let (measured, headlines) = cases::run(tools, upstream.address, &progress)?;
    rows.extend(measured.into_iter().map(ScriptRow::Case));
    scores.extend(headlines);
    let (measured, headlines) = connections::run(tools, upstream.address, &progress)?;
    rows.push(ScriptRow::Connections(measured));
    scores.extend(headlines);
    let (commits, headline) = state::measure_commits(tools, &progress)?;
    rows.extend(commits.into_iter().map(ScriptRow::Commits));
    scores.push(headline);
    let (appends, headline) = state::measure_appends(tools, &progress)?;
    rows.extend(appends.into_iter().map(ScriptRow::Appends));
    scores.push(headline);
    tools.write_results("script", &rows, scores)
}
