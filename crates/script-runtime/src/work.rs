//! Work of scripts outside of their requests' tasks: long work in the offload pool, and tasks of their own.

use std::time::{Duration, Instant};

use offload::polls::{PollSite, watch_polls};
use offload::{CpuClock, JobRequest, OffloadError, OffloadPool, QuotaKey};
use tokio::task::JoinHandle;

/// Spawns a task whose long polls count as those of scripts.
pub(crate) fn spawn<T: Send + 'static>(task: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
    tokio::spawn(watch_polls(PollSite::Script, task))
}

/// Does work in the pool, even if the payer's quota is used up, and charges for it afterwards. For work that
/// other clients wait for as well: a run must not keep state locked until its own client has quota again.
///
/// # Errors
/// If too many jobs wait, the deadline passes, or the work panics.
pub(crate) async fn run_then_charge<T: Send + 'static>(
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
    use offload::polls::{LONG_POLL, long_polls};

    use super::*;

    #[tokio::test]
    async fn long_polls_of_tasks_are_counted() {
        let count =
            || long_polls().into_iter().find(|(site, _)| *site == "script").map_or(0, |(_, count)| count);
        let before = count();
        let task = spawn(async {
            let clock = CpuClock::now();
            while clock.elapsed() < 2 * LONG_POLL {}
        });
        task.await.unwrap();
        assert!(count() > before);
    }

    #[tokio::test]
    async fn work_that_others_wait_for_is_charged_but_not_delayed() {
        let quota = Duration::from_micros(1);
        let pool = OffloadPool::start(OffloadConfig { threads: 1, quota }).unwrap();
        let (payer, deadline) = (QuotaKey::new(&"payer"), Instant::now() + Duration::from_secs(3600));
        for _ in 0..3 {
            let serving = std::thread::current().id();
            let there = run_then_charge(&pool, "test", payer, deadline, || std::thread::current().id()).await;
            assert_ne!(there.unwrap(), serving);
            assert!(pool.quota().retry_after(payer, Instant::now()).is_some(), "the quota is used up");
        }
    }
}
