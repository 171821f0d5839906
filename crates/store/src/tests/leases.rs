//! Tests of leases: the right to write, and its loss.

use super::*;

const LONG: Duration = Duration::from_secs(3600);
/// The duration of a lease that expires immediately.
const ENDED: Duration = Duration::ZERO;

fn lost() -> StoreError {
    StoreError::LeaseLost { name: "group".into() }
}

#[tokio::test]
async fn a_lease_has_one_holder_until_it_is_released() {
    let bench = StoreFixture::new();
    let (here, there) = (&bench.store, bench.another());
    let lease = here.lease("group", "here", LONG).await.unwrap();
    match there.lease("group", "there", LONG).await.unwrap_err() {
        StoreError::LeaseTaken { name, holder, left } => {
            assert_eq!((&*name, &*holder), ("group", "here"));
            assert!(left <= LONG && left > LONG / 2, "{left:?}");
        }
        error => panic!("{error}"),
    }
    there.lease("other", "there", LONG).await.unwrap();
    here.release(&lease).await.unwrap();
    let next = there.lease("group", "there", LONG).await.unwrap();
    assert!(next.fence > lease.fence);
    here.commit(batch().create("a", "").fenced(&lease)).await.unwrap_err();
    there.commit(batch().create("a", "").fenced(&next)).await.unwrap();
}

#[tokio::test]
async fn a_lost_lease_cannot_be_used_for_writes() {
    let bench = StoreFixture::new();
    let (here, there) = (&bench.store, bench.another());
    let old = here.lease("group", "here", ENDED).await.unwrap();
    here.commit(batch().create("a", "0").fenced(&old)).await.unwrap();
    let new = there.lease("group", "there", LONG).await.unwrap();
    assert_eq!(here.commit(batch().append("a", 1, "late").fenced(&old)).await, Err(lost()));
    assert_eq!(here.commit(batch().create("b", "late").fenced(&old)).await, Err(lost()));
    assert_eq!(here.renew(&old, LONG).await, Err(lost()));
    here.release(&old).await.unwrap();
    there.commit(batch().append("a", 1, "1").fenced(&new)).await.unwrap();
    assert_eq!(here.keys("").await.unwrap(), [("a".to_owned(), 2)]);
}

#[tokio::test]
async fn an_expired_lease_is_valid_until_it_is_taken() {
    let StoreFixture { store, .. } = &StoreFixture::new();
    let lease = store.lease("group", "here", ENDED).await.unwrap();
    store.commit(batch().create("a", "0").fenced(&lease)).await.unwrap();
    store.renew(&lease, LONG).await.unwrap();
    assert_eq!(store.lease("group", "there", LONG).await.unwrap_err().code(), "state-lease-taken");
}

#[tokio::test]
async fn a_holder_takes_its_own_lease_over() {
    let StoreFixture { store, .. } = &StoreFixture::new();
    let first = store.lease("group", "here", LONG).await.unwrap();
    let second = store.lease("group", "here", LONG).await.unwrap();
    assert!(second.fence > first.fence);
    assert_eq!(store.commit(batch().create("a", "").fenced(&first)).await, Err(lost()));
    store.commit(batch().create("a", "").fenced(&second)).await.unwrap();
}

#[tokio::test]
async fn fences_and_leases_persist_when_the_file_is_reopened() {
    let bench = StoreFixture::new();
    let lease = bench.store.lease("group", "here", LONG).await.unwrap();
    let again = bench.another();
    assert_eq!(again.lease("group", "there", LONG).await.unwrap_err().code(), "state-lease-taken");
    assert!(again.lease("other", "there", LONG).await.unwrap().fence > lease.fence);
    again.commit(batch().create("a", "").fenced(&lease)).await.unwrap();
}

#[tokio::test]
async fn a_lease_from_the_future_counts_as_expired() {
    let bench = StoreFixture::new();
    let lease = bench.store.lease("group", "here", LONG).await.unwrap();
    bench.raw().execute("UPDATE leases SET since = since + 86400000, until = until + 86400000", []).unwrap();
    bench.store.lease("group", "there", LONG).await.unwrap();
    assert_eq!(bench.store.renew(&lease, LONG).await, Err(lost()));
}

#[tokio::test]
async fn deletes_only_leases_that_expired_a_day_ago() {
    let bench = StoreFixture::new();
    bench.store.lease("old", "here", ENDED).await.unwrap();
    bench.raw().execute("UPDATE leases SET until = until - 86400001", []).unwrap();
    bench.store.lease("young", "here", ENDED).await.unwrap();
    bench.store.lease("for ever", "here", Duration::MAX).await.unwrap();
    drop(bench.another());
    let count = |sql| bench.raw().query_one(sql, [], |row| row.get::<_, i64>(0)).unwrap();
    assert_eq!(count("SELECT count(*) FROM leases"), 2);
    assert_eq!(count("SELECT count(*) FROM leases WHERE name = 'old'"), 0);
}
