//! Waiting until a moment, for what is mostly there at once.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Instant;

use tokio::task::unconstrained;
use tokio::time::sleep_until;

/// Waits for a future until the moment; `None` if it was over first. The future stays where it is, and a timer is made
/// only for one that is not done when it is first looked at: tokio's `timeout_at` takes it over and makes one for all.
pub async fn by<F: Future + ?Sized>(moment: Instant, mut future: Pin<&mut F>) -> Option<F::Output> {
    let mut timer = pin!(None);
    poll_fn(|context| {
        if let Poll::Ready(output) = future.as_mut().poll(context) {
            return Poll::Ready(Some(output));
        }
        if timer.is_none() {
            // A future that has done much already is told to wait by its runtime, and must not wait for ever.
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
    async fn what_is_there_counts_whatever_the_clock_says_and_what_never_comes_is_given_up() {
        let now = tokio::time::Instant::now();
        assert_eq!(by(now.into_std(), pin!(ready(7))).await, Some(7));
        let moment = now + Duration::from_secs(5);
        assert_eq!(by(moment.into_std(), pin!(pending::<()>())).await, None);
        assert_eq!(tokio::time::Instant::now(), moment);
    }

    #[tokio::test]
    async fn a_future_that_gives_way_while_it_is_waited_for_goes_on_behind_the_others() {
        let order = std::cell::RefCell::new(Vec::new());
        let gives_way = async {
            order.borrow_mut().push("begins");
            tokio::task::yield_now().await;
            order.borrow_mut().push("goes on");
        };
        let other = async { order.borrow_mut().push("the other") };
        let gives_way = pin!(gives_way);
        tokio::join!(by(Instant::now() + Duration::from_secs(5), gives_way), other);
        assert_eq!(*order.borrow(), ["begins", "the other", "goes on"]);
    }

    #[tokio::test]
    async fn a_future_that_uses_up_its_turn_each_time_is_given_up_all_the_same() {
        let greedy = async {
            loop {
                tokio::task::consume_budget().await;
            }
        };
        assert_eq!(by(Instant::now() + Duration::from_millis(5), pin!(greedy)).await, None::<()>);
    }
}
