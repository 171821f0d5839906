//! Load and the service behind the proxies on one thread that never sleeps.
//!
//! On one machine, a server that sends to a sleeping process pays for waking it on the other core, some
//! microseconds, and slower servers do so more often. Over a network no server pays that. Here no process
//! sleeps, so that only the server's own cost remains.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use benches::upstream::{SMALL, serve};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::task::{JoinSet, yield_now};

use crate::load::{CONNECTIONS, LoadRound, compute_round};
use crate::open_loop::PinnedThread;
use crate::process::ServerProcess;

const REQUEST: &[u8] = b"GET /small HTTP/1.1\r\nHost: localhost\r\n\r\n";
const OK_PREFIX: &[u8] = b"HTTP/1.1 200 ";
const HEAD_END: &[u8] = b"\r\n\r\n";

/// The service with the load next to it. Both run only during a load, on the calling thread.
pub(crate) struct BusyService {
    pub(crate) upstream: SocketAddr,
    runtime: Runtime,
    _core: PinnedThread,
}

impl BusyService {
    /// Starts the service without load. The calling thread is pinned to the load's core meanwhile.
    pub(crate) fn start() -> Result<Self> {
        let core = PinnedThread::to_load_core();
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0"))?;
        let upstream = listener.local_addr()?;
        runtime.spawn(serve(listener));
        Ok(Self { upstream, runtime, _core: core })
    }

    /// Keeps a server busy with GET requests of 1 KB.
    pub(crate) fn load(&self, server: &ServerProcess, time: Duration) -> Result<LoadRound> {
        let before = server.usage()?;
        let requests = self.runtime.block_on(run_clients(server.address, Instant::now() + time))?;
        Ok(compute_round(requests, time, before, server.usage()?))
    }
}

/// Runs all clients to their end. Waiting for them yields instead of sleeping.
async fn run_clients(address: SocketAddr, end: Instant) -> Result<u64> {
    let (mut clients, mut requests) = (JoinSet::new(), 0);
    (0..CONNECTIONS).for_each(|_| _ = clients.spawn(run_client(address, end)));
    while !clients.is_empty() {
        match clients.try_join_next() {
            Some(answered) => requests += answered??,
            None => yield_now().await,
        }
    }
    Ok(requests)
}

async fn run_client(address: SocketAddr, end: Instant) -> Result<u64> {
    let mut stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let (mut answer, mut requests) = (Vec::with_capacity(8 << 10), 0);
    while Instant::now() < end {
        stream.write_all(REQUEST).await?;
        answer.clear();
        while !is_complete(&answer) {
            ensure!(
                stream.read_buf(&mut answer).await? > 0,
                "the server closed a connection that was in use"
            );
        }
        ensure!(answer.starts_with(OK_PREFIX), "{}", String::from_utf8_lossy(&answer));
        requests += 1;
    }
    Ok(requests)
}

fn is_complete(answer: &[u8]) -> bool {
    let head = answer.len().checked_sub(SMALL + HEAD_END.len());
    head.is_some_and(|head| answer.get(head..head + HEAD_END.len()) == Some(HEAD_END))
}
