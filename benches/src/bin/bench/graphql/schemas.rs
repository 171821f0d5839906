//! The cost of schemas and plans: a document of Gitea's size, a hundred services, and a query with twenty
//! levels, each in another service than the one before.
//!
//! The time of a plan is the difference between the first execution of a query and a repetition. The query's
//! first list is empty, so that no other work is done.

use std::fmt::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use benches::call::PreparedCall;
use benches::client::BenchClient;
use benches::scoreboard::{BetterDirection, HeadlineScore};
use benches::stats::{median, spread};
use marketplace::{DatabaseFolder, Marketplace, MarketplaceService};
use serde::Serialize;
use serde_json::{Value, json};

use super::example_path;
use crate::process::{SERVER_CORE, ServerProcess};
use crate::progress::BenchProgress;
use crate::ratios::NamedScore;
use crate::{BenchTools, open_loop};

/// The numbers of operations and types in Gitea's document.
const GITEA: DocumentSize = DocumentSize { operations: 471, types: 230, fields: 11 };
const SERVICES: usize = 100;
const SERVICE: DocumentSize = DocumentSize { operations: 50, types: 25, fields: 8 };
const STARTS: usize = 5;
const PLANS: usize = 40;
const LEVELS: usize = 20;
const MB: f64 = 1e6;
/// The timeout for the start with a hundred services.
const START_TIMEOUT: Duration = Duration::from_secs(120);
/// Each level leads to one row of another service.
const LINKS: &str = "links:\n  \
    Order.catalog: { get: 'catalog/catalogs?ids={catalog_id}', on: catalog_id = id, one: true }\n  \
    Catalog.buyer: { get: 'profile/buyers?ids={buyer_id}', on: buyer_id = id, one: true }\n  \
    Buyer.catalog: { get: 'catalog/catalogs?ids={id}', on: id = id, one: true }\n";

#[derive(Serialize)]
pub(super) struct SchemasRow {
    measured: &'static str,
    unit: &'static str,
    value: f64,
}

/// The size of a document.
#[derive(Clone, Copy)]
struct DocumentSize {
    operations: usize,
    types: usize,
    fields: usize,
}

pub(super) fn run(
    tools: &BenchTools,
    progress: &BenchProgress,
) -> Result<(Vec<SchemasRow>, Vec<NamedScore>)> {
    let gitea = (0..tools.rounds(STARTS)).map(|_| measure_gitea(tools)).collect::<Result<Vec<_>>>()?;
    progress.report(&format!("a document of {} operations: {:.0} ms", GITEA.operations, median(&gitea)));
    let (seconds, bytes) = measure_many_services(tools)?;
    progress.report(&format!("{SERVICES} services: {seconds:.2} s, {:.0} MB", bytes / MB));
    let plans = open_loop::run(measure_plans(tools))??;
    progress.report(&format!("a plan of {LEVELS} levels: {:.2} ms", median(&plans)));
    let figures = [
        (
            "graphql.plan_20_levels_ms",
            "ms",
            plans,
            5.0,
            "a query that was never asked before, by the same query again",
        ),
        (
            "graphql.compose_gitea_size_ms",
            "ms",
            gitea,
            300.0,
            "`orfa graphql schema`: 471 operations, 230 types",
        ),
        (
            "graphql.compose_100_services_s",
            "s",
            vec![seconds],
            5.0,
            "`orfa serve` until it listens: 5,000 operations",
        ),
        ("graphql.compose_100_services_mb", "MB", vec![bytes / MB], 300.0, "the most memory of that gateway"),
    ];
    let rows = figures.iter().flat_map(|(measured, unit, values, ..)| {
        values.iter().map(|value| SchemasRow { measured, unit, value: *value })
    });
    let rows = rows.collect();
    let scores = figures.into_iter().map(|(name, unit, values, target, against)| {
        let score = HeadlineScore {
            value: median(&values),
            unit: unit.into(),
            better: BetterDirection::Lower,
            target: Some(target),
            against: against.into(),
            spread: spread(&values),
        };
        (name.to_owned(), score)
    });
    Ok((rows, scores.collect()))
}

/// The time that the command line takes to print the schema of one large document, in milliseconds.
fn measure_gitea(tools: &BenchTools) -> Result<f64> {
    let folder = tempfile::tempdir()?;
    let config = config(folder.path(), 1, GITEA)?;
    let file = folder.path().join("orfa.yaml");
    std::fs::write(&file, format!("listen: 127.0.0.1:0\n{config}"))?;
    let mut command = Command::new(&tools.orfa);
    command.args(["graphql", "schema", "--config"]).arg(&file).stdout(Stdio::piped()).stderr(Stdio::piped());
    let began = Instant::now();
    let output = command.output()?;
    let took = began.elapsed();
    let wrong = || String::from_utf8_lossy(&output.stderr).chars().take(1000).collect::<String>();
    ensure!(output.status.success(), "`orfa graphql schema` failed:\n{}", wrong());
    let schema = String::from_utf8_lossy(&output.stdout);
    ensure!(schema.matches("\ntype T").count() >= GITEA.types, "types are missing:\n{schema:.2000}");
    Ok(took.as_secs_f64() * 1e3)
}

/// The time until a gateway over many services listens, in seconds, and its peak memory.
fn measure_many_services(tools: &BenchTools) -> Result<(f64, f64)> {
    let folder = tempfile::tempdir()?;
    let config = config(folder.path(), SERVICES, SERVICE)?;
    let began = Instant::now();
    let server = ServerProcess::start_gateway_within(START_TIMEOUT, &tools.orfa, SERVER_CORE, &config)?;
    let took = began.elapsed();
    let asked = PreparedCall::graphql("/graphql", "{ __type(name: \"T0s99\") { fields { name } } }");
    let answer: Value =
        serde_json::from_slice(&open_loop::run(asked.send(&BenchClient::new(server.address)))??.body)?;
    let fields = answer["data"]["__type"]["fields"].as_array().map(Vec::len);
    ensure!(fields == Some(SERVICE.fields + 1), "the last service is missing: {answer}");
    Ok((took.as_secs_f64(), server.peak_rss()? as f64))
}

/// A config of one GraphQL route over this many services, with their documents in the folder.
fn config(folder: &Path, services: usize, shape: DocumentSize) -> Result<String> {
    let mut text = "services:\n".to_owned();
    for service in 0..services {
        let file = folder.join(format!("s{service}.json"));
        std::fs::write(&file, openapi_document(service, shape).to_string())?;
        let _ =
            writeln!(text, "  s{service}: {{ url: 'http://127.0.0.1:9', openapi: '{}' }}", file.display());
    }
    let names: Vec<String> = (0..services).map(|service| format!("s{service}")).collect();
    let _ = writeln!(
        text,
        "routes:\n  - {{ path: /graphql, graphql: {{ services: [{}], mutations: true }} }}",
        names.join(", ")
    );
    Ok(text)
}

/// A realistic document: most operations read or write one of the types, which refer to each other.
fn openapi_document(service: usize, shape: DocumentSize) -> Value {
    let name = |place: usize| format!("T{}s{service}", place % shape.types);
    let reference = |place: usize| json!({ "$ref": format!("#/components/schemas/{}", name(place)) });
    let mut paths = serde_json::Map::new();
    for place in 0..shape.operations {
        let answer = match place % 3 {
            0 => json!({ "type": "array", "items": reference(place) }),
            _ => reference(place),
        };
        let content = |schema: &Value| json!({ "application/json": { "schema": schema } });
        let parameters = ["owner", "page", "limit"].map(|parameter| {
            json!({ "name": parameter, "in": "query", "description": "What is asked for.", "schema": { "type": "string" } })
        });
        let mut operation = json!({
            "operationId": format!("operation{place}s{service}"),
            "summary": "Does what its name says",
            "parameters": parameters,
            "responses": { "200": { "description": "Well.", "content": content(&answer) } },
        });
        let method = if place % 4 == 3 { "post" } else { "get" };
        if method == "post" {
            operation["requestBody"] = json!({ "content": content(&reference(place + 1)) });
        }
        paths.insert(format!("/things/{place}"), json!({ method: operation }));
    }
    let kinds = [
        json!({ "type": "string", "description": "A text." }),
        json!({ "type": "integer", "format": "int64" }),
        json!({ "type": "boolean" }),
        json!({ "type": "string", "format": "date-time" }),
    ];
    let schema = |place: usize| {
        let fields = (0..shape.fields)
            .map(|field| (format!("field{field}"), kinds[(place + field) % kinds.len()].clone()));
        let fields = fields.chain([("other".to_owned(), reference(place + 7))]);
        json!({ "type": "object", "properties": fields.collect::<serde_json::Map<_, _>>() })
    };
    let schemas: serde_json::Map<_, _> = (0..shape.types).map(|place| (name(place), schema(place))).collect();
    json!({
        "openapi": "3.0.3",
        "info": { "title": "Things", "version": "1" },
        "paths": paths,
        "components": { "schemas": schemas },
    })
}

/// The time of each plan in milliseconds.
async fn measure_plans(tools: &BenchTools) -> Result<Vec<f64>> {
    let marketplace = Marketplace::start(DatabaseFolder::fresh()?).await?;
    let folder = tempfile::tempdir()?;
    let links = folder.path().join("links.yaml");
    std::fs::write(&links, LINKS)?;
    let mut config = "services:\n".to_owned();
    for service in MarketplaceService::ALL {
        let (name, openapi) =
            (service.name(), example_path("openapi").join(service.name()).with_extension("yaml"));
        let (url, openapi) = (marketplace.url(service), openapi.display());
        let _ = writeln!(config, "  {name}: {{ url: '{url}', openapi: '{openapi}' }}");
    }
    let links = links.display();
    let _ = writeln!(
        config,
        "routes:\n  - {{ path: /graphql, graphql: {{ services: [profile, catalog, order], links: '{links}' }} }}"
    );
    let orfa = ServerProcess::start_gateway(&tools.orfa, SERVER_CORE, &config)?;
    let client = BenchClient::new(orfa.address);
    let mut plans = Vec::new();
    for place in 0..PLANS {
        let query = PreparedCall::graphql("/graphql", &nested_query(place));
        let mut took = [0.0; 2];
        for took in &mut took {
            let began = Instant::now();
            let answer = query.send(&client).await.context("a query of many levels")?.body;
            *took = began.elapsed().as_secs_f64() * 1e3;
            ensure!(&answer[..] == br#"{"data":{"listOrders":[]}}"#, "{}", String::from_utf8_lossy(&answer));
        }
        plans.push(took[0] - took[1]);
    }
    Ok(plans)
}

/// A query with many levels that is new to the gateway because of its operation name.
fn nested_query(place: usize) -> String {
    let names =
        ["listOrders(limit: 0)", "catalog"].into_iter().chain(["buyer", "catalog"].into_iter().cycle());
    let mut query = format!("query Plan{place}");
    for name in names.take(LEVELS) {
        let _ = write!(query, " {{ {name}");
    }
    query + " { id }" + &" }".repeat(LEVELS)
}
