//! Long work that runs wait for, done in the offload pool.

use std::time::{Duration, Instant};

use offload::{CpuClock, JobRequest, OffloadError, OffloadPool, QuotaKey};

/// Does work in the pool, even if the payer's quota is used up, and charges for it afterwards. For work that
/// other clients wait for as well: a run must not keep state locked until its own client has quota again.
///
/// # Errors
/// If too many jobs wait, the deadline passes, or the work panics.
pub(crate) async fn at_once<T: Send + 'static>(
    pool: &OffloadPool,
    kind: &'static str,
    payer: QuotaKey,
    deadline: Instant,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, OffloadError> {
    let request = JobRequest { kind, payer: payer.exempt(), estimate: Duration::ZERO, deadline };
    let job = pool.run_paced(request, move |_| {
        let clock = CpuClock::now();
        let done = work();
        (done, clock.elapsed())
    });
    let (done, cpu) = job.await?;
    pool.quota().charge(payer, cpu, Instant::now());
    Ok(done)
}

#[cfg(test)]
mod tests {
    use offload::OffloadConfig;

    use super::*;

    #[tokio::test]
    async fn work_that_others_wait_for_is_charged_but_not_delayed() {
        let quota = Duration::from_micros(1);
        let pool = OffloadPool::start(OffloadConfig { threads: 1, quota }).unwrap();
        let (payer, deadline) = (QuotaKey::new(&"payer"), Instant::now() + Duration::from_secs(3600));
        for _ in 0..3 {
            let serving = std::thread::current().id();
            let there = at_once(&pool, "test", payer, deadline, || std::thread::current().id()).await;
            assert_ne!(there.unwrap(), serving);
            assert!(pool.quota().retry_after(payer, Instant::now()).is_some(), "the quota is used up");
        }
    }
}
