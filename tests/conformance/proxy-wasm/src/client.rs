//! The client: sends the requests of a row and reads the answers.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request};
use http_body_util::BodyExt;
use http_body_util::channel::Channel;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;

use crate::case::ConformanceCase;
use crate::log::WAIT_TIMEOUT;
use crate::rows::RowExchange;
use crate::service;

/// The time that a client waits for an answer that is expected not to arrive.
const HANG_TIMEOUT: Duration = Duration::from_secs(2);

/// The result of a request.
#[derive(Debug)]
pub(crate) enum RequestResult {
    Answer {
        status: u16,
        headers: HeaderMap,
        body: String,
        trailers: HeaderMap,
    },
    /// The connection or stream ended before the answer was complete.
    Incomplete {
        _reason: String,
    },
    /// Nothing arrived in time.
    TimedOut,
}

/// Sends the request of an exchange to a host and returns the result.
pub(crate) async fn send(
    case: &Arc<ConformanceCase>,
    to: SocketAddr,
    exchange: &RowExchange,
) -> RequestResult {
    if let Some(line) = &exchange.after {
        // A missing line is reported by the comparison of logs.
        let _ = case.log.wait_for_lines(std::slice::from_ref(line)).await;
    }
    let patience = if exchange.answer.hangs { HANG_TIMEOUT } else { WAIT_TIMEOUT };
    match tokio::time::timeout(patience, run_exchange(case, to, exchange)).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(error)) => RequestResult::Incomplete { _reason: error.to_string() },
        Err(_) => RequestResult::TimedOut,
    }
}

async fn run_exchange(
    case: &Arc<ConformanceCase>,
    to: SocketAddr,
    exchange: &RowExchange,
) -> anyhow::Result<RequestResult> {
    let has_body = !exchange.body.is_empty() || !exchange.trailers.is_empty();
    let method = exchange.method.as_deref().unwrap_or(if has_body { "POST" } else { "GET" });
    let path = format!("/{}{}", case.id, exchange.path.as_deref().unwrap_or("/"));
    let authority = if case.row.http2 { format!("http://{to}") } else { String::new() };
    let (mut sender, body) = Channel::<Bytes>::new(1);
    let body = if has_body { body.boxed() } else { http_body_util::Empty::new().boxed() };
    let mut request = Request::builder().method(method).uri(format!("{authority}{path}")).body(body)?;
    let headers = exchange.headers.iter().map(|(name, value)| (name.clone(), case.fill_placeholders(value)));
    *request.headers_mut() = service::header_map(&headers.collect());
    let stream = TcpStream::connect(to).await?;
    stream.set_nodelay(true)?;
    let io = TokioIo::new(stream);
    let (chunks, trailers, log) = (exchange.body.clone(), exchange.trailers.clone(), Arc::clone(&case.log));
    tokio::spawn(async move { service::send_chunks(&mut sender, &chunks, &trailers, &log).await });
    let response = if case.row.http2 {
        let (mut client, connection) = http2::handshake(TokioExecutor::new(), io).await?;
        tokio::spawn(connection);
        client.send_request(request).await?
    } else {
        request.headers_mut().entry("host").or_insert(to.to_string().parse()?);
        let (mut client, connection) = http1::handshake(io).await?;
        tokio::spawn(connection);
        client.send_request(request).await?
    };
    let (head, body) = response.into_parts();
    let whole = body.collect().await?;
    let trailers = whole.trailers().cloned().unwrap_or_default();
    let body = String::from_utf8_lossy(&whole.to_bytes()).into_owned();
    Ok(RequestResult::Answer { status: head.status.as_u16(), headers: head.headers, body, trailers })
}
