//! What the process is told by signals: SIGTERM by a service manager, SIGINT from a keyboard, SIGHUP by
//! whoever changed the config.

use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signals that end a process; from here on neither kills it.
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

/// Which of them it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Terminate,
    Interrupt,
}

impl Signals {
    pub(crate) fn listen() -> std::io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    /// Waits for one of them.
    pub(crate) async fn wait(&mut self) -> End {
        tokio::select! {
            _ = self.terminate.recv() => End::Terminate,
            _ = self.interrupt.recv() => End::Interrupt,
        }
    }
}

/// SIGHUP; from here on it does not kill the process.
pub(crate) fn hangups() -> std::io::Result<Signal> {
    signal(SignalKind::hangup())
}
