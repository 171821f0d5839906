//! Tests of the notification of commits by other processes.

use super::*;

#[tokio::test]
async fn notifies_of_commits_by_another_process() {
    let bench = StoreFixture::new();
    let mut changed = bench.store.subscribe_commits();
    let other = bench.reopen();
    for version in 0..3 {
        other.commit(batch().put("a", version.to_string())).await.unwrap();
        changed.next().await.unwrap();
        assert_eq!(read_log(&bench.store, "a").await, expected_log(version + 1, &version.to_string()));
    }
}

#[test]
fn does_not_notify_of_own_commits() {
    let bench = StoreFixture::new();
    let (_messages, received) = mpsc::channel();
    let others = watch::Sender::new(());
    let connection = file::open(&bench.path(), CommitDurability::Process).unwrap();
    let mut keeper = StoreThread::new(connection, bench.path().into(), received, others.clone());
    let changed = others.subscribe();
    keeper.connection().execute("UPDATE counters SET value = value + 1", []).unwrap();
    keeper.check_foreign_commits();
    assert!(!changed.has_changed().unwrap());
    bench.raw_connection().execute("UPDATE counters SET value = value + 1", []).unwrap();
    keeper.check_foreign_commits();
    assert!(changed.has_changed().unwrap());
}

#[tokio::test]
async fn notifies_waiters_when_the_store_ends() {
    let StoreFixture { store, .. } = StoreFixture::new();
    let mut changed = store.subscribe_commits();
    drop(store);
    assert_eq!(changed.next().await, Err(StoreError::Stopped));
}
