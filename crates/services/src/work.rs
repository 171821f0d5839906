//! What takes long of answering a call: it is done in the pool, and the caller pays.

use std::future::Future;
use std::time::{Duration, Instant};

use offload::{JobRequest, OffloadError, OffloadPool, QuotaKey, SHORT_TEXT};

use crate::call::Call;
use crate::client::OVER;
use crate::error::CallError;
use crate::problem::Unfinished;

/// Makes an answer movable: it is in the pool for a while where it asks for that by [`offload::leave`]. Given are who pays,
/// and until when it is wanted.
///
/// # Errors
/// As [`work_on_text`].
pub fn movable<T: Send + 'static>(
    pool: &OffloadPool,
    kind: &'static str,
    (payer, deadline): (QuotaKey, Instant),
    answer: impl Future<Output = T> + Send + 'static,
) -> impl Future<Output = Result<T, CallError>> + Send + 'static {
    let movable = pool.movable(kind, payer.for_answers(), deadline, answer);
    async move { movable.await.map_err(unfinished) }
}

/// The error of a call whose answer the pool has not worked on.
pub(crate) fn unfinished(error: OffloadError) -> CallError {
    match error {
        // Who waits for quota waits until the deadline at most.
        OffloadError::DeadlineExceeded | OffloadError::QuotaExceeded { .. } => OVER,
        // A panic is in the log, and ends this answer alone.
        OffloadError::QueueFull | OffloadError::Panicked => Unfinished.into(),
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
