//! Q4 and Q5, all buyers and all orders, with GraphQL and with the aggregates of the same gateway, in turns.
//! The services are replayed and know only the calls that the aggregates make, so GraphQL has to make the
//! same ones.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use benches::call::PreparedCall;
use benches::client::BenchClient;
use benches::stats::median;
use http::Method;
use serde::Serialize;
use serde_json::{Value, json};

use super::{config, question_body};
use crate::aggregate::joins::{LIMIT, UNSHED, start_services};
use crate::load::{LoadRound, RepeatedRequests, load};
use crate::process::{SERVER_CORE, ServerProcess};
use crate::progress::BenchProgress;
use crate::ratios::{NamedScore, at_most, ratio};
use crate::study::StudyQuery;
use crate::{BenchTools, open_loop};

/// Many short rounds: the machine is shared, and other processes may affect one of two variants that take
/// turns.
const ROUNDS: usize = 9;
const ROUND: Duration = Duration::from_secs(1);
const WARM_UP: Duration = Duration::from_secs(2);

#[derive(Serialize)]
pub(super) struct MarketRow {
    query: &'static str,
    way: &'static str,
    round: usize,
    bytes: usize,
    #[serde(flatten)]
    measured: LoadRound,
}

pub(super) fn run(tools: &BenchTools, progress: &BenchProgress) -> Result<(Vec<MarketRow>, Vec<NamedScore>)> {
    let (_played, services) = start_services(tools)?;
    let orfa = ServerProcess::start_gateway(&tools.orfa, SERVER_CORE, &(config(services) + UNSHED))?;
    let mut rows = Vec::new();
    for (query, root, path, variables) in [
        ("q4", "buyers", "/q4".to_owned(), json!({})),
        ("q5", "orders", format!("/q5?limit={LIMIT}"), json!({ "limit": LIMIT })),
    ] {
        let graphql =
            PreparedCall::json(Method::POST, "/graphql", &question_body(query, variables)?).accepting_json();
        let ways = [("aggregate", PreparedCall::get(path)), ("graphql", graphql)];
        let ways = ways.map(|(way, call)| StudyQuery { name: query, way, call });
        rows.extend(measure(tools, &orfa, root, &ways, progress)?);
    }
    let headlines = headlines(&rows);
    Ok((rows, headlines))
}

/// Runs rounds of both variants in turn, after checking that their responses are equal.
fn measure(
    tools: &BenchTools,
    orfa: &ServerProcess,
    root: &str,
    ways: &[StudyQuery; 2],
    progress: &BenchProgress,
) -> Result<Vec<MarketRow>> {
    let answers = ways
        .each_ref()
        .map(|study_query| open_loop::run(study_query.call.send(&BenchClient::new(orfa.address))));
    let [aggregate, graphql] = answers.map(|answer| answer?);
    let (aggregate, graphql) = (aggregate?.body, graphql?.body);
    let (expected, mut answer): (Value, Value) =
        (serde_json::from_slice(&aggregate)?, serde_json::from_slice(&graphql)?);
    ensure!(answer["data"][root].take() == expected, "GraphQL has a different response: {answer:.300}");
    let bytes = [aggregate.len(), graphql.len()];
    let mut rows = Vec::new();
    for round in 0..=tools.rounds(ROUNDS) {
        for (way, bytes) in ways.iter().zip(bytes) {
            let StudyQuery { name: query, way, call } = way;
            let lua = PreparedCall::lua_script(std::slice::from_ref(call))?;
            let time = tools.round_time(if round == 0 { WARM_UP } else { ROUND });
            let measured = load(orfa, RepeatedRequests::Script(&lua), time).context(*way)?;
            if round > 0 {
                let LoadRound { per_second, cpu_us, .. } = measured;
                progress
                    .report(&format!("{query} {way:<9} {per_second:>8.0} requests/s  {cpu_us:>7.0} us CPU"));
                rows.push(MarketRow { query, way, round, bytes, measured });
            }
        }
    }
    Ok(rows)
}

fn headlines(rows: &[MarketRow]) -> Vec<NamedScore> {
    let of = |query, way| -> Vec<f64> {
        let those = rows.iter().filter(|row| row.query == query && row.way == way);
        those.map(|row| row.measured.cpu_us).collect()
    };
    let headline = |query| {
        let aggregate = of(query, "aggregate");
        let against = format!("the aggregate: {:.0} us CPU a request", median(&aggregate));
        let name = format!("graphql.{query}.cpu_vs_aggregate");
        ratio(&name, &of(query, "graphql"), &aggregate, at_most(1.15), against)
    };
    ["q4", "q5"].into_iter().filter_map(headline).collect()
}
