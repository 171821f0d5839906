//! CPU work for responses, done in the offload pool and charged to the caller.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use offload::{JobRequest, OffloadError, OffloadPool, QuotaKey, SHORT_TEXT};

use super::{
    CallError, DEADLINE_EXCEEDED, RequestBudget, RequestCall, UpstreamCallOutcome, UpstreamCallRecord,
};
use crate::problem::{AnswerTimeout, GatewayOverloaded, ToProblem, UnfinishedResponse};

/// Makes the computation of a response movable: it runs in the pool for a while if it requests that by
/// [`offload::move_to_pool`]. The payer is charged for the work; `budget` is the budget of the calls made for
/// the response.
///
/// # Errors
/// [`AnswerTimeout`] when the budget's deadline cannot be met. If the pool is overloaded,
/// [`GatewayOverloaded`] if no call was sent to a service, otherwise [`UnfinishedResponse`].
pub fn make_movable<T: Send + 'static>(
    pool: &OffloadPool,
    kind: &'static str,
    payer: QuotaKey,
    budget: &Arc<RequestBudget>,
    answer: impl Future<Output = T> + Send + 'static,
) -> impl Future<Output = Result<T, Box<dyn ToProblem>>> + Send + 'static {
    let movable = pool.make_movable(kind, payer.for_responses(), budget.deadline, answer);
    let budget = Arc::clone(budget);
    async move { movable.await.map_err(|error| composition_error(error, &budget)) }
}

/// Returns the error of a response that the pool did not compose. `budget` is the budget of the calls made
/// for it; see [`make_movable`].
#[must_use]
pub fn composition_error(error: OffloadError, budget: &RequestBudget) -> Box<dyn ToProblem> {
    match offload_call_error(error) {
        CallError::Limit(_) => AnswerTimeout.into(),
        _ if !budget.inspect_call_records(has_sent_call) => GatewayOverloaded.into(),
        error => error.into(),
    }
}

/// Whether any of these calls has left the gateway.
fn has_sent_call(records: &[UpstreamCallRecord]) -> bool {
    records.iter().any(|record| !matches!(record.outcome, UpstreamCallOutcome::NotSent))
}

/// Returns the error of a call whose response the pool did not process.
pub(crate) fn offload_call_error(error: OffloadError) -> CallError {
    match error {
        OffloadError::DeadlineExceeded => DEADLINE_EXCEEDED,
        // Jobs wait for quota until their deadline, so `QuotaExceeded` is about the number of waiting jobs. A
        // panic is in the log and ends this response only.
        OffloadError::QuotaExceeded { .. } | OffloadError::QueueFull | OffloadError::Panicked => {
            UnfinishedResponse.into()
        }
    }
}

/// Does work on a text of `bytes` bytes: inline for short texts, otherwise as a job in the pool. A caller
/// whose quota is used up waits for more.
///
/// # Errors
/// [`CallError::Limit`] with `limit-deadline` when the deadline cannot be met, and [`CallError::Unfinished`]
/// if the pool is overloaded.
pub async fn process_text<T: Send + 'static>(
    pool: &OffloadPool,
    kind: &'static str,
    call: &RequestCall,
    bytes: usize,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, CallError> {
    if bytes <= SHORT_TEXT {
        return Ok(work());
    }
    // Estimated at half a gigabyte per second; unused quota is refunded.
    let estimate = Duration::from_nanos(2 * bytes as u64);
    let payer = call.quota_key().for_responses();
    let request = JobRequest { kind, payer, estimate, deadline: call.budget.deadline };
    pool.run_paced(request, move |_| work()).await.map_err(offload_call_error)
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
    async fn the_error_of_an_unfinished_response_depends_on_sent_calls() {
        let pool = OffloadPool::start(OffloadConfig { threads: 1, ..OffloadConfig::default() }).unwrap();
        let payer = QuotaKey::new(&"payer");
        let (release, wait) = mpsc::channel::<()>();
        let deadline = Instant::now() + HOUR;
        let request =
            || JobRequest { kind: "test", payer: payer.for_responses(), estimate: Duration::ZERO, deadline };
        let mut queued = vec![pool.run(request(), move |_| wait.recv().is_ok()).boxed()];
        while queued.last_mut().unwrap().now_or_never().is_none() {
            queued.push(pool.run(request(), |_| true).boxed());
        }
        let budget = |time| Arc::new(RequestBudget::new(time, 1, 1, 1));
        let (fresh, used, request_budget) = (budget(HOUR), budget(HOUR), budget(Duration::ZERO));
        let number = used.begin_call("shop".into(), Method::POST, "/".to_owned());
        used.set_outcome(number, UpstreamCallOutcome::NoAnswer);
        fresh.refuse_call("shop".into(), Method::POST, "/".to_owned());
        // The other caller's job is not rejected, but late.
        let other = QuotaKey::new(&"other");
        for (payer, budget, told) in [
            (payer, &fresh, ("gateway-overloaded", 503, true)),
            (payer, &used, ("answer-unfinished", 503, false)),
            (other, &request_budget, ("answer-timeout", 503, false)),
        ] {
            let problem =
                make_movable(&pool, "test", payer, budget, offload::move_to_pool()).await.unwrap_err();
            let may_come_back = problem.headers().contains_key("retry-after");
            assert_eq!((problem.code(), problem.status().as_u16(), may_come_back), told);
        }
        drop(release);
    }
}
