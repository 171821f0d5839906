//! Tests of an overloaded gateway, from the clients' and the operator's perspective.

use http::StatusCode;

use super::fixture::{GatewayFixture, get, send_to};

const CONFIG: &str = "
admin: 127.0.0.1:0
shed: { max_in_flight: 1 }
services: { echo: { url: 'http://UPSTREAM' } }
routes: [{ path: '/echo/*', proxy: echo }]
";

#[tokio::test]
async fn shed_requests_receive_a_problem_document_and_are_logged() {
    let fixture = GatewayFixture::new(CONFIG).await;
    let taken = tokio::spawn(fixture.send_detached(get("/echo/wait")));
    fixture.upstream.wait_until_arrived().await;
    for _ in 0..2 {
        let shed = fixture.send_request(get("/echo/a")).await;
        assert_eq!(shed.status(), StatusCode::SERVICE_UNAVAILABLE);
        let heads = ["retry-after", "content-type", "cache-control", "x-content-type-options"];
        let heads = heads.map(|name| shed.header(name));
        assert_eq!(heads, ["1", "application/problem+json", "no-store", "nosniff"]);
        let document = shed.json();
        assert_eq!(document["type"], "urn:orfa:error:gateway-overloaded");
        assert_eq!(document["code"], "gateway-overloaded");
        assert_eq!(document["status"], 503);
        assert_eq!(document["hint"], "try again later, after a random wait");
    }
    fixture.upstream.release();
    assert_eq!(taken.await.unwrap().status(), StatusCode::OK);
    let log = fixture.end().await.log;
    let lines = log.lines().filter(|line| line.contains(r#""code":"gateway-overloaded""#)).count();
    assert_eq!(lines, 2, "{log}");
}

#[tokio::test]
async fn never_sheds_admin_requests() {
    let fixture = GatewayFixture::new(CONFIG).await;
    let listener = fixture.gateway.adopt_admin(&mut Vec::new()).unwrap().unwrap();
    let admin = fixture.gateway.admin(listener).unwrap();
    let address = admin.address().unwrap();
    tokio::spawn(admin.serve());
    let taken = tokio::spawn(fixture.send_detached(get("/echo/wait")));
    fixture.upstream.wait_until_arrived().await;
    for _ in 0..3 {
        assert_eq!(fixture.send_request(get("/echo/a")).await.status(), StatusCode::SERVICE_UNAVAILABLE);
        for path in ["/healthz", "/readyz", "/metrics"] {
            let answer = send_to(address, get(path)).await.unwrap();
            assert_eq!(answer.status(), StatusCode::OK, "{path}");
        }
    }
    let page = send_to(address, get("/metrics")).await.unwrap();
    let page = page.text();
    for line in ["orfa_requests_shed_total 3", r#"orfa_problems_total{code="gateway-overloaded"} 3"#] {
        assert!(page.lines().any(|found| found == line), "{line}\n{page}");
    }
    fixture.upstream.release();
    assert_eq!(taken.await.unwrap().status(), StatusCode::OK);
}
