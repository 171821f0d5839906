//! Header rules for programs and for proxied requests.

use super::*;
use http::Request;

fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
    pairs
        .iter()
        .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
        .collect()
}

#[test]
fn programs_may_not_send_reserved_headers() {
    for name in [
        "host",
        "connection",
        "keep-alive",
        "transfer-encoding",
        "content-length",
        "upgrade",
        "expect",
        "te",
        "trailer",
        "forwarded",
        "via",
        "cdn-loop",
        "x-forwarded-for",
        "x_forwarded_for",
        "x-real-ip",
        "true-client-ip",
        "client-ip",
        "x-client-ip",
        "x_client_ip",
        "x-cluster-client-ip",
        "cf-connecting-ip",
        "fastly-client-ip",
        "proxy-authorization",
        "proxy-anything",
        "orfa-limit",
        "x-http-method-override",
        "x-original-url",
        "x-rewrite-url",
        "http2-settings",
        "x-forwarded",
        "proxy",
    ] {
        let error = check_program_headers(&headers(&[(name, "x")])).unwrap_err();
        assert_eq!((error.code(), error.status().as_u16()), ("header-forbidden", 422), "{name}");
        assert!(error.to_string().contains(name), "{error}");
    }
    let fine = [("authorization", "Bearer x"), ("cookie", "a=b"), ("te", "trailers"), ("accept", "*/*")];
    assert_eq!(check_program_headers(&headers(&fine)), Ok(()));
}

#[test]
fn underscores_do_not_bypass_the_operators_headers() {
    for (set, guess) in [("x-api-key", "x_api_key"), ("x_api_key", "x-api-key"), ("x_api_key", "x_api_key")] {
        let value = HeaderValue::from_static("secret");
        let rules = HeaderRules {
            forward: Vec::new(),
            operator_headers: vec![(HeaderName::from_static(set), value)],
        };
        let mut sent = headers(&[(guess, "guess")]);
        assert_eq!(rules.check_headers(&sent).unwrap_err().code(), "header-reserved", "{set} {guess}");
        rules.apply_operator_headers(&mut sent);
        assert_eq!(sent, headers(&[(set, "secret")]), "a proxied request sends {guess} in addition to {set}");
    }
}

/// The characters that field names may have besides letters, digits and `-` (RFC 9110, section 5.6.2).
const PUNCTUATION: &str = "!#$%&'*+.^_`|~";

#[test]
fn punctuation_does_not_bypass_the_rules_for_fields() {
    let value = HeaderValue::from_static("secret");
    let set = HeaderName::from_static("x-api-key");
    let rules = HeaderRules { forward: Vec::new(), operator_headers: vec![(set.clone(), value.clone())] };
    for mark in PUNCTUATION.chars() {
        let spelt = |name: &str| HeaderName::try_from(name.replace('-', &mark.to_string())).unwrap();
        for (name, value) in PROXY_CLAIMS.into_iter().filter(|(name, _)| name.contains(['-', '_'])) {
            let name = spelt(&name.replace('_', "-"));
            let mut came = HeaderMap::from_iter([(name.clone(), HeaderValue::from_static(value))]);
            assert_eq!(check_program_headers(&came).unwrap_err().code(), "header-forbidden", "{name}");
            sanitize_headers(&mut came, false);
            assert!(came.is_empty(), "{name}");
        }
        for name in ["content-length", "keep-alive", "proxy-connection", "transfer-encoding"] {
            assert!(is_claim(spelt(name).as_str()), "{mark} in {name}");
        }
        let guess = spelt("x-api-key");
        assert!(is_same_field(&guess, &set) && !is_same_field(&guess, &spelt("x-api-kez")), "{guess}");
        let mut sent = HeaderMap::from_iter([(guess, HeaderValue::from_static("guess"))]);
        assert_eq!(rules.check_headers(&sent).unwrap_err().code(), "header-reserved", "{sent:?}");
        rules.apply_operator_headers(&mut sent);
        assert_eq!(sent, HeaderMap::from_iter([(set.clone(), value.clone())]));
        let mut trailers = HeaderMap::from_iter([(spelt("content-type"), value.clone())]);
        sanitize_trailers(&mut trailers, None);
        assert!(trailers.is_empty(), "{trailers:?}");
    }
}

#[test]
fn programs_may_not_send_the_operators_headers() {
    let rules = HeaderRules {
        forward: Vec::new(),
        operator_headers: vec![("x-api-key".parse().unwrap(), "secret".parse().unwrap())],
    };
    for name in ["x-api-key", "x_api_key"] {
        let error = rules.check_headers(&headers(&[(name, "guess")])).unwrap_err();
        assert_eq!(error.code(), "header-reserved", "{name}");
    }
}

#[test]
fn completes_a_programs_headers() {
    let set = vec![("x-api-key".parse().unwrap(), "secret".parse().unwrap())];
    let rules = HeaderRules {
        forward: vec!["authorization".parse().unwrap(), "cookie".parse().unwrap()],
        operator_headers: set,
    };
    let client = headers(&[("authorization", "client"), ("cookie", "client"), ("x-private", "client")]);
    let mut sent = headers(&[("cookie", "program")]);
    rules.complete_headers(&mut sent, &client);
    assert_eq!(sent["authorization"], "client");
    assert_eq!(sent["cookie"], "program");
    assert_eq!(sent["x-api-key"], "secret");
    assert_eq!(sent["cdn-loop"], "orfa");
    assert!(sent["user-agent"].to_str().unwrap().starts_with("orfa/"));
    assert!(!sent.contains_key("x-private"));
}

#[test]
fn counts_hops_by_name_only() {
    assert_eq!(count_hops(&headers(&[])), 0);
    assert_eq!(count_hops(&headers(&[("cdn-loop", "orfa, other; orfa=1, ORFA;v=\"1\"")])), 2);
    assert_eq!(count_hops(&headers(&[("cdn-loop", "orfa"), ("cdn-loop", "orfa")])), 2);
}

#[test]
fn reads_a_bounded_number_of_members() {
    let long = HeaderValue::try_from("a,".repeat(30_000) + "close").unwrap();
    let mut came = HeaderMap::from_iter([(CONNECTION, long.clone()), (CDN_LOOP, long)]);
    assert_eq!(list_members(&came, &CONNECTION).count(), MAX_MEMBERS);
    assert!(!list_contains(&came, &CONNECTION, b"close"));
    assert_eq!(count_hops(&came), u8::MAX, "the members that are not read may be hops");
    sanitize_headers(&mut came, false);
    assert!(!came.contains_key(CONNECTION));
    came.insert(CDN_LOOP, HeaderValue::try_from("a,".repeat(MAX_MEMBERS - 1) + "orfa").unwrap());
    assert_eq!(count_hops(&came), 1);
}

#[test]
fn removes_fields_listed_behind_thousands_of_connection_options() {
    let options = HeaderValue::try_from("a,".repeat(MAX_MEMBERS) + "x-private").unwrap();
    let message = || {
        HeaderMap::from_iter([(CONNECTION, options.clone()), ("x-private".parse().unwrap(), options.clone())])
    };
    assert!(!is_within_member_limit(&message(), &CONNECTION));
    assert!(is_within_member_limit(&message(), &VIA), "a field that is missing");
    let (mut came, mut sent) = (message(), message());
    sanitize_headers(&mut came, false);
    strip_hop_by_hop(&mut sent);
    assert!(came.is_empty() && sent.is_empty(), "{came:?} {sent:?}");
    came.insert(CONNECTION, HeaderValue::try_from("a,".repeat(MAX_MEMBERS - 1) + "b").unwrap());
    assert!(is_within_member_limit(&came, &CONNECTION));
}

#[test]
fn removes_headers_listed_in_connection() {
    let mut map = headers(&[
        ("connection", "close, X-Private"),
        ("x-private", "1"),
        ("te", "trailers"),
        ("upgrade", "websocket"),
        ("accept", "*/*"),
    ]);
    strip_hop_by_hop(&mut map);
    assert_eq!(map, headers(&[("accept", "*/*")]));
}

/// Returns the headers of a request after its arrival and forwarding.
fn forwarded_headers(fields: &[(&'static str, &'static str)], is_trusted: bool) -> HeaderMap {
    let (mut head, ()) = Request::builder().uri("/x").body(()).unwrap().into_parts();
    head.headers = headers(fields);
    sanitize_headers(&mut head.headers, is_trusted);
    let peer = "192.0.2.1".parse().unwrap();
    mark_forwarded(&mut head, Some(ConnectionDetails { peer, client: peer, is_secure: true }));
    head.headers
}

#[test]
fn appends_to_the_fields_of_earlier_intermediaries() {
    let request = Request::builder()
        .uri("/x")
        .header("host", "shop.example")
        .header("via", "2 front")
        .header("cookie", "a=1")
        .header("cookie", "b=2");
    let peer = "2001:db8::1".parse().unwrap();
    let arrival = ConnectionDetails { peer, client: peer, is_secure: false };
    let (mut head, ()) = request.body(()).unwrap().into_parts();
    mark_forwarded(&mut head, Some(arrival));
    let all = |name| head.headers.get_all(name).iter().collect::<Vec<_>>();
    assert_eq!(all(http::header::FORWARDED), ["for=\"[2001:db8::1]\";host=\"shop.example\";proto=http"]);
    assert_eq!(all(VIA), ["2 front", "1.1 orfa"]);
    assert_eq!(all(CDN_LOOP), ["orfa"]);
    assert_eq!(all(COOKIE), ["a=1; b=2"]);
    assert!(!head.headers.contains_key(HOST));
}

/// Claims that only proxies may make, in all spellings that services may accept.
const PROXY_CLAIMS: [(&str, &str); 64] = [
    ("forwarded", "for=10.0.0.1"),
    ("x-forwarded", "for=10.0.0.1"),
    ("x-forwarded-for", "10.0.0.1"),
    ("x-forwarded-proto", "https"),
    ("x-forwarded-user", "admin"),
    ("x-forwarded-prefix", "/admin"),
    ("x_forwarded_for", "10.0.0.1"),
    ("x_forwarded-for", "10.0.0.1"),
    ("x-real-ip", "10.0.0.1"),
    ("x_real_ip", "10.0.0.1"),
    ("true-client-ip", "10.0.0.1"),
    ("cf-connecting-ip", "10.0.0.1"),
    ("x-originating-ip", "10.0.0.1"),
    ("x-remote-ip", "10.0.0.1"),
    ("x-envoy-external-address", "10.0.0.1"),
    ("front-end-https", "on"),
    ("x-original-host", "admin.example"),
    ("x-http-method-override", "DELETE"),
    ("x-original-url", "/admin"),
    ("x_rewrite_url", "/admin"),
    ("x-envoy-original-path", "/admin"),
    ("proxy", "http://evil.example"),
    ("ali-cdn-real-ip", "10.0.0.1"),
    ("cdn-src-ip", "10.0.0.1"),
    ("cloudfront-viewer-address", "10.0.0.1:1"),
    ("fly-client-ip", "10.0.0.1"),
    ("remote-addr", "10.0.0.1"),
    ("remote_addr", "10.0.0.1"),
    ("x-appengine-remote-addr", "10.0.0.1"),
    ("x-envoy-original-host", "admin.example"),
    ("x-envoy-original-method", "DELETE"),
    ("x-forward-for", "10.0.0.1"),
    ("x-forwarded-uri", "/admin"),
    ("x-http-host-override", "admin.example"),
    ("x-nf-client-connection-ip", "10.0.0.1"),
    ("x-original-method", "DELETE"),
    ("x-original-uri", "/admin"),
    ("x_original_uri", "/admin"),
    ("x-proxyuser-ip", "10.0.0.1"),
    ("x-scheme", "https"),
    ("incap-client-ip", "10.0.0.1"),
    ("incap_client_ip", "10.0.0.1"),
    ("x-true-client-ip", "10.0.0.1"),
    ("x-real-client-ip", "10.0.0.1"),
    ("x-vercel-forwarded-for", "10.0.0.1"),
    ("x-sucuri-clientip", "10.0.0.1"),
    ("x-original-remote-addr", "10.0.0.1"),
    ("cf-connecting-ipv6", "2001:db8::1"),
    ("edge-forwarded-host", "admin.example"),
    ("cloudfront-forwarded-proto", "https"),
    ("forwarded-host", "admin.example"),
    ("forwarded-proto", "https"),
    ("forwarded-for-ip", "10.0.0.1"),
    ("forwarded-port", "443"),
    ("cf-visitor", "{\"scheme\":\"https\"}"),
    ("ssl-client-cert", "admin"),
    ("ssl_client_s_dn", "CN=admin"),
    ("x-client-cert", "admin"),
    ("x-client-cert-chain", "admin"),
    ("client-cert", ":YWRtaW4=:"),
    ("client_cert_chain", ":YWRtaW4=:"),
    ("x-ssl-client-verify", "SUCCESS"),
    ("x-amzn-mtls-clientcert-subject", "CN=admin"),
    ("x-client-verify", "SUCCESS"),
];

#[test]
fn application_headers_are_not_claims() {
    for name in [
        "host",
        "accept-host",
        "authorization",
        "content-type",
        "if-modified-since",
        "user-agent",
        "x-request-id",
        "x-correlation-id",
        "x-client-id",
        "x-client-version",
        "x-api-key",
        "x-csrf-token",
        "x-requested-with",
        "x-tenant",
        "x-ip-policy",
        "x-zip",
        "x-ship-to",
        "x-forward-to",
        "x-real-name",
        "client-id",
        "client-version",
        "clientip-hint",
        "ssl-policy",
        "cf-ray",
        "fastly-debug",
        "tracestate",
        "forward",
        "membership",
    ] {
        assert!(!is_claim(name), "{name}");
    }
}

#[test]
fn drops_claims_of_clients() {
    for (name, value) in PROXY_CLAIMS {
        let mut came = headers(&[(name, value), ("x-request-id", "7"), ("content-type", "text/plain")]);
        sanitize_headers(&mut came, false);
        assert_eq!(came, headers(&[("x-request-id", "7"), ("content-type", "text/plain")]), "{name}");
        sanitize_headers(&mut came, true);
        let sent = forwarded_headers(&[(name, value)], false);
        assert!(!sent.get_all(name).iter().any(|kept| kept == value), "{name}");
        assert_eq!(sent[http::header::FORWARDED], "for=192.0.2.1;proto=https");
    }
}

#[test]
fn drops_connection_fields_in_other_spellings() {
    for name in [
        "content_length",
        "http2_settings",
        "keep_alive",
        "proxy_authorization",
        "proxy_connection",
        "transfer_encoding",
    ] {
        assert!(!forwarded_headers(&[(name, "x")], false).contains_key(name), "{name}");
        let mut proxied = headers(&[(name, "x")]);
        forwarded::strip_claims(&mut proxied, &[]);
        assert!(proxied.is_empty(), "{name}");
    }
    let mut plain =
        headers(&[("content-length", "1"), ("keep-alive", "1"), ("transfer-encoding", "chunked")]);
    sanitize_headers(&mut plain, false);
    assert_eq!(plain.len(), 3, "framing fields are removed only when the request is sent on");
}

#[test]
fn keeps_claims_that_are_set_after_arrival() {
    for (name, value) in PROXY_CLAIMS {
        assert_eq!(forwarded_headers(&[(name, value)], true)[name], value, "{name}");
    }
}

#[test]
fn connection_options_do_not_remove_headers_set_later() {
    let mut came = headers(&[
        ("connection", "close, X-User, x-forwarded-for"),
        ("connection", "authorization, cdn-loop, host, content-length, via, te"),
        ("x-user", "spoofed"),
        ("authorization", "Basic x"),
        ("cdn-loop", "orfa"),
        ("host", "a"),
        ("content-length", "0"),
        ("via", "2 front"),
        ("te", "trailers"),
        ("accept", "*/*"),
    ]);
    sanitize_headers(&mut came, false);
    let kept = [
        ("cdn-loop", "orfa"),
        ("host", "a"),
        ("content-length", "0"),
        ("via", "2 front"),
        ("te", "trailers"),
        ("accept", "*/*"),
    ];
    assert_eq!(came, headers(&kept));
    // Fields that a filter sets later must survive.
    let (mut head, ()) = Request::builder().uri("/x").body(()).unwrap().into_parts();
    head.headers = headers(&[("connection", "x-user"), ("x-user", "spoofed")]);
    sanitize_headers(&mut head.headers, false);
    head.headers.insert("x-user", HeaderValue::from_static("verified"));
    mark_forwarded(&mut head, None);
    assert_eq!(head.headers["x-user"], "verified");
}

#[test]
fn an_upgrade_keeps_its_connection_option() {
    for connection in ["Upgrade", "keep-alive, upgrade", "upgrade, HTTP2-Settings"] {
        let mut came = headers(&[("connection", connection), ("upgrade", "h2c"), ("http2-settings", "x")]);
        sanitize_headers(&mut came, false);
        assert_eq!(came[CONNECTION], "upgrade");
        let (mut head, ()) = Request::builder().uri("/x").body(()).unwrap().into_parts();
        head.headers = came;
        mark_forwarded(&mut head, None);
        let sent: Vec<_> = head.headers.keys().map(HeaderName::as_str).collect();
        assert_eq!(sent, ["forwarded", "via", "cdn-loop"], "{connection}");
    }
}

#[test]
fn drops_trailers_that_clients_may_not_send() {
    let plain = [("x-checksum", "7"), ("grpc-status", "0"), ("content-digest", "sha-256=:7:")];
    let mut trailers = headers(&plain);
    trailers.extend(headers(&PROXY_CLAIMS));
    trailers.extend(headers(&[("authorization", "Basic x"), ("cookie", "a=1"), ("te", "x"), ("host", "b")]));
    let more = [
        "cdn-loop",
        "content-length",
        "content-type",
        "content_length",
        "content_type",
        "if-match",
        "orfa-input",
        "proxy-authorization",
        "proxy_connection",
        "range",
        "traceparent",
        "trailer",
        "transfer_encoding",
        "via",
        "x-edge-ip",
        "x_edge_ip",
    ];
    trailers.extend(headers(&more.map(|name| (name, "x"))));
    sanitize_trailers(&mut trailers, Some(&HeaderName::from_static("x-edge-ip")));
    assert_eq!(trailers, headers(&plain));
}

#[test]
fn drops_trailers_that_repeat_fields_of_the_head() {
    let head = ["x-user", "x_internal_token"].map(HeaderName::from_static);
    let mut trailers = headers(&[
        ("x-sum", "7"),
        ("x-user", "forged"),
        ("x_user", "forged"),
        ("x-internal-token", "forged"),
        ("x_internal_token", "forged"),
    ]);
    strip_head_duplicates(&mut trailers, &head);
    assert_eq!(trailers, headers(&[("x-sum", "7")]));
}

#[test]
fn joins_split_cookies() {
    let split = [("cookie", "a=1"), ("accept", "*/*"), ("cookie", "b=2; c=3"), ("cookie", "d=4")];
    let mut came = headers(&split);
    sanitize_headers(&mut came, false);
    assert_eq!(came.get_all(COOKIE).iter().collect::<Vec<_>>(), ["a=1; b=2; c=3; d=4"]);
    let rules = HeaderRules { forward: vec![COOKIE], operator_headers: Vec::new() };
    let mut sent = HeaderMap::new();
    rules.complete_headers(&mut sent, &headers(&split));
    assert_eq!(sent.get_all(COOKIE).iter().collect::<Vec<_>>(), ["a=1; b=2; c=3; d=4"]);
}
