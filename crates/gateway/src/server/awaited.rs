//! A phase of the gateway's end, as a connection waits for it beside other things: it is asked about only when
//! something has changed, and not each time that a request comes.

use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::sync::watch;

use crate::drain::Phase;

/// Something that a change of phase brings.
pub(super) struct Awaited {
    /// `None` for what never comes.
    phase: Option<watch::Receiver<Phase>>,
    coming: Pin<Box<dyn Future<Output = ()> + Send>>,
    is_waiting: bool,
}

impl Awaited {
    /// What ends after a change of this phase, or never.
    pub(super) fn new(
        phase: watch::Receiver<Phase>,
        coming: impl Future<Output = ()> + Send + 'static,
    ) -> Self {
        Self { phase: Some(phase), coming: Box::pin(coming), is_waiting: false }
    }

    /// What never comes.
    pub(super) fn never() -> Self {
        Self { phase: None, coming: Box::pin(std::future::pending()), is_waiting: false }
    }

    /// Ready once it has come. It has to be asked by one task only, which is woken then.
    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let Some(phase) = &self.phase else { return Poll::Pending };
        if self.is_waiting && !phase.has_changed().unwrap_or(true) {
            return Poll::Pending;
        }
        self.is_waiting = true;
        self.coming.as_mut().poll(context)
    }
}
