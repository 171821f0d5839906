//! Waiting with a deadline for futures that are usually ready at once.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Instant;

use tokio::task::unconstrained;
use tokio::time::sleep_until;

/// Waits for a future until the deadline; returns `None` if the deadline passes first. The future is not
/// moved, and a timer is created only if the first poll is pending; tokio's `timeout_at` takes the future by
/// value and always creates a timer.
pub async fn timeout_at<F: Future + ?Sized>(moment: Instant, mut future: Pin<&mut F>) -> Option<F::Output> {
    let mut timer = pin!(None);
    poll_fn(|context| {
        if let Poll::Ready(output) = future.as_mut().poll(context) {
            return Poll::Ready(Some(output));
        }
        if timer.is_none() {
            // If the future has used up tokio's cooperative budget, the timer must still fire.
            timer.set(Some(unconstrained(sleep_until(moment.into()))));
        }
        match timer.as_mut().as_pin_mut() {
            Some(timer) => timer.poll(context).map(|()| None),
            None => Poll::Pending,
        }
    })
    .await
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn ready_futures_win_and_pending_futures_end_at_the_deadline() {
        let now = tokio::time::Instant::now();
        assert_eq!(timeout_at(now.into_std(), pin!(ready(7))).await, Some(7));
        let moment = now + Duration::from_secs(5);
        assert_eq!(timeout_at(moment.into_std(), pin!(pending::<()>())).await, None);
        assert_eq!(tokio::time::Instant::now(), moment);
    }

    #[tokio::test]
    async fn a_future_that_yields_continues_after_other_tasks() {
        let order = std::cell::RefCell::new(Vec::new());
        let gives_way = async {
            order.borrow_mut().push("begins");
            tokio::task::yield_now().await;
            order.borrow_mut().push("goes on");
        };
        let other = async { order.borrow_mut().push("the other") };
        let gives_way = pin!(gives_way);
        tokio::join!(timeout_at(Instant::now() + Duration::from_secs(5), gives_way), other);
        assert_eq!(*order.borrow(), ["begins", "the other", "goes on"]);
    }

    #[tokio::test]
    async fn the_deadline_applies_to_a_future_that_uses_up_its_coop_budget() {
        let greedy = async {
            loop {
                tokio::task::consume_budget().await;
            }
        };
        assert_eq!(timeout_at(Instant::now() + Duration::from_millis(5), pin!(greedy)).await, None::<()>);
    }
}
