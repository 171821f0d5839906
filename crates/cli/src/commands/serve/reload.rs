//! Reload of the config: on SIGHUP, and when one of its files changes.
//!
//! Files are watched by polling their inode, time and size. That costs some microseconds, and works where
//! change notifications don't: on network file systems, in overlays of containers, and for a ConfigMap, whose
//! files remain the same links while a folder behind them is swapped. A separate thread polls and reloads, so
//! that requests never wait for a disk.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use diagnostics::Diagnostic;
use gateway::{BuildError, Gateway, GatewayConfig};
use tokio::runtime::Handle;

use super::systemd;
use crate::commands::config;
use crate::process::watch::FileWatcher;
use crate::process::worker;

/// The polling interval. Files must also be unchanged for this time before they are read, since a partially
/// written config may be valid.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// A handle that requests reloads. Dropping it ends the thread.
pub(super) struct ReloadHandle(Sender<()>);

impl ReloadHandle {
    /// Reloads the config when a watched file changes. It must be called within the runtime.
    pub(super) fn start(gateway: Gateway, file: PathBuf, watch: FileWatcher) -> std::io::Result<Self> {
        let (wish, wishes) = channel();
        let runtime = Handle::current();
        let run = move || {
            // Building may spawn tasks.
            let _context = runtime.enter();
            run_reloads(&gateway, &file, watch, &wishes);
        };
        std::thread::Builder::new().name("reload".to_owned()).spawn(run)?;
        Ok(Self(wish))
    }

    /// Requests a reload.
    pub(super) fn reload(&self) {
        // The thread ends only with the process.
        let _ = self.0.send(());
    }
}

fn run_reloads(gateway: &Gateway, file: &Path, mut watch: FileWatcher, wishes: &Receiver<()>) {
    loop {
        match wishes.recv_timeout(POLL_INTERVAL) {
            Ok(()) => {
                tracing::info!("config reload requested");
                // Resets the change status, since the files are read now.
                watch.has_changed();
            }
            Err(RecvTimeoutError::Timeout) if watch.has_changed() => wait_until_stable(&mut watch),
            Err(RecvTimeoutError::Timeout) => continue,
            Err(RecvTimeoutError::Disconnected) => return,
        }
        systemd::notify_reloading();
        watch.set_files(reload(gateway, file));
        systemd::notify_reloaded();
    }
}

/// Waits until the files are no longer written to.
fn wait_until_stable(watch: &mut FileWatcher) {
    const MAX_CHECKS: usize = 20;
    for _ in 0..MAX_CHECKS {
        std::thread::sleep(POLL_INTERVAL);
        if !watch.has_changed() {
            return;
        }
    }
}

/// Activates the current config, or logs its mistakes. Returns the files to watch from now on.
fn reload(gateway: &Gateway, file: &Path) -> Vec<PathBuf> {
    let reading = gateway::config::read_watched(file);
    config::log_warnings(&reading.warnings);
    match reading.config {
        Ok(config) => {
            activate_config(gateway, &GatewayConfig { launcher: Some(worker::launcher()), ..config })
        }
        Err(mistakes) => {
            gateway.note_reload_failed();
            log_mistakes(&mistakes);
        }
    }
    reading.files
}

fn activate_config(gateway: &Gateway, config: &GatewayConfig) {
    match gateway.reload(config) {
        Ok(waiting) => {
            for field in waiting {
                tracing::warn!(field, "changed, but takes effect after a restart only");
            }
            tracing::info!(digest = config.source.digest(), "the config has changed and is active");
        }
        Err(BuildError::Config(mistakes)) => log_mistakes(&mistakes),
        Err(error) => {
            tracing::error!(%error, "the config can't be activated, the previous one stays active")
        }
    }
}

fn log_mistakes(mistakes: &[Diagnostic]) {
    for mistake in mistakes {
        tracing::error!(error = %mistake, "error in the config");
    }
    tracing::error!(errors = mistakes.len(), "the config has errors, the previous one stays active");
}
