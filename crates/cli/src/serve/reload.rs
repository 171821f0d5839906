//! The config read again: on SIGHUP, and when a file that it is made of is another one.
//!
//! Files are watched by asking for their inode, time and size every now and then. That costs some
//! microseconds, and works where being told of changes doesn't: on network file systems, in overlays of
//! containers, and for a ConfigMap, whose files stay the same links while a folder behind them is
//! swapped. It all happens on a thread of its own, so that no request waits for a disk.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use gateway::{BuildError, Config, Gateway, Mistake};
use tokio::runtime::Handle;

use super::systemd;
use crate::watch::Watch;
use crate::worker;

/// Between two looks at the files; and how long they have to stay the same before they are read, since
/// half of a config can be a config.
const PAUSE: Duration = Duration::from_millis(500);

/// Where to wish for a reload. Dropping it ends the thread.
pub(super) struct Reloader(Sender<()>);

impl Reloader {
    /// Reads this config again when something that is watched changes. Must be called within the runtime.
    pub(super) fn start(gateway: Gateway, file: PathBuf, watch: Watch) -> std::io::Result<Self> {
        let (wish, wishes) = channel();
        let runtime = Handle::current();
        let run = move || {
            // What is built may want to spawn tasks.
            let _context = runtime.enter();
            run(&gateway, &file, watch, &wishes);
        };
        std::thread::Builder::new().name("reload".to_owned()).spawn(run)?;
        Ok(Self(wish))
    }

    /// Wishes for a reload.
    pub(super) fn reload(&self) {
        // The thread ends only with the process.
        let _ = self.0.send(());
    }
}

fn run(gateway: &Gateway, file: &Path, mut watch: Watch, wishes: &Receiver<()>) {
    loop {
        match wishes.recv_timeout(PAUSE) {
            Ok(()) => {
                tracing::info!("asked to read the config again");
                // What it is about to read is no change afterwards.
                watch.has_changed();
            }
            Err(RecvTimeoutError::Timeout) if watch.has_changed() => settle(&mut watch),
            Err(RecvTimeoutError::Timeout) => continue,
            Err(RecvTimeoutError::Disconnected) => return,
        }
        systemd::reloading();
        watch.set(reload(gateway, file));
        systemd::reloaded();
    }
}

/// Waits until nobody writes any longer.
fn settle(watch: &mut Watch) {
    const MOST: usize = 20;
    for _ in 0..MOST {
        std::thread::sleep(PAUSE);
        if !watch.has_changed() {
            return;
        }
    }
}

/// Puts the config as it is now in force, or says why not; the files to be watched from now on.
fn reload(gateway: &Gateway, file: &Path) -> Vec<PathBuf> {
    let reading = gateway::config::read_watched(file);
    match reading.config {
        Ok(config) => put(gateway, &Config { launcher: Some(worker::launcher()), ..config }),
        Err(mistakes) => {
            gateway.not_reloaded();
            refuse(&mistakes);
        }
    }
    reading.files
}

fn put(gateway: &Gateway, config: &Config) {
    match gateway.reload(config) {
        Ok(waiting) => {
            for field in waiting {
                tracing::warn!(field, "changed, but takes effect after a restart only");
            }
            tracing::info!(digest = config.source.digest(), "the config has changed and is in force");
        }
        Err(BuildError::Config(mistakes)) => refuse(&mistakes),
        Err(error) => tracing::error!(%error, "the config can't be put in force, the one before stays"),
    }
}

fn refuse(mistakes: &[Mistake]) {
    for mistake in mistakes {
        tracing::error!(%mistake, "mistake in the config");
    }
    tracing::error!(mistakes = mistakes.len(), "the config has mistakes, the one before it stays in force");
}
