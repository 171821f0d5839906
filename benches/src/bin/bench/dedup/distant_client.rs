//! The paper's table 1 with our variants next to its three: the cost of a response for a distant client on a
//! line of one megabit per second. A proxied service serves the history; the gateway deduplicates and
//! compresses it. The variants are measured one after the other, since nearly all of their time is that of
//! the line.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use benches::client::BenchClient;
use benches::delay::DelayProxy;
use benches::stats::median;
use bytes::Bytes;
use futures_util::future::try_join_all;
use http::Request;
use http::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_TYPE, HeaderValue};
use http_body_util::Full;
use serde::Serialize;

use super::{HistoryFigures, history_file, history_name};
use crate::BenchTools;
use crate::process::{SERVER_CORE, ServerProcess};
use crate::progress::BenchProgress;
use crate::service::{self, BenchService};

const ROUND_TRIP: Duration = Duration::from_millis(100);
/// A megabit per second, which matches the paper's response times.
const RATE: u64 = 125_000;
const REQUESTS: usize = 5;
/// The number of concurrent clients when throughput is measured, and the duration.
const CLIENTS: usize = 4;
const ROUND: Duration = Duration::from_millis(1500);
const DEDUP: &str = "application/vnd.orfa.dedup+json";

/// A variant of sending the response.
struct SendingVariant {
    name: &'static str,
    /// The form that the service sends.
    form: &'static str,
    accept: &'static str,
    coding: &'static str,
    /// The paper's own figures for 10, 50 and 100 nodes, if it has this variant.
    paper: Option<[PaperFigures; 3]>,
}

#[derive(Clone, Copy, Serialize)]
struct PaperFigures {
    bytes: f64,
    response_ms: f64,
    parsing_ms: f64,
    per_second: f64,
}

/// The results of one response in one variant.
#[derive(Serialize)]
pub(super) struct VariantResults {
    nodes: usize,
    way: &'static str,
    /// The size of the body.
    bytes: usize,
    response_ms: f64,
    /// The time to read it in Node as the whole object; `None` if Node can't read the coding.
    parsing_ms: Option<f64>,
    /// The time until the client has the object.
    all_ms: Option<f64>,
    per_second: f64,
    /// The gain over no treatment and over gzip, in percent, as in the paper's tables 2 to 4.
    gain: Option<[SavedTime; 2]>,
    paper: Option<PaperFigures>,
}

#[derive(Clone, Copy, Serialize)]
struct SavedTime {
    throughput: f64,
    response: f64,
    parsing: Option<f64>,
}

const fn paper_figures(bytes: f64, response_ms: f64, parsing_ms: f64, per_second: f64) -> PaperFigures {
    PaperFigures { bytes, response_ms, parsing_ms, per_second }
}

const PAPER_PLAIN: [PaperFigures; 3] = [
    paper_figures(8978.0, 450.39, 0.17, 1.0),
    paper_figures(43335.0, 720.88, 0.71, 1.0),
    paper_figures(64566.0, 866.70, 1.04, 0.9967),
];
const PAPER_GZIP: [PaperFigures; 3] = [
    paper_figures(952.0, 408.29, 0.16, 1.0),
    paper_figures(1232.0, 442.98, 0.55, 1.0),
    paper_figures(1400.0, 437.53, 0.81, 1.0),
];
const PAPER_DEDUPLICATED: [PaperFigures; 3] = [
    paper_figures(1796.0, 405.63, 0.09, 1.0),
    paper_figures(5031.0, 443.53, 0.18, 1.0),
    paper_figures(7110.0, 443.96, 0.25, 1.0),
];

const fn sending_variant(name: &'static str, accept: &'static str, coding: &'static str) -> SendingVariant {
    SendingVariant { name, form: "plain", accept, coding, paper: None }
}

/// The first two are the baselines.
const VARIANTS: [SendingVariant; 9] = [
    SendingVariant { paper: Some(PAPER_PLAIN), ..sending_variant("plain", "*/*", "identity") },
    SendingVariant { paper: Some(PAPER_GZIP), ..sending_variant("gzip", "*/*", "gzip") },
    SendingVariant {
        form: "deduplicator",
        paper: Some(PAPER_DEDUPLICATED),
        ..sending_variant("deduplicator", "*/*", "identity")
    },
    sending_variant("br", "*/*", "br"),
    sending_variant("zstd", "*/*", "zstd"),
    sending_variant("dedup", DEDUP, "identity"),
    sending_variant("dedup+gzip", DEDUP, "gzip"),
    sending_variant("dedup+br", DEDUP, "br"),
    sending_variant("dedup+zstd", DEDUP, "zstd"),
];

pub(super) fn run(
    tools: &BenchTools,
    folder: &Path,
    texts: &[HistoryFigures],
    progress: &BenchProgress,
) -> Result<Vec<VariantResults>> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let _entered = runtime.enter();
    let folder = Arc::new(folder.to_owned());
    let service = BenchService::start(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), move |request| {
        let text = std::fs::read(folder.join(request.uri().path().trim_start_matches('/')));
        let mut answer = service::text_response(text.unwrap_or_default());
        answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        std::future::ready(answer)
    })?;
    let yaml = format!(
        "compress: true\nshed: {{ automatic: false }}\nservices: {{ service: {{ url: 'http://{}' }} }}\nroutes:\n  - {{ path: /*, proxy: service }}\n",
        service.address
    );
    let gateway = ServerProcess::start_gateway(&tools.orfa, SERVER_CORE, &yaml)?;
    let mut cells: Vec<VariantResults> = Vec::new();
    for (size, text) in texts.iter().filter(|text| text.authors == 1).enumerate() {
        let first = cells.len();
        for variant in &VARIANTS {
            let mut cell = runtime.block_on(measure_cell(tools, gateway.address, variant, text))?;
            cell.paper = variant.paper.and_then(|paper| paper.get(size).copied());
            if let Some([plain, gzip, ..]) = cells.get(first..) {
                cell.gain = Some([compute_gain(&cell, plain), compute_gain(&cell, gzip)]);
            }
            progress.report(&format!(
                "{:>3} nodes {:<14} {:>6} bytes {:>7.1} ms {:>6.3} ms parsing {:>6.2} in a second",
                cell.nodes,
                cell.way,
                cell.bytes,
                cell.response_ms,
                cell.parsing_ms.unwrap_or(f64::NAN),
                cell.per_second
            ));
            cells.push(cell);
        }
    }
    Ok(cells)
}

async fn measure_cell(
    tools: &BenchTools,
    gateway: SocketAddr,
    variant: &SendingVariant,
    text: &HistoryFigures,
) -> Result<VariantResults> {
    let line = DelayProxy::start_slow(gateway, ROUND_TRIP, Some(RATE)).await?;
    let client = BenchClient::new(line.address());
    let path = history_file(Path::new("/"), &history_name(text.nodes, text.authors), variant.form);
    let path = path.to_string_lossy();
    line.open(&client, CLIENTS).await?;
    let mut times = Vec::new();
    let mut bytes = 0;
    for _ in 0..REQUESTS {
        let begun = Instant::now();
        bytes = request_history(&client, variant, &path).await?;
        times.push(begun.elapsed().as_secs_f64() * 1000.0);
    }
    let (begun, round) = (Instant::now(), tools.round_time(ROUND));
    let clients = (0..CLIENTS).map(async |_| {
        let mut answers = 0;
        while begun.elapsed() < round {
            request_history(&client, variant, &path).await?;
            answers += 1;
        }
        anyhow::Ok(answers)
    });
    let answers: usize = try_join_all(clients).await?.into_iter().sum();
    let per_second = answers as f64 / begun.elapsed().as_secs_f64();
    let response_ms = median(&times);
    let parsing_ms = text.read_us.get(variant.name).map(|micros| micros / 1000.0);
    let all_ms = parsing_ms.map(|parsing| parsing + response_ms);
    let HistoryFigures { nodes, .. } = *text;
    Ok(VariantResults {
        nodes,
        way: variant.name,
        bytes,
        response_ms,
        parsing_ms,
        all_ms,
        per_second,
        gain: None,
        paper: None,
    })
}

/// Requests the response and returns the length of its body. Fails if it has another form than requested.
async fn request_history(client: &BenchClient, variant: &SendingVariant, path: &str) -> Result<usize> {
    let request = Request::get(path).header(ACCEPT, variant.accept).header(ACCEPT_ENCODING, variant.coding);
    let answer = client.send(request.body(Full::new(Bytes::new()))?).await?;
    let header = |name: &str| answer.headers.get(name).and_then(|value| value.to_str().ok());
    ensure!(answer.status.is_success(), "{}: {}", variant.name, answer.status);
    ensure!(
        header("content-encoding").unwrap_or("identity") == variant.coding,
        "{}: another coding",
        variant.name
    );
    ensure!(
        (header("content-type") == Some(DEDUP)) == (variant.accept == DEDUP),
        "{}: another type",
        variant.name
    );
    Ok(answer.body.len())
}

fn compute_gain(cell: &VariantResults, other: &VariantResults) -> SavedTime {
    let more = |other: f64, own: f64| (other / own - 1.0) * 100.0;
    SavedTime {
        throughput: more(cell.per_second, other.per_second),
        response: more(other.response_ms, cell.response_ms),
        parsing: other.parsing_ms.zip(cell.parsing_ms).map(|(other, own)| more(other, own)),
    }
}
