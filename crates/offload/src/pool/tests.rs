//! The pool: limits, fairness, charges, cancellation, and panics.

use std::sync::mpsc;

use futures_util::FutureExt;
use futures_util::future::{join_all, select_all};

use super::queue::{MAX_QUEUED, MAX_QUEUED_LONG, MAX_QUEUED_PER_PAYER};
use super::*;
use crate::quota::QuotaKey;

const HOUR: Duration = Duration::from_secs(3600);

fn start_pool(threads: usize, quota: Duration) -> OffloadPool {
    OffloadPool::start(OffloadConfig { threads, quota }).unwrap()
}

fn job_request(payer: u64) -> JobRequest {
    let estimate = Duration::from_millis(1);
    JobRequest { kind: "test", payer: QuotaKey::new(&payer), estimate, deadline: Instant::now() + HOUR }
}

/// Starts a job that occupies a thread until the sender is dropped.
async fn occupy_thread(pool: &OffloadPool, payer: u64) -> (mpsc::Sender<()>, tokio::task::JoinHandle<()>) {
    occupy_thread_with(pool, payer, JobClass::Short).await
}

/// Like `block`, with a job of this class.
async fn occupy_thread_with(
    pool: &OffloadPool,
    payer: u64,
    class: JobClass,
) -> (mpsc::Sender<()>, tokio::task::JoinHandle<()>) {
    let (go, gone) = mpsc::channel::<()>();
    let (begins, begun) = oneshot::channel();
    let pool = pool.clone();
    let blocked = tokio::spawn(async move {
        let job = move |_: &JobContext| begins.send(()).is_ok() && gone.recv().is_err();
        assert_eq!(pool.run_charged(job_request(payer), class, Instant::now(), job).await, Ok(true));
    });
    begun.await.unwrap();
    (go, blocked)
}

#[tokio::test]
async fn contains_a_panic_in_its_job() {
    let pool = start_pool(1, HOUR);
    assert_eq!(
        pool.run(job_request(1), |_| -> u8 { panic!("on purpose") }).await,
        Err(OffloadError::Panicked)
    );
    assert_eq!(pool.run(job_request(1), |_| 7).await, Ok(7));
    assert_eq!(pool.stats().rejected["panic"], 1);
}

#[tokio::test]
async fn runs_jobs_with_less_priority_than_their_callers() {
    let pool = start_pool(1, HOUR);
    let nice = || rustix::process::getpriority_process(Some(rustix::thread::gettid())).unwrap();
    assert!(pool.run(job_request(1), move |_| nice()).await.unwrap() > nice());
}

#[tokio::test]
async fn bounds_the_queue_of_one_payer_and_keeps_room_for_others() {
    let pool = start_pool(1, HOUR);
    let (go, blocked) = occupy_thread(&pool, 0).await;
    let many: Vec<_> = (0..=MAX_QUEUED_PER_PAYER).map(|_| pool.run(job_request(1), |_| ()).boxed()).collect();
    let (full, at, others) = select_all(many).await;
    assert!(matches!(full, Err(OffloadError::QuotaExceeded { .. })), "{full:?}");
    assert_eq!(at, MAX_QUEUED_PER_PAYER);
    let other = pool.run(job_request(2), |_| ());
    drop(go);
    assert_eq!(other.await, Ok(()));
    assert!(join_all(others).await.iter().all(Result::is_ok));
    blocked.await.unwrap();
    assert_eq!(pool.stats().rejected["quota"], 1);
}

#[tokio::test]
async fn drops_refused_and_displaced_jobs_outside_of_the_lock() {
    /// Like a request whose other call waits in the pool, it locks the queue when it is dropped.
    struct LockingJob(OffloadPool, mpsc::Sender<bool>);
    impl Drop for LockingJob {
        fn drop(&mut self) {
            let is_free = self.0.0.state.try_lock().is_ok();
            self.1.send(is_free).unwrap();
        }
    }
    let pool = start_pool(1, HOUR);
    let (_go, _blocked) = occupy_thread(&pool, 0).await;
    let (dropped, drops) = mpsc::channel();
    let run = |payer| {
        let locks = LockingJob(pool.clone(), dropped.clone());
        pool.run(job_request(payer), move |_| drop(locks)).boxed()
    };
    // One job too many for their payer, and then as many as there is room for, one of which displaces
    // another.
    let payers = (0..=MAX_QUEUED_PER_PAYER).map(|_| 1).chain(2..).take(MAX_QUEUED + 2);
    let many = join_all(payers.map(run)).now_or_never();
    assert!(many.is_none(), "most jobs wait");
    let first: Vec<bool> = drops.try_iter().collect();
    assert!(first.len() >= 2 && first.iter().all(|is_free| *is_free), "{first:?}");
}

#[tokio::test]
async fn bounds_the_queue_and_displaces_the_job_with_the_worst_rank() {
    let pool = start_pool(1, HOUR);
    let (go, blocked) = occupy_thread(&pool, 0).await;
    let greedy = (0..MAX_QUEUED_PER_PAYER).map(|_| 1);
    let payers = greedy.chain(2..).take(MAX_QUEUED);
    let mut waiting: Vec<_> = payers.map(|payer| pool.run(job_request(payer), |_| ()).boxed()).collect();
    assert!(waiting.iter_mut().all(|job| job.now_or_never().is_none()));
    let mut newcomer = pool.run(job_request(u64::MAX), |_| ()).boxed();
    assert!((&mut newcomer).now_or_never().is_none(), "the newcomer is queued");
    let (displaced, at, rest) = select_all(waiting).await;
    assert_eq!((displaced, at), (Err(OffloadError::QueueFull), MAX_QUEUED_PER_PAYER - 1));
    assert_eq!(pool.stats().queued, MAX_QUEUED);
    drop((go, rest));
    assert_eq!(newcomer.await, Ok(()));
    blocked.await.unwrap();
}

#[tokio::test]
async fn serves_first_jobs_before_the_tenth_of_another_payer() {
    let pool = start_pool(1, HOUR);
    let (go, blocked) = occupy_thread(&pool, 0).await;
    let (sender, order) = mpsc::channel();
    let job = |payer: u64| {
        let sender = sender.clone();
        pool.run(job_request(payer), move |_| sender.send(payer).unwrap()).boxed()
    };
    let mut jobs: Vec<_> = [1; 10].into_iter().chain([2, 3]).map(job).collect();
    assert!(jobs.iter_mut().all(|job| job.now_or_never().is_none()));
    drop(go);
    join_all(jobs).await;
    blocked.await.unwrap();
    let order: Vec<u64> = order.try_iter().collect();
    assert_eq!(order, [[1, 2, 3].as_slice(), &[1; 9]].concat());
}

#[tokio::test]
async fn gives_a_block_of_networks_sixteen_jobs_per_round() {
    let pool = start_pool(1, HOUR);
    let (go, blocked) = occupy_thread(&pool, 0).await;
    let (sender, order) = mpsc::channel();
    let job = |payer: u64| {
        let sender = sender.clone();
        let key = QuotaKey::new(&payer);
        let request = JobRequest {
            payer: if payer > 1 { key.with_block(&"block") } else { key },
            ..job_request(payer)
        };
        pool.run(request, move |_| sender.send(payer).unwrap()).boxed()
    };
    let mut jobs: Vec<_> = (2..42).chain([1]).map(job).collect();
    assert!(jobs.iter_mut().all(|job| job.now_or_never().is_none()));
    drop(go);
    join_all(jobs).await;
    blocked.await.unwrap();
    assert_eq!(order.try_iter().position(|payer| payer == 1), Some(16));
}

#[tokio::test]
async fn gives_one_payer_one_thread_at_a_time() {
    let pool = start_pool(2, HOUR);
    let (go, blocked) = occupy_thread(&pool, 1).await;
    let mut second = pool.run(job_request(1), |_| ()).boxed();
    assert!((&mut second).now_or_never().is_none());
    assert_eq!(pool.run(job_request(2), |_| ()).await, Ok(()), "the other thread is free");
    assert_eq!(pool.stats().queued, 1);
    drop(go);
    assert_eq!(second.await, Ok(()));
    blocked.await.unwrap();
}

#[tokio::test]
async fn long_jobs_leave_a_thread_to_others() {
    let pool = start_pool(2, HOUR);
    let (go, blocked) = occupy_thread_with(&pool, 1, JobClass::Long).await;
    let mut second = pool.run_long(job_request(2), |_| ()).boxed();
    assert!((&mut second).now_or_never().is_none());
    assert_eq!(pool.run(job_request(2), |_| ()).await, Ok(()), "it overtakes the long job of its payer, too");
    assert_eq!((pool.stats().queued, pool.stats().running), (1, 1), "a thread is idle");
    drop(go);
    assert_eq!(second.await, Ok(()));
    blocked.await.unwrap();
}

#[tokio::test]
async fn serves_first_long_jobs_before_the_tenth_of_another_payer_that_was_overtaken() {
    let pool = start_pool(2, HOUR);
    let (go, blocked) = occupy_thread_with(&pool, 0, JobClass::Long).await;
    let (sender, order) = mpsc::channel();
    let long = |payer: u64| {
        let sender = sender.clone();
        pool.run_long(job_request(payer), move |_| sender.send(payer).unwrap()).boxed()
    };
    let mut jobs: Vec<_> = [1; 10].into_iter().map(long).collect();
    assert!(jobs.iter_mut().all(|job| job.now_or_never().is_none()));
    // The short jobs of one payer are served in twenty rounds.
    assert!(join_all((0..20).map(|_| pool.run(job_request(2), |_| ()))).await.iter().all(Result::is_ok));
    let mut newcomer = long(3);
    assert!((&mut newcomer).now_or_never().is_none());
    drop(go);
    join_all(jobs.into_iter().chain([newcomer])).await;
    blocked.await.unwrap();
    assert_eq!(order.try_iter().position(|payer| payer == 3), Some(1));
}

#[tokio::test]
async fn serves_first_long_jobs_of_payers_with_short_ones_before_the_tenth_of_another_payer() {
    let pool = start_pool(2, HOUR);
    let (go, blocked) = occupy_thread_with(&pool, 0, JobClass::Long).await;
    let (sender, order) = mpsc::channel();
    let long = |payer: u64| {
        let sender = sender.clone();
        pool.run_long(job_request(payer), move |_| sender.send(payer).unwrap()).boxed()
    };
    let mut jobs: Vec<_> = [1; 10].into_iter().map(long).collect();
    assert!(jobs.iter_mut().all(|job| job.now_or_never().is_none()));
    // The short jobs of one payer are served in twenty rounds.
    assert!(join_all((0..20).map(|_| pool.run(job_request(2), |_| ()))).await.iter().all(Result::is_ok));
    let (go_short, blocked_short) = occupy_thread(&pool, 4).await;
    let mut short = pool.run(job_request(3), |_| ()).boxed();
    assert!((&mut short).now_or_never().is_none(), "both threads are occupied");
    let mut newcomer = long(3);
    assert!((&mut newcomer).now_or_never().is_none());
    drop(go);
    join_all(jobs.into_iter().chain([newcomer])).await;
    drop(go_short);
    assert_eq!(short.await, Ok(()));
    blocked.await.unwrap();
    blocked_short.await.unwrap();
    assert_eq!(order.try_iter().position(|payer| payer == 3), Some(1));
}

#[tokio::test]
async fn long_jobs_take_up_half_of_the_queue() {
    let pool = start_pool(1, HOUR);
    let (go, blocked) = occupy_thread(&pool, 0).await;
    let short = (1..=4).map(|payer| pool.run(job_request(payer), |_| ()).boxed());
    let long = (5..).map(|payer| pool.run_long(job_request(payer), |_| ()).boxed());
    let mut jobs: Vec<_> = short.chain(long.take(MAX_QUEUED_LONG)).collect();
    assert!(jobs.iter_mut().all(|job| job.now_or_never().is_none()));
    assert_eq!(pool.run_long(job_request(1000), |_| ()).await, Err(OffloadError::QueueFull));
    let mut other = pool.run(job_request(1001), |_| ()).boxed();
    assert!((&mut other).now_or_never().is_none(), "there is room for other jobs");
    drop(go);
    assert_eq!(other.await, Ok(()));
    assert!(join_all(jobs).await.iter().all(Result::is_ok));
    blocked.await.unwrap();
}

#[tokio::test]
async fn withdraws_a_job_whose_caller_is_gone() {
    let pool = start_pool(1, HOUR);
    let (go, blocked) = occupy_thread(&pool, 0).await;
    let kept = Arc::new(());
    let job = {
        let kept = Arc::clone(&kept);
        pool.run(job_request(1), move |_| drop(kept))
    };
    let mut job = job.boxed();
    assert!((&mut job).now_or_never().is_none());
    assert_eq!(pool.stats().queued, 1);
    drop(job);
    let stats = pool.stats();
    assert_eq!((stats.queued, stats.rejected["cancelled"]), (0, 1));
    assert_eq!(Arc::strong_count(&kept), 1, "the job is dropped");
    drop(go);
    blocked.await.unwrap();
}

#[tokio::test]
async fn cancels_a_running_job_whose_caller_is_gone() {
    let pool = start_pool(1, HOUR);
    let (begins, begun) = oneshot::channel();
    let (ends, ended) = oneshot::channel();
    let job = pool.run(job_request(1), move |job| {
        let _ = begins.send(());
        while !job.is_cancelled() {
            std::thread::yield_now();
        }
        let _ = ends.send(());
    });
    tokio::select! { _ = job => {}, _ = begun => {} }
    ended.await.unwrap();
}

#[tokio::test]
async fn cancels_a_job_at_its_deadline() {
    let pool = start_pool(1, HOUR);
    let (go, blocked) = occupy_thread(&pool, 0).await;
    let deadline = Instant::now() + Duration::from_millis(5);
    let late = pool.run(JobRequest { deadline, ..job_request(1) }, |_| ()).await;
    assert_eq!(late, Err(OffloadError::DeadlineExceeded));
    let stats = pool.stats();
    assert_eq!((stats.queued, stats.rejected["deadline"]), (0, 1));
    drop(go);
    blocked.await.unwrap();
}

#[tokio::test]
async fn does_not_start_a_job_after_its_deadline() {
    let pool = start_pool(1, HOUR);
    let request = JobRequest { deadline: Instant::now(), ..job_request(1) };
    let (sender, begun) = mpsc::channel();
    let ended = pool.run(request, move |_| sender.send(())).await;
    assert_eq!(ended, Err(OffloadError::DeadlineExceeded));
    assert!(begun.recv().is_err(), "the job was dropped without running");
}

#[tokio::test]
async fn charges_in_advance_and_corrects_afterwards() {
    let pool = start_pool(1, Duration::from_millis(100));
    let costly = JobRequest { estimate: Duration::from_millis(150), ..job_request(1) };
    let (go, blocked) = occupy_thread(&pool, 0).await;
    let mut first = pool.run(costly, |_| ()).boxed();
    assert!((&mut first).now_or_never().is_none());
    let refused = pool.run(job_request(1), |_| ()).await;
    assert!(matches!(refused, Err(OffloadError::QuotaExceeded { .. })), "{refused:?}");
    drop(go);
    assert_eq!(first.await, Ok(()));
    blocked.await.unwrap();
    assert_eq!(pool.run(job_request(1), |_| ()).await, Ok(()), "the first job used less than its estimate");
    let spin = |job: &JobContext| job.add_cpu(Duration::from_secs(1));
    assert_eq!(pool.run(job_request(2), spin).await, Ok(()));
    assert!(pool.quota().retry_after(QuotaKey::new(&2_u64), Instant::now()).is_some(), "more than estimated");
    let stats = pool.stats();
    assert_eq!(stats.kinds["test"].jobs, 4);
    assert!(stats.kinds["test"].cpu >= Duration::from_secs(1));
    assert_eq!(stats.rejected["quota"], 1);
}

#[tokio::test]
async fn paced_jobs_wait_for_quota() {
    const SECOND: Duration = Duration::from_secs(1);
    let pool = start_pool(1, 10 * SECOND);
    pool.quota().charge(job_request(1).payer, 10 * SECOND + SECOND / 50, Instant::now());
    let refused = pool.run(job_request(1), |_| ()).await;
    assert!(matches!(refused, Err(OffloadError::QuotaExceeded { .. })), "{refused:?}");
    assert_eq!(pool.run_paced(job_request(1), |_| ()).await, Ok(()), "the payer has quota again");
    pool.quota().charge(job_request(1).payer, 10 * SECOND, Instant::now());
    let request = JobRequest { deadline: Instant::now(), ..job_request(1) };
    assert_eq!(pool.run_paced(request, |_| ()).await, Err(OffloadError::DeadlineExceeded));
}
