//! Whether a load balancer should send requests here: what `/readyz` tells, with what scripts say (`Gateway::unready`).
//!
//! A gateway that is not ready still answers whatever comes; `serve` says when it stops listening.

use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// How far a gateway is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum State {
    /// It does not serve yet.
    Starting,
    /// It serves.
    Ready,
    /// It is about to end: what comes is answered, but should better go elsewhere.
    Draining,
}

/// The state of a gateway, for everybody who wants to know.
#[derive(Debug, Default)]
pub struct Readiness(AtomicU8);

impl Readiness {
    /// How far it is.
    #[must_use]
    pub fn state(&self) -> State {
        match self.0.load(Relaxed) {
            0 => State::Starting,
            1 => State::Ready,
            _ => State::Draining,
        }
    }

    /// Whether it wants requests.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.state() == State::Ready
    }

    /// There is no way back: a gateway that drains does not become ready again.
    pub(crate) fn advance(&self, state: State) {
        self.0.fetch_max(state as u8, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::{Readiness, State};

    #[test]
    fn a_gateway_that_drains_does_not_become_ready_again() {
        let readiness = Readiness::default();
        assert_eq!(readiness.state(), State::Starting);
        for state in [State::Ready, State::Draining, State::Ready] {
            readiness.advance(state);
        }
        assert_eq!((readiness.state(), readiness.is_ready()), (State::Draining, false));
    }
}
