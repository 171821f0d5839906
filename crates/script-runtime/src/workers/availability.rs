//! Notifications that a worker has become available.

use std::sync::Arc;

use tokio::sync::watch;

/// Notifies the tasks that wait for a worker to become available.
#[derive(Clone, Debug, Default)]
pub(super) struct AvailabilityNotifier(Arc<watch::Sender<()>>);

/// A subscription to such notifications.
pub(super) struct AvailabilityListener(watch::Receiver<()>);

impl AvailabilityNotifier {
    pub(super) fn notify(&self) {
        self.0.send_replace(());
    }

    /// Subscribes to future notifications.
    pub(super) fn subscribe(&self) -> AvailabilityListener {
        AvailabilityListener(self.0.subscribe())
    }
}

impl AvailabilityListener {
    /// Waits for the next notification; never returns once the sender is dropped.
    pub(super) async fn notified(&mut self) {
        if self.0.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
