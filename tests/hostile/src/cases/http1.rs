//! HTTP/1.1 requests that are malformed, contradictory, endless, or contain a smuggled request.

use std::net::SocketAddr;

use anyhow::{Result, ensure};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpSocket;

use crate::case::AttackCase;
use crate::ending::AttackEnding;
use crate::target::AttackTarget;
use crate::wire;

const MALFORMED: AttackEnding = AttackEnding::problem(400, "request-malformed");
const AMBIGUOUS_FRAMING: AttackEnding = AttackEnding::problem(400, "framing-doubtful");
const TOO_LARGE: AttackEnding = AttackEnding::problem(431, "head-too-large");
const MALFORMED_BODY: AttackEnding = AttackEnding::problem(400, "body-malformed");
const INVALID_HOST: AttackEnding = AttackEnding::problem(400, "host-invalid");

pub(super) const CASES: &[AttackCase] = &[
    case!(
        "http1/trailers that speak of the message",
        |it| first_ending(
            &it,
            "POST /up/echo HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\
             Content-Length: 5\r\nTransfer-Encoding: chunked\r\nHost: b\r\n\r\n"
        ),
        [AttackEnding::Answer(200)]
    ),
    case!(
        "http1/request behind a trailer without a name",
        |it| smuggle_request(&it, "Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n: x\r\n\r\n"),
        [MALFORMED_BODY]
    ),
    case!(
        "http1/request behind a trailer with a space before its colon",
        |it| smuggle_request(&it, "Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\na : x\r\n\r\n"),
        [MALFORMED_BODY]
    ),
    case!(
        "http1/request behind a folded trailer",
        |it| smuggle_request(&it, "Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\na: x\r\n y\r\n\r\n"),
        [MALFORMED_BODY]
    ),
    case!(
        "http1/request behind trailers that end without CR",
        |it| smuggle_request(&it, "Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\na: x\n\n"),
        [MALFORMED_BODY]
    ),
    case!(
        "http1/request behind a chunk size with a sign",
        |it| smuggle_request(&it, "Transfer-Encoding: chunked\r\n\r\n+1\r\nx\r\n0\r\n\r\n"),
        [MALFORMED_BODY]
    ),
    case!(
        "http1/request behind a chunk size in C's notation",
        |it| smuggle_request(&it, "Transfer-Encoding: chunked\r\n\r\n0x1\r\nx\r\n0\r\n\r\n"),
        [MALFORMED_BODY]
    ),
    case!(
        "http1/request behind a chunk size that overflows",
        |it| smuggle_request(&it, "Transfer-Encoding: chunked\r\n\r\n10000000000000001\r\nx\r\n0\r\n\r\n"),
        [MALFORMED_BODY]
    ),
    case!(
        "http1/request behind a chunk that is longer than it says",
        |it| smuggle_request(&it, "Transfer-Encoding: chunked\r\n\r\n1\r\nxy\r\n0\r\n\r\n"),
        [MALFORMED_BODY]
    ),
    case!(
        "http1/request behind a chunk that ends without CR",
        |it| smuggle_request(&it, "Transfer-Encoding: chunked\r\n\r\n1\r\nx\n0\r\n\r\n"),
        [MALFORMED_BODY]
    ),
    case!(
        "http1/request behind a chunk size line that ends without CR",
        |it| smuggle_request(&it, "Transfer-Encoding: chunked\r\n\r\n1\nx\r\n0\r\n\r\n"),
        [MALFORMED_BODY]
    ),
    case!(
        "http1/request behind a chunk extension with a bare line feed",
        |it| smuggle_request(&it, "Transfer-Encoding: chunked\r\n\r\n1;a=\"\nx\"\r\nx\r\n0\r\n\r\n"),
        [MALFORMED_BODY]
    ),
    case!(
        "http1/length and chunks",
        |it| smuggle_request(&it, "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
        [AMBIGUOUS_FRAMING]
    ),
    case!(
        "http1/two lengths",
        |it| smuggle_request(&it, "Content-Length: 1\r\nContent-Length: 2\r\n\r\nx"),
        [AMBIGUOUS_FRAMING]
    ),
    case!(
        "http1/two lengths in one field",
        |it| smuggle_request(&it, "Content-Length: 1, 2\r\n\r\nx"),
        [AMBIGUOUS_FRAMING]
    ),
    case!(
        "http1/length with a sign",
        |it| smuggle_request(&it, "Content-Length: +1\r\n\r\nx"),
        [AMBIGUOUS_FRAMING]
    ),
    case!(
        "http1/length that overflows",
        |it| smuggle_request(&it, "Content-Length: 18446744073709551617\r\n\r\nx"),
        [AMBIGUOUS_FRAMING]
    ),
    case!(
        "http1/chunks twice",
        |it| smuggle_request(
            &it,
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
        ),
        [AMBIGUOUS_FRAMING]
    ),
    case!(
        "http1/chunks that are not the last coding",
        |it| smuggle_request(&it, "Transfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n"),
        [AMBIGUOUS_FRAMING]
    ),
    case!(
        "http1/coding with a vertical tab",
        |it| smuggle_request(&it, "Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n"),
        [MALFORMED, AMBIGUOUS_FRAMING]
    ),
    case!(
        "http1/coding behind a space before the colon",
        |it| smuggle_request(&it, "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n"),
        [MALFORMED]
    ),
    case!(
        "http1/folded coding",
        |it| smuggle_request(&it, "Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n"),
        [MALFORMED]
    ),
    case!(
        "http1/line without CR",
        |it| smuggle_request(&it, "X: y\nContent-Length: 0\r\n\r\n"),
        [AMBIGUOUS_FRAMING]
    ),
    case!("http1/NUL in a field", |it| smuggle_request(&it, "X: a\0b\r\n\r\n"), [MALFORMED]),
    case!(
        "http1/no host",
        |it| first_ending(&it, "GET /up/json HTTP/1.1\r\nConnection: close\r\n\r\n"),
        [INVALID_HOST]
    ),
    case!(
        "http1/two hosts",
        |it| first_ending(&it, "GET /up/json HTTP/1.1\r\nHost: a\r\nHost: b\r\nConnection: close\r\n\r\n"),
        [INVALID_HOST]
    ),
    case!(
        "http1/host with a path",
        |it| first_ending(&it, "GET /up/json HTTP/1.1\r\nHost: a/b\r\nConnection: close\r\n\r\n"),
        [INVALID_HOST]
    ),
    case!(
        "http1/host that is too long",
        |it| first_ending(
            &it,
            &format!("GET /up/json HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", "a".repeat(60_000))
        ),
        [INVALID_HOST]
    ),
    case!(
        "http1/target with a user",
        |it| first_ending(
            &it,
            "GET http://u:p@localhost/up/json HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        ),
        [AttackEnding::problem(400, "target-invalid")]
    ),
    case!(
        "http1/CONNECT",
        |it| first_ending(&it, "CONNECT up:80 HTTP/1.1\r\nHost: up:80\r\nConnection: close\r\n\r\n"),
        [AttackEnding::problem(405, "method-not-allowed")]
    ),
    case!(
        "http1/TRACE",
        |it| first_ending(&it, "TRACE /up/json HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"),
        [AttackEnding::problem(405, "method-not-allowed")]
    ),
    case!(
        "http1/another expectation",
        |it| first_ending(
            &it,
            "POST /up/echo HTTP/1.1\r\nHost: a\r\nConnection: close\r\nExpect: tea\r\nContent-Length: 1\r\n\r\n"
        ),
        [AttackEnding::problem(417, "expectation-failed")]
    ),
    case!(
        "http1/another version",
        |it| first_ending(&it, "GET /up/json HTTP/3.0\r\nHost: a\r\n\r\n"),
        [MALFORMED]
    ),
    case!(
        "http1/bytes that are no request",
        |it| first_ending(&it, "\x16\x03\x01\0\x05hello\r\n\r\n"),
        [MALFORMED]
    ),
    case!(
        "http1/line that is too long",
        |it| send_long(&it, "GET /up/json?", "HTTP/1.1\r\nHost: a\r\n\r\n"),
        [TOO_LARGE],
        &[("HTTP/1.1 request head", 2)]
    ),
    case!(
        "http1/field that is too long",
        |it| send_long(&it, "GET /up/json HTTP/1.1\r\nX: ", "\r\nHost: a\r\n\r\n"),
        [TOO_LARGE],
        &[("HTTP/1.1 request head", 2)]
    ),
    case!(
        "http1/head that never ends",
        |it| send_long(&it, "GET /up/json HTTP/1.1\r\nX: ", ""),
        [TOO_LARGE],
        &[("HTTP/1.1 request head", 2)]
    ),
    case!("http1/too many fields", |it| many_fields(&it), [TOO_LARGE], &[("HTTP/1.1 request head", 2)]),
    case!(
        "http1/empty lines that never end",
        |it| first_ending(&it, &"\r\n".repeat(500_000)),
        [MALFORMED],
        &[("HTTP/1.1 request head", 2)]
    ),
    case!(
        "http1/thousands of connection options",
        |it| send_long_list(&it, "GET /up/json?n=1", "Connection: close, ", ""),
        [MALFORMED],
        &[("HTTP/1.1 request head", 2)]
    ),
    case!(
        "http1/thousands of media types",
        |it| send_long_list(
            &it,
            "POST /graphql",
            "Content-Type: application/json\r\nContent-Length: 34\r\nAccept: application/json, ",
            r#"{"query":"{ items(n: 1) { id } }"}"#
        ),
        [AttackEnding::Answer(200)],
        &[("HTTP/1.1 request head", 2)]
    ),
    case!(
        "http1/thousands of codings",
        |it| send_long_list(&it, "GET /items?n=1", "Accept-Encoding: ", ""),
        [AttackEnding::Answer(200)],
        &[("HTTP/1.1 request head", 2)]
    ),
    case!(
        "http1/thousands of trailer names",
        |it| send_long_list(
            &it,
            "POST /up/echo",
            "Transfer-Encoding: chunked\r\nTrailer: ",
            "1\r\nx\r\n0\r\n\r\n"
        ),
        [AttackEnding::Answer(200)],
        &[("HTTP/1.1 request head", 2)]
    ),
    case!(
        "http1/preflight for thousands of headers",
        |it| preflight(&it),
        [AttackEnding::Answer(204)],
        &[("HTTP/1.1 request head", 2)]
    ),
    case!(
        "http1/chunk extension that never ends",
        |it| send_long(&it, "POST /up/echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1;", ""),
        [MALFORMED_BODY],
        &[("HTTP/1.1 chunk line", 2)]
    ),
    case!(
        "http1/trailers that never end",
        |it| send_long(
            &it,
            "POST /up/echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nx: ",
            ""
        ),
        [MALFORMED_BODY],
        &[("HTTP/1.1 trailers", 2)]
    ),
    case!(
        "http1/body that breaks off",
        |it| truncate_body(&it, "Content-Length: 10\r\n\r\nhalf"),
        [AttackEnding::problem(400, "body-broken"), AttackEnding::Closed]
    ),
    case!(
        "http1/chunks that break off",
        |it| truncate_body(&it, "Transfer-Encoding: chunked\r\n\r\n9\r\nhalf"),
        [AttackEnding::problem(400, "body-broken"), AttackEnding::Closed]
    ),
    case!(
        "http1/a thousand requests at once",
        |it| pipeline_requests(&it),
        [AttackEnding::Answer(200)],
        &[("HTTP/1.1 read ahead", 2)]
    ),
    case!(
        "http1/a hundred requests with long heads at once",
        |it| long_heads(&it),
        [AttackEnding::problem(404, "route-not-found")],
        &[("HTTP/1.1 request head", 2), ("HTTP/1.1 read ahead", 2)]
    ),
    case!(
        "http1/unread body of thousands of chunks",
        |it| unread_chunks(&it),
        [AttackEnding::problem(404, "route-not-found")],
        &[("HTTP/1.1 read ahead", 2)]
    ),
    case!(
        "http1/client that leaves before its answer",
        |it| disconnect_repeatedly(&it),
        [AttackEnding::Closed]
    ),
];

/// Sends bytes and returns the ending of the first answer.
async fn first_ending(target: &AttackTarget, bytes: &str) -> Result<AttackEnding> {
    Ok(target.send_raw(bytes.as_bytes()).await?.0)
}

/// Sends a request with this rest of its head and its body, followed by another request, which must not be
/// answered.
async fn smuggle_request(target: &AttackTarget, rest: &str) -> Result<AttackEnding> {
    let first = format!("POST /up/echo HTTP/1.1\r\nHost: localhost\r\n{rest}");
    let second = "GET /up/status/299 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    let (ending, text) = target.send_raw(format!("{first}{second}").as_bytes()).await?;
    ensure!(wire::count_responses(&text) <= 1, "the smuggled request was answered: {text}");
    Ok(ending)
}

/// Sends a megabyte between two texts.
async fn send_long(target: &AttackTarget, before: &str, after: &str) -> Result<AttackEnding> {
    first_ending(target, &format!("{before}{}{after}", "a".repeat(1 << 20))).await
}

async fn many_fields(target: &AttackTarget) -> Result<AttackEnding> {
    let fields: String = (0..1000).map(|number| format!("X-{number}: y\r\n")).collect();
    first_ending(target, &format!("GET /up/json HTTP/1.1\r\nHost: a\r\n{fields}\r\n")).await
}

/// Sends a request with thousands of members behind the start of its last field.
async fn send_long_list(
    target: &AttackTarget,
    request: &str,
    fields: &str,
    body: &str,
) -> Result<AttackEnding> {
    let members = "a,".repeat(30_000);
    let host = "Host: localhost\r\nConnection: close\r\n";
    first_ending(target, &format!("{request} HTTP/1.1\r\n{host}{fields}{members}a\r\n\r\n{body}")).await
}

/// Sends the preflight of a page of the gateway itself, which requests thousands of the gateway's headers.
async fn preflight(target: &AttackTarget) -> Result<AttackEnding> {
    let names: Vec<String> = (0..6_000).map(|number| format!("orfa-{number}")).collect();
    let request = format!(
        "OPTIONS /query HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nOrigin: http://localhost\r\n\
         Access-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: {}\r\n\r\n",
        names.join(",")
    );
    first_ending(target, &request).await
}

/// Sends an incomplete body and closes the client's half of the connection.
async fn truncate_body(target: &AttackTarget, rest: &str) -> Result<AttackEnding> {
    let mut stream = target.connect().await?;
    stream.write_all(format!("POST /up/echo HTTP/1.1\r\nHost: a\r\n{rest}").as_bytes()).await?;
    stream.shutdown().await?;
    Ok(wire::response_ending(&wire::read_all(&mut stream).await))
}

/// Sends all requests before reading an answer.
async fn pipeline_requests(target: &AttackTarget) -> Result<AttackEnding> {
    const COUNT: usize = 1000;
    let one = "GET /up/json?n=1 HTTP/1.1\r\nHost: localhost\r\n";
    let bytes = format!("{one}\r\n").repeat(COUNT - 1) + one + "Connection: close\r\n\r\n";
    let (ending, text) = target.send_raw(bytes.as_bytes()).await?;
    ensure!(
        wire::count_responses(&text) == COUNT,
        "{} answers to {COUNT} requests",
        wire::count_responses(&text)
    );
    Ok(ending)
}

/// Sends requests with heads of nearly the maximum size before reading an answer.
async fn long_heads(target: &AttackTarget) -> Result<AttackEnding> {
    const COUNT: usize = 100;
    let head = |last: &str| {
        format!("GET /nowhere HTTP/1.1\r\nHost: localhost\r\nX: {}\r\n{last}\r\n", "a".repeat(60_000))
    };
    let bytes = head("").repeat(COUNT - 1) + &head("Connection: close\r\n");
    let (ending, text) = target.send_raw(bytes.as_bytes()).await?;
    ensure!(
        wire::count_responses(&text) == COUNT,
        "{} answers to {COUNT} requests",
        wire::count_responses(&text)
    );
    Ok(ending)
}

/// Sends a body in chunks of one byte that nothing reads.
async fn unread_chunks(target: &AttackTarget) -> Result<AttackEnding> {
    let chunks = "1\r\nx\r\n".repeat(20_000);
    let head = "POST /nowhere HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked";
    first_ending(target, &format!("{head}\r\n\r\n{chunks}0\r\n\r\n")).await
}

/// Sends requests that the service never answers, and disconnects, over more connections than an address may
/// open.
async fn disconnect_repeatedly(target: &AttackTarget) -> Result<AttackEnding> {
    for _ in 0..100 {
        // An address of its own, since the other cases and the neighbour need connections.
        let socket = TcpSocket::new_v4()?;
        socket.bind(SocketAddr::from(([127, 0, 0, 10], 0)))?;
        let mut stream = socket.connect(target.gateway.address).await?;
        // Resets the connection: otherwise the ports of this machine, which the neighbour needs too, would
        // run out.
        stream.set_zero_linger()?;
        // Above the rate, the gateway may close the connection before the write.
        let _ = stream.write_all(b"GET /up/hang HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
    }
    Ok(AttackEnding::Closed)
}
