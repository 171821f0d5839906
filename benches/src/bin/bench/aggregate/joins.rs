//! Q4 and Q5, all buyers and all orders, in turns with the rivals. The services are replayed from recorded
//! responses, so that their databases do not take part in the measurement.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use benches::client::{BenchClient, BenchResponse};
use benches::stats::median;
use benches::upstream::PlayedTexts;
use bytes::Bytes;
use http::Request;
use http::header::ACCEPT;
use http_body_util::Full;
use marketplace::{DatabaseFolder, Marketplace, MarketplaceService};
use serde::Serialize;
use serde_json::Value;

use super::config;
use crate::load::{LoadRound, RepeatedRequests, load};
use crate::process::{LOAD_CORE, SERVER_CORE, ServerProcess, pinned_command};
use crate::progress::BenchProgress;
use crate::ratios::{NamedScore, at_least, at_most, ratio};
use crate::rivals::installed_path;
use crate::{BenchTools, open_loop};

const ROUNDS: usize = 4;
const ROUND: Duration = Duration::from_secs(2);
const WARM_UP: Duration = Duration::from_secs(2);
/// The number of all orders.
pub(crate) const LIMIT: usize = 2000;
/// The load exceeds the capacity on purpose: the bench measures the cost of a request, and a refusal costs
/// nothing.
pub(crate) const UNSHED: &str = "shed: { automatic: false }\n";
const PLAIN_JSON: &str = "application/json";

#[derive(Serialize)]
pub(super) struct JoinsRow {
    query: &'static str,
    server: &'static str,
    round: usize,
    bytes: usize,
    #[serde(flatten)]
    measured: LoadRound,
}

/// A server with the requested response format.
struct JoinsVariant<'a> {
    name: &'static str,
    server: &'a ServerProcess,
    accept: &'static str,
}

pub(super) fn run(tools: &BenchTools, progress: &BenchProgress) -> Result<(Vec<JoinsRow>, Vec<NamedScore>)> {
    let (_played, services) = start_services(tools)?;
    let orfa = ServerProcess::start_gateway(&tools.orfa, SERVER_CORE, &(config(services) + UNSHED))?;
    let handwritten = start_handwritten(tools, services)?;
    let fastify = start_fastify(tools, services)?;
    let deduplicated = dedup::media_type(dedup::DedupForm::Json);
    let mut ways = vec![
        JoinsVariant { name: "orfa", server: &orfa, accept: PLAIN_JSON },
        JoinsVariant { name: "handwritten", server: &handwritten, accept: PLAIN_JSON },
        JoinsVariant { name: "orfa.dedup", server: &orfa, accept: deduplicated },
    ];
    ways.extend(fastify.iter().map(|server| JoinsVariant { name: "fastify", server, accept: PLAIN_JSON }));
    let mut rows = Vec::new();
    for (query, path) in [("q4", "/q4".to_owned()), ("q5", format!("/q5?limit={LIMIT}"))] {
        rows.extend(measure(tools, query, &path, &ways, progress)?);
    }
    let headlines = headlines(&rows);
    Ok((rows, headlines))
}

/// Starts the three services with recorded responses, next to the load. Returns them with their addresses.
pub(crate) fn start_services(tools: &BenchTools) -> Result<(Vec<ServerProcess>, [SocketAddr; 3])> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("answers.json");
    std::fs::write(&file, serde_json::to_vec(&open_loop::run(record_responses())??)?)?;
    let played = MarketplaceService::ALL
        .map(|_| start_replay(tools, &file))
        .into_iter()
        .collect::<Result<Vec<_>>>()?;
    let services = std::array::from_fn(|place| played[place].address);
    Ok((played, services))
}

/// Records the marketplace's responses to all calls of Q4 and Q5.
async fn record_responses() -> Result<PlayedTexts> {
    let marketplace = Marketplace::start(DatabaseFolder::fresh()?).await?;
    let orders = format!("/orders?limit={LIMIT}");
    let value: Value = serde_json::from_str(&get(&marketplace, MarketplaceService::Order, &orders).await?)?;
    let ids = |field| {
        let rows = value.as_array().into_iter().flatten();
        let mut ids: Vec<String> = rows.map(|row| row[field].to_string()).collect();
        let mut seen = std::collections::HashSet::new();
        ids.retain(|id| seen.insert(id.clone()));
        ids.join(",")
    };
    let asked = [
        (MarketplaceService::Profile, "/buyers".to_owned()),
        (MarketplaceService::Catalog, "/catalogs".to_owned()),
        (MarketplaceService::Order, orders),
        (MarketplaceService::Catalog, format!("/catalogs?ids={}", ids("catalog_id"))),
        (MarketplaceService::Profile, format!("/freelancers?ids={}", ids("freelancer_id"))),
    ];
    let mut played = PlayedTexts::new();
    for (service, path) in asked {
        let answer = get(&marketplace, service, &path).await?;
        played.insert(path, answer);
    }
    Ok(played)
}

async fn get(marketplace: &Marketplace, service: MarketplaceService, path: &str) -> Result<String> {
    let answer = send_request(marketplace.address(service), path, PLAIN_JSON).await?;
    Ok(String::from_utf8(answer.body.to_vec())?)
}

async fn send_request(address: SocketAddr, path: &str, accept: &str) -> Result<BenchResponse> {
    let request = Request::get(path).header(ACCEPT, accept).body(Full::<Bytes>::default())?;
    let answer = BenchClient::new(address).send(request).await?;
    let text = || String::from_utf8_lossy(&answer.body);
    ensure!(answer.status == 200, "{path}: {} {}", answer.status, text());
    Ok(answer)
}

/// Starts a service that serves responses from a file, next to the load.
pub(crate) fn start_replay(tools: &BenchTools, file: &Path) -> Result<ServerProcess> {
    ServerProcess::start(|address, _| {
        let mut command = pinned_command(LOAD_CORE, &tools.upstream);
        command.arg(address.to_string()).arg(file);
        Ok(command)
    })
}

fn start_handwritten(tools: &BenchTools, services: [SocketAddr; 3]) -> Result<ServerProcess> {
    ServerProcess::start(|address, _| {
        let mut command = pinned_command(SERVER_CORE, &tools.handwritten);
        command.arg(address.to_string()).args(services.map(|service| service.to_string()));
        Ok(command)
    })
}

/// Starts Fastify with undici, if it is installed.
fn start_fastify(tools: &BenchTools, services: [SocketAddr; 3]) -> Result<Option<ServerProcess>> {
    let Some(program) = installed_path(tools, "aggregate") else { return Ok(None) };
    let server = ServerProcess::start(|address, _| {
        let mut command = pinned_command(SERVER_CORE, Path::new("node"));
        command.arg(program).arg(address.ip().to_string()).arg(address.port().to_string());
        command.args(services.map(|service| format!("http://{service}"))).env("NODE_ENV", "production");
        Ok(command)
    });
    server.map(Some)
}

/// Runs rounds of all variants in turn, after checking that their responses are equal.
fn measure(
    tools: &BenchTools,
    query: &'static str,
    path: &str,
    ways: &[JoinsVariant<'_>],
    progress: &BenchProgress,
) -> Result<Vec<JoinsRow>> {
    let (mut expected, mut bytes) = (None, Vec::new());
    for variant in ways {
        let (answer, length) = variant.fetch_response(path).with_context(|| variant.name)?;
        let expected = expected.get_or_insert_with(|| answer.clone());
        ensure!(answer == *expected, "{} has a different response to {query}", variant.name);
        bytes.push(length);
        load(variant.server, RepeatedRequests::Script(&variant.lua_script(path)), tools.round_time(WARM_UP))
            .with_context(|| variant.name)?;
    }
    let mut rows = Vec::new();
    for round in 0..tools.rounds(ROUNDS) {
        for (joins_variant, bytes) in ways.iter().zip(&bytes) {
            let script = joins_variant.lua_script(path);
            let measured =
                load(joins_variant.server, RepeatedRequests::Script(&script), tools.round_time(ROUND))
                    .with_context(|| joins_variant.name)?;
            let (LoadRound { per_second, cpu_us, .. }, JoinsVariant { name, .. }) = (measured, joins_variant);
            progress.report(&format!(
                "{query} {name:<11} {per_second:>8.0} requests/s  {cpu_us:>7.0} us CPU  {bytes:>8} bytes"
            ));
            rows.push(JoinsRow { query, server: name, round, bytes: *bytes, measured });
        }
    }
    Ok(rows)
}

impl JoinsVariant<'_> {
    /// The response, and its length on the wire.
    fn fetch_response(&self, path: &str) -> Result<(Value, usize)> {
        let answer = open_loop::run(send_request(self.server.address, path, self.accept))??;
        let plain = open_loop::run(answer.decode_body())??;
        Ok((serde_json::from_slice(&plain)?, answer.body.len()))
    }

    /// The request as a Lua script for wrk.
    fn lua_script(&self, path: &str) -> String {
        format!("wrk.path = '{path}'\nwrk.headers['Accept'] = '{}'\n", self.accept)
    }
}

fn headlines(rows: &[JoinsRow]) -> Vec<NamedScore> {
    let of = |query, server| -> Vec<f64> {
        let those = rows.iter().filter(|row| row.query == query && row.server == server);
        those.map(|row| row.measured.cpu_us).collect()
    };
    let against = |query, server| format!("{server}: {:.0} us CPU a request", median(&of(query, server)));
    let cheap = |name, query, target| {
        ratio(
            name,
            &of(query, "orfa"),
            &of(query, "handwritten"),
            at_most(target),
            against(query, "handwritten"),
        )
    };
    let faster = ratio(
        "aggregate.q5.vs_fastify",
        &of("q5", "fastify"),
        &of("q5", "orfa"),
        at_least(3.0),
        against("q5", "fastify"),
    );
    let plain = of("q5", "orfa");
    let more: Vec<f64> =
        of("q5", "orfa.dedup").iter().zip(&plain).map(|(with, plain)| with - plain).collect();
    let share = ratio("dedup.encode_cpu_share", &more, &plain, at_most(0.15), against("q5", "orfa"));
    let q4 = cheap("aggregate.q4.cpu_vs_handwritten", "q4", 1.25);
    let q5 = cheap("aggregate.q5.cpu_vs_handwritten", "q5", 1.25);
    [q4, q5, faster, share].into_iter().flatten().collect()
}
