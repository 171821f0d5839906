//! Graceful shutdown in phases that clients don't notice.
//!
//! 1. **Leaving**: `/readyz` reports that the gateway drains, and HTTP/1.1 responses carry
//!    `Connection: close`, so that load balancers and clients move elsewhere. New requests are still
//!    answered, for `drain.delay`. Connections are never closed while a request is on its way.
//! 2. **Draining**: no new connections are accepted. Idle connections end, HTTP/2 connections receive a
//!    `GOAWAY`, and busy ones end after their last response, for `drain.timeout`.
//! 3. **Over**: remaining connections are cut off.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;

use crate::config::DrainConfig;

/// The mode of the shutdown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShutdownMode {
    /// With the delay that lets load balancers react, as for a service manager.
    Gracefully,
    /// Without the delay, as for an interactive terminal. Requests in flight still complete.
    Promptly,
    /// Without accepting connections, because another process already accepts on the same sockets. The
    /// existing connections have the delay to end by themselves.
    HandedOver,
}

/// The result of the shutdown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DrainResult {
    /// The number of connections that were cut off at the timeout.
    pub cut_off_connections: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum DrainPhase {
    Serving,
    Draining,
    Stopped,
}

/// The shutdown signal for connections, and their number.
pub(crate) struct DrainSignal {
    phase: watch::Sender<DrainPhase>,
    open_connections: Arc<()>,
}

/// A token that counts a connection while it exists.
pub(crate) type OpenConnectionToken = Arc<()>;

impl DrainSignal {
    pub(crate) fn new() -> Self {
        Self {
            phase: watch::Sender::new(DrainPhase::Serving),
            open_connections: OpenConnectionToken::default(),
        }
    }

    /// Subscribes a connection to the phases of the shutdown.
    pub(crate) fn phase(&self) -> watch::Receiver<DrainPhase> {
        self.phase.subscribe()
    }

    /// Counts another connection.
    pub(crate) fn count_connection(&self) -> OpenConnectionToken {
        Arc::clone(&self.open_connections)
    }

    fn connection_count(&self) -> usize {
        Arc::strong_count(&self.open_connections) - 1
    }
}

/// Shuts a gateway down. `accepting` accepts connections; it completes once the phase is
/// [`DrainPhase::Draining`] and all waiting connections have been accepted.
pub(crate) async fn drain(
    ending: &DrainSignal,
    mut accepting: Pin<Box<impl Future<Output = ()>>>,
    stop: ShutdownMode,
    config: &DrainConfig,
) -> DrainResult {
    let delay = if stop == ShutdownMode::Promptly { Duration::ZERO } else { config.delay.0 };
    tracing::info!(?stop, ?delay, "leaving");
    if stop == ShutdownMode::HandedOver {
        drop(accepting);
        let _ = timeout(delay, ending.phase.closed()).await;
        ending.phase.send_replace(DrainPhase::Draining);
    } else {
        let has_ended = timeout(delay, &mut accepting).await.is_ok();
        ending.phase.send_replace(DrainPhase::Draining);
        if !has_ended {
            accepting.await;
        }
    }
    wait_for_connections(ending, config.timeout.0).await
}

/// Waits for the remaining connections, and cuts them off at the timeout.
async fn wait_for_connections(ending: &DrainSignal, time: Duration) -> DrainResult {
    tracing::info!(connections = ending.connection_count(), "draining");
    let _ = timeout(time, ending.phase.closed()).await;
    abort_connections(ending).await
}

/// Cuts off the remaining connections.
pub(crate) async fn abort_connections(ending: &DrainSignal) -> DrainResult {
    let cut_off = ending.connection_count();
    ending.phase.send_replace(DrainPhase::Stopped);
    ending.phase.closed().await;
    tracing::info!(cut_off, "stopped");
    DrainResult { cut_off_connections: cut_off }
}
