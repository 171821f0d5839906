//! Two handlers, each in turns with the rivals: one combines the responses of two services, one searches a
//! page of 100 KB. The server has one core for all its processes, and one worker.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use benches::client::BenchClient;
use benches::programs::program_path;
use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use serde::Serialize;
use serde_json::Value;

use super::servers::{ScriptGateway, start_bun, start_fastify};
use crate::load::{LoadRound, RepeatedRequests, load};
use crate::process::ServerProcess;
use crate::progress::BenchProgress;
use crate::ratios::{NamedScore, at_least, ratio};
use crate::rivals::installed_path;
use crate::{BenchTools, open_loop};

const ROUNDS: usize = 4;
const ROUND: Duration = Duration::from_secs(2);
const WARM_UP: Duration = Duration::from_secs(3);
const HANDLERS: [(&str, &str); 2] = [("composite", "/composite?id=7"), ("page", "/page")];

#[derive(Serialize)]
pub(super) struct HandlersRow {
    handler: &'static str,
    server: &'static str,
    round: usize,
    #[serde(flatten)]
    measured: LoadRound,
}

pub(super) fn run(
    tools: &BenchTools,
    service: SocketAddr,
    progress: &BenchProgress,
) -> Result<(Vec<HandlersRow>, Vec<NamedScore>)> {
    let servers = start_servers(tools, service)?;
    let mut rows = Vec::new();
    for (handler, path) in HANDLERS {
        let expected = fetch_json(&servers[0].1, path)?;
        for (name, server) in &servers {
            let answer = fetch_json(server, path)?;
            ensure!(
                answer == expected,
                "{name} has a different response to {path}: {answer} and not {expected}"
            );
            load(server, RepeatedRequests::Get(path), tools.round_time(WARM_UP)).with_context(|| *name)?;
        }
        for round in 0..tools.rounds(ROUNDS) {
            for (name, server) in &servers {
                let measured = load(server, RepeatedRequests::Get(path), tools.round_time(ROUND))
                    .with_context(|| *name)?;
                let LoadRound { per_second, cpu_us, .. } = measured;
                progress.report(&format!(
                    "{handler:<9} {name:<9} {per_second:>8.0} requests/s  {cpu_us:>6.1} us CPU"
                ));
                rows.push(HandlersRow { handler, server: name, round, measured });
            }
        }
    }
    let headlines = headlines(&rows);
    Ok((rows, headlines))
}

/// The installed servers, ours first.
fn start_servers(tools: &BenchTools, service: SocketAddr) -> Result<Vec<(&'static str, ServerProcess)>> {
    let ours = || ScriptGateway::new(program_path("handlers.sjs"), service);
    let mut servers = vec![("orfa.node", ours().start(tools)?)];
    servers.extend(start_fastify(tools, service)?.map(|server| ("fastify", server)));
    if let Some(engine) = installed_path(tools, "bun") {
        let engine = format!("['{}', --no-install]", engine.canonicalize()?.display());
        servers.push(("orfa.bun", ScriptGateway { engine, ..ours() }.start(tools)?));
    }
    servers.extend(start_bun(tools, service)?.map(|server| ("bun", server)));
    Ok(servers)
}

fn fetch_json(server: &ServerProcess, path: &str) -> Result<Value> {
    let client = BenchClient::new(server.address);
    let answer = open_loop::run(client.send(Request::get(path).body(Full::<Bytes>::default())?))??;
    ensure!(answer.status == 200, "{path}: {} {}", answer.status, String::from_utf8_lossy(&answer.body));
    Ok(serde_json::from_slice(&answer.body)?)
}

fn headlines(rows: &[HandlersRow]) -> Vec<NamedScore> {
    let of = |handler, server| -> Vec<f64> {
        let those = rows.iter().filter(|row| row.handler == handler && row.server == server);
        those.map(|row| row.measured.cpu_us).collect()
    };
    let headline = |name, handler, ours, theirs, target| {
        let theirs_cpu = of(handler, theirs);
        let against = format!("{theirs}: {:.1} us CPU a request", benches::stats::median(&theirs_cpu));
        ratio(name, &theirs_cpu, &of(handler, ours), at_least(target), against)
    };
    let headlines = [
        headline("script.composite.vs_fastify", "composite", "orfa.node", "fastify", 1.5),
        headline("script.composite.bun_vs_bun", "composite", "orfa.bun", "bun", 1.0),
        headline("script.page.vs_fastify", "page", "orfa.node", "fastify", 0.95),
    ];
    headlines.into_iter().flatten().collect()
}
