//! Tests of malicious or malformed HTTP/2 frames (RFC 9113): floods end the connection or are tolerated,
//! malformed requests are refused, and the next good request is answered normally.

use http::StatusCode;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::fixture::{GatewayFixture, get};
use super::wire::CONFIG;

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RESET: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;
pub(crate) const END_STREAM: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;

pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// Encodes a literal field that is in no table (RFC 7541, 6.2.2).
fn encode_field(name: &str, value: &str) -> Vec<u8> {
    // The number of bytes, as an integer with a prefix of seven bits (RFC 7541, 5.1).
    let length = |text: &str| match text.len() {
        short @ ..127 => vec![short as u8],
        long => {
            assert!(long < 127 + (1 << 14), "longer lengths need more bytes");
            vec![127, (long - 127) as u8 | 128, ((long - 127) >> 7) as u8]
        }
    };
    [&[0][..], &length(name), name.as_bytes(), &length(value), value.as_bytes()].concat()
}

/// The head of `GET http://a/echo/x`, with additional fields.
fn get_head(more: &[(&str, &str)]) -> Vec<u8> {
    request_head("GET", "/echo/x", more)
}

/// The head of a request to `http://a`.
pub(crate) fn request_head(method: &str, path: &str, more: &[(&str, &str)]) -> Vec<u8> {
    let fields = [(":method", method), (":scheme", "http"), (":authority", "a"), (":path", path)];
    fields.iter().chain(more).flat_map(|(name, value)| encode_field(name, value)).collect()
}

fn get_request(stream: u32) -> Vec<u8> {
    frame(HEADERS, END_STREAM | END_HEADERS, stream, &get_head(&[]))
}

pub(crate) struct RawFrameConnection<S = TcpStream>(pub(super) S);

impl RawFrameConnection {
    /// Opens a connection with these settings.
    pub(super) async fn open(fixture: &GatewayFixture, settings: &[u8]) -> Self {
        let mut stream = fixture.connect().await;
        stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
        stream.write_all(&frame(SETTINGS, 0, 0, settings)).await.unwrap();
        Self(stream)
    }

    /// Sends until the gateway stops reading.
    pub(super) async fn send(&mut self, bytes: &[u8]) {
        let _ = self.0.write_all(bytes).await;
    }
}

impl<S: AsyncRead + Unpin> RawFrameConnection<S> {
    /// Reads frames from a stream.
    pub(crate) fn from_stream(stream: S) -> Self {
        Self(stream)
    }

    /// Returns type, stream and payload of the next frame, or `None` once the connection has ended.
    pub(crate) async fn next_frame(&mut self) -> Option<(u8, u32, Vec<u8>)> {
        let mut head = [0; 9];
        self.0.read_exact(&mut head).await.ok()?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; length as usize];
        self.0.read_exact(&mut payload).await.ok()?;
        Some((head[3], u32::from_be_bytes([head[5], head[6], head[7], head[8]]), payload))
    }

    /// Returns the outcome of a stream: the type of the first frame on it that decides it. `GOAWAY` also if
    /// the connection just ends.
    pub(super) async fn stream_outcome(&mut self, stream: u32) -> u8 {
        loop {
            match self.next_frame().await {
                None => return GOAWAY,
                Some((GOAWAY, ..)) => return GOAWAY,
                Some((kind @ (HEADERS | RESET), of, _)) if of == stream => return kind,
                Some(_) => {}
            }
        }
    }
}

/// Asserts that other clients are served, on a connection of their own.
async fn assert_others_are_served(fixture: &GatewayFixture, after: &str) {
    assert_eq!(fixture.send_http2(get("/echo/x")).await.status(), StatusCode::OK, "after {after}");
}

#[tokio::test]
async fn answers_a_request_made_of_frames() {
    let fixture = GatewayFixture::new(CONFIG).await;
    let mut connection = RawFrameConnection::open(&fixture, &[]).await;
    connection.send(&get_request(1)).await;
    assert_eq!(connection.stream_outcome(1).await, HEADERS);
}

#[tokio::test]
async fn refuses_connect_on_streams() {
    let fixture = GatewayFixture::new(CONFIG).await;
    let mut connection = RawFrameConnection::open(&fixture, &[]).await;
    // Extended CONNECT (RFC 8441), for which the gateway does not announce support.
    let fields = [
        (":method", "CONNECT"),
        (":protocol", "websocket"),
        (":scheme", "http"),
        (":authority", "a"),
        (":path", "/echo/x"),
    ];
    let head: Vec<u8> = fields.iter().flat_map(|(name, value)| encode_field(name, value)).collect();
    connection.send(&frame(HEADERS, END_HEADERS, 1, &head)).await;
    assert_ne!(connection.stream_outcome(1).await, HEADERS);
    assert_others_are_served(&fixture, "a CONNECT").await;
}

#[tokio::test]
async fn resets_or_refuses_malformed_requests() {
    let fixture = GatewayFixture::new(CONFIG).await;
    for fields in [
        [("connection", "close")],
        [("keep-alive", "1")],
        [("proxy-connection", "close")],
        [("transfer-encoding", "chunked")],
        [("upgrade", "websocket")],
        [("te", "gzip")],
        [("Upper", "case")],
        [("a b", "c")],
        [("a", "b\r\nc: d")],
        [("", "b")],
        [(":unknown", "b")],
        [(":path", "/twice")],
        [("content-length", "5")],
        [("x-role", " admin")],
        [("x-role", "admin\t")],
        [("x-role", " ")],
    ] {
        let mut connection = RawFrameConnection::open(&fixture, &[]).await;
        connection.send(&frame(HEADERS, END_STREAM | END_HEADERS, 1, &get_head(&fields))).await;
        assert_ne!(connection.stream_outcome(1).await, HEADERS, "{fields:?}");
    }
    for (fields, what) in [
        (vec![(":method", "GET"), (":scheme", "http"), (":authority", "a")], "no path"),
        (vec![(":scheme", "http"), (":authority", "a"), (":path", "/echo/x")], "no method"),
        (vec![(":method", "GET"), (":authority", "a"), (":path", "/echo/x")], "no scheme"),
        (vec![(":method", "GET"), (":scheme", "http"), (":authority", "a"), (":path", "")], "an empty path"),
        (
            vec![("a", "b"), (":method", "GET"), (":scheme", "http"), (":path", "/echo/x")],
            "a late pseudo header",
        ),
    ] {
        let mut connection = RawFrameConnection::open(&fixture, &[]).await;
        let head: Vec<u8> = fields.iter().flat_map(|(name, value)| encode_field(name, value)).collect();
        connection.send(&frame(HEADERS, END_STREAM | END_HEADERS, 1, &head)).await;
        assert_ne!(connection.stream_outcome(1).await, HEADERS, "{what}");
    }
    // These two are well-formed HTTP/2 but refused as requests.
    for (fields, code) in [([("host", "b")], "host-invalid"), ([("expect", "tea")], "expectation-failed")] {
        let mut connection = RawFrameConnection::open(&fixture, &[]).await;
        connection.send(&frame(HEADERS, END_STREAM | END_HEADERS, 1, &get_head(&fields))).await;
        let body = loop {
            match connection.next_frame().await {
                Some((DATA, 1, payload)) => break String::from_utf8(payload).unwrap(),
                Some(_) => {}
                None => panic!("{fields:?}: no answer"),
            }
        };
        assert!(body.contains(code), "{fields:?}: {body}");
    }
    assert_others_are_served(&fixture, "malformed requests").await;
}

#[tokio::test]
async fn refuses_too_many_trailers_and_those_with_blanks_at_their_ends() {
    let fixture = GatewayFixture::new(CONFIG).await;
    let many: Vec<u8> = (0..65).flat_map(|number| encode_field(&format!("x-{number}"), "7")).collect();
    for trailers in [encode_field("x-sum", " 7"), encode_field("x-sum", "7\t"), many] {
        let mut connection = RawFrameConnection::open(&fixture, &[]).await;
        connection.send(&frame(HEADERS, END_HEADERS, 1, &request_head("POST", "/echo/x", &[]))).await;
        connection.send(&frame(DATA, 0, 1, b"hello")).await;
        connection.send(&frame(HEADERS, END_STREAM | END_HEADERS, 1, &trailers)).await;
        let body = loop {
            match connection.next_frame().await {
                Some((DATA, 1, payload)) => break String::from_utf8(payload).unwrap(),
                Some(_) => {}
                None => panic!("{trailers:?}: no answer"),
            }
        };
        assert!(body.contains("body-malformed"), "{trailers:?}: {body}");
    }
    assert_others_are_served(&fixture, "malformed trailers").await;
}

#[tokio::test]
async fn ends_connections_that_reset_requests_at_once() {
    let fixture = GatewayFixture::new(CONFIG).await;
    let mut connection = RawFrameConnection::open(&fixture, &[]).await;
    for stream in (1..4_000).step_by(2) {
        connection.send(&[get_request(stream), frame(RESET, 0, stream, &8_u32.to_be_bytes())].concat()).await;
    }
    while let Some((kind, _, payload)) = connection.next_frame().await {
        if kind == GOAWAY {
            // ENHANCE_YOUR_CALM (RFC 9113, section 7).
            assert_eq!(payload[4..8], 11_u32.to_be_bytes());
        }
    }
    assert_others_are_served(&fixture, "a rapid reset (CVE-2023-44487)").await;
}

#[tokio::test]
async fn ends_connections_with_an_endless_head() {
    let fixture = GatewayFixture::new(CONFIG).await;
    for size in [0, 100, 16_000] {
        let mut connection = RawFrameConnection::open(&fixture, &[]).await;
        connection.send(&frame(HEADERS, END_STREAM, 1, &get_head(&[]))).await;
        let more: Vec<u8> =
            encode_field("a", &"b".repeat(100)).into_iter().cycle().take(size / 104 * 104).collect();
        let more = frame(CONTINUATION, 0, 1, &more);
        // A gateway that reads indefinitely would never end this.
        while connection.0.write_all(&more).await.is_ok() {}
        assert_others_are_served(&fixture, "a flood of CONTINUATION").await;
    }
}

#[tokio::test]
async fn refuses_heads_that_are_too_large() {
    let fixture = GatewayFixture::new(CONFIG).await;
    let mut connection = RawFrameConnection::open(&fixture, &[]).await;
    let large: Vec<u8> = (0..700).flat_map(|_| encode_field("a", &"b".repeat(100))).collect();
    let mut pieces = large.chunks(16_000);
    connection.send(&frame(HEADERS, END_STREAM, 1, &get_head(&[]))).await;
    let last = pieces.next_back().unwrap();
    for piece in pieces {
        connection.send(&frame(CONTINUATION, 0, 1, piece)).await;
    }
    connection.send(&frame(CONTINUATION, END_HEADERS, 1, last)).await;
    let fate = loop {
        match connection.next_frame().await {
            // The status 431 is a field that is in no table.
            Some((HEADERS, 1, payload)) => {
                break payload.windows(3).any(|part| part == b"431") || payload.len() < 40;
            }
            Some((RESET | GOAWAY, ..)) | None => break true,
            Some(_) => {}
        }
    };
    assert!(fate);
    assert_others_are_served(&fixture, "a head that is too large").await;
}

#[tokio::test]
async fn floods_that_require_responses_do_not_affect_others() {
    let fixture = GatewayFixture::new(CONFIG).await;
    for (flood, what) in [
        (frame(PING, 0, 0, &[0; 8]), "PING"),
        (frame(SETTINGS, 0, 0, &[0, 3, 0, 0, 0, 100]), "SETTINGS"),
        (frame(0x2A, 0, 0, &[0; 100]), "frames of no known kind"),
        (frame(DATA, 0, 1, &[]), "empty DATA"),
    ] {
        let mut connection = RawFrameConnection::open(&fixture, &[]).await;
        if what == "empty DATA" {
            connection.send(&frame(HEADERS, END_HEADERS, 1, &get_head(&[]))).await;
        }
        let many: Vec<u8> = flood.iter().copied().cycle().take(flood.len() * 20_000).collect();
        // The gateway may stop reading, since its responses are not read; others must not notice.
        tokio::select! {
            () = connection.send(&many) => {}
            () = assert_others_are_served(&fixture, what) => {}
        }
        assert_others_are_served(&fixture, what).await;
    }
}

#[tokio::test]
async fn a_window_of_zero_does_not_affect_others() {
    let fixture = GatewayFixture::new(CONFIG).await;
    // SETTINGS_INITIAL_WINDOW_SIZE (RFC 9113, section 6.5.2).
    let mut connection = RawFrameConnection::open(&fixture, &[0, 4, 0, 0, 0, 0]).await;
    for stream in (1..200).step_by(2) {
        connection.send(&get_request(stream)).await;
    }
    assert_eq!(connection.stream_outcome(1).await, HEADERS, "the head needs no window");
    assert_others_are_served(&fixture, "a window of nothing").await;
}

#[tokio::test]
async fn refuses_streams_above_the_limit() {
    let fixture = GatewayFixture::new(CONFIG).await;
    let mut connection = RawFrameConnection::open(&fixture, &[]).await;
    for stream in (1..400).step_by(2) {
        connection.send(&frame(HEADERS, END_HEADERS, stream, &get_head(&[]))).await;
    }
    loop {
        match connection.next_frame().await {
            // REFUSED_STREAM, after which a retry is safe.
            Some((RESET, _, payload)) if payload == 7_u32.to_be_bytes() => break,
            Some((GOAWAY, ..)) | None => break,
            Some(_) => {}
        }
    }
    assert_others_are_served(&fixture, "too many requests at once").await;
}

/// Returns the error code of the `GOAWAY` that ends a connection, or `None` if there is none.
async fn goaway_code(connection: &mut RawFrameConnection<impl AsyncRead + Unpin>) -> Option<u32> {
    while let Some((kind, _, payload)) = connection.next_frame().await {
        if kind == GOAWAY {
            return payload.get(4..8).map(|code| u32::from_be_bytes(code.try_into().unwrap()));
        }
    }
    None
}

/// Frames without any effect, with a description.
fn useless_frames() -> [(&'static str, Vec<u8>); 7] {
    const PRIORITY: u8 = 2;
    [
        ("PING", frame(PING, 0, 0, &[0; 8])),
        ("SETTINGS", frame(SETTINGS, 0, 0, &[0, 3, 0, 0, 0, 100])),
        ("empty SETTINGS", frame(SETTINGS, 0, 0, &[])),
        ("PRIORITY", frame(PRIORITY, 0, 3, &[0, 0, 0, 0, 16])),
        ("WINDOW_UPDATE", frame(WINDOW_UPDATE, 0, 0, &1_u32.to_be_bytes())),
        ("frames of no known kind", frame(0x2A, 0, 0, &[0; 100])),
        ("empty DATA", frame(DATA, 0, 1, &[])),
    ]
}

#[tokio::test]
async fn ends_connections_that_flood_useless_frames() {
    let fixture = GatewayFixture::new(CONFIG).await;
    for (what, flood) in useless_frames() {
        let mut connection = RawFrameConnection::open(&fixture, &[]).await;
        connection.send(&frame(HEADERS, END_HEADERS, 1, &request_head("POST", "/echo/x", &[]))).await;
        let many = flood.repeat((3 << 20) / flood.len());
        let (reading, mut writing) = connection.0.into_split();
        // The gateway's frames are read, so that only the flood can end the connection.
        let writing = tokio::spawn(async move {
            let _ = writing.write_all(&many).await;
            writing
        });
        let code = goaway_code(&mut RawFrameConnection::from_stream(reading)).await;
        // ENHANCE_YOUR_CALM (RFC 9113, section 7); a reset may overtake it.
        assert!(matches!(code, Some(11) | None), "{what}: {code:?}");
        drop(writing.await.unwrap());
        assert_others_are_served(&fixture, what).await;
    }
}

#[tokio::test]
async fn ends_connections_that_change_their_settings_again_and_again() {
    let fixture = GatewayFixture::new(CONFIG).await;
    let mut connection = RawFrameConnection::open(&fixture, &[]).await;
    let changes = [[0, 4, 0, 0, 0, 0], [0, 4, 0, 0, 0, 1]].map(|settings| frame(SETTINGS, 0, 0, &settings));
    connection.send(&[changes.concat().repeat(1_000), frame(PING, 0, 0, &[0; 8])].concat()).await;
    loop {
        match connection.next_frame().await {
            Some((GOAWAY, _, payload)) => {
                assert_eq!(payload[4..8], 11_u32.to_be_bytes());
                break;
            }
            Some((PING, ..)) => panic!("2,000 changes were accepted"),
            Some(_) => {}
            // A reset may overtake the farewell.
            None => break,
        }
    }
    assert_others_are_served(&fixture, "changes of settings").await;
}

#[tokio::test]
async fn ends_connections_that_reset_started_requests() {
    let fixture = GatewayFixture::new(CONFIG).await;
    let mut connection = RawFrameConnection::open(&fixture, &[]).await;
    for stream in (1..600).step_by(2) {
        let request =
            frame(HEADERS, END_STREAM | END_HEADERS, stream, &request_head("GET", "/echo/wait", &[]));
        connection.send(&request).await;
        tokio::select! {
            () = fixture.wait_for_upstream_request() => {}
            code = goaway_code(&mut connection) => {
                assert_eq!(code, Some(11));
                assert!(stream > 400, "after {} requests", stream / 2);
                return assert_others_are_served(&fixture, "a slow rapid reset").await;
            }
        }
        connection.send(&frame(RESET, 0, stream, &8_u32.to_be_bytes())).await;
    }
    panic!("300 requests were reset");
}

#[tokio::test]
async fn ends_connections_whose_errors_reset_many_streams() {
    let fixture = GatewayFixture::new(CONFIG).await;
    // An increment of zero, and one beyond the maximum (RFC 9113, 6.9): CVE-2025-8671.
    for increment in [0_u32, (1 << 31) - 1] {
        let mut connection = RawFrameConnection::open(&fixture, &[]).await;
        for stream in (1..2_000).step_by(2) {
            let mistake = frame(WINDOW_UPDATE, 0, stream, &increment.to_be_bytes());
            let request = frame(HEADERS, END_HEADERS, stream, &request_head("POST", "/echo/x", &[]));
            connection.send(&[request, mistake].concat()).await;
        }
        let code = goaway_code(&mut connection).await;
        assert!(matches!(code, Some(1 | 3 | 11) | None), "{increment}: {code:?}");
        assert_others_are_served(&fixture, "streams that had to be reset").await;
    }
}

/// Heads that are small on the wire and large after decompression (RFC 7541).
fn compression_bombs() -> [(&'static str, Vec<u8>); 4] {
    // A literal with incremental indexing: the name `a`, and a value of 4,000 bytes, whose length takes
    // three.
    let entry = [&[0x40, 1, b'a', 0x7f, 0xa1, 0x1e][..], &[b'x'; 4_000]].concat();
    let churn = [&[0x20, 0x3f, 0xe1, 0x1f][..], &entry].concat();
    [
        ("an entry of the table, again and again", [&entry[..], &[0xbe; 12_000]].concat()),
        ("a table that is emptied and filled", churn.repeat(3)),
        ("thousands of small fields", encode_field("a", "b").repeat(3_000)),
        ("an index of nothing", vec![0xff, 0xff, 0xff, 0xff, 0x07]),
    ]
}

#[tokio::test]
async fn refuses_heads_that_are_too_large_after_decompression() {
    let fixture = GatewayFixture::new(CONFIG).await;
    for (what, bomb) in compression_bombs() {
        let mut connection = RawFrameConnection::open(&fixture, &[]).await;
        for stream in [1, 3] {
            let head = [&get_head(&[])[..], &bomb].concat();
            connection.send(&frame(HEADERS, END_STREAM | END_HEADERS, stream, &head)).await;
        }
        let fate = loop {
            match connection.next_frame().await {
                Some((DATA, _, payload)) => break String::from_utf8(payload).unwrap(),
                // The status 431, which h2 sends itself, without a body and without other fields.
                Some((HEADERS, _, payload)) if payload.len() < 40 => break "head-too-large".into(),
                Some((HEADERS, ..)) => {}
                Some((RESET | GOAWAY, ..)) | None => break "head-too-large".into(),
                Some(_) => {}
            }
        };
        assert!(fate.contains("head-too-large"), "{what}: {fate}");
        assert_others_are_served(&fixture, what).await;
    }
}

#[tokio::test]
async fn joins_split_cookie_fields() {
    let fixture = GatewayFixture::new(CONFIG).await;
    let crumbs: Vec<_> = std::iter::repeat_n(("cookie", "a=b"), 150).collect();
    let mut connection = RawFrameConnection::open(&fixture, &[]).await;
    connection.send(&frame(HEADERS, END_STREAM | END_HEADERS, 1, &get_head(&crumbs))).await;
    let body = loop {
        match connection.next_frame().await {
            Some((DATA, 1, payload)) => break String::from_utf8(payload).unwrap(),
            Some(_) => {}
            None => panic!("no answer"),
        }
    };
    assert!(body.contains("GET"), "{body}");
}

/// The conformance tests of h2spec, over TLS and in clear text: `make conform`.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs h2spec, a program in Go"]
async fn passes_h2spec() {
    let (secure, _) = GatewayFixture::with_tls(CONFIG).await;
    let told = h2spec(&secure, &["-t", "-k"]).await;
    assert!(told.contains("145 tests, 145 passed"), "{told}");
    // In clear text the port also serves HTTP/1.1: an invalid preface is an invalid HTTP/1.1 request and is
    // answered, whereas h2spec expects the connection to be closed.
    let told = h2spec(&GatewayFixture::new(CONFIG).await, &[]).await;
    assert!(told.contains("145 tests, 144 passed"), "{told}");
    assert!(told.contains("\u{d7} 2: Sends invalid connection preface"), "{told}");
}

async fn h2spec(fixture: &GatewayFixture, more: &[&str]) -> String {
    let program = std::env::var_os("H2SPEC").unwrap_or_else(|| "h2spec".into());
    let mut command = std::process::Command::new(program);
    command.args(["-h", "127.0.0.1", "-P", "/echo/x", "-o", "5", "-p", &fixture.address.port().to_string()]);
    command.args(more);
    let output = tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}
