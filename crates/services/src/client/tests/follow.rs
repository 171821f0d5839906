//! Changes of DNS records and of the config.

use std::time::Duration;

use super::fleet::{EndpointBehaviour, SimulatedFleet, THREE, ask, config, endpoint, stats};
use super::*;

const NAMED: [&str; 1] = ["http://shop.example:1"];

/// Lets time pass, so that background tasks run.
async fn pass(time: Duration) {
    tokio::time::sleep(time).await;
}

fn addresses(services: &ServiceSet) -> Vec<u16> {
    let endpoints = stats(services).endpoints;
    endpoints.iter().filter_map(|endpoint| Some(endpoint.address?.port())).collect()
}

#[tokio::test(start_paused = true)]
async fn follows_changes_of_a_name() {
    let fleet = Arc::new(SimulatedFleet::default());
    fleet.name("shop.example", &[1, 2]);
    let (services, shop) = fleet.shop(&NAMED, |_| ());
    assert_eq!(*fleet.look_ups.borrow(), 0, "the service is not in use");
    for _ in 0..4 {
        ask(&services, &shop, "GET").await;
    }
    assert_eq!((fleet.sent(1).len(), fleet.sent(2).len(), *fleet.look_ups.borrow()), (2, 2, 1));
    // A request in flight to an address that disappears is not disturbed.
    fleet.does(&[1, 2], EndpointBehaviour::Wait(20_000));
    let long = tokio::spawn(services.send(
        &RequestCall::unlimited(),
        &shop,
        ServiceRequest { method: http::Method::PUT, ..request("GET", "/long") },
    ));
    tokio::task::yield_now().await;
    fleet.does(&[1, 2, 3], EndpointBehaviour::Answer(200));
    fleet.name("shop.example", &[3]);
    pass(Duration::from_secs(6)).await;
    for _ in 0..4 {
        ask(&services, &shop, "GET").await;
    }
    assert_eq!((fleet.sent(3).len(), addresses(&services)), (4, vec![3]));
    assert!(!long.is_finished());
    long.abort();
}

#[tokio::test(start_paused = true)]
async fn a_failed_lookup_keeps_the_previous_addresses() {
    let fleet = Arc::new(SimulatedFleet::default());
    let (services, shop) = fleet.shop(&NAMED, |_| ());
    assert_eq!(ask(&services, &shop, "GET").await, "upstream-unreachable");
    fleet.name("shop.example", &[1]);
    assert_eq!(ask(&services, &shop, "GET").await, "200");
    fleet.name("shop.example", &[]);
    pass(Duration::from_secs(20)).await;
    assert!(*fleet.look_ups.borrow() > 3);
    assert_eq!((ask(&services, &shop, "GET").await, addresses(&services)), ("200".to_owned(), vec![1]));
}

#[tokio::test(start_paused = true)]
async fn an_unused_service_is_not_resolved() {
    let fleet = Arc::new(SimulatedFleet::default());
    fleet.name("shop.example", &[1]);
    let (services, shop) =
        fleet.shop(&NAMED, |config| config.dns_refresh_rate = DurationConfig::from_secs(1));
    ask(&services, &shop, "GET").await;
    pass(Duration::from_secs(60)).await;
    let asleep = *fleet.look_ups.borrow();
    pass(Duration::from_secs(600)).await;
    assert_eq!(*fleet.look_ups.borrow(), asleep);
    fleet.name("shop.example", &[2]);
    ask(&services, &shop, "GET").await;
    assert_eq!((fleet.sent(2).len(), *fleet.look_ups.borrow()), (1, asleep + 1), "resolved again");
    drop((services, shop));
    pass(Duration::from_secs(60)).await;
    assert_eq!(*fleet.look_ups.borrow(), asleep + 1, "the task ends with the services");
}

#[tokio::test(start_paused = true)]
async fn waiting_requests_share_the_first_lookup() {
    let fleet = Arc::new(SimulatedFleet::default());
    fleet.name("shop.example", &[1, 2, 3]);
    let (services, shop) = fleet.shop(&NAMED, |_| ());
    let answers = futures_util::future::join_all((0..50).map(|_| ask(&services, &shop, "GET"))).await;
    assert!(answers.iter().all(|answer| answer == "200"));
    assert_eq!(*fleet.look_ups.borrow(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_reload_keeps_the_state_of_endpoints() {
    let fleet = Arc::new(SimulatedFleet::default());
    fleet.does(&[2], EndpointBehaviour::Break);
    let (services, shop) = fleet.shop(&THREE, |_| ());
    while endpoint(&services, 2).healthy {
        ask(&services, &shop, "GET").await;
    }
    let before = stats(&services);
    let same = services
        .renewed(&config(&THREE, |config| config.timeout = DurationConfig::from_secs(3)), Path::new(""))
        .unwrap();
    assert_eq!(stats(&same), before);
    assert_eq!(same.get("shop").unwrap().timeout(), Duration::from_secs(3));
    let fewer = same.renewed(&config(&THREE[1..], |_| ()), Path::new("")).unwrap();
    assert_eq!(addresses(&fewer), [2, 3]);
    assert!(!endpoint(&fewer, 2).healthy && stats(&fewer).requests == before.requests);
    fleet.sent_anywhere();
    for _ in 0..9 {
        assert_eq!(ask(&fewer, fewer.get("shop").unwrap(), "GET").await, "200");
    }
    assert_eq!((fleet.sent(3).len(), fleet.sent_anywhere()), (9, 0));
    assert!(fewer.renewed(&config(&["nonsense"], |_| ()), Path::new("")).is_err());
}
