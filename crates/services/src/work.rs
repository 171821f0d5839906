//! What takes long of answering a call: it is done in the pool, and the caller pays.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use offload::{JobRequest, OffloadError, OffloadPool, QuotaKey, SHORT_TEXT};

use crate::call::{Budget, Call, Made, Outcome};
use crate::client::OVER;
use crate::error::CallError;
use crate::problem::{AnswerTimeout, Overloaded, Problem, Unfinished};

/// Makes an answer movable: it is in the pool for a while where it asks for that by [`offload::leave`]. Given are who pays,
/// and the budget that the answer's calls are made by.
///
/// # Errors
/// [`AnswerTimeout`] when it can't be done by the budget's deadline. When the pool has too much to do, [`Overloaded`] where no
/// service was asked, and else [`Unfinished`].
pub fn movable<T: Send + 'static>(
    pool: &OffloadPool,
    kind: &'static str,
    payer: QuotaKey,
    budget: &Arc<Budget>,
    answer: impl Future<Output = T> + Send + 'static,
) -> impl Future<Output = Result<T, Box<dyn Problem>>> + Send + 'static {
    let movable = pool.movable(kind, payer.for_answers(), budget.deadline, answer);
    let budget = Arc::clone(budget);
    async move {
        movable.await.map_err(|error| match unfinished(error) {
            CallError::Limit(_) => AnswerTimeout.into(),
            _ if !budget.see_made(has_sent) => Overloaded.into(),
            error => error.into(),
        })
    }
}

/// Whether anything of these calls has left the gateway.
fn has_sent(made: &[Made]) -> bool {
    made.iter().any(|made| !matches!(made.outcome, Outcome::NotSent))
}

/// The error of a call whose answer the pool has not worked on.
pub(crate) fn unfinished(error: OffloadError) -> CallError {
    match error {
        OffloadError::DeadlineExceeded => OVER,
        // Who waits for quota waits until the deadline at most: what is exceeded is the number of jobs that wait. A panic is
        // in the log, and ends this answer alone.
        OffloadError::QuotaExceeded { .. } | OffloadError::QueueFull | OffloadError::Panicked => {
            Unfinished.into()
        }
    }
}

/// Does work on a text of so many bytes: at once where it is short, and else as a job. A caller that has no quota left
/// waits until it has some.
///
/// # Errors
/// [`CallError::Limit`] with `limit-deadline`, when it can't be done in time, and [`CallError::Unfinished`] when the pool has
/// too much to do.
pub async fn work_on_text<T: Send + 'static>(
    pool: &OffloadPool,
    kind: &'static str,
    call: &Call,
    bytes: usize,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, CallError> {
    if bytes <= SHORT_TEXT {
        return Ok(work());
    }
    // Half a gigabyte a second: what is not taken is given back.
    let estimate = Duration::from_nanos(2 * bytes as u64);
    let payer = call.quota_key().for_answers();
    let request = JobRequest { kind, payer, estimate, deadline: call.budget.deadline };
    pool.run_paced(request, move |_| work()).await.map_err(unfinished)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Instant;

    use futures_util::FutureExt;
    use http::Method;
    use offload::OffloadConfig;

    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    #[tokio::test]
    async fn a_long_answer_that_is_not_composed_is_told_by_whether_services_were_asked() {
        let pool = OffloadPool::start(OffloadConfig { threads: 1, ..OffloadConfig::default() }).unwrap();
        let payer = QuotaKey::new(&"payer");
        let (release, wait) = mpsc::channel::<()>();
        let deadline = Instant::now() + HOUR;
        let request =
            || JobRequest { kind: "test", payer: payer.for_answers(), estimate: Duration::ZERO, deadline };
        let mut queued = vec![pool.run(request(), move |_| wait.recv().is_ok()).boxed()];
        while queued.last_mut().unwrap().now_or_never().is_none() {
            queued.push(pool.run(request(), |_| true).boxed());
        }
        let budget = |time| Arc::new(Budget::new(time, 1, 1, 1));
        let (fresh, used, late) = (budget(HOUR), budget(HOUR), budget(Duration::ZERO));
        let number = used.begin("shop".into(), Method::POST, "/".to_owned());
        used.note(number, Outcome::NoAnswer);
        fresh.refuse("shop".into(), Method::POST, "/".to_owned());
        // Another caller is not refused, and late.
        let other = QuotaKey::new(&"other");
        for (payer, budget, told) in [
            (payer, &fresh, ("gateway-overloaded", 503, true)),
            (payer, &used, ("answer-unfinished", 503, false)),
            (other, &late, ("answer-timeout", 503, false)),
        ] {
            let problem = movable(&pool, "test", payer, budget, offload::leave()).await.unwrap_err();
            let may_come_back = problem.headers().contains_key("retry-after");
            assert_eq!((problem.code(), problem.status().as_u16(), may_come_back), told);
        }
        drop(release);
    }
}
