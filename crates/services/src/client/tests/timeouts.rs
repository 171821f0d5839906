//! Timeouts and their error messages.

use std::time::Duration;

use http_body_util::BodyExt;
use tokio::time::Instant;

use super::fleet::{EndpointBehaviour, SimulatedFleet, THREE_TARGETS};
use super::*;
use crate::body::{BodyError, StreamedServiceBody, empty};

/// Returns the error of a request, and the time until then.
async fn measure_error(
    does: EndpointBehaviour,
    body: StreamedServiceBody,
    change: impl FnOnce(&mut ServiceConfig),
) -> (CallError, Duration) {
    let fleet = Arc::new(SimulatedFleet::default());
    fleet.set_behaviour(&[1], does);
    let (services, shop) = fleet.shop(&THREE_TARGETS[..1], change);
    let begun = Instant::now();
    let message = http::Request::post("/").body(body).unwrap();
    let error = services.forward(&RequestCall::unlimited(), &shop, message, None).await.unwrap_err();
    (error, begun.elapsed())
}

#[tokio::test(start_paused = true)]
async fn errors_name_the_expired_timeout() {
    let (error, took) = measure_error(EndpointBehaviour::Hang, empty(), |_| ()).await;
    assert_eq!(error.to_string(), "the service `shop` did not answer within 10s (the service's `timeout`)");
    assert_eq!(
        (error.code(), error.status().as_u16(), took),
        ("upstream-timeout", 504, Duration::from_secs(10))
    );
    let first = |config: &mut ServiceConfig| config.first_byte_timeout = Some(DurationConfig::from_secs(2));
    let (error, took) = measure_error(EndpointBehaviour::Hang, empty(), first).await;
    let told = "the service `shop` did not begin its answer within 2s (its `first_byte_timeout`)";
    assert_eq!((error.to_string().as_str(), took), (told, Duration::from_secs(2)));
}

#[tokio::test(start_paused = true)]
async fn a_stalled_response_ends_at_the_idle_timeout() {
    let fleet = Arc::new(SimulatedFleet::default());
    fleet.set_behaviour(&[1], EndpointBehaviour::Stall);
    let (services, shop) =
        fleet.shop(&THREE_TARGETS[..1], |config| config.idle_timeout = DurationConfig::from_secs(3));
    let begun = Instant::now();
    let message = http::Request::get("/").body(empty()).unwrap();
    let mut answer = services.forward(&RequestCall::unlimited(), &shop, message, None).await.unwrap();
    assert!(answer.body_mut().frame().await.unwrap().is_ok());
    let error = answer.body_mut().frame().await.unwrap().unwrap_err();
    assert_eq!(error.to_string(), "the response stalled for 3s (the service's `idle_timeout`)");
    assert_eq!(begun.elapsed(), Duration::from_secs(3));
    let error = services.send(&RequestCall::unlimited(), &shop, request("GET", "/")).await.unwrap_err();
    assert_eq!(error.to_string(), "the service `shop` made no progress for 3s (its `idle_timeout`)");
}

/// Returns a body that sends one piece per second, `pieces` in total.
fn paced_body(pieces: u64) -> (StreamedServiceBody, tokio::task::JoinHandle<()>) {
    let (mut sender, body) = http_body_util::channel::Channel::<bytes::Bytes, BodyError>::new(1);
    let task = tokio::spawn(async move {
        for _ in 0..pieces {
            tokio::time::sleep(Duration::from_secs(1)).await;
            let _ = sender.send_data("piece".into()).await;
        }
    });
    (body.boxed_unsync(), task)
}

#[tokio::test(start_paused = true)]
async fn upload_time_does_not_count_as_response_time() {
    let fleet = Arc::new(SimulatedFleet::default());
    let (services, shop) =
        fleet.shop(&THREE_TARGETS[..1], |config| config.idle_timeout = DurationConfig::from_secs(5));
    let message = http::Request::post("/").body(paced_body(30).0).unwrap();
    let answer = services.forward(&RequestCall::unlimited(), &shop, message, None).await.unwrap();
    assert_eq!(answer.into_body().collect().await.unwrap().to_bytes().len(), 150);
    // The service's timeout starts when it has the complete request.
    let (error, took) = measure_error(EndpointBehaviour::Hang, paced_body(30).0, |_| ()).await;
    assert_eq!((error.code(), took), ("upstream-timeout", Duration::from_secs(40)));
}

#[tokio::test(start_paused = true)]
async fn a_client_that_stops_sending_is_not_the_services_fault() {
    let (sender, body) = http_body_util::channel::Channel::<bytes::Bytes, BodyError>::new(1);
    let idle = |config: &mut ServiceConfig| config.idle_timeout = DurationConfig::from_secs(5);
    let (error, took) = measure_error(EndpointBehaviour::Answer(200), body.boxed_unsync(), idle).await;
    assert_eq!(
        (error.code(), error.status().as_u16(), error.fault()),
        ("body-timeout", 408, FaultParty::Client)
    );
    assert_eq!(took, Duration::from_secs(5));
    drop(sender);
}
