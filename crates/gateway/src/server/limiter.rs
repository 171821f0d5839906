//! Limits on the resources that clients use at once, in total and by network: connections, TLS handshakes,
//! requests over HTTP/2, and response bytes that they have yet to receive.
//!
//! A network is the IPv4 address or the first 64 bits of the IPv6 address of the connection's peer. A trusted
//! proxy serves many clients, so only the total limits apply to it. A connection looks up its counters once,
//! when it is accepted; from then on counting takes a few atomic additions.

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::config::ConnectionsConfig;
use crate::metrics::Page;

/// The resources that clients use. The state outlives configs.
#[derive(Debug, Default)]
pub(crate) struct ClientLimiter {
    all: Usage,
    /// The usage of networks that have a connection.
    networks: Mutex<HashMap<u128, Arc<Usage>>>,
    refused: [AtomicU64; LIMITS.len()],
}

/// The usage of all clients or of one network.
#[derive(Debug, Default)]
struct Usage {
    connections: AtomicU64,
    handshakes: AtomicU64,
    requests: AtomicU64,
    unsent: AtomicU64,
}

/// A limit that was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum LimitReached {
    #[error("`connections.max`: the gateway has the maximum number of connections")]
    Connections,
    #[error("`connections.per_address`: the client has the maximum number of connections of an address")]
    ConnectionsPerAddress,
    #[error("`connections.handshakes`: the maximum number of TLS handshakes are under way")]
    Handshakes,
    #[error(
        "`connections.handshakes_per_address`: the client has the maximum number of TLS handshakes under way"
    )]
    HandshakesPerAddress,
    #[error("`connections.unsent`: clients have yet to receive the maximum number of bytes of responses")]
    Unsent,
    #[error(
        "`connections.unsent_per_address`: the client has yet to receive too many bytes of earlier responses"
    )]
    UnsentPerAddress,
    #[error(
        "`connections.unsent_per_connection`: the client has yet to receive too many bytes of earlier responses"
    )]
    UnsentPerConnection,
}

/// Each limit with its field in the config.
const LIMITS: [(LimitReached, &str); 7] = [
    (LimitReached::Connections, "max"),
    (LimitReached::ConnectionsPerAddress, "per_address"),
    (LimitReached::Handshakes, "handshakes"),
    (LimitReached::HandshakesPerAddress, "handshakes_per_address"),
    (LimitReached::Unsent, "unsent"),
    (LimitReached::UnsentPerAddress, "unsent_per_address"),
    (LimitReached::UnsentPerConnection, "unsent_per_connection"),
];

/// A guard that counts an admitted connection until it is dropped.
#[derive(Debug)]
pub(crate) struct ConnectionPermit {
    limiter: Arc<ClientLimiter>,
    limits: ConnectionsConfig,
    /// `None` for a trusted proxy.
    network: Option<(u128, Arc<Usage>)>,
    unsent: AtomicU64,
}

/// A guard that counts a TLS handshake in progress.
#[derive(Debug)]
pub(crate) struct HandshakePermit<'a>(&'a ConnectionPermit);

/// A guard that counts a request over HTTP/2 until its response is received.
#[derive(Debug)]
pub(crate) struct RequestPermit(Arc<ConnectionPermit>);

/// A guard that counts response bytes until the client receives them.
#[derive(Debug)]
pub(crate) struct UnsentPermit {
    connection: Arc<ConnectionPermit>,
    bytes: u64,
}

impl ClientLimiter {
    /// Admits a connection. The limits apply to it as long as it exists.
    ///
    /// # Errors
    /// Fails if there are too many connections, in total or of this network.
    pub(crate) fn connect(
        self: &Arc<Self>,
        peer: IpAddr,
        is_trusted: bool,
        limits: &ConnectionsConfig,
    ) -> Result<ConnectionPermit, LimitReached> {
        if !take(&self.all.connections, 1, limits.max()) {
            return Err(self.refuse(LimitReached::Connections));
        }
        let mut permit = ConnectionPermit {
            limiter: Arc::clone(self),
            limits: *limits,
            network: None,
            unsent: AtomicU64::new(0),
        };
        if !is_trusted {
            let key = network(peer);
            let mut networks = self.networks();
            let usage = networks.entry(key).or_default();
            if !take(&usage.connections, 1, limits.per_address.into()) {
                // Dropping the permit takes the lock.
                drop(networks);
                return Err(self.refuse(LimitReached::ConnectionsPerAddress));
            }
            permit.network = Some((key, Arc::clone(usage)));
        }
        Ok(permit)
    }

    /// Counts a refusal, and logs at exponentially growing counts so that a flood does not flood the log.
    fn refuse(&self, limit: LimitReached) -> LimitReached {
        let index = LIMITS.iter().position(|(one, _)| *one == limit).unwrap_or_default();
        let times = self.refused[index].fetch_add(1, Relaxed) + 1;
        if times.is_power_of_two() {
            tracing::warn!(limit = %limit, times, "a limit of clients was reached");
        }
        limit
    }

    fn networks(&self) -> MutexGuard<'_, HashMap<u128, Arc<Usage>>> {
        self.networks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes the current usage and the number of refusals by limit.
    pub(crate) fn write(&self, page: &mut Page<'_>) -> fmt::Result {
        let unsent = [([], self.all.unsent.load(Relaxed))];
        page.gauge("orfa_unsent_bytes", "Bytes of responses that clients have yet to receive", unsent)?;
        let handshakes = [([], self.all.handshakes.load(Relaxed))];
        page.gauge("orfa_handshakes_in_flight", "TLS handshakes in flight", handshakes)?;
        let refused = LIMITS.iter().zip(&self.refused);
        let refused = refused.map(|((_, name), count)| ([("limit", *name)], count.load(Relaxed)));
        let help = "Connections that were refused and responses that were cut off, by field of `connections`";
        page.counter("orfa_client_limits_reached", help, refused)
    }
}

impl ConnectionPermit {
    fn usages(&self) -> impl Iterator<Item = &Usage> {
        std::iter::once(&self.limiter.all).chain(self.network.as_ref().map(|(_, usage)| &**usage))
    }

    /// Starts a TLS handshake.
    ///
    /// # Errors
    /// Fails if there are too many, in total or of this network.
    pub(crate) fn handshake(&self) -> Result<HandshakePermit<'_>, LimitReached> {
        let (limiter, limits) = (&self.limiter, &self.limits);
        if !take(&limiter.all.handshakes, 1, limits.handshakes.into()) {
            return Err(limiter.refuse(LimitReached::Handshakes));
        }
        if let Some((_, usage)) = &self.network
            && !take(&usage.handshakes, 1, limits.handshakes_per_address.into())
        {
            limiter.all.handshakes.fetch_sub(1, Relaxed);
            return Err(limiter.refuse(LimitReached::HandshakesPerAddress));
        }
        Ok(HandshakePermit(self))
    }

    /// Starts a request over HTTP/2. It is counted even above the limit: see [`Self::is_crowded`].
    pub(crate) fn request(self: &Arc<Self>) -> RequestPermit {
        self.usages().for_each(|usage| _ = usage.requests.fetch_add(1, Relaxed));
        RequestPermit(Arc::clone(self))
    }

    /// Whether the network has more requests in flight than its limit.
    pub(crate) fn is_crowded(&self) -> bool {
        let most = u64::from(self.limits.requests_per_address);
        self.network.as_ref().is_some_and(|(_, usage)| usage.requests.load(Relaxed) > most)
    }

    /// Counts response bytes until the client receives them. A single piece is always admitted, however
    /// large.
    ///
    /// # Errors
    /// Fails if the connection, its network or all clients together have too many bytes to receive already.
    pub(crate) fn keep(self: &Arc<Self>, bytes: u64) -> Result<UnsentPermit, LimitReached> {
        let limits = &self.limits;
        if !take(&self.unsent, bytes, limits.unsent_per_connection.0) {
            return Err(self.limiter.refuse(LimitReached::UnsentPerConnection));
        }
        let network = self.network.as_ref().map(|(_, usage)| &usage.unsent);
        if network.is_some_and(|unsent| !take(unsent, bytes, limits.unsent_per_address.0)) {
            self.unsent.fetch_sub(bytes, Relaxed);
            return Err(self.limiter.refuse(LimitReached::UnsentPerAddress));
        }
        if !take(&self.limiter.all.unsent, bytes, limits.unsent.0) {
            self.unsent.fetch_sub(bytes, Relaxed);
            network.into_iter().for_each(|unsent| _ = unsent.fetch_sub(bytes, Relaxed));
            return Err(self.limiter.refuse(LimitReached::Unsent));
        }
        Ok(UnsentPermit { connection: Arc::clone(self), bytes })
    }
}

/// Adds an amount unless the result would exceed the maximum. An amount above the maximum is admitted if the
/// counter is zero.
fn take(counter: &AtomicU64, amount: u64, most: u64) -> bool {
    let more = |taken: u64| (taken == 0 || taken.saturating_add(amount) <= most).then(|| taken + amount);
    counter.fetch_update(Relaxed, Relaxed, more).is_ok()
}

/// Returns the network of an address: an IPv4 address, or the first 64 bits of an IPv6 address, since a
/// client with one address of such a network usually has all of them.
fn network(address: IpAddr) -> u128 {
    match address.to_canonical() {
        IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
        IpAddr::V6(address) => address.to_bits() >> 64 << 64,
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.limiter.all.connections.fetch_sub(1, Relaxed);
        let Some((key, usage)) = self.network.take() else { return };
        let mut networks = self.limiter.networks();
        // Decremented under the lock, so that no connection is added in between.
        if usage.connections.fetch_sub(1, Relaxed) == 1 {
            networks.remove(&key);
        }
    }
}

impl Drop for HandshakePermit<'_> {
    fn drop(&mut self) {
        self.0.usages().for_each(|usage| _ = usage.handshakes.fetch_sub(1, Relaxed));
    }
}

impl Drop for RequestPermit {
    fn drop(&mut self) {
        self.0.usages().for_each(|usage| _ = usage.requests.fetch_sub(1, Relaxed));
    }
}

impl Drop for UnsentPermit {
    fn drop(&mut self) {
        self.connection.unsent.fetch_sub(self.bytes, Relaxed);
        self.connection.usages().for_each(|usage| _ = usage.unsent.fetch_sub(self.bytes, Relaxed));
    }
}

#[cfg(test)]
mod tests;
