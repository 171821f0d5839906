//! Classification of origins, and the invariant that unlisted origins are never allowed.

use proptest::prelude::*;
use services::headers::MAX_MEMBERS;

use super::*;
use crate::config::ListenConfig;
use crate::config::cors::is_origin_pattern;
use crate::http_semantics::client::{ConnectionContext, TlsSession};
use crate::http_semantics::trusted_proxies::TrustedProxies;

/// A client that reached the gateway at this local address.
fn client(local: &str) -> ClientInfo {
    let local = local.parse().ok();
    ClientInfo::new(([192, 0, 2, 1], 4711).into(), Arc::new(ConnectionContext::new(local, None)))
}

fn own_hosts(listen: &str) -> Arc<OwnHosts> {
    let listen: ListenConfig =
        serde_json::from_str(listen).unwrap_or_else(|_| ListenConfig::from_address(listen));
    Arc::new(OwnHosts::new(&listen))
}

fn classify_origins(listen: &str, host: &str, origins: &[&str]) -> OriginKind {
    let mut request = Request::post("/query").header(header::HOST, host);
    for origin in origins {
        request = request.header(header::ORIGIN, *origin);
    }
    AllowedOrigins::new(None, &own_hosts(listen))
        .classify(&request.body(()).unwrap(), &client("10.0.0.5:8080"))
}

/// The response headers for a page of this origin, from a gateway that it reached as `gateway.example`.
fn response_headers(config: &CorsConfig, origin: &str) -> HeaderMap {
    let origins = AllowedOrigins::new(
        Some(config),
        &own_hosts(r#"{ "address": "0.0.0.0:80", "hosts": ["gateway.example"] }"#),
    );
    let request = Request::get("/").header(header::HOST, "gateway.example").header(header::ORIGIN, origin);
    let request = request.body(()).unwrap();
    let mut headers = HeaderMap::new();
    origins.set_response_headers(
        origins.classify(&request, &client("")),
        request.headers().get(header::ORIGIN),
        &mut headers,
    );
    headers
}

/// The allowed origin, and whether credentials are.
fn allowed_origin(config: &CorsConfig, origin: &str) -> (Option<String>, bool) {
    let headers = response_headers(config, origin);
    let text = |name: HeaderName| headers.get(name).map(|value| value.to_str().unwrap().to_owned());
    let credentials = text(header::ACCESS_CONTROL_ALLOW_CREDENTIALS).is_some();
    (text(header::ACCESS_CONTROL_ALLOW_ORIGIN), credentials)
}

#[test]
fn rebound_page_is_foreign() {
    let local = "127.0.0.1:8080";
    assert_eq!(
        classify_origins(local, "evil.example:8080", &["http://evil.example:8080"]),
        OriginKind::Disallowed
    );
    for host in ["localhost:8080", "127.0.0.1:8080", "[::1]:8080", "app.localhost"] {
        assert_eq!(
            classify_origins(local, host, &[&format!("http://{host}")]),
            OriginKind::SameOrigin,
            "{host}"
        );
    }
}

#[test]
fn only_configured_names_are_the_gateways_own() {
    let named =
        r#"[{ "address": "0.0.0.0:8080", "hosts": ["shop.example", "*.app.example"] }, "10.0.0.7:80"]"#;
    for listen in ["0.0.0.0:8080", "[::]:8080", "10.0.0.7:8080", named] {
        for host in ["evil.example:8080", "evil.example", "10.0.0.9:8080", "app.example", "shop.example.evil"]
        {
            assert_eq!(
                classify_origins(listen, host, &[&format!("http://{host}")]),
                OriginKind::Disallowed,
                "{listen} {host}"
            );
        }
        for host in ["localhost:8080", "127.0.0.1:8080", "x.localhost"] {
            assert_eq!(
                classify_origins(listen, host, &[&format!("http://{host}")]),
                OriginKind::SameOrigin,
                "{listen} {host}"
            );
        }
    }
    for host in ["shop.example", "Shop.Example:8080", "a.app.example", "10.0.0.7", "10.0.0.5:8080"] {
        assert_eq!(
            classify_origins(named, host, &[&format!("https://{host}")]),
            OriginKind::SameOrigin,
            "{host}"
        );
    }
    // The local address of a listener on all addresses; the address of another listener doesn't match.
    assert_eq!(
        classify_origins("10.0.0.7:80", "10.0.0.5:8080", &["http://10.0.0.5:8080"]),
        OriginKind::Disallowed
    );
    assert_eq!(classify_origins(named, "shop.example", &["https://other.example"]), OriginKind::Disallowed);
}

#[test]
fn rebound_page_that_reads_from_its_own_host_is_foreign() {
    let judged = |host: &str, metadata: &[(&str, &str)]| {
        let request = Request::get("/graphql?query=%7Ba%7D").header(header::HOST, host);
        let request = metadata.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        let origins = AllowedOrigins::new(None, &own_hosts("127.0.0.1:8080"));
        origins.classify(&request.body(()).unwrap(), &client("10.0.0.5:8080"))
    };
    let (site, mode, dest) = ("sec-fetch-site", "sec-fetch-mode", "sec-fetch-dest");
    for (metadata, expected) in [
        (&[(site, "same-origin"), (mode, "cors"), (dest, "empty")][..], OriginKind::Disallowed),
        (&[(site, "same-origin"), (mode, "cors")], OriginKind::Disallowed),
        (&[(site, "same-origin"), (mode, "no-cors"), (dest, "script")], OriginKind::Disallowed),
        (&[(site, "same-origin"), (mode, "navigate"), (dest, "iframe")], OriginKind::Disallowed),
        (&[(site, "same-origin"), (mode, "navigate"), (dest, "document")], OriginKind::NoOrigin),
        (&[(site, "none"), (mode, "navigate"), (dest, "document")], OriginKind::NoOrigin),
        (&[(site, "same-origin")], OriginKind::NoOrigin),
        (&[(mode, "cors")], OriginKind::NoOrigin),
        (&[], OriginKind::NoOrigin),
    ] {
        assert_eq!(judged("evil.example", metadata), expected, "{metadata:?}");
        assert_eq!(judged("localhost:8080", metadata), OriginKind::NoOrigin, "{metadata:?}");
    }
}

#[test]
fn own_origin_requires_equal_scheme_and_port() {
    for (origin, host, in_clear, over_tls) in [
        ("http://shop.example", "shop.example", true, false),
        ("https://shop.example", "shop.example", true, true),
        ("HTTPS://SHOP.example", "shop.example", true, true),
        ("http://shop.example:80", "shop.example", true, false),
        ("http://shop.example", "shop.example:80", true, false),
        ("https://shop.example", "shop.example:443", true, true),
        ("https://shop.example:443", "shop.example", true, true),
        ("http://shop.example:8080", "shop.example:8080", true, false),
        ("https://shop.example:8443", "shop.example:8443", true, true),
        ("https://[::1]:8443", "[::1]:8443", true, true),
        ("http://shop.example", "shop.example:443", false, false),
        ("https://shop.example", "shop.example:80", false, false),
        ("https://shop.example:8443", "shop.example", false, false),
        ("https://shop.example", "shop.example:8443", false, false),
        ("ftp://shop.example", "shop.example", false, false),
        ("ws://shop.example", "shop.example", false, false),
        ("shop.example", "shop.example", false, false),
        ("null", "null", false, false),
        ("https://evil.example", "shop.example", false, false),
    ] {
        assert_eq!(is_same_host(origin, host, false), in_clear, "{origin} asks {host} in clear text");
        assert_eq!(is_same_host(origin, host, true), over_tls, "{origin} asks {host} over TLS");
    }
}

#[test]
fn clear_text_page_is_foreign_over_tls() {
    let judged = |origin: &str, client: &ClientInfo| {
        let request =
            Request::post("/query").header(header::HOST, "localhost").header(header::ORIGIN, origin);
        AllowedOrigins::new(None, &own_hosts("127.0.0.1:8443")).classify(&request.body(()).unwrap(), client)
    };
    let link = ConnectionContext::new(None, None);
    link.set_tls_session(TlsSession { certificate: None, tls: Arc::default() });
    let secure = ClientInfo::new(([192, 0, 2, 1], 4711).into(), Arc::new(link));
    assert_eq!(judged("https://localhost", &secure), OriginKind::SameOrigin);
    assert_eq!(judged("http://localhost", &secure), OriginKind::Disallowed);
    assert_eq!(judged("http://localhost", &client("")), OriginKind::SameOrigin);
    // A trusted proxy has terminated TLS.
    let proxies = TrustedProxies::new(&["192.0.2.1".to_owned()], "x-forwarded-for");
    let mut request = Request::get("/").header("x-forwarded-for", "198.51.100.7");
    request = request.header("x-forwarded-proto", "https");
    let proxied = client("").apply_proxies(&proxies, &mut request.body(()).unwrap());
    assert_eq!(judged("https://localhost", &proxied), OriginKind::SameOrigin);
    assert_eq!(judged("http://localhost", &proxied), OriginKind::Disallowed);
}

#[test]
fn two_origin_headers_are_foreign() {
    let origins = ["http://localhost:8080", "http://evil.example"];
    assert_eq!(classify_origins("127.0.0.1:8080", "localhost:8080", &origins), OriginKind::Disallowed);
}

#[test]
fn accepts_credentials_only_of_listed_origins() {
    let shop = "https://shop.example";
    let config = CorsConfig::with_origins([shop, "*", "null"]);
    assert_eq!(allowed_origin(&config, shop), (Some(shop.into()), true));
    for other in ["https://other.example", "null"] {
        assert_eq!(allowed_origin(&config, other), (Some("*".into()), false), "{other}");
    }
    let opaque = CorsConfig::with_origins([shop, "null"]);
    assert_eq!(allowed_origin(&opaque, "null"), (Some("null".into()), false));
    assert_eq!(allowed_origin(&CorsConfig::with_origins([shop]), "null"), (None, false));
    let without = CorsConfig { credentials: false, ..CorsConfig::with_origins([shop]) };
    assert_eq!(allowed_origin(&without, shop), (Some(shop.into()), false));
    assert!(
        !AllowedOrigins::new(Some(&without), &Arc::default())
            .classify(&preflight_request(shop, ""), &client(""))
            .allows_cookies()
    );
}

#[test]
fn ignores_default_ports_of_origins() {
    let config = CorsConfig::with_origins(["https://shop.example:443", "http://shop.example"]);
    for origin in ["https://shop.example", "http://shop.example", "HTTP://SHOP.example"] {
        assert_eq!(allowed_origin(&config, origin).0.as_deref(), Some(origin));
    }
    for origin in ["https://shop.example:80", "http://shop.example:443", "http://shop.example:8080"] {
        assert_eq!(allowed_origin(&config, origin).0, None, "{origin}");
    }
}

fn preflight_request(origin: &str, headers: &str) -> Request<()> {
    let request =
        Request::options("/").header(header::HOST, "gateway.example").header(header::ORIGIN, origin);
    let request = request.header(header::ACCESS_CONTROL_REQUEST_METHOD, "POST");
    request.header(header::ACCESS_CONTROL_REQUEST_HEADERS, headers).body(()).unwrap()
}

#[test]
fn allows_the_gateways_and_configured_headers() {
    let config = CorsConfig {
        headers: vec!["X-Shop".into(), "Prefer".into()],
        ..CorsConfig::with_origins(["http://a"])
    };
    let asking = preflight_request("http://a", "x-other, orfa-input,ORFA-New , orfa-bad name");
    let answer = AllowedOrigins::new(Some(&config), &Arc::default()).preflight(&asking, "POST, QUERY");
    let answered = |name: &str| answer.headers()[name].to_str().unwrap().to_owned();
    assert_eq!(answered("access-control-allow-methods"), "POST, QUERY");
    let names = answered("access-control-allow-headers");
    let names: Vec<&str> = names.split(", ").collect();
    for name in ["content-type", "authorization", "prefer", "orfa-input", "orfa-limit", "orfa-new", "x-shop"]
    {
        assert!(names.contains(&name), "{name} is not in {names:?}");
    }
    assert!(!names.iter().any(|name| name.contains("other") || name.contains("bad")), "{names:?}");
}

#[test]
fn allows_a_bounded_number_of_requested_headers_once_each() {
    let allowed = |headers: &str| {
        let origins = AllowedOrigins::new(Some(&CorsConfig::with_origins(["http://a"])), &Arc::default());
        let answer = origins.preflight(&preflight_request("http://a", headers), "POST");
        let names = answer.headers()[header::ACCESS_CONTROL_ALLOW_HEADERS].to_str().unwrap().to_owned();
        names.split(", ").count() - ALLOWED_HEADERS.len()
    };
    assert_eq!(allowed("orfa-a,ORFA-B,orfa-input,Orfa-A"), 2);
    let many: Vec<String> = (0..6_000).map(|number| format!("orfa-{number}")).collect();
    assert_eq!(allowed(&many.join(",")), MAX_MEMBERS);
}

#[test]
fn exposes_configured_headers() {
    let config = CorsConfig { expose: vec!["X-Total".into()], ..CorsConfig::with_origins(["http://a"]) };
    let exposed = &response_headers(&config, "http://a")[header::ACCESS_CONTROL_EXPOSE_HEADERS];
    assert_eq!(exposed, "orfa-cache, orfa-parts, server-timing, retry-after, x-total");
}

/// Listed origins, and origins that differ minimally from them.
fn origin() -> impl Strategy<Value = String> {
    let scheme = prop_oneof![Just("http"), Just("https"), Just("ftp")];
    let host = prop_oneof![
        Just("a.example"),
        Just("a.example.evil"),
        Just("xa.example"),
        Just("a.exampl"),
        Just("A.EXAMPLE"),
        Just("gateway.example"),
        Just("[::1]"),
        Just("localhost"),
    ];
    let port = prop_oneof![Just(""), Just(":80"), Just(":443"), Just(":8080"), Just(":"), Just(":8080.evil")];
    prop_oneof![
        9 => (scheme, host, port).prop_map(|(scheme, host, port)| format!("{scheme}://{host}{port}")),
        1 => prop_oneof![Just("null".to_owned()), Just("*".to_owned()), "[!-~]{0,12}"],
    ]
}

fn pattern() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => origin(),
        3 => origin().prop_map(|origin| match origin.rsplit_once(':') {
            Some((bare, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => format!("{bare}:*"),
            _ => format!("{origin}:*"),
        }),
        1 => Just("null".to_owned()),
    ]
    .prop_filter("the patterns that the config's check accepts", |text| {
        is_origin_pattern(text) && text != "*"
    })
}

/// A naive reimplementation of the rule: by scheme, host and port.
fn is_covered(origin: &str, pattern: &str) -> bool {
    let parts = |text: &str| {
        let (scheme, rest) = text.split_once("://")?;
        let (host, port) = match rest.rsplit_once(':') {
            Some((host, port)) if !port.contains(']') => (host, port),
            _ => (rest, if scheme.eq_ignore_ascii_case("https") { "443" } else { "80" }),
        };
        Some((scheme.to_ascii_lowercase(), host.to_ascii_lowercase(), port.to_owned()))
    };
    let (Some(origin), Some(pattern)) = (parts(origin), parts(pattern)) else { return origin == pattern };
    let is_port = origin.2.bytes().all(|byte| byte.is_ascii_digit());
    (&origin.0, &origin.1) == (&pattern.0, &pattern.1)
        && (origin.2 == pattern.2 || (pattern.2 == "*" && is_port))
}

proptest! {
    #[test]
    fn never_allows_an_unlisted_origin(
        patterns in prop::collection::vec(pattern(), 1..4),
        origin in origin(),
        credentials: bool,
    ) {
        let is_covered = patterns.iter().any(|pattern| is_covered(&origin, pattern));
        let config = CorsConfig { credentials, ..CorsConfig::with_origins(patterns) };
        let headers = response_headers(&config, &origin);
        prop_assert_eq!(headers.get(header::VARY).unwrap(), "origin");
        if !is_covered {
            let leave = headers.keys().find(|name| name.as_str().starts_with("access-control"));
            prop_assert_eq!(leave, None);
        } else if !is_same_host(&origin, "gateway.example", false) {
            prop_assert_eq!(headers.get(header::ACCESS_CONTROL_ALLOW_ORIGIN).unwrap(), origin.as_str());
            let vouched = headers.contains_key(header::ACCESS_CONTROL_ALLOW_CREDENTIALS);
            prop_assert_eq!(vouched, credentials && origin != "null");
        }
    }
}
