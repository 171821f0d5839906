//! The reverse proxy next to nginx and Envoy: requests per second of CPU, user and system, of all their
//! processes. Each has one worker, kept connections to the same service, and an access log with equivalent
//! lines in a file. Rounds alternate.

use std::time::Duration;

use anyhow::{Context, Result};
use benches::scoreboard::{Better, Score};
use benches::stats::{median, percentile, spread};
use http::Request;
use serde::Serialize;

use crate::Tools;
use crate::awake::Awake;
use crate::load::{Load, Round, load};
use crate::open;
use crate::process::Server;
use crate::progress::Progress;
use crate::rivals::{Proxy, Speaks};

/// A case: its name in the rows, the protocol, the load, and the number of rounds.
type Case = (&'static str, Speaks, Load<'static>, usize);

const HEADLINE: &str = "http1, 1 KB";
const CASES: [Case; 3] = [
    (HEADLINE, Speaks::Http1, Load::Get("/small"), 5),
    ("http2, 1 KB", Speaks::Http2, Load::GetHttp2("/small"), 3),
    ("http1, 100 KB", Speaks::Http1, Load::Get("/large"), 3),
];
/// The load that never sleeps: its name in the rows, and the number of rounds.
const AWAKE: &str = "http1, 1 KB, awake";
const AWAKE_ROUNDS: usize = 3;
const ROUND: Duration = Duration::from_secs(2);
const WARM_UP: Duration = Duration::from_secs(1);
/// A rate at which no server is busy.
const CALM: f64 = 500.0;

#[derive(Serialize)]
#[serde(untagged)]
enum Row {
    Busy {
        server: &'static str,
        asked: &'static str,
        round: usize,
        requests: u64,
        per_second: f64,
        per_cpu_second: f64,
    },
    Calm {
        server: &'static str,
        asked: String,
        p50_ms: f64,
        p99_ms: f64,
    },
}

pub(crate) fn run(tools: &Tools) -> Result<()> {
    let (proxies, time) = (Proxy::present(tools), tools.time(ROUND));
    let rounds = CASES.iter().map(|(.., rounds)| rounds).sum::<usize>() + AWAKE_ROUNDS + 1;
    let warm_up = WARM_UP * (CASES.len() as u32 + 2);
    let progress = Progress::new(tools, (time * rounds as u32 + warm_up) * proxies.len() as u32);
    let upstream = Server::upstream(&tools.upstream)?;
    let mut rows = Vec::new();
    awake(tools, &proxies, &progress, &mut rows)?;
    for case in CASES {
        busy(tools, &upstream, &proxies, case, &progress, &mut rows)?;
    }
    for proxy in &proxies {
        rows.push(calm(tools, &upstream, *proxy, &progress)?);
    }
    let scores = [against(&rows, Proxy::Nginx, 0.6), against(&rows, Proxy::Envoy, 1.8)];
    tools.results("proxy", &rows, scores.into_iter().flatten())
}

/// Runs rounds of the load that never sleeps, with the proxies in turn.
fn awake(tools: &Tools, proxies: &[Proxy], progress: &Progress, rows: &mut Vec<Row>) -> Result<()> {
    let load = Awake::start()?;
    let mut servers = Vec::new();
    for proxy in proxies {
        let server = proxy.start(tools, load.upstream, Speaks::Http1)?;
        load.load(&server, WARM_UP).with_context(|| format!("{} ({AWAKE})", proxy.name()))?;
        servers.push((proxy.name(), server));
    }
    for round in 0..tools.rounds(AWAKE_ROUNDS) {
        for (server, running) in &servers {
            rows.push(row(server, AWAKE, round, load.load(running, tools.time(ROUND))?, progress));
        }
    }
    Ok(())
}

/// Runs rounds of one case, with the proxies in turn.
fn busy(
    tools: &Tools,
    upstream: &Server,
    proxies: &[Proxy],
    (asked, speaks, what, rounds): Case,
    progress: &Progress,
    rows: &mut Vec<Row>,
) -> Result<()> {
    let mut servers = Vec::new();
    for proxy in proxies {
        let server = proxy.start(tools, upstream.address, speaks)?;
        load(&server, what, WARM_UP).with_context(|| format!("{} ({asked})", proxy.name()))?;
        servers.push((proxy.name(), server));
    }
    for round in 0..tools.rounds(rounds) {
        for (server, running) in &servers {
            rows.push(row(server, asked, round, load(running, what, tools.time(ROUND))?, progress));
        }
    }
    Ok(())
}

fn row(server: &'static str, asked: &'static str, round: usize, measured: Round, progress: &Progress) -> Row {
    let Round { requests, per_second, cpu_us } = measured;
    let per_cpu_second = 1e6 / cpu_us;
    let busy = per_second * cpu_us / 1e4;
    progress.say(&format!(
        "{asked:<17} {server:<5} {per_cpu_second:>6.0} a CPU s, {per_second:>6.0} a s ({busy:.0} % of a core)"
    ));
    Row::Busy { server, asked, round, requests, per_second, per_cpu_second }
}

/// The latency of a request without other load.
fn calm(tools: &Tools, upstream: &Server, proxy: Proxy, progress: &Progress) -> Result<Row> {
    let server = proxy.start(tools, upstream.address, Speaks::Http1)?;
    let ask = || Ok(Request::get("/small").body(http_body_util::Full::default())?);
    let offer = |time| open::run(open::offer(server.address, CALM, time, ask));
    offer(WARM_UP)??;
    let answered = offer(tools.time(ROUND))??;
    let times: Vec<f64> = answered.iter().map(|answered| answered.ms).collect();
    let (p50_ms, p99_ms) = (percentile(&times, 50), percentile(&times, 99));
    let (server, asked) = (proxy.name(), format!("http1, 1 KB, {CALM:.0} a second"));
    progress.say(&format!("{asked} {server:<5} p50 {p50_ms:.3} ms, p99 {p99_ms:.3} ms"));
    Ok(Row::Calm { server, asked, p50_ms, p99_ms })
}

/// The ratio of our requests per CPU second to a rival's, by round; `None` if the rival is not installed.
fn against(rows: &[Row], rival: Proxy, target: f64) -> Option<(String, Score)> {
    let of = |wanted: Proxy| -> Vec<f64> {
        let figure = |row: &Row| match row {
            Row::Busy { server, asked: HEADLINE, per_cpu_second, .. } if *server == wanted.name() => {
                Some(*per_cpu_second)
            }
            _ => None,
        };
        rows.iter().filter_map(figure).collect()
    };
    let (ours, theirs) = (of(Proxy::Orfa), of(rival));
    let ratios: Vec<f64> = ours.iter().zip(&theirs).map(|(ours, theirs)| ours / theirs).collect();
    let score = Score {
        value: median(&ratios),
        unit: "ratio".into(),
        better: Better::Higher,
        target: Some(target),
        against: format!("{:.0} a CPU second, {HEADLINE}, access log", median(&theirs)),
        spread: spread(&ratios),
    };
    (!ratios.is_empty()).then(|| (format!("proxy.per_cpu_s_vs_{}", rival.name()), score))
}
