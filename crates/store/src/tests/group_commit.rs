//! Tests of group commits, and of batches that build on each other.

use super::*;

/// Submits batches while the file is locked, so that all but perhaps the first meet in one transaction.
async fn submit_together(
    bench: &StoreFixture,
    batches: Vec<WriteBatch>,
) -> Vec<Result<Vec<WriteResult>, StoreError>> {
    let raw = bench.raw_connection();
    raw.execute_batch("BEGIN IMMEDIATE").unwrap();
    let mut commits = vec![bench.store.submit(batch()).await];
    for write_batch in batches {
        commits.push(bench.store.submit(write_batch).await);
    }
    raw.execute_batch("ROLLBACK").unwrap();
    let mut answers = Vec::new();
    for commit in commits {
        answers.push(commit.await);
    }
    answers.split_off(1)
}

#[tokio::test]
async fn a_batch_is_atomic() {
    let StoreFixture { store, .. } = &StoreFixture::new();
    store.commit(batch().create("a", "0").create("b", "0")).await.unwrap();
    let refused =
        batch().append("a", 1, "1").put("c", "").remove_all("b").compact("a", 2, "01").append("a", 1, "2");
    assert_eq!(store.commit(refused).await, Err(conflict_error("a", 2)));
    assert_eq!(
        (read_log(store, "a").await, read_log(store, "b").await),
        (expected_log(1, "0"), expected_log(1, "0"))
    );
    assert_eq!(read_log(store, "c").await, None);
    assert_eq!(store.commit(batch().remove("a").create("a", "")).await.unwrap()[1].version, 2);
}

#[tokio::test]
async fn a_refused_batch_does_not_affect_others() {
    let bench = StoreFixture::new();
    bench.store.commit(batch().create("a", "0").create("b", "0")).await.unwrap();
    let answers = submit_together(
        &bench,
        vec![
            batch().append("a", 1, "1"),
            batch().append("b", 1, "lost").append("a", 1, "lost"),
            batch().append("a", 2, "2").append("b", 1, "1"),
        ],
    )
    .await;
    assert!(answers[0].is_ok() && answers[2].is_ok(), "{answers:?}");
    assert_eq!(answers[1], Err(conflict_error("a", 2)));
    assert_eq!(
        (read_log(&bench.store, "a").await, read_log(&bench.store, "b").await),
        (expected_log(3, "012"), expected_log(2, "01"))
    );
}

#[tokio::test]
async fn executes_batches_in_the_order_of_submission() {
    let StoreFixture { store, .. } = &StoreFixture::new();
    store.commit(batch().create("a", "")).await.unwrap();
    let mut pipeline = store.pipeline();
    let mut commits = Vec::new();
    for version in 1..=1000 {
        commits.push(pipeline.submit(batch().append("a", version, version.to_string())).await);
    }
    for (commit, version) in commits.into_iter().zip(2..) {
        assert_eq!(commit.await.unwrap(), [WriteResult { version, needs_compaction: false }]);
    }
}

#[tokio::test]
async fn abandons_batches_after_a_refused_one_even_if_their_version_matches() {
    let bench = StoreFixture::new();
    bench.store.commit(batch().create("a", "0")).await.unwrap();
    bench.reopen().commit(batch().append("a", 1, "theirs")).await.unwrap();
    let mut pipeline = bench.store.pipeline();
    let first = pipeline.submit(batch().append("a", 1, "mine")).await;
    let second = pipeline.submit(batch().append("a", 2, "mine")).await;
    assert_eq!((first.await, second.await), (Err(conflict_error("a", 2)), Err(StoreError::Abandoned)));
    assert_eq!(pipeline.submit(batch().append("a", 2, "mine")).await.await, Err(StoreError::Abandoned));
    let mut pipeline = bench.store.pipeline();
    pipeline.submit(batch().append("a", 2, "mine")).await.await.unwrap();
    assert_eq!(read_log(&bench.store, "a").await, expected_log(3, "0theirsmine"));
}

#[tokio::test]
async fn a_write_after_a_wait_sees_the_commits_of_the_other_process() {
    let bench = StoreFixture::new();
    let lease = bench.store.acquire_lease("group", "here", Duration::from_secs(3600)).await.unwrap();
    let raw = bench.raw_connection();
    for number in 1..=50 {
        raw.execute_batch("BEGIN IMMEDIATE").unwrap();
        let commit = bench.store.submit(batch().put("a", "").with_fence(&lease)).await;
        raw.execute_batch("UPDATE counters SET value = value + 1 WHERE name = 'fence'; COMMIT").unwrap();
        assert_eq!(commit.await.unwrap()[0].version, number);
    }
}

#[tokio::test]
async fn commits_a_batch_whose_future_is_dropped() {
    let StoreFixture { store, .. } = &StoreFixture::new();
    drop(store.submit(batch().create("a", "0")).await);
    assert_eq!(read_log(store, "a").await, expected_log(1, "0"));
}

#[tokio::test]
async fn commits_submitted_batches_after_the_last_handle_is_dropped() {
    let bench = StoreFixture::new();
    let StoreFixture { folder, store } = bench;
    let commits: Vec<PendingCommit> = {
        let mut commits = vec![store.submit(batch().create("a", "")).await];
        for version in 1..100 {
            commits.push(store.submit(batch().append("a", version, "x")).await);
        }
        commits
    };
    drop(store);
    for commit in commits {
        commit.await.unwrap();
    }
    let store = Store::open(&folder.path().join("state.db"), CommitDurability::Machine).unwrap();
    assert_eq!(read_log(&store, "a").await, Some((100, "x".repeat(99))));
}

#[tokio::test]
async fn waits_for_room_in_a_full_queue_without_blocking_the_thread() {
    let bench = StoreFixture::new();
    let raw = bench.raw_connection();
    raw.execute_batch("BEGIN IMMEDIATE").unwrap();
    let half = vec![0; QUEUE_CAPACITY_KIB as usize / 2 * 1024];
    let first = bench.store.submit(batch().put("a", half.clone())).await;
    let mut second = std::pin::pin!(bench.store.submit(batch().put("b", half)));
    let waits = |waiting: std::task::Poll<_>| std::task::Poll::Ready(waiting.is_pending());
    assert!(std::future::poll_fn(|context| waits(second.as_mut().poll(context).map(drop))).await);
    raw.execute_batch("ROLLBACK").unwrap();
    first.await.unwrap();
    second.await.await.unwrap();
}
