//! What the operator sees of the configs that a gateway was given while it served.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

/// What became of the configs so far.
#[derive(Clone, Debug)]
pub struct ReloadState {
    /// The SHA-256 of the file that is in force, in hexadecimal: what `sha256sum orfa.yaml` prints.
    pub digest: String,
    /// Since when it is.
    pub since: SystemTime,
    /// Configs that were put in force after the first.
    pub succeeded: u64,
    /// Configs that were refused.
    pub failed: u64,
    /// Whether the newest config was refused, and an older one is in force.
    pub is_stale: bool,
}

/// The same, as it changes.
#[derive(Debug)]
pub struct Reloads(Mutex<ReloadState>);

impl Reloads {
    pub(crate) fn new(digest: String) -> Self {
        let since = SystemTime::now();
        Self(Mutex::new(ReloadState { digest, since, succeeded: 0, failed: 0, is_stale: false }))
    }

    /// As it is now.
    #[must_use]
    pub fn state(&self) -> ReloadState {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, ReloadState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn succeed(&self, digest: &str) {
        let mut state = self.lock();
        let succeeded = state.succeeded + 1;
        let (digest, since) = (digest.to_owned(), SystemTime::now());
        *state = ReloadState { digest, since, succeeded, is_stale: false, ..*state };
    }

    pub(crate) fn fail(&self) {
        let mut state = self.lock();
        state.failed += 1;
        state.is_stale = true;
    }
}
