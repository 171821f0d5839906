//! Load balancing and retries.

use std::time::Duration;

use futures_util::future::join_all;
use http_body_util::BodyExt;

use super::fleet::{EndpointBehaviour, SimulatedFleet, THREE_TARGETS, endpoint, send_request, stats};
use super::*;
use crate::body::{empty, full};
use crate::config::{PercentConfig, RetriesConfig};

/// Checks that retries hide a failing endpoint from clients, without overloading the services.
async fn check_failure_is_hidden(does: EndpointBehaviour, method: &str) {
    let fleet = Arc::new(SimulatedFleet::default());
    fleet.set_behaviour(&[1, 2, 3], EndpointBehaviour::Wait(3));
    fleet.set_behaviour(&[2], does);
    let (services, shop) = fleet
        .shop(&THREE_TARGETS, |config| config.first_byte_timeout = Some(DurationConfig::from_millis(200)));
    let mut failed = 0;
    for _ in 0..125 {
        let answers = join_all((0..16).map(|_| send_request(&services, &shop, method))).await;
        failed += answers.iter().filter(|answer| *answer != "200").count();
        tokio::time::advance(Duration::from_millis(100)).await;
    }
    let stats = stats(&services);
    assert_eq!(stats.requests, 2_000);
    assert!(failed < 2, "{does:?}: {failed} of 2,000 failed");
    assert!((1..400).contains(&stats.retries), "{does:?}: {} retries", stats.retries);
    // All retries are counted, but only requests that reached an endpoint are recorded by the fleet.
    let again = if does == EndpointBehaviour::Refuse { 0 } else { stats.retries };
    assert_eq!(fleet.take_sent_count() as u64, 2_000 + again, "{does:?}");
    assert!(endpoint(&services, 2).ejections > 1, "{does:?}: it was tried again");
}

#[tokio::test(start_paused = true)]
async fn hides_the_failure_of_one_of_three_endpoints() {
    for does in [
        EndpointBehaviour::Refuse,
        EndpointBehaviour::Break,
        EndpointBehaviour::Hang,
        EndpointBehaviour::Answer(503),
        EndpointBehaviour::Answer(500),
    ] {
        check_failure_is_hidden(does, "GET").await;
    }
    check_failure_is_hidden(EndpointBehaviour::Refuse, "POST").await;
}

#[tokio::test(start_paused = true)]
async fn never_retries_unsafe_requests() {
    for does in [
        EndpointBehaviour::Break,
        EndpointBehaviour::Hang,
        EndpointBehaviour::Answer(500),
        EndpointBehaviour::Answer(502),
        EndpointBehaviour::Answer(503),
    ] {
        let fleet = Arc::new(SimulatedFleet::default());
        fleet.set_behaviour(&[1, 2, 3], does);
        let (services, shop) = fleet.shop(&THREE_TARGETS, |config| {
            config.first_byte_timeout = Some(DurationConfig::from_secs(1));
            config.retries = RetriesConfig { attempts: 10, budget: PercentConfig(100) };
        });
        for method in ["POST", "PUT", "PATCH", "DELETE"] {
            let proxied = http::Request::builder().method(method).uri("/").body(full("a")).unwrap();
            let _ = services.forward(&RequestCall::unlimited(), &shop, proxied, None).await;
            assert_eq!(fleet.take_sent_count(), 1, "{does:?}: a client's {method}");
            send_request(&services, &shop, method).await;
            assert_eq!(fleet.take_sent_count(), 1, "{does:?}: a program's {method}");
        }
        for method in ["GET", "HEAD", "OPTIONS", "QUERY"] {
            send_request(&services, &shop, method).await;
            assert_eq!(fleet.take_sent_count(), 3, "{does:?}: {method}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn retries_a_streamed_request_after_a_refused_connection() {
    let fleet = Arc::new(SimulatedFleet::default());
    fleet.set_behaviour(&[1, 2], EndpointBehaviour::Refuse);
    let (services, shop) = fleet.shop(&THREE_TARGETS, |_| ());
    for _ in 0..6 {
        let (mut sender, body) =
            http_body_util::channel::Channel::<bytes::Bytes, crate::body::BodyError>::new(1);
        let sending = tokio::spawn(async move { sender.send_data("streamed".into()).await });
        let proxied = http::Request::post("/").body(body.boxed_unsync()).unwrap();
        let answer = services.forward(&RequestCall::unlimited(), &shop, proxied, None).await.unwrap();
        assert_eq!(answer.into_body().collect().await.unwrap().to_bytes(), "streamed");
        sending.await.unwrap().unwrap();
    }
    assert_eq!(fleet.take_sent(3).len(), 6);
}

#[tokio::test(start_paused = true)]
async fn does_not_retry_a_consumed_body() {
    let fleet = Arc::new(SimulatedFleet::default());
    fleet.set_behaviour(&[1, 2, 3], EndpointBehaviour::Break);
    let (services, shop) = fleet.shop(&THREE_TARGETS, |_| ());
    let proxied = http::Request::builder().method("QUERY").uri("/").body(full("body")).unwrap();
    let error = services.forward(&RequestCall::unlimited(), &shop, proxied, None).await.unwrap_err();
    assert_eq!((error.code(), fleet.take_sent_count()), ("upstream-broken", 1));
}

#[tokio::test(start_paused = true)]
async fn records_a_retried_call_once() {
    let fleet = Arc::new(SimulatedFleet::default());
    fleet.set_behaviour(&[1, 2, 3], EndpointBehaviour::Break);
    let (services, shop) = fleet.shop(&THREE_TARGETS, |_| ());
    let call = call(1, u64::MAX, 1);
    assert!(services.send(&call, &shop, request("GET", "/")).await.is_err());
    let records = call.budget.call_records();
    assert_eq!(
        (records.len(), records[0].retry_times.len(), records[0].outcome),
        (1, 2, UpstreamCallOutcome::NoAnswer)
    );
    assert_eq!((stats(&services).requests, stats(&services).failures, stats(&services).retries), (1, 1, 2));
}

#[tokio::test(start_paused = true)]
async fn a_refused_connection_is_recorded_as_not_sent() {
    let fleet = Arc::new(SimulatedFleet::default());
    fleet.set_behaviour(&[1, 2, 3], EndpointBehaviour::Refuse);
    let (services, shop) = fleet.shop(&THREE_TARGETS, |_| ());
    let call = call(1, u64::MAX, 1);
    let error = services.send(&call, &shop, request("POST", "/")).await.unwrap_err();
    assert_eq!(
        (error.code(), call.budget.call_records()[0].outcome),
        ("upstream-unreachable", UpstreamCallOutcome::NotSent)
    );
}

#[tokio::test(start_paused = true)]
async fn retries_stay_within_their_budget_if_all_endpoints_fail() {
    let fleet = Arc::new(SimulatedFleet::default());
    fleet.set_behaviour(&[1, 2, 3], EndpointBehaviour::Answer(503));
    let (services, shop) = fleet.shop(&THREE_TARGETS, |config| config.retries.budget = PercentConfig(10));
    for _ in 0..1_000 {
        assert_eq!(send_request(&services, &shop, "GET").await, "503");
    }
    let stats = stats(&services);
    assert_eq!(fleet.take_sent_count() as u64, 1_000 + stats.retries);
    assert!(stats.retries <= 100 + 30 && stats.retries_refused > 0, "{}", stats.retries);
}

#[tokio::test(start_paused = true)]
async fn retries_can_be_switched_off() {
    let fleet = Arc::new(SimulatedFleet::default());
    fleet.set_behaviour(&[1, 2, 3], EndpointBehaviour::Break);
    let (services, shop) = fleet.shop(&THREE_TARGETS, |config| config.retries.attempts = 0);
    assert_eq!(send_request(&services, &shop, "GET").await, "upstream-broken");
    assert_eq!(fleet.take_sent_count(), 1);
}

#[tokio::test(start_paused = true)]
async fn does_not_retry_after_the_timeout() {
    let fleet = Arc::new(SimulatedFleet::default());
    fleet.set_behaviour(&[1, 2, 3], EndpointBehaviour::Hang);
    let (services, shop) = fleet.shop(&THREE_TARGETS, |config| {
        config.timeout = DurationConfig::from_millis(2_500);
        config.first_byte_timeout = Some(DurationConfig::from_secs(2));
    });
    let begun = tokio::time::Instant::now();
    assert_eq!(send_request(&services, &shop, "GET").await, "upstream-timeout");
    assert_eq!((begun.elapsed(), fleet.take_sent_count()), (Duration::from_millis(2_500), 2));
}

#[tokio::test(start_paused = true)]
async fn prefers_the_endpoint_with_the_fewest_requests_in_flight() {
    let fleet = Arc::new(SimulatedFleet::default());
    fleet.set_behaviour(&[1], EndpointBehaviour::Hang);
    let (services, shop) = fleet.shop(&THREE_TARGETS, |_| ());
    let call = RequestCall::unlimited();
    // Two requests hang at the first endpoint, so all others alternate between the remaining endpoints.
    let hanging: Vec<_> =
        (0..4).map(|_| tokio::spawn(services.send(&call, &shop, request("GET", "/")))).collect();
    tokio::task::yield_now().await;
    let before = endpoint(&services, 1);
    assert!(before.outstanding > 0);
    for _ in 0..20 {
        send_request(&services, &shop, "GET").await;
    }
    assert_eq!(endpoint(&services, 1).requests, before.requests);
    let (second, third) = (endpoint(&services, 2).requests, endpoint(&services, 3).requests);
    assert!(second.abs_diff(third) <= 1, "{second}, {third}");
    hanging.iter().for_each(tokio::task::JoinHandle::abort);
    join_all(hanging).await;
    assert_eq!(endpoint(&services, 1).outstanding, 0);
}

#[tokio::test(start_paused = true)]
async fn a_streamed_response_is_in_flight_until_its_end() {
    let fleet = Arc::new(SimulatedFleet::default());
    fleet.set_behaviour(&[1], EndpointBehaviour::Stall);
    let (services, shop) = fleet.shop(&THREE_TARGETS[..1], |_| ());
    let proxied = http::Request::get("/").body(empty()).unwrap();
    let answer = services.forward(&RequestCall::unlimited(), &shop, proxied, None).await.unwrap();
    assert_eq!(endpoint(&services, 1).outstanding, 1);
    drop(answer);
    assert_eq!(endpoint(&services, 1).outstanding, 0);
}

#[tokio::test(start_paused = true)]
async fn distributes_requests_evenly_over_many_endpoints() {
    let fleet = Arc::new(SimulatedFleet::default());
    let urls: Vec<String> = (1..=20).map(|port| format!("http://10.0.0.1:{port}")).collect();
    let urls: Vec<&str> = urls.iter().map(String::as_str).collect();
    let (services, shop) = fleet.shop(&urls, |_| ());
    fleet.set_behaviour(&(1..=20).collect::<Vec<_>>(), EndpointBehaviour::Wait(10));
    fleet.set_behaviour(&[7], EndpointBehaviour::Refuse);
    for _ in 0..50 {
        let answers = join_all((0..40).map(|_| send_request(&services, &shop, "GET"))).await;
        assert!(answers.iter().all(|answer| answer == "200"));
    }
    for endpoint in stats(&services).endpoints.iter().filter(|endpoint| endpoint.failures == 0) {
        assert!((50..=200).contains(&endpoint.requests), "{endpoint:?}");
    }
}
