//! "Hello world" as a query: its cost compared with a bare server that responds with a constant, and with
//! alternatives: GraphQL as in the ORFA paper's table 5, and programs on workerd. Programs in C and in
//! JavaScript, in each of the three modes; limits and access log enabled, the rivals' logs disabled. Also the
//! page faults and system calls of a query (`query/kernel.rs`).

mod kernel;

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use benches::client::{BenchClient, BenchResponse};
use benches::programs::{build_program, cache_token, program_path};
use benches::scoreboard::{BetterDirection, HeadlineScore};
use benches::stats::{median, spread};
use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use serde::Serialize;

use crate::BenchTools;
use crate::load::{LoadRound, RepeatedRequests, load};
use crate::process::{SERVER_CORE, ServerProcess, UNUSED_ADDRESS};
use crate::progress::BenchProgress;
use crate::rivals::{start_graphql, start_workerd};

const ROUNDS: usize = 8;
const ROUND: Duration = Duration::from_secs(1);
/// The number of requests before the measurement, enough for JIT compilers.
const WARM_UPS: u64 = 40_000;
const WARM_UP: Duration = Duration::from_secs(1);
/// The maximum number of warm-up rounds, on a slow machine.
const MAX_WARM_UPS: usize = 12;
const HELLO: &str = "hello world";

/// A variant of "hello world" with its server.
struct HelloVariant<'a> {
    name: &'static str,
    server: &'a ServerProcess,
    request: RepeatedPost,
}

/// A POST request that is repeated.
#[derive(Clone, Debug)]
struct RepeatedPost {
    path: &'static str,
    headers: Vec<(&'static str, String)>,
    body: Vec<u8>,
}

/// A row of the results.
#[derive(Serialize)]
#[serde(untagged)]
enum QueryResultRow {
    Round(QueryRow),
    Kernel(kernel::KernelVersion),
}

#[derive(Serialize)]
struct QueryRow {
    server: &'static str,
    round: usize,
    #[serde(flatten)]
    measured: LoadRound,
}

pub(crate) fn run(tools: &BenchTools) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let c = std::fs::read(build_program(&tools.orfa, "constant.c", folder.path())?)?;
    let javascript = std::fs::read(program_path("constant.js"))?;
    let (floor, orfa) = (
        ServerProcess::start_floor(&tools.floor)?,
        ServerProcess::start_orfa(&tools.orfa, SERVER_CORE, UNUSED_ADDRESS)?,
    );
    let (graphql, workerd) = (start_graphql(tools)?, start_workerd(tools, SERVER_CORE, &[])?);
    let (c, javascript) =
        (RepeatedPost::query("application/wasm", c), RepeatedPost::query("text/javascript", javascript));
    let mut ways = vec![
        HelloVariant { name: "floor", server: &floor, request: c.clone() },
        HelloVariant { name: "query.c", server: &orfa, request: c.clone() },
        HelloVariant { name: "query.js", server: &orfa, request: javascript.clone() },
    ];
    let kept = [
        ("query.c.code", &c, "code"),
        ("query.c.instance", &c, "instance"),
        ("query.js.code", &javascript, "code"),
        ("query.js.instance", &javascript, "instance"),
    ];
    for (name, asks, mode) in kept {
        ways.push(HelloVariant { name, server: &orfa, request: asks.with_orfa_token(&orfa, mode)? });
    }
    ways.extend(graphql.iter().map(|server| HelloVariant {
        name: "graphql",
        server,
        request: RepeatedPost::graphql(),
    }));
    if let Some(server) = &workerd {
        let asks = RepeatedPost::workerd(javascript.body);
        let by_token = asks.with_workerd_token(server)?;
        ways.push(HelloVariant { name: "workerd.program", server, request: asks });
        ways.push(HelloVariant { name: "workerd.token", server, request: by_token });
    }
    let rows = measure(tools, &ways)?;
    let (kernel, scores) = (kernel::measure(tools, &ways)?, scores(&rows));
    let rows =
        rows.into_iter().map(QueryResultRow::Round).chain(kernel.into_iter().map(QueryResultRow::Kernel));
    tools.write_results("query", &rows.collect::<Vec<_>>(), scores)
}

/// Runs rounds of all variants in turn.
fn measure(tools: &BenchTools, ways: &[HelloVariant<'_>]) -> Result<Vec<QueryRow>> {
    let rounds = tools.rounds(ROUNDS);
    let time = tools.round_time(ROUND);
    let progress = BenchProgress::new(tools, (time * rounds as u32 + 2 * WARM_UP) * ways.len() as u32);
    for variant in ways {
        variant.request.check_greeting(variant.server).with_context(|| variant.name)?;
        variant.warm_up().with_context(|| variant.name)?;
    }
    let mut rows = Vec::new();
    for round in 0..rounds {
        for HelloVariant { name, server, request: asks } in ways {
            let measured =
                load(server, RepeatedRequests::Script(&asks.lua_script()), time).with_context(|| *name)?;
            let LoadRound { per_second, cpu_us, .. } = measured;
            progress.report(&format!("{name:<17} {per_second:>9.0} requests/s  {cpu_us:>6.1} us CPU"));
            rows.push(QueryRow { server: name, round, measured });
        }
    }
    Ok(rows)
}

impl HelloVariant<'_> {
    fn warm_up(&self) -> Result<()> {
        let (script, mut requests) = (self.request.lua_script(), 0);
        for _ in 0..MAX_WARM_UPS {
            requests += load(self.server, RepeatedRequests::Script(&script), WARM_UP)?.requests;
            if requests >= WARM_UPS {
                break;
            }
        }
        Ok(())
    }
}

impl RepeatedPost {
    fn query(content_type: &str, program: Vec<u8>) -> Self {
        Self { path: "/query", headers: vec![("content-type", content_type.to_owned())], body: program }
    }

    fn graphql() -> Self {
        let headers = vec![("content-type", "application/json".to_owned())];
        Self { path: "/graphql", headers, body: br#"{"query":"{hello}"}"#.to_vec() }
    }

    fn workerd(program: Vec<u8>) -> Self {
        Self { path: "/", headers: vec![("input", "0".to_owned())], body: program }
    }

    /// Returns the request with ORFA's token in place of the program, in a mode.
    fn with_orfa_token(&self, orfa: &ServerProcess, mode: &'static str) -> Result<Self> {
        let mut first = self.clone();
        first.headers.push(("orfa-cache", mode.to_owned()));
        let mut headers = self.headers.clone();
        headers.push(("orfa-cache", cache_token(&first.send(orfa)?.headers, mode)?));
        Ok(Self { path: self.path, headers, body: Vec::new() })
    }

    /// Returns the request with workerd's token in place of the program.
    fn with_workerd_token(&self, workerd: &ServerProcess) -> Result<Self> {
        let answer = self.send(workerd)?;
        let token = answer.headers.get("token").context("workerd gave no token")?.to_str()?.to_owned();
        Ok(Self { path: self.path, headers: vec![("token", token)], body: Vec::new() })
    }

    /// Checks that the response is the greeting.
    fn check_greeting(&self, server: &ServerProcess) -> Result<()> {
        let answer = self.send(server)?;
        let text = String::from_utf8_lossy(&answer.body);
        let graphql = format!(r#"{{"data":{{"hello":"{HELLO}"}}}}"#);
        ensure!(text == HELLO || text == graphql, "the response is {} {text}", answer.status);
        Ok(())
    }

    /// Sends the request once.
    fn send(&self, server: &ServerProcess) -> Result<BenchResponse> {
        let mut request = Request::post(self.path);
        for (name, value) in &self.headers {
            request = request.header(*name, value);
        }
        let request = request.body(Full::new(Bytes::from(self.body.clone())))?;
        let client = BenchClient::new(server.address);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        Ok(runtime.block_on(client.send(request))?)
    }

    /// The request as a Lua script for wrk.
    fn lua_script(&self) -> String {
        let body: String = self.body.iter().map(|byte| format!("\\{byte:03}")).collect();
        let mut script = format!("wrk.method = 'POST'\nwrk.path = '{}'\nwrk.body = '{body}'\n", self.path);
        for (name, value) in &self.headers {
            script += &format!("wrk.headers['{name}'] = '{value}'\n");
        }
        script
    }
}

/// The headlines, without those of rivals that are not installed.
fn scores(rows: &[QueryRow]) -> Vec<(String, HeadlineScore)> {
    let over = |server, name, target| {
        let values = compare_rounds(rows, server, "floor", |ours, floor| ours - floor);
        let against =
            format!("a bare hyper server that answers a constant, {}", describe_cost(rows, "floor"));
        score(name, values, ("us", BetterDirection::Lower, target), against)
    };
    let faster = |server, name, target, rival| {
        let values = compare_rounds(rows, server, rival, |ours, theirs| theirs / ours);
        score(name, values, ("ratio", BetterDirection::Higher, target), describe_cost(rows, rival))
    };
    let cheaper = |server, name, target, rival| {
        let values = compare_rounds(rows, server, rival, |ours, theirs| ours / theirs);
        score(name, values, ("ratio", BetterDirection::Lower, target), describe_cost(rows, rival))
    };
    let scores = [
        over("query.c", "query.fresh.cpu_us_over_floor", 18.0),
        over("query.js", "query.js.cpu_us_over_floor", 80.0),
        faster("query.c", "query.base.vs_graphql", 3.5, "graphql"),
        faster("query.c.code", "query.code.vs_graphql", 4.0, "graphql"),
        faster("query.c.instance", "query.instance.vs_graphql", 7.0, "graphql"),
        faster("query.c.instance", "query.instance.vs_floor", 0.55, "floor"),
        cheaper("query.js", "query.js.program.cpu_vs_workerd", 0.5, "workerd.program"),
        cheaper("query.js.code", "query.js.token.cpu_vs_workerd", 0.5, "workerd.token"),
    ];
    scores.into_iter().flatten().collect()
}

/// A description such as `graphql: 96.0 us CPU a request`.
fn describe_cost(rows: &[QueryRow], server: &str) -> String {
    format!("{server}: {:.1} us CPU a request", median(&cpu_per_request(rows, server)))
}

/// A figure of the CPU time per request of two servers, by round.
fn compare_rounds(rows: &[QueryRow], ours: &str, theirs: &str, figure: impl Fn(f64, f64) -> f64) -> Vec<f64> {
    cpu_per_request(rows, ours)
        .iter()
        .zip(cpu_per_request(rows, theirs))
        .map(|(ours, theirs)| figure(*ours, theirs))
        .collect()
}

fn cpu_per_request(rows: &[QueryRow], server: &str) -> Vec<f64> {
    rows.iter().filter(|row| row.server == server).map(|row| row.measured.cpu_us).collect()
}

fn score(
    name: &str,
    values: Vec<f64>,
    (unit, better, target): (&str, BetterDirection, f64),
    against: String,
) -> Option<(String, HeadlineScore)> {
    let (value, spread) = (median(&values), spread(&values));
    let score = HeadlineScore { value, unit: unit.into(), better, target: Some(target), against, spread };
    (!values.is_empty()).then(|| (name.to_owned(), score))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrk_scripts_escape_any_program() {
        let asks = RepeatedPost::query("application/wasm", vec![0, b'\'', b'\n', 255]);
        assert!(asks.lua_script().contains(r"wrk.body = '\000\039\010\255'"), "{}", asks.lua_script());
    }

    #[test]
    fn missing_rivals_have_no_headline() {
        let measured = LoadRound { requests: 1, per_second: 1.0, cpu_us: 20.0 };
        let floor = LoadRound { cpu_us: 6.0, ..measured };
        let rows = [("floor", floor), ("query.c", measured)];
        let rows = rows.map(|(server, measured)| QueryRow { server, round: 0, measured });
        let scores = scores(&rows);
        let names: Vec<&str> = scores.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["query.fresh.cpu_us_over_floor"]);
        assert_eq!(scores[0].1.value, 14.0);
    }
}
