//! Page faults and system calls per request of a query, over a few connections. System calls are counted by
//! strace, which slows the server down so much that it would shed load over many connections; on a slow
//! machine this happens for programs in JavaScript even so. The counts are higher than without strace, since
//! periodic work such as the ticks of guests is divided by fewer requests.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use benches::process::page_faults;
use rustix::process::{Pid, Signal, kill_process};
use serde::Serialize;

use super::HelloVariant;
use crate::load::{RepeatedRequests, load};
use crate::process::ServerProcess;
use crate::{BenchTools, print_line};

const ROUND: Duration = Duration::from_secs(1);
/// The timeout for strace to attach.
const ATTACH_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Serialize)]
pub(super) struct KernelVersion {
    server: &'static str,
    page_faults: f64,
    /// `None` if strace is not installed.
    system_calls: Option<f64>,
}

/// Measures ORFA and the bare server.
pub(super) fn measure(tools: &BenchTools, ways: &[HelloVariant<'_>]) -> Result<Vec<KernelVersion>> {
    let ours = ways.iter().filter(|variant| variant.name == "floor" || variant.name.starts_with("query."));
    ours.map(|hello_variant| measure_server(tools, hello_variant).context(hello_variant.name)).collect()
}

fn measure_server(tools: &BenchTools, variant: &HelloVariant<'_>) -> Result<KernelVersion> {
    let (script, time) = (variant.request.lua_script(), tools.round_time(ROUND));
    let before = page_faults(variant.server.pid())?;
    let round = || Ok(load(variant.server, RepeatedRequests::Slow(&script), time)?.requests);
    let requests: u64 = round()?;
    let faults = page_faults(variant.server.pid())? - before;
    let page_faults = round_to_thousandth(faults as f64 / requests.max(1) as f64);
    let system_calls = count_system_calls(variant.server, round)?;
    let told =
        system_calls.map_or_else(|| "no strace".to_owned(), |calls| format!("{calls:.2} system calls"));
    print_line(&format!("  {:<17} {page_faults:.3} page faults, {told} per request", variant.name));
    Ok(KernelVersion { server: variant.name, page_faults, system_calls })
}

/// The number of system calls of a server, divided by the number of requests of some work.
fn count_system_calls(server: &ServerProcess, work: impl FnOnce() -> Result<u64>) -> Result<Option<f64>> {
    let folder = tempfile::tempdir()?;
    let table = folder.path().join("table");
    let mut strace = Command::new("strace");
    strace.args(["-c", "-f", "-q", "-p", &server.pid().to_string(), "-o"]).arg(&table);
    let Ok(mut strace) = strace.stdin(Stdio::null()).stderr(Stdio::null()).spawn() else { return Ok(None) };
    let end = Instant::now() + ATTACH_TIMEOUT;
    while !is_traced(server.pid())? {
        ensure!(strace.try_wait()?.is_none() && Instant::now() < end, "strace can't attach itself");
        std::thread::sleep(Duration::from_millis(10));
    }
    let requests = work();
    let pid = Pid::from_raw(strace.id().cast_signed()).context("no process")?;
    kill_process(pid, Signal::INT)?;
    strace.wait()?;
    let calls =
        parse_total(&std::fs::read_to_string(&table)?).context("the output of strace has no total")?;
    Ok(Some(round_to_thousandth(calls as f64 / requests?.max(1) as f64)))
}

fn is_traced(pid: u32) -> Result<bool> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let tracer = status.lines().find_map(|line| line.strip_prefix("TracerPid:"));
    Ok(tracer.is_some_and(|tracer| tracer.trim() != "0"))
}

/// The calls in the last line of strace's table.
fn parse_total(table: &str) -> Option<u64> {
    let last = table.lines().rfind(|line| line.ends_with(" total"))?;
    last.split_whitespace().nth(3)?.parse().ok()
}

/// Rounds to a thousandth.
fn round_to_thousandth(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_total_with_and_without_errors() {
        let head = "% time     seconds  usecs/call     calls    errors syscall\n";
        let line = " 50.00    0.000100           1       100        20 read\n";
        let with = format!("{head}{line}100.00    0.000200           1       200        20 total\n");
        let without = format!("{head}{line}100.00    0.000200           1       200           total\n");
        assert_eq!(
            (parse_total(&with), parse_total(&without), parse_total(head)),
            (Some(200), Some(200), None)
        );
    }
}
