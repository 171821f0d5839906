//! A gateway that has more to do than it can, as its clients and its operator see it.

use http::StatusCode;

use super::rig::{Rig, ask_at, get};

const CONFIG: &str = "
admin: 127.0.0.1:0
shed: { max_in_flight: 1 }
services: { echo: { url: 'http://UPSTREAM' } }
routes: [{ path: '/echo/*', proxy: echo }]
";

#[tokio::test]
async fn what_is_shed_hears_so_in_full_and_stands_in_the_log() {
    let rig = Rig::new(CONFIG).await;
    let taken = tokio::spawn(rig.asking(get("/echo/wait")));
    rig.upstream.arrived().await;
    for _ in 0..2 {
        let shed = rig.ask(get("/echo/a")).await;
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
    rig.upstream.release();
    assert_eq!(taken.await.unwrap().status(), StatusCode::OK);
    let log = rig.end().await.log;
    let lines = log.lines().filter(|line| line.contains(r#""code":"gateway-overloaded""#)).count();
    assert_eq!(lines, 2, "{log}");
}

#[tokio::test]
async fn the_operator_is_never_shed() {
    let rig = Rig::new(CONFIG).await;
    let listener = rig.gateway.adopt_admin(&mut Vec::new()).unwrap().unwrap();
    let admin = rig.gateway.admin(listener).unwrap();
    let address = admin.address().unwrap();
    tokio::spawn(admin.serve());
    let taken = tokio::spawn(rig.asking(get("/echo/wait")));
    rig.upstream.arrived().await;
    for _ in 0..3 {
        assert_eq!(rig.ask(get("/echo/a")).await.status(), StatusCode::SERVICE_UNAVAILABLE);
        for path in ["/healthz", "/readyz", "/metrics"] {
            let answer = ask_at(address, get(path)).await.unwrap();
            assert_eq!(answer.status(), StatusCode::OK, "{path}");
        }
    }
    let page = ask_at(address, get("/metrics")).await.unwrap();
    let page = page.text();
    for line in ["orfa_requests_shed_total 3", r#"orfa_problems_total{code="gateway-overloaded"} 3"#] {
        assert!(page.lines().any(|found| found == line), "{line}\n{page}");
    }
    rig.upstream.release();
    assert_eq!(taken.await.unwrap().status(), StatusCode::OK);
}

/// A queue's length says how long one waits in it only beside how many leave it: thousands of connections that a client closes
/// at once were taken for an overload of seconds.
#[tokio::test]
async fn a_connection_counts_when_it_comes_and_when_it_goes() {
    let rig = Rig::new(CONFIG).await;
    let turns = || rig.gateway.current.life().shed.turns();
    let before = turns();
    let connection = tokio::net::TcpStream::connect(rig.address).await.unwrap();
    while turns() < before + 1 {
        tokio::task::yield_now().await;
    }
    drop(connection);
    while turns() < before + 2 {
        tokio::task::yield_now().await;
    }
}
