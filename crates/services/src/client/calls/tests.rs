//! Deduplication, concurrency and splitting of calls, with a real service.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use futures_util::future::join_all;
use proptest::prelude::*;
use testkit::misbehaving_upstream;

use super::*;
use crate::{CallError, ServiceConfig};

async fn start_calls() -> (misbehaving_upstream::MisbehavingUpstream, RequestCalls, Arc<UpstreamService>) {
    let upstream = misbehaving_upstream::start().await;
    let config = BTreeMap::from([("shop".to_owned(), ServiceConfig::with_url(upstream.url()))]);
    let services = ServiceSet::new(&config).unwrap();
    let shop = services.get("shop").unwrap().clone();
    (upstream, RequestCalls::new(services, RequestCall::unlimited()), shop)
}

fn tenant_request(path: &str, tenant: &str) -> ServiceRequest {
    let mut request = get_request(path.parse().unwrap());
    request.headers.insert("x-tenant", tenant.parse().unwrap());
    request
}

#[tokio::test]
async fn deduplicates_equal_safe_calls_only() {
    let (_upstream, calls, shop) = start_calls().await;
    let asked = [("/echo?a", "1"), ("/echo?a", "1"), ("/echo?a", "2"), ("/echo?b", "1"), ("/echo?a", "1")];
    let answers = join_all(asked.map(|(path, tenant)| calls.send(&shop, tenant_request(path, tenant)))).await;
    assert!(answers.iter().all(Result::is_ok));
    assert_eq!(calls.call().budget.call_count(), 3);
    let post = || ServiceRequest { method: Method::POST, ..tenant_request("/echo?a", "1") };
    join_all([calls.send(&shop, post()), calls.send(&shop, post())]).await;
    assert_eq!(calls.call().budget.call_count(), 5);
}

#[tokio::test]
async fn reads_after_a_write_are_sent_again() {
    let (upstream, calls, shop) = start_calls().await;
    let read = || calls.send(&shop, tenant_request("/echo", "1"));
    let begun_before = read();
    let put = calls.send(&shop, ServiceRequest { method: Method::PUT, ..tenant_request("/status/204", "1") });
    let begun_meanwhile = read();
    put.await.unwrap();
    join_all([begun_before, begun_meanwhile, read(), read()]).await;
    assert_eq!(upstream.hits("/echo"), 3);
    let put = calls.send(&shop, ServiceRequest { method: Method::PUT, ..tenant_request("/status/204", "1") });
    let begun_meanwhile = read();
    drop(put);
    join_all([begun_meanwhile, read()]).await;
    assert_eq!(upstream.hits("/echo"), 5, "a cancelled write may have taken effect");
}

#[tokio::test]
async fn duplicates_share_an_error() {
    let (_upstream, calls, shop) = start_calls().await;
    let answers = join_all([
        calls.send(&shop, tenant_request("/garbage", "1")),
        calls.send(&shop, tenant_request("/garbage", "1")),
    ])
    .await;
    assert!(answers.iter().all(|answer| matches!(&**answer.as_ref().unwrap_err(), CallError::Broken { .. })));
}

#[tokio::test]
async fn at_once_limits_concurrency_and_ends_at_the_first_error() {
    let (under_way, most) = (&AtomicUsize::new(0), &AtomicUsize::new(0));
    let futures = (0..20).map(|number| async move {
        most.fetch_max(under_way.fetch_add(1, SeqCst) + 1, SeqCst);
        tokio::task::yield_now().await;
        under_way.fetch_sub(1, SeqCst);
        if number < 15 { Ok(number) } else { Err(number) }
    });
    assert_eq!(try_join_bounded(futures.clone().take(15), 3).await, Ok((0..15).collect::<Vec<_>>()));
    assert_eq!(try_join_bounded(futures, 3).await, Err(15));
    assert_eq!(most.load(SeqCst), 3);
}

#[test]
fn splits_ids_by_count_and_length() {
    assert_eq!(split_into_groups(&[1; 10], 1, 4, 1000), [0..4, 4..8, 8..10]);
    assert_eq!(split_into_groups(&[3; 4], 1, 100, 8), [0..2, 2..4]);
    assert_eq!(split_into_groups(&[1, 100, 1], 1, 100, 10), [0..1, 1..2, 2..3]);
    assert_eq!(split_into_groups(&[1; 3], 1, 100, 1000).len(), 1);
    assert!(split_into_groups(&[], 1, 4, 10).is_empty());
}

proptest! {
    #[test]
    fn every_value_is_in_exactly_one_part_within_the_limits(
        lengths in prop::collection::vec(0..40_usize, 0..200), most in 1..50_usize, room in 1..300_usize,
    ) {
        let parts = split_into_groups(&lengths, 1, most, room);
        let all: Vec<usize> = parts.iter().flat_map(Clone::clone).collect();
        prop_assert_eq!(all, (0..lengths.len()).collect::<Vec<_>>());
        for part in parts {
            let long: usize = lengths[part.clone()].iter().map(|length| length + 1).sum();
            prop_assert!(part.len() <= most && (long <= room || part.len() == 1));
        }
    }
}
