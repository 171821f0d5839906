//! Long bodies that are available at once, and bodies that are hard to compress.

use anyhow::{Context, Result, ensure};
use tokio::io::AsyncWriteExt;

use super::HeldRows;
use crate::case::AttackCase;
use crate::ending::AttackEnding;
use crate::http2::{
    DATA, END_HEADERS, END_STREAM, FrameConnection, GOAWAY, HEADERS, RST_STREAM, WINDOW_UPDATE, frame, get,
};
use crate::target::AttackTarget;
use crate::wire;

/// The length of a long body.
const LONG_BODY: usize = 8 << 20;
/// The memory of a program with an answer of a mebibyte.
const ANSWER: HeldRows = &[("query body", 2), ("memory held for a program", 2), ("encoders of answers", 1)];
/// The memory of an aggregate with a long response of a service.
const AGGREGATE: HeldRows = &[("bytes received by an aggregate", 1), ("memory of an aggregate", 1)];

/// The memory of an answer that is deduplicated.
const DEDUPLICATED_ANSWER: HeldRows = &[("answer to be deduplicated", 2), ("deduplication of an answer", 1)];

pub(super) const CASES: &[AttackCase] = &[
    case!(
        "bodies/answer that is hard to compress with gzip",
        |it| incompressible_answer(&it, "gzip"),
        [AttackEnding::Answer(200)],
        ANSWER
    ),
    case!(
        "bodies/answer that is hard to compress with brotli",
        |it| incompressible_answer(&it, "br"),
        [AttackEnding::Answer(200)],
        ANSWER
    ),
    case!(
        "bodies/answer that is hard to compress with zstd",
        |it| incompressible_answer(&it, "zstd"),
        [AttackEnding::Answer(200)],
        ANSWER
    ),
    case!(
        "bodies/long response that is read fast over TLS",
        |it| read_over_tls(&it),
        [AttackEnding::Answer(200)]
    ),
    case!(
        "bodies/twenty long responses that are read fast over HTTP/2",
        |it| read_streams(&it),
        [AttackEnding::Answer(200)],
        &[("HTTP/2 streams", 1), ("request", 40)]
    ),
    case!(
        "bodies/long request and response of a service",
        |it| it.request_ending("POST", "/up/body", &[], vec![b'x'; LONG_BODY]),
        [AttackEnding::Answer(200)]
    ),
    case!(
        "bodies/long response that is read to its end",
        |it| it.request_ending("GET", "/texts?text=500000", &[], ""),
        [AttackEnding::Answer(200)],
        AGGREGATE
    ),
    case!(
        "bodies/deduplication of many short objects",
        |it| request_deduplicated(&it, 120_000),
        [AttackEnding::Answer(200)],
        DEDUPLICATED_ANSWER
    ),
    case!(
        "bodies/deduplication of more objects than its limit",
        |it| request_deduplicated(&it, 300_000),
        [AttackEnding::Answer(200)],
        DEDUPLICATED_ANSWER
    ),
    case!(
        "bodies/deduplication of nested arrays",
        |it| request_deduplicated_arrays(&it),
        [AttackEnding::Answer(200)],
        DEDUPLICATED_ANSWER
    ),
];

/// The preference for a deduplicated answer.
const DEDUPLICATE: &str = "application/vnd.orfa.dedup+json, application/json;q=0.9";

/// Asks for the deduplicated form of this many objects of 26 bytes. A quarter of them are equal, so that the
/// form is shorter. Above the limit the answer is plain.
async fn request_deduplicated(target: &AttackTarget, count: usize) -> Result<AttackEnding> {
    let object = |number: usize| {
        let number = if number.is_multiple_of(4) { 0 } else { number };
        format!(r#"{{"n":"{number:018}"}}"#)
    };
    let text = format!("[{}]", (0..count).map(object).collect::<Vec<_>>().join(","));
    let answer = target.send("POST", "/up/body", &[("accept", DEDUPLICATE)], text).await?;
    let is_plain = !answer.header("content-type").contains("dedup");
    ensure!(count < 131_072 || is_plain, "too many objects were deduplicated");
    Ok(AttackEnding::from_response(&answer))
}

/// Asks for the deduplicated form of equal objects and seven megabytes of nested arrays, whose index is
/// large.
async fn request_deduplicated_arrays(target: &AttackTarget) -> Result<AttackEnding> {
    let nested = format!("{}{}", "[".repeat(1000), "]".repeat(1000));
    let objects = vec![r#"{"n":"000000000000000000"}"#; 40_000].join(",");
    let text = format!("[{objects},[{}]]", vec![nested.as_str(); 3_500].join(","));
    let answer = target.send("POST", "/up/body", &[("accept", DEDUPLICATE)], text).await?;
    Ok(AttackEnding::from_response(&answer))
}

/// Runs a program whose answer is a mebibyte of random digits, without repetitions within the window of gzip.
async fn incompressible_answer(target: &AttackTarget, coding: &str) -> Result<AttackEnding> {
    let source = "export default () => {
        let n = 1, text = ''
        while (text.length < 65536) text += n = n * 48271 % 2147483647
        return text.repeat(16)
    }";
    let headers = [("content-type", "text/javascript"), ("accept-encoding", coding)];
    let answer = target.send("POST", "/long", &headers, source).await?;
    let (found, ending) = (answer.header("content-encoding"), AttackEnding::from_response(&answer));
    ensure!(ending != AttackEnding::Answer(200) || found == coding, "the coding is `{found}`");
    Ok(ending)
}

/// Reads a response of eight megabytes as fast as it arrives.
async fn read_over_tls(target: &AttackTarget) -> Result<AttackEnding> {
    let mut stream = target.connect_tls(&[b"http/1.1"]).await?;
    let request = "GET /up/json?n=8&text=1000000 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).await?;
    let text = wire::read_all(&mut stream).await;
    let ending = wire::response_ending(&text);
    ensure!(
        ending != AttackEnding::Answer(200) || text.len() > 8_000_000,
        "only {} bytes arrived",
        text.len()
    );
    Ok(ending)
}

/// Reads twenty responses of a megabyte each on one connection, with windows that have room for all of them.
async fn read_streams(target: &AttackTarget) -> Result<AttackEnding> {
    const STREAMS: u32 = 20;
    // SETTINGS_INITIAL_WINDOW_SIZE, and an update of the connection's window.
    let mut connection = FrameConnection::open(target, &[0, 4, 0x7f, 0xff, 0xff, 0xff]).await?;
    let mut frames = frame(WINDOW_UPDATE, 0, 0, &0x7fff_0000_u32.to_be_bytes());
    for number in 0..STREAMS {
        let head = get("/up/json?n=1&text=1000000", &[]);
        frames.extend(frame(HEADERS, END_STREAM | END_HEADERS, number * 2 + 1, &head));
    }
    ensure!(connection.send(&frames).await, "the connection has ended");
    let mut open = STREAMS;
    while open > 0 {
        let (kind, flags, ..) = connection.next().await.context("the connection has ended")?;
        match kind {
            GOAWAY | RST_STREAM => return Ok(AttackEnding::Closed),
            DATA | HEADERS if flags & END_STREAM != 0 => open -= 1,
            _ => {}
        }
    }
    Ok(AttackEnding::Answer(200))
}
