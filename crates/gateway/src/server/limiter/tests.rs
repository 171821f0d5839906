//! Tests of each limit at its bound and one above it, and of the release of all permits.

use services::Bytes;

use super::*;

const HERE: &str = "192.0.2.1";

fn limits() -> ConnectionsConfig {
    ConnectionsConfig {
        max: Some(4),
        per_address: 2,
        handshakes: 3,
        handshakes_per_address: 1,
        requests_per_address: 2,
        unsent: Bytes(300),
        unsent_per_address: Bytes(200),
        unsent_per_connection: Bytes(100),
    }
}

fn connect(limiter: &Arc<ClientLimiter>, address: &str) -> Result<Arc<ConnectionPermit>, LimitReached> {
    limiter.connect(address.parse().unwrap(), false, &limits()).map(Arc::new)
}

fn all(limiter: &ClientLimiter) -> [u64; 4] {
    let Usage { connections, handshakes, requests, unsent } = &limiter.all;
    [connections, handshakes, requests, unsent].map(|count| count.load(Relaxed))
}

#[test]
fn limits_connections_by_address_and_in_total() {
    let limiter = Arc::new(ClientLimiter::default());
    let first = [connect(&limiter, HERE).unwrap(), connect(&limiter, HERE).unwrap()];
    assert_eq!(connect(&limiter, HERE).unwrap_err(), LimitReached::ConnectionsPerAddress);
    assert_eq!(connect(&limiter, "::ffff:192.0.2.1").unwrap_err(), LimitReached::ConnectionsPerAddress);
    let others = ["192.0.2.2", "192.0.2.3"].map(|address| connect(&limiter, address).unwrap());
    assert_eq!(connect(&limiter, "192.0.2.4").unwrap_err(), LimitReached::Connections);
    drop(others);
    drop(first);
    assert_eq!(all(&limiter), [0; 4]);
    assert!(limiter.networks().is_empty(), "networks without connections are forgotten");
}

#[test]
fn an_ipv6_network_is_its_first_64_bits() {
    let limiter = Arc::new(ClientLimiter::default());
    let _two = ["2001:db8::1", "2001:db8::ffff:2"].map(|address| connect(&limiter, address).unwrap());
    assert_eq!(connect(&limiter, "2001:db8::3").unwrap_err(), LimitReached::ConnectionsPerAddress);
    assert!(connect(&limiter, "2001:db8:0:1::1").is_ok());
}

#[test]
fn only_total_limits_apply_to_trusted_proxies() {
    let limiter = Arc::new(ClientLimiter::default());
    let proxy = || limiter.connect(HERE.parse().unwrap(), true, &limits()).map(Arc::new);
    let connections: Vec<_> = (0..4).map(|_| proxy().unwrap()).collect();
    assert_eq!(proxy().unwrap_err(), LimitReached::Connections);
    let requests: Vec<_> = (0..10).map(|_| connections[0].request()).collect();
    assert!(!connections[0].is_crowded());
    let kept: Vec<_> = connections[..3].iter().map(|connection| connection.keep(100).unwrap()).collect();
    assert_eq!(connections[3].keep(1).unwrap_err(), LimitReached::Unsent);
    drop((requests, kept, connections));
    assert_eq!(all(&limiter), [0; 4]);
}

#[test]
fn limits_handshakes_and_requests_by_address_and_in_total() {
    let limiter = Arc::new(ClientLimiter::default());
    let two = [connect(&limiter, HERE).unwrap(), connect(&limiter, HERE).unwrap()];
    let handshake = two[0].handshake().unwrap();
    assert_eq!(two[1].handshake().unwrap_err(), LimitReached::HandshakesPerAddress);
    drop(handshake);
    assert!(two[1].handshake().is_ok());
    let requests = [two[0].request(), two[1].request()];
    assert!(!two[0].is_crowded());
    let third = two[1].request();
    assert!(two[0].is_crowded() && two[1].is_crowded());
    assert!(!connect(&limiter, "192.0.2.2").unwrap().is_crowded());
    drop((requests, third));
    assert!(!two[0].is_crowded());
}

#[test]
fn limits_unsent_bytes_by_connection_by_address_and_in_total() {
    let limiter = Arc::new(ClientLimiter::default());
    let two = [connect(&limiter, HERE).unwrap(), connect(&limiter, HERE).unwrap()];
    let (first, second) = (two[0].keep(60).unwrap(), two[0].keep(40).unwrap());
    assert_eq!(two[0].keep(1).unwrap_err(), LimitReached::UnsentPerConnection);
    let third = two[1].keep(100).unwrap();
    drop(second);
    let other = [connect(&limiter, "192.0.2.2").unwrap(), connect(&limiter, "192.0.2.3").unwrap()];
    let fourth = other[0].keep(100).unwrap();
    let fifth = other[1].keep(40).unwrap();
    assert_eq!(other[1].keep(1).unwrap_err(), LimitReached::Unsent);
    drop((first, third, fourth, fifth));
    assert_eq!(all(&limiter)[3], 0);
    // A piece above the limit is admitted if no others are, since it could never be sent otherwise.
    let large = two[0].keep(1_000).unwrap();
    assert_eq!(two[0].keep(1).unwrap_err(), LimitReached::UnsentPerConnection);
    assert_eq!(two[1].keep(1).unwrap_err(), LimitReached::UnsentPerAddress);
    drop(large);
    assert!(two[1].keep(1).is_ok());
}
