//! HTTP/2 connections that flood, starve, contradict themselves, or read nothing.

use std::net::Ipv4Addr;

use anyhow::{Context, Result, ensure};

use super::HeldRows;
use crate::case::AttackCase;
use crate::ending::AttackEnding;
use crate::http2::{
    CONTINUATION, DATA, END_HEADERS, END_STREAM, FrameConnection, GOAWAY, HEADERS, NO_WINDOW, PING, PRIORITY,
    RST_STREAM, SETTINGS, WINDOW_UPDATE, encode_field, frame, get, read_u32, request_fields,
};
use crate::target::AttackTarget;

/// Error codes of RFC 9113, section 7.
const PROTOCOL_ERROR: u32 = 1;
const FLOW_CONTROL_ERROR: u32 = 3;
const STREAM_CLOSED: u32 = 5;
const FRAME_SIZE_ERROR: u32 = 6;
const COMPRESSION_ERROR: u32 = 9;
pub(super) const ENHANCE_YOUR_CALM: u32 = 11;
const MALFORMED: &[AttackEnding] =
    &[AttackEnding::StreamReset(PROTOCOL_ERROR), AttackEnding::GoAway(PROTOCOL_ERROR)];
/// The flags of a complete head without a body.
const WHOLE: u8 = END_STREAM | END_HEADERS;

/// Defines a case for a request with one forbidden field.
macro_rules! malformed {
    ($name:literal, $field:expr) => {
        AttackCase {
            name: $name,
            attack: |it| {
                Box::pin(
                    async move { one(&it, &frame(HEADERS, WHOLE, 1, &get("/up/json", &[$field]))).await },
                )
            },
            endings: MALFORMED,
            holds: &[],
        }
    };
}

/// The streams of a connection, each with a request in flight.
const REQUESTS: HeldRows = &[
    ("HTTP/2 streams", 1),
    ("HTTP/2 requests taken back", 1),
    ("HTTP/2 unread bodies", 1),
    ("request", 100),
];
/// The same number of requests whose answers wait for a window.
const BLOCKED_ANSWERS: HeldRows =
    &[("HTTP/2 streams", 1), ("unsent bytes of a connection", 1), ("request", 100)];
/// The streams of [`crate::http2::reset_blocked_streams`]. Uncounted answers would exceed these rows.
pub(super) const BLOCKED_COMPOSED_ANSWERS: HeldRows =
    &[("HTTP/2 streams", 1), ("unsent bytes of a connection", 1), ("request", 40)];

pub(super) const CASES: &[AttackCase] = &[
    malformed!("http2/field of the connection", ("connection", "close")),
    malformed!("http2/keep-alive", ("keep-alive", "1")),
    malformed!("http2/chunks", ("transfer-encoding", "chunked")),
    malformed!("http2/upgrade", ("upgrade", "h2c")),
    malformed!("http2/te that is not trailers", ("te", "gzip")),
    malformed!("http2/name in capitals", ("Upper", "case")),
    malformed!("http2/name with a space", ("a b", "c")),
    malformed!("http2/value with a line break", ("a", "b\r\nc: d")),
    malformed!("http2/unknown pseudo field", (":unknown", "b")),
    malformed!("http2/path twice", (":path", "/up/status/299")),
    malformed!("http2/length without a body", ("content-length", "5")),
    case!(
        "http2/no path",
        |it| one(
            &it,
            &frame(
                HEADERS,
                WHOLE,
                1,
                &[
                    encode_field(":method", "GET"),
                    encode_field(":scheme", "http"),
                    encode_field(":authority", "a")
                ]
                .concat()
            )
        ),
        [AttackEnding::StreamReset(PROTOCOL_ERROR), AttackEnding::GoAway(PROTOCOL_ERROR)]
    ),
    case!(
        "http2/two hosts",
        |it| one(&it, &frame(HEADERS, WHOLE, 1, &get("/up/json", &[("host", "b")]))),
        [AttackEnding::problem(400, "host-invalid")]
    ),
    case!(
        "http2/body longer than it says",
        |it| one(
            &it,
            &[
                frame(
                    HEADERS,
                    END_HEADERS,
                    1,
                    &request_fields("POST", "/up/echo", &[("content-length", "1")])
                ),
                frame(DATA, END_STREAM, 1, b"two")
            ]
            .concat()
        ),
        [AttackEnding::StreamReset(PROTOCOL_ERROR)]
    ),
    case!(
        "http2/body shorter than it says",
        |it| one(
            &it,
            &[
                frame(
                    HEADERS,
                    END_HEADERS,
                    1,
                    &request_fields("POST", "/up/echo", &[("content-length", "9")])
                ),
                frame(DATA, END_STREAM, 1, b"two")
            ]
            .concat()
        ),
        [AttackEnding::StreamReset(PROTOCOL_ERROR)]
    ),
    case!(
        "http2/data on the connection's stream",
        |it| connection_ending(&it, &frame(DATA, 0, 0, b"x")),
        [AttackEnding::GoAway(PROTOCOL_ERROR)]
    ),
    case!(
        "http2/data on a stream that is idle",
        |it| connection_ending(&it, &frame(DATA, 0, 1, b"x")),
        [AttackEnding::GoAway(PROTOCOL_ERROR), AttackEnding::GoAway(STREAM_CLOSED)]
    ),
    case!(
        "http2/stream of the server",
        |it| connection_ending(&it, &frame(HEADERS, WHOLE, 2, &get("/up/json", &[]))),
        [AttackEnding::GoAway(PROTOCOL_ERROR)]
    ),
    case!(
        "http2/stream below the last one",
        |it| connection_ending(
            &it,
            &[
                frame(HEADERS, WHOLE, 5, &get("/up/json", &[])),
                frame(HEADERS, WHOLE, 3, &get("/up/json", &[]))
            ]
            .concat()
        ),
        [AttackEnding::GoAway(PROTOCOL_ERROR), AttackEnding::GoAway(STREAM_CLOSED)]
    ),
    case!(
        "http2/window that overflows",
        |it| connection_ending(&it, &frame(WINDOW_UPDATE, 0, 0, &[0x7f, 255, 255, 255])),
        [AttackEnding::GoAway(FLOW_CONTROL_ERROR)]
    ),
    case!(
        "http2/window that grows by nothing",
        |it| connection_ending(&it, &frame(WINDOW_UPDATE, 0, 0, &[0; 4])),
        [AttackEnding::GoAway(PROTOCOL_ERROR)]
    ),
    case!(
        "http2/settings of half a size",
        |it| connection_ending(&it, &frame(SETTINGS, 0, 0, &[0; 5])),
        [AttackEnding::GoAway(FRAME_SIZE_ERROR), AttackEnding::GoAway(PROTOCOL_ERROR)]
    ),
    case!(
        "http2/ping of another size",
        |it| connection_ending(&it, &frame(PING, 0, 0, &[0; 7])),
        [AttackEnding::GoAway(FRAME_SIZE_ERROR), AttackEnding::GoAway(PROTOCOL_ERROR)]
    ),
    case!(
        "http2/frame that is too large",
        |it| connection_ending(&it, &frame(DATA, 0, 1, &[0; 20_000])),
        [AttackEnding::GoAway(FRAME_SIZE_ERROR)]
    ),
    case!(
        "http2/padding longer than its frame",
        |it| connection_ending(&it, &frame(HEADERS, WHOLE | 8, 1, &[200, 0])),
        [AttackEnding::GoAway(PROTOCOL_ERROR)]
    ),
    case!(
        "http2/another frame within a head",
        |it| connection_ending(
            &it,
            &[frame(HEADERS, 0, 1, &get("/up/json", &[])), frame(PING, 0, 0, &[0; 8])].concat()
        ),
        [AttackEnding::GoAway(PROTOCOL_ERROR)]
    ),
    case!(
        "http2/field of an index that is not there",
        |it| connection_ending(&it, &frame(HEADERS, WHOLE, 1, &[0xff, 0xff, 0x03])),
        [AttackEnding::GoAway(COMPRESSION_ERROR), AttackEnding::GoAway(PROTOCOL_ERROR)]
    ),
    case!(
        "http2/stream that depends on itself",
        |it| connection_ending(
            &it,
            &[frame(PRIORITY, 0, 1, &[0, 0, 0, 1, 0]), frame(PING, 0, 0, &[0; 7])].concat()
        ),
        [AttackEnding::GoAway(PROTOCOL_ERROR), AttackEnding::GoAway(FRAME_SIZE_ERROR)]
    ),
    case!(
        "http2/requests taken back at once",
        |it| flood(&it, 20_000, |number| {
            let stream = number * 2 + 1;
            [
                frame(HEADERS, WHOLE, stream, &get("/up/hang", &[])),
                frame(RST_STREAM, 0, stream, &[0, 0, 0, 8]),
            ]
            .concat()
        }),
        [AttackEnding::GoAway(ENHANCE_YOUR_CALM), AttackEnding::Closed],
        REQUESTS
    ),
    case!(
        "http2/requests that make the server reset",
        |it| flood(&it, 20_000, |number| {
            let stream = number * 2 + 1;
            let head = frame(HEADERS, END_HEADERS, stream, &request_fields("POST", "/up/echo", &[]));
            [head, frame(WINDOW_UPDATE, 0, stream, &[0; 4])].concat()
        }),
        [AttackEnding::GoAway(ENHANCE_YOUR_CALM), AttackEnding::GoAway(PROTOCOL_ERROR), AttackEnding::Closed],
        REQUESTS
    ),
    case!(
        "http2/head that never ends",
        |it| flood(&it, 20_000, |number| match number {
            0 => frame(HEADERS, 0, 1, &get("/up/json", &[])),
            _ => frame(CONTINUATION, 0, 1, &encode_field("x-more", "of it")),
        }),
        [AttackEnding::GoAway(ENHANCE_YOUR_CALM), AttackEnding::GoAway(PROTOCOL_ERROR), AttackEnding::Closed],
        &[("HTTP/2 request head", 2)]
    ),
    case!(
        "http2/head of empty frames that never ends",
        |it| flood(&it, 100_000, |number| match number {
            0 => frame(HEADERS, 0, 1, &get("/up/json", &[])),
            _ => frame(CONTINUATION, 0, 1, &[]),
        }),
        [AttackEnding::GoAway(ENHANCE_YOUR_CALM), AttackEnding::GoAway(PROTOCOL_ERROR), AttackEnding::Closed],
        &[("HTTP/2 request head", 2)]
    ),
    case!(
        "http2/head that swells by references",
        |it| one(&it, &frame(HEADERS, WHOLE, 1, &expanding_head())),
        [AttackEnding::GoAway(ENHANCE_YOUR_CALM), AttackEnding::problem(431, "head-too-large")],
        &[("HTTP/2 request head", 2)]
    ),
    case!(
        "http2/heads of references at once",
        |it| repeat_indexed_field(&it),
        [AttackEnding::problem(431, "head-too-large")],
        &[("HTTP/2 streams", 1), ("request", 60)]
    ),
    case!(
        "http2/paths that keep their heads in the table",
        |it| fill_dynamic_table(&it),
        [AttackEnding::GoAway(ENHANCE_YOUR_CALM), AttackEnding::Closed],
        &[("HTTP/2 table of fields", 1), ("HTTP/2 streams", 1), ("request", 100)]
    ),
    case!(
        "http2/trailers of too many fields",
        |it| one(&it, &many_trailers()),
        [AttackEnding::problem(400, "body-malformed")],
        &[("HTTP/2 request head", 2)]
    ),
    case!(
        "http2/pings that are not read",
        |it| send_tolerated(&it, &frame(PING, 0, 0, &[7; 8])),
        [AttackEnding::Answer(200), AttackEnding::Closed],
        &[("HTTP/2 frames without use", 8)]
    ),
    case!(
        "http2/settings that are not read",
        |it| send_tolerated(&it, &frame(SETTINGS, 0, 0, &[0, 4, 0, 1, 0, 0])),
        [AttackEnding::Answer(200), AttackEnding::Closed],
        &[("HTTP/2 frames without use", 8)]
    ),
    case!(
        "http2/frames of an unknown kind",
        |it| send_tolerated(&it, &frame(0x42, 0, 0, b"nothing")),
        [AttackEnding::Answer(200), AttackEnding::Closed],
        &[("HTTP/2 frames without use", 8)]
    ),
    case!(
        "http2/priorities of streams that are not there",
        |it| send_tolerated(&it, &frame(PRIORITY, 0, 99, &[0, 0, 0, 7, 1])),
        [AttackEnding::Answer(200), AttackEnding::Closed],
        &[("HTTP/2 frames without use", 8)]
    ),
    case!(
        "http2/leaves again and again",
        |it| send_tolerated(&it, &frame(GOAWAY, 0, 0, &[0; 8])),
        [AttackEnding::Answer(200), AttackEnding::Closed],
        &[("HTTP/2 frames without use", 8)]
    ),
    case!(
        "http2/data of no bytes",
        |it| empty_data(&it),
        [
            AttackEnding::GoAway(ENHANCE_YOUR_CALM),
            AttackEnding::StreamReset(ENHANCE_YOUR_CALM),
            AttackEnding::Answer(200),
            AttackEnding::Closed
        ],
        &[("HTTP/2 unread bodies", 1)]
    ),
    case!(
        "http2/settings that change the windows of a hundred requests",
        |it| toggle_window(&it),
        [AttackEnding::GoAway(ENHANCE_YOUR_CALM), AttackEnding::Closed],
        REQUESTS
    ),
    case!(
        "http2/thousands of small answers that are not read",
        |it| leave_unread(&it),
        [AttackEnding::Answer(200), AttackEnding::StreamReset(ENHANCE_YOUR_CALM)],
        &[
            ("HTTP/2 answers of an address", 1),
            ("bytes received by an aggregate", 1),
            ("memory of an aggregate", 1)
        ]
    ),
    case!(
        "http2/a hundred answers that are not taken",
        |it| block_answers(&it),
        [AttackEnding::Closed],
        BLOCKED_ANSWERS
    ),
    case!(
        "http2/a hundred requests whose client is gone",
        |it| disconnect_at_once(&it),
        [AttackEnding::Closed],
        BLOCKED_ANSWERS
    ),
];

/// Sends frames on a new connection and returns how stream 1 ends.
async fn one(target: &AttackTarget, bytes: &[u8]) -> Result<AttackEnding> {
    let mut connection = FrameConnection::open(target, &[]).await?;
    connection.send(bytes).await;
    Ok(connection.stream_ending(1).await)
}

/// Sends frames on a new connection and returns how the connection ends.
async fn connection_ending(target: &AttackTarget, bytes: &[u8]) -> Result<AttackEnding> {
    let mut connection = FrameConnection::open(target, &[]).await?;
    connection.send(bytes).await;
    Ok(connection.connection_ending().await)
}

/// Sends up to `count` frames until the gateway ends the connection, and returns how it ends.
async fn flood(target: &AttackTarget, count: u32, make: impl Fn(u32) -> Vec<u8>) -> Result<AttackEnding> {
    let mut connection = FrameConnection::open(target, &[]).await?;
    for number in 0..count {
        if !connection.send(&make(number)).await {
            return Ok(connection.connection_ending().await);
        }
    }
    Ok(connection.connection_ending().await)
}

/// Sends a frame a hundred thousand times and then a request, which must be answered unless the connection
/// has ended.
async fn send_tolerated(target: &AttackTarget, bytes: &[u8]) -> Result<AttackEnding> {
    let mut connection = FrameConnection::open(target, &[]).await?;
    for _ in 0..100 {
        if !connection.send(&bytes.repeat(1000)).await {
            break;
        }
    }
    connection.send(&frame(HEADERS, WHOLE, 1, &get("/up/json?n=1", &[]))).await;
    Ok(match connection.stream_ending(1).await {
        AttackEnding::GoAway(_) => AttackEnding::Closed,
        ending => ending,
    })
}

/// Returns a head with one field of 4 KB in the dynamic table and references to it: each takes one byte and
/// expands to the whole field.
fn expanding_head() -> Vec<u8> {
    let mut head = get("/up/json?n=1", &[]);
    let value = vec![b'a'; 3900];
    // A field with incremental indexing, which gets index 62 (RFC 7541, 6.2.1). Its length is an integer with
    // two more bytes.
    head.extend([0x40, 1, b'x', 0x7f]);
    head.extend([(((3900 - 127) & 0x7f) | 0x80) as u8, ((3900 - 127) >> 7) as u8]);
    head.extend(value);
    head.extend(vec![0xbe; 10_000]);
    head
}

/// Sends requests whose heads refer to one short field as often as a head has room for it. Returns the ending
/// of the first.
async fn repeat_indexed_field(target: &AttackTarget) -> Result<AttackEnding> {
    let mut connection = FrameConnection::open(target, &[]).await?;
    let head = |first: &[u8]| [&get("/up/json?n=1", &[])[..], first, &[0xbe; 1800]].concat();
    // A field with incremental indexing, which gets index 62 (RFC 7541, 6.2.1).
    let mut frames = frame(HEADERS, WHOLE, 1, &head(&[0x40, 1, b'x', 0]));
    for number in 1..60 {
        frames.extend(frame(HEADERS, WHOLE, number * 2 + 1, &head(&[])));
    }
    connection.send(&frames).await;
    Ok(connection.stream_ending(1).await)
}

/// Sends requests with long heads, each with a path that enters the dynamic table, until the gateway ends the
/// connection. Ignores the GOAWAY that asks for no more requests.
async fn fill_dynamic_table(target: &AttackTarget) -> Result<AttackEnding> {
    let mut connection = FrameConnection::open(target, &[]).await?;
    // Indexed fields, an authority, `:path` with incremental indexing, and the length of 16,000 bytes of a
    // field (RFC 7541, sections 5.1, 6.1 and 6.2).
    let fields = [0x82, 0x86, 0x01, 1, b'a', 0x44, 1, b'/', 0, 1, b'x', 0x7f, 0x81, 0x7c];
    let head = [&fields[..], &[b'x'; 16_000]].concat();
    for number in 0..1_000 {
        if !connection.send(&frame(HEADERS, WHOLE, number * 2 + 1, &head)).await {
            break;
        }
    }
    while let Some((kind, _, _, payload)) = connection.next().await {
        if kind == GOAWAY && read_u32(&payload, 4) != 0 {
            return Ok(AttackEnding::GoAway(read_u32(&payload, 4)));
        }
    }
    Ok(AttackEnding::Closed)
}

fn many_trailers() -> Vec<u8> {
    let trailers: Vec<u8> = (0..1000).flat_map(|number| encode_field(&format!("x-{number}"), "")).collect();
    [
        frame(HEADERS, END_HEADERS, 1, &request_fields("POST", "/up/echo", &[])),
        frame(DATA, 0, 1, b"x"),
        frame(HEADERS, WHOLE, 1, &trailers),
    ]
    .concat()
}

async fn empty_data(target: &AttackTarget) -> Result<AttackEnding> {
    let mut connection = FrameConnection::open(target, &[]).await?;
    connection.send(&frame(HEADERS, END_HEADERS, 1, &request_fields("POST", "/up/echo", &[]))).await;
    for _ in 0..100 {
        if !connection.send(&frame(DATA, 0, 1, &[]).repeat(1000)).await {
            break;
        }
    }
    connection.send(&frame(DATA, END_STREAM, 1, &[])).await;
    Ok(connection.stream_ending(1).await)
}

/// Changes the initial window again and again while a hundred requests are under way.
async fn toggle_window(target: &AttackTarget) -> Result<AttackEnding> {
    let mut connection = FrameConnection::open(target, &[]).await?;
    for number in 0..100 {
        connection.send(&frame(HEADERS, WHOLE, number * 2 + 1, &get("/up/hang", &[]))).await;
    }
    let changes = [NO_WINDOW, [0, 4, 0, 0, 0, 1]].map(|settings| frame(SETTINGS, 0, 0, &settings)).concat();
    connection.send(&changes.repeat(10_000)).await;
    Ok(connection.connection_ending().await)
}

/// The address of a client that reads no answers, the number of its connections, and that of requests on
/// each.
const UNREAD_CLIENT: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 9);
const UNREAD_CONNECTIONS: usize = 50;
const UNREAD_REQUESTS: u32 = 99;

/// Requests answers of 15 kB on many connections, opens the windows once they have begun, and reads none of
/// them. Ends with a reset once there is no room for an answer, unless the kernel's buffers take all of them.
async fn leave_unread(target: &AttackTarget) -> Result<AttackEnding> {
    let largest = 0x7fff_0000_u32.to_be_bytes();
    let windows =
        [frame(SETTINGS, 0, 0, &[&[0, 4][..], &largest].concat()), frame(WINDOW_UPDATE, 0, 0, &largest)];
    let mut connections = Vec::new();
    while connections.len() < UNREAD_CONNECTIONS {
        let mut connection = FrameConnection::open_from(target, UNREAD_CLIENT, &NO_WINDOW).await?;
        for number in 0..UNREAD_REQUESTS {
            let head = get("/up/json?n=1&text=15000", &[]);
            connection.send(&frame(HEADERS, WHOLE, number * 2 + 1, &head)).await;
        }
        let mut begun = 0;
        while begun < UNREAD_REQUESTS {
            let (kind, _, _, payload) = connection.next().await.context("the connection has ended")?;
            match kind {
                RST_STREAM => return Ok(AttackEnding::StreamReset(read_u32(&payload, 0))),
                HEADERS => begun += 1,
                _ => {}
            }
        }
        connection.send(&windows.concat()).await;
        connections.push(connection);
    }
    Ok(AttackEnding::Answer(200))
}

/// Sends a hundred requests whose answers have no window, and disconnects once all heads have arrived.
async fn block_answers(target: &AttackTarget) -> Result<AttackEnding> {
    let mut connection = open_hundred_streams(target).await?;
    let mut heads = 0;
    while heads < 100 {
        let (kind, ..) = connection.next().await.context("the connection has ended")?;
        heads += usize::from(kind == HEADERS);
    }
    Ok(AttackEnding::Closed)
}

/// Like `block_answers`, but disconnects immediately.
async fn disconnect_at_once(target: &AttackTarget) -> Result<AttackEnding> {
    open_hundred_streams(target).await?;
    Ok(AttackEnding::Closed)
}

async fn open_hundred_streams(target: &AttackTarget) -> Result<FrameConnection> {
    let mut connection = FrameConnection::open(target, &NO_WINDOW).await?;
    for number in 0..100 {
        let head = get("/up/json?n=1000", &[]);
        let is_taken = connection.send(&frame(HEADERS, WHOLE, number * 2 + 1, &head)).await;
        ensure!(is_taken, "the connection has ended");
    }
    Ok(connection)
}
