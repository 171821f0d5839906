//! How a gateway ends, phase by phase, so that no client notices.
//!
//! 1. **Leaving**: `/readyz` says no, and answers over HTTP/1.1 carry `Connection: close`, so that load
//!    balancers and clients go elsewhere by themselves. Whatever comes is still answered, for
//!    `drain.delay`. Nobody's connection is closed under a request that is on its way.
//! 2. **Draining**: nothing new is accepted. What has been idle for so long ends, HTTP/2 connections get
//!    a `GOAWAY`, busy ones end after their last answer, for `drain.timeout`.
//! 3. **Over**: what is still there is cut off.

use std::pin::Pin;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;

use crate::config::DrainConfig;

/// The way in which a gateway is to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// After the delay in which load balancers notice: what a service manager wants.
    Gracefully,
    /// Without that delay: somebody waits at a terminal. Requests under way still end.
    Promptly,
    /// Another process accepts on the same sockets already: this one accepts nothing more, and gives
    /// connections that it has the delay to end by themselves.
    HandedOver,
}

/// How the gateway stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drained {
    /// Connections that were cut off because time was up.
    pub cut_off: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    Serving,
    Draining,
    Over,
}

/// Ends a gateway. `accepting` takes in connections; it ends once the phase is [`Phase::Draining`] and all
/// that were waiting have been let in.
pub(crate) async fn drain(
    phase: &watch::Sender<Phase>,
    mut accepting: Pin<Box<impl Future<Output = ()>>>,
    stop: Stop,
    config: &DrainConfig,
) -> Drained {
    let delay = if stop == Stop::Promptly { Duration::ZERO } else { config.delay.0 };
    tracing::info!(?stop, ?delay, "leaving");
    if stop == Stop::HandedOver {
        drop(accepting);
        let _ = timeout(delay, phase.closed()).await;
        phase.send_replace(Phase::Draining);
    } else {
        let has_ended = timeout(delay, &mut accepting).await.is_ok();
        phase.send_replace(Phase::Draining);
        if !has_ended {
            accepting.await;
        }
    }
    end(phase, config.timeout.0).await
}

/// Waits for the connections that are left, and cuts off what takes too long.
async fn end(phase: &watch::Sender<Phase>, time: Duration) -> Drained {
    tracing::info!(connections = phase.receiver_count(), "draining");
    let _ = timeout(time, phase.closed()).await;
    cut_off(phase).await
}

/// Cuts off whatever is still there.
pub(crate) async fn cut_off(phase: &watch::Sender<Phase>) -> Drained {
    let cut_off = phase.receiver_count();
    phase.send_replace(Phase::Over);
    phase.closed().await;
    tracing::info!(cut_off, "stopped");
    Drained { cut_off }
}
