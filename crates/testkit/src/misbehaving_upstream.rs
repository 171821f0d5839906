//! A service that misbehaves, each kind of misbehaviour on its own path.
//!
//! | path | behaviour |
//! | --- | --- |
//! | `/echo` | 200, JSON of method, path, headers, body |
//! | `/body` | 200, the request's body with a JSON content type |
//! | `/json?n=3` | 200, a list of n objects; with `&text=9` each has a text of 9 bytes |
//! | `/status/418` | this status, and a line of text |
//! | `/redirect` | 302 to `/echo` |
//! | `/encoded?with=gzip` | 200, JSON, encoded with gzip, br or zstd |
//! | `/slow?ms=50` | 200 after this time |
//! | `/hang` | no response |
//! | `/stall` | a head and half a body, then nothing |
//! | `/reset` | RST instead of a response |
//! | `/stale` | 200, then closes the connection without announcing it |
//! | `/short` | closes before the body reaches its announced length |
//! | `/long` | more body than announced |
//! | `/garbage` | bytes that are not HTTP |
//! | `/interim` | a million interim responses, and no other |
//! | `/list?of=connection` | 200, this header with 30,000 members |
//! | `/chunked-broken` | invalid chunks |
//! | `/gigabyte` | 200, 1 GiB |
//! | `/bomb` | 200, 1 GiB in 1 MiB of gzip |
//!
//! Tests never sleep: they await [`MisbehavingUpstream::wait_for_request`] and
//! [`MisbehavingUpstream::wait_for_close`].

mod request;
mod responses;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::io::{AsyncReadExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::with_timeout;
use request::UpstreamRequest;

/// A running service that misbehaves. It ends when dropped.
#[derive(Debug)]
pub struct MisbehavingUpstream {
    address: SocketAddr,
    counts: Arc<watch::Sender<UpstreamCounts>>,
    task: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct UpstreamCounts {
    connections: usize,
    hits: HashMap<String, usize>,
    closed_by_path: HashMap<String, usize>,
}

/// The next step on a connection after a response.
enum NextBehaviour {
    /// Wait for the next request.
    Keep,
    /// Close the connection.
    Close,
    /// Reset the connection.
    Reset,
    /// Do nothing until the peer closes the connection.
    Hang,
}

/// Starts the service on a port of its own.
///
/// # Panics
/// Panics if no port is available.
pub async fn start() -> MisbehavingUpstream {
    let listener = match TcpListener::bind("127.0.0.1:0").await {
        Ok(listener) => listener,
        Err(error) => panic!("no port for the misbehaving service: {error}"),
    };
    let address = listener.local_addr().unwrap_or_else(|error| panic!("no address: {error}"));
    let counts = Arc::new(watch::Sender::new(UpstreamCounts::default()));
    let task = tokio::spawn(accept_connections(listener, counts.clone()));
    MisbehavingUpstream { address, counts, task }
}

impl MisbehavingUpstream {
    /// `http://127.0.0.1:PORT`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The address that it listens on.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The number of requests for a path, with any query.
    #[must_use]
    pub fn hits(&self, path: &str) -> usize {
        self.counts.borrow().hits.get(path).copied().unwrap_or_default()
    }

    /// The number of connections that were opened.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.counts.borrow().connections
    }

    /// Waits until a request for a path has arrived.
    pub async fn wait_for_request(&self, path: &str) {
        self.wait_for_requests(path, 1).await;
    }

    /// Waits until this number of requests for a path have arrived.
    pub async fn wait_for_requests(&self, path: &str, times: usize) {
        let seen = |counts: &UpstreamCounts| counts.hits.get(path).is_some_and(|hits| *hits >= times);
        with_timeout(format!("{times} requests for {path}"), self.wait_for_counts(seen)).await;
    }

    /// Waits until the peer has closed a connection whose last request was for a path.
    pub async fn wait_for_close(&self, path: &str) {
        let closed = |counts: &UpstreamCounts| counts.closed_by_path.contains_key(path);
        with_timeout(format_args!("the end of a connection for {path}"), self.wait_for_counts(closed)).await;
    }

    async fn wait_for_counts(&self, done: impl FnMut(&UpstreamCounts) -> bool) {
        // The sender lives as long as `self`, so waiting can't fail.
        let _ = self.counts.subscribe().wait_for(done).await.map(|_| ());
    }
}

impl Drop for MisbehavingUpstream {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept_connections(listener: TcpListener, counts: Arc<watch::Sender<UpstreamCounts>>) {
    // The connections end with the set, which ends with this task.
    let mut connections = tokio::task::JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        counts.send_modify(|counts| counts.connections += 1);
        connections.spawn(serve_connection(stream, counts.clone()));
    }
}

async fn serve_connection(stream: TcpStream, counts: Arc<watch::Sender<UpstreamCounts>>) {
    let _ = stream.set_nodelay(true);
    let mut stream = BufReader::new(stream);
    let mut last = String::new();
    while let Ok(Some(request)) = UpstreamRequest::read(&mut stream).await {
        last = request.path().to_owned();
        counts.send_modify(|counts| *counts.hits.entry(last.clone()).or_default() += 1);
        match responses::respond(&request, stream.get_mut()).await {
            Ok(NextBehaviour::Keep) => {}
            Ok(NextBehaviour::Close) => return,
            Ok(NextBehaviour::Reset) => {
                let _ = stream.get_ref().set_zero_linger();
                return;
            }
            Ok(NextBehaviour::Hang) => {
                let _ = tokio::io::copy(&mut (&mut stream).take(u64::MAX), &mut tokio::io::sink()).await;
                break;
            }
            Err(_) => break,
        }
    }
    counts.send_modify(|counts| *counts.closed_by_path.entry(last).or_default() += 1);
}

#[cfg(test)]
mod tests;
