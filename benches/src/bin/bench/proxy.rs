//! The reverse proxy next to nginx and Envoy: requests per second of CPU, user and system, of all their
//! processes. Each has one worker, kept connections to the same service, and an access log with equivalent
//! lines in a file. Rounds alternate.

use std::time::Duration;

use anyhow::{Context, Result};
use benches::scoreboard::{BetterDirection, HeadlineScore};
use benches::stats::{median, percentile, spread};
use http::Request;
use serde::Serialize;

use crate::BenchTools;
use crate::busy_polling::BusyService;
use crate::load::{LoadRound, RepeatedRequests, load};
use crate::open_loop;
use crate::process::ServerProcess;
use crate::progress::BenchProgress;
use crate::rivals::{ClientProtocol, RivalProxy};

/// A case: its name in the rows, the protocol, the load, and the number of rounds.
type ProxyCase = (&'static str, ClientProtocol, RepeatedRequests<'static>, usize);

const HEADLINE: &str = "http1, 1 KB";
const CASES: [ProxyCase; 3] = [
    (HEADLINE, ClientProtocol::Http1, RepeatedRequests::Get("/small"), 5),
    ("http2, 1 KB", ClientProtocol::Http2, RepeatedRequests::GetHttp2("/small"), 3),
    ("http1, 100 KB", ClientProtocol::Http1, RepeatedRequests::Get("/large"), 3),
];
/// The load that never sleeps: its name in the rows, and the number of rounds.
const AWAKE: &str = "http1, 1 KB, awake";
const BUSY_POLLING_ROUNDS: usize = 3;
const ROUND: Duration = Duration::from_secs(2);
const WARM_UP: Duration = Duration::from_secs(1);
/// A rate at which no server is busy.
const CALM: f64 = 500.0;

#[derive(Serialize)]
#[serde(untagged)]
enum ProxyRow {
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

pub(crate) fn run(tools: &BenchTools) -> Result<()> {
    let (proxies, time) = (RivalProxy::installed(tools), tools.round_time(ROUND));
    let rounds = CASES.iter().map(|(.., rounds)| rounds).sum::<usize>() + BUSY_POLLING_ROUNDS + 1;
    let warm_up = WARM_UP * (CASES.len() as u32 + 2);
    let progress = BenchProgress::new(tools, (time * rounds as u32 + warm_up) * proxies.len() as u32);
    let upstream = ServerProcess::start_upstream(&tools.upstream)?;
    let mut rows = Vec::new();
    run_busy_polling(tools, &proxies, &progress, &mut rows)?;
    for case in CASES {
        run_case(tools, &upstream, &proxies, case, &progress, &mut rows)?;
    }
    for proxy in &proxies {
        rows.push(measure_latency(tools, &upstream, *proxy, &progress)?);
    }
    let scores = [rival_ratio(&rows, RivalProxy::Nginx, 0.6), rival_ratio(&rows, RivalProxy::Envoy, 1.8)];
    tools.write_results("proxy", &rows, scores.into_iter().flatten())
}

/// Runs rounds of the load that never sleeps, with the proxies in turn.
fn run_busy_polling(
    tools: &BenchTools,
    proxies: &[RivalProxy],
    progress: &BenchProgress,
    rows: &mut Vec<ProxyRow>,
) -> Result<()> {
    let load = BusyService::start()?;
    let mut servers = Vec::new();
    for proxy in proxies {
        let server = proxy.start(tools, load.upstream, ClientProtocol::Http1)?;
        load.load(&server, WARM_UP).with_context(|| format!("{} ({AWAKE})", proxy.name()))?;
        servers.push((proxy.name(), server));
    }
    for round in 0..tools.rounds(BUSY_POLLING_ROUNDS) {
        for (server, running) in &servers {
            rows.push(busy_row(server, AWAKE, round, load.load(running, tools.round_time(ROUND))?, progress));
        }
    }
    Ok(())
}

/// Runs rounds of one case, with the proxies in turn.
fn run_case(
    tools: &BenchTools,
    upstream: &ServerProcess,
    proxies: &[RivalProxy],
    (asked, speaks, what, rounds): ProxyCase,
    progress: &BenchProgress,
    rows: &mut Vec<ProxyRow>,
) -> Result<()> {
    let mut servers = Vec::new();
    for proxy in proxies {
        let server = proxy.start(tools, upstream.address, speaks)?;
        load(&server, what, WARM_UP).with_context(|| format!("{} ({asked})", proxy.name()))?;
        servers.push((proxy.name(), server));
    }
    for round in 0..tools.rounds(rounds) {
        for (server, running) in &servers {
            rows.push(busy_row(
                server,
                asked,
                round,
                load(running, what, tools.round_time(ROUND))?,
                progress,
            ));
        }
    }
    Ok(())
}

fn busy_row(
    server: &'static str,
    asked: &'static str,
    round: usize,
    measured: LoadRound,
    progress: &BenchProgress,
) -> ProxyRow {
    let LoadRound { requests, per_second, cpu_us } = measured;
    let per_cpu_second = 1e6 / cpu_us;
    let busy = per_second * cpu_us / 1e4;
    progress.report(&format!(
        "{asked:<17} {server:<5} {per_cpu_second:>6.0} a CPU s, {per_second:>6.0} a s ({busy:.0} % of a core)"
    ));
    ProxyRow::Busy { server, asked, round, requests, per_second, per_cpu_second }
}

/// The latency of a request without other load.
fn measure_latency(
    tools: &BenchTools,
    upstream: &ServerProcess,
    proxy: RivalProxy,
    progress: &BenchProgress,
) -> Result<ProxyRow> {
    let server = proxy.start(tools, upstream.address, ClientProtocol::Http1)?;
    let ask = || Ok(Request::get("/small").body(http_body_util::Full::default())?);
    let offer = |time| open_loop::run(open_loop::offer(server.address, CALM, time, ask));
    offer(WARM_UP)??;
    let outcomes = offer(tools.round_time(ROUND))??;
    let times: Vec<f64> = outcomes.iter().map(|outcome| outcome.ms).collect();
    let (p50_ms, p99_ms) = (percentile(&times, 50), percentile(&times, 99));
    let (server, asked) = (proxy.name(), format!("http1, 1 KB, {CALM:.0} a second"));
    progress.report(&format!("{asked} {server:<5} p50 {p50_ms:.3} ms, p99 {p99_ms:.3} ms"));
    Ok(ProxyRow::Calm { server, asked, p50_ms, p99_ms })
}

/// The ratio of our requests per CPU second to a rival's, by round; `None` if the rival is not installed.
fn rival_ratio(rows: &[ProxyRow], rival: RivalProxy, target: f64) -> Option<(String, HeadlineScore)> {
    let of = |proxy: RivalProxy| -> Vec<f64> {
        let figure = |row: &ProxyRow| match row {
            ProxyRow::Busy { server, asked: HEADLINE, per_cpu_second, .. } if *server == proxy.name() => {
                Some(*per_cpu_second)
            }
            _ => None,
        };
        rows.iter().filter_map(figure).collect()
    };
    let (ours, theirs) = (of(RivalProxy::Orfa), of(rival));
    let ratios: Vec<f64> = ours.iter().zip(&theirs).map(|(ours, theirs)| ours / theirs).collect();
    let score = HeadlineScore {
        value: median(&ratios),
        unit: "ratio".into(),
        better: BetterDirection::Higher,
        target: Some(target),
        against: format!("{:.0} a CPU second, {HEADLINE}, access log", median(&theirs)),
        spread: spread(&ratios),
    };
    (!ratios.is_empty()).then(|| (format!("proxy.per_cpu_s_vs_{}", rival.name()), score))
}
