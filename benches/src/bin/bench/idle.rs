//! Ten thousand connections that stay open after one proxied request each: their resident memory.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use benches::scoreboard::{BetterDirection, HeadlineScore};
use futures_util::{StreamExt, TryStreamExt, stream};
use serde::Serialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use crate::process::{ServerProcess, allow_open_files};
use crate::progress::BenchProgress;
use crate::rivals::{ClientProtocol, RivalProxy};
use crate::{BenchTools, open_loop};

const CONNECTIONS: usize = 10_000;
/// The number of connections per loopback address: half of the gateway's default limit.
const PER_ADDRESS: usize = 1_000;
/// The number of concurrent requests while the connections are set up.
const CONCURRENCY: usize = 64;
const IDLE_TIME: Duration = Duration::from_secs(5);
const DESCRIPTORS: u64 = CONNECTIONS as u64 + 1_000;

#[derive(Serialize)]
struct IdleRow {
    connections: usize,
    after: &'static str,
    rss_mb: f64,
}

pub(crate) fn run(tools: &BenchTools) -> Result<()> {
    allow_open_files(DESCRIPTORS)?;
    let progress = BenchProgress::new(tools, IDLE_TIME + Duration::from_secs(8));
    let upstream = ServerProcess::start_upstream(&tools.upstream)?;
    let server = RivalProxy::Orfa.start(tools, upstream.address, ClientProtocol::Http1)?;
    let connections = CONNECTIONS;
    let mut rows = Vec::new();
    let mut seen = |connections: usize, after: &'static str| -> Result<f64> {
        let rss_mb = server.usage()?.rss as f64 / 1e6;
        progress.report(&format!("{rss_mb:>6.1} MB with {connections} connections, after {after}"));
        rows.push(IdleRow { connections, after, rss_mb });
        Ok(rss_mb)
    };
    let start = seen(0, "start")?;
    let idle = open_loop::run(async {
        let each = (0..connections).map(|number| connect(server.address, number));
        let kept: Vec<TcpStream> = stream::iter(each).buffered(CONCURRENCY).try_collect().await?;
        seen(kept.len(), "one request each")?;
        tokio::time::sleep(IDLE_TIME).await;
        let idle = seen(kept.len(), "some rest")?;
        // The connections are not merely open: each is used for another request.
        let again = kept.into_iter().map(send_request);
        let kept: Vec<TcpStream> = stream::iter(again).buffered(CONCURRENCY).try_collect().await?;
        seen(kept.len(), "one request more on each")?;
        anyhow::Ok(idle)
    })??;
    let score = HeadlineScore {
        value: idle,
        unit: "MB".into(),
        better: BetterDirection::Lower,
        target: Some(250.0),
        against: format!("all that is resident; {start:.0} MB after start"),
        spread: 0.0,
    };
    tools.write_results("idle", &rows, [("gateway.idle_10k_connections_rss_mb".to_owned(), score)])
}

/// Opens a connection and waits for its first response.
async fn connect(server: SocketAddr, number: usize) -> Result<TcpStream> {
    let last = 1 + u8::try_from(number / PER_ADDRESS)?;
    let socket = TcpSocket::new_v4()?;
    socket.bind(SocketAddr::new(IpAddr::V4(Ipv4Addr::new(127, 0, 0, last)), 0))?;
    send_request(socket.connect(server).await?).await
}

async fn send_request(mut stream: TcpStream) -> Result<TcpStream> {
    stream
        .write_all(b"GET /small HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .await
        .context("the gateway hung up")?;
    let mut answer = Vec::new();
    while !answer.ends_with(b"x\"") {
        let length = stream.read_buf(&mut answer).await?;
        ensure!(length > 0, "the response ended early: {}", String::from_utf8_lossy(&answer));
    }
    ensure!(answer.starts_with(b"HTTP/1.1 200 "), "{}", String::from_utf8_lossy(&answer));
    Ok(stream)
}
