//! Fuzzing of the frames that an HTTP/2 client may send to a gateway with routes: see `fuzz/src/lib.rs`. Time
//! is paused, so timeouts take no real time.

use std::collections::HashMap;

use ::fuzz::ByteChoices;
use ::fuzz::generate::http2::{self as generate, ClientScript, ClientStep, kind};
use tokio::io::{AsyncWriteExt, DuplexStream, split};
use tokio::runtime::Runtime;
use tokio::sync::Notify;

use super::*;

/// The routes read bodies, and answer with problems.
const CONFIG: &str = "
admin: off
log: { access: false }
runtime: { instances: 1 }
connections: { new_per_address: 1000000/s }
services: { up: { url: 'http://127.0.0.1:1' } }
routes:
  - { path: /query, query: { services: [up], limits: { timeout: 1h } } }
  - { path: /small, query: { services: [up] }, limits: { request_body: 100 }, cors: { origins: ['http://a'] } }
";
const PATHS: &[&str] = &["/query", "/query", "/small", "/nowhere"];
/// The maximum lifetime of a connection after its client's last action: the sum of the timeouts in
/// `server.rs`.
const SESSION_TIMEOUT: Duration = Duration::from_secs(15 * 60);
/// The largest frame that a client accepts by default (RFC 9113, 6.5.2), or that it announces.
const LARGEST_FRAME: usize = 1 << 24;

/// A gateway with in-memory connections.
struct InMemoryGateway {
    runtime: Runtime,
    active_config: Arc<ActiveConfig>,
}

impl InMemoryGateway {
    fn new() -> Self {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        let guard = runtime.enter();
        let active_config = fixture::build_gateway(CONFIG);
        drop(guard);
        Self { runtime, active_config }
    }

    /// Returns all that the gateway sends to a client with this script.
    fn run_script(&self, script: &ClientScript) -> Vec<u8> {
        self.runtime.block_on(async {
            let fixture::ServedConnection { client, server_task: serving, phase: _phase } =
                fixture::serve_connection(&self.active_config, true, 1 << 16);
            let sent = self::play_client(client, script).await;
            let served = timeout(SESSION_TIMEOUT, serving).await.expect("a connection that ends");
            let _ = served.expect("no panic");
            sent.await.expect("no panic")
        })
    }
}

/// Plays a client, which then waits for the gateway to end the connection. Returns the task that collects all
/// that it read.
async fn play_client(stream: DuplexStream, script: &ClientScript) -> tokio::task::JoinHandle<Vec<u8>> {
    let (mut reading, mut writing) = split(stream);
    let (goes_on, is_reading) = (Arc::new(Notify::new()), Arc::new(std::sync::atomic::AtomicBool::new(true)));
    let (wait, may) = (Arc::clone(&goes_on), Arc::clone(&is_reading));
    let read = tokio::spawn(async move {
        let (mut all, mut piece) = (Vec::new(), [0; 8 << 10]);
        loop {
            if !may.load(std::sync::atomic::Ordering::Relaxed) {
                wait.notified().await;
            }
            match reading.read(&mut piece).await {
                Ok(0) | Err(_) => return all,
                Ok(length) => all.extend_from_slice(&piece[..length]),
            }
        }
    });
    for step in &script.steps {
        match step {
            // The gateway may have closed the connection, or be blocked until its responses are read.
            ClientStep::Send(bytes) => drop(timeout(Duration::from_secs(1), writing.write_all(bytes)).await),
            ClientStep::Pause(time) => tokio::time::sleep(*time).await,
            ClientStep::StopReading => is_reading.store(false, std::sync::atomic::Ordering::Relaxed),
            ClientStep::ResumeReading => {
                is_reading.store(true, std::sync::atomic::Ordering::Relaxed);
                goes_on.notify_one();
            }
        }
    }
    // The responses are read in the end, unless the connection breaks first.
    is_reading.store(true, std::sync::atomic::Ordering::Relaxed);
    goes_on.notify_one();
    tokio::spawn(async move {
        let all = read.await.expect("no panic");
        drop(writing);
        all
    })
}

/// Asserts that the server follows the protocol: whole frames, only streams that the client opened, nothing
/// after a stream's end, and no more data than the window allows.
fn assert_protocol_rules(sent: &[u8], script: &ClientScript) {
    let (mut rest, mut data) = (sent, 0_u64);
    let mut is_over: HashMap<u32, bool> = HashMap::new();
    while let Some((head, behind)) = rest.split_first_chunk::<9>() {
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let (of, flags) = (head[3], head[4]);
        let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        assert!(length < LARGEST_FRAME, "a frame of {length} bytes");
        // The connection may have been cut off within a frame.
        let Some((_, behind)) = behind.split_at_checked(length) else { return };
        if matches!(of, kind::DATA | kind::HEADERS) {
            assert!(stream % 2 == 1 && stream <= script.last_stream, "an answer on stream {stream}");
            let over = is_over.entry(stream).or_default();
            assert!(!*over, "more on stream {stream}, which has ended");
            *over = flags & 1 != 0;
        }
        if of == kind::RST_STREAM {
            assert_ne!(stream, 0);
        }
        assert_ne!(of, kind::PUSH_PROMISE, "a push was sent");
        data += if of == kind::DATA { length as u64 } else { 0 };
        rest = behind;
    }
    assert!(data <= script.window, "{data} bytes for a window of {}", script.window);
}

#[test]
fn follows_the_protocol_for_any_frames() {
    let gateway = InMemoryGateway::new();
    ::fuzz::run("http2_frames", &[], |bytes| {
        let script = generate::script(&mut ByteChoices::new(bytes), PATHS);
        assert_protocol_rules(&gateway.run_script(&script), &script);
    });
}
