//! What a program may say to a service, and what an intermediary adds.

use super::*;
use http::Request;

fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
    pairs
        .iter()
        .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
        .collect()
}

#[test]
fn a_program_may_not_speak_for_the_gateway() {
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
    ] {
        let error = check(&headers(&[(name, "x")])).unwrap_err();
        assert_eq!((error.code(), error.status().as_u16()), ("header-forbidden", 422), "{name}");
        assert!(error.to_string().contains(name), "{error}");
    }
    let fine = [("authorization", "Bearer x"), ("cookie", "a=b"), ("te", "trailers"), ("accept", "*/*")];
    assert_eq!(check(&headers(&fine)), Ok(()));
}

#[test]
fn an_underscore_gets_nobody_past_the_operators_header() {
    for (set, guess) in [("x-api-key", "x_api_key"), ("x_api_key", "x-api-key"), ("x_api_key", "x_api_key")] {
        let value = HeaderValue::from_static("secret");
        let rules = Rules { forward: Vec::new(), set: vec![(HeaderName::from_static(set), value)] };
        let mut sent = headers(&[(guess, "guess")]);
        assert_eq!(rules.check(&sent).unwrap_err().code(), "header-reserved", "{set} {guess}");
        rules.set_on(&mut sent);
        assert_eq!(sent, headers(&[(set, "secret")]), "a proxied request sends {guess} beside {set}");
    }
}

#[test]
fn the_operators_headers_are_the_operators() {
    let rules =
        Rules { forward: Vec::new(), set: vec![("x-api-key".parse().unwrap(), "secret".parse().unwrap())] };
    for name in ["x-api-key", "x_api_key"] {
        let error = rules.check(&headers(&[(name, "guess")])).unwrap_err();
        assert_eq!(error.code(), "header-reserved", "{name}");
    }
}

#[test]
fn a_programs_headers_are_completed() {
    let set = vec![("x-api-key".parse().unwrap(), "secret".parse().unwrap())];
    let rules = Rules { forward: vec!["authorization".parse().unwrap(), "cookie".parse().unwrap()], set };
    let client = headers(&[("authorization", "client"), ("cookie", "client"), ("x-private", "client")]);
    let mut sent = headers(&[("cookie", "program")]);
    rules.complete(&mut sent, &client);
    assert_eq!(sent["authorization"], "client");
    assert_eq!(sent["cookie"], "program");
    assert_eq!(sent["x-api-key"], "secret");
    assert_eq!(sent["cdn-loop"], "orfa");
    assert!(sent["user-agent"].to_str().unwrap().starts_with("orfa/"));
    assert!(!sent.contains_key("x-private"));
}

#[test]
fn hops_are_counted_by_name_only() {
    assert_eq!(hops(&headers(&[])), 0);
    assert_eq!(hops(&headers(&[("cdn-loop", "orfa, other; orfa=1, ORFA;v=\"1\"")])), 2);
    assert_eq!(hops(&headers(&[("cdn-loop", "orfa"), ("cdn-loop", "orfa")])), 2);
}

#[test]
fn what_connection_names_goes_too() {
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

#[test]
fn an_intermediary_adds_to_what_was_said() {
    let request = Request::builder()
        .uri("/x")
        .header("host", "shop.example")
        .header("forwarded", "for=10.0.0.1")
        .header("via", "2 front")
        .header("cookie", "a=1")
        .header("cookie", "b=2");
    let peer = "2001:db8::1".parse().unwrap();
    let arrival = Arrival { peer, client: peer, is_secure: false, is_trusted: true };
    let (mut head, ()) = request.body(()).unwrap().into_parts();
    mark_forwarded(&mut head, Some(arrival));
    let all = |name| head.headers.get_all(name).iter().collect::<Vec<_>>();
    assert_eq!(all(FORWARDED), ["for=10.0.0.1", "for=\"[2001:db8::1]\";host=\"shop.example\";proto=http"]);
    assert_eq!(all(VIA), ["2 front", "1.1 orfa"]);
    assert_eq!(all(CDN_LOOP), ["orfa"]);
    assert_eq!(all(COOKIE), ["a=1; b=2"]);
    assert!(!head.headers.contains_key(HOST));
}

#[test]
fn a_stranger_does_not_speak_in_the_name_of_a_proxy() {
    let claims = [
        ("forwarded", "for=10.0.0.1"),
        ("x-forwarded-for", "10.0.0.1"),
        ("x-forwarded-proto", "https"),
        ("x_forwarded_for", "10.0.0.1"),
        ("x-real-ip", "10.0.0.1"),
        ("true-client-ip", "10.0.0.1"),
        ("cf-connecting-ip", "10.0.0.1"),
        ("x-http-method-override", "DELETE"),
        ("x-original-url", "/admin"),
    ];
    let sent = |is_trusted| {
        let (mut head, ()) = Request::builder().uri("/x").body(()).unwrap().into_parts();
        head.headers = headers(&claims);
        let peer = "192.0.2.1".parse().unwrap();
        mark_forwarded(&mut head, Some(Arrival { peer, client: peer, is_secure: true, is_trusted }));
        head.headers
    };
    let stranger = sent(false);
    for (name, value) in claims {
        assert!(!stranger.get_all(name).iter().any(|kept| kept == value), "{name}");
    }
    assert_eq!(stranger.get_all(FORWARDED).iter().collect::<Vec<_>>(), ["for=192.0.2.1;proto=https"]);
    let proxy = sent(true);
    assert_eq!(proxy["x-forwarded-for"], "10.0.0.1");
    let said: Vec<_> = proxy.get_all(FORWARDED).iter().collect();
    assert_eq!(said, ["for=10.0.0.1", "for=192.0.2.1;proto=https"]);
}
