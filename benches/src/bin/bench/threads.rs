//! Fresh instances on two threads compared with one, in process: the CPU cost of a request must not grow with
//! the number of threads. Without resident memory it does, because of page faults and their locks.
//!
//! Two cores may be hyperthreads of one, and slow each other down with any load. This effect is measured with
//! two separate threads, each with an engine, pools and a cache of its own.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use benches::programs;
use benches::scoreboard::{BetterDirection, HeadlineScore};
use benches::stats::{median, spread};
use bytes::Bytes;
use handler::HandlerRequest;
use http::Request;
use query::{QueryConfig, QueryRoute, QueryRouteContext, QueryRuntime, RuntimeConfig};
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;
use services::{RequestCall, ServiceConfig, ServiceSet};

use crate::{BenchTools, print_line};

const ROUNDS: usize = 14;
const ROUND: Duration = Duration::from_millis(500);

#[derive(Serialize)]
struct ThreadsRow {
    threads: usize,
    /// Whether the threads share nothing.
    apart: bool,
    round: usize,
    requests: u64,
    cpu_us: f64,
}

pub(crate) fn run(tools: &BenchTools) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let program =
        Bytes::from(std::fs::read(programs::build_program(&tools.orfa, "constant.c", folder.path())?)?);
    let [query, other] = [Arc::new(build_query()?), Arc::new(build_query()?)];
    let ways = [(false, vec![&query]), (false, vec![&query, &query]), (true, vec![&query, &other])];
    for query in [&query, &other] {
        measure(&[query], &program)?;
    }
    let mut rows = Vec::new();
    for round in 0..ROUNDS {
        for (apart, queries) in &ways {
            let (requests, cpu_us) = measure(queries, &program)?;
            rows.push(ThreadsRow { threads: queries.len(), apart: *apart, round, requests, cpu_us });
        }
    }
    let of = |threads, apart| -> Vec<f64> {
        let those = rows.iter().filter(|row| (row.threads, row.apart) == (threads, apart));
        those.map(|row| row.cpu_us).collect()
    };
    let (one, two, apart) = (of(1, false), of(2, false), of(2, true));
    let over_one = |two: &[f64]| two.iter().zip(&one).map(|(two, one)| two / one).collect::<Vec<f64>>();
    let (ratios, apart_ratio) = (over_one(&two), median(&over_one(&apart)));
    print_line(&format!(
        "  CPU per fresh request: {:.1} us on one thread, {:.1} us on two, {:.1} us on two that share nothing",
        median(&one),
        median(&two),
        median(&apart)
    ));
    let against =
        format!("one thread, {:.1} us; two threads that share nothing: {apart_ratio:.2}", median(&one));
    let score = HeadlineScore {
        value: median(&ratios),
        unit: "ratio".into(),
        better: BetterDirection::Lower,
        target: Some(1.2),
        against,
        spread: spread(&ratios),
    };
    tools.write_results("threads", &rows, [("query.fresh.cpu_2_threads_vs_1".to_owned(), score)])
}

fn build_query() -> Result<QueryRoute> {
    let config = BTreeMap::from([("nobody".to_owned(), ServiceConfig::with_url("http://127.0.0.1:9"))]);
    let services = ServiceSet::new(&config).map_err(|problems| anyhow!("{problems:?}"))?;
    let runtime = {
        let config = RuntimeConfig::default();
        QueryRuntime::new(&config, offload::OffloadPool::start(config.offload_config())?)?
    };
    let config: QueryConfig = serde_json::from_str(r#"{"services":["nobody"]}"#)?;
    let (trusted, blocked) = (std::sync::Arc::default(), std::sync::Arc::default());
    let documents = query::RouteDocuments::new();
    let context = QueryRouteContext {
        path: "/query",
        services: &services,
        documents: &documents,
        runtime: &runtime,
        trusted: &trusted,
        blocked: &blocked,
        folder: std::path::Path::new("."),
    };
    QueryRoute::new(&config, &context).map_err(|problems| anyhow!("{problems:?}"))
}

/// Runs each query on a thread of its own. Returns the number of requests, and the CPU microseconds of each.
fn measure(queries: &[&Arc<QueryRoute>], program: &Bytes) -> Result<(u64, f64)> {
    let workers: Vec<_> = queries
        .iter()
        .map(|query| {
            let (query, program) = (Arc::clone(query), program.clone());
            std::thread::spawn(move || run_requests(&query, &program))
        })
        .collect();
    let (mut requests, mut cpu) = (0, 0.0);
    for worker in workers {
        let (done, used) = worker.join().map_err(|_| anyhow!("a worker panicked"))??;
        requests += done;
        cpu += used;
    }
    Ok((requests, cpu / requests.max(1) as f64))
}

fn run_requests(query: &QueryRoute, program: &Bytes) -> Result<(u64, f64)> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let (end, cpu, mut requests) = (Instant::now() + ROUND, thread_cpu(), 0);
        while Instant::now() < end {
            let request = Request::post("/query").header("content-type", "application/wasm");
            let request = request.body(services::body::full(program.clone()))?;
            let answer = query.handle(HandlerRequest::new(request, RequestCall::unlimited())).await;
            answer.map_err(|problem| anyhow!("{problem}"))?;
            requests += 1;
        }
        Ok((requests, thread_cpu() - cpu))
    })
}

/// The CPU time of this thread in microseconds.
fn thread_cpu() -> f64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as f64 * 1e6 + now.tv_nsec as f64 / 1e3
}
