//! How much of the gateway clients may take at once, in all and by network: connections, TLS handshakes, requests over
//! HTTP/2, and bytes of answers that they have yet to take.
//!
//! A network is an IPv4 address or the first 64 bits of an IPv6 address, as it is connected. Behind a trusted proxy are many
//! clients: it has the limits of all, and none of its own. What a connection counts in is looked up once, when it is
//! accepted; from then on it is a few atomic additions.

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::config::ConnectionsConfig;
use crate::metrics::Page;

/// What clients take of the gateway. It outlives configs.
#[derive(Debug, Default)]
pub(crate) struct ClientLimiter {
    all: Usage,
    /// Networks that have a connection.
    networks: Mutex<HashMap<u128, Arc<Usage>>>,
    refused: [AtomicU64; LIMITS.len()],
}

/// What is taken, in all or by one network.
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
    #[error("`connections.max`: there are as many connections as the gateway takes")]
    Connections,
    #[error("`connections.per_address`: the client has as many connections as an address may have")]
    ConnectionsPerAddress,
    #[error("`connections.handshakes`: as many TLS handshakes as may be are under way")]
    Handshakes,
    #[error(
        "`connections.handshakes_per_address`: the client has as many TLS handshakes under way as it may have"
    )]
    HandshakesPerAddress,
    #[error("`connections.unsent`: clients have yet to take as many bytes of answers as the gateway keeps")]
    Unsent,
    #[error("`connections.unsent_per_address`: the client has yet to take too many bytes of earlier answers")]
    UnsentPerAddress,
    #[error(
        "`connections.unsent_per_connection`: the client has yet to take too many bytes of earlier answers"
    )]
    UnsentPerConnection,
}

/// Each limit, by its field in the config.
const LIMITS: [(LimitReached, &str); 7] = [
    (LimitReached::Connections, "max"),
    (LimitReached::ConnectionsPerAddress, "per_address"),
    (LimitReached::Handshakes, "handshakes"),
    (LimitReached::HandshakesPerAddress, "handshakes_per_address"),
    (LimitReached::Unsent, "unsent"),
    (LimitReached::UnsentPerAddress, "unsent_per_address"),
    (LimitReached::UnsentPerConnection, "unsent_per_connection"),
];

/// A connection that was let in, until this is dropped.
#[derive(Debug)]
pub(crate) struct ConnectionPermit {
    limiter: Arc<ClientLimiter>,
    limits: ConnectionsConfig,
    /// `None` for a trusted proxy.
    network: Option<(u128, Arc<Usage>)>,
    unsent: AtomicU64,
}

/// A TLS handshake under way.
#[derive(Debug)]
pub(crate) struct HandshakePermit<'a>(&'a ConnectionPermit);

/// A request over HTTP/2, until its answer is taken.
#[derive(Debug)]
pub(crate) struct RequestPermit(Arc<ConnectionPermit>);

/// Bytes of an answer that are kept until the client takes them.
#[derive(Debug)]
pub(crate) struct UnsentPermit {
    connection: Arc<ConnectionPermit>,
    bytes: u64,
}

impl ClientLimiter {
    /// Lets a connection in. It keeps to these limits as long as it lives.
    ///
    /// # Errors
    /// When there are too many, in all or of this network.
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

    /// Counts a refusal, and tells the operator of the first and then ever more seldom: a flood must not flood the log.
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

    /// Writes what is taken, and how often a limit was reached.
    pub(crate) fn write(&self, page: &mut Page<'_>) -> fmt::Result {
        let unsent = [([], self.all.unsent.load(Relaxed))];
        page.gauge("orfa_unsent_bytes", "Bytes of answers that clients have yet to take", unsent)?;
        let handshakes = [([], self.all.handshakes.load(Relaxed))];
        page.gauge("orfa_handshakes_in_flight", "TLS handshakes that are under way", handshakes)?;
        let refused = LIMITS.iter().zip(&self.refused);
        let refused = refused.map(|((_, name), count)| ([("limit", *name)], count.load(Relaxed)));
        let help =
            "Connections that were refused, and answers that were cut off, by the field of `connections`";
        page.counter("orfa_client_limits_reached", help, refused)
    }
}

impl ConnectionPermit {
    fn usages(&self) -> impl Iterator<Item = &Usage> {
        std::iter::once(&self.limiter.all).chain(self.network.as_ref().map(|(_, usage)| &**usage))
    }

    /// A TLS handshake begins.
    ///
    /// # Errors
    /// When there are too many, in all or of this network.
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

    /// A request over HTTP/2 begins. It counts, too many or not: see [`Self::is_crowded`].
    pub(crate) fn request(self: &Arc<Self>) -> RequestPermit {
        self.usages().for_each(|usage| _ = usage.requests.fetch_add(1, Relaxed));
        RequestPermit(Arc::clone(self))
    }

    /// Whether the network has more requests under way than it may have.
    pub(crate) fn is_crowded(&self) -> bool {
        let most = u64::from(self.limits.requests_per_address);
        self.network.as_ref().is_some_and(|(_, usage)| usage.requests.load(Relaxed) > most)
    }

    /// Keeps bytes of an answer until the client takes them. One piece is always kept, however large.
    ///
    /// # Errors
    /// When the connection, its network or all clients together have too many to take already.
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

/// Adds so much, unless that would be more than may be; what is too large for itself fits where nothing else is.
fn take(counter: &AtomicU64, amount: u64, most: u64) -> bool {
    let more = |taken: u64| (taken == 0 || taken.saturating_add(amount) <= most).then(|| taken + amount);
    counter.fetch_update(Relaxed, Relaxed, more).is_ok()
}

/// The network of an address: itself, or its first 64 bits where whoever has one of those has all.
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
        // Under the lock, so that nobody connects in between.
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
