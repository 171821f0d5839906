//! Tests of the bytes that a service receives for a client's request: its origin, its upgrade offers, its
//! path. Also tests of the client's view of a service that switches protocols.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::filters::{ModuleFolder, header_adder, header_copier};
use super::fixture::{FixtureResponse, GatewayFixture, post};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// A service that records the head of each request and gives the same response to all. After 101 it echoes.
struct RecordingService {
    address: SocketAddr,
    heads: UnboundedReceiver<String>,
}

impl RecordingService {
    async fn new(answer: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (tell, heads) = unbounded_channel();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let tell = tell.clone();
                tokio::spawn(async move {
                    while let Some(head) = read_head(&mut stream).await {
                        let _ = tell.send(head);
                        if stream.write_all(answer.as_bytes()).await.is_err() {
                            return;
                        }
                        if answer.starts_with("HTTP/1.1 101") {
                            let (mut from, mut to) = stream.split();
                            let _ = tokio::io::copy(&mut from, &mut to).await;
                            return;
                        }
                    }
                });
            }
        });
        Self { address, heads }
    }

    /// The next head, in lower case.
    async fn next_head(&mut self) -> String {
        self.heads.recv().await.unwrap().to_ascii_lowercase()
    }
}

/// Reads a head to its end, or returns `None` if the connection ends first.
async fn read_head(stream: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    Some(String::from_utf8_lossy(&head).into_owned())
}

async fn proxy_fixture(service: &RecordingService, before: &str) -> GatewayFixture {
    let text = format!(
        "shed: {{ automatic: false }}\nservices: {{ up: {{ url: 'http://{}' }} }}\n{before}\n\
         routes: [{{ path: '/cut/*', proxy: up }}, {{ path: '/*', proxy: {{ service: up, keep_prefix: true }} }}]",
        service.address
    );
    GatewayFixture::new(&text).await
}

/// Sends a head. Returns the connection and the head of the response.
async fn send_head(rig: &GatewayFixture, lines: &str) -> (TcpStream, String) {
    let mut stream = rig.connect().await;
    stream.write_all(format!("{lines}\r\n\r\n").as_bytes()).await.unwrap();
    let head = read_head(&mut stream).await.unwrap();
    (stream, head)
}

async fn response_status(rig: &GatewayFixture, lines: &str) -> u16 {
    let (_, head) = send_head(rig, lines).await;
    head.split(' ').nth(1).unwrap().parse().unwrap()
}

/// The values of a field in a head.
fn header_values<'a>(head: &'a str, name: &str) -> Vec<&'a str> {
    let lines = head.lines().filter_map(|line| line.split_once(": "));
    lines.filter(|(found, _)| *found == name).map(|(_, value)| value).collect()
}

#[tokio::test]
async fn does_not_forward_offers_of_http2() {
    let mut service = RecordingService::new(OK).await;
    let rig = proxy_fixture(&service, "").await;
    for upgrade in ["h2c", "H2C, h2c", "HTTP/2.0", "TLS/1.2, HTTP/1.1", "tcp", "websocket/13"] {
        let lines = format!(
            "GET /x HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: {upgrade}\r\n\
             HTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA"
        );
        assert_eq!(response_status(&rig, &lines).await, 200, "{upgrade}");
        let seen = service.next_head().await;
        for name in ["upgrade", "http2-settings", "connection"] {
            assert!(header_values(&seen, name).is_empty(), "{upgrade}: {seen}");
        }
    }
    let both = "GET /x HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c, websocket";
    assert_eq!(response_status(&rig, both).await, 200);
    assert_eq!(header_values(&service.next_head().await, "upgrade"), ["websocket"]);
    let posted = "POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\nConnection: Upgrade\r\nUpgrade: h2c";
    assert_eq!(response_status(&rig, posted).await, 200);
}

#[tokio::test]
async fn accepts_switches_to_offered_protocols_only() {
    let websocket = "GET /x HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket";
    let h2c = "GET /x HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: h2c";
    let plain = "GET /x HTTP/1.1\r\nHost: a";
    for (answer, offers) in [
        ("HTTP/1.1 101 S\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n", &[websocket, h2c, plain][..]),
        (
            "HTTP/1.1 101 S\r\nConnection: upgrade\r\nUpgrade: websocket, h2c\r\n\r\n",
            &[websocket, h2c, plain],
        ),
        ("HTTP/1.1 101 S\r\nConnection: upgrade\r\n\r\n", &[websocket, h2c, plain]),
        ("HTTP/1.1 101 S\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n", &[h2c, plain]),
    ] {
        let service = RecordingService::new(answer).await;
        let rig = proxy_fixture(&service, "").await;
        for offer in offers {
            assert_eq!(response_status(&rig, offer).await, 502, "{answer:?} to {offer:?}");
        }
    }
    let service =
        RecordingService::new("HTTP/1.1 101 S\r\nConnection: upgrade\r\nUpgrade: WebSocket\r\n\r\n").await;
    let rig = proxy_fixture(&service, "").await;
    let (mut stream, head) = send_head(&rig, websocket).await;
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    stream.write_all(b"echo").await.unwrap();
    let mut heard = [0; 4];
    stream.read_exact(&mut heard).await.unwrap();
    assert_eq!(&heard, b"echo");
}

#[tokio::test]
async fn does_not_forward_upgrades_of_requests_with_a_body() {
    let mut service = RecordingService::new(OK).await;
    let rig = proxy_fixture(&service, "").await;
    let offer = "Connection: Upgrade\r\nUpgrade: websocket";
    for framing in ["Transfer-Encoding: chunked", "Content-Length: 5"] {
        let body = if framing.starts_with('T') { "5\r\nhello\r\n0\r\n\r\n" } else { "hello" };
        let lines = format!("GET /x HTTP/1.1\r\nHost: a\r\n{offer}\r\n{framing}\r\n\r\n{body}");
        let mut stream = rig.connect().await;
        stream.write_all(lines.as_bytes()).await.unwrap();
        assert!(header_values(&service.next_head().await, "upgrade").is_empty(), "{framing}");
    }
}

#[tokio::test]
async fn a_tunnel_counts_as_a_concurrent_request_until_it_ends() {
    let service =
        RecordingService::new("HTTP/1.1 101 S\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n").await;
    let rig = proxy_fixture(&service, "rights: { anonymous: { rate: { max_in_flight: 1 } } }").await;
    let websocket = "GET /x HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket";
    let (first, head) = send_head(&rig, websocket).await;
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    assert_eq!(response_status(&rig, websocket).await, 429);
    drop(first);
    while response_status(&rig, websocket).await == 429 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn strips_forwarding_headers_of_clients() {
    let mut service = RecordingService::new(OK).await;
    let rig = proxy_fixture(&service, "").await;
    let claims = "Forwarded: for=6.6.6.6\r\nX-Forwarded-For: 6.6.6.6\r\nX_Forwarded_For: 6.6.6.6\r\n\
        X-Forwarded-Proto: https\r\nX-Real-IP: 6.6.6.6\r\nTrue-Client-IP: 6.6.6.6\r\nX-Forwarded-User: 6.6.6.6";
    assert_eq!(
        response_status(&rig, &format!("GET /x HTTP/1.1\r\nHost: shop.example\r\n{claims}")).await,
        200
    );
    let seen = service.next_head().await;
    assert!(!seen.contains("6.6.6.6") && !seen.contains("https"), "{seen}");
    assert_eq!(header_values(&seen, "forwarded"), ["for=127.0.0.1;host=\"shop.example\";proto=http"]);
}

#[tokio::test]
async fn behind_a_trusted_proxy_forwarding_headers_are_consistent() {
    let mut service = RecordingService::new(OK).await;
    let fixture = proxy_fixture(&service, "trusted_proxies: [127.0.0.1]").await;
    let lines = "GET /x HTTP/1.1\r\nHost: inner\r\nForwarded: for=6.6.6.6;proto=http\r\nX-Real-IP: 6.6.6.6\r\n\
        X-Forwarded-For: 6.6.6.6, 203.0.113.9\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Host: shop.example\r\n\
        Connection: X-Forwarded-For";
    assert_eq!(response_status(&fixture, lines).await, 200);
    let seen = service.next_head().await;
    assert_eq!(
        header_values(&seen, "forwarded"),
        ["for=203.0.113.9;host=\"shop.example\";proto=https, for=127.0.0.1"]
    );
    assert_eq!(header_values(&seen, "x-forwarded-for"), ["203.0.113.9, 127.0.0.1"]);
    assert_eq!(header_values(&seen, "x-forwarded-proto"), ["https"]);
    assert_eq!(header_values(&seen, "x-forwarded-host"), ["shop.example"]);
    assert_eq!(header_values(&seen, "x-real-ip"), ["203.0.113.9"]);
    assert!(!seen.contains("6.6.6.6"), "{seen}");
    let log = fixture.end().await.log;
    assert!(log.contains("\"client\":\"203.0.113.9\""), "{log}");
}

#[tokio::test]
async fn clients_can_not_evade_their_rate_with_forwarding_headers() {
    let service = RecordingService::new(OK).await;
    let limits = "trusted_proxies: [127.0.0.1]\nrights: { anonymous: { rate: { requests: 2/h, burst: 2 } } }";
    let fixture = proxy_fixture(&service, limits).await;
    let mut answers = Vec::new();
    for number in 1..=4 {
        let lines = format!(
            "GET /x HTTP/1.1\r\nHost: a\r\nForwarded: for=6.6.6.{number}\r\nX-Real-IP: 6.6.6.{number}\r\n\
             X-Forwarded-For: 6.6.6.{number}, 203.0.113.9"
        );
        answers.push(response_status(&fixture, &lines).await);
    }
    assert_eq!(answers, [200, 200, 429, 429]);
    let other = "GET /x HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 203.0.113.10";
    assert_eq!(response_status(&fixture, other).await, 200);
}

/// Sends a head through a filter. Returns the head that the service receives.
async fn send_filtered(service: &mut RecordingService, filter: &str, settings: &str, lines: &str) -> String {
    let modules = ModuleFolder::new(&[("m", filter)]);
    let routes = modules.proxy_config(&[("m", "")]).replace("UPSTREAM", &service.address.to_string());
    let rig = GatewayFixture::new(&format!("{settings}\n{routes}")).await;
    assert_eq!(response_status(&rig, lines).await, 200, "{filter}");
    service.next_head().await
}

#[tokio::test]
async fn filters_can_set_forwarding_headers_but_do_not_see_clients_ones() {
    let mut service = RecordingService::new(OK).await;
    for (name, value) in [
        ("forwarded", "for=198.51.100.7"),
        ("x-forwarded-for", "198.51.100.7"),
        ("x-forwarded-user", "ann"),
        ("x-real-ip", "198.51.100.7"),
        ("x-user", "ann"),
    ] {
        // The filter appends to existing values.
        let filter = header_adder(name, value);
        let lines = format!("GET /echo/x HTTP/1.1\r\nHost: a\r\n{name}: spoofed\r\nConnection: {name}");
        let seen = send_filtered(&mut service, &filter, "", &lines).await;
        assert_eq!(header_values(&seen, name), [value], "{seen}");
        assert!(!seen.contains("spoofed"), "{seen}");
    }
}

#[tokio::test]
async fn behind_a_trusted_proxy_filters_see_forwarding_headers() {
    let mut service = RecordingService::new(OK).await;
    for (name, value) in [
        ("forwarded", "for=203.0.113.9;host=\"shop.example\";proto=https, for=127.0.0.1"),
        ("x-forwarded-for", "203.0.113.9, 127.0.0.1"),
        ("x-real-ip", "203.0.113.9"),
    ] {
        let filter = header_copier(name, "x-seen");
        let lines = "GET /echo/x HTTP/1.1\r\nHost: inner\r\nForwarded: for=6.6.6.6;proto=http\r\n\
            X-Real-IP: 6.6.6.6\r\nX-Forwarded-For: 6.6.6.6, 203.0.113.9\r\nX-Forwarded-Proto: https\r\n\
            X-Forwarded-Host: shop.example";
        let seen = send_filtered(&mut service, &filter, "trusted_proxies: [127.0.0.1]", lines).await;
        assert_eq!(
            (header_values(&seen, "x-seen"), header_values(&seen, name)),
            (vec![value], vec![value]),
            "{seen}"
        );
    }
}

/// Sends a program, or only its name if it is empty, as a client behind a proxy.
async fn send_program(
    rig: &GatewayFixture,
    client: &str,
    forwarded: &str,
    cache: &str,
    program: &str,
) -> FixtureResponse {
    let mut request = post("/query", program);
    for (name, value) in [
        ("content-type", "text/javascript"),
        ("orfa-cache", cache),
        ("forwarded", forwarded),
        ("x-forwarded-for", client),
    ] {
        request.headers_mut().insert(name, value.parse().unwrap());
    }
    rig.send_request(request).await
}

#[tokio::test]
async fn clients_behind_a_trusted_proxy_own_their_anonymous_programs() {
    const PROGRAM: &str = "export default () => 1";
    let rig = GatewayFixture::new(
        "
shed: { automatic: false }
trusted_proxies: [127.0.0.1]
services: { echo: { url: 'http://UPSTREAM' } }
routes:
  - path: /query
    query: { services: [echo], modes: [code], limits: { cpu: 1s, timeout: 30s } }
runtime: { instances: 2 }
",
    )
    .await;
    let (one, other) = ("203.0.113.9", "203.0.113.10");
    let sent = send_program(&rig, one, "for=203.0.113.9", "code", PROGRAM).await;
    assert_eq!((sent.status().as_u16(), sent.text()), (200, "1"));
    let token = sent.header("orfa-cache").split(';').find_map(|part| part.strip_prefix("token=")).unwrap();
    let named = format!("code;token={token}");
    for client in [one, "203.0.113.10, 203.0.113.9"] {
        let answer = send_program(&rig, client, "for=203.0.113.10", &named, "").await;
        assert_eq!((answer.status().as_u16(), answer.text()), (200, "1"), "{client}");
    }
    for client in [other, "203.0.113.9, 203.0.113.10"] {
        let answer = send_program(&rig, client, "for=203.0.113.9", &named, "").await;
        assert_eq!(answer.status().as_u16(), 409, "{client}: {}", answer.text());
        assert_eq!(answer.json()["code"], "program-token-caller", "{client}");
    }
    for (client, forwarded, done) in [
        (other, "for=203.0.113.9", ";did=compiled"),
        (other, "for=203.0.113.9", ";did=found"),
        (one, "for=203.0.113.10", ";did=found"),
    ] {
        let answer = send_program(&rig, client, forwarded, "code", PROGRAM).await;
        assert!(answer.header("orfa-cache").contains(done), "{client}: {}", answer.header("orfa-cache"));
    }
}

#[tokio::test]
async fn refuses_paths_that_begin_with_an_empty_segment() {
    let mut service = RecordingService::new(OK).await;
    let rig = proxy_fixture(&service, "").await;
    for path in [
        "//evil.example/x",
        "/cut//evil.example/x",
        "/cut/%2fevil.example/x",
        "/%2fevil.example/x",
        "/;/evil.example",
        "/cut/;a=b/x",
        "/cut/%3b/x",
        "http://a//evil.example/x",
        "http://a/cut//x",
        "///",
    ] {
        let answer = response_status(&rig, &format!("GET {path} HTTP/1.1\r\nHost: a")).await;
        assert_eq!(answer, 400, "{path}");
    }
    for path in ["*", "/cut/\\x", "/cut/.//x", "/cut/%09/x", "\\x", "a:80"] {
        let mut stream = rig.connect().await;
        let lines = format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        stream.write_all(lines.as_bytes()).await.unwrap();
        let answer = read_head(&mut stream).await.unwrap_or_default();
        assert!(answer.starts_with("HTTP/1.1 4"), "{path}: {answer}");
    }
    assert_eq!(response_status(&rig, "GET /cut/a//b HTTP/1.1\r\nHost: a").await, 200);
    assert!(service.next_head().await.starts_with("get /a//b "), "the first request received");
}

#[tokio::test]
async fn a_listener_with_hosts_refuses_other_hosts() {
    let service = RecordingService::new(OK).await;
    let text = format!(
        "services: {{ up: {{ url: 'http://{}' }} }}\nroutes: [{{ path: /x, proxy: up }}]",
        service.address
    );
    let listen = "{ address: 127.0.0.1:0, hosts: [shop.example, '*.app.example:8443'] }";
    let gateway_fixture = GatewayFixture::with_listener(listen, &text, |_| {}).await;
    for (lines, expected) in [
        ("GET /x HTTP/1.1\r\nHost: shop.example", 200),
        ("GET /x HTTP/1.1\r\nHost: SHOP.example.:80", 200),
        ("GET /x HTTP/1.1\r\nHost: a.app.example:8443", 200),
        ("GET http://shop.example/x HTTP/1.1\r\nHost: evil.example", 200),
        ("GET /x HTTP/1.1\r\nHost: evil.example", 421),
        ("GET /x HTTP/1.1\r\nHost: a.app.example", 421),
        ("GET /x HTTP/1.1\r\nHost: 127.0.0.1", 421),
        ("GET http://evil.example/x HTTP/1.1\r\nHost: shop.example", 421),
        ("GET /nowhere HTTP/1.1\r\nHost: evil.example", 421),
        ("GET /x HTTP/1.0", 421),
    ] {
        assert_eq!(response_status(&gateway_fixture, lines).await, expected, "{lines:?}");
    }
    let refused = gateway_fixture.send_http2(super::fixture::get("/x")).await;
    assert_eq!((refused.status().as_u16(), refused.json()["code"].as_str()), (421, Some("host-misdirected")));
}

#[tokio::test]
async fn accepts_https_urls_in_clear_text_from_trusted_proxies_only() {
    let mut service = RecordingService::new(OK).await;
    let lines = "GET https://shop.example/x HTTP/1.1\r\nHost: shop.example";
    let stranger = proxy_fixture(&service, "").await;
    assert_eq!(response_status(&stranger, lines).await, 421);
    assert_eq!(response_status(&stranger, &lines.replace("https", "http")).await, 200);
    service.next_head().await;
    let refused = stranger.send_http2(super::fixture::get("https://shop.example/x")).await;
    assert_eq!(
        (refused.status().as_u16(), refused.json()["code"].as_str()),
        (421, Some("scheme-misdirected"))
    );
    let proxied = proxy_fixture(&service, "trusted_proxies: [127.0.0.1]").await;
    assert_eq!(response_status(&proxied, &format!("{lines}\r\nX-Forwarded-Proto: https")).await, 200);
    assert_eq!(header_values(&service.next_head().await, "x-forwarded-proto"), ["https"]);
}

#[tokio::test]
async fn joins_cookies_that_http2_has_split() {
    let mut service = RecordingService::new(OK).await;
    let gateway_fixture = proxy_fixture(&service, "").await;
    let mut request = super::fixture::get("/x");
    for cookie in ["a=1", "b=2", "c=3"] {
        request.headers_mut().append("cookie", cookie.parse().unwrap());
    }
    assert_eq!(gateway_fixture.send_http2(request).await.status().as_u16(), 200);
    assert_eq!(header_values(&service.next_head().await, "cookie"), ["a=1; b=2; c=3"]);
}
