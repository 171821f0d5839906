//! Tests of files that are full, locked, read-only or damaged.

use std::fs;
use std::os::unix::fs::FileExt;

use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

use super::*;

const LARGE: usize = 300_000;

#[tokio::test]
async fn a_full_disk_rejects_only_batches_that_do_not_fit() {
    let bench = StoreFixture::with_connection(|connection| {
        connection.pragma_update(None, "max_page_count", 40).unwrap()
    });
    let StoreFixture { store, .. } = &bench;
    store.commit(batch().create("a", "0").create("b", vec![0; 100_000])).await.unwrap();
    let raw = bench.raw_connection();
    raw.execute_batch("BEGIN IMMEDIATE").unwrap();
    let mut pipeline = store.pipeline();
    let large = pipeline.submit(batch().append("a", 1, "lost").create("c", vec![0; LARGE])).await;
    let after = pipeline.submit(batch().append("a", 1, "lost")).await;
    let commit = store.submit(batch().append("a", 1, "1")).await;
    raw.execute_batch("ROLLBACK").unwrap();
    assert_eq!(file_fault(large.await), FileFault::Full);
    assert_eq!(after.await, Err(StoreError::Abandoned));
    commit.await.unwrap();
    assert_eq!(read_log(store, "a").await, expected_log(2, "01"));
    store.commit(batch().remove("b")).await.unwrap();
    store.commit(batch().create("c", vec![0; 100_000])).await.unwrap();
}

#[tokio::test]
async fn rejects_writes_while_the_file_is_removed_or_replaced() {
    let bench = StoreFixture::new();
    bench.store.commit(batch().create("a", "0")).await.unwrap();
    let (file, aside) = (bench.path(), bench.path().with_extension("aside"));
    fs::rename(&file, &aside).unwrap();
    assert_eq!(file_fault(bench.store.commit(batch().append("a", 1, "lost")).await), FileFault::FileReplaced);
    fs::copy(&aside, &file).unwrap();
    assert_eq!(file_fault(bench.store.commit(batch().append("a", 1, "lost")).await), FileFault::FileReplaced);
    assert_eq!(read_log(&bench.store, "a").await, expected_log(1, "0"));
    fs::rename(&aside, &file).unwrap();
    bench.store.commit(batch().append("a", 1, "1")).await.unwrap();
    assert_eq!(read_log(&bench.store, "a").await, expected_log(2, "01"));
}

#[tokio::test]
async fn reevaluates_conflicts_after_a_transaction_that_did_not_fit() {
    let bench = StoreFixture::with_connection(|connection| {
        connection.pragma_update(None, "max_page_count", 40).unwrap()
    });
    let StoreFixture { store, .. } = &bench;
    store.commit(batch().create("a", "0")).await.unwrap();
    let raw = bench.raw_connection();
    raw.execute_batch("BEGIN IMMEDIATE").unwrap();
    let first = store.submit(batch()).await;
    let commit = store.submit(batch().append("a", 1, "1")).await;
    let mut pipeline = store.pipeline();
    let pending_commit = pipeline.submit(batch().append("a", 1, "lost")).await;
    let after = pipeline.submit(batch().append("a", 2, "lost")).await;
    let large = store.submit(batch().append("a", 2, vec![0; LARGE])).await;
    let two = store.submit(batch().append("a", 2, "2")).await;
    raw.execute_batch("ROLLBACK").unwrap();
    first.await.unwrap();
    commit.await.unwrap();
    assert_eq!(
        (pending_commit.await, after.await),
        (Err(conflict_error("a", 2)), Err(StoreError::Abandoned))
    );
    assert_eq!(file_fault(large.await), FileFault::Full);
    two.await.unwrap();
    assert_eq!(read_log(store, "a").await, expected_log(3, "012"));
}

#[tokio::test]
async fn reports_a_locked_file_but_reads_it_and_recovers() {
    let bench = StoreFixture::with_connection(|connection| connection.busy_timeout(Duration::ZERO).unwrap());
    bench.store.commit(batch().create("a", "0")).await.unwrap();
    let raw = bench.raw_connection();
    raw.execute_batch("BEGIN IMMEDIATE").unwrap();
    // Requests that are submitted without a pause usually meet in one transaction.
    for _ in 0..20 {
        let append = bench.store.submit(batch().append("a", 1, "1")).await;
        let read = read_log(&bench.store, "a").await;
        assert_eq!((append.await.unwrap_err().code(), read), ("store-locked", expected_log(1, "0")));
    }
    raw.execute_batch("ROLLBACK").unwrap();
    bench.store.commit(batch().append("a", 1, "1")).await.unwrap();
}

#[tokio::test]
async fn reports_a_read_only_file_but_reads_it() {
    let bench = StoreFixture::new();
    bench.store.commit(batch().create("a", "0")).await.unwrap();
    let connection = file::open(&bench.path(), CommitDurability::Process).unwrap();
    connection.pragma_update(None, "query_only", true).unwrap();
    let store = Store::start(connection, bench.path().into()).unwrap();
    assert_eq!(file_fault(store.commit(batch().put("a", "1")).await), FileFault::ReadOnly);
    assert_eq!(read_log(&store, "a").await, expected_log(1, "0"));
}

#[tokio::test]
async fn rejects_values_that_are_too_large_before_writing() {
    let StoreFixture { store, .. } = &StoreFixture::new();
    let error = store.commit(batch().create("a", "").create("b", vec![0; LARGEST])).await.unwrap_err();
    assert_eq!(error, StoreError::TooLarge { key: "b".into(), size: LARGEST });
    assert_eq!(store.keys("").await.unwrap(), []);
}

#[tokio::test]
async fn an_incomplete_log_is_reported_as_damage() {
    for damage in ["DELETE FROM changes WHERE version = 2", "DELETE FROM changes", "DELETE FROM snapshots"] {
        let bench = StoreFixture::new();
        let StoreFixture { store, .. } = &bench;
        store.commit(batch().create("a", "").append("a", 1, "1").append("a", 2, "2")).await.unwrap();
        bench.raw_connection().execute_batch(damage).unwrap();
        assert_eq!(file_fault(store.load("a").await), FileFault::Corrupt, "{damage}");
        store.commit(batch().create("b", "")).await.unwrap();
    }
}

/// Creates and closes a file with all kinds of content.
async fn create_populated_file() -> (TempDir, PathBuf) {
    let bench = StoreFixture::new();
    let path = bench.path();
    for number in 0..200 {
        let key = format!("a/{number}");
        let write_batch =
            batch().create(&*key, vec![b'v'; number * 50]).append(&*key, 1, "x").append(&*key, 2, "y");
        bench.store.commit(write_batch).await.unwrap();
    }
    bench.store.acquire_lease("group", "here", Duration::from_secs(1)).await.unwrap();
    bench.raw_connection().execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
    (bench.folder, path)
}

/// Uses all functions of a store. Failures must be reported, and the thread must survive.
async fn exercise_all(store: &Store) {
    let mut answers = vec![store.keys("").await.map(drop)];
    for number in [0, 7, 100, 199] {
        let key = format!("a/{number}");
        answers.push(store.load(&*key).await.map(drop));
        answers.push(store.commit(batch().append(&*key, 3, "z")).await.map(drop));
        answers.push(store.commit(batch().compact(&*key, 3, "w").put(&*key, "p")).await.map(drop));
    }
    answers.push(store.acquire_lease("group", "there", Duration::ZERO).await.map(drop));
    answers.push(store.commit(batch().remove_all("a/1")).await.map(drop));
    answers.push(store.commit(batch().put("new", "n")).await.map(drop));
    assert!(!answers.contains(&Err(StoreError::Stopped)), "{answers:?}");
}

#[test]
fn a_damaged_file_is_an_error_and_does_not_end_the_thread() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let (_folder, path) = runtime.block_on(create_populated_file());
    let whole = fs::read(&path).unwrap();
    let damage = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..40);
    let config = ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() };
    proptest::test_runner::TestRunner::new(config)
        .run(&(damage, any::<bool>()), |(damage, cut)| {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("state.db");
            let end = if cut { damage[0].0.index(whole.len()) } else { whole.len() };
            fs::write(&path, &whole[..end]).unwrap();
            let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
            for (place, byte) in damage {
                file.write_all_at(&[byte], place.index(end.max(1)) as u64).unwrap();
            }
            match Store::open(&path, CommitDurability::Process) {
                Ok(store) => runtime.block_on(exercise_all(&store)),
                Err(StoreError::File { .. }) => {}
                Err(error) => return Err(TestCaseError::fail(error.to_string())),
            }
            Ok(())
        })
        .unwrap();
}
