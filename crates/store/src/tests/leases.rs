//! Tests of leases: the right to write, and its loss.

use super::*;

const ONE_HOUR: Duration = Duration::from_secs(3600);
/// The duration of a lease that expires immediately.
const EXPIRED: Duration = Duration::ZERO;

fn lease_lost() -> StoreError {
    StoreError::LeaseLost { name: "group".into() }
}

#[tokio::test]
async fn a_lease_has_one_holder_until_it_is_released() {
    let bench = StoreFixture::new();
    let (here, there) = (&bench.store, bench.reopen());
    let lease = here.acquire_lease("group", "here", ONE_HOUR).await.unwrap();
    match there.acquire_lease("group", "there", ONE_HOUR).await.unwrap_err() {
        StoreError::LeaseTaken { name, holder, left } => {
            assert_eq!((&*name, &*holder), ("group", "here"));
            assert!(left <= ONE_HOUR && left > ONE_HOUR / 2, "{left:?}");
        }
        error => panic!("{error}"),
    }
    there.acquire_lease("other", "there", ONE_HOUR).await.unwrap();
    here.release(&lease).await.unwrap();
    let next = there.acquire_lease("group", "there", ONE_HOUR).await.unwrap();
    assert!(next.fence > lease.fence);
    here.commit(batch().create("a", "").with_fence(&lease)).await.unwrap_err();
    there.commit(batch().create("a", "").with_fence(&next)).await.unwrap();
}

#[tokio::test]
async fn a_lost_lease_cannot_be_used_for_writes() {
    let bench = StoreFixture::new();
    let (here, there) = (&bench.store, bench.reopen());
    let old = here.acquire_lease("group", "here", EXPIRED).await.unwrap();
    here.commit(batch().create("a", "0").with_fence(&old)).await.unwrap();
    let new = there.acquire_lease("group", "there", ONE_HOUR).await.unwrap();
    assert_eq!(here.commit(batch().append("a", 1, "late").with_fence(&old)).await, Err(lease_lost()));
    assert_eq!(here.commit(batch().create("b", "late").with_fence(&old)).await, Err(lease_lost()));
    assert_eq!(here.renew(&old, ONE_HOUR).await, Err(lease_lost()));
    here.release(&old).await.unwrap();
    there.commit(batch().append("a", 1, "1").with_fence(&new)).await.unwrap();
    assert_eq!(here.keys("").await.unwrap(), [("a".to_owned(), 2)]);
}

#[tokio::test]
async fn an_expired_lease_is_valid_until_it_is_taken() {
    let StoreFixture { store, .. } = &StoreFixture::new();
    let lease = store.acquire_lease("group", "here", EXPIRED).await.unwrap();
    store.commit(batch().create("a", "0").with_fence(&lease)).await.unwrap();
    store.renew(&lease, ONE_HOUR).await.unwrap();
    assert_eq!(
        store.acquire_lease("group", "there", ONE_HOUR).await.unwrap_err().code(),
        "state-lease-taken"
    );
}

#[tokio::test]
async fn a_holder_takes_its_own_lease_over() {
    let StoreFixture { store, .. } = &StoreFixture::new();
    let first = store.acquire_lease("group", "here", ONE_HOUR).await.unwrap();
    let second = store.acquire_lease("group", "here", ONE_HOUR).await.unwrap();
    assert!(second.fence > first.fence);
    assert_eq!(store.commit(batch().create("a", "").with_fence(&first)).await, Err(lease_lost()));
    store.commit(batch().create("a", "").with_fence(&second)).await.unwrap();
}

#[tokio::test]
async fn fences_and_leases_persist_when_the_file_is_reopened() {
    let bench = StoreFixture::new();
    let lease = bench.store.acquire_lease("group", "here", ONE_HOUR).await.unwrap();
    let store = bench.reopen();
    assert_eq!(
        store.acquire_lease("group", "there", ONE_HOUR).await.unwrap_err().code(),
        "state-lease-taken"
    );
    assert!(store.acquire_lease("other", "there", ONE_HOUR).await.unwrap().fence > lease.fence);
    store.commit(batch().create("a", "").with_fence(&lease)).await.unwrap();
}

#[tokio::test]
async fn a_lease_from_the_future_counts_as_expired() {
    let bench = StoreFixture::new();
    let lease = bench.store.acquire_lease("group", "here", ONE_HOUR).await.unwrap();
    bench
        .raw_connection()
        .execute("UPDATE leases SET since = since + 86400000, until = until + 86400000", [])
        .unwrap();
    bench.store.acquire_lease("group", "there", ONE_HOUR).await.unwrap();
    assert_eq!(bench.store.renew(&lease, ONE_HOUR).await, Err(lease_lost()));
}

#[tokio::test]
async fn deletes_only_leases_that_expired_a_day_ago() {
    let bench = StoreFixture::new();
    bench.store.acquire_lease("old", "here", EXPIRED).await.unwrap();
    bench.raw_connection().execute("UPDATE leases SET until = until - 86400001", []).unwrap();
    bench.store.acquire_lease("young", "here", EXPIRED).await.unwrap();
    bench.store.acquire_lease("for ever", "here", Duration::MAX).await.unwrap();
    drop(bench.reopen());
    let count = |sql| bench.raw_connection().query_one(sql, [], |row| row.get::<_, i64>(0)).unwrap();
    assert_eq!(count("SELECT count(*) FROM leases"), 2);
    assert_eq!(count("SELECT count(*) FROM leases WHERE name = 'old'"), 0);
}
