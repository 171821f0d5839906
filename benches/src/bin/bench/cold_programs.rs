//! Programs that have never been sent before: the time to the response, including compilation; and the size
//! of the demo's modules.

use std::io::Write;
use std::path::Path;
use std::time::Instant;

use anyhow::{Result, ensure};
use benches::client::BenchClient;
use benches::programs;
use benches::scoreboard::{BetterDirection, HeadlineScore};
use benches::stats::{median, percentile, spread};
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::Request;
use http_body_util::Full;
use serde::Serialize;

use crate::process::{ServerProcess, UNUSED_ADDRESS, query_route};
use crate::{BenchTools, print_line};

/// The number of distinct programs.
const PROGRAMS: u64 = 300;
const DEMO_SOURCES: [&str; 3] = ["second.c", "notify_admins.c", "orders.c"];

#[derive(Serialize)]
struct GeneratedModule {
    name: &'static str,
    bytes: usize,
    gzip: usize,
}

pub(crate) fn run(tools: &BenchTools) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let module = std::fs::read(programs::build_program(&tools.orfa, "constant.c", folder.path())?)?;
    // One client sends more of them than its default compile quota allows.
    let yaml = format!("runtime: {{ compile_time: 1m }}\n{}", query_route(UNUSED_ADDRESS));
    let server = ServerProcess::start_gateway(&tools.orfa, "0", &yaml)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let times = runtime.block_on(response_times(&server, &module))?;
    print_line(&format!("  unseen: median {:.2} ms, p90 {:.2} ms", median(&times), percentile(&times, 90)));
    let modules = module_sizes(&tools.orfa, folder.path())?;
    let worst = modules.iter().map(|module| module.bytes).max().unwrap_or(0) as f64;
    let against = "loopback, one request at a time, compiling included";
    let headline = ("query.unseen_ms".to_owned(), score(median(&times), "ms", 4.0, against, spread(&times)));
    tools.write_results("unseen", &times, [headline])?;
    let headline = score(worst, "bytes", 1200.0, "the C modules of the demo", 0.0);
    tools.write_results("modules", &modules, [("query.module_bytes.worst".to_owned(), headline)])
}

fn score(value: f64, unit: &str, target: f64, against: &str, spread: f64) -> HeadlineScore {
    let (unit, against) = (unit.to_owned(), against.to_owned());
    HeadlineScore { value, unit, better: BetterDirection::Lower, target: Some(target), against, spread }
}

/// The response time of each program in milliseconds.
async fn response_times(server: &ServerProcess, module: &[u8]) -> Result<Vec<f64>> {
    let client = BenchClient::new(server.address);
    let mut times = Vec::new();
    for number in 0..PROGRAMS {
        let request = Request::post("/query").header("content-type", "application/wasm");
        let request = request.body(Full::new(distinct_module(module, number)))?;
        let started = Instant::now();
        let answer = client.send(request).await?;
        times.push(started.elapsed().as_secs_f64() * 1e3);
        ensure!(answer.status.is_success(), "{}", String::from_utf8_lossy(&answer.body));
    }
    Ok(times)
}

/// Changes the content hash of a module without changing its code, with a custom section that contains a
/// number.
pub(crate) fn distinct_module(module: &[u8], number: u64) -> Bytes {
    let mut bytes = module.to_vec();
    bytes.extend_from_slice(&[0, 10, 1, b'n']);
    bytes.extend_from_slice(&number.to_le_bytes());
    bytes.into()
}

fn module_sizes(orfa: &Path, folder: &Path) -> Result<Vec<GeneratedModule>> {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../sdk/c/examples");
    let measure = |name: &'static str| {
        let bytes = std::fs::read(programs::build_program_file(orfa, &sources.join(name), folder)?)?;
        let mut gzip = GzEncoder::new(Vec::new(), Compression::best());
        gzip.write_all(&bytes)?;
        let module = GeneratedModule { name, bytes: bytes.len(), gzip: gzip.finish()?.len() };
        print_line(&format!("  {name}: {} bytes, {} compressed", module.bytes, module.gzip));
        Ok(module)
    };
    DEMO_SOURCES.into_iter().map(measure).collect()
}
