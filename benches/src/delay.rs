//! A TCP proxy that puts a distance between two sockets of one machine, and counts what crosses it.
//!
//! Each chunk is delivered half a round trip after it came, whatever came before it: a long pipe. It is a slow one
//! too if it has a rate: then a chunk comes when its last byte does, and what follows waits for it, whichever
//! connection it belongs to. There is no loss and no slow start, which is kind to whoever sends many bytes.
//! A connection stands once a SYN has gone up and its answer has come down: what its client sends before that waits, though
//! its socket is connected at once. Who compares kept connections has [`Delay::open`] wait until they stand.
//!
//! One thread for each direction delivers its chunks, in the order in which they came, which with one delay for all is
//! the order in which they are due. It is a thread because the runtime's timers are exact to a millisecond
//! only, and a thread's sleep to a tenth of one.

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

use crate::client::{Client, Error};

const CHUNK: usize = 64 << 10;

/// A running proxy. Its connections end when this is dropped.
#[derive(Debug)]
pub struct Delay {
    address: SocketAddr,
    counts: Arc<Counts>,
    _listener: JoinSet<()>,
}

/// Bytes that crossed a proxy: what TCP carried, so whole HTTP messages with their heads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// From the clients.
    pub up: u64,
    /// To the clients.
    pub down: u64,
}

#[derive(Debug, Default)]
struct Counts {
    up: AtomicU64,
    down: AtomicU64,
    wait: Mutex<Wait>,
    /// Connections that were set up.
    stood: watch::Sender<usize>,
}

/// How long clients have waited for what is behind the proxy.
#[derive(Debug, Default)]
struct Wait {
    /// Since when the next bytes of an answer are waited for.
    since: Option<Instant>,
    is_answered: bool,
    all: Duration,
}

/// A chunk on its way; an empty one is the end of its stream.
struct Parcel {
    due: Instant,
    bytes: Bytes,
    to: UnboundedSender<Bytes>,
}

/// One direction: where a chunk begins its way.
#[derive(Clone)]
struct Line {
    parcels: mpsc::Sender<Parcel>,
    delay: Duration,
    /// Bytes in a second.
    rate: Option<u64>,
    /// When the last byte of what was sent is on its way.
    free: Arc<Mutex<Instant>>,
}

impl Delay {
    /// Listens on a free port of the loopback and passes everything on to `to`.
    ///
    /// # Errors
    /// If there is no port, or no thread.
    pub async fn start(to: SocketAddr, round_trip: Duration) -> io::Result<Self> {
        Self::start_slow(to, round_trip, None).await
    }

    /// The same for a line that carries only so many bytes in a second, each way.
    ///
    /// # Errors
    /// If there is no port, or no thread.
    pub async fn start_slow(to: SocketAddr, round_trip: Duration, rate: Option<u64>) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let counts = Arc::<Counts>::default();
        let lines = [Line::start(round_trip / 2, rate)?, Line::start(round_trip / 2, rate)?];
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, to, lines, Arc::clone(&counts)));
        Ok(Self { address, counts, _listener: tasks })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Opens so many connections of a client of this proxy, and waits until they stand.
    ///
    /// # Errors
    /// If one can't be opened.
    pub async fn open(&self, client: &Client, connections: usize) -> Result<(), Error> {
        let mut stood = self.counts.stood.subscribe();
        let all = *stood.borrow() + connections;
        client.open(connections).await?;
        // Whoever counts lives as long as this.
        let _ = stood.wait_for(|stood| *stood >= all).await;
        Ok(())
    }

    /// What has crossed it so far.
    #[must_use]
    pub fn traffic(&self) -> Traffic {
        Traffic { up: self.counts.up.load(Relaxed), down: self.counts.down.load(Relaxed) }
    }

    /// How long what is behind this has been waited for so far, where requests follow each other: from when the first byte of
    /// a request enters this to when the last of its answer does, so with half the round trip.
    #[must_use]
    pub fn waited(&self) -> Duration {
        self.counts.wait().all
    }
}

impl Counts {
    fn went_up(&self, length: usize) {
        self.up.fetch_add(length as u64, Relaxed);
        let mut wait = self.wait();
        if length > 0 && (wait.is_answered || wait.since.is_none()) {
            (wait.since, wait.is_answered) = (Some(Instant::now()), false);
        }
    }

    fn came_down(&self, length: usize) {
        self.down.fetch_add(length as u64, Relaxed);
        let (mut wait, now) = (self.wait(), Instant::now());
        if length > 0
            && let Some(since) = wait.since.replace(now)
        {
            wait.all += now.saturating_duration_since(since);
            wait.is_answered = true;
        }
    }

    fn wait(&self) -> MutexGuard<'_, Wait> {
        self.wait.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::ops::Sub for Traffic {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        Self { up: self.up - earlier.up, down: self.down - earlier.down }
    }
}

impl Line {
    fn start(delay: Duration, rate: Option<u64>) -> io::Result<Self> {
        let (parcels, arrived) = mpsc::channel();
        std::thread::Builder::new().name("distance".into()).spawn(move || deliver(&arrived))?;
        Ok(Self { parcels, delay, rate, free: Arc::new(Mutex::new(Instant::now())) })
    }

    fn send(&self, bytes: Bytes, to: &UnboundedSender<Bytes>) {
        // The lock is held until the parcel is sent: those of other connections have to follow it.
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let takes = self.rate.map_or(0.0, |rate| bytes.len() as f64 / rate as f64);
        *free = (*free).max(Instant::now()) + Duration::from_secs_f64(takes);
        let parcel = Parcel { due: *free + self.delay, bytes, to: to.clone() };
        // The thread lives as long as anyone can send to it.
        let _ = self.parcels.send(parcel);
    }
}

fn deliver(arrived: &mpsc::Receiver<Parcel>) {
    for Parcel { due, bytes, to } in arrived {
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        // A connection that is gone needs its bytes no longer.
        let _ = to.send(bytes);
    }
}

async fn accept(listener: TcpListener, to: SocketAddr, lines: [Line; 2], counts: Arc<Counts>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            Ok((client, _)) = listener.accept() => {
                connections.spawn(join(client, to, lines.clone(), Arc::clone(&counts)));
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

/// One connection, until both directions have ended or one is broken.
async fn join(client: TcpStream, to: SocketAddr, lines: [Line; 2], counts: Arc<Counts>) -> io::Result<()> {
    let [line_up, line_down] = &lines;
    // SYN and its answer, which have no bytes here.
    let (sender, mut receiver) = unbounded_channel();
    for line in &lines {
        line.send(Bytes::new(), &sender);
        let _arrived = receiver.recv().await;
    }
    counts.stood.send_modify(|stood| *stood += 1);
    let server = TcpStream::connect(to).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
    let up = pipe(from_client, to_server, line_up, |length| counts.went_up(length));
    let down = pipe(from_server, to_client, line_down, |length| counts.came_down(length));
    tokio::try_join!(up, down).map(drop)
}

async fn pipe(from: OwnedReadHalf, to: OwnedWriteHalf, line: &Line, count: impl Fn(usize)) -> io::Result<()> {
    let (sender, receiver) = unbounded_channel();
    tokio::try_join!(read(from, line, sender, count), write(receiver, to)).map(drop)
}

async fn read(
    mut from: OwnedReadHalf,
    line: &Line,
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

async fn write(mut chunks: UnboundedReceiver<Bytes>, mut to: OwnedWriteHalf) -> io::Result<()> {
    while let Some(chunk) = chunks.recv().await.filter(|chunk| !chunk.is_empty()) {
        to.write_all(&chunk).await?;
    }
    to.shutdown().await
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers every connection with what it sent, once it has sent all.
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
    async fn what_is_behind_is_waited_for_while_it_has_not_answered_and_no_longer() {
        let delay = Delay::start(echo().await, Duration::from_millis(40)).await.expect("a proxy");
        let answers = 3;
        for _ in 0..answers {
            assert_eq!(exchange(delay.address(), b"hello").await, b"hello");
        }
        let way = Duration::from_millis(20);
        let waited = delay.waited();
        assert!(waited >= way * answers, "{waited:?} is less than all requests took to get there");
        exchange(delay.address(), b"").await;
        assert_eq!(delay.waited(), waited, "nothing was answered");
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
    async fn everything_arrives_in_order_and_is_counted() {
        let delay = Delay::start(echo().await, Duration::from_millis(2)).await.expect("a proxy");
        let text: Vec<u8> = (0..=u8::MAX).cycle().take(300_000).collect();
        assert_eq!(exchange(delay.address(), &text).await, text);
        assert_eq!(delay.traffic(), Traffic { up: 300_000, down: 300_000 });
    }

    #[tokio::test]
    async fn a_slow_line_takes_as_long_as_its_bytes_do() {
        let rate = 1_000_000;
        let delay = Delay::start_slow(echo().await, Duration::ZERO, Some(rate)).await.expect("a proxy");
        let text = vec![7; 50_000];
        let began = Instant::now();
        let answers = tokio::join!(exchange(delay.address(), &text), exchange(delay.address(), &text));
        assert_eq!(answers, (text.clone(), text));
        // Up and down at once, but both connections one after the other.
        assert!(began.elapsed() >= Duration::from_millis(100));
    }

    #[tokio::test]
    async fn an_answer_takes_a_round_trip_at_least_and_a_new_connection_one_more() {
        let round_trip = Duration::from_millis(20);
        let delay = Delay::start(echo().await, round_trip).await.expect("a proxy");
        let began = Instant::now();
        assert_eq!(exchange(delay.address(), b"hello").await, b"hello");
        assert!(began.elapsed() >= round_trip * 2);
        let client = Client::new(delay.address());
        delay.open(&client, 2).await.expect("two connections");
        assert_eq!(*delay.counts.stood.borrow(), 3);
    }
}
