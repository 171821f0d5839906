//! Tests of the order of a request's phases, and of their list in ARCHITECTURE.md.

use http::StatusCode;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::filters::ModuleFolder;
use super::fixture::{GatewayFixture, get, post};
use crate::{CompletedRequest, RequestPhase};

const ARCHITECTURE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../ARCHITECTURE.md");

const CONFIG: &str = "
runtime: { instances: 2 }
services: { echo: { url: 'http://UPSTREAM' } }
routes:
  - { path: '/echo/*', proxy: echo }
  - { path: '/open/*', proxy: echo, cors: { origins: ['https://shop.example.org'] } }
  - { path: /query, query: { services: [echo], limits: { cpu: 1s, timeout: 30s } } }
";

/// The names of the phases in the numbered list of "The life of a request".
fn documented_phases() -> Vec<String> {
    let text = std::fs::read_to_string(ARCHITECTURE).unwrap();
    let (_, section) = text.split_once("\n## The life of a request\n").unwrap();
    let (section, _) = section.split_once("\n## ").unwrap();
    let mut names = Vec::new();
    for line in section.lines() {
        if let Some(rest) = line.strip_prefix(&format!("{}. **", names.len() + 1)) {
            names.push(rest.split_once("**").unwrap().0.to_owned());
        }
    }
    names
}

/// Returns the documented phases without some of them.
fn phases_without(skipped: &[&str]) -> Vec<String> {
    let phases = documented_phases();
    assert!(skipped.iter().all(|name| phases.iter().any(|phase| phase == name)), "{skipped:?} of {phases:?}");
    phases.into_iter().filter(|phase| !skipped.contains(&phase.as_str())).collect()
}

/// Returns a gateway, and the requests that it has completed.
async fn observed_gateway(config: &str) -> (GatewayFixture, UnboundedReceiver<CompletedRequest>) {
    let (sender, receiver) = unbounded_channel();
    let fixture = GatewayFixture::with_observer(config, move |request| drop(sender.send(request))).await;
    (fixture, receiver)
}

/// Returns the status and the phases of the next completed request.
async fn next_phases(requests: &mut UnboundedReceiver<CompletedRequest>) -> (u16, Vec<String>) {
    let request = requests.recv().await.unwrap();
    let phases = request.phases.iter().map(|phase| phase.name().to_owned());
    (request.status.as_u16(), phases.collect())
}

#[test]
fn documents_the_phases_in_order() {
    assert_eq!(documented_phases(), RequestPhase::ALL.map(RequestPhase::name));
}

#[tokio::test]
async fn requests_pass_through_the_phases_in_the_documented_order() {
    let (fixture, mut requests) = observed_gateway(&format!("shed: {{ automatic: false }}\n{CONFIG}")).await;
    fixture.send_request(get("/echo/a")).await;
    assert_eq!(next_phases(&mut requests).await, (200, phases_without(&["filter"])));
    let mut query = post("/query", "export default () => 1");
    query.headers_mut().insert("content-type", "text/javascript".parse().unwrap());
    fixture.send_request(query).await;
    assert_eq!(next_phases(&mut requests).await, (200, phases_without(&["filter"])));
}

#[tokio::test]
async fn filters_run_around_the_handler() {
    let modules = ModuleFolder::new(&[("passes", "")]);
    let (fixture, mut requests) = observed_gateway(&modules.proxy_config(&[("passes", "")])).await;
    fixture.send_request(get("/echo/a")).await;
    assert_eq!(next_phases(&mut requests).await, (200, documented_phases()));
}

#[tokio::test]
async fn refused_requests_skip_the_phases_up_to_their_response() {
    let (fixture, mut requests) = observed_gateway(&format!("shed: {{ automatic: false }}\n{CONFIG}")).await;
    let unidentified = ["identify", "authorise", "filter", "handle"];
    fixture.send_request(get("/nowhere")).await;
    let unrouted = phases_without(&[&["validate"], &unidentified[..]].concat());
    assert_eq!(next_phases(&mut requests).await, (404, unrouted));
    let mut preflight = get("/open/a");
    *preflight.method_mut() = http::Method::OPTIONS;
    preflight.headers_mut().insert("origin", "https://shop.example.org".parse().unwrap());
    preflight.headers_mut().insert("access-control-request-method", "PUT".parse().unwrap());
    fixture.send_request(preflight).await;
    assert_eq!(next_phases(&mut requests).await, (204, phases_without(&unidentified)));
}

#[tokio::test]
async fn anonymous_requests_are_refused_before_the_filters() {
    let key = "sha256:5e884898da28047151d0e56f8dc6292773603d0d6aabbdd62a11ef721d1542d8";
    let config = format!(
        "
shed: {{ automatic: false }}
callers: {{ batch: {{ key: '{key}' }} }}
services: {{ echo: {{ url: 'http://UPSTREAM' }} }}
routes: [{{ path: '/echo/*', proxy: echo }}]
"
    );
    let (fixture, mut requests) = observed_gateway(&config).await;
    fixture.send_request(get("/echo/a")).await;
    assert_eq!(next_phases(&mut requests).await, (401, phases_without(&["filter", "handle"])));
}

#[tokio::test]
async fn overloaded_gateways_refuse_requests_before_the_work_of_their_route() {
    let (fixture, mut requests) =
        observed_gateway(&format!("shed: {{ automatic: false, max_in_flight: 1 }}\n{CONFIG}")).await;
    let taken = tokio::spawn(fixture.send_detached(get("/echo/wait")));
    fixture.upstream.wait_until_arrived().await;
    fixture.send_request(get("/echo/a")).await;
    let skipped = ["validate", "identify", "authorise", "filter", "handle"];
    assert_eq!(next_phases(&mut requests).await, (503, phases_without(&skipped)));
    fixture.upstream.release();
    assert_eq!(taken.await.unwrap().status(), StatusCode::OK);
}
