//! How a gateway ends, phase by phase, so that no client notices.
//!
//! 1. **Leaving**: `/readyz` says no, and answers over HTTP/1.1 carry `Connection: close`, so that load
//!    balancers and clients go elsewhere by themselves. Whatever comes is still answered, for
//!    `drain.delay`. Nobody's connection is closed under a request that is on its way.
//! 2. **Draining**: nothing new is accepted. What has been idle for so long ends, HTTP/2 connections get
//!    a `GOAWAY`, busy ones end after their last answer, for `drain.timeout`.
//! 3. **Over**: what is still there is cut off.

use std::pin::Pin;
use std::sync::Arc;
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

/// How a gateway's connections hear of its end, and how many there are.
pub(crate) struct Ending {
    phase: watch::Sender<Phase>,
    open: Arc<()>,
}

/// What counts a connection for as long as it lives.
pub(crate) type Open = Arc<()>;

impl Ending {
    pub(crate) fn new() -> Self {
        Self { phase: watch::Sender::new(Phase::Serving), open: Open::default() }
    }

    /// What a connection hears it by.
    pub(crate) fn phase(&self) -> watch::Receiver<Phase> {
        self.phase.subscribe()
    }

    /// One more connection.
    pub(crate) fn open(&self) -> Open {
        Arc::clone(&self.open)
    }

    fn connections(&self) -> usize {
        Arc::strong_count(&self.open) - 1
    }
}

/// Ends a gateway. `accepting` takes in connections; it ends once the phase is [`Phase::Draining`] and all
/// that were waiting have been let in.
pub(crate) async fn drain(
    ending: &Ending,
    mut accepting: Pin<Box<impl Future<Output = ()>>>,
    stop: Stop,
    config: &DrainConfig,
) -> Drained {
    let delay = if stop == Stop::Promptly { Duration::ZERO } else { config.delay.0 };
    tracing::info!(?stop, ?delay, "leaving");
    if stop == Stop::HandedOver {
        drop(accepting);
        let _ = timeout(delay, ending.phase.closed()).await;
        ending.phase.send_replace(Phase::Draining);
    } else {
        let has_ended = timeout(delay, &mut accepting).await.is_ok();
        ending.phase.send_replace(Phase::Draining);
        if !has_ended {
            accepting.await;
        }
    }
    end(ending, config.timeout.0).await
}

/// Waits for the connections that are left, and cuts off what takes too long.
async fn end(ending: &Ending, time: Duration) -> Drained {
    tracing::info!(connections = ending.connections(), "draining");
    let _ = timeout(time, ending.phase.closed()).await;
    cut_off(ending).await
}

/// Cuts off whatever is still there.
pub(crate) async fn cut_off(ending: &Ending) -> Drained {
    let cut_off = ending.connections();
    ending.phase.send_replace(Phase::Over);
    ending.phase.closed().await;
    tracing::info!(cut_off, "stopped");
    Drained { cut_off }
}
