//! Signals: SIGTERM from a service manager, SIGINT from a keyboard, SIGHUP after a change of the config.

use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signals that end a process. Once this exists, they no longer kill it.
pub(crate) struct TerminationSignals {
    terminate: Signal,
    interrupt: Signal,
}

/// The signal that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TerminationSignal {
    Terminate,
    Interrupt,
}

impl TerminationSignals {
    pub(crate) fn listen() -> std::io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    /// Waits for one of the signals.
    pub(crate) async fn wait(&mut self) -> TerminationSignal {
        tokio::select! {
            _ = self.terminate.recv() => TerminationSignal::Terminate,
            _ = self.interrupt.recv() => TerminationSignal::Interrupt,
        }
    }
}

/// Listens for SIGHUP, which then no longer kills the process.
pub(crate) fn hangups() -> std::io::Result<Signal> {
    signal(SignalKind::hangup())
}
