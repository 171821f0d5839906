//! Posts and their users, modelled on the benchmark that tailcall publishes: 100 posts, 10 users, and a
//! service that responds from memory. There are two queries: the titles of all posts, and additionally the
//! name of each post's user. Coalescing is `dedupe` in tailcall: equal calls that are in flight at the same
//! time are combined, even across requests.

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use benches::call::PreparedCall;
use benches::client::BenchClient;
use benches::scoreboard::{BetterDirection, HeadlineScore};
use benches::stats::{median, spread};
use benches::upstream::PlayedTexts;
use serde::Serialize;
use serde_json::{Value, json};

use crate::aggregate::joins::{UNSHED, start_replay};
use crate::load::{LoadRound, RepeatedRequests, load};
use crate::process::{SERVER_CORE, ServerProcess};
use crate::progress::BenchProgress;
use crate::ratios::{NamedScore, at_least, ratio};
use crate::rivals::{start_hive, start_tailcall};
use crate::{BenchTools, open_loop};

const ROUNDS: usize = 3;
const ROUND: Duration = Duration::from_secs(2);
/// The duration of a round for slower servers: a large part of their requests is still in flight at the end
/// of a round.
const LONG_ROUND: Duration = Duration::from_secs(6);
const SELDOM: f64 = 200.0;
const WARM_UP: Duration = Duration::from_secs(2);
const POSTS: usize = 100;
const USERS: usize = 10;
const QUERIES: [(&str, &str); 2] =
    [("flat", "{ posts { title } }"), ("nested", "{ posts { title user { name } } }")];
const LINKS: &str = "links: { Post.user: { get: 'api/users/{userId}' } }\n";

#[derive(Serialize)]
pub(super) struct PostsRow {
    query: &'static str,
    server: &'static str,
    round: usize,
    #[serde(flatten)]
    measured: LoadRound,
}

/// A server with a path.
struct PostsVariant<'a> {
    name: &'static str,
    server: &'a ServerProcess,
    path: &'static str,
}

pub(super) fn run(tools: &BenchTools, progress: &BenchProgress) -> Result<(Vec<PostsRow>, Vec<NamedScore>)> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("answers.json");
    std::fs::write(&file, serde_json::to_vec(&service_responses()?)?)?;
    let upstream = start_replay(tools, &file)?;
    let orfa = start_gateway(tools, &upstream, folder.path())?;
    let [plain, deduping] =
        [start_tailcall(tools, upstream.address, false)?, start_tailcall(tools, upstream.address, true)?];
    let hive = start_hive(tools, upstream.address)?;
    let mut ways = vec![
        PostsVariant { name: "orfa", server: &orfa, path: "/graphql" },
        PostsVariant { name: "orfa.coalescing", server: &orfa, path: "/coalescing" },
    ];
    let rivals = [("tailcall", &plain), ("tailcall.dedupe", &deduping), ("hive", &hive)];
    ways.extend(rivals.into_iter().filter_map(|(name, server)| {
        server.as_ref().map(|server| PostsVariant { name, server, path: "/graphql" })
    }));
    let mut rows = Vec::new();
    for (query, document) in QUERIES {
        rows.extend(measure(tools, query, document, &ways, progress)?);
    }
    let headlines = headlines(&rows);
    Ok((rows, headlines))
}

/// The gateway over the service's OpenAPI document, with a route without and one with coalescing.
fn start_gateway(tools: &BenchTools, upstream: &ServerProcess, folder: &Path) -> Result<ServerProcess> {
    let links = folder.join("links.yaml");
    std::fs::write(&links, LINKS)?;
    let document = Path::new(env!("CARGO_MANIFEST_DIR")).join("rivals/gateways/posts.yaml");
    let (at, document, links) = (upstream.address, document.display(), links.display());
    let graphql = format!("services: [api], links: '{links}'");
    let config = format!(
        "services: {{ api: {{ url: 'http://{at}', openapi: '{document}' }} }}\nroutes:\n  \
         - {{ path: /graphql, graphql: {{ {graphql} }} }}\n  \
         - {{ path: /coalescing, graphql: {{ {graphql}, coalesce: {{ calls: true, operations: true }} }} }}\n{UNSHED}"
    );
    ServerProcess::start_gateway(&tools.orfa, SERVER_CORE, &config)
}

/// The responses of the service.
fn service_responses() -> Result<PlayedTexts> {
    let posts: Vec<Value> = (1..=POSTS).map(post).collect();
    let users = (1..=USERS).map(|id| (format!("/users/{id}"), user(id)));
    let answers = users.chain([("/posts".to_owned(), posts.into())]);
    let texts: Result<HashMap<_, _>, serde_json::Error> =
        answers.map(|(path, value)| Ok((path, serde_json::to_string_pretty(&value)?))).collect();
    Ok(texts?)
}

/// A post with about the length of the original ones.
fn post(id: usize) -> Value {
    let user = (id - 1) / (POSTS / USERS) + 1;
    let words = |from: usize, count: usize| {
        let word = |place: usize| WORDS[(from * 7 + place * place) % WORDS.len()];
        (0..count).map(word).collect::<Vec<_>>().join(" ")
    };
    json!({ "userId": user, "id": id, "title": words(id, 7), "body": words(id * 3, 26) })
}

const WORDS: [&str; 16] = [
    "sunt",
    "aut",
    "facere",
    "repellat",
    "provident",
    "occaecati",
    "excepturi",
    "optio",
    "quia",
    "et",
    "suscipit",
    "recusandae",
    "consequuntur",
    "expedita",
    "molestiae",
    "ut",
];

fn user(id: usize) -> Value {
    json!({
        "id": id, "name": format!("Leanne Graham the {id}."), "username": format!("Bret{id}"),
        "email": format!("leanne{id}@example.org"),
        "address": { "street": "Kulas Light", "suite": "Apt. 556", "city": "Gwenborough", "zipcode": "92998-3874" },
        "phone": "1-770-736-8031 x56442", "website": "example.org",
        "company": { "name": "Romaguera-Crona", "catchPhrase": "Multi-layered client-server neural-net" },
    })
}

/// Runs rounds of all variants in turn, after checking that their responses are equal.
fn measure(
    tools: &BenchTools,
    query: &'static str,
    document: &str,
    ways: &[PostsVariant<'_>],
    progress: &BenchProgress,
) -> Result<Vec<PostsRow>> {
    let (mut expected, mut times) = (None, Vec::new());
    for way in ways {
        let answer = open_loop::run(way.fetch_data(document))?.with_context(|| way.name)?;
        let expected = expected.get_or_insert_with(|| answer.clone());
        ensure!(answer == *expected, "{} has a different response to {query}: {answer:.300}", way.name);
        let warm =
            load(way.server, RepeatedRequests::Script(&way.lua_script(document)?), tools.round_time(WARM_UP))
                .with_context(|| way.name)?;
        times.push(if warm.per_second < SELDOM { LONG_ROUND } else { ROUND });
    }
    let mut rows = Vec::new();
    for round in 0..tools.rounds(ROUNDS) {
        for (way, time) in ways.iter().zip(&times) {
            let script = way.lua_script(document)?;
            let measured = load(way.server, RepeatedRequests::Script(&script), tools.round_time(*time))
                .with_context(|| way.name)?;
            let (LoadRound { per_second, cpu_us, .. }, PostsVariant { name, .. }) = (measured, way);
            progress
                .report(&format!("{query:<6} {name:<15} {per_second:>8.0} requests/s  {cpu_us:>7.0} us CPU"));
            rows.push(PostsRow { query, server: name, round, measured });
        }
    }
    Ok(rows)
}

impl PostsVariant<'_> {
    fn lua_script(&self, document: &str) -> Result<String> {
        PreparedCall::lua_script(&[PreparedCall::graphql(self.path, document)])
    }

    /// The data of the response, which has to be complete.
    async fn fetch_data(&self, document: &str) -> Result<Value> {
        let answer =
            PreparedCall::graphql(self.path, document).send(&BenchClient::new(self.server.address)).await?;
        let value: Value = serde_json::from_slice(&answer.body)?;
        ensure!(value["data"]["posts"].as_array().map(Vec::len) == Some(POSTS), "{value:.300}");
        Ok(value["data"].clone())
    }
}

fn headlines(rows: &[PostsRow]) -> Vec<NamedScore> {
    let mut headlines = Vec::new();
    for (query, rps, tailcall, hive) in [("flat", 7000.0, 0.97, 10.0), ("nested", 2000.0, 16.0, 50.0)] {
        let of = |server| -> Vec<f64> {
            let those = rows.iter().filter(|row| row.query == query && row.server == server);
            those.map(|row| row.measured.per_second).collect()
        };
        let own = of("orfa");
        let score = HeadlineScore {
            value: median(&own),
            unit: "requests/s".into(),
            better: BetterDirection::Higher,
            target: Some(rps),
            against: "one core, no coalescing".into(),
            spread: spread(&own),
        };
        headlines.push((format!("graphql.{query}.rps"), score));
        let mut over = |name, ours, theirs, target| {
            let against = format!("{theirs}: {:.0} requests/s", median(&of(theirs)));
            let name = format!("graphql.{query}.{name}");
            headlines.extend(ratio(&name, &of(ours), &of(theirs), at_least(target), against));
        };
        over("vs_tailcall", "orfa", "tailcall", tailcall);
        over("coalesced_vs_tailcall", "orfa.coalescing", "tailcall.dedupe", 0.8);
        over("vs_hive", "orfa", "hive", hive);
    }
    headlines
}
