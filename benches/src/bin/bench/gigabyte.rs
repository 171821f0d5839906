//! A gigabyte in each direction through the proxy: the growth of resident memory, and the number of bytes
//! that a sender can send while the receiver does not read.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use benches::scoreboard::{BetterDirection, HeadlineScore};
use bytes::Bytes;
use futures_util::stream;
use http::header::{CONTENT_LENGTH, HOST};
use http::{Method, Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde::Serialize;
use tokio::net::{TcpSocket, TcpStream};

use crate::process::{SERVER_CORE, ServerProcess};
use crate::progress::BenchProgress;
use crate::rivals::ClientProtocol;
use crate::service::{BenchService, BenchServiceResponse, text_response};
use crate::{BenchTools, open_loop};

const GIGABYTE: u64 = 1_000_000_000;
const CHUNK: &[u8] = &[b'x'; 64 << 10];
const SAMPLE: Duration = Duration::from_millis(20);
/// A sender that has made no progress for this time is blocked.
const BLOCKED_AFTER: Duration = Duration::from_secs(1);
/// The limit on bytes between a sender and a receiver that does not read, apart from the socket buffers of
/// the gateway.
const MAX_BUFFERED: u64 = 8 << 20;

type Body = UnsyncBoxBody<Bytes, Infallible>;

#[derive(Serialize)]
#[serde(untagged)]
enum GigabyteRow {
    Through { way: String, bytes: u64, seconds: f64, rss_before_mb: f64, rss_highest_mb: f64 },
    HeldUp { way: String, sent_mb: f64, rss_growth_mb: f64 },
}

/// The direction of the body.
#[derive(Clone, Copy, PartialEq, Eq)]
enum BodyDirection {
    Down,
    Up,
}

const DIRECTIONS: [(BodyDirection, ClientProtocol, &str); 4] = [
    (BodyDirection::Down, ClientProtocol::Http1, "down, http1"),
    (BodyDirection::Up, ClientProtocol::Http1, "up, http1"),
    (BodyDirection::Down, ClientProtocol::Http2, "down, http2"),
    (BodyDirection::Up, ClientProtocol::Http2, "up, http2"),
];

pub(crate) fn run(tools: &BenchTools) -> Result<()> {
    let length = if tools.is_short { GIGABYTE / 10 } else { GIGABYTE };
    let progress = BenchProgress::new(tools, Duration::from_secs(20));
    let (rows, growth) = open_loop::run(measure(tools, length, &progress))??;
    let score = HeadlineScore {
        value: growth,
        unit: "MB".into(),
        better: BetterDirection::Lower,
        target: Some(16.0),
        against: "the highest of four ways, and of receivers that read nothing; resident before".to_owned(),
        spread: 0.0,
    };
    tools.write_results("gigabyte", &rows, [("proxy.gigabyte_rss_growth_mb".to_owned(), score)])
}

async fn measure(
    tools: &BenchTools,
    length: u64,
    progress: &BenchProgress,
) -> Result<(Vec<GigabyteRow>, f64)> {
    let produced = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&produced);
    let service = BenchService::start(SocketAddr::from(([127, 0, 0, 1], 0)), move |request| {
        serve_request(request, Arc::clone(&counted))
    })?;
    let yaml = format!(
        "services: {{ service: {{ url: 'http://{}', timeout: 10m }} }}\n\
         routes:\n  - path: /*\n    proxy: service\n    limits: {{ request_body: 2GiB, timeout: 10m }}\n",
        service.address
    );
    let server = ServerProcess::start_gateway(&tools.orfa, SERVER_CORE, &yaml)?;
    for (_, speaks, _) in DIRECTIONS {
        let mut client = BodyConnection::connect(server.address, speaks).await?;
        client.send(Method::GET, "/0", empty_body(), None).await?.into_body().collect().await?;
    }
    let before = server.usage()?.rss;
    let (mut rows, mut highest) = (Vec::new(), before);
    for (way, speaks, name) in DIRECTIONS {
        let began = std::time::Instant::now();
        let transfer = transfer_body(server.address, way, speaks, length, &produced);
        let (result, rss) = open_loop::with_peak_memory(&server, SAMPLE, transfer).await?;
        result.context(name)?;
        let seconds = began.elapsed().as_secs_f64();
        highest = highest.max(rss);
        let (rss_before_mb, rss_highest_mb) = (before as f64 / 1e6, rss as f64 / 1e6);
        progress.report(&format!(
            "{name:<11} {:.2} GB in {seconds:.1} s, resident {rss_before_mb:.1} MB, at most {rss_highest_mb:.1} MB",
            length as f64 / 1e9
        ));
        rows.push(GigabyteRow::Through {
            way: name.into(),
            bytes: length,
            seconds,
            rss_before_mb,
            rss_highest_mb,
        });
    }
    let most = MAX_BUFFERED + max_socket_buffer("tcp_rmem")? + max_socket_buffer("tcp_wmem")?;
    for (way, speaks, name) in DIRECTIONS {
        let before = server.usage()?.rss;
        let work = fill_buffers(server.address, way, speaks, &produced);
        let (sent, rss) = open_loop::with_peak_memory(&server, SAMPLE, work).await?;
        let sent = sent.context(name)?;
        let (sent_mb, rss_growth_mb) = (sent as f64 / 1e6, (rss - before) as f64 / 1e6);
        highest = highest.max(rss);
        progress.report(&format!(
            "{name:<11} {sent_mb:.1} MB sent without a reader, {rss_growth_mb:.1} MB of it in the gateway"
        ));
        ensure!(
            sent <= most,
            "{name}: {sent} bytes were sent to a receiver that does not read, more than {most}"
        );
        rows.push(GigabyteRow::HeldUp { way: name.into(), sent_mb, rss_growth_mb });
    }
    Ok((rows, (highest - before) as f64 / 1e6))
}

/// The service: sends as many bytes as the path requests, and reads the request body, except at `/stuck`.
async fn serve_request(request: Request<Incoming>, produced: Arc<AtomicU64>) -> BenchServiceResponse {
    if request.method() == Method::GET {
        let length = request.uri().path().trim_start_matches('/').parse().unwrap_or(0);
        let mut answer = Response::new(generated_body(length, produced));
        answer.headers_mut().insert(CONTENT_LENGTH, length.into());
        return answer;
    }
    if request.uri().path() == "/stuck" {
        // Keeps the body unread.
        std::future::pending::<()>().await;
    }
    let (mut taken, mut body) = (0, request.into_body());
    while let Some(Ok(frame)) = body.frame().await {
        taken += frame.data_ref().map_or(0, |data| data.len() as u64);
    }
    text_response(taken.to_string())
}

/// A body of this length, generated while it is sent; counts the bytes that were polled.
fn generated_body(length: u64, produced: Arc<AtomicU64>) -> Body {
    produced.store(0, Relaxed);
    let chunks = stream::unfold(length, move |left| {
        let next = CHUNK.get(..CHUNK.len().min(usize::try_from(left).unwrap_or(usize::MAX)));
        let next = next.filter(|chunk| !chunk.is_empty()).map(|chunk| {
            produced.fetch_add(chunk.len() as u64, Relaxed);
            (Ok(Frame::data(Bytes::from_static(chunk))), left - chunk.len() as u64)
        });
        std::future::ready(next)
    });
    StreamBody::new(chunks).boxed_unsync()
}

fn empty_body() -> Body {
    http_body_util::Empty::new().boxed_unsync()
}

/// Transfers a whole body in one direction.
async fn transfer_body(
    address: SocketAddr,
    way: BodyDirection,
    speaks: ClientProtocol,
    length: u64,
    produced: &Arc<AtomicU64>,
) -> Result<()> {
    let mut client = BodyConnection::connect(address, speaks).await?;
    if way == BodyDirection::Up {
        let sent = generated_body(length, Arc::clone(produced));
        let answer = client.send(Method::POST, "/", sent, Some(length)).await?;
        let taken = answer.into_body().collect().await?.to_bytes();
        ensure!(taken == length.to_string(), "{} of {length} bytes arrived", String::from_utf8_lossy(&taken));
        return Ok(());
    }
    let (mut taken, mut body) =
        (0, client.send(Method::GET, &format!("/{length}"), empty_body(), None).await?.into_body());
    while let Some(frame) = body.frame().await {
        taken += frame?.data_ref().map_or(0, |data| data.len() as u64);
    }
    ensure!(taken == length, "{taken} of {length} bytes arrived");
    Ok(())
}

/// The number of bytes that a sender can send while the receiver does not read.
async fn fill_buffers(
    address: SocketAddr,
    way: BodyDirection,
    speaks: ClientProtocol,
    produced: &Arc<AtomicU64>,
) -> Result<u64> {
    let mut client = BodyConnection::connect(address, speaks).await?;
    produced.store(0, Relaxed);
    match way {
        BodyDirection::Down => {
            let answer = client.send(Method::GET, &format!("/{GIGABYTE}"), empty_body(), None).await?;
            let sent = wait_until_stable(produced).await;
            drop(answer);
            Ok(sent)
        }
        BodyDirection::Up => {
            let sent = generated_body(GIGABYTE, Arc::clone(produced));
            tokio::select! {
                answer = client.send(Method::POST, "/stuck", sent, Some(GIGABYTE)) => {
                    anyhow::bail!("answered {}", answer?.status())
                }
                sent = wait_until_stable(produced) => Ok(sent),
            }
        }
    }
}

/// The maximum buffer size of a socket: the last of three numbers. The system grows the buffer of a busy
/// connection up to it.
fn max_socket_buffer(name: &str) -> Result<u64> {
    let path = format!("/proc/sys/net/ipv4/{name}");
    let text = std::fs::read_to_string(&path).with_context(|| format!("{path} can't be read"))?;
    Ok(text.split_whitespace().last().context("no number in it")?.parse()?)
}

/// Waits until a count stops changing.
async fn wait_until_stable(count: &AtomicU64) -> u64 {
    let mut last = u64::MAX;
    loop {
        let now = count.load(Relaxed);
        if now == last && now > 0 {
            return now;
        }
        last = now;
        tokio::time::sleep(BLOCKED_AFTER).await;
    }
}

/// A connection.
enum BodyConnection {
    Http1(http1::SendRequest<Body>),
    Http2(http2::SendRequest<Body>),
}

impl BodyConnection {
    async fn connect(address: SocketAddr, speaks: ClientProtocol) -> Result<Self> {
        let socket = TcpSocket::new_v4()?;
        socket.set_send_buffer_size(256 << 10)?;
        socket.set_recv_buffer_size(256 << 10)?;
        let stream: TcpStream = socket.connect(address).await?;
        stream.set_nodelay(true)?;
        let stream = TokioIo::new(stream);
        Ok(match speaks {
            ClientProtocol::Http1 => {
                let (sender, connection) = http1::handshake(stream).await?;
                tokio::spawn(connection);
                Self::Http1(sender)
            }
            ClientProtocol::Http2 => {
                let (sender, connection) = http2::handshake(TokioExecutor::new(), stream).await?;
                tokio::spawn(connection);
                Self::Http2(sender)
            }
        })
    }

    async fn send(
        &mut self,
        method: Method,
        path: &str,
        body: Body,
        length: Option<u64>,
    ) -> Result<Response<Incoming>> {
        let mut request = Request::builder().method(method).header(HOST, "localhost");
        if let Some(length) = length {
            request = request.header(CONTENT_LENGTH, length);
        }
        let answer = match self {
            Self::Http1(sender) => sender.send_request(request.uri(path).body(body)?).await?,
            Self::Http2(sender) => {
                let uri = format!("http://localhost{path}");
                sender.send_request(request.uri(uri).body(body)?).await?
            }
        };
        ensure!(answer.status().is_success(), "{} was answered {}", path, answer.status());
        Ok(answer)
    }
}
