//! Changes of DNS records and of the config.

use std::time::Duration;

use super::fleet::{EndpointBehaviour, SimulatedFleet, THREE_TARGETS, config, endpoint, send_request, stats};
use super::*;

const NAMED_TARGET: [&str; 1] = ["http://shop.example:1"];

/// Lets time pass, so that background tasks run.
async fn advance_time(time: Duration) {
    tokio::time::sleep(time).await;
}

fn addresses(services: &ServiceSet) -> Vec<u16> {
    let endpoints = stats(services).endpoints;
    endpoints.iter().filter_map(|endpoint| Some(endpoint.address?.port())).collect()
}

#[tokio::test(start_paused = true)]
async fn follows_changes_of_a_name() {
    let fleet = Arc::new(SimulatedFleet::default());
    fleet.set_addresses("shop.example", &[1, 2]);
    let (services, shop) = fleet.shop(&NAMED_TARGET, |_| ());
    assert_eq!(*fleet.lookup_count.borrow(), 0, "the service is not in use");
    for _ in 0..4 {
        send_request(&services, &shop, "GET").await;
    }
    assert_eq!((fleet.take_sent(1).len(), fleet.take_sent(2).len(), *fleet.lookup_count.borrow()), (2, 2, 1));
    // A request in flight to an address that disappears is not disturbed.
    fleet.set_behaviour(&[1, 2], EndpointBehaviour::Wait(20_000));
    let long = tokio::spawn(services.send(
        &RequestCall::unlimited(),
        &shop,
        ServiceRequest { method: http::Method::PUT, ..request("GET", "/long") },
    ));
    tokio::task::yield_now().await;
    fleet.set_behaviour(&[1, 2, 3], EndpointBehaviour::Answer(200));
    fleet.set_addresses("shop.example", &[3]);
    advance_time(Duration::from_secs(6)).await;
    for _ in 0..4 {
        send_request(&services, &shop, "GET").await;
    }
    assert_eq!((fleet.take_sent(3).len(), addresses(&services)), (4, vec![3]));
    assert!(!long.is_finished());
    long.abort();
}

#[tokio::test(start_paused = true)]
async fn a_failed_lookup_keeps_the_previous_addresses() {
    let fleet = Arc::new(SimulatedFleet::default());
    let (services, shop) = fleet.shop(&NAMED_TARGET, |_| ());
    assert_eq!(send_request(&services, &shop, "GET").await, "upstream-unreachable");
    fleet.set_addresses("shop.example", &[1]);
    assert_eq!(send_request(&services, &shop, "GET").await, "200");
    fleet.set_addresses("shop.example", &[]);
    advance_time(Duration::from_secs(20)).await;
    assert!(*fleet.lookup_count.borrow() > 3);
    assert_eq!(
        (send_request(&services, &shop, "GET").await, addresses(&services)),
        ("200".to_owned(), vec![1])
    );
}

#[tokio::test(start_paused = true)]
async fn an_unused_service_is_not_resolved() {
    let fleet = Arc::new(SimulatedFleet::default());
    fleet.set_addresses("shop.example", &[1]);
    let (services, shop) =
        fleet.shop(&NAMED_TARGET, |config| config.dns_refresh_rate = DurationConfig::from_secs(1));
    send_request(&services, &shop, "GET").await;
    advance_time(Duration::from_secs(60)).await;
    let asleep = *fleet.lookup_count.borrow();
    advance_time(Duration::from_secs(600)).await;
    assert_eq!(*fleet.lookup_count.borrow(), asleep);
    fleet.set_addresses("shop.example", &[2]);
    send_request(&services, &shop, "GET").await;
    assert_eq!((fleet.take_sent(2).len(), *fleet.lookup_count.borrow()), (1, asleep + 1), "resolved again");
    drop((services, shop));
    advance_time(Duration::from_secs(60)).await;
    assert_eq!(*fleet.lookup_count.borrow(), asleep + 1, "the task ends with the services");
}

#[tokio::test(start_paused = true)]
async fn waiting_requests_share_the_first_lookup() {
    let fleet = Arc::new(SimulatedFleet::default());
    fleet.set_addresses("shop.example", &[1, 2, 3]);
    let (services, shop) = fleet.shop(&NAMED_TARGET, |_| ());
    let answers =
        futures_util::future::join_all((0..50).map(|_| send_request(&services, &shop, "GET"))).await;
    assert!(answers.iter().all(|answer| answer == "200"));
    assert_eq!(*fleet.lookup_count.borrow(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_reload_keeps_the_state_of_endpoints() {
    let fleet = Arc::new(SimulatedFleet::default());
    fleet.set_behaviour(&[2], EndpointBehaviour::Break);
    let (services, shop) = fleet.shop(&THREE_TARGETS, |_| ());
    while endpoint(&services, 2).healthy {
        send_request(&services, &shop, "GET").await;
    }
    let before = stats(&services);
    let same = services
        .reload(
            &config(&THREE_TARGETS, |config| config.timeout = DurationConfig::from_secs(3)),
            Path::new(""),
        )
        .unwrap();
    assert_eq!(stats(&same), before);
    assert_eq!(same.get("shop").unwrap().timeout(), Duration::from_secs(3));
    let fewer = same.reload(&config(&THREE_TARGETS[1..], |_| ()), Path::new("")).unwrap();
    assert_eq!(addresses(&fewer), [2, 3]);
    assert!(!endpoint(&fewer, 2).healthy && stats(&fewer).requests == before.requests);
    fleet.take_sent_count();
    for _ in 0..9 {
        assert_eq!(send_request(&fewer, fewer.get("shop").unwrap(), "GET").await, "200");
    }
    assert_eq!((fleet.take_sent(3).len(), fleet.take_sent_count()), (9, 0));
    assert!(fewer.reload(&config(&["nonsense"], |_| ()), Path::new("")).is_err());
}
