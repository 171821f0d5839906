//! A root context with its timer.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use offload::polls::{PollSite, watch_polls};
use tokio::task::AbortHandle;

use super::PluginSpec;
use super::events::{ContextEvent, InstanceHandle};
use crate::sync::lock;

/// A root context: a filter in an instance.
pub(crate) struct RootContext {
    pub(crate) id: u32,
    pub(crate) spec: Arc<PluginSpec>,
    /// Milliseconds between ticks; 0 for none.
    pub(crate) period: AtomicU64,
    timer: Mutex<Option<AbortHandle>>,
}

impl RootContext {
    pub(crate) fn new(id: u32, spec: &Arc<PluginSpec>) -> Self {
        Self { id, spec: Arc::clone(spec), period: AtomicU64::new(0), timer: Mutex::default() }
    }

    /// Starts the timer, if it has a period and the plugin has started. The timer that ran before ends.
    pub(crate) fn start_timer(&self, instance: &InstanceHandle) {
        let mut timer = lock(&self.timer);
        timer.take().iter().for_each(AbortHandle::abort);
        let period = self.period.load(Relaxed);
        let runtime = tokio::runtime::Handle::try_current();
        if let (Ok(runtime), true, true) = (runtime, period > 0, self.spec.is_started.load(Relaxed)) {
            let ticking = watch_polls(PollSite::Filters, send_ticks(instance.clone(), self.id, period));
            *timer = Some(runtime.spawn(ticking).abort_handle());
        }
    }
}

impl Drop for RootContext {
    fn drop(&mut self) {
        lock(&self.timer).take().iter().for_each(AbortHandle::abort);
    }
}

/// Sends the ticks of one root context. Ticks that are due while one is in flight are skipped.
async fn send_ticks(instance: InstanceHandle, root: u32, period: u64) {
    let period = Duration::from_millis(period);
    let mut interval = tokio::time::interval_at(tokio::time::Instant::now() + period, period);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    loop {
        interval.tick().await;
        if !instance.deliver(ContextEvent::TimerTick(root)).await {
            return;
        }
    }
}
