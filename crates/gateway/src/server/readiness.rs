//! The gateway's readiness for load balancers. `/readyz` reports it together with that of scripts
//! (`Gateway::unready_reason`).
//!
//! A gateway that is not ready still answers every request; `serve` decides when it stops listening.

use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// The lifecycle state of a gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum LifecycleState {
    /// The gateway does not serve yet.
    Starting,
    /// The gateway serves requests.
    Ready,
    /// The gateway is about to exit. It still answers requests, but they should go elsewhere.
    Draining,
}

/// The current state of a gateway, shared between threads.
#[derive(Debug, Default)]
pub struct Readiness(AtomicU8);

impl Readiness {
    /// Returns the current state.
    #[must_use]
    pub fn state(&self) -> LifecycleState {
        match self.0.load(Relaxed) {
            0 => LifecycleState::Starting,
            1 => LifecycleState::Ready,
            _ => LifecycleState::Draining,
        }
    }

    /// Whether load balancers should send requests.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.state() == LifecycleState::Ready
    }

    /// Moves to a later state. A gateway that drains never becomes ready again.
    pub(crate) fn advance(&self, state: LifecycleState) {
        self.0.fetch_max(state as u8, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::{LifecycleState, Readiness};

    #[test]
    fn a_gateway_that_drains_does_not_become_ready_again() {
        let readiness = Readiness::default();
        assert_eq!(readiness.state(), LifecycleState::Starting);
        for state in [LifecycleState::Ready, LifecycleState::Draining, LifecycleState::Ready] {
            readiness.advance(state);
        }
        assert_eq!((readiness.state(), readiness.is_ready()), (LifecycleState::Draining, false));
    }
}
