//! Clocks that run only while somebody keeps the gateway waiting: nothing is set where nobody does.

use std::pin::Pin;
use std::task::Context;
use std::time::Duration;

use tokio::task::coop::has_budget_remaining;
use tokio::time::{Instant, Sleep, sleep, sleep_until};

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

/// A wait that is usually short, on a connection that waits again and again: its clock is set once, and set
/// again only when it rings too early.
#[derive(Default)]
pub(crate) struct Patience {
    since: Option<Instant>,
    clock: Option<Pin<Box<Sleep>>>,
    /// Whether the clock wakes the task when it rings.
    is_set: bool,
    /// Whether the clock has the time since when what is waited for has begun.
    has_begun: bool,
}

impl Patience {
    /// The wait begins when it is first asked about.
    pub(crate) fn begin(&mut self) {
        (self.since, self.has_begun) = (None, false);
    }

    /// Whether it has lasted for so long; wakes the task when it has, which is always the same one.
    pub(crate) fn is_over(&mut self, limit: Duration, context: &mut Context<'_>) -> bool {
        let end = *self.since.get_or_insert_with(Instant::now) + limit;
        let clock = self.clock.get_or_insert_with(|| Box::pin(sleep_until(end)));
        if clock.deadline() > end {
            clock.as_mut().reset(end);
            self.is_set = false;
        }
        // To ask a clock that is set costs as much as to set it.
        if self.is_set && !clock.is_elapsed() {
            return false;
        }
        while clock.as_mut().poll(context).is_ready() {
            if clock.deadline() >= end {
                return true;
            }
            clock.as_mut().reset(end);
        }
        // A task that has had its turn is told to wait by every clock, set or not.
        self.is_set = has_budget_remaining();
        false
    }

    /// The same from the moment on that this is asked for the first time.
    pub(crate) fn is_over_in(&mut self, limit: Duration, context: &mut Context<'_>) -> bool {
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
    async fn a_clock_rings_that_was_first_asked_by_a_task_whose_turn_was_over() {
        const LIMIT: Duration = Duration::from_secs(60);
        let (mut patience, mut is_first, begun) = (Patience::default(), true, Instant::now());
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
