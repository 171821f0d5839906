//! The core that open loads (`benches::open`) come from, and what a server needs meanwhile.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use benches::client::Client;
pub(crate) use benches::open::{Answered, MOST_UNDER_WAY, ask, offer, offer_over};
use bytes::Bytes;
use futures_util::future::try_join_all;
use http::Request;
use http_body_util::Full;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::process::{LOAD_CORE, Server};

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
