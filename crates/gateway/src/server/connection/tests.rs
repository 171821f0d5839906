//! Tests of timeouts for slow clients, in paused time over an in-memory connection.

use tokio::io::{AsyncWriteExt, DuplexStream, ReadHalf, WriteHalf, split};
use tokio::time::{Instant, sleep};

use super::super::WRITE_STALL_TIMEOUT;
use super::*;
use crate::limits::client_limiter::ClientLimiter;
use crate::tests::frames::{
    DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, PING, RESET, RawFrameConnection, SETTINGS, WINDOW_UPDATE,
    frame, request_head,
};

/// The client's side of a connection.
struct TestPeer {
    read: ReadHalf<DuplexStream>,
    write: WriteHalf<DuplexStream>,
    opened: Instant,
    /// The gateway serves as long as this exists.
    _phase: watch::Sender<DrainPhase>,
}

const SECOND: Duration = Duration::from_secs(1);

/// The routes read a body to its end, and then refuse it because `ORFA-Input` is larger.
const CONFIG: &str = "
admin: off
log: { access: false }
runtime: { instances: 1 }
services: { up: { url: 'http://127.0.0.1:1' } }
routes:
  - { path: /query, query: { services: [up], limits: { timeout: 1h } } }
  - { path: /patient, query: { services: [up], limits: { timeout: 1h } }, limits: { min_request_body_rate: 0 } }
";

impl TestPeer {
    /// Connects with a buffer of `room` bytes between the two sides.
    fn connect(room: usize) -> Self {
        Self::with_protocol(false, room)
    }

    /// Connects a client of HTTP/2 with these settings, which has sent its preface.
    async fn connect_http2(settings: &[u8]) -> Self {
        let mut peer = Self::with_protocol(true, 1 << 16);
        peer.write.write_all(PREFACE).await.unwrap();
        peer.write.write_all(&frame(SETTINGS, 0, 0, settings)).await.unwrap();
        peer
    }

    fn with_protocol(is_http2: bool, room: usize) -> Self {
        let fixture::ServedConnection { client, server_task: _, phase } =
            fixture::serve_connection(&fixture::build_gateway(CONFIG), is_http2, room);
        let (read, write) = split(client);
        Self { read, write, opened: Instant::now(), _phase: phase }
    }

    async fn send(&mut self, text: &str) {
        self.write.write_all(text.as_bytes()).await.unwrap();
    }

    /// Sends a body in pieces, each after a pause. Returns the status of the response and the seconds until
    /// it arrived.
    async fn send_slowly(mut self, path: &str, piece: String, pause: Duration, pieces: usize) -> (u16, u64) {
        let length = piece.len() * pieces;
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: a\r\ncontent-type: text/javascript\r\norfa-input: 99999999\r\n\
             connection: close\r\ncontent-length: {length}\r\n\r\n"
        );
        self.send(&head).await;
        let mut write = self.write;
        tokio::spawn(async move {
            for _ in 0..pieces {
                sleep(pause).await;
                // The gateway may have closed the connection.
                let _ = write.write_all(piece.as_bytes()).await;
            }
        });
        let answer = read_to_close(&mut self.read).await;
        let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
        (status.unwrap_or_else(|| panic!("{answer}")), self.opened.elapsed().as_secs())
    }
}

/// Reads until the gateway closes.
async fn read_to_close(read: &mut (impl AsyncRead + Unpin)) -> String {
    let mut bytes = Vec::new();
    let _ = read.read_to_end(&mut bytes).await;
    String::from_utf8(bytes).unwrap()
}

fn filler(count: usize) -> String {
    "x".repeat(count)
}

#[tokio::test(start_paused = true)]
async fn cuts_off_slow_request_heads() {
    let TestPeer { mut read, mut write, opened, _phase } = TestPeer::connect(1 << 16);
    tokio::spawn(async move {
        for byte in "GET /nowhere HTTP/1.1\r\nhost: a\r\n\r\n".bytes() {
            let _ = write.write_all(&[byte]).await;
            sleep(SECOND).await;
        }
    });
    assert_eq!(read_to_close(&mut read).await, "");
    assert_eq!(opened.elapsed().as_secs(), 10);
}

#[tokio::test(start_paused = true)]
async fn each_head_and_each_idle_time_has_its_own_timeout() {
    let mut peer = TestPeer::connect(1 << 16);
    for _ in 0..3 {
        sleep(50 * SECOND).await;
        peer.send("GET /nowhere HTTP/1.1\r\n").await;
        sleep(9 * SECOND).await;
        peer.send("host: a\r\n\r\n").await;
        let mut answer = [0; 4096];
        let length = peer.read.read(&mut answer).await.unwrap();
        assert!(answer[..length].starts_with(b"HTTP/1.1 404"));
    }
    let answered = Instant::now();
    assert_eq!(read_to_close(&mut peer.read).await, "");
    assert_eq!(answered.elapsed().as_secs(), IDLE_TIMEOUT.as_secs());
}

#[tokio::test(start_paused = true)]
async fn waits_half_a_minute_for_a_stalled_body() {
    for path in ["/query", "/patient"] {
        let answer = TestPeer::connect(1 << 16).send_slowly(path, filler(1), 3600 * SECOND, 2).await;
        assert_eq!(answer, (408, 30), "{path}");
    }
}

#[tokio::test(start_paused = true)]
async fn cuts_off_a_body_that_arrives_byte_by_byte() {
    let answer = TestPeer::connect(1 << 16).send_slowly("/query", filler(1), 29 * SECOND, 100).await;
    assert_eq!(answer, (408, 30));
    let (status, seconds) = TestPeer::connect(1 << 16).send_slowly("/query", filler(400), SECOND, 1000).await;
    assert!(status == 408 && (140..150).contains(&seconds), "{status} after {seconds} s");
}

#[tokio::test(start_paused = true)]
async fn accepts_bodies_over_slow_connections() {
    let steady = TestPeer::connect(1 << 16).send_slowly("/query", filler(600), SECOND, 100).await;
    assert_eq!(steady, (400, 100), "all of it is read");
    let in_heaps = TestPeer::connect(1 << 16).send_slowly("/query", filler(15_000), 25 * SECOND, 4).await;
    assert_eq!(in_heaps, (400, 100), "all of it is read");
    let messages = TestPeer::connect(1 << 16).send_slowly("/patient", filler(1), 29 * SECOND, 100).await;
    assert_eq!(messages, (400, 2900), "all of it is read");
}

#[tokio::test(start_paused = true)]
async fn cuts_off_clients_that_do_not_read_the_response() {
    let mut peer = TestPeer::connect(64);
    peer.send("GET /nowhere HTTP/1.1\r\nhost: a\r\n\r\n").await;
    // Further bytes fail once the gateway has closed the connection.
    while peer.write.write_all(b"GET ").await.is_ok() {}
    assert_eq!(peer.opened.elapsed().as_secs(), 60);
    assert_eq!(read_to_close(&mut peer.read).await.len(), 64);
}

#[tokio::test(start_paused = true)]
async fn clients_that_read_slowly_receive_the_whole_response() {
    let mut peer = TestPeer::connect(64);
    peer.send("GET /nowhere HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").await;
    let (mut answer, mut piece) = (Vec::new(), [0; 16]);
    loop {
        sleep(SECOND / 20).await;
        match peer.read.read(&mut piece).await.unwrap() {
            0 => break,
            length => answer.extend_from_slice(&piece[..length]),
        }
    }
    let answer = String::from_utf8(answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 404") && answer.ends_with('}'), "{answer}");
}

/// The setting SETTINGS_INITIAL_WINDOW_SIZE (RFC 9113, section 6.5.2).
fn window_setting(size: u32) -> Vec<u8> {
    [&[0, 4][..], &size.to_be_bytes()].concat()
}

fn http2_request(stream: u32) -> Vec<u8> {
    frame(HEADERS, END_STREAM | END_HEADERS, stream, &request_head("GET", "/nowhere", &[]))
}

/// Returns the stream and the payload of the next frame of this kind.
async fn next_frame_of(kind: u8, read: &mut (impl AsyncRead + Unpin)) -> (u32, Vec<u8>) {
    let mut frames = RawFrameConnection::from_stream(read);
    loop {
        let (found, stream, payload) = frames.next_frame().await.expect("a frame");
        if found == kind {
            return (stream, payload);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn resets_http2_responses_that_are_not_read() {
    let mut peer = TestPeer::connect_http2(&window_setting(0)).await;
    for stream in [1, 3, 5] {
        peer.write.write_all(&http2_request(stream)).await.unwrap();
    }
    for _ in 0..3 {
        // ENHANCE_YOUR_CALM (RFC 9113, section 7).
        assert_eq!(next_frame_of(RESET, &mut peer.read).await.1, 11_u32.to_be_bytes());
        assert_eq!(peer.opened.elapsed().as_secs(), WRITE_STALL_TIMEOUT.as_secs());
    }
}

#[tokio::test(start_paused = true)]
async fn resets_http2_responses_that_are_read_byte_by_byte() {
    for window_size in [0, 1] {
        let TestPeer { mut read, mut write, opened, _phase } =
            TestPeer::connect_http2(&window_setting(window_size)).await;
        write.write_all(&http2_request(1)).await.unwrap();
        tokio::spawn(async move {
            // The gateway may have closed the connection.
            while write.write_all(&frame(WINDOW_UPDATE, 0, 1, &1_u32.to_be_bytes())).await.is_ok() {
                sleep(20 * SECOND).await;
            }
        });
        assert_eq!(next_frame_of(RESET, &mut read).await, (1, 11_u32.to_be_bytes().to_vec()));
        assert!(opened.elapsed() <= WRITE_STALL_TIMEOUT + 2 * SECOND, "{:?}", opened.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn completes_http2_responses_that_are_read_slowly() {
    let mut peer = TestPeer::connect_http2(&window_setting(0)).await;
    peer.write.write_all(&http2_request(1)).await.unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"}") {
        sleep(SECOND / 2).await;
        peer.write.write_all(&frame(WINDOW_UPDATE, 0, 1, &200_u32.to_be_bytes())).await.unwrap();
        answer.extend(next_frame_of(DATA, &mut peer.read).await.1);
    }
    assert!(String::from_utf8(answer).unwrap().contains("route-not-found"));
}

#[tokio::test(start_paused = true)]
async fn closes_http2_connections_without_requests() {
    for pings in [false, true] {
        let TestPeer { mut read, mut write, opened, _phase } = TestPeer::connect_http2(&[]).await;
        write.write_all(&http2_request(1)).await.unwrap();
        tokio::spawn(async move {
            // Pings do not keep a connection without requests open.
            while pings && write.write_all(&frame(PING, 0, 0, &[0; 8])).await.is_ok() {
                sleep(5 * SECOND).await;
            }
            std::future::pending::<()>().await;
            drop(write);
        });
        next_frame_of(GOAWAY, &mut read).await;
        assert!(
            opened.elapsed() >= IDLE_TIMEOUT && opened.elapsed() <= 2 * IDLE_TIMEOUT,
            "{:?}",
            opened.elapsed()
        );
        // A client that does not close the connection then is cut off.
        let _ = read.read_to_end(&mut Vec::new()).await;
        assert!(opened.elapsed() <= 2 * IDLE_TIMEOUT, "{:?}", opened.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn closes_http2_connections_of_silent_clients() {
    for begun in [&b""[..], PREFACE, &frame(HEADERS, END_STREAM, 1, &request_head("GET", "/nowhere", &[]))] {
        let mut peer = TestPeer::with_protocol(true, 1 << 16);
        if !begun.is_empty() && begun != PREFACE {
            peer.write.write_all(&[&PREFACE[..], &frame(SETTINGS, 0, 0, &[])].concat()).await.unwrap();
        }
        peer.write.write_all(begun).await.unwrap();
        let _ = peer.read.read_to_end(&mut Vec::new()).await;
        assert!(peer.opened.elapsed() <= 2 * IDLE_TIMEOUT, "{begun:?}: {:?}", peer.opened.elapsed());
    }
}

/// The client's side of a connection over HTTP/2 with large windows, and the limiter that counts for it. The
/// client reads nothing until [`UnreadConnection::read_all`].
struct UnreadConnection {
    peer: TestPeer,
    limiter: Arc<ClientLimiter>,
}

impl UnreadConnection {
    async fn open(config: &str) -> Self {
        let current = fixture::build_gateway(config);
        let limiter = Arc::clone(&current.pipeline().telemetry.metrics.limiter);
        let fixture::ServedConnection { client, server_task: _, phase } =
            fixture::serve_connection(&current, true, 1 << 10);
        let (read, write) = split(client);
        let mut peer = TestPeer { read, write, opened: Instant::now(), _phase: phase };
        peer.write.write_all(PREFACE).await.unwrap();
        // SETTINGS_INITIAL_WINDOW_SIZE (RFC 9113, section 6.5.2).
        let windows = [
            frame(SETTINGS, 0, 0, &[0, 4, 1, 0, 0, 0]),
            frame(WINDOW_UPDATE, 0, 0, &(1_u32 << 24).to_be_bytes()),
        ];
        peer.write.write_all(&windows.concat()).await.unwrap();
        Self { peer, limiter }
    }

    /// Sends requests for a long path that does not exist, and waits until they are answered. Returns the
    /// number of bytes that the client has yet to receive.
    async fn send_requests(&mut self, method: &str, streams: std::ops::Range<u32>) -> u64 {
        let head = request_head(method, &format!("/nowhere/{}", filler(3_900)), &[]);
        for stream in streams {
            let request = frame(HEADERS, END_STREAM | END_HEADERS, 2 * stream + 1, &head);
            self.peer.write.write_all(&request).await.unwrap();
        }
        sleep(SECOND).await;
        self.limiter.unsent_bytes()
    }

    /// Reads until nothing more arrives. Returns the number of streams that were answered, and of those that
    /// were reset with `ENHANCE_YOUR_CALM`.
    async fn read_all(&mut self) -> (usize, usize) {
        let (mut frames, mut answered, mut reset) =
            (RawFrameConnection::from_stream(&mut self.peer.read), 0, 0);
        while let Ok(Some((kind, _, payload))) = timeout(SECOND, frames.next_frame()).await {
            answered += usize::from(kind == HEADERS);
            reset += usize::from(kind == RESET && payload == 11_u32.to_be_bytes());
        }
        (answered, reset)
    }
}

#[tokio::test(start_paused = true)]
async fn counts_answers_over_http2_until_they_are_read() {
    let mut connection = UnreadConnection::open(CONFIG).await;
    // h2 has some of the answers in its write buffer already.
    let whole = connection.send_requests("GET", 0..20).await;
    assert!(whole > 40 << 10, "{whole}");
    let with_heads = connection.send_requests("HEAD", 20..80).await;
    assert!(with_heads > whole + (100 << 10), "{whole}, {with_heads}");
    assert_eq!(connection.read_all().await, (80, 0));
    assert_eq!(connection.limiter.unsent_bytes(), 0);
}

#[tokio::test(start_paused = true)]
async fn resets_answers_over_http2_above_the_limit_of_an_address() {
    let config = format!("{CONFIG}connections: {{ unsent_per_address: 128KiB }}\n");
    let mut connection = UnreadConnection::open(&config).await;
    let unsent = connection.send_requests("GET", 0..90).await;
    assert!(unsent > 100 << 10 && unsent <= 128 << 10, "{unsent}");
    let (answered, reset) = connection.read_all().await;
    assert!(answered > 10 && reset > 20 && answered + reset == 90, "{answered}, {reset}");
    assert_eq!(connection.limiter.unsent_bytes(), 0);
    connection.send_requests("GET", 90..91).await;
    assert_eq!(connection.read_all().await, (1, 0));
}
