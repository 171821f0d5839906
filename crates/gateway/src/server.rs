//! The first phase: connections. HTTP/1.1 and HTTP/2 share each port, in clear text or over TLS.
//!
//! `listeners.rs` opens the sockets, and `connection.rs` serves a single connection, with HTTP/1.1 in
//! `http1.rs` and HTTP/2 in `http2.rs`. Each request goes to the pipeline of the active config
//! (`active_config.rs`). `readiness.rs` and `drain.rs` shut the server down.

pub(crate) mod active_config;
mod connection;
pub(crate) mod drain;
mod fair_stream;
mod http1;
mod http2;
mod linger;
pub(crate) mod listener_rules;
pub(crate) mod listeners;
mod phase_change;
pub(crate) mod readiness;
mod tls;

use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use offload::polls::{PollSite, watch_polls};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::yield_now;

use active_config::ActiveConfig;
use connection::AcceptedConnection;
use drain::{DrainPhase, DrainResult, DrainSignal, ShutdownMode, abort_connections, drain};
use listeners::{BACKLOG, Listener, ListenerSet};
use readiness::LifecycleState;

#[cfg(test)]
pub(crate) use http1::tests::refused_chunks;

/// The idle timeout of a connection, before its first request and between two requests.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// The timeout for a client that reads nothing of its response. Long enough for a phone to pass through a
/// tunnel.
const WRITE_STALL_TIMEOUT: Duration = Duration::from_secs(60);
/// The minimum rate, in bytes a second, at which a client must read a response. Slower clients would hold its
/// memory too long.
const MIN_READ_RATE: u64 = 256;
/// The timeout from a client's first byte to its request: enough for a TLS handshake of several round trips
/// on a line that loses packets.
const GREETING_TIMEOUT: Duration = Duration::from_secs(10);
/// The delay after the system ran out of file descriptors.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(50);

/// The error that ended a connection.
type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Serves until `stop` resolves, then drains.
pub(crate) async fn serve(
    current: Arc<ActiveConfig>,
    listeners: ListenerSet,
    stop: impl Future<Output = ShutdownMode>,
) -> DrainResult {
    let ending = DrainSignal::new();
    let mut accepting = Box::pin(accept_all(Arc::clone(&current), listeners, &ending));
    let stop = tokio::select! {
        stop = stop => stop,
        () = &mut accepting => ShutdownMode::Promptly,
        () = refresh_certificates(&current) => ShutdownMode::Promptly,
    };
    current.readiness.advance(LifecycleState::Draining);
    let config = current.serving().drain.clone();
    let leaving =
        async { tokio::join!(drain(&ending, accepting, stop, &config), current.release_script_leases()).0 };
    tokio::select! {
        drained = leaving => drained,
        () = current.abort_signal.notified() => {
            // The phases after the connections are cut off as well.
            current.abort_signal.notify_one();
            abort_connections(&ending).await
        }
    }
}

/// Accepts connections on every socket until the gateway drains.
async fn accept_all(current: Arc<ActiveConfig>, listeners: ListenerSet, ending: &DrainSignal) {
    let accept = |listener| accept_connections(&current, listener, ending);
    futures_util::future::join_all(listeners.into_vec().into_iter().map(accept)).await;
}

async fn accept_connections(current: &Arc<ActiveConfig>, listener: Listener, ending: &DrainSignal) {
    let name = listener.name().to_owned();
    let listener = match listener.into_tokio() {
        Ok(listener) => listener,
        Err(error) => return tracing::error!(%error, "a socket can't be served"),
    };
    let take = |(stream, address): (TcpStream, SocketAddr)| {
        let serving = current.serving();
        let Some(port) = serving.listener_rules.get(&name).cloned() else { return };
        let pipeline = &serving.pipeline;
        let (peer, limiter) = (address.ip(), &pipeline.telemetry.metrics.limiter);
        // A connection that is not admitted is closed.
        let is_trusted = pipeline.trusted_proxies.is_trusted(peer);
        let Ok(permit) = limiter.connect(peer, is_trusted, &serving.connections, Instant::now()) else {
            return;
        };
        let (phase, open) = (ending.phase(), ending.count_connection());
        let (current, permit) = (Arc::clone(current), Arc::new(permit));
        let connection = AcceptedConnection {
            active_config: current,
            address,
            permit,
            listener_rules: port,
            phase,
            open_token: open,
        };
        tokio::spawn(watch_polls(PollSite::Http1, connection.run(stream)));
    };
    let mut phase = ending.phase();
    let mut draining = pin!(wait_for_phase(&mut phase, DrainPhase::Draining));
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok(accepted) => {
                    take(accepted);
                    // Otherwise many connections that arrive at once would go before the requests of others.
                    yield_now().await;
                }
                Err(error) => handle_accept_error(&error).await,
            },
            () = &mut draining => break,
        }
    }
    // Clients in the accept queue would be refused when the socket closes, so they are accepted first.
    for _ in 0..BACKLOG {
        let Some(Ok(accepted)) = listener.accept().now_or_never() else { return };
        take(accepted);
    }
}

/// Reloads certificates when their files change. Never returns.
async fn refresh_certificates(current: &ActiveConfig) {
    loop {
        tokio::time::sleep(tls::CHECK_INTERVAL).await;
        current.serving().listener_rules.refresh();
    }
}

/// Handles an accept error. A connection that was aborted before it was accepted is ignored; after other
/// errors, such as a lack of descriptors, waits.
async fn handle_accept_error(error: &io::Error) {
    if !matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset) {
        tracing::warn!(%error, "cannot accept a connection");
        tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
    }
}

/// Waits for the phase, and releases the channel's lock at once.
async fn wait_for_phase(phase: &mut watch::Receiver<DrainPhase>, drain_phase: DrainPhase) {
    let _ = phase.wait_for(|phase| *phase >= drain_phase).await;
}

#[cfg(test)]
mod tests;
