//! Who shares work with whom, and what becomes of it when some of them leave.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use futures_util::future::join_all;
use tokio::sync::{Notify, oneshot};

use super::*;

fn key(parts: &[&str]) -> Fingerprint {
    let mut key = Fingerprint::default();
    parts.iter().for_each(|part| key.add(part.as_bytes()));
    key
}

fn under_way(flights: &Flights<usize>) -> usize {
    flights.lock().by_key.len()
}

#[tokio::test]
async fn equal_work_at_the_same_time_is_done_once_and_other_work_each() {
    let (flights, done) = (Arc::new(Flights::default()), Arc::new(AtomicUsize::new(0)));
    let work = |parts: &[&str]| {
        let done = Arc::clone(&done);
        flights.join(&key(parts), || async move { done.fetch_add(1, SeqCst) })
    };
    let asked = [work(&["ab", "c"]), work(&["ab", "c"]), work(&["a", "bc"]), work(&["ab"])];
    assert_eq!(join_all(asked).await, [Some(0), Some(0), Some(1), Some(2)]);
    assert_eq!(under_way(&flights), 0);
}

#[tokio::test]
async fn who_comes_after_the_end_begins_anew() {
    let flights = Arc::new(Flights::default());
    for round in 0..3 {
        assert_eq!(flights.join(&key(&["a"]), || async move { round }).await, Some(round));
    }
}

#[tokio::test]
async fn who_began_it_may_leave() {
    let flights = Arc::new(Flights::default());
    let (end, ended) = oneshot::channel();
    let first = flights.join(&key(&["a"]), || async { ended.await.unwrap_or(0) });
    let second = flights.join(&key(&["a"]), || async { 1 });
    drop(first);
    end.send(7).expect("the work goes on");
    assert_eq!(second.await, Some(7));
}

#[tokio::test]
async fn it_ends_when_nobody_waits_for_it() {
    let (flights, gone) = (Arc::new(Flights::default()), Arc::new(Notify::new()));
    struct Gone(Arc<Notify>);
    impl Drop for Gone {
        fn drop(&mut self) {
            self.0.notify_one();
        }
    }
    let told = Gone(Arc::clone(&gone));
    let work = flights.join(&key(&["a"]), || async move {
        let _told = told;
        std::future::pending::<usize>().await
    });
    drop(work);
    gone.notified().await;
    assert_eq!(flights.join(&key(&["a"]), || async { 1 }).await, Some(1));
}

#[tokio::test]
async fn what_panics_is_gone_for_all_who_waited_and_for_nobody_after() {
    let flights: Arc<Flights<usize>> = Arc::default();
    let work = || flights.join(&key(&["a"]), || async { panic!("as the test wants it") });
    assert_eq!(join_all([work(), work()]).await, [None, None]);
    assert_eq!(flights.join(&key(&["a"]), || async { 1 }).await, Some(1));
}
