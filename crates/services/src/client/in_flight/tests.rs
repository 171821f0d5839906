//! Request coalescing: sharing of work, and cancellation.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use futures_util::future::join_all;
use offload::CpuClock;
use offload::polls::{LONG_POLL, long_polls};
use tokio::sync::{Notify, oneshot};

use super::*;

fn key(parts: &[&str]) -> WorkFingerprint {
    let mut key = WorkFingerprint::default();
    parts.iter().for_each(|part| key.add(part.as_bytes()));
    key
}

fn in_flight_count(flights: &InFlightMap<usize>) -> usize {
    flights.lock().by_key.len()
}

#[tokio::test]
async fn coalesces_equal_work_only() {
    let (flights, done) = (Arc::new(InFlightMap::default()), Arc::new(AtomicUsize::new(0)));
    let work = |parts: &[&str]| {
        let done = Arc::clone(&done);
        flights.join(&key(parts), PollSite::Request, || async move { done.fetch_add(1, SeqCst) })
    };
    let asked = [work(&["ab", "c"]), work(&["ab", "c"]), work(&["a", "bc"]), work(&["ab"])];
    assert_eq!(join_all(asked).await, [Some(0), Some(0), Some(1), Some(2)]);
    assert_eq!(in_flight_count(&flights), 0);
}

#[tokio::test]
async fn results_are_not_cached() {
    let flights = Arc::new(InFlightMap::default());
    for round in 0..3 {
        assert_eq!(flights.join(&key(&["a"]), PollSite::Request, || async move { round }).await, Some(round));
    }
}

#[tokio::test]
async fn work_continues_without_the_request_that_started_it() {
    let flights = Arc::new(InFlightMap::default());
    let (end, ended) = oneshot::channel();
    let first = flights.join(&key(&["a"]), PollSite::Request, || async { ended.await.unwrap_or(0) });
    let second = flights.join(&key(&["a"]), PollSite::Request, || async { 1 });
    drop(first);
    end.send(7).expect("the work goes on");
    assert_eq!(second.await, Some(7));
}

#[tokio::test]
async fn work_ends_with_its_last_waiting_request() {
    let (flights, gone) = (Arc::new(InFlightMap::default()), Arc::new(Notify::new()));
    struct DroppedFlag(Arc<Notify>);
    impl Drop for DroppedFlag {
        fn drop(&mut self) {
            self.0.notify_one();
        }
    }
    let told = DroppedFlag(Arc::clone(&gone));
    let work = flights.join(&key(&["a"]), PollSite::Request, || async move {
        let _told = told;
        std::future::pending::<usize>().await
    });
    drop(work);
    gone.notified().await;
    assert_eq!(flights.join(&key(&["a"]), PollSite::Request, || async { 1 }).await, Some(1));
}

#[tokio::test]
async fn a_panic_ends_the_work_for_all_current_waiters_only() {
    let flights: Arc<InFlightMap<usize>> = Arc::default();
    let work = || flights.join(&key(&["a"]), PollSite::Request, || async { panic!("on purpose") });
    assert_eq!(join_all([work(), work()]).await, [None, None]);
    assert_eq!(flights.join(&key(&["a"]), PollSite::Request, || async { 1 }).await, Some(1));
}

#[tokio::test]
async fn long_polls_of_shared_work_are_counted() {
    let count =
        || long_polls().into_iter().find(|(site, _)| *site == "aggregate").map_or(0, |(_, count)| count);
    let (flights, before) = (Arc::new(InFlightMap::default()), count());
    let work = flights.join(&key(&["a"]), PollSite::Aggregate, || async {
        let clock = CpuClock::now();
        while clock.elapsed() < 2 * LONG_POLL {}
        1
    });
    assert_eq!(work.await, Some(1));
    assert_eq!(count(), before + 1);
}

#[test]
fn fingerprints_of_long_parts_are_short_and_differ() {
    let (long, other) = ("x".repeat(1 << 20), "x".repeat((1 << 20) - 1) + "y");
    assert!(key(&[&long, &long]).0.len() <= 64);
    assert_eq!(key(&[&long]), key(&[&long]));
    assert_ne!(key(&[&long]), key(&[&other]));
    assert_ne!(key(&[&long, "a"]), key(&["a", &long]));
}
