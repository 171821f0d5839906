//! A TCP proxy that simulates a distance between two local sockets, and counts the bytes that cross it.
//!
//! Each chunk is delivered half a round trip after it arrived, independently of earlier ones: a long pipe.
//! With a rate the pipe is slow as well: a chunk is delivered when its last byte would arrive, and later ones
//! wait for it, on all connections. There is no loss and no slow start, which favours clients that send many
//! bytes. A connection is set up once a SYN has gone up and its reply has come down. Bytes that the client
//! sends earlier wait, though its socket connects immediately. A comparison with kept connections uses
//! [`DelayProxy::open`] to wait until they are set up.
//!
//! One thread per direction delivers chunks in order of arrival, which equals the order of delivery, since
//! all have the same delay. It is a thread because the runtime's timers have a resolution of a millisecond
//! only, and a thread's sleep one of a tenth of that.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::client::{BenchClient, ClientError};

const CHUNK: usize = 64 << 10;

/// A running proxy. Its connections end when it is dropped.
#[derive(Debug)]
pub struct DelayProxy {
    address: SocketAddr,
    counts: Arc<DirectionCounts>,
    _listener: JoinSet<()>,
}

/// Bytes that crossed a proxy: the content of TCP, so HTTP messages with their heads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProxyTraffic {
    /// From the clients.
    pub up: u64,
    /// To the clients.
    pub down: u64,
}

#[derive(Debug, Default)]
struct DirectionCounts {
    up: AtomicU64,
    down: AtomicU64,
    wait: Mutex<ServerWait>,
    /// The number of connections that were set up.
    connected: watch::Sender<usize>,
}

/// The time for which clients have waited for the server behind the proxy.
#[derive(Debug, Default)]
struct ServerWait {
    /// The time since which the next bytes of a response are awaited.
    since: Option<Instant>,
    is_answered: bool,
    total: Duration,
}

/// A chunk in transit. An empty one is the end of its stream.
struct DelayedChunk {
    due: Instant,
    bytes: Bytes,
    to: UnboundedSender<Bytes>,
}

/// The entrance of one direction.
#[derive(Clone)]
struct DelayLine {
    parcels: mpsc::Sender<DelayedChunk>,
    delay: Duration,
    /// Bytes per second.
    rate: Option<u64>,
    /// The time at which the last byte sent so far has entered the line.
    free_at: Arc<Mutex<Instant>>,
}

impl DelayProxy {
    /// Listens on a free loopback port and forwards everything to `to`.
    ///
    /// # Errors
    /// Fails if there is no port or no thread.
    pub async fn start(to: SocketAddr, round_trip: Duration) -> io::Result<Self> {
        Self::start_slow(to, round_trip, None).await
    }

    /// Like `start`, with a rate in bytes per second for each direction.
    ///
    /// # Errors
    /// Fails if there is no port or no thread.
    pub async fn start_slow(to: SocketAddr, round_trip: Duration, rate: Option<u64>) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let counts = Arc::<DirectionCounts>::default();
        let lines = [DelayLine::start(round_trip / 2, rate)?, DelayLine::start(round_trip / 2, rate)?];
        let mut tasks = JoinSet::new();
        tasks.spawn(accept_connections(listener, to, lines, Arc::clone(&counts)));
        Ok(Self { address, counts, _listener: tasks })
    }

    /// The address that it listens on.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Opens connections of a client of this proxy, and waits until they are set up.
    ///
    /// # Errors
    /// Fails if one can't be opened.
    pub async fn open(&self, client: &BenchClient, connections: usize) -> Result<(), ClientError> {
        let mut stood = self.counts.connected.subscribe();
        let all = *stood.borrow() + connections;
        client.open(connections).await?;
        // The sender lives as long as `self`.
        let _ = stood.wait_for(|stood| *stood >= all).await;
        Ok(())
    }

    /// The traffic so far.
    #[must_use]
    pub fn traffic(&self) -> ProxyTraffic {
        ProxyTraffic { up: self.counts.up.load(Relaxed), down: self.counts.down.load(Relaxed) }
    }

    /// The total time spent waiting for the server behind the proxy, for sequential requests: from the first
    /// byte of a request at the proxy to the last byte of its response, so including half the round trip.
    #[must_use]
    pub fn server_wait(&self) -> Duration {
        self.counts.lock_wait().total
    }
}

impl DirectionCounts {
    fn count_upload(&self, length: usize) {
        self.up.fetch_add(length as u64, Relaxed);
        let mut wait = self.lock_wait();
        if length > 0 && (wait.is_answered || wait.since.is_none()) {
            (wait.since, wait.is_answered) = (Some(Instant::now()), false);
        }
    }

    fn count_download(&self, length: usize) {
        self.down.fetch_add(length as u64, Relaxed);
        let (mut wait, now) = (self.lock_wait(), Instant::now());
        if length > 0
            && let Some(since) = wait.since.replace(now)
        {
            wait.total += now.saturating_duration_since(since);
            wait.is_answered = true;
        }
    }

    fn lock_wait(&self) -> MutexGuard<'_, ServerWait> {
        self.wait.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::ops::Sub for ProxyTraffic {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        Self { up: self.up - earlier.up, down: self.down - earlier.down }
    }
}

impl DelayLine {
    fn start(delay: Duration, rate: Option<u64>) -> io::Result<Self> {
        let (parcels, arrived) = mpsc::channel();
        std::thread::Builder::new().name("distance".into()).spawn(move || deliver_chunks(&arrived))?;
        Ok(Self { parcels, delay, rate, free_at: Arc::new(Mutex::new(Instant::now())) })
    }

    fn send(&self, bytes: Bytes, to: &UnboundedSender<Bytes>) {
        // The lock is held until the parcel is sent, so that parcels of other connections follow it.
        let mut free = self.free_at.lock().unwrap_or_else(PoisonError::into_inner);
        let takes = self.rate.map_or(0.0, |rate| bytes.len() as f64 / rate as f64);
        *free = (*free).max(Instant::now()) + Duration::from_secs_f64(takes);
        let parcel = DelayedChunk { due: *free + self.delay, bytes, to: to.clone() };
        // The thread lives as long as its senders.
        let _ = self.parcels.send(parcel);
    }
}

fn deliver_chunks(arrived: &mpsc::Receiver<DelayedChunk>) {
    for DelayedChunk { due, bytes, to } in arrived {
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        // A closed connection no longer needs its bytes.
        let _ = to.send(bytes);
    }
}

async fn accept_connections(
    listener: TcpListener,
    to: SocketAddr,
    lines: [DelayLine; 2],
    counts: Arc<DirectionCounts>,
) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            Ok((client, _)) = listener.accept() => {
                connections.spawn(serve_connection(client, to, lines.clone(), Arc::clone(&counts)));
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

/// Serves one connection until both directions have ended or one is broken.
async fn serve_connection(
    client: TcpStream,
    to: SocketAddr,
    lines: [DelayLine; 2],
    counts: Arc<DirectionCounts>,
) -> io::Result<()> {
    let [line_up, line_down] = &lines;
    // The SYN and its reply, which carry no bytes here.
    let (sender, mut receiver) = unbounded_channel();
    for line in &lines {
        line.send(Bytes::new(), &sender);
        let _arrived = receiver.recv().await;
    }
    counts.connected.send_modify(|stood| *stood += 1);
    let server = TcpStream::connect(to).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
    let up = forward_stream(from_client, to_server, line_up, |length| counts.count_upload(length));
    let down = forward_stream(from_server, to_client, line_down, |length| counts.count_download(length));
    tokio::try_join!(up, down).map(drop)
}

async fn forward_stream(
    from: OwnedReadHalf,
    to: OwnedWriteHalf,
    line: &DelayLine,
    count: impl Fn(usize),
) -> io::Result<()> {
    let (sender, receiver) = unbounded_channel();
    tokio::try_join!(read_chunks(from, line, sender, count), write_chunks(receiver, to)).map(drop)
}

async fn read_chunks(
    mut from: OwnedReadHalf,
    line: &DelayLine,
    to: UnboundedSender<Bytes>,
    count: impl Fn(usize),
) -> io::Result<()> {
    loop {
        let mut chunk = BytesMut::with_capacity(CHUNK);
        let length = from.read_buf(&mut chunk).await?;
        count(length);
        line.send(chunk.freeze(), &to);
        if length == 0 {
            return Ok(());
        }
    }
}

async fn write_chunks(mut chunks: UnboundedReceiver<Bytes>, mut to: OwnedWriteHalf) -> io::Result<()> {
    while let Some(chunk) = chunks.recv().await.filter(|chunk| !chunk.is_empty()) {
        to.write_all(&chunk).await?;
    }
    to.shutdown().await
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that returns all bytes of a connection after its end.
    async fn echo() -> SocketAddr {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
        let address = listener.local_addr().expect("an address");
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut all = Vec::new();
                stream.read_to_end(&mut all).await.expect("to read");
                stream.write_all(&all).await.expect("to write");
            }
        });
        address
    }

    #[tokio::test]
    async fn counts_waiting_time_only_until_the_response() {
        let delay = DelayProxy::start(echo().await, Duration::from_millis(40)).await.expect("a proxy");
        let answers = 3;
        for _ in 0..answers {
            assert_eq!(exchange(delay.address(), b"hello").await, b"hello");
        }
        let way = Duration::from_millis(20);
        let waited = delay.server_wait();
        assert!(waited >= way * answers, "{waited:?} is less than the requests took to arrive");
        exchange(delay.address(), b"").await;
        assert_eq!(delay.server_wait(), waited, "there was no response");
    }

    async fn exchange(address: SocketAddr, text: &[u8]) -> Vec<u8> {
        let mut stream = TcpStream::connect(address).await.expect("a connection");
        stream.write_all(text).await.expect("to write");
        stream.shutdown().await.expect("to shut down");
        let mut all = Vec::new();
        stream.read_to_end(&mut all).await.expect("to read");
        all
    }

    #[tokio::test]
    async fn delivers_everything_in_order_and_counts_it() {
        let delay = DelayProxy::start(echo().await, Duration::from_millis(2)).await.expect("a proxy");
        let text: Vec<u8> = (0..=u8::MAX).cycle().take(300_000).collect();
        assert_eq!(exchange(delay.address(), &text).await, text);
        assert_eq!(delay.traffic(), ProxyTraffic { up: 300_000, down: 300_000 });
    }

    #[tokio::test]
    async fn slow_lines_delay_by_the_size_of_the_data() {
        let rate = 1_000_000;
        let delay = DelayProxy::start_slow(echo().await, Duration::ZERO, Some(rate)).await.expect("a proxy");
        let text = vec![7; 50_000];
        let began = Instant::now();
        let answers = tokio::join!(exchange(delay.address(), &text), exchange(delay.address(), &text));
        assert_eq!(answers, (text.clone(), text));
        // Both directions run concurrently, but the two connections share the rate.
        assert!(began.elapsed() >= Duration::from_millis(100));
    }

    #[tokio::test]
    async fn responses_take_a_round_trip_and_new_connections_another() {
        let round_trip = Duration::from_millis(20);
        let delay = DelayProxy::start(echo().await, round_trip).await.expect("a proxy");
        let began = Instant::now();
        assert_eq!(exchange(delay.address(), b"hello").await, b"hello");
        assert!(began.elapsed() >= round_trip * 2);
        let client = BenchClient::new(delay.address());
        delay.open(&client, 2).await.expect("two connections");
        assert_eq!(*delay.counts.connected.borrow(), 3);
    }
}
