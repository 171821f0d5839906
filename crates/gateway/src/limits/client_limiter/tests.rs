//! Tests of each limit at its bound and one above it, and of the release of all permits.

use std::net::SocketAddr;
use std::time::Duration;

use services::{BytesConfig, RequestBudget, ToProblem};

use super::*;
use crate::http_semantics::client::{ClientInfo, ConnectionContext};

const CLIENT_ADDRESS: &str = "192.0.2.1";

fn limits() -> ConnectionsConfig {
    ConnectionsConfig {
        max: Some(4),
        per_address: 2,
        new_per_address: "1000/s".parse().unwrap(),
        handshakes: 3,
        handshakes_per_address: 1,
        requests_per_address: 2,
        request_bodies: BytesConfig(150),
        request_bodies_per_address: BytesConfig(100),
        received: BytesConfig(150),
        received_per_address: BytesConfig(100),
        unsent: BytesConfig(300),
        unsent_per_address: BytesConfig(200),
        unsent_per_connection: BytesConfig(100),
    }
}

fn connect(limiter: &Arc<ClientLimiter>, address: &str) -> Result<Arc<ConnectionPermit>, LimitReached> {
    limiter.connect(address.parse().unwrap(), false, &limits(), Instant::now()).map(Arc::new)
}

fn usage_counts(limiter: &ClientLimiter) -> [u64; 7] {
    let ResourceUsage {
        connections,
        handshakes,
        requests,
        body_bytes: bodies,
        unsent_bytes: unsent,
        answer_bytes: answers,
        received_bytes: received,
    } = &limiter.all;
    [connections, handshakes, requests, bodies, unsent, answers, received].map(|count| count.load(Relaxed))
}

#[test]
fn limits_connections_by_address_and_in_total() {
    let limiter = Arc::new(ClientLimiter::default());
    let first = [connect(&limiter, CLIENT_ADDRESS).unwrap(), connect(&limiter, CLIENT_ADDRESS).unwrap()];
    assert_eq!(connect(&limiter, CLIENT_ADDRESS).unwrap_err(), LimitReached::ConnectionsPerAddress);
    assert_eq!(connect(&limiter, "::ffff:192.0.2.1").unwrap_err(), LimitReached::ConnectionsPerAddress);
    let others = ["192.0.2.2", "192.0.2.3"].map(|address| connect(&limiter, address).unwrap());
    assert_eq!(connect(&limiter, "192.0.2.4").unwrap_err(), LimitReached::Connections);
    drop(others);
    drop(first);
    assert_eq!(usage_counts(&limiter), [0; 7]);
    assert!(limiter.networks().is_empty(), "networks without connections are forgotten");
}

#[test]
fn an_ipv6_network_is_its_first_64_bits() {
    let limiter = Arc::new(ClientLimiter::default());
    let _two = ["2001:db8::1", "2001:db8::ffff:2"].map(|address| connect(&limiter, address).unwrap());
    assert_eq!(connect(&limiter, "2001:db8::3").unwrap_err(), LimitReached::ConnectionsPerAddress);
    assert!(connect(&limiter, "2001:db8:1::1").is_ok());
}

/// Connects from an address of this network of a block of 48 bits.
fn connect_in_block(
    limiter: &Arc<ClientLimiter>,
    network: u16,
    limits: &ConnectionsConfig,
) -> Result<Arc<ConnectionPermit>, LimitReached> {
    let address = format!("2001:db8:0:{network:x}::1");
    limiter.connect(address.parse().unwrap(), false, limits, Instant::now()).map(Arc::new)
}

#[test]
fn a_block_of_ipv6_networks_has_sixteen_times_as_many_connections_but_a_quarter_of_all() {
    for (max, most) in [(1_000, 32), (40, 10), (4, 2)] {
        let limiter = Arc::new(ClientLimiter::default());
        let limits = ConnectionsConfig { max: Some(max), ..limits() };
        let connected: Vec<_> =
            (0..most).map(|network| connect_in_block(&limiter, network, &limits).unwrap()).collect();
        let refused = connect_in_block(&limiter, most, &limits);
        assert_eq!(refused.unwrap_err(), LimitReached::ConnectionsPerAddress, "of {max}");
        let another =
            limiter.connect("2001:db8:1::1".parse().unwrap(), false, &limits, Instant::now()).map(drop);
        assert!(another.is_ok(), "another block");
        assert_eq!(limiter.networks().len(), connected.len() + 1);
        drop(connected);
        assert!(limiter.networks().is_empty(), "networks without connections are forgotten");
    }
}

#[test]
fn a_block_of_ipv6_networks_has_other_limits_as_well() {
    let limiter = Arc::new(ClientLimiter::default());
    let limits = ConnectionsConfig {
        max: Some(1_000),
        handshakes: 40,
        requests_per_address: 1,
        request_bodies: BytesConfig(4_000),
        unsent: BytesConfig(4_000),
        unsent_per_address: BytesConfig(100),
        ..limits()
    };
    let connected: Vec<_> =
        (0..16).map(|network| connect_in_block(&limiter, network, &limits).unwrap()).collect();
    let handshakes: Vec<_> = connected[..10].iter().map(|permit| permit.start_handshake().unwrap()).collect();
    assert_eq!(connected[10].start_handshake().unwrap_err(), LimitReached::HandshakesPerAddress);
    let bodies: Vec<_> = connected[..10].iter().map(ConnectionPermit::body_permit).collect();
    bodies.iter().for_each(|body| body.reserve_total(100).unwrap());
    assert_eq!(connected[10].body_permit().reserve_total(1).unwrap_err(), LimitReached::BodiesPerAddress);
    let permits: Vec<_> = connected[..10]
        .iter()
        .map(|connection_permit| connection_permit.reserve_unsent(100).unwrap())
        .collect();
    assert_eq!(connected[10].reserve_unsent(1).unwrap_err(), LimitReached::UnsentPerAddress);
    let requests: Vec<_> = connected.iter().map(ConnectionPermit::start_request).collect();
    assert!(!connected[0].exceeds_request_limit());
    let one_more = connected[0].start_request();
    assert!(connected[1].exceeds_request_limit());
    drop(handshakes);
    drop((bodies, permits, requests, one_more, connected));
    assert_eq!(usage_counts(&limiter), [0; 7]);
}

#[test]
fn many_body_bytes_of_a_network_do_not_count_for_its_block() {
    let limiter = Arc::new(ClientLimiter::default());
    let limits = ConnectionsConfig::default();
    let [uploading, other] = [0, 1].map(|network| connect_in_block(&limiter, network, &limits).unwrap());
    let body = uploading.body_permit();
    body.reserve_total(4 << 20).unwrap();
    assert!(!uploading.has_many_body_bytes());
    body.reserve_total((4 << 20) + 1).unwrap();
    assert!(uploading.has_many_body_bytes() && body.is_under_pressure());
    assert!(!other.has_many_body_bytes());
    body.release();
    assert!(!uploading.has_many_body_bytes());
}

/// Limits with a connection at once, and a new one every ten seconds.
fn slow_limits() -> ConnectionsConfig {
    let new_per_address = "6/m".parse().unwrap();
    ConnectionsConfig { max: Some(1_000), per_address: 1, new_per_address, ..limits() }
}

#[test]
fn limits_the_rate_of_new_connections_by_address() {
    let (limiter, start) = (Arc::new(ClientLimiter::default()), Instant::now());
    let connect = |address: &str, limits: &ConnectionsConfig, second| {
        let now = start + Duration::from_secs(second);
        limiter.connect(address.parse().unwrap(), false, limits, now).map(drop)
    };
    let limits = slow_limits();
    assert_eq!(connect(CLIENT_ADDRESS, &limits, 0), Ok(()));
    for address in [CLIENT_ADDRESS, "::ffff:192.0.2.1"] {
        assert_eq!(connect(address, &limits, 9), Err(LimitReached::NewConnectionsPerAddress));
    }
    assert_eq!(connect("192.0.2.2", &limits, 9), Ok(()), "another network");
    assert_eq!(connect(CLIENT_ADDRESS, &limits, 11), Ok(()), "refused ones are not charged");
    assert_eq!(usage_counts(&limiter), [0; 7]);
    assert!(limiter.networks().is_empty(), "networks without connections are forgotten");
    let refused = LIMITS.iter().zip(&limiter.refused).filter(|(_, count)| count.load(Relaxed) > 0);
    assert_eq!(
        refused.map(|((_, name), count)| (*name, count.load(Relaxed))).collect::<Vec<_>>(),
        [("new_per_address", 2)]
    );
}

#[test]
fn all_connections_of_an_address_may_be_new_but_those_above_another_limit_are_not_charged() {
    let (limiter, start) = (Arc::new(ClientLimiter::default()), Instant::now());
    let limits = ConnectionsConfig { per_address: 3, ..slow_limits() };
    let connect = || limiter.connect(CLIENT_ADDRESS.parse().unwrap(), false, &limits, start);
    let two = [connect().unwrap(), connect().unwrap()];
    let third = connect().unwrap();
    for _ in 0..3 {
        assert_eq!(connect().unwrap_err(), LimitReached::ConnectionsPerAddress);
    }
    drop(third);
    assert_eq!(connect().unwrap_err(), LimitReached::NewConnectionsPerAddress);
    let later = start + Duration::from_secs(11);
    assert!(limiter.connect(CLIENT_ADDRESS.parse().unwrap(), false, &limits, later).is_ok());
    drop(two);
    // The burst is that of a second if that is more.
    let limits = ConnectionsConfig { new_per_address: "5/s".parse().unwrap(), ..limits };
    let there = || limiter.connect("192.0.2.2".parse().unwrap(), false, &limits, start).map(drop);
    assert_eq!((0..10).filter(|_| there().is_ok()).count(), 5);
}

#[test]
fn a_raised_rate_of_new_connections_applies_to_earlier_ones() {
    let (limiter, start) = (Arc::new(ClientLimiter::default()), Instant::now());
    let connect = |limits: &ConnectionsConfig, millisecond| {
        let now = start + Duration::from_millis(millisecond);
        limiter.connect(CLIENT_ADDRESS.parse().unwrap(), false, limits, now).map(drop)
    };
    let limits = ConnectionsConfig { per_address: 100, ..slow_limits() };
    assert_eq!((0..1_000).filter(|_| connect(&limits, 0).is_ok()).count(), 100);
    assert_eq!(connect(&limits, 9_000), Err(LimitReached::NewConnectionsPerAddress));
    let limits = ConnectionsConfig { new_per_address: "1000/s".parse().unwrap(), ..limits };
    let _ = connect(&limits, 9_001);
    assert_eq!(connect(&limits, 9_003), Ok(()));
}

#[test]
fn a_block_of_ipv6_networks_has_sixteen_times_as_many_new_connections() {
    let (limiter, start) = (Arc::new(ClientLimiter::default()), Instant::now());
    let connect = |block: u16, network: u16| {
        let address = format!("2001:db8:{block:x}:{network:x}::1");
        limiter.connect(address.parse().unwrap(), false, &slow_limits(), start).map(drop)
    };
    assert_eq!((0..100).filter(|network| connect(1, *network).is_ok()).count(), 16);
    assert_eq!(connect(1, 200), Err(LimitReached::NewConnectionsPerAddress));
    assert_eq!(connect(2, 0), Ok(()), "another block");
    assert_eq!(connect(2, 0), Err(LimitReached::NewConnectionsPerAddress), "a network has no more");
}

#[test]
fn trusted_proxies_may_open_connections_at_any_rate() {
    let (limiter, start) = (Arc::new(ClientLimiter::default()), Instant::now());
    for _ in 0..100 {
        assert!(limiter.connect(CLIENT_ADDRESS.parse().unwrap(), true, &slow_limits(), start).is_ok());
    }
}

#[test]
fn only_total_limits_apply_to_trusted_proxies() {
    let limiter = Arc::new(ClientLimiter::default());
    let proxy =
        || limiter.connect(CLIENT_ADDRESS.parse().unwrap(), true, &limits(), Instant::now()).map(Arc::new);
    let connections: Vec<_> = (0..4).map(|_| proxy().unwrap()).collect();
    assert_eq!(proxy().unwrap_err(), LimitReached::Connections);
    let requests: Vec<_> = (0..10).map(|_| connections[0].start_request()).collect();
    assert!(!connections[0].exceeds_request_limit());
    let permits: Vec<_> =
        connections[..3].iter().map(|connection| connection.reserve_unsent(100).unwrap()).collect();
    assert_eq!(connections[3].reserve_unsent(1).unwrap_err(), LimitReached::Unsent);
    drop((requests, permits, connections));
    assert_eq!(usage_counts(&limiter), [0; 7]);
}

#[test]
fn limits_handshakes_and_requests_by_address_and_in_total() {
    let limiter = Arc::new(ClientLimiter::default());
    let two = [connect(&limiter, CLIENT_ADDRESS).unwrap(), connect(&limiter, CLIENT_ADDRESS).unwrap()];
    let handshake = two[0].start_handshake().unwrap();
    assert_eq!(two[1].start_handshake().unwrap_err(), LimitReached::HandshakesPerAddress);
    drop(handshake);
    assert!(two[1].start_handshake().is_ok());
    let requests = [two[0].start_request(), two[1].start_request()];
    assert!(!two[0].exceeds_request_limit());
    let third = two[1].start_request();
    assert!(two[0].exceeds_request_limit() && two[1].exceeds_request_limit());
    assert!(!connect(&limiter, "192.0.2.2").unwrap().exceeds_request_limit());
    drop((requests, third));
    assert!(!two[0].exceeds_request_limit());
}

#[test]
fn limits_bytes_of_request_bodies_by_address_and_in_total() {
    let limiter = Arc::new(ClientLimiter::default());
    let two = [connect(&limiter, CLIENT_ADDRESS).unwrap(), connect(&limiter, CLIENT_ADDRESS).unwrap()];
    let (first, second) = (two[0].body_permit(), two[1].body_permit());
    for total in [20, 60, 60] {
        first.reserve_total(total).unwrap();
    }
    second.reserve_total(40).unwrap();
    assert_eq!(second.reserve_total(41).unwrap_err(), LimitReached::BodiesPerAddress);
    first.reserve_total(60).expect("these bytes are counted already");
    let other = connect(&limiter, "192.0.2.2").unwrap().body_permit();
    other.reserve_total(50).unwrap();
    assert_eq!(other.reserve_total(51).unwrap_err(), LimitReached::Bodies);
    first.release();
    first.release();
    assert_eq!(usage_counts(&limiter)[3], 90);
    second.reserve_total(100).unwrap();
    drop((first, second, other));
    assert_eq!(usage_counts(&limiter)[3], 0);
    // A body that is the only one may be longer, since its handler limits it.
    let permit = two[0].body_permit();
    (1..=10).for_each(|part| permit.reserve_total(part * 100).unwrap());
    assert_eq!(two[1].body_permit().reserve_total(1).unwrap_err(), LimitReached::BodiesPerAddress);
    drop(permit);
    assert!(two[1].body_permit().reserve_total(1).is_ok());
}

#[test]
fn request_bodies_behind_a_trusted_proxy_count_for_the_client() {
    let limiter = Arc::new(ClientLimiter::default());
    let proxy = limiter.connect("192.0.2.9".parse().unwrap(), true, &limits(), Instant::now());
    let proxy = proxy.map(Arc::new).unwrap();
    let of = |client: &str| proxy.body_permit_for(client.parse().unwrap());
    let direct = connect(&limiter, CLIENT_ADDRESS).unwrap().body_permit();
    let bodies = [of(CLIENT_ADDRESS), of(CLIENT_ADDRESS), of("192.0.2.2")];
    direct.reserve_total(20).unwrap();
    bodies[0].reserve_total(80).unwrap();
    assert_eq!(bodies[1].reserve_total(1).unwrap_err(), LimitReached::BodiesPerAddress);
    bodies[2].reserve_total(50).unwrap();
    assert_eq!(of("192.0.2.3").reserve_total(1).unwrap_err(), LimitReached::Bodies);
    drop(direct);
    bodies[1].reserve_total(20).unwrap();
    drop((bodies, proxy));
    assert_eq!(usage_counts(&limiter), [0; 7]);
    assert!(limiter.networks().is_empty(), "networks without bodies are forgotten");
}

#[test]
fn request_bodies_of_a_trusted_proxy_that_names_no_client_count_for_the_proxy() {
    let limiter = Arc::new(ClientLimiter::default());
    let address = CLIENT_ADDRESS.parse().unwrap();
    let proxy = limiter.connect(address, true, &limits(), Instant::now()).map(Arc::new).unwrap();
    let client =
        ClientInfo::new(SocketAddr::new(address, 1), Arc::new(ConnectionContext::new(None, Some(proxy))));
    let [first, second] = [client.body_permit().unwrap(), client.body_permit().unwrap()];
    first.reserve_total(100).unwrap();
    assert_eq!(second.reserve_total(1).unwrap_err(), LimitReached::BodiesPerAddress);
    drop(first);
    second.reserve_total(1).unwrap();
    drop((second, client));
    assert_eq!(usage_counts(&limiter), [0; 7]);
    assert!(limiter.networks().is_empty(), "networks without bodies are forgotten");
}

#[test]
fn limits_bytes_of_services_responses_by_address_and_in_total() {
    let limiter = Arc::new(ClientLimiter::default());
    let connection = connect(&limiter, CLIENT_ADDRESS).unwrap();
    let accounts = connection.response_accounts();
    let of = |client: &str| accounts.open_account(client.parse().unwrap());
    let [first, second, other] = [of(CLIENT_ADDRESS), of(CLIENT_ADDRESS), of("192.0.2.2")];
    assert!(first.try_hold(60).is_ok() && second.try_hold(40).is_ok());
    assert_eq!(second.try_hold(41), Err(ReceivedLimit::Client), "above the limit of the address");
    assert!(first.try_hold(60).is_ok(), "these bytes are counted already");
    assert!(other.try_hold(50).is_ok());
    assert_eq!(other.try_hold(51), Err(ReceivedLimit::Total), "above the limit of all");
    // Work for a request may outlast its connection, which does not count any more.
    drop(connection);
    assert_eq!(usage_counts(&limiter), [0, 0, 0, 0, 0, 0, 150]);
    drop(first);
    assert!(second.try_hold(100).is_ok());
    drop((second, other));
    // A request that is the only one may have more, since its route limits it.
    let permit = of(CLIENT_ADDRESS);
    assert!(permit.try_hold(1_000).is_ok() && of(CLIENT_ADDRESS).try_hold(1).is_err());
    drop(permit);
    assert_eq!(usage_counts(&limiter), [0; 7]);
    assert!(limiter.networks().is_empty(), "networks without responses are forgotten");
    let counts: Vec<_> =
        LIMITS.iter().zip(&limiter.refused).map(|((limit, _), count)| (*limit, count)).collect();
    for limit in [LimitReached::Received, LimitReached::ReceivedPerAddress] {
        assert!(counts.iter().any(|(one, count)| *one == limit && count.load(Relaxed) > 0), "{limit}");
    }
}

#[test]
fn services_responses_count_for_the_client_of_the_request_and_its_parts() {
    const LONG: u64 = (64 << 10) + 1;
    let limiter = Arc::new(ClientLimiter::default());
    let proxy = limiter.connect("192.0.2.9".parse().unwrap(), true, &limits(), Instant::now());
    let proxy = proxy.map(Arc::new).unwrap();
    let client = ClientInfo::new(
        SocketAddr::new(CLIENT_ADDRESS.parse().unwrap(), 0),
        Arc::new(ConnectionContext::new(None, Some(proxy))),
    );
    let unlimited = || RequestBudget::new(Duration::from_secs(3600), 1, u64::MAX, 1);
    let [first, second] = [client.charge(unlimited()), client.charge(unlimited())];
    let part = unlimited().with_parent(&second);
    first.receive(LONG - 1).unwrap();
    assert!(limiter.networks().is_empty(), "short responses are not counted");
    first.receive(1).unwrap();
    for budget in [&second, &part] {
        assert_eq!(budget.receive(LONG).unwrap_err().code(), "answer-unfinished");
    }
    unlimited().receive(LONG).expect("a request without a client is not counted");
    drop(first);
    part.receive(LONG).unwrap();
    drop((second, part, client));
    assert_eq!(usage_counts(&limiter), [0; 7]);
    assert!(limiter.networks().is_empty(), "networks without responses are forgotten");
}

#[test]
fn limits_unsent_bytes_by_connection_by_address_and_in_total() {
    let limiter = Arc::new(ClientLimiter::default());
    let two = [connect(&limiter, CLIENT_ADDRESS).unwrap(), connect(&limiter, CLIENT_ADDRESS).unwrap()];
    let (first, second) = (two[0].reserve_unsent(60).unwrap(), two[0].reserve_unsent(40).unwrap());
    assert_eq!(two[0].reserve_unsent(1).unwrap_err(), LimitReached::UnsentPerConnection);
    let third = two[1].reserve_unsent(100).unwrap();
    drop(second);
    let other = [connect(&limiter, "192.0.2.2").unwrap(), connect(&limiter, "192.0.2.3").unwrap()];
    let fourth = other[0].reserve_unsent(100).unwrap();
    let fifth = other[1].reserve_unsent(40).unwrap();
    assert_eq!(other[1].reserve_unsent(1).unwrap_err(), LimitReached::Unsent);
    drop((first, third, fourth, fifth));
    assert_eq!(usage_counts(&limiter)[4], 0);
    // A piece above the limit is admitted if no others are, since it could never be sent otherwise.
    let large = two[0].reserve_unsent(1_000).unwrap();
    assert_eq!(two[0].reserve_unsent(1).unwrap_err(), LimitReached::UnsentPerConnection);
    assert_eq!(two[1].reserve_unsent(1).unwrap_err(), LimitReached::UnsentPerAddress);
    drop(large);
    assert!(two[1].reserve_unsent(1).is_ok());
}

#[test]
fn limits_bytes_of_responses_that_are_read_first_to_half_of_the_unsent_bytes() {
    let limiter = Arc::new(ClientLimiter::default());
    let two = [connect(&limiter, CLIENT_ADDRESS).unwrap(), connect(&limiter, CLIENT_ADDRESS).unwrap()];
    let first = two[0].reserve_buffered(50).unwrap();
    assert_eq!(two[0].reserve_buffered(1).unwrap_err(), LimitReached::UnsentPerConnection);
    let second = two[0].reserve_unsent(30).unwrap();
    assert_eq!(two[1].reserve_buffered(21).unwrap_err(), LimitReached::UnsentPerAddress);
    let third = two[1].reserve_buffered(20).unwrap();
    let other = [connect(&limiter, "192.0.2.2").unwrap(), connect(&limiter, "192.0.2.3").unwrap()];
    let fourth = other[0].reserve_buffered(50).unwrap();
    assert_eq!(other[1].reserve_buffered(1).unwrap_err(), LimitReached::Unsent);
    assert!(other[1].reserve_unsent(100).is_ok(), "there is room for what is sent");
    drop((first, second, third, fourth));
    assert_eq!(usage_counts(&limiter)[4], 0);
}

#[test]
fn reports_limits_of_unsent_bytes_only_if_a_response_is_refused() {
    let limiter = Arc::new(ClientLimiter::default());
    let reports = || limiter.refused.iter().map(|count| count.load(Relaxed)).sum::<u64>();
    let two = [connect(&limiter, CLIENT_ADDRESS).unwrap(), connect(&limiter, CLIENT_ADDRESS).unwrap()];
    let other = [connect(&limiter, "192.0.2.2").unwrap(), connect(&limiter, "192.0.2.3").unwrap()];
    let _kept = [
        two[0].reserve_unsent(100).unwrap(),
        two[1].reserve_unsent(50).unwrap(),
        other[0].reserve_unsent(80).unwrap(),
    ];
    for connection in two.iter().chain(&other) {
        assert!(connection.reserve_buffered(10).is_err());
    }
    assert_eq!(reports(), 0);
    assert!(two[0].reserve_unsent(1).is_err());
    assert_eq!(reports(), 1);
    assert!(other[1].reserve_unsent(71).is_err());
    assert_eq!(reports(), 2);
}

#[test]
fn limits_bytes_of_answers_over_http2_by_address_and_in_total() {
    let limiter = Arc::new(ClientLimiter::default());
    let limits =
        ConnectionsConfig { unsent: BytesConfig(1_500), unsent_per_address: BytesConfig(1_000), ..limits() };
    let request = |address: &str| {
        let connection = limiter.connect(address.parse().unwrap(), false, &limits, Instant::now());
        let connection = connection.map(Arc::new).unwrap();
        connection.start_request()
    };
    let (here, there) = (request(CLIENT_ADDRESS), request("192.0.2.2"));
    let free =
        [here.reserve_answer(FREE_ANSWER_BYTES).unwrap(), there.reserve_answer(FREE_ANSWER_BYTES).unwrap()];
    assert_eq!(limiter.unsent_bytes(), 0);
    let mut first = here.reserve_answer(600).unwrap();
    assert_eq!(here.reserve_answer(500).unwrap_err(), LimitReached::UnsentPerAddress);
    let second = there.reserve_answer(900).unwrap();
    assert_eq!(there.reserve_answer(100).unwrap_err(), LimitReached::Unsent);
    assert_eq!(limiter.unsent_bytes(), 1_500);
    // An answer that has begun is counted in any case.
    first.grow_to(500);
    first.grow_to(1_000);
    assert_eq!(limiter.unsent_bytes(), 1_900);
    // Longer answers have an account of their own.
    let connection = connect(&limiter, CLIENT_ADDRESS).unwrap();
    let permit = connection.reserve_unsent(100).unwrap();
    assert_eq!(limiter.unsent_bytes(), 2_000);
    drop((free, first, second, permit, here, there, connection));
    assert_eq!(usage_counts(&limiter), [0; 7]);
}
