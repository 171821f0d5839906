//! Tests of the client's address, the header that it is read from, and the headers that are forwarded.

use proptest::prelude::*;

use super::*;
use crate::config::trusted_proxies::is_proxy_header;

const CLIENT_HEADERS: [&str; 3] = ["x-forwarded-for", "forwarded", "cf-connecting-ip"];

fn proxies(header: &str) -> TrustedProxies {
    TrustedProxies::new(&["10.0.0.0/8".to_owned(), "2001:db8::1".to_owned()], header)
}

fn request(fields: &[(&str, &str)]) -> Request<()> {
    let request = Request::builder().uri("/x").header("host", "inner.example");
    fields.iter().fold(request, |request, (name, value)| request.header(*name, *value)).body(()).unwrap()
}

/// Returns the client that a peer's headers identify, and the request as it is forwarded.
fn resolve_client(header: &str, peer: &str, fields: &[(&str, &str)]) -> (String, Request<()>) {
    let mut request = request(fields);
    let peer = peer.parse().unwrap();
    let proxies = proxies(header);
    let client = proxies.proxied_client(peer, false, request.headers());
    client.iter().for_each(|client| proxies.write_forwarded(client, &mut request));
    (client.map_or(peer, |client| client.address()).to_string(), request)
}

fn client_address(header: &str, peer: &str, fields: &[(&str, &str)]) -> String {
    resolve_client(header, peer, fields).0
}

fn header_values<'a>(request: &'a Request<()>, name: &str) -> Vec<&'a str> {
    request.headers().get_all(name).iter().map(|value| value.to_str().unwrap()).collect()
}

#[test]
fn ignores_forwarding_headers_of_untrusted_peers() {
    for header in CLIENT_HEADERS {
        for value in ["for=198.51.100.7", "198.51.100.7"] {
            assert_eq!(client_address(header, "192.0.2.1", &[(header, value)]), "192.0.2.1");
        }
    }
}

#[test]
fn reads_the_client_from_a_trusted_proxy() {
    for (name, value, expected) in [
        ("x-forwarded-for", "198.51.100.7", "198.51.100.7"),
        ("x-forwarded-for", "6.6.6.6, 198.51.100.7, 10.9.9.9", "198.51.100.7"),
        ("x-forwarded-for", "198.51.100.7:4711", "198.51.100.7"),
        ("x-forwarded-for", "198.51.100.7 ,,", "198.51.100.7"),
        ("x-forwarded-for", "[2001:db8::2]:4711", "2001:db8::2"),
        ("x-forwarded-for", "[2001:db8::2]", "2001:db8::2"),
        ("x-forwarded-for", "2001:db8::2", "2001:db8::2"),
        ("x-forwarded-for", "::ffff:198.51.100.7", "198.51.100.7"),
        ("x-forwarded-for", "6.6.6.6, unknown", "10.0.0.1"),
        ("x-forwarded-for", "6.6.6.6, [198.51.100.7]", "10.0.0.1"),
        ("x-forwarded-for", "6.6.6.6, 198.51.100.7:", "10.0.0.1"),
        ("x-forwarded-for", "6.6.6.6, 198.51.100.7:99999", "10.0.0.1"),
        ("x-forwarded-for", "6.6.6.6, 198.51.100.7:+1", "10.0.0.1"),
        ("x-forwarded-for", "6.6.6.6, \"198.51.100.7\"", "10.0.0.1"),
        ("x-forwarded-for", "6.6.6.6, [2001:db8::2]x", "10.0.0.1"),
        ("x-forwarded-for", "6.6.6.6, fe80::1%eth0", "10.0.0.1"),
        ("x-forwarded-for", "10.1.1.1", "10.1.1.1"),
        ("x-forwarded-for", "", "10.0.0.1"),
        ("forwarded", "for=6.6.6.6, For=\"198.51.100.7:80\";proto=https", "198.51.100.7"),
        ("forwarded", "for=\"[2001:db8::2]:4711\"", "2001:db8::2"),
        ("forwarded", "for=\"198.51.100.7:_hidden\"", "198.51.100.7"),
        ("forwarded", "for=198.51.100.7, for=\"[2001:db8::1]\"", "198.51.100.7"),
        ("forwarded", "for=\"198\\.51.100.7\"", "198.51.100.7"),
        ("forwarded", "by=\"a,for=6.6.6.6\"", "10.0.0.1"),
        ("forwarded", "for=_hidden", "10.0.0.1"),
        ("forwarded", "for=198.51.100.7;for=6.6.6.6", "10.0.0.1"),
        ("forwarded", "for=\", for=198.51.100.7", "10.0.0.1"),
        ("forwarded", "for = 198.51.100.7", "10.0.0.1"),
        ("cf-connecting-ip", "198.51.100.7", "198.51.100.7"),
    ] {
        assert_eq!(client_address(name, "10.0.0.1", &[(name, value)]), expected, "{name}: {value}");
        assert_eq!(client_address(name, "::ffff:10.0.0.1", &[(name, value)]), expected, "{name}: {value}");
    }
}

#[test]
fn joins_the_lines_of_a_header_to_one_list() {
    let lines = [
        ("x-forwarded-for", "6.6.6.6"),
        ("x-forwarded-for", "198.51.100.7"),
        ("x-forwarded-for", "10.2.2.2"),
    ];
    assert_eq!(client_address("x-forwarded-for", "10.0.0.1", &lines), "198.51.100.7");
    // An open quote ends with its line.
    let lines = [("forwarded", "for=\""), ("forwarded", "for=198.51.100.7")];
    assert_eq!(client_address("forwarded", "10.0.0.1", &lines), "198.51.100.7");
}

#[test]
fn reads_only_the_configured_header() {
    let fields = [
        ("forwarded", "for=6.6.6.6;proto=http"),
        ("x-forwarded-for", "198.51.100.7"),
        ("cf-connecting-ip", "203.0.113.9"),
        ("x-real-ip", "6.6.6.7"),
    ];
    let clients = CLIENT_HEADERS.map(|header| client_address(header, "10.0.0.1", &fields));
    assert_eq!(clients, ["198.51.100.7", "6.6.6.6", "203.0.113.9"]);
    assert_eq!(client_address("x-forwarded-for", "10.0.0.1", &[("forwarded", "for=6.6.6.6")]), "10.0.0.1");
}

#[test]
fn strips_a_custom_client_header_from_clients() {
    let proxies = proxies("x-shop-client");
    let forged = [("x-shop-client", "6.6.6.6"), ("x_shop_client", "6.6.6.6"), ("x-shop_client", "6.6.6.6")];
    let mut stranger = request(&forged);
    proxies.strip_custom_header(stranger.headers_mut());
    assert_eq!(stranger.headers().len(), 1, "{stranger:?}");
    let fields = [("x-shop-client", "6.6.6.6, 198.51.100.7"), forged[1], forged[2]];
    let (client, request) = resolve_client("x-shop-client", "10.0.0.1", &fields);
    assert_eq!(
        (client.as_str(), header_values(&request, "x-shop-client")),
        ("198.51.100.7", vec!["198.51.100.7"])
    );
    assert!(!format!("{request:?}").contains("6.6.6.6"), "{request:?}");
}

#[test]
fn forwarded_headers_are_consistent() {
    let fields = [
        ("forwarded", "for=6.6.6.6;proto=http;host=evil.example"),
        ("x-forwarded-for", "6.6.6.6, 2001:db8::2, 10.9.9.9"),
        ("x-forwarded-proto", "https"),
        ("x-forwarded-host", "shop.example"),
        ("x-forwarded-port", "8443"),
        ("x-forwarded-ssl", "off"),
        ("x-real-ip", "6.6.6.6"),
        ("true-client-ip", "6.6.6.6"),
        ("x_forwarded_for", "6.6.6.6"),
        ("x_forwarded_prefix", "/shop"),
    ];
    let (_, request) = resolve_client("x-forwarded-for", "10.0.0.1", &fields);
    let chain = "for=\"[2001:db8::2]\";host=\"shop.example\";proto=https, for=10.9.9.9, for=10.0.0.1";
    assert_eq!(header_values(&request, "forwarded"), [chain]);
    assert_eq!(header_values(&request, "x-forwarded-for"), ["2001:db8::2, 10.9.9.9, 10.0.0.1"]);
    assert_eq!(header_values(&request, "x-forwarded-proto"), ["https"]);
    assert_eq!(header_values(&request, "x-forwarded-host"), ["shop.example"]);
    assert_eq!(header_values(&request, "x-forwarded-port"), ["8443"]);
    assert_eq!(header_values(&request, "x-real-ip"), ["2001:db8::2"]);
    for name in ["x-forwarded-ssl", "true-client-ip", "x_forwarded_for", "x_forwarded_prefix"] {
        assert!(header_values(&request, name).is_empty(), "{name}");
    }
}

#[test]
fn passes_on_only_those_claims_of_a_proxy_that_the_operator_lists() {
    let overrides = [
        ("x-original-url", "/admin"),
        ("x-rewrite-url", "/admin"),
        ("x-http-method-override", "DELETE"),
        ("x-forwarded-uri", "/admin"),
        ("x-forwarded-method", "DELETE"),
        ("proxy", "http://evil.example"),
    ];
    let more = [
        ("x-forwarded-prefix", "/shop"),
        ("x_forwarded_prefix", "/admin"),
        ("x-forwarded-user", "admin"),
        ("x-forwarded-client-cert", "Subject=admin"),
        ("ssl-client-subject-dn", "CN=admin"),
        ("incap-client-ip", "6.6.6.6"),
        ("x-vercel-forwarded-for", "6.6.6.6"),
    ];
    let peer = "10.0.0.1".parse().unwrap();
    for (listed, expected) in [(vec![], None), (vec!["X-Forwarded-Prefix".to_owned()], Some("/shop"))] {
        let proxies = proxies("x-forwarded-for").with_passed_headers(&listed);
        let mut request = request(&[&overrides[..], &more[..]].concat());
        let client = proxies.proxied_client(peer, false, request.headers()).unwrap();
        proxies.write_forwarded(&client, &mut request);
        assert_eq!(header_values(&request, "x-forwarded-prefix"), expected.as_slice());
        for (name, _) in overrides.iter().chain(&more[1..]) {
            assert!(header_values(&request, name).is_empty(), "{name}");
        }
    }
    for name in [
        "x-forwarded-prefix",
        "X-Forwarded-User",
        "x-forwarded-client-cert",
        "Client-Cert",
        "ssl_client_verify",
    ] {
        assert!(is_proxy_header(name), "{name}");
    }
    for name in [
        "x-forwarded-for",
        "x-forwarded-uri",
        "x-original-url",
        "x-user",
        "no name",
        "forwarded-host",
        "x-forwarded-client-ip",
        "wl-proxy-client-ip",
        "cf-visitor",
    ] {
        assert!(!is_proxy_header(name), "{name}");
    }
}

#[test]
fn host_and_scheme_come_from_the_clients_element() {
    let value = "for=6.6.6.6;proto=http;host=evil.example, for=198.51.100.7;proto=https;host=shop.example, for=10.3.3.3;proto=http";
    let (_, request) =
        resolve_client("forwarded", "10.0.0.1", &[("forwarded", value), ("x-forwarded-proto", "http")]);
    assert_eq!(header_values(&request, "x-forwarded-proto"), ["https"]);
    assert_eq!(header_values(&request, "x-forwarded-host"), ["shop.example"]);
    let fields = [
        ("x-forwarded-for", "6.6.6.6, 198.51.100.7, 10.3.3.3"),
        ("x-forwarded-proto", "http, https, http"),
        ("x-forwarded-host", "evil.example, shop.example"),
        ("x-forwarded-port", "1, 8443, 3"),
    ];
    let (_, request) = resolve_client("x-forwarded-for", "10.0.0.1", &fields);
    assert_eq!(header_values(&request, "x-forwarded-proto"), ["https"]);
    assert_eq!(header_values(&request, "x-forwarded-port"), ["8443"]);
    assert_eq!(
        header_values(&request, "x-forwarded-host"),
        ["inner.example"],
        "two hosts for three hops are ambiguous"
    );
}

#[test]
fn does_not_forward_malformed_values() {
    for (name, value) in [
        ("x-forwarded-proto", "gopher"),
        ("x-forwarded-host", "a@b.example"),
        ("x-forwarded-host", "a.example/b"),
        ("x-forwarded-port", "0"),
        ("x-forwarded-port", "65536"),
    ] {
        let fields = [("x-forwarded-for", "198.51.100.7"), (name, value)];
        let (_, request) = resolve_client("x-forwarded-for", "10.0.0.1", &fields);
        assert!(!header_values(&request, name).contains(&value), "{name}: {value}");
        assert_eq!(
            header_values(&request, "forwarded"),
            ["for=198.51.100.7;host=\"inner.example\";proto=http, for=10.0.0.1"]
        );
    }
    let fields = [("x-forwarded-host", "shop.example:8443"), ("x-forwarded-port", "80")];
    let (_, request) = resolve_client("x-forwarded-for", "10.0.0.1", &fields);
    assert!(header_values(&request, "x-forwarded-port").is_empty(), "the host has a port");
}

#[test]
fn follows_a_bounded_number_of_proxies() {
    let row = vec!["10.0.0.9"; 10_000].join(",");
    let (client, request) = resolve_client("x-forwarded-for", "10.0.0.1", &[("x-forwarded-for", &row)]);
    assert_eq!(client, "10.0.0.9");
    assert_eq!(header_values(&request, "x-forwarded-for")[0].split(", ").count(), MAX_PROXIES + 1);
}

#[test]
fn reads_a_bounded_number_of_elements() {
    let row = |count: usize| vec!["for=10.0.0.9"; count].join(",");
    let (most, more) = (row(MAX_PARTS), row(MAX_PARTS + 1));
    let (found, settled) = resolve_client("forwarded", "10.0.0.1", &[("forwarded", &most)]);
    assert_eq!(found, "10.0.0.9");
    assert_eq!(header_values(&settled, "forwarded")[0].split(", ").count(), MAX_PROXIES + 1);
    assert_eq!(
        client_address("forwarded", "10.0.0.1", &[("forwarded", &more)]),
        "10.0.0.1",
        "a malformed line"
    );
    let lines = [("forwarded", more.as_str()), ("forwarded", "for=198.51.100.7")];
    assert_eq!(client_address("forwarded", "10.0.0.1", &lines), "198.51.100.7");
    let many = request(&[("forwarded", most.as_str()); 50]);
    assert_eq!(forwarded_elements(many.headers()).len(), MAX_PARTS);
}

proptest! {
    #[test]
    fn header_families_agree_for_any_input(
        text in "(for=|6\\.6\\.6\\.6|10\\.0\\.0\\.2|[2001:db8::2]|\"|,|;|:80|proto=https| |_x|host=a){0,8}",
        choice in 0..3_usize,
    ) {
        let header = CLIENT_HEADERS[choice];
        let (client, request) = resolve_client(header, "10.0.0.1", &[("forwarded", &text), ("x-forwarded-for", &text), ("x-real-ip", "6.6.6.6")]);
        prop_assert_eq!(header_values(&request, "x-real-ip"), [client.as_str()]);
        let chain = header_values(&request, "x-forwarded-for");
        prop_assert_eq!(chain.len(), 1);
        prop_assert_eq!(chain[0].split(", ").next(), Some(client.as_str()));
        let proxied_client = proxies("x-forwarded-for").read_forwarded("10.0.0.3".parse().unwrap(), false, request.headers());
        prop_assert_eq!(proxied_client.address().to_string(), client.clone());
        let again = proxies("forwarded").read_forwarded("10.0.0.3".parse().unwrap(), false, request.headers());
        prop_assert_eq!(again.address().to_string(), client);
    }
}
