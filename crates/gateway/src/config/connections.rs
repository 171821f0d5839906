//! The `connections:` section: how much of the gateway clients may take at once.

use schemars::JsonSchema;
use serde::Deserialize;
use services::Bytes;

/// How much of the gateway clients may take at once. An address is an IPv4 address, or the first 64 bits of an IPv6
/// address, that is connected; those of `trusted_proxies` have many clients behind them and only the limits of all. Who is
/// above a limit is not let in, or has an answer cut off; `orfa_client_limits_reached_total` counts both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ConnectionsConfig {
    /// Connections of all clients. Without it that is three quarters of the file descriptors that the process may have
    /// (`ulimit -n`), 20000 at most: a proxied request takes another one.
    #[schemars(range(min = 1))]
    pub max: Option<u32>,
    /// Connections of one address.
    #[schemars(range(min = 1))]
    pub per_address: u32,
    /// TLS handshakes under way, each for 10 s at most.
    #[schemars(range(min = 1))]
    pub handshakes: u32,
    /// TLS handshakes under way with one address.
    #[schemars(range(min = 1))]
    pub handshakes_per_address: u32,
    /// Requests of one address over HTTP/2, up to the last byte of their answers; what is above that is answered with
    /// `gateway-overloaded`. Over HTTP/1.1 a connection has one at a time.
    #[schemars(range(min = 1))]
    pub requests_per_address: u32,
    /// Bytes of answers that clients have yet to take, in pieces of more than 16 KiB, and all that a composed answer
    /// holds. A single answer may be larger.
    pub unsent: Bytes,
    /// The same for one address.
    pub unsent_per_address: Bytes,
    /// The same for one connection.
    pub unsent_per_connection: Bytes,
}

/// The most connections that are let in where the config names no number.
const MAX: u64 = 20_000;

impl Default for ConnectionsConfig {
    fn default() -> Self {
        Self {
            max: None,
            per_address: 2_000,
            handshakes: 2_000,
            handshakes_per_address: 200,
            requests_per_address: 2_000,
            unsent: Bytes(512 << 20),
            unsent_per_address: Bytes(64 << 20),
            unsent_per_connection: Bytes(32 << 20),
        }
    }
}

impl ConnectionsConfig {
    /// How many connections there may be.
    pub(crate) fn max(&self) -> u64 {
        self.max.map_or_else(descriptors, u64::from)
    }
}

/// As many connections as the process may have file descriptors for.
fn descriptors() -> u64 {
    let most = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    most.map_or(MAX, |most| (most / 4 * 3).clamp(1, MAX))
}
