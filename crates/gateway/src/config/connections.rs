//! The `connections:` section: limits on the resources that clients may use at once.

use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;
use services::BytesConfig;
use services::config::PerTime;

/// Limits on the resources that clients may use at once. An address is the IPv4 address of the connected
/// peer, or the first 64 bits of its IPv6 address. The first 48 bits of an IPv6 address, which often belong
/// to one customer, may have 16 times as much as an address, but at most a quarter of what all clients may
/// have, or as much as an address if that is more. The addresses of `trusted_proxies` are subject to the
/// limits of all clients only, since they have many clients behind them; request bodies and services'
/// responses count for the client that they report, or for the proxy if it reports none. Above a limit,
/// connections, requests and calls are refused and responses are cut off; `orfa_client_limits_reached_total`
/// counts all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ConnectionsConfig {
    /// Connections of all clients. By default three quarters of the process's file descriptor limit (`ulimit
    /// -n`), at most 20000: a proxied request needs another descriptor.
    #[schemars(range(min = 1))]
    pub max: Option<u32>,
    /// Connections of one address.
    #[schemars(range(min = 1))]
    pub per_address: u32,
    /// The sustained rate of new connections of one address. After a pause, as many as `per_address` may
    /// arrive at once, or those of one second if they are more. The first 48 bits of an IPv6 address have 16
    /// times the rate.
    pub new_per_address: PerTime,
    /// TLS handshakes in flight. Each may take 10 s at most.
    #[schemars(range(min = 1))]
    pub handshakes: u32,
    /// TLS handshakes in flight with one address.
    #[schemars(range(min = 1))]
    pub handshakes_per_address: u32,
    /// HTTP/2 requests in flight from one address, up to the last byte of their responses. Requests above the
    /// limit are answered with `gateway-overloaded`. An HTTP/1.1 connection has one request at a time.
    #[schemars(range(min = 1))]
    pub requests_per_address: u32,
    /// Bytes of request bodies that handlers and filters hold, counting bodies of more than 16 KiB until
    /// their responses begin. A request above the limit is answered with `gateway-overloaded`. A single body
    /// may be longer.
    pub request_bodies: BytesConfig,
    /// Bytes of request bodies that are held for one address.
    pub request_bodies_per_address: BytesConfig,
    /// Bytes of services' responses that the gateway holds for requests to GraphQL, aggregates and scripts
    /// and for calls of filters, counting requests with more than 64 KiB, in steps of 64 KiB, until they are
    /// answered. A call above the limit fails with `answer-unfinished`. A single request may have more.
    pub received: BytesConfig,
    /// Bytes of services' responses that are held for one address.
    pub received_per_address: BytesConfig,
    /// Response bytes that clients have not yet received, counting chunks of more than 16 KiB and the memory
    /// of composed responses. A single response may be larger. Over HTTP/2, heads and short responses have
    /// the same limits, but count apart.
    pub unsent: BytesConfig,
    /// Response bytes that one address has not yet received.
    pub unsent_per_address: BytesConfig,
    /// Response bytes that one connection has not yet received.
    pub unsent_per_connection: BytesConfig,
}

/// The upper bound of the default connection limit.
const DEFAULT_MAX_CONNECTIONS: u64 = 20_000;

impl Default for ConnectionsConfig {
    fn default() -> Self {
        Self {
            max: None,
            per_address: 2_000,
            new_per_address: PerTime { count: 2_000, span: Duration::from_secs(1) },
            handshakes: 2_000,
            handshakes_per_address: 200,
            requests_per_address: 2_000,
            request_bodies: BytesConfig(512 << 20),
            request_bodies_per_address: BytesConfig(64 << 20),
            received: BytesConfig(1 << 30),
            received_per_address: BytesConfig(128 << 20),
            unsent: BytesConfig(512 << 20),
            unsent_per_address: BytesConfig(64 << 20),
            unsent_per_connection: BytesConfig(32 << 20),
        }
    }
}

impl ConnectionsConfig {
    /// The connection limit.
    pub(crate) fn max(&self) -> u64 {
        self.max.map_or_else(default_max_connections, u64::from)
    }
}

/// Derives the connection limit from the limit of file descriptors.
fn default_max_connections() -> u64 {
    let most = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    most.map_or(DEFAULT_MAX_CONNECTIONS, |most| (most / 4 * 3).clamp(1, DEFAULT_MAX_CONNECTIONS))
}
