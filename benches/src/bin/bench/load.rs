//! Load by wrk (Debian's package) from the other core, and what it did to a server.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use benches::process::Usage;
use serde::Serialize;

use crate::process::Server;

/// The core of the load.
const LOAD_CORE: &str = "1";
/// Connections that are kept busy.
const CONNECTIONS: u32 = 32;

/// A program as a request sends it.
#[derive(Clone, Copy)]
pub(crate) struct Sent<'a> {
    pub(crate) content_type: &'a str,
    pub(crate) program: &'a Path,
}

/// What a round of load cost.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Round {
    pub(crate) requests: u64,
    pub(crate) per_second: f64,
    pub(crate) cpu_us: f64,
}

/// Keeps a server busy for a while.
pub(crate) fn round(server: &Server, sent: Sent<'_>, time: Duration) -> Result<Round> {
    let before = server.usage()?;
    let requests = wrk(server, sent, time)?;
    let after = server.usage()?;
    Ok(measured(requests, time, before, after))
}

fn measured(requests: u64, time: Duration, before: Usage, after: Usage) -> Round {
    let cpu = after.cpu.saturating_sub(before.cpu).as_secs_f64();
    let count = requests.max(1) as f64;
    Round { requests, per_second: count / time.as_secs_f64(), cpu_us: cpu * 1e6 / count }
}

/// Runs wrk; the number of requests that were answered well.
fn wrk(server: &Server, sent: Sent<'_>, time: Duration) -> Result<u64> {
    let folder = tempfile::tempdir()?;
    let script = folder.path().join("post.lua");
    let program = sent.program.display();
    std::fs::write(
        &script,
        format!(
            "local file = io.open('{program}', 'rb')\nwrk.method = 'POST'\nwrk.body = file:read('*a')\n\
             wrk.headers['Content-Type'] = '{}'\n",
            sent.content_type
        ),
    )?;
    let output = Command::new("taskset")
        .args([
            "-c",
            LOAD_CORE,
            "wrk",
            "-t1",
            &format!("-c{CONNECTIONS}"),
            &format!("-d{}s", time.as_secs()),
            "-s",
        ])
        .arg(&script)
        .arg(format!("http://{}/query", server.address))
        .output()
        .context("wrk does not start: it is Debian's package `wrk`")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if text.contains("Non-2xx") || !output.status.success() {
        bail!("the server did not answer well:\n{text}{}", String::from_utf8_lossy(&output.stderr));
    }
    requests(&text).with_context(|| format!("wrk said:\n{text}"))
}

/// `  123456 requests in 5.00s, 12.3MB read`
fn requests(text: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.contains(" requests in "))?;
    line.split_whitespace().next()?.parse().ok()
}
