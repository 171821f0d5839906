//! The cost of state: increments of one counter by many clients, with both durabilities; and an append to a
//! long list compared with one to a short list.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use benches::client::BenchClient;
use benches::programs::program_path;
use benches::scoreboard::{BetterDirection, HeadlineScore};
use benches::stats::{median, spread};
use bytes::Bytes;
use http::{Method, Request};
use http_body_util::Full;
use serde::Serialize;

use super::servers::ScriptGateway;
use crate::load::{LoadRound, RepeatedRequests, load};
use crate::process::{ServerProcess, UNUSED_ADDRESS};
use crate::progress::BenchProgress;
use crate::ratios::{NamedScore, at_most, ratio};
use crate::{BenchTools, open_loop};

const ROUNDS: usize = 3;
const ROUND: Duration = Duration::from_secs(2);
const WARM_UP: Duration = Duration::from_secs(2);
const INCREMENT: &str = "wrk.method = 'POST'\nwrk.path = '/count'\n";
const SHORT: u64 = 100;
const LONG: u64 = 100_000;
/// The number of appends to a list before it is recreated.
const APPENDS: u64 = 400;
const TURNS: usize = 8;

#[derive(Serialize)]
pub(super) struct CommitRates {
    durability: &'static str,
    round: usize,
    commits: u64,
    per_second: f64,
    cpu_us: f64,
}

#[derive(Serialize)]
pub(super) struct AppendRates {
    length: u64,
    appends: u64,
    cpu_us: f64,
}

/// Measures increments with both durabilities in turns, and checks that no acknowledged increment is lost.
pub(super) fn measure_commits(
    tools: &BenchTools,
    progress: &BenchProgress,
) -> Result<(Vec<CommitRates>, NamedScore)> {
    let start = |durability| {
        ScriptGateway { durability, ..ScriptGateway::new(program_path("state.sjs"), UNUSED_ADDRESS) }
            .start(tools)
    };
    let servers = [("process", start("process")?), ("machine", start("machine")?)];
    let (mut rows, mut answered) = (Vec::new(), [0; 2]);
    for (place, (name, server)) in servers.iter().enumerate() {
        answered[place] += load(server, RepeatedRequests::Script(INCREMENT), tools.round_time(WARM_UP))
            .context(*name)?
            .requests;
    }
    for round in 0..tools.rounds(ROUNDS) {
        for (place, (durability, server)) in servers.iter().enumerate() {
            let measured = load(server, RepeatedRequests::Script(INCREMENT), tools.round_time(ROUND))
                .context(*durability)?;
            let LoadRound { requests: commits, per_second, cpu_us } = measured;
            progress.report(&format!("{durability}: {per_second:>6.0} commits/s  {cpu_us:>6.1} us CPU"));
            answered[place] += commits;
            rows.push(CommitRates { durability, round, commits, per_second, cpu_us });
        }
    }
    for ((name, server), answered) in servers.iter().zip(answered) {
        let kept: u64 = send_request(server.address, Method::GET, "/count")?.parse()?;
        ensure!(kept >= answered, "{name}: {answered} increments were acknowledged, but {kept} are stored");
    }
    let of = |durability| -> Vec<f64> {
        rows.iter().filter(|row| row.durability == durability).map(|row| row.per_second).collect()
    };
    let (process, machine) = (of("process"), median(&of("machine")));
    let score = HeadlineScore {
        value: median(&process),
        unit: "commits a second".into(),
        better: BetterDirection::Higher,
        target: Some(5_000.0),
        against: format!("32 clients, one counter, durability process; machine: {machine:.0}"),
        spread: spread(&process),
    };
    Ok((rows, ("script.state.commits_per_s".into(), score)))
}

/// Measures appends to both lists in turns. The appends of a turn are measured together, since the system
/// counts CPU time in steps.
pub(super) fn measure_appends(
    tools: &BenchTools,
    progress: &BenchProgress,
) -> Result<(Vec<AppendRates>, NamedScore)> {
    let server = ScriptGateway::new(program_path("state.sjs"), UNUSED_ADDRESS).start(tools)?;
    append_cpu_us(&server, SHORT)?;
    let (mut short, mut long) = (Vec::new(), Vec::new());
    for _ in 0..tools.rounds(TURNS) {
        short.push(append_cpu_us(&server, SHORT)?);
        long.push(append_cpu_us(&server, LONG)?);
    }
    let row = |length, cpu: &[f64]| AppendRates {
        length,
        appends: APPENDS * cpu.len() as u64,
        cpu_us: median(cpu),
    };
    let rows = vec![row(SHORT, &short), row(LONG, &long)];
    let [few, many] = [&rows[0], &rows[1]].map(|row| row.cpu_us);
    progress.report(&format!("an append to {SHORT} entries: {few:.1} us CPU, to {LONG}: {many:.1} us"));
    let against = format!("an append to a list of {SHORT} entries: {few:.1} us CPU");
    let headline = ratio("script.state.append_ratio", &long, &short, at_most(2.0), against);
    Ok((rows, headline.context("no turn was measured")?))
}

/// Appends to a list of this length. Returns the CPU time of each append in microseconds.
fn append_cpu_us(server: &ServerProcess, length: u64) -> Result<f64> {
    send_request(server.address, Method::PUT, &format!("/list?length={length}"))?;
    let before = server.usage()?;
    let appended = open_loop::run(async {
        let client = BenchClient::new(server.address);
        for _ in 0..APPENDS {
            let answer = client.send(Request::post("/list").body(Full::<Bytes>::default())?).await?;
            ensure!(answer.status == 204, "an append was answered {}", answer.status);
        }
        Ok(())
    })?;
    appended?;
    let cpu = server.usage()?.cpu.saturating_sub(before.cpu);
    let kept: u64 = send_request(server.address, Method::GET, "/list")?.parse()?;
    ensure!(kept == length + APPENDS, "the list has {kept} entries");
    Ok(cpu.as_secs_f64() * 1e6 / APPENDS as f64)
}

fn send_request(server: SocketAddr, method: Method, path: &str) -> Result<String> {
    let request = Request::builder().method(method).uri(path).body(Full::<Bytes>::default())?;
    let answer = open_loop::run(async { BenchClient::new(server).send(request).await })??;
    let text = String::from_utf8_lossy(&answer.body).into_owned();
    ensure!(answer.status.is_success(), "{path}: {} {text}", answer.status);
    Ok(text)
}
