//! Responses of 10 MB: the growth of resident memory. One case is a service's response that is streamed: the
//! service holds its last piece back until the client has the first one. The other is the same response
//! joined with another one.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use benches::client::BenchClient;
use benches::scoreboard::{BetterDirection, HeadlineScore};
use bytes::Bytes;
use futures_util::stream::{self, StreamExt};
use http::{Request, Response};
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::client::conn::http1::handshake;
use hyper_util::rt::TokioIo;
use serde::Serialize;
use tokio::net::TcpStream;
use tokio::sync::Notify;

use crate::process::{SERVER_CORE, ServerProcess};
use crate::progress::BenchProgress;
use crate::ratios::NamedScore;
use crate::service::{BenchService, BenchServiceResponse, text_response};
use crate::{BenchTools, open_loop};

/// The approximate length of the response.
const LENGTH: usize = 10_000_000;
const PIECE_BYTES: usize = 64 << 10;
const SAMPLE: Duration = Duration::from_millis(2);
/// The longest time for which the last piece is held back.
const HOLD_TIMEOUT: Duration = Duration::from_secs(3);
/// The number of authors of the rows.
const AUTHORS: usize = 100;

/// The name of a case, with its declaration.
const SHAPES: [(&str, &str); 2] = [
    ("as it comes", "parts:\n  rows: { get: service/rows }\nresponse: rows\n"),
    (
        "joined",
        "parts:\n  rows: { get: service/rows }\n  authors:\n    get: service/authors\n    \
         join: { into: rows, on: author_id = id, as: author, one: true }\nresponse: rows\n",
    ),
];

#[derive(Serialize)]
pub(super) struct LargeAggregateRow {
    shape: &'static str,
    bytes: usize,
    rss_before_mb: f64,
    rss_highest_mb: f64,
    /// The growth relative to the length of the response.
    rss_ratio: f64,
    /// Whether the client received the first byte before the service had sent the last one.
    first_before_last: bool,
}

/// Coordination between the service and the client.
#[derive(Default)]
struct ServiceClientBarrier {
    first_received: Notify,
    last_sent: AtomicBool,
}

/// The received response.
struct ReceivedLargeResponse {
    bytes: usize,
    first_before_last: bool,
}

pub(super) fn run(
    tools: &BenchTools,
    progress: &BenchProgress,
) -> Result<(Vec<LargeAggregateRow>, NamedScore)> {
    let rows = open_loop::run(async {
        let mut rows = Vec::new();
        for (shape, declaration) in SHAPES {
            rows.push(measure(tools, shape, declaration, progress).await.context(shape)?);
        }
        anyhow::Ok(rows)
    })??;
    let worst = rows.iter().map(|row| row.rss_ratio).fold(0.0, f64::max);
    let streamed =
        rows.iter().filter(|row| row.first_before_last).map(|row| row.shape).collect::<Vec<_>>().join(", ");
    let score = HeadlineScore {
        value: worst,
        unit: "ratio".into(),
        better: BetterDirection::Lower,
        target: Some(4.0),
        against: format!("the answer's length; first byte before the service's last: {streamed}"),
        spread: 0.0,
    };
    Ok((rows, ("aggregate.10mb.rss_ratio".into(), score)))
}

async fn measure(
    tools: &BenchTools,
    shape: &'static str,
    declaration: &str,
    progress: &BenchProgress,
) -> Result<LargeAggregateRow> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("large.yaml");
    std::fs::write(&file, declaration)?;
    let (gate, rows) = (Arc::<ServiceClientBarrier>::default(), Bytes::from(rows()));
    let (at, held) = (SocketAddr::from(([127, 0, 0, 1], 0)), Arc::clone(&gate));
    let service =
        BenchService::start(at, move |request| serve_request(request, rows.clone(), Arc::clone(&held)))?;
    let server = ServerProcess::start_gateway(&tools.orfa, SERVER_CORE, &config(service.address, &file))?;
    // A warm-up, so that memory that every request needs is not counted.
    let warm = BenchClient::new(server.address).send(Request::get("/authors").body(Full::default())?).await?;
    ensure!(warm.status == 200, "{}", warm.status);
    let before = server.usage()?.rss;
    let asked = request_large(server.address, gate);
    let (came, highest) = open_loop::with_peak_memory(&server, SAMPLE, asked).await?;
    let ReceivedLargeResponse { bytes, first_before_last } = came?;
    ensure!(bytes >= LENGTH, "only {bytes} bytes arrived");
    let (rss_before_mb, rss_highest_mb) = (before as f64 / 1e6, highest as f64 / 1e6);
    let rss_ratio = (highest - before) as f64 / bytes as f64;
    let first = if first_before_last { "before" } else { "after" };
    progress.report(&format!(
        "{shape:<11} {rss_before_mb:.1} to {rss_highest_mb:.1} MB, {rss_ratio:.2} of the answer; first byte {first} the last"
    ));
    Ok(LargeAggregateRow { shape, bytes, rss_before_mb, rss_highest_mb, rss_ratio, first_before_last })
}

fn config(service: SocketAddr, declaration: &Path) -> String {
    format!(
        "services: {{ service: {{ url: 'http://{service}' }} }}\n\
         routes:\n  - {{ path: /large, aggregate: '{}' }}\n  - {{ path: /authors, proxy: service }}\n",
        declaration.display()
    )
}

/// The service. `/rows` stops before its last piece until the client has the first one.
async fn serve_request(
    request: Request<Incoming>,
    rows: Bytes,
    gate: Arc<ServiceClientBarrier>,
) -> BenchServiceResponse {
    let mut answer = match request.uri().path() {
        "/rows" => {
            let pieces = stream::iter((0..rows.len()).step_by(PIECE_BYTES)).then(move |from| {
                let piece = rows.slice(from..(from + PIECE_BYTES).min(rows.len()));
                let (is_last, gate) = (from + PIECE_BYTES >= rows.len(), Arc::clone(&gate));
                async move {
                    if is_last {
                        // A gateway that buffers the whole response gets the last piece later.
                        let _ = tokio::time::timeout(HOLD_TIMEOUT, gate.first_received.notified()).await;
                        gate.last_sent.store(true, Relaxed);
                    }
                    Ok::<_, Infallible>(Frame::data(piece))
                }
            });
            Response::new(StreamBody::new(pieces).boxed_unsync())
        }
        _ => text_response(authors()),
    };
    answer.headers_mut().insert("content-type", http::HeaderValue::from_static("application/json"));
    answer
}

fn rows() -> String {
    let (mut rows, mut id) = (String::from("["), 0);
    while rows.len() < LENGTH {
        let comma = if id == 0 { "" } else { "," };
        let author = id % AUTHORS;
        rows += &format!(
            r#"{comma}{{"id":{id},"author_id":{author},"title":"The row with number {id}","text":"{}","tags":["one","two"],"open":true}}"#,
            "some words about it ".repeat(8)
        );
        id += 1;
    }
    rows + "]"
}

fn authors() -> String {
    let author = |id| format!(r#"{{"id":{id},"name":"Author {id}"}}"#);
    format!("[{}]", (0..AUTHORS).map(author).collect::<Vec<_>>().join(","))
}

/// Sends the request, signals the arrival of the first byte, and counts the bytes.
async fn request_large(
    address: SocketAddr,
    gate: Arc<ServiceClientBarrier>,
) -> Result<ReceivedLargeResponse> {
    let (mut client, connection) = handshake(TokioIo::new(TcpStream::connect(address).await?)).await?;
    tokio::spawn(connection);
    let request = Request::get("/large").header("host", address.to_string()).body(Full::<Bytes>::default())?;
    let answer = client.send_request(request).await?;
    let (status, mut body, mut bytes) = (answer.status(), answer.into_body(), 0);
    let mut first_before_last = false;
    while let Some(frame) = body.frame().await {
        let length = frame?.data_ref().map_or(0, Bytes::len);
        if bytes == 0 && length > 0 {
            first_before_last = !gate.last_sent.load(Relaxed);
            gate.first_received.notify_one();
        }
        bytes += length;
    }
    ensure!(status == 200, "{status}");
    Ok(ReceivedLargeResponse { bytes, first_before_last })
}
