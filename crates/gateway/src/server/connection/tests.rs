//! Who keeps a connection waiting, and for how long: in paused time, over a connection that needs no network.

use std::path::Path;

use tokio::io::{AsyncWriteExt, DuplexStream, ReadHalf, WriteHalf, duplex, split};
use tokio::time::{Instant, sleep};

use super::*;
use crate::Gateway;
use crate::config;

/// The client's side of a connection.
struct Peer {
    read: ReadHalf<DuplexStream>,
    write: WriteHalf<DuplexStream>,
    opened: Instant,
    /// The gateway serves as long as this is there.
    _phase: watch::Sender<Phase>,
}

const SECOND: Duration = Duration::from_secs(1);

/// The routes read a body to its end, and then say that `ORFA-Input` is larger.
const CONFIG: &str = "
admin: off
log: { access: false }
runtime: { instances: 1 }
services: { up: { url: 'http://127.0.0.1:1' } }
routes:
  - { path: /query, query: { services: [up], limits: { deadline: 1h } } }
  - { path: /patient, query: { services: [up], limits: { deadline: 1h } }, limits: { body_rate: 0 } }
";

impl Peer {
    /// Between the two sides is room for so many bytes.
    fn connect(room: usize) -> Self {
        let config = config::read_text(CONFIG, Path::new("orfa.yaml")).unwrap();
        let current = Gateway::build(config).unwrap().current;
        let (sender, phase) = watch::channel(Phase::Serving);
        let address = SocketAddr::from(([127, 0, 0, 1], 1));
        let protocols = Arc::new(Protocols::new());
        let connection = Connection {
            current,
            address,
            port: Port { tls: None },
            phase,
            open: Open::default(),
            protocols,
        };
        let (ours, theirs) = duplex(room);
        tokio::spawn(connection.serve(theirs, Vec::new(), false, Arc::new(Link::new(None))));
        let (read, write) = split(ours);
        Self { read, write, opened: Instant::now(), _phase: sender }
    }

    async fn send(&mut self, text: &str) {
        self.write.write_all(text.as_bytes()).await.unwrap();
    }

    /// Sends a body in so many pieces, each after a pause; the status of the answer, and after how many
    /// seconds it came.
    async fn trickle(mut self, path: &str, piece: String, pause: Duration, pieces: usize) -> (u16, u64) {
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
                // The gateway may have had enough.
                let _ = write.write_all(piece.as_bytes()).await;
            }
        });
        let answer = rest(&mut self.read).await;
        let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
        (status.unwrap_or_else(|| panic!("{answer}")), self.opened.elapsed().as_secs())
    }
}

/// All that comes, until the gateway closes.
async fn rest(read: &mut (impl AsyncRead + Unpin)) -> String {
    let mut bytes = Vec::new();
    let _ = read.read_to_end(&mut bytes).await;
    String::from_utf8(bytes).unwrap()
}

fn bytes(count: usize) -> String {
    "x".repeat(count)
}

#[tokio::test(start_paused = true)]
async fn who_sends_a_head_byte_by_byte_is_cut_off() {
    let Peer { mut read, mut write, opened, _phase } = Peer::connect(1 << 16);
    tokio::spawn(async move {
        for byte in "GET /nowhere HTTP/1.1\r\nhost: a\r\n\r\n".bytes() {
            let _ = write.write_all(&[byte]).await;
            sleep(SECOND).await;
        }
    });
    assert_eq!(rest(&mut read).await, "");
    assert_eq!(opened.elapsed().as_secs(), 10);
}

#[tokio::test(start_paused = true)]
async fn each_head_has_its_own_time_and_so_has_the_pause_before_it() {
    let mut peer = Peer::connect(1 << 16);
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
    assert_eq!(rest(&mut peer.read).await, "");
    assert_eq!(answered.elapsed().as_secs(), IDLE.as_secs());
}

#[tokio::test(start_paused = true)]
async fn a_body_that_stands_still_is_waited_for_half_a_minute() {
    for path in ["/query", "/patient"] {
        let answer = Peer::connect(1 << 16).trickle(path, bytes(1), 3600 * SECOND, 2).await;
        assert_eq!(answer, (408, 30), "{path}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_comes_byte_by_byte_is_not_waited_for_for_ever() {
    let answer = Peer::connect(1 << 16).trickle("/query", bytes(1), 29 * SECOND, 100).await;
    assert_eq!(answer, (408, 30));
    let (status, seconds) = Peer::connect(1 << 16).trickle("/query", bytes(400), SECOND, 1000).await;
    assert!(status == 408 && (140..150).contains(&seconds), "{status} after {seconds} s");
}

#[tokio::test(start_paused = true)]
async fn a_slow_line_may_be_slow() {
    let steady = Peer::connect(1 << 16).trickle("/query", bytes(600), SECOND, 100).await;
    assert_eq!(steady, (400, 100), "all of it is read");
    let in_heaps = Peer::connect(1 << 16).trickle("/query", bytes(15_000), 25 * SECOND, 4).await;
    assert_eq!(in_heaps, (400, 100), "all of it is read");
    let messages = Peer::connect(1 << 16).trickle("/patient", bytes(1), 29 * SECOND, 100).await;
    assert_eq!(messages, (400, 2900), "all of it is read");
}

#[tokio::test(start_paused = true)]
async fn who_does_not_read_the_answer_is_cut_off() {
    let mut peer = Peer::connect(64);
    peer.send("GET /nowhere HTTP/1.1\r\nhost: a\r\n\r\n").await;
    // What is sent on is refused once the gateway has given up.
    while peer.write.write_all(b"GET ").await.is_ok() {}
    assert_eq!(peer.opened.elapsed().as_secs(), 60);
    assert_eq!(rest(&mut peer.read).await.len(), 64);
}

#[tokio::test(start_paused = true)]
async fn who_reads_slowly_gets_all_of_the_answer() {
    let mut peer = Peer::connect(64);
    peer.send("GET /nowhere HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").await;
    let (mut answer, mut piece) = (Vec::new(), [0; 16]);
    loop {
        sleep(59 * SECOND).await;
        match peer.read.read(&mut piece).await.unwrap() {
            0 => break,
            length => answer.extend_from_slice(&piece[..length]),
        }
    }
    let answer = String::from_utf8(answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 404") && answer.ends_with('}'), "{answer}");
}
