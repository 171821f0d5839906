//! A future that waits for a drain phase. A connection polls it beside other futures; the phase is only
//! checked when it has changed, and not on each request.

use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::sync::watch;

use super::drain::DrainPhase;

/// A future that completes after a change of the phase.
pub(super) struct PhaseChange {
    /// `None` if it never completes.
    phase: Option<watch::Receiver<DrainPhase>>,
    future: Pin<Box<dyn Future<Output = ()> + Send>>,
    is_waiting: bool,
}

impl PhaseChange {
    /// Wraps a future that completes after a change of this phase, or never.
    pub(super) fn new(
        phase: watch::Receiver<DrainPhase>,
        coming: impl Future<Output = ()> + Send + 'static,
    ) -> Self {
        Self { phase: Some(phase), future: Box::pin(coming), is_waiting: false }
    }

    /// Returns a future that never completes.
    pub(super) fn never() -> Self {
        Self { phase: None, future: Box::pin(std::future::pending()), is_waiting: false }
    }

    /// Returns ready once the future has completed. It must always be polled by the same task, which it
    /// wakes.
    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let Some(phase) = &self.phase else { return Poll::Pending };
        if self.is_waiting && !phase.has_changed().unwrap_or(true) {
            return Poll::Pending;
        }
        self.is_waiting = true;
        self.future.as_mut().poll(context)
    }
}
