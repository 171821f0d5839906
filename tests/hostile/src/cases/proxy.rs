//! Proxied requests that try to escape their route: paths, upgrades, forwarding headers, hosts and bodies.

use anyhow::{Result, ensure};
use serde_json::Value;

use crate::case::AttackCase;
use crate::ending::AttackEnding;
use crate::target::AttackTarget;

pub(super) const CASES: &[AttackCase] = &[
    case!(
        "proxy/encoded dot segments",
        |it| it.request_ending("GET", "/up/%2e%2e/json", &[], ""),
        [AttackEnding::problem(400, "path-dot-segment")]
    ),
    case!(
        "proxy/dot segments",
        |it| raw_path(&it, "/up/../json"),
        [AttackEnding::problem(400, "path-dot-segment")]
    ),
    case!(
        "proxy/path that begins with two slashes",
        |it| raw_path(&it, "//evil.example/up/json"),
        [AttackEnding::problem(400, "path-ambiguous"), AttackEnding::problem(404, "route-not-found")]
    ),
    case!(
        "proxy/rest that begins with a slash",
        |it| raw_path(&it, "/up//evil.example/x"),
        [AttackEnding::problem(400, "path-empty-segment")]
    ),
    case!(
        "proxy/backslash in a path",
        |it| raw_path(&it, "/up/a\\b"),
        [AttackEnding::problem(400, "path-backslash")]
    ),
    case!("proxy/encoded slash in a path", |it| raw_path(&it, "/up/a%2fb"), [AttackEnding::Answer(404)]),
    case!(
        "proxy/NUL in a path",
        |it| raw_path(&it, "/up/a%00b"),
        [AttackEnding::problem(400, "path-control-character")]
    ),
    case!("proxy/upgrade to HTTP/2", |it| upgrade(&it, "h2c"), [AttackEnding::Answer(200)]),
    case!(
        "proxy/upgrade to HTTP/2 by another name",
        |it| upgrade(&it, "HTTP/2.0"),
        [AttackEnding::Answer(200)]
    ),
    case!("proxy/upgrade to TLS", |it| upgrade(&it, "TLS/1.3"), [AttackEnding::Answer(200)]),
    case!("proxy/upgrade to what nobody knows", |it| upgrade(&it, "raw"), [AttackEnding::Answer(200)]),
    case!("proxy/upgrade among others", |it| upgrade(&it, "websocket, h2c"), [AttackEnding::Answer(200)]),
    case!(
        "proxy/spoofed Forwarded",
        |it| send_spoofed_address(&it, "forwarded", "for=203.0.113.9;proto=https;host=evil"),
        [AttackEnding::Answer(200)]
    ),
    case!(
        "proxy/spoofed X-Forwarded-For",
        |it| send_spoofed_address(&it, "x-forwarded-for", "203.0.113.9"),
        [AttackEnding::Answer(200)]
    ),
    case!(
        "proxy/spoofed X.Forwarded.For",
        |it| send_spoofed_address(&it, "x.forwarded.for", "203.0.113.9"),
        [AttackEnding::Answer(200)]
    ),
    case!(
        "proxy/spoofed X~Forwarded~Host",
        |it| send_spoofed_address(&it, "x~forwarded~host", "203.0.113.9"),
        [AttackEnding::Answer(200)]
    ),
    case!(
        "proxy/operator's header in another spelling",
        |it| send_respelt_header(&it, "x.internal.key"),
        [AttackEnding::Answer(200)]
    ),
    case!(
        "proxy/spoofed X-Real-IP",
        |it| send_spoofed_address(&it, "x-real-ip", "203.0.113.9"),
        [AttackEnding::Answer(200)]
    ),
    case!(
        "proxy/spoofed X-Forwarded-Host",
        |it| send_spoofed_address(&it, "x-forwarded-host", "203.0.113.9"),
        [AttackEnding::Answer(200)]
    ),
    case!(
        "proxy/service that answers garbage",
        |it| it.request_ending("GET", "/up/garbage", &[], ""),
        [AttackEnding::problem(502, "upstream-broken")]
    ),
    case!(
        "proxy/service that sends interim responses without end",
        |it| it.request_ending("GET", "/up/interim", &[], ""),
        [AttackEnding::problem(502, "upstream-broken")]
    ),
    case!(
        "proxy/service that lists thousands of connection options",
        |it| it.request_ending("GET", "/up/list?of=connection", &[], ""),
        [AttackEnding::problem(502, "upstream-broken")]
    ),
    case!(
        "proxy/service that is not there",
        |it| it.request_ending("GET", "/dead/x", &[], ""),
        [AttackEnding::problem(502, "upstream-unreachable")]
    ),
    case!(
        "proxy/service that resets",
        |it| it.request_ending("GET", "/up/reset", &[], ""),
        [AttackEnding::problem(502, "upstream-broken")]
    ),
    case!(
        "proxy/request that passed many gateways",
        |it| it.request_ending(
            "GET",
            "/up/json",
            &[("cdn-loop", "orfa, orfa, orfa, orfa, orfa, orfa, orfa, orfa, orfa")],
            ""
        ),
        [AttackEnding::problem(508, "loop-detected")]
    ),
    case!(
        "proxy/request that passed thousands of gateways",
        |it| it.request_ending("GET", "/up/json?n=1", &[("cdn-loop", &"a,".repeat(30_000))], ""),
        [AttackEnding::problem(508, "loop-detected")]
    ),
    case!(
        "proxy/path of thousands of segments with dots",
        |it| raw_path(&it, &format!("/up{}", "/.a".repeat(5_400))),
        [AttackEnding::Answer(404)]
    ),
    case!(
        "proxy/path of thousands of segments with escapes",
        |it| raw_path(&it, &format!("/up{}", "/%7b".repeat(4_000))),
        [AttackEnding::Answer(404)]
    ),
    case!(
        "proxy/path that is open only with its parameters",
        |it| raw_path(&it, "/ruled/files/secret;.public"),
        [AttackEnding::problem(422, "path-forbidden")]
    ),
    case!(
        "proxy/path that is open only with a segment of parameters",
        |it| raw_path(&it, "/ruled/tenants/;/public"),
        [AttackEnding::problem(422, "path-forbidden")]
    ),
    case!(
        "proxy/path that is too long",
        |it| raw_path(&it, &format!("/up{}", "/%7b".repeat(15_000))),
        [AttackEnding::problem(414, "path-too-long")]
    ),
    case!(
        "proxy/path of no route",
        |it| it.request_ending("GET", "/nowhere", &[], ""),
        [AttackEnding::problem(404, "route-not-found")]
    ),
];

async fn raw_path(target: &AttackTarget, path: &str) -> Result<AttackEnding> {
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    Ok(target.send_raw(request.as_bytes()).await?.0)
}

/// Sends a request that offers another protocol. It must be answered as if it did not, and the offer must not
/// reach the service.
async fn upgrade(target: &AttackTarget, protocol: &str) -> Result<AttackEnding> {
    let request = format!(
        "GET /up/echo HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade, HTTP2-Settings, close\r\nUpgrade: {protocol}\r\n\
         HTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA\r\n\r\n"
    );
    let (ending, text) = target.send_raw(request.as_bytes()).await?;
    let text = text.to_ascii_lowercase();
    let offer = protocol.to_ascii_lowercase();
    ensure!(!text.contains("http2-settings"), "the service sees HTTP2-Settings: {text}");
    ensure!(!text.contains(&format!("\"upgrade\":\"{offer}\"")), "the service sees the offer: {text}");
    ensure!(!text.contains("h2c"), "the service sees h2c: {text}");
    Ok(ending)
}

/// Sends a request with another spelling of a header that the operator sets for the service, which must not
/// reach the service.
async fn send_respelt_header(target: &AttackTarget, name: &str) -> Result<AttackEnding> {
    let answer = target.send("GET", "/ruled/echo", &[(name, "guess")], "").await?;
    let echo: Value = serde_json::from_slice(&answer.body)?;
    ensure!(echo["headers"]["x-internal-key"] == "own", "the service lacks the operator's header: {echo}");
    ensure!(!echo["headers"].to_string().contains("guess"), "the guess reached the service: {echo}");
    Ok(AttackEnding::from_response(&answer))
}

/// Sends a request with a header that claims a client address. The claim must not reach the service.
async fn send_spoofed_address(target: &AttackTarget, name: &str, value: &str) -> Result<AttackEnding> {
    let answer = target.send("GET", "/filtered/echo", &[(name, value)], "").await?;
    let echo: Value = serde_json::from_slice(&answer.body)?;
    ensure!(!echo["headers"].to_string().contains("203.0.113.9"), "the claim reached the service: {echo}");
    Ok(AttackEnding::from_response(&answer))
}
