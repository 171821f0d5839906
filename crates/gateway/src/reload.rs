//! Another config for a gateway that serves: built off the request threads, then put in force at once.
//!
//! Requests under way end with the config that they began with; what both configs have in common (the
//! query runtime, services) goes from one [`Life`] to the next. A config that can't be built changes
//! nothing. [`Reloads`] is what the operator sees of it.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use crate::build::BuildError;
use crate::config::Config;
use crate::gateway::Gateway;
use crate::life::Life;

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

    fn succeed(&self, digest: &str) {
        let mut state = self.lock();
        let succeeded = state.succeeded + 1;
        let (digest, since) = (digest.to_owned(), SystemTime::now());
        *state = ReloadState { digest, since, succeeded, is_stale: false, ..*state };
    }

    fn fail(&self) {
        let mut state = self.lock();
        state.failed += 1;
        state.is_stale = true;
    }
}

impl Gateway {
    /// Puts another config in force; the names of the fields in it that wait for a restart. It takes as
    /// long as building does: call it off the request threads, but within the runtime.
    ///
    /// # Errors
    /// What [`Gateway::build`] says; the config before it stays in force.
    pub fn reload(&self, config: &Config) -> Result<Vec<&'static str>, BuildError> {
        let _turn = self.reloading.lock().unwrap_or_else(PoisonError::into_inner);
        let life = Life::build(config, Some(&self.current.life())).inspect_err(|_| self.reloads.fail())?;
        self.current.put(life);
        self.reloads.succeed(config.source.digest());
        Ok(self.fixed.changed(config))
    }

    /// Notes that a config could not even be read.
    pub fn not_reloaded(&self) {
        self.reloads.fail();
    }
}
