//! Ten thousand routes compared with ten: CPU per request, for proxied requests, and for requests that the
//! gateway answers itself, of whose cost the routing is a larger part.

use std::fmt::Write;
use std::time::Duration;

use anyhow::Result;
use benches::scoreboard::{BetterDirection, HeadlineScore};
use benches::stats::{median, spread};
use serde::Serialize;

use crate::BenchTools;
use crate::load::{LoadRound, RepeatedRequests, load};
use crate::process::{SERVER_CORE, ServerProcess};
use crate::progress::BenchProgress;

const FEW_ROUTES: usize = 10;
const MANY_ROUTES: usize = 10_000;
const ROUNDS: usize = 5;
const ROUND: Duration = Duration::from_secs(1);
const WARM_UP: Duration = Duration::from_secs(2);
const REQUEST_KINDS: [&str; 2] = ["preflight", "proxied"];

#[derive(Serialize)]
struct RoutesRow {
    asked: &'static str,
    routes: usize,
    round: usize,
    #[serde(flatten)]
    measured: LoadRound,
}

pub(crate) fn run(tools: &BenchTools) -> Result<()> {
    let rounds = tools.rounds(ROUNDS);
    let progress = BenchProgress::new(tools, (tools.round_time(ROUND) * rounds as u32 + WARM_UP) * 4);
    let upstream = ServerProcess::start_upstream(&tools.upstream)?;
    let (few, many) = (config(FEW_ROUTES, &upstream), config(MANY_ROUTES, &upstream));
    let servers = [
        (FEW_ROUTES, ServerProcess::start_gateway(&tools.orfa, SERVER_CORE, &few)?),
        (MANY_ROUTES, ServerProcess::start_gateway(&tools.orfa, SERVER_CORE, &many)?),
    ];
    let mut rows = Vec::new();
    for asked in REQUEST_KINDS {
        for (routes, server) in &servers {
            load(server, RepeatedRequests::Script(&lua_script(asked, *routes)), WARM_UP)?;
        }
        for round in 0..rounds {
            for (routes, server) in &servers {
                let measured = load(
                    server,
                    RepeatedRequests::Script(&lua_script(asked, *routes)),
                    tools.round_time(ROUND),
                )?;
                progress.report(&format!("{asked:<9} {routes:>6} routes {:>6.2} us CPU", measured.cpu_us));
                rows.push(RoutesRow { asked, routes: *routes, round, measured });
            }
        }
    }
    let ratios = REQUEST_KINDS.map(|asked| ratios(&rows, asked));
    let worst = ratios.iter().max_by(|one, other| median(one).total_cmp(&median(other)));
    let worst = worst.map(Vec::as_slice).unwrap_or_default();
    let score = HeadlineScore {
        value: median(worst),
        unit: "ratio".into(),
        better: BetterDirection::Lower,
        target: Some(2.0),
        against: "ten routes; every route asked in turn; the worse of preflights and proxied GETs".to_owned(),
        spread: spread(worst),
    };
    tools.write_results("routes", &rows, [("gateway.routes_10k_vs_10_cpu".to_owned(), score)])
}

/// The ratio of many routes to few, by round.
fn ratios(rows: &[RoutesRow], asked: &str) -> Vec<f64> {
    let of = |routes: usize| {
        let those = rows.iter().filter(move |row| row.asked == asked && row.routes == routes);
        those.map(|row| row.measured.cpu_us)
    };
    of(MANY_ROUTES).zip(of(FEW_ROUTES)).map(|(many, few)| many / few).collect()
}

/// Realistic routes: a few segments deep, half of them with a wildcard.
fn config(routes: usize, upstream: &ServerProcess) -> String {
    let mut yaml = format!(
        "services: {{ service: {{ url: 'http://{}' }} }}\ncors: {{ origins: ['https://shop.example.org'] }}\n\
         routes:\n",
        upstream.address
    );
    for number in 0..routes {
        let below = if number % 2 == 0 { "/*" } else { "" };
        let _ =
            writeln!(yaml, "  - {{ path: /team{}/service{number}{below}, proxy: service }}", number % 100);
    }
    yaml
}

/// Requests all routes in turn, such that consecutive requests are far apart.
fn lua_script(asked: &str, routes: usize) -> String {
    let head = match asked {
        "preflight" => {
            "wrk.method = 'OPTIONS'\nwrk.headers['Origin'] = 'https://shop.example.org'\n\
             wrk.headers['Access-Control-Request-Method'] = 'GET'\n"
        }
        _ => "",
    };
    format!(
        "{head}local n = 0\nfunction request()\n  n = (n + 7919) % {routes}\n  \
         local below = n % 2 == 0 and '/x' or ''\n  \
         return wrk.format(nil, '/team' .. n % 100 .. '/service' .. n .. below)\nend\n"
    )
}
