//! Outlier ejection and health checks.

use std::time::Duration;

use http_body_util::BodyExt;

use super::fleet::{EndpointBehaviour, SimulatedFleet, THREE_TARGETS, config, endpoint, send_request};
use super::*;
use crate::config::{HealthConfig, StatusRange};

fn enable_health_checks(config: &mut ServiceConfig) {
    config.health = Some(HealthConfig {
        path: "/healthz".into(),
        interval: DurationConfig::from_secs(5),
        timeout: DurationConfig::from_secs(1),
        status: StatusRange::default(),
        healthy_threshold: 2,
        unhealthy_threshold: 3,
    });
}

#[tokio::test(start_paused = true)]
async fn ejects_a_failing_endpoint_with_growing_pauses() {
    let fleet = Arc::new(SimulatedFleet::default());
    fleet.set_behaviour(&[2], EndpointBehaviour::Break);
    let (services, shop) = fleet.shop(&THREE_TARGETS, |_| ());
    let mut gaps = Vec::new();
    let mut last = tokio::time::Instant::now();
    for _ in 0..4_000 {
        assert_eq!(send_request(&services, &shop, "GET").await, "200");
        if !fleet.take_sent(2).is_empty() {
            gaps.push(last.elapsed().as_millis());
            last = tokio::time::Instant::now();
        }
        tokio::time::advance(Duration::from_millis(50)).await;
    }
    // Three failures in a row, then a probe after each pause: 1 s, 2 s, 4 s to 30 s, less up to a quarter.
    let pauses = &gaps[3..];
    for (pause, (least, most)) in pauses.iter().zip([(750, 1_100), (1_500, 2_100), (3_000, 4_100)]) {
        assert!((least..=most).contains(pause), "{pauses:?}");
    }
    assert!(
        pauses.len() > 8 && pauses[6..].iter().all(|pause| (22_500..=30_100).contains(pause)),
        "{pauses:?}"
    );
    fleet.set_behaviour(&[2], EndpointBehaviour::Answer(200));
    // A pause of 30 s may have begun just now; afterwards the endpoint gets a third of the requests.
    for _ in 0..1_600 {
        send_request(&services, &shop, "GET").await;
        tokio::time::advance(Duration::from_millis(50)).await;
    }
    assert!(endpoint(&services, 2).healthy && fleet.take_sent(2).len() > 100);
}

#[tokio::test(start_paused = true)]
async fn probes_an_ejected_endpoint_with_a_single_request() {
    let fleet = Arc::new(SimulatedFleet::default());
    fleet.set_behaviour(&[2], EndpointBehaviour::Break);
    let (services, shop) = fleet.shop(&THREE_TARGETS, |_| ());
    while endpoint(&services, 2).healthy {
        send_request(&services, &shop, "GET").await;
    }
    fleet.set_behaviour(&[2], EndpointBehaviour::Hang);
    fleet.take_sent_count();
    tokio::time::advance(Duration::from_secs(1)).await;
    let call = RequestCall::unlimited();
    let asked: Vec<_> =
        (0..30).map(|_| tokio::spawn(services.send(&call, &shop, request("GET", "/")))).collect();
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert_eq!(fleet.take_sent(2).len(), 1);
    asked.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test(start_paused = true)]
async fn tries_all_endpoints_if_all_are_ejected() {
    let fleet = Arc::new(SimulatedFleet::default());
    fleet.set_behaviour(&[1, 2, 3], EndpointBehaviour::Answer(503));
    let (services, shop) = fleet.shop(&THREE_TARGETS, |_| ());
    for _ in 0..9 {
        assert_eq!(send_request(&services, &shop, "POST").await, "503");
    }
    assert!((1..=3).all(|port| !endpoint(&services, port).healthy));
    fleet.set_behaviour(&[1, 2, 3], EndpointBehaviour::Answer(200));
    // No pause is over, but no request is rejected. The first good response restores its endpoint.
    for _ in 0..9 {
        assert_eq!(send_request(&services, &shop, "POST").await, "200");
    }
    assert!((1..=3).any(|port| endpoint(&services, port).healthy));
}

#[tokio::test(start_paused = true)]
async fn sends_nothing_to_ejected_endpoints_while_another_is_busy() {
    let fleet = Arc::new(SimulatedFleet::default());
    fleet.set_behaviour(&[1, 2], EndpointBehaviour::Break);
    let (services, shop) = fleet.shop(&THREE_TARGETS, |_| ());
    while [1, 2].iter().any(|port| endpoint(&services, *port).healthy) {
        send_request(&services, &shop, "POST").await;
    }
    fleet.set_behaviour(&[3], EndpointBehaviour::Hang);
    fleet.take_sent_count();
    let call = RequestCall::unlimited();
    let asked: Vec<_> =
        (0..9).map(|_| tokio::spawn(services.send(&call, &shop, request("POST", "/")))).collect();
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    // No pause is over.
    assert_eq!((fleet.take_sent(3).len(), fleet.take_sent_count()), (9, 0));
    asked.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test(start_paused = true)]
async fn always_tries_the_only_endpoint() {
    let fleet = Arc::new(SimulatedFleet::default());
    fleet.set_behaviour(&[1], EndpointBehaviour::Refuse);
    let (services, shop) = fleet.shop(&THREE_TARGETS[..1], |_| ());
    for _ in 0..9 {
        assert_eq!(send_request(&services, &shop, "GET").await, "upstream-unreachable");
    }
    fleet.set_behaviour(&[1], EndpointBehaviour::Answer(200));
    assert_eq!(send_request(&services, &shop, "GET").await, "200");
    assert!(endpoint(&services, 1).healthy);
}

#[tokio::test(start_paused = true)]
async fn occasional_500_responses_do_not_eject_an_endpoint() {
    let fleet = Arc::new(SimulatedFleet::default());
    let (services, shop) = fleet.shop(&THREE_TARGETS[..1], |_| ());
    for round in 0..200 {
        fleet.set_behaviour(&[1], EndpointBehaviour::Answer(if round % 3 == 0 { 500 } else { 404 }));
        send_request(&services, &shop, "POST").await;
        assert!(endpoint(&services, 1).healthy, "{round}");
    }
}

/// A way in which a client breaks its own request.
#[derive(Clone, Copy, Debug)]
enum ClientFault {
    BreaksOff,
    StopsSending,
    Leaves,
}

/// Returns half a body, followed by the fault.
fn faulty_body(fault: ClientFault) -> crate::body::StreamedServiceBody {
    use futures_util::{StreamExt, stream};
    let half = stream::iter([Ok(http_body::Frame::data(bytes::Bytes::from("half")))]);
    let end: futures_util::stream::BoxStream<'static, _> = match fault {
        ClientFault::BreaksOff => stream::iter([Err("broken off".into())]).boxed(),
        ClientFault::StopsSending | ClientFault::Leaves => stream::pending().boxed(),
    };
    http_body_util::BodyExt::boxed_unsync(http_body_util::StreamBody::new(half.chain(end)))
}

/// Forwards a request with this body.
async fn upload(
    services: &ServiceSet,
    shop: &Arc<UpstreamService>,
    body: crate::body::StreamedServiceBody,
) -> Result<http::Response<crate::body::StreamedServiceBody>, CallError> {
    let message = http::Request::post("/").body(body).unwrap();
    services.forward(&RequestCall::unlimited(), shop, message, None).await
}

#[tokio::test(start_paused = true)]
async fn client_faults_do_not_count_against_a_service() {
    use ClientFault::{BreaksOff, Leaves, StopsSending};
    let fleet = Arc::new(SimulatedFleet::default());
    let (services, shop) =
        fleet.shop(&THREE_TARGETS[..1], |config| config.idle_timeout = DurationConfig::from_secs(5));
    for fault in [BreaksOff, StopsSending, Leaves] {
        for _ in 0..10 {
            let asked =
                tokio::time::timeout(Duration::from_secs(9), upload(&services, &shop, faulty_body(fault)));
            let patience =
                if matches!(fault, Leaves) { Duration::from_secs(1) } else { Duration::from_secs(8) };
            let code = match tokio::time::timeout(patience, asked).await {
                Err(_) => "",
                Ok(answer) => answer.unwrap().unwrap_err().code(),
            };
            let expected = match fault {
                BreaksOff => "upstream-broken",
                StopsSending => "body-timeout",
                Leaves => "",
            };
            assert_eq!(code, expected, "{fault:?}");
        }
        let (endpoint, service) = (endpoint(&services, 1), fleet::stats(&services));
        assert_eq!((endpoint.failures, endpoint.ejections, endpoint.outstanding), (0, 0, 0), "{fault:?}");
        assert!(endpoint.healthy, "{fault:?}");
        assert_eq!(service.failures, 0, "{fault:?}");
    }
}

/// Checks that nothing counts as a failure of the first endpoint.
fn assert_faultless(services: &ServiceSet) {
    let endpoint = endpoint(services, 1);
    assert_eq!((endpoint.failures, endpoint.ejections, endpoint.outstanding), (0, 0, 0));
    assert_eq!(fleet::stats(services).failures, 0);
}

#[tokio::test(start_paused = true)]
async fn pauses_of_an_upload_during_the_response_do_not_count_against_a_service() {
    let fleet = Arc::new(SimulatedFleet::default());
    fleet.set_behaviour(&[1], EndpointBehaviour::Echo);
    let (services, shop) =
        fleet.shop(&THREE_TARGETS[..1], |config| config.idle_timeout = DurationConfig::from_secs(5));
    for _ in 0..10 {
        let answer = upload(&services, &shop, faulty_body(ClientFault::StopsSending)).await.unwrap();
        let error = answer.into_body().collect().await.unwrap_err();
        assert!(matches!(error.downcast_ref(), Some(CallError::Stalled { .. })), "{error}");
    }
    assert_faultless(&services);
}

#[tokio::test(start_paused = true)]
async fn read_timeouts_of_a_service_do_not_count_against_it_during_a_slow_upload() {
    let fleet = Arc::new(SimulatedFleet::default());
    let (services, shop) = fleet.shop(&THREE_TARGETS[..1], |_| ());
    let fails = async || {
        let error = upload(&services, &shop, faulty_body(ClientFault::StopsSending)).await.unwrap_err();
        assert_eq!(error.code(), "upstream-broken");
    };
    fleet.set_behaviour(&[1], EndpointBehaviour::GiveUp(2_000));
    for _ in 0..10 {
        fails().await;
    }
    assert_faultless(&services);
    fleet.set_behaviour(&[1], EndpointBehaviour::GiveUp(20));
    fails().await;
    assert_eq!((endpoint(&services, 1).failures, fleet::stats(&services).failures), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn error_responses_to_incomplete_uploads_do_not_count_against_a_service() {
    use ClientFault::{BreaksOff, StopsSending};
    let fleet = Arc::new(SimulatedFleet::default());
    let (services, shop) = fleet.shop(&THREE_TARGETS[..1], |_| ());
    let fails = async |fault: ClientFault, millis: u64, status: u16| {
        fleet.set_behaviour(&[1], EndpointBehaviour::Reject(millis, status));
        let answer = upload(&services, &shop, faulty_body(fault)).await.unwrap();
        assert_eq!(answer.status(), status);
    };
    for status in [500, 502, 503, 504] {
        for _ in 0..10 {
            fails(StopsSending, 2_000, status).await;
            fails(BreaksOff, 2_000, status).await;
        }
        assert_faultless(&services);
    }
    fails(StopsSending, 20, 503).await;
    assert_eq!((endpoint(&services, 1).failures, fleet::stats(&services).failures), (1, 1));
}

/// Returns a body that never ends, with 0.9 seconds between a read and the next byte.
fn trickling_body() -> crate::body::StreamedServiceBody {
    let bytes = futures_util::stream::unfold((), |()| async {
        tokio::time::sleep(Duration::from_millis(900)).await;
        Some((Ok(http_body::Frame::data(bytes::Bytes::from("x"))), ()))
    });
    http_body_util::BodyExt::boxed_unsync(http_body_util::StreamBody::new(bytes))
}

#[tokio::test(start_paused = true)]
async fn error_responses_to_trickling_uploads_do_not_count_against_a_service() {
    let fleet = Arc::new(SimulatedFleet::default());
    let (services, shop) = fleet.shop(&THREE_TARGETS[..1], |_| ());
    for status in [500, 503] {
        fleet.set_behaviour(&[1], EndpointBehaviour::Reject(2_500, status));
        for _ in 0..10 {
            let answer = upload(&services, &shop, trickling_body()).await.unwrap();
            assert_eq!(answer.status(), status);
        }
    }
    assert_faultless(&services);
}

#[tokio::test(start_paused = true)]
async fn error_responses_to_uploads_that_seldom_wait_count_against_a_service() {
    let fleet = Arc::new(SimulatedFleet::default());
    let (services, shop) = fleet.shop(&THREE_TARGETS[..1], |_| ());
    for status in [500, 503] {
        // It waits for the service six seconds, and the service for it two.
        fleet.set_behaviour(&[1], EndpointBehaviour::RejectSlowly(8_000, status));
        let answer = upload(&services, &shop, trickling_body()).await.unwrap();
        assert_eq!(answer.status(), status);
    }
    assert_eq!((endpoint(&services, 1).failures, fleet::stats(&services).failures), (2, 2));
}

#[tokio::test(start_paused = true)]
async fn broken_responses_to_slow_readers_do_not_count_against_a_service() {
    let fleet = Arc::new(SimulatedFleet::default());
    fleet.set_behaviour(&[1], EndpointBehaviour::Cut);
    let (services, shop) = fleet.shop(&THREE_TARGETS[..1], |_| ());
    let reads = async |pause: Duration| {
        let message = http::Request::get("/").body(crate::body::empty()).unwrap();
        let mut body =
            services.forward(&RequestCall::unlimited(), &shop, message, None).await.unwrap().into_body();
        assert!(body.frame().await.is_some_and(|frame| frame.is_ok()));
        tokio::time::advance(pause).await;
        assert!(body.frame().await.is_some_and(|frame| frame.is_err()));
    };
    for _ in 0..10 {
        reads(Duration::from_secs(2)).await;
    }
    assert_faultless(&services);
    reads(Duration::ZERO).await;
    assert_eq!(endpoint(&services, 1).failures, 1);
}

#[tokio::test(start_paused = true)]
async fn health_checks_eject_and_restore_an_endpoint() {
    let fleet = Arc::new(SimulatedFleet::default());
    let (services, shop) = fleet.shop(&THREE_TARGETS, enable_health_checks);
    services.start_health_checks();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(fleet.take_sent(1), ["GET /healthz"]);
    fleet.set_behaviour(&[1], EndpointBehaviour::Answer(404));
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert!(endpoint(&services, 1).healthy, "two failed checks are not enough");
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(!endpoint(&services, 1).healthy);
    fleet.take_sent_count();
    for _ in 0..9 {
        send_request(&services, &shop, "GET").await;
    }
    assert_eq!(fleet.take_sent(1).len(), 0);
    fleet.set_behaviour(&[1], EndpointBehaviour::Answer(204));
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert!(endpoint(&services, 1).healthy);
    for silent in [
        EndpointBehaviour::Hang,
        EndpointBehaviour::Stall,
        EndpointBehaviour::Refuse,
        EndpointBehaviour::Break,
    ] {
        fleet.set_behaviour(&[1], silent);
        tokio::time::sleep(Duration::from_secs(20)).await;
        assert!(!endpoint(&services, 1).healthy, "{silent:?}");
        fleet.set_behaviour(&[1], EndpointBehaviour::Answer(200));
        tokio::time::sleep(Duration::from_secs(15)).await;
        assert!(endpoint(&services, 1).healthy, "{silent:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn health_checks_end_with_the_services_or_their_config() {
    let fleet = Arc::new(SimulatedFleet::default());
    let (services, shop) = fleet.shop(&THREE_TARGETS, enable_health_checks);
    services.start_health_checks();
    fleet.set_behaviour(&[1], EndpointBehaviour::Answer(500));
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert!(!endpoint(&services, 1).healthy);
    let same = services.reload(&config(&THREE_TARGETS, enable_health_checks), Path::new("")).unwrap();
    assert!(!endpoint(&same, 1).healthy, "a reload keeps the state");
    let without = same.reload(&config(&THREE_TARGETS, |_| ()), Path::new("")).unwrap();
    without.start_health_checks();
    fleet.take_sent_count();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(fleet.take_sent_count(), 0);
    assert!(endpoint(&without, 1).healthy, "without checks, nothing else would restore it");
    let set = without.reload(&config(&THREE_TARGETS, enable_health_checks), Path::new("")).unwrap();
    set.start_health_checks();
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert_eq!(fleet.take_sent_count(), 6);
    drop((services, same, without, set, shop));
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(fleet.take_sent_count(), 0);
}
