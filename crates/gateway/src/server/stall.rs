//! A clock that runs only while somebody keeps the gateway waiting: nothing is set where nobody does.

use std::pin::Pin;
use std::task::Context;
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep};

/// How long something has stood still.
#[derive(Default)]
pub(crate) struct Stall {
    now: Option<(Instant, Pin<Box<Sleep>>)>,
    /// In all, up to the last time that it went on.
    before: Duration,
}

impl Stall {
    /// Whether it has stood still for so long since the last [`Stall::end`]; wakes the task when it has.
    pub(crate) fn is_over(&mut self, limit: Duration, context: &mut Context<'_>) -> bool {
        let (_, sleep) = self.now.get_or_insert_with(|| (Instant::now(), Box::pin(sleep(limit))));
        sleep.as_mut().poll(context).is_ready()
    }

    /// The same where it may stand still for so long at a time, and where that and a second for each `rate`
    /// bytes are all that it may. Who sends a byte now and then does not stand still for long, and yet for ever.
    pub(crate) fn is_over_for(
        &mut self,
        bytes: u64,
        rate: u64,
        limit: Duration,
        context: &mut Context<'_>,
    ) -> bool {
        let worth = bytes.checked_div(rate).map_or(Duration::MAX, Duration::from_secs);
        let left = limit.saturating_add(worth).saturating_sub(self.before);
        self.is_over(left.min(limit), context)
    }

    /// It goes on.
    pub(crate) fn end(&mut self) {
        if let Some((since, _)) = self.now.take() {
            self.before += since.elapsed();
        }
    }
}
