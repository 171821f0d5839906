//! Tests of behaviour that clients and operators rely on, over real sockets: the gateway in front of a
//! service that echoes.

mod drain;
mod faults;
mod filters;
mod fixture;
pub(crate) mod frames;
mod fuzz;
mod limits;
mod phases;
mod proxy;
mod reload;
mod shed;
mod wire;

use http::{Method, Request, StatusCode, header};
use serde_json::Value;

use fixture::{GatewayFixture, get, post};

const CONFIG: &str = "
services: { echo: { url: 'http://UPSTREAM' }, gone: { url: 'http://127.0.0.1:1' } }
routes:
  - { path: '/echo/*', proxy: echo, limits: { request_body: 1KiB } }
  - { path: /exact, proxy: echo }
  - { path: '/whole/*', proxy: { service: echo, keep_prefix: true } }
  - { path: '/gone/*', proxy: gone }
  - { path: '/open/*', proxy: echo, cors: { origins: ['https://shop.example.org', 'http://localhost:*'], max_age: 1h } }
";

#[tokio::test]
async fn the_route_determines_the_path_that_the_service_receives() {
    let fixture = GatewayFixture::new(CONFIG).await;
    for (asked, seen) in [
        ("/echo/a/b?c=d", "/a/b?c=d"),
        ("/echo/", "/"),
        ("/echo/?x", "/?x"),
        ("/exact?x=1", "/exact?x=1"),
        ("/whole/a", "/whole/a"),
    ] {
        let answer = fixture.send_request(get(asked)).await;
        assert_eq!(
            (answer.status(), answer.json()["path"].as_str()),
            (StatusCode::OK, Some(seen)),
            "{asked}"
        );
    }
}

#[tokio::test]
async fn a_path_without_a_route_is_a_problem_document() {
    let fixture = GatewayFixture::new(CONFIG).await;
    for path in ["/", "/echo", "/exact/", "/exact/x", "/nowhere"] {
        let answer = fixture.send_request(get(path)).await;
        assert_eq!(answer.status(), StatusCode::NOT_FOUND, "{path}");
        assert_eq!(answer.header("content-type"), "application/problem+json");
        let document = answer.json();
        assert_eq!(document["type"], "urn:orfa:error:route-not-found");
        assert_eq!(document["title"], "Route not found");
        assert_eq!(document["code"], "route-not-found");
        assert_eq!(document["status"], 404);
        assert!(document["detail"].as_str().is_some_and(|detail| detail.contains(path)));
    }
}

#[tokio::test]
async fn serves_both_versions_of_http_on_one_port() {
    let fixture = GatewayFixture::new(CONFIG).await;
    assert_eq!(fixture.send_request(get("/echo/one")).await.json()["path"], "/one");
    assert_eq!(fixture.send_http2(get("/echo/two")).await.json()["path"], "/two");
    let sent = fixture.send_http2(post("/echo/three", "a body")).await;
    assert_eq!(
        (sent.json()["method"].as_str(), sent.json()["body"].as_str()),
        (Some("POST"), Some("a body"))
    );
}

#[tokio::test]
async fn refuses_bodies_over_the_limit() {
    let gateway_fixture = GatewayFixture::new(CONFIG).await;
    let large = "x".repeat(2000);
    for chunked in [false, true] {
        let mut request = post("/echo/x", &large);
        if chunked {
            *request.body_mut() = fixture::chunked_body(&large);
        }
        let answer = gateway_fixture.send_request(request).await;
        assert_eq!(answer.status(), StatusCode::PAYLOAD_TOO_LARGE, "chunked: {chunked}");
        assert_eq!(answer.json()["code"], "body-too-large");
    }
}

#[tokio::test]
async fn reports_an_unreachable_service_as_its_fault() {
    let fixture = GatewayFixture::new(CONFIG).await;
    let answer = fixture.send_request(get("/gone/x")).await;
    assert_eq!(answer.status(), StatusCode::BAD_GATEWAY);
    assert!(answer.json()["detail"].as_str().is_some_and(|detail| detail.contains("gone")));
}

#[tokio::test]
async fn refuses_requests_in_a_loop_of_gateways() {
    let mut request = get("/echo/x");
    request.headers_mut().insert("cdn-loop", ["orfa"; 9].join(", ").parse().unwrap());
    let answer = GatewayFixture::new(CONFIG).await.send_request(request).await;
    assert_eq!(answer.status(), StatusCode::LOOP_DETECTED);
}

#[tokio::test]
async fn refuses_connect_and_trace() {
    let mut request = get("/echo/x");
    *request.method_mut() = Method::TRACE;
    let answer = GatewayFixture::new(CONFIG).await.send_request(request).await;
    assert_eq!(answer.status(), StatusCode::METHOD_NOT_ALLOWED);
    assert!(answer.header("allow").contains("QUERY"));
}

fn from_page(
    mut request: Request<services::StreamedServiceBody>,
    origin: &str,
) -> Request<services::StreamedServiceBody> {
    request.headers_mut().insert(header::ORIGIN, origin.parse().unwrap());
    request
}

#[tokio::test]
async fn allowed_origins_can_read_responses_and_errors() {
    let fixture = GatewayFixture::new(CONFIG).await;
    for origin in ["https://shop.example.org", "http://localhost:5173", "http://localhost"] {
        let answer = fixture.send_request(from_page(get("/open/x"), origin)).await;
        assert_eq!(answer.header("access-control-allow-origin"), origin);
        assert!(answer.header("access-control-expose-headers").contains("server-timing"));
        assert_eq!(answer.header("vary"), "origin");
    }
    let error = fixture.send_request(from_page(post("/open/x", &"x".repeat(70)), "http://localhost:1")).await;
    assert_eq!(error.header("access-control-allow-origin"), "http://localhost:1");
    for origin in ["https://shop.example.org.evil.example", "http://localhost.evil:80", "null"] {
        let answer = fixture.send_request(from_page(get("/open/x"), origin)).await;
        assert_eq!((answer.header("access-control-allow-origin"), answer.header("vary")), ("", "origin"));
    }
}

#[tokio::test]
async fn errors_have_the_same_cors_headers_as_responses() {
    let origin = "https://shop.example.org";
    let text = "
services: { gone: { url: 'http://127.0.0.1:1' }, echo: { url: 'http://UPSTREAM' } }
cors: { origins: ['https://shop.example.org'], expose: [x-total] }
routes:
  - { path: /gone, proxy: gone }
  - { path: /query, query: { services: [gone] } }
  - { path: /small, proxy: echo, limits: { request_body: 1B } }
  - { path: /shut, proxy: echo, cors: { origins: ['https://other.example.org'] } }
";
    let fixture = GatewayFixture::new(text).await;
    let requests = [
        (get("/nowhere"), 404),
        (get("/gone"), 502),
        (post("/query", "x"), 400),
        (post("/small", "xx"), 413),
    ];
    for (request, status) in requests {
        let path = request.uri().path().to_owned();
        let answer = fixture.send_request(from_page(request, origin)).await;
        assert_eq!(
            (answer.status().as_u16(), answer.header("content-type")),
            (status, "application/problem+json")
        );
        assert_eq!(answer.header("access-control-allow-origin"), origin, "{path}");
        assert_eq!(answer.header("access-control-allow-credentials"), "true", "{path}");
        assert!(answer.header("access-control-expose-headers").contains("x-total"), "{path}");
    }
    for path in ["/shut", "/nowhere"] {
        let answer = fixture.send_request(from_page(get(path), "https://third.example.org")).await;
        assert_eq!((answer.header("access-control-allow-origin"), answer.header("vary")), ("", "origin"));
    }
    assert_eq!(
        fixture.send_request(from_page(get("/shut"), origin)).await.header("access-control-allow-origin"),
        ""
    );
}

#[tokio::test]
async fn replaces_cors_headers_of_services() {
    let text = "
services: { echo: { url: 'http://UPSTREAM' } }
routes:
  - { path: '/ours/*', proxy: echo, cors: { origins: ['https://shop.example.org'] } }
  - { path: '/theirs/*', proxy: echo }
";
    let fixture = GatewayFixture::new(text).await;
    let evil = "https://evil.example";
    let answer = fixture.send_request(from_page(get("/ours/any-origin"), evil)).await;
    assert_eq!(answer.status(), StatusCode::OK);
    assert_eq!(answer.header("access-control-allow-origin"), "");
    assert_eq!(answer.header("access-control-allow-credentials"), "");
    let answer = fixture.send_request(from_page(get("/theirs/any-origin"), evil)).await;
    assert_eq!(answer.header("access-control-allow-origin"), evil);
}

#[tokio::test]
async fn answers_preflights_for_allowed_origins_only() {
    let fixture = GatewayFixture::new(CONFIG).await;
    let preflight = |origin: &str| {
        let mut request = from_page(get("/open/x"), origin);
        *request.method_mut() = Method::OPTIONS;
        request.headers_mut().insert(header::ACCESS_CONTROL_REQUEST_METHOD, "POST".parse().unwrap());
        request
    };
    let answer = fixture.send_request(preflight("http://localhost:3000")).await;
    assert_eq!(answer.status(), StatusCode::NO_CONTENT);
    assert!(answer.header("access-control-allow-headers").contains("orfa-input"));
    assert!(answer.header("access-control-allow-methods").contains("QUERY"));
    assert_eq!(answer.header("access-control-max-age"), "3600");
    let refused = fixture.send_request(preflight("https://evil.example")).await;
    assert_eq!(
        (refused.status(), refused.json()["code"].as_str()),
        (StatusCode::FORBIDDEN, Some("origin-forbidden"))
    );
}

#[tokio::test]
async fn never_runs_programs_for_foreign_origins() {
    let config = "
services: { echo: { url: 'http://UPSTREAM' } }
routes: [{ path: /query, query: { services: [echo] }, cors: { origins: ['https://shop.example.org'] } }]
";
    let fixture = GatewayFixture::new(config).await;
    for origin in ["https://evil.example", "null", "https://shop.example.org:8443"] {
        let answer = fixture.send_request(from_page(post("/query", "x"), origin)).await;
        assert_eq!(answer.json()["code"], "origin-forbidden", "{origin}");
    }
    let own = format!("http://{}", fixture.address);
    for origin in ["https://shop.example.org", &own] {
        let answer = fixture.send_request(from_page(post("/query", "x"), origin)).await;
        assert_ne!(answer.status(), StatusCode::FORBIDDEN, "{origin}");
    }
}

#[tokio::test]
async fn writes_an_access_log_line_for_every_request() {
    let fixture = GatewayFixture::new(CONFIG).await;
    fixture.send_request(post("/echo/x?secret=1", "four")).await;
    fixture.send_request(get("/nowhere\"")).await;
    let lines: Vec<Value> =
        fixture.end().await.log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let [passed, lost] = lines.as_slice() else { panic!("{lines:?}") };
    assert_eq!((passed["method"].as_str(), passed["path"].as_str()), (Some("POST"), Some("/echo/x")));
    assert_eq!((passed["status"].as_u64(), passed["route"].as_str()), (Some(200), Some("/echo/*")));
    assert_eq!((passed["bytes_received"].as_u64(), passed["calls"].as_u64()), (Some(4), Some(1)));
    assert!(passed["bytes_sent"].as_u64() > Some(0) && passed["duration_ms"].is_f64());
    assert!(passed.get("ended").is_none());
    assert_eq!((lost["code"].as_str(), lost["status"].as_u64()), (Some("route-not-found"), Some(404)));
}

#[tokio::test]
async fn notifies_the_observer_of_every_request() {
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    let fixture = GatewayFixture::with_observer(CONFIG, move |request| drop(tell.send(request))).await;
    fixture.send_request(get("/echo/x")).await;
    let completed_request = told.recv().await.unwrap();
    assert_eq!(
        (completed_request.path.as_str(), completed_request.status, completed_request.code),
        ("/echo/x", StatusCode::OK, None)
    );
    assert_eq!(completed_request.upstream_calls.len(), 1);
}

#[tokio::test]
async fn a_drain_finishes_requests_in_flight_and_accepts_no_new_ones() {
    let gateway_fixture = GatewayFixture::new(CONFIG).await;
    let slow = tokio::spawn(gateway_fixture.send_detached(get("/echo/wait")));
    gateway_fixture.upstream.wait_until_arrived().await;
    let idle = gateway_fixture.connect().await;
    gateway_fixture.stop();
    fixture::wait_until_closed(idle).await;
    gateway_fixture.upstream.release();
    assert_eq!(slow.await.unwrap().status(), StatusCode::OK);
    assert!(tokio::net::TcpStream::connect(gateway_fixture.address).await.is_err());
    assert_eq!(gateway_fixture.end().await.drained.cut_off_connections, 0);
}

#[tokio::test]
async fn a_drain_ends_after_its_timeout() {
    let fixture = GatewayFixture::new(&format!("{CONFIG}\ndrain: {{ timeout: 1ms }}")).await;
    let slow = tokio::spawn(fixture.try_send_detached(get("/echo/wait")));
    fixture.upstream.wait_until_arrived().await;
    let end = fixture.end().await;
    assert_eq!(end.drained.cut_off_connections, 1);
    assert!(slow.await.unwrap().is_none());
    assert!(end.log.contains("\"status\":499,\"ended\":\"early\""), "{}", end.log);
}

#[test]
fn masks_internal_errors() {
    use services::{FaultParty, ToProblem};
    #[derive(Debug, thiserror::Error)]
    #[error("the password is hunter2")]
    struct OwnRequests;
    impl ToProblem for OwnRequests {
        fn code(&self) -> &'static str {
            "internal"
        }
        fn status(&self) -> StatusCode {
            StatusCode::INTERNAL_SERVER_ERROR
        }
        fn fault(&self) -> FaultParty {
            FaultParty::Gateway
        }
        fn hint(&self) -> String {
            "hunter2".to_owned()
        }
    }
    let response = crate::http_semantics::problem_details::problem_response(&OwnRequests).response;
    assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
    let document = fixture::read_json(response.into_body());
    let id = document["request_id"].as_str().unwrap();
    assert_eq!(document["instance"], format!("urn:orfa:request:{id}"));
    assert!(!document.to_string().contains("hunter2"));
    let other = fixture::read_json(
        crate::http_semantics::problem_details::problem_response(&OwnRequests).response.into_body(),
    );
    assert_ne!(other["request_id"], document["request_id"]);
}
