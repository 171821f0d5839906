//! Measures the cost of runs without HTTP: `cargo run --release -p script-runtime --example runs`.
//!
//! The CPU times of this process and of its workers, as reported by the system, are printed for each run.
#![allow(clippy::print_stdout, reason = "the output is the result")]

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use handler::HandlerRequest;
use http::Request;
use http_body_util::BodyExt;
use offload::{OffloadConfig, OffloadPool};
use script::{CompileOptions, compile};
use script_runtime::{
    DeployedNames, ScriptConfig, ScriptRoute, ScriptRouteContext, ScriptRuntime, ScriptsConfig,
};
use services::{RequestCall, ServiceSet, body};

/// Listing 6 of the paper, the crawler.
const LISTING: &str = include_str!("../../script/tests/listings/6.sjs");

/// Additional resources: the listing's pages, and others to measure.
const ADDITIONAL_RESOURCES: &str = r"service crawler {
  state n = 0
  res '/hello' on GET { respond 'hello' }
  res '/count' on GET { respond n }
  res '/count' on PUT { n++ }
  res '/page' on GET { respond '<a href=/page?n=' + (2 * query.n) + '> <a href=/page?n=' + (2 * query.n + 1) + '>' }
  res '/again' on GET {
    res again = '/again?depth=@'
    if (query.depth > 0) respond again.get(query.depth - 1)
    else respond 'the end'
  }
";

/// Returns the listing with all resources in one service, so that its pages need no network.
fn script_source() -> String {
    let crawler = LISTING.replace(r#"https?:\/\/[^"'\s>]+"#, "[/]page[?]n=[0-9]+");
    crawler.replacen("service crawler {", ADDITIONAL_RESOURCES, 1)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let text = script_source();
    let program =
        compile(&text, "runs.sjs", &CompileOptions::default()).map_err(|_| "the script does not compile")?;
    let offload = OffloadPool::start(OffloadConfig::default())?;
    let scripts = ScriptRuntime::new(&ScriptsConfig::default(), folder.path(), None, offload)?;
    let services = ServiceSet::new(&[].into()).map_err(|_| "an empty list of services is valid")?;
    let deployed = DeployedNames::default();
    let ground = ScriptRouteContext {
        path: "/*",
        services: &services,
        scripts: &scripts,
        deployed: &deployed,
        folder: folder.path(),
    };
    let mut options = ScriptConfig::File("runs.sjs".into()).options();
    let workers = std::env::args().nth(1).and_then(|count| count.parse().ok()).unwrap_or(1);
    (options.workers.min, options.workers.max) = (workers, Some(workers));
    options.limits.timeout = services::DurationConfig::from_secs(600);
    let script = ScriptRoute::build(program, text, options, &ground).map_err(|wrong| format!("{wrong:?}"))?;
    script.activate();
    script.wait_until_settled().await;
    measure(&script, "hello, 32 at once", "GET", "/hello", 32, 100_000).await;
    measure(&script, "hello, 1 at once", "GET", "/hello", 1, 10_000).await;
    measure(&script, "count, 32 readers", "GET", "/count", 32, 50_000).await;
    measure(&script, "count, 32 writers", "PUT", "/count", 32, 50_000).await;
    measure(&script, "calls itself 1000 deep", "GET", "/again?depth=1000", 1, 5).await;
    measure(&script, "calls itself 30000 deep", "GET", "/again?depth=30000", 1, 1).await;
    for depth in [10, 12, 14] {
        let path = format!("/crawl?startFrom=/page%3Fn%3D1&depth={depth}");
        let pages = measure(&script, &format!("crawl, depth {depth}"), "PUT", &path, 1, 1).await;
        println!("    {:.1} us of wall time a page", pages.as_secs_f64() * 1e6 / f64::from((1 << depth) - 1));
    }
    Ok(())
}

async fn measure(
    script: &ScriptRoute,
    what: &str,
    method: &str,
    path: &str,
    at_once: u32,
    count: u32,
) -> Duration {
    for _ in 0..count.min(2000) / 10 {
        send_request(script, method, path).await;
    }
    let (began, before) = (Instant::now(), cpu_seconds());
    let each = async || {
        for _ in 0..count / at_once {
            send_request(script, method, path).await;
        }
    };
    join_all((0..at_once).map(|_| each())).await;
    let (took, after) = (began.elapsed(), cpu_seconds());
    let part = |at: usize| (after[at] - before[at]) * 1e6 / f64::from(count);
    println!(
        "{what}: {:.0} a second; a run takes {:.1} us here, {:.1} us in workers",
        f64::from(count) / took.as_secs_f64(),
        part(0),
        part(1)
    );
    took
}

async fn send_request(script: &ScriptRoute, method: &str, path: &str) {
    let request = Request::builder().method(method).uri(path).body(body::empty()).expect("a request");
    let answer = script.handle(HandlerRequest::new(request, RequestCall::unlimited())).await;
    let answer = answer.unwrap_or_else(|problem| panic!("{problem}")).response;
    assert!(answer.status().is_success());
    answer.into_body().collect().await.expect("a body");
}

/// Returns the CPU seconds of this process and of its running children.
fn cpu_seconds() -> [f64; 2] {
    let own = std::process::id().to_string();
    let mut used = [0.0; 2];
    for entry in std::fs::read_dir("/proc").expect("Linux").flatten() {
        let Ok(stat) = std::fs::read_to_string(entry.path().join("stat")) else { continue };
        let Some((_, fields)) = stat.rsplit_once(')') else { continue };
        let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
        let is_own = entry.file_name().to_string_lossy() == own;
        if is_own || fields[1] == own {
            let ticks: f64 = fields[11..13].iter().map(|ticks| ticks.parse::<f64>().expect("ticks")).sum();
            used[usize::from(!is_own)] += ticks / 100.0;
        }
    }
    used
}
