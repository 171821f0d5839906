//! Load from wrk and h2load (Debian packages) on the other core, and its cost for a server.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use benches::process::ProcessUsage;
use serde::Serialize;
use tempfile::TempDir;

use crate::process::{LOAD_CORE, ServerProcess, pinned_command};

/// The number of busy connections.
pub(crate) const CONNECTIONS: u32 = 32;
/// The number of busy connections to a slow server.
const SLOW_CONNECTIONS: u32 = 4;
/// The number of connections over HTTP/2, and of concurrent requests on each.
const H2_CONNECTIONS: u32 = 4;
const H2_STREAMS: u32 = 8;
/// The timeout of wrk: a slow response is a measurement, not a failure.
const WRK_TIMEOUT: &str = "60s";
/// The maximum time for which a server may continue abandoned work, and the polling interval.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
const POLL_INTERVAL: Duration = Duration::from_millis(60);

/// A program that a request sends.
#[derive(Clone, Copy)]
pub(crate) struct SentProgram<'a> {
    pub(crate) content_type: &'a str,
    pub(crate) program: &'a Path,
}

/// The requests that are repeated.
#[derive(Clone, Copy)]
pub(crate) enum RepeatedRequests<'a> {
    /// A program, at `/query`.
    Program(SentProgram<'a>),
    /// A GET of this path.
    Get(&'a str),
    /// A GET of this path that must always be answered with an error.
    GetErrors(&'a str),
    /// Like [`Self::Get`], over HTTP/2.
    GetHttp2(&'a str),
    /// The requests of a Lua script for wrk.
    Script(&'a str),
    /// Like [`Self::Script`], for a server with some tens of responses per second: a few connections keep it
    /// busy, and little is in flight at the end.
    Slow(&'a str),
}

/// The results of a round of load.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct LoadRound {
    pub(crate) requests: u64,
    pub(crate) per_second: f64,
    pub(crate) cpu_us: f64,
}

/// Keeps a server busy with a program.
pub(crate) fn run_round(server: &ServerProcess, sent: SentProgram<'_>, time: Duration) -> Result<LoadRound> {
    load(server, RepeatedRequests::Program(sent), time)
}

/// Keeps a server busy for some whole seconds, and waits until it is idle, so that the next one has the core
/// for itself.
pub(crate) fn load(server: &ServerProcess, load: RepeatedRequests<'_>, time: Duration) -> Result<LoadRound> {
    ensure!(time.subsec_nanos() == 0, "wrk and h2load count whole seconds, and this is {time:?}");
    let before = server.usage()?;
    let requests = load.run(server, time)?;
    let after = server.usage()?;
    wait_until_idle(server)?;
    Ok(compute_round(requests, time, before, after))
}

/// Waits until a server is idle, since some finish abandoned requests.
fn wait_until_idle(server: &ServerProcess) -> Result<()> {
    let began = Instant::now();
    while began.elapsed() < IDLE_TIMEOUT {
        let before = server.usage()?.cpu;
        std::thread::sleep(POLL_INTERVAL);
        if server.usage()?.cpu.saturating_sub(before) * 5 < POLL_INTERVAL {
            return Ok(());
        }
    }
    bail!("the server is still busy {} s after it was last asked", IDLE_TIMEOUT.as_secs())
}

/// Computes the results of a round.
pub(crate) fn compute_round(
    requests: u64,
    time: Duration,
    before: ProcessUsage,
    after: ProcessUsage,
) -> LoadRound {
    let cpu = after.cpu.saturating_sub(before.cpu).as_secs_f64();
    let count = requests.max(1) as f64;
    LoadRound { requests, per_second: count / time.as_secs_f64(), cpu_us: cpu * 1e6 / count }
}

impl RepeatedRequests<'_> {
    /// Returns the number of successful requests.
    fn run(self, server: &ServerProcess, time: Duration) -> Result<u64> {
        let folder = tempfile::tempdir()?;
        let wrk =
            |path, more: &[&str], has_errors| run_wrk(server, CONNECTIONS, path, more, has_errors, time);
        match self {
            Self::Program(SentProgram { content_type, program }) => {
                let script = format!(
                    "local file = io.open('{}', 'rb')\nwrk.method = 'POST'\nwrk.body = file:read('*a')\n\
                     wrk.headers['Content-Type'] = '{content_type}'\n",
                    program.display()
                );
                wrk("/query", &["-s", &write_lua(&folder, &script)?], false)
            }
            Self::Get(path) => wrk(path, &[], false),
            Self::GetErrors(path) => wrk(path, &[], true),
            Self::Script(script) => wrk("/", &["-s", &write_lua(&folder, script)?], false),
            Self::Slow(script) => self::run_wrk(
                server,
                SLOW_CONNECTIONS,
                "/",
                &["-s", &write_lua(&folder, script)?],
                false,
                time,
            ),
            Self::GetHttp2(path) => run_h2load(server, path, time),
        }
    }
}

/// Writes a script to a file.
fn write_lua(folder: &TempDir, script: &str) -> Result<String> {
    let file = folder.path().join("load.lua");
    std::fs::write(&file, script)?;
    Ok(file.display().to_string())
}

fn run_wrk(
    server: &ServerProcess,
    connections: u32,
    path: &str,
    more: &[&str],
    has_errors: bool,
    time: Duration,
) -> Result<u64> {
    let mut command = pinned_command(LOAD_CORE, Path::new("wrk"));
    command.args([
        "-t1",
        &format!("-c{connections}"),
        &format!("-d{}s", time.as_secs()),
        "--timeout",
        WRK_TIMEOUT,
    ]);
    command.args(more).arg(format!("http://{}{path}", server.address));
    let text = command_output(command, "wrk")?;
    let requests = wrk_requests(&text).with_context(|| format!("unexpected output of wrk:\n{text}"))?;
    let errors = if has_errors { requests } else { 0 };
    if wrk_errors(&text) != errors || text.contains("Socket errors") {
        bail!("unexpected responses of the server:\n{text}");
    }
    Ok(requests)
}

fn run_h2load(server: &ServerProcess, path: &str, time: Duration) -> Result<u64> {
    let mut command = pinned_command(LOAD_CORE, Path::new("h2load"));
    command.args(["-t1", &format!("-c{H2_CONNECTIONS}"), &format!("-m{H2_STREAMS}")]);
    command.arg(format!("-D{}", time.as_secs())).arg(format!("http://{}{path}", server.address));
    let text = command_output(command, "h2load (package nghttp2-client)")?;
    if !text.contains(" 0 failed, 0 errored, 0 timeout") || !text.contains(" 0 3xx, 0 4xx, 0 5xx") {
        bail!("unexpected responses of the server:\n{text}");
    }
    h2load_requests(&text).with_context(|| format!("unexpected output of h2load:\n{text}"))
}

/// Runs a command and returns its standard output.
fn command_output(mut command: Command, name: &str) -> Result<String> {
    let output = command.output().context("`taskset` (package util-linux) does not start")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        bail!("{name} failed:\n{text}{}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(text)
}

/// Parses `  123456 requests in 5.00s, 12.3MB read`.
fn wrk_requests(text: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.contains(" requests in "))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Parses `  Non-2xx or 3xx responses: 12`.
fn wrk_errors(text: &str) -> u64 {
    let line = text.lines().find_map(|line| line.trim().strip_prefix("Non-2xx or 3xx responses: "));
    line.and_then(|count| count.trim().parse().ok()).unwrap_or(0)
}

/// Parses `status codes: 123456 2xx, 0 3xx, 0 4xx, 0 5xx`.
fn h2load_requests(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("status codes: "))?;
    line.split_whitespace().next()?.parse().ok()
}
