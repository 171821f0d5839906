//! The service's behaviour by path.

use std::io;
use std::time::Duration;

use async_compression::tokio::bufread::{BrotliEncoder, GzipEncoder, ZstdEncoder};
use serde_json::{Map, Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::NextBehaviour;
use super::request::UpstreamRequest;

const JSON: &str = "content-type: application/json\r\n";
const GIGABYTE: usize = 1 << 30;
/// The uncompressed size of one gzip member of the bomb, in bytes.
const GZIP_MEMBER_BYTES: usize = 16 << 20;

pub(super) async fn respond(request: &UpstreamRequest, to: &mut TcpStream) -> io::Result<NextBehaviour> {
    match request.path() {
        "/echo" => send_response(to, request, 200, JSON, echo_json(request).as_bytes()).await,
        "/body" => send_response(to, request, 200, JSON, &request.body).await,
        "/json" => {
            let text = request.parameter("text").and_then(|text| text.parse().ok());
            send_response(to, request, 200, JSON, list_json(number_parameter(request, "n"), text).as_bytes())
                .await
        }
        "/redirect" => send_response(to, request, 302, "location: /echo\r\n", b"").await,
        "/encoded" => send_encoded(to, request).await,
        "/slow" => {
            tokio::time::sleep(Duration::from_millis(number_parameter(request, "ms"))).await;
            send_response(to, request, 200, "", b"at last").await
        }
        "/hang" => Ok(NextBehaviour::Hang),
        "/stall" => {
            send_bytes(to, b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf ", NextBehaviour::Hang).await
        }
        "/reset" => Ok(NextBehaviour::Reset),
        "/stale" => send_response(to, request, 200, "", b"goodbye").await.map(|_| NextBehaviour::Close),
        "/short" => {
            send_bytes(
                to,
                b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nnot a hundred",
                NextBehaviour::Close,
            )
            .await
        }
        "/long" => {
            send_bytes(to, b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nmore than four", NextBehaviour::Keep)
                .await
        }
        "/garbage" => send_bytes(to, b"\x00\x01SSH-2.0-not HTTP at all\r\n\r\n", NextBehaviour::Close).await,
        "/interim" => {
            let thousand = "HTTP/1.1 102 Processing\r\n\r\n".repeat(1000);
            send_repeatedly(to, thousand.as_bytes(), 1000).await.map(|_| NextBehaviour::Close)
        }
        "/list" => {
            let field = request.parameter("of").unwrap_or("connection");
            send_response(to, request, 200, &format!("{field}: {}a\r\n", "a,".repeat(30_000)), b"short").await
        }
        "/chunked-broken" => {
            send_bytes(
                to,
                b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\nXYZ\r\n",
                NextBehaviour::Close,
            )
            .await
        }
        "/gigabyte" => send_gigabyte(to).await,
        "/bomb" => send_bomb(to).await,
        path => match path.strip_prefix("/status/").and_then(|code| code.parse().ok()) {
            Some(status) => {
                send_response(to, request, status, "content-type: text/plain\r\n", b"as you wish\n").await
            }
            None => send_response(to, request, 404, "", b"no such behaviour\n").await,
        },
    }
}

/// Sends a proper response, after which the next request may arrive.
async fn send_response(
    to: &mut TcpStream,
    request: &UpstreamRequest,
    status: u16,
    headers: &str,
    body: &[u8],
) -> io::Result<NextBehaviour> {
    let length = match status {
        100..200 | 204 | 304 => String::new(),
        _ => format!("content-length: {}\r\n", body.len()),
    };
    let mut message = format!("HTTP/1.1 {status} Status\r\n{headers}{length}\r\n").into_bytes();
    if request.method != "HEAD" && !length.is_empty() {
        message.extend_from_slice(body);
    }
    send_bytes(to, &message, NextBehaviour::Keep).await
}

async fn send_bytes(to: &mut TcpStream, bytes: &[u8], after: NextBehaviour) -> io::Result<NextBehaviour> {
    to.write_all(bytes).await?;
    Ok(after)
}

fn echo_json(request: &UpstreamRequest) -> String {
    let mut headers: Map<String, Value> = Map::new();
    for (name, value) in &request.headers {
        let joined = match headers.get(name).and_then(Value::as_str) {
            Some(before) => format!("{before}, {value}"),
            None => value.clone(),
        };
        headers.insert(name.clone(), joined.into());
    }
    let body = String::from_utf8_lossy(&request.body);
    json!({ "method": request.method, "path": request.target, "headers": headers, "body": body }).to_string()
}

/// Returns a list of objects, each with a text of this length if one is given.
fn list_json(count: u64, text: Option<usize>) -> String {
    let item = |id: u64| match text {
        Some(bytes) => json!({ "id": id, "name": format!("item {id}"), "text": "x".repeat(bytes) }),
        None => json!({ "id": id, "name": format!("item {id}") }),
    };
    Value::from((0..count).map(item).collect::<Vec<Value>>()).to_string()
}

fn number_parameter(request: &UpstreamRequest, name: &str) -> u64 {
    request.parameter(name).and_then(|text| text.parse().ok()).unwrap_or(10)
}

async fn send_encoded(to: &mut TcpStream, request: &UpstreamRequest) -> io::Result<NextBehaviour> {
    let with = request.parameter("with").unwrap_or("gzip");
    let text = list_json(100, None);
    let mut body = Vec::new();
    match with {
        "gzip" => GzipEncoder::new(text.as_bytes()).read_to_end(&mut body).await?,
        "br" => BrotliEncoder::new(text.as_bytes()).read_to_end(&mut body).await?,
        "zstd" => ZstdEncoder::new(text.as_bytes()).read_to_end(&mut body).await?,
        _ => text.as_bytes().read_to_end(&mut body).await?,
    };
    send_response(to, request, 200, &format!("{JSON}content-encoding: {with}\r\n"), &body).await
}

async fn send_gigabyte(to: &mut TcpStream) -> io::Result<NextBehaviour> {
    to.write_all(format!("HTTP/1.1 200 OK\r\ncontent-length: {GIGABYTE}\r\n\r\n").as_bytes()).await?;
    send_repeatedly(to, &[b'x'; 64 * 1024], GIGABYTE / (64 * 1024)).await
}

/// Consecutive gzip members are one text (RFC 1952, 2.2): one is compressed and sent repeatedly.
async fn send_bomb(to: &mut TcpStream) -> io::Result<NextBehaviour> {
    let zeros = tokio::io::BufReader::new(tokio::io::repeat(0).take(GZIP_MEMBER_BYTES as u64));
    let mut member = Vec::new();
    GzipEncoder::new(zeros).read_to_end(&mut member).await?;
    let count = GIGABYTE / GZIP_MEMBER_BYTES;
    let head = format!(
        "HTTP/1.1 200 OK\r\n{JSON}content-encoding: gzip\r\ncontent-length: {}\r\n\r\n",
        member.len() * count
    );
    to.write_all(head.as_bytes()).await?;
    send_repeatedly(to, &member, count).await
}

async fn send_repeatedly(to: &mut TcpStream, bytes: &[u8], count: usize) -> io::Result<NextBehaviour> {
    for _ in 0..count {
        to.write_all(bytes).await?;
    }
    Ok(NextBehaviour::Keep)
}
