//! An open load: requests are sent when they are due, answered or not, and the time of each counts from
//! there, so that a server which stands still can't hide it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use benches::client::{Client, Error};
use bytes::Bytes;
use futures_util::future::try_join_all;
use http::{Request, StatusCode};
use http_body_util::Full;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::JoinSet;

use crate::process::{LOAD_CORE, Server};

/// Before all other threads, as if it stood on a machine of its own (where the system allows it: as root).
const FIRST: i32 = -20;

/// A server that leaves more requests than this without an answer is not asked more: clients give up too.
pub(crate) const MOST_UNDER_WAY: usize = 5_000;

/// What became of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answered {
    /// `None` where no answer came.
    pub(crate) status: Option<StatusCode>,
    /// Milliseconds from when it was due.
    pub(crate) ms: f64,
}

/// A thread is on the core of the load for as long as this lives.
pub(crate) struct Pinned(CpuSet);

impl Pinned {
    /// The calling thread.
    pub(crate) fn to_the_load() -> Self {
        let before = sched_getaffinity(None).unwrap_or_else(|_| CpuSet::new());
        let mut cores = CpuSet::new();
        cores.set(LOAD_CORE.parse().unwrap_or_default());
        // On a machine with one core there is no other.
        let _ = sched_setaffinity(None, &cores);
        Self(before)
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        let _ = sched_setaffinity(None, &self.0);
    }
}

/// Runs load, and services of our own, on the core of the load, all on the calling thread.
pub(crate) fn run<W: Future>(work: W) -> Result<W::Output> {
    let _core = Pinned::to_the_load();
    run_anywhere(work)
}

/// The same on any core: where servers have all of them.
pub(crate) fn run_anywhere<W: Future>(work: W) -> Result<W::Output> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(work))
}

/// Sends so many requests a second for a while; what became of each, in the order of their answers.
pub(crate) async fn offer(
    address: SocketAddr,
    per_second: f64,
    time: Duration,
    request: impl Fn() -> Result<Request<Full<Bytes>>>,
) -> Result<Vec<Answered>> {
    offer_over(Client::new(address), per_second, time, request).await
}

/// The same by clients that may be connected already.
pub(crate) async fn offer_over(
    client: Client,
    per_second: f64,
    time: Duration,
    request: impl Fn() -> Result<Request<Full<Bytes>>>,
) -> Result<Vec<Answered>> {
    let client = Arc::new(client);
    let mut due = clock(Duration::from_secs_f64(1.0 / per_second), time);
    let (mut under_way, mut answered) = (JoinSet::new(), Vec::new());
    while let Some(due) = due.recv().await {
        // Those that are over count as under way until they are asked for.
        while let Some(one) = under_way.try_join_next() {
            answered.push(one?);
        }
        if under_way.len() == MOST_UNDER_WAY {
            answered.push(Answered { status: None, ms: 0.0 });
            continue;
        }
        under_way.spawn(ask(Arc::clone(&client), request()?, due));
    }
    while let Some(one) = under_way.join_next().await {
        answered.push(one?);
    }
    Ok(answered)
}

/// The highest resident memory while something goes on.
pub(crate) async fn with_highest<T>(
    server: &Server,
    every: Duration,
    work: impl Future<Output = T>,
) -> Result<(T, u64)> {
    let mut work = std::pin::pin!(work);
    let mut highest = 0;
    loop {
        highest = highest.max(server.usage()?.rss);
        if let Ok(done) = tokio::time::timeout(every, work.as_mut()).await {
            return Ok((done, highest.max(server.usage()?.rss)));
        }
    }
}

async fn ask(client: Arc<Client>, request: Request<Full<Bytes>>, due: Instant) -> Answered {
    let answer: Result<_, Error> = client.send(request).await;
    Answered { status: answer.ok().map(|answer| answer.status), ms: due.elapsed().as_secs_f64() * 1e3 }
}

/// So many clients send one request after the other for a while; what became of each.
pub(crate) async fn keep_busy(
    address: SocketAddr,
    clients: usize,
    time: Duration,
    request: impl Fn() -> Result<Request<Full<Bytes>>>,
) -> Result<Vec<Answered>> {
    let (client, end) = (Arc::new(Client::new(address)), Instant::now() + time);
    let each = (0..clients).map(|_| async {
        let mut answered = Vec::new();
        while Instant::now() < end {
            answered.push(ask(Arc::clone(&client), request()?, Instant::now()).await);
        }
        anyhow::Ok(answered)
    });
    Ok(try_join_all(each).await?.concat())
}

/// Says when a request is due. A thread's sleep is exact to a tenth of a millisecond, where tokio's timer
/// rounds up to whole ones and would hide what is measured.
fn clock(every: Duration, time: Duration) -> UnboundedReceiver<Instant> {
    let (say, due) = unbounded_channel();
    std::thread::spawn(move || {
        let _ = rustix::process::setpriority_process(None, FIRST);
        let (mut next, end) = (Instant::now(), Instant::now() + time);
        while next < end && say.send(next).is_ok() {
            next += every;
            std::thread::sleep(next.saturating_duration_since(Instant::now()));
        }
    });
    due
}
