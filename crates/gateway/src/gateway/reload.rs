//! The state of config reloads, as operators see it.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

/// The results of the reloads so far.
#[derive(Clone, Debug)]
pub struct ReloadState {
    /// The SHA-256 of the active config file in hexadecimal, as `sha256sum orfa.yaml` prints it.
    pub digest: String,
    /// The time at which the active config was loaded.
    pub active_since: SystemTime,
    /// The number of configs that were loaded after the first.
    pub succeeded: u64,
    /// The number of configs that were refused.
    pub failed: u64,
    /// Whether the newest config was refused, so that an older one is active.
    pub is_stale: bool,
}

/// The shared state of reloads.
#[derive(Debug)]
pub struct ReloadShared(Mutex<ReloadState>);

impl ReloadShared {
    pub(crate) fn new(digest: String) -> Self {
        let since = SystemTime::now();
        Self(Mutex::new(ReloadState {
            digest,
            active_since: since,
            succeeded: 0,
            failed: 0,
            is_stale: false,
        }))
    }

    /// Returns the current state.
    #[must_use]
    pub fn state(&self) -> ReloadState {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, ReloadState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn record_success(&self, digest: &str) {
        let mut state = self.lock();
        let succeeded = state.succeeded + 1;
        let (digest, since) = (digest.to_owned(), SystemTime::now());
        *state = ReloadState { digest, active_since: since, succeeded, is_stale: false, ..*state };
    }

    pub(crate) fn record_failure(&self) {
        let mut state = self.lock();
        state.failed += 1;
        state.is_stale = true;
    }
}
