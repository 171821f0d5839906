//! Timers that are only set while the gateway waits for a client.

use std::pin::Pin;
use std::task::Context;
use std::time::Duration;

use tokio::task::coop::has_budget_remaining;
use tokio::time::{Instant, Sleep, sleep, sleep_until};

/// A timer for stalled progress.
#[derive(Default)]
pub(crate) struct StallTimer {
    current_stall: Option<(Instant, Pin<Box<Sleep>>)>,
    /// The total time of earlier stalls.
    earlier_stalls: Duration,
}

impl StallTimer {
    /// Whether the stall has reached the limit since the last [`StallTimer::end_stall`]. Otherwise the task
    /// is woken when it has.
    pub(crate) fn is_over(&mut self, limit: Duration, context: &mut Context<'_>) -> bool {
        let (_, sleep) = self.current_stall.get_or_insert_with(|| (Instant::now(), Box::pin(sleep(limit))));
        sleep.as_mut().poll(context).is_ready()
    }

    /// Like [`StallTimer::is_over`], with an additional limit on the total of all stalls: `limit` and a
    /// second for each `rate` bytes. This catches clients that send a byte now and then, whose single stalls
    /// are short.
    pub(crate) fn is_over_at_rate(
        &mut self,
        bytes: u64,
        rate: u64,
        limit: Duration,
        context: &mut Context<'_>,
    ) -> bool {
        let worth = bytes.checked_div(rate).map_or(Duration::MAX, Duration::from_secs);
        let left = limit.saturating_add(worth).saturating_sub(self.earlier_stalls);
        self.is_over(left.min(limit), context)
    }

    /// Ends the stall, since there was progress.
    pub(crate) fn end_stall(&mut self) {
        if let Some((since, _)) = self.current_stall.take() {
            self.earlier_stalls += since.elapsed();
        }
    }
}

/// A timer for a connection that waits often and usually briefly. The underlying timer is set once, and set
/// again only if it fires too early.
#[derive(Default)]
pub(crate) struct CoarseStallTimer {
    since: Option<Instant>,
    clock: Option<Pin<Box<Sleep>>>,
    /// Whether the timer is registered to wake the task.
    is_set: bool,
    /// Whether `since` is the start of the wait that [`CoarseStallTimer::is_over_since_call`] measures.
    has_begun: bool,
}

impl CoarseStallTimer {
    /// Resets the timer. The wait starts at the next poll.
    pub(crate) fn restart(&mut self) {
        (self.since, self.has_begun) = (None, false);
    }

    /// Whether the wait has reached the limit. Otherwise the task, always the same one, is woken when it has.
    pub(crate) fn is_over(&mut self, limit: Duration, context: &mut Context<'_>) -> bool {
        let end = *self.since.get_or_insert_with(Instant::now) + limit;
        let clock = self.clock.get_or_insert_with(|| Box::pin(sleep_until(end)));
        if clock.deadline() > end {
            clock.as_mut().reset(end);
            self.is_set = false;
        }
        // Polling a timer that is registered costs as much as registering it.
        if self.is_set && !clock.is_elapsed() {
            return false;
        }
        while clock.as_mut().poll(context).is_ready() {
            if clock.deadline() >= end {
                return true;
            }
            clock.as_mut().reset(end);
        }
        // For a task without a remaining budget, every timer returns pending without being registered.
        self.is_set = has_budget_remaining();
        false
    }

    /// Like [`CoarseStallTimer::is_over`], but the wait starts with the first call of this method.
    pub(crate) fn is_over_since_call(&mut self, limit: Duration, context: &mut Context<'_>) -> bool {
        if !self.has_begun {
            (self.since, self.has_begun) = (None, true);
        }
        self.is_over(limit, context)
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::pin::pin;
    use std::task::Poll;

    use tokio::task::coop::consume_budget;
    use tokio::time::timeout;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_timer_first_polled_without_budget_still_fires() {
        const LIMIT: Duration = Duration::from_secs(60);
        let (mut patience, mut is_first, begun) = (CoarseStallTimer::default(), true, Instant::now());
        let over = poll_fn(|context| {
            while is_first && has_budget_remaining() {
                let _ = pin!(consume_budget()).poll(context);
            }
            is_first = false;
            if patience.is_over(LIMIT, context) { Poll::Ready(()) } else { Poll::Pending }
        });
        timeout(2 * LIMIT, over).await.unwrap();
        assert_eq!(begun.elapsed(), LIMIT);
    }
}
