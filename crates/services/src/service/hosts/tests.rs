//! Host patterns, address checks, and the cache of hosts.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use proptest::prelude::*;

use super::*;

fn hosts(patterns: &[&str]) -> PermittedHosts {
    let patterns: Vec<String> = patterns.iter().map(|text| (*text).to_owned()).collect();
    PermittedHosts::new(&patterns).unwrap()
}

fn permits_host(patterns: &[&str], authority: &str) -> bool {
    hosts(patterns).find_service(authority, false).is_some()
}

/// Whether the patterns permit a connection of this host to this address.
fn permits_connection(patterns: &[&str], authority: &str, address: &str) -> bool {
    let port = HostAndPort::parse_authority(authority, 80).unwrap();
    hosts(patterns).reachable_addresses(&port).unwrap().check_address(address.parse().unwrap()).is_ok()
}

#[test]
fn patterns_permit_matching_hosts_only() {
    for (pattern, opened, closed) in [
        (
            "auth.internal",
            &["auth.internal", "AUTH.internal:8080"][..],
            &[
                "a.auth.internal",
                "internal",
                "auth.internal.",
                "auth.internal:0",
                "auth.internal:x",
                "1.2.3.4",
            ][..],
        ),
        ("auth.internal:8080", &["auth.internal:8080"], &["auth.internal", "auth.internal:80"]),
        (
            "*.Example.org",
            &["a.example.org", "a.b.example.org:8443"],
            &[
                "example.org",
                "notexample.org",
                "a.example.org.evil.net",
                ".example.org",
                "a..example.org",
                "user@a.example.org",
            ],
        ),
        ("*.example.org:443", &["a.example.org:443"], &["a.example.org"]),
        (
            "*",
            &["a.example.org", "8.8.8.8:53", "[2600::1]:80"],
            &["", "a b", "127.1", "2130706433", "0x7f000001", "[::1"],
        ),
        ("10.0.0.0/8", &["10.1.2.3", "[::ffff:10.1.2.3]:80"], &["11.0.0.1", "ten.example.org"]),
        ("10.1.2.3:80", &["10.1.2.3", "10.1.2.3:80"], &["10.1.2.3:81"]),
        ("[fd00::1]:80", &["[FD00::1]:80", "fd00::1"], &["[fd00::1]:81", "[fd00::2]:80"]),
        ("fd00::/8", &["[fd00::1]:8080"], &["[fe80::1]"]),
    ] {
        opened.iter().for_each(|host| assert!(permits_host(&[pattern], host), "{pattern} permits {host}"));
        closed
            .iter()
            .for_each(|host| assert!(!permits_host(&[pattern], host), "{pattern} does not permit {host}"));
    }
    assert!(!permits_host(&[], "a.example.org"), "no patterns permit no host");
}

#[test]
fn reports_invalid_patterns() {
    for (text, reason) in [
        ("https://a.example.org", "it begins with a scheme"),
        ("a.example.org/b", "it has a path, and is not a network"),
        ("10.0.0.0/33", "it has a path, and is not a network"),
        ("a.example.org:0", "its port is not a number from 1 to 65535"),
        ("a.example.org:+80", "its port is not a number from 1 to 65535"),
        ("a.example.org:65536", "its port is not a number from 1 to 65535"),
        ("a.*.example.org", "it is neither a name nor an address"),
        ("*example.org", "a `*` must be alone or before the first dot: `*.example.org`"),
        ("**", "a `*` must be alone or before the first dot: `*.example.org`"),
        ("127.1", "it is neither a name nor an address"),
        ("", "it is neither a name nor an address"),
    ] {
        let error = PermittedHosts::new(&[text.to_owned()]).unwrap_err();
        assert_eq!(error.to_string(), format!("`{text}` is not a host pattern: {reason}"));
    }
}

#[test]
fn private_addresses_require_an_explicit_address_or_name() {
    for private in [
        "127.0.0.1:80",
        "10.1.2.3:80",
        "172.31.255.255:80",
        "192.168.1.1:80",
        "169.254.169.254:80",
        "100.64.0.1:80",
        "0.0.0.0:80",
        "255.255.255.255:80",
        "[::]:80",
        "[::1]:80",
        "[fe80::1]:80",
        "[fd00:ec2::254]:80",
        "[::ffff:169.254.169.254]:80",
        "[::127.0.0.1]:80",
        "[64:ff9b::a9fe:a9fe]:80",
        "[2002:7f00:1::]:80",
        "[ff02::1]:80",
    ] {
        assert!(!permits_connection(&["*"], "a.example.org", private), "{private}");
        assert!(
            !permits_connection(&["*.example.org", "172.16.5.0/24"], "a.example.org", private),
            "{private}"
        );
        assert!(permits_connection(&["*", "a.example.org"], "a.example.org", private), "{private}");
    }
    for public in ["8.8.8.8:80", "[2600::1]:80", "[::ffff:8.8.8.8]:80", "[64:ff9b::808:808]:80"] {
        assert!(permits_connection(&["*"], "a.example.org", public), "{public}");
    }
    let written = &["*.example.org", "10.0.0.0/8", "127.0.0.1:8080"];
    assert!(permits_connection(written, "a.example.org", "10.1.2.3:80"));
    assert!(permits_connection(written, "a.example.org", "[::ffff:10.1.2.3]:80"));
    assert!(permits_connection(written, "a.example.org:8080", "127.0.0.1:8080"));
    assert!(!permits_connection(written, "a.example.org", "127.0.0.1:80"), "another port");
}

#[test]
fn evicts_the_least_recently_used_host() {
    let hosts = hosts(&["*.example.org"]);
    let call = |number: usize| hosts.find_service(&format!("h{number}.example.org"), false).unwrap();
    let (first, second) = (call(0), call(1));
    (2..MAX_CACHED_HOSTS).for_each(|number| _ = call(number));
    assert!(Arc::ptr_eq(&call(0), &first), "the host is cached");
    assert!(
        !Arc::ptr_eq(&hosts.find_service("h0.example.org", true).unwrap(), &first),
        "TLS uses another entry"
    );
    assert!(!Arc::ptr_eq(&call(1), &second), "the least recently used host is evicted");
    assert!(Arc::ptr_eq(&call(0), &first));
    assert_eq!(hosts.cached_hosts.lock().unwrap().len(), MAX_CACHED_HOSTS);
    assert_eq!((&**first.name(), Arc::strong_count(&second)), ("h0.example.org:80", 1));
}

fn name() -> impl Strategy<Value = String> {
    "[a-z]([a-z0-9-]{0,8}[a-z0-9])?(\\.[a-z][a-z0-9]{0,5}){0,3}"
}

proptest! {
    #[test]
    fn wildcards_match_subdomains_only(name in name(), host in name(), port in 1..=u16::MAX) {
        let pattern = format!("*.{name}");
        let expected = host.strip_suffix(&*name).is_some_and(|before| before.ends_with('.'));
        prop_assert_eq!(permits_host(&[&pattern], &host), expected);
        let (below, at_port) = (format!("x.{name}:{port}"), format!("{pattern}:{port}"));
        prop_assert!(permits_host(&[&pattern], &below) && permits_host(&[&at_port], &below.to_uppercase()));
        let other = if port == 80 { 81 } else { 80 };
        let beside = format!("x.{name}:{other}");
        prop_assert!(!permits_host(&[&at_port], &beside));
    }

    #[test]
    fn an_ipv4_address_is_equally_public_in_every_notation(bits: u32) {
        let v4 = Ipv4Addr::from(bits);
        let check = |ip: IpAddr| ReachableAddresses::Public(Arc::default()).check_address(SocketAddr::new(ip, 80)).is_ok();
        let [a, b, c, d] = v4.octets().map(u16::from);
        let nat64 = Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, a << 8 | b, c << 8 | d);
        prop_assert_eq!(check(v4.into()), check(v4.to_ipv6_mapped().into()));
        prop_assert_eq!(check(v4.into()), check(nat64.into()));
        let is_odd = v4.is_private() || v4.is_loopback() || v4.is_link_local() || v4.is_multicast()
            || v4.is_broadcast() || v4.is_documentation() || v4.is_unspecified();
        prop_assert!(!(is_odd && check(v4.into())));
    }

    #[test]
    fn local_ipv6_addresses_are_not_public(bits: u128, prefix in prop::sample::select(vec![0u16, 0xfc00, 0xfd12, 0xfe80, 0xff02])) {
        let low = bits & (u128::MAX >> 16);
        let ip = IpAddr::from(Ipv6Addr::from(u128::from(prefix) << 112 | low));
        let is_nat64 = low >> 32 == 0x64_ff9b << 64;
        let is_mapped = ip.to_canonical().is_ipv4();
        let check = ReachableAddresses::Public(Arc::default()).check_address(SocketAddr::new(ip, 80)).is_ok();
        prop_assert!(is_nat64 || is_mapped || !check);
    }
}
