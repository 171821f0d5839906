//! The core on which open loads (`benches::open`) run, and the resource usage of a server meanwhile.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use benches::client::BenchClient;
pub(crate) use benches::open_loop::{MAX_IN_FLIGHT, OpenLoopOutcome, offer, offer_over, send_request};
use bytes::Bytes;
use futures_util::future::try_join_all;
use http::Request;
use http_body_util::Full;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::process::{LOAD_CORE, ServerProcess};

/// Pins a thread to the core of the load until it is dropped.
pub(crate) struct PinnedThread(CpuSet);

impl PinnedThread {
    /// Pins the calling thread.
    pub(crate) fn to_load_core() -> Self {
        let before = sched_getaffinity(None).unwrap_or_else(|_| CpuSet::new());
        let mut cores = CpuSet::new();
        cores.set(LOAD_CORE.parse().unwrap_or_default());
        // A machine with a single core has no other.
        let _ = sched_setaffinity(None, &cores);
        Self(before)
    }
}

impl Drop for PinnedThread {
    fn drop(&mut self) {
        let _ = sched_setaffinity(None, &self.0);
    }
}

/// Runs load and in-process services on the core of the load, all on the calling thread.
pub(crate) fn run<W: Future>(work: W) -> Result<W::Output> {
    let _core = PinnedThread::to_load_core();
    run_anywhere(work)
}

/// Like `run`, on any core, for servers that use all cores.
pub(crate) fn run_anywhere<W: Future>(work: W) -> Result<W::Output> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(work))
}

/// The result of a future, with the highest resident memory of a server meanwhile.
pub(crate) async fn with_peak_memory<T>(
    server: &ServerProcess,
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

/// Keeps a number of clients busy with sequential requests. Returns the outcomes.
pub(crate) async fn keep_busy(
    address: SocketAddr,
    clients: usize,
    time: Duration,
    request: impl Fn() -> Result<Request<Full<Bytes>>>,
) -> Result<Vec<OpenLoopOutcome>> {
    let (client, end) = (Arc::new(BenchClient::new(address)), Instant::now() + time);
    let each = (0..clients).map(|_| async {
        let mut outcomes = Vec::new();
        while Instant::now() < end {
            outcomes.push(send_request(Arc::clone(&client), request()?, Instant::now()).await);
        }
        anyhow::Ok(outcomes)
    });
    Ok(try_join_all(each).await?.concat())
}
