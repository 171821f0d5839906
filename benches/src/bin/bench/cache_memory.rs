//! The memory of another cached program, and of another live instance: the maximum of C and JavaScript.

use anyhow::{Result, ensure};
use benches::client::BenchClient;
use benches::programs;
use benches::scoreboard::{BetterDirection, HeadlineScore};
use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use serde::Serialize;

use crate::cold_programs::distinct_module;
use crate::process::{ServerProcess, UNUSED_ADDRESS, query_route};
use crate::{BenchTools, print_line};

const PROGRAMS: u64 = 2_000;
const INSTANCES: u64 = 100;
/// Limits that allow all programs and instances of one owner.
const ROOM: &str =
    "runtime: { instances: 2048, cache: 1GiB, compile_time: 10m }\nshed: { automatic: false }\n";

#[derive(Serialize)]
struct CacheMemoryRow {
    what: String,
    count: u64,
    kb_each: f64,
}

/// Programs in one language: the content type, and a function that returns distinct programs.
struct GeneratedPrograms {
    name: &'static str,
    content_type: &'static str,
    nth: Box<dyn Fn(u64) -> Bytes>,
}

pub(crate) fn run(tools: &BenchTools) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let module = std::fs::read(programs::build_program(&tools.orfa, "constant.c", folder.path())?)?;
    let source = std::fs::read_to_string(programs::program_path("constant.js"))?;
    let kinds = [
        GeneratedPrograms {
            name: "C",
            content_type: "application/wasm",
            nth: Box::new(move |n| distinct_module(&module, n)),
        },
        GeneratedPrograms {
            name: "JavaScript",
            content_type: "text/javascript",
            nth: Box::new(move |n| format!("{source}// {n}\n").into()),
        },
    ];
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (mut rows, mut worst) = (Vec::new(), [0.0; 2]);
    for kind in &kinds {
        let cases = [("program", "code", PROGRAMS, true), ("instance", "instance", INSTANCES, false)];
        for (place, (what, mode, count, differ)) in cases.into_iter().enumerate() {
            let kb_each = runtime.block_on(measure_each(tools, kind, mode, count, differ))?;
            print_line(&format!("  {kb_each:>6.1} KB for one more {what} in {}", kind.name));
            rows.push(CacheMemoryRow { what: format!("{what} in {}", kind.name), count, kb_each });
            worst[place] = f64::max(worst[place], kb_each);
        }
    }
    let [program, instance] = worst;
    let scores = [
        ("query.cached_program_kb".to_owned(), score(program, 64.0, "resident before 2000 more were kept")),
        (
            "query.live_instance_kb".to_owned(),
            score(instance, 1000.0, "resident before 100 more went on living"),
        ),
    ];
    tools.write_results("kept", &rows, scores)
}

fn score(value: f64, target: f64, against: &str) -> HeadlineScore {
    let (unit, against) = ("KB".to_owned(), against.to_owned());
    HeadlineScore { value, unit, better: BetterDirection::Lower, target: Some(target), against, spread: 0.0 }
}

/// The kilobytes that each one adds.
async fn measure_each(
    tools: &BenchTools,
    kind: &GeneratedPrograms,
    mode: &'static str,
    count: u64,
    differ: bool,
) -> Result<f64> {
    let server =
        ServerProcess::start_gateway(&tools.orfa, "0,1", &format!("{ROOM}{}", query_route(UNUSED_ADDRESS)))?;
    let client = BenchClient::new(server.address);
    let send = |number: u64| {
        let request = Request::post("/query").header("content-type", kind.content_type);
        let request = request.header("orfa-cache", mode).body(Full::new((kind.nth)(number)));
        let client = &client;
        async move {
            let answer = client.send(request?).await?;
            ensure!(answer.status.is_success(), "{}", String::from_utf8_lossy(&answer.body));
            anyhow::Ok(())
        }
    };
    // A warm-up, so that one-time allocations are not counted.
    for number in 0..20 {
        send(number).await?;
    }
    let before = server.usage()?.rss;
    for number in 20..20 + count {
        send(if differ { number } else { 0 }).await?;
    }
    Ok((server.usage()?.rss as f64 - before as f64) / 1e3 / count as f64)
}
