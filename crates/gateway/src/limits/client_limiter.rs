//! Limits on the resources that clients use at once, in total and by network: connections, TLS handshakes,
//! requests over HTTP/2, bytes of request bodies and of services' responses, and response bytes that they
//! have yet to receive. The rate of new connections is limited by network.
//!
//! A network is the IPv4 address or the first 64 bits of the IPv6 address of the connection's peer. The first
//! 48 bits of an IPv6 address are a block of networks, with limits of its own: a single customer often has
//! all of it. A trusted proxy serves many clients, so only the total limits apply to it, except that long
//! request bodies and services' responses count for the client that it names, or else for the proxy itself. A
//! connection looks up its counters once, when it is accepted; from then on counting takes a few atomic
//! additions.

use std::collections::HashMap;
use std::iter;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use services::{ReceivedAccounts, ReceivedLimit, ReceivedPermit};

use crate::config::ConnectionsConfig;
use crate::limits::rate_limits::AccountTable;

/// The factor of a block's limits relative to those of a network, as in the quotas of background work.
const BLOCK_SHARE: u64 = 16;
/// The divisor of the limit of all clients that yields the most that a block has. By default that is twice as
/// much as one network, which therefore can't take all of its block's.
const BLOCK_DIVISOR: u64 = 4;
/// The bytes of answers over HTTP/2 that count for their connection only. Most connections never have more,
/// and over HTTP/1.1 a connection's single small answer is not counted either.
const FREE_ANSWER_BYTES: u64 = 16 << 10;
/// The divisor of the limit of a network's request bodies above which less of each is read at once.
const BODY_PRESSURE_DIVISOR: u64 = 16;

/// The resources that clients use. The state outlives configs.
#[derive(Debug, Default)]
pub(crate) struct ClientLimiter {
    all: ResourceUsage,
    /// The usage of networks and blocks that have a connection, a request body behind a trusted proxy, or
    /// services' responses.
    networks: Mutex<HashMap<NetworkPrefix, Arc<ResourceUsage>>>,
    /// The accounts of networks and blocks for new connections.
    new_connections: AccountTable,
    refused: [AtomicU64; LIMITS.len()],
}

/// The resources that all clients together use, for the metrics.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClientUsage {
    pub(crate) body_bytes: u64,
    /// The bytes of services' responses that the gateway holds.
    pub(crate) received_bytes: u64,
    pub(crate) unsent_bytes: u64,
    pub(crate) handshakes: u64,
}

/// The usage of all clients, of a network or of a block.
#[derive(Debug, Default)]
struct ResourceUsage {
    connections: AtomicU64,
    handshakes: AtomicU64,
    requests: AtomicU64,
    body_bytes: AtomicU64,
    /// The bytes of services' responses that the gateway holds.
    received_bytes: AtomicU64,
    unsent_bytes: AtomicU64,
    /// The bytes of answers over HTTP/2: see [`AnswerPermit`].
    answer_bytes: AtomicU64,
}

/// A network or a block of networks, by its leading bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct NetworkPrefix {
    bits: u128,
    is_block: bool,
}

/// A resource that is limited by network and in total.
#[derive(Debug)]
struct LimitedResource {
    counter: fn(&ResourceUsage) -> &AtomicU64,
    per_address: u64,
    total: u64,
    /// The errors for a network or block, and in total.
    errors: [LimitReached; 2],
}

/// A limit that was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum LimitReached {
    #[error("`connections.max`: the gateway has the maximum number of connections")]
    Connections,
    #[error("`connections.per_address`: the client's network has the maximum number of connections")]
    ConnectionsPerAddress,
    #[error("`connections.new_per_address`: the client's network opens connections above the maximum rate")]
    NewConnectionsPerAddress,
    #[error("`connections.handshakes`: the maximum number of TLS handshakes are in flight")]
    Handshakes,
    #[error(
        "`connections.handshakes_per_address`: the client has the maximum number of TLS handshakes in flight"
    )]
    HandshakesPerAddress,
    #[error("`connections.request_bodies`: the gateway holds the maximum number of bytes of request bodies")]
    Bodies,
    #[error(
        "`connections.request_bodies_per_address`: the gateway holds too many bytes of the client's request bodies"
    )]
    BodiesPerAddress,
    #[error("`connections.received`: the gateway holds the maximum number of bytes of services' responses")]
    Received,
    #[error(
        "`connections.received_per_address`: the gateway holds too many bytes of services' responses for the client"
    )]
    ReceivedPerAddress,
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
const LIMITS: [(LimitReached, &str); 12] = [
    (LimitReached::Connections, "max"),
    (LimitReached::ConnectionsPerAddress, "per_address"),
    (LimitReached::NewConnectionsPerAddress, "new_per_address"),
    (LimitReached::Handshakes, "handshakes"),
    (LimitReached::HandshakesPerAddress, "handshakes_per_address"),
    (LimitReached::Bodies, "request_bodies"),
    (LimitReached::BodiesPerAddress, "request_bodies_per_address"),
    (LimitReached::Received, "received"),
    (LimitReached::ReceivedPerAddress, "received_per_address"),
    (LimitReached::Unsent, "unsent"),
    (LimitReached::UnsentPerAddress, "unsent_per_address"),
    (LimitReached::UnsentPerConnection, "unsent_per_connection"),
];

/// A guard that counts an admitted connection until it is dropped, or the usage of a client without a
/// connection of its own: behind a trusted proxy, or for services' responses.
#[derive(Debug)]
pub(crate) struct ConnectionPermit {
    limiter: Arc<ClientLimiter>,
    limits: ConnectionsConfig,
    /// The number of connections that this counts: one, or none for a client without a connection of its own.
    connections: u64,
    /// The network and the block of the client. A trusted proxy has none.
    networks: [Option<(NetworkPrefix, Arc<ResourceUsage>)>; 2],
    unsent_bytes: AtomicU64,
    /// The bytes of answers over HTTP/2, including the free ones.
    answer_bytes: AtomicU64,
}

/// A guard that counts a TLS handshake in progress.
#[derive(Debug)]
pub(crate) struct HandshakePermit<'a>(&'a ConnectionPermit);

/// A guard that counts a request over HTTP/2 until h2 has all of its response.
#[derive(Debug)]
pub(crate) struct RequestPermit(Arc<ConnectionPermit>);

/// A guard that counts the bytes of a request's body, or of services' responses for a request, while the
/// gateway holds them.
#[derive(Debug)]
pub(crate) struct BodyPermit {
    connection: Arc<ConnectionPermit>,
    resource: LimitedResource,
    bytes: AtomicU64,
}

/// The accounts of clients for services' responses, with the limits of a connection. They do not count the
/// connection: work for a request may outlast it.
#[derive(Debug)]
pub(crate) struct ResponseAccounts {
    limiter: Arc<ClientLimiter>,
    limits: ConnectionsConfig,
}

/// A guard that counts response bytes until the client receives them.
#[derive(Debug)]
pub(crate) struct UnsentPermit {
    connection: Arc<ConnectionPermit>,
    bytes: u64,
}

/// A guard that counts an answer over HTTP/2 until its bytes have been written to the connection.
#[derive(Debug)]
pub(crate) struct AnswerPermit {
    connection: Arc<ConnectionPermit>,
    bytes: u64,
    /// The part of the bytes that counts for networks and in total.
    shared_bytes: u64,
}

impl ClientLimiter {
    /// Admits a connection. The limits apply to it as long as it exists.
    ///
    /// # Errors
    /// Fails if there are too many connections, in total or of this network, or too many new ones of this
    /// network.
    pub(crate) fn connect(
        self: &Arc<Self>,
        peer: IpAddr,
        is_trusted: bool,
        limits: &ConnectionsConfig,
        now: Instant,
    ) -> Result<ConnectionPermit, LimitReached> {
        let max = limits.max();
        if !try_add(&self.all.connections, 1, max) {
            return Err(self.count_refusal(LimitReached::Connections));
        }
        let mut permit = ConnectionPermit {
            limiter: Arc::clone(self),
            limits: *limits,
            connections: 1,
            networks: [None, None],
            unsent_bytes: AtomicU64::new(0),
            answer_bytes: AtomicU64::new(0),
        };
        if is_trusted {
            return Ok(permit);
        }
        let mut networks = self.networks();
        for (place, network) in permit.networks.iter_mut().zip(networks_of(peer)) {
            let Some(network) = network else { continue };
            let usage = networks.entry(network).or_default();
            if !try_add(&usage.connections, 1, network.limit(limits.per_address.into(), max)) {
                // Dropping the permit takes the lock.
                drop(networks);
                return Err(self.count_refusal(LimitReached::ConnectionsPerAddress));
            }
            *place = Some((network, Arc::clone(usage)));
        }
        drop(networks);
        // Last, so that connections above another limit are not charged.
        if !self.new_connections.charge_connection(peer, limits.new_per_address, limits.per_address, now) {
            return Err(self.count_refusal(LimitReached::NewConnectionsPerAddress));
        }
        Ok(permit)
    }

    /// Returns the usage of a client that has no connection of its own.
    fn without_connection(
        self: &Arc<Self>,
        address: IpAddr,
        limits: ConnectionsConfig,
    ) -> Arc<ConnectionPermit> {
        let mut networks = self.networks();
        let mut usage = |network| (network, Arc::clone(networks.entry(network).or_default()));
        Arc::new(ConnectionPermit {
            limiter: Arc::clone(self),
            limits,
            connections: 0,
            networks: networks_of(address).map(|network| network.map(&mut usage)),
            unsent_bytes: AtomicU64::new(0),
            answer_bytes: AtomicU64::new(0),
        })
    }

    /// Counts a refusal, and logs at exponentially growing counts so that a flood does not flood the log.
    fn count_refusal(&self, limit: LimitReached) -> LimitReached {
        let index = LIMITS.iter().position(|(one, _)| *one == limit).unwrap_or_default();
        let times = self.refused[index].fetch_add(1, Relaxed) + 1;
        if times.is_power_of_two() {
            tracing::warn!(limit = %limit, times, "a limit of clients was reached");
        }
        limit
    }

    fn networks(&self) -> MutexGuard<'_, HashMap<NetworkPrefix, Arc<ResourceUsage>>> {
        self.networks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The bytes of responses that clients have yet to receive.
    pub(crate) fn unsent_bytes(&self) -> u64 {
        self.all.unsent_bytes.load(Relaxed) + self.all.answer_bytes.load(Relaxed)
    }

    /// The resources that all clients together use at the moment.
    pub(crate) fn usage(&self) -> ClientUsage {
        ClientUsage {
            body_bytes: self.all.body_bytes.load(Relaxed),
            received_bytes: self.all.received_bytes.load(Relaxed),
            unsent_bytes: self.unsent_bytes(),
            handshakes: self.all.handshakes.load(Relaxed),
        }
    }

    /// The number of refusals by each limit, named by its field in the config.
    pub(crate) fn refusals(&self) -> impl Iterator<Item = (&'static str, u64)> {
        LIMITS.iter().zip(&self.refused).map(|((_, name), count)| (*name, count.load(Relaxed)))
    }
}

impl ConnectionPermit {
    /// The usage of the networks, and then that of all clients.
    fn usages(&self) -> impl Iterator<Item = &ResourceUsage> {
        let networks = self.networks.iter().flatten().map(|(_, usage)| &**usage);
        networks.chain(iter::once(&self.limiter.all))
    }

    /// Counts an amount of a resource for the networks and for all clients, or for none of them. The user of
    /// the resource has taken `own` of it already.
    fn reserve_shared(&self, resource: &LimitedResource, own: u64, amount: u64) -> Result<(), LimitReached> {
        self.reserve_unreported(resource, own, amount).map_err(|limit| self.limiter.count_refusal(limit))
    }

    /// Like [`Self::reserve_shared`], without a report of the limit that was reached.
    fn reserve_unreported(
        &self,
        resource: &LimitedResource,
        own: u64,
        amount: u64,
    ) -> Result<(), LimitReached> {
        let LimitedResource { counter, per_address, total, errors: [of_network, of_all] } = *resource;
        let networks = self.networks.iter().flatten();
        let limits = networks.map(|(network, _)| (network.limit(per_address, total), of_network));
        let limits = limits.chain(iter::once((total, of_all)));
        for (number, (usage, (most, error))) in self.usages().zip(limits).enumerate() {
            if !try_add_more(counter(usage), own, amount, most) {
                self.usages().take(number).for_each(|usage| _ = counter(usage).fetch_sub(amount, Relaxed));
                return Err(error);
            }
        }
        Ok(())
    }

    /// Returns the resource of unsent bytes that this counter counts.
    fn unsent_resource(&self, counter: fn(&ResourceUsage) -> &AtomicU64) -> LimitedResource {
        LimitedResource {
            counter,
            per_address: self.limits.unsent_per_address.0,
            total: self.limits.unsent.0,
            errors: [LimitReached::UnsentPerAddress, LimitReached::Unsent],
        }
    }

    /// Starts a TLS handshake.
    ///
    /// # Errors
    /// Fails if there are too many, in total or of this network.
    pub(crate) fn start_handshake(&self) -> Result<HandshakePermit<'_>, LimitReached> {
        let handshakes = LimitedResource {
            counter: |usage| &usage.handshakes,
            per_address: self.limits.handshakes_per_address.into(),
            total: self.limits.handshakes.into(),
            errors: [LimitReached::HandshakesPerAddress, LimitReached::Handshakes],
        };
        self.reserve_shared(&handshakes, 0, 1)?;
        Ok(HandshakePermit(self))
    }

    /// Starts a request over HTTP/2. It is counted even above the limit: see [`Self::exceeds_request_limit`].
    pub(crate) fn start_request(self: &Arc<Self>) -> RequestPermit {
        self.usages().for_each(|usage| _ = usage.requests.fetch_add(1, Relaxed));
        RequestPermit(Arc::clone(self))
    }

    /// Whether the network or its block has more requests in flight than its limit.
    pub(crate) fn exceeds_request_limit(&self) -> bool {
        let most = u64::from(self.limits.requests_per_address);
        let is_above = |(network, usage): &(NetworkPrefix, Arc<ResourceUsage>)| {
            usage.requests.load(Relaxed) > network.limit(most, u64::MAX)
        };
        self.networks.iter().flatten().any(is_above)
    }

    /// Whether the network's request bodies take so much memory that less of each is read at once: requests
    /// of others wait for a read of each.
    pub(crate) fn has_many_body_bytes(&self) -> bool {
        let (per_address, total) = (self.limits.request_bodies_per_address.0, self.limits.request_bodies.0);
        let is_above = |(network, usage): &(NetworkPrefix, Arc<ResourceUsage>)| {
            usage.body_bytes.load(Relaxed) > network.limit(per_address, total) / BODY_PRESSURE_DIVISOR
        };
        self.networks.iter().flatten().any(is_above)
    }

    /// Starts to count the bytes of a request's body for the connected peer.
    fn body_permit(self: &Arc<Self>) -> BodyPermit {
        self.permit_for(LimitedResource {
            counter: |usage| &usage.body_bytes,
            per_address: self.limits.request_bodies_per_address.0,
            total: self.limits.request_bodies.0,
            errors: [LimitReached::BodiesPerAddress, LimitReached::Bodies],
        })
    }

    /// Starts to count the bytes of services' responses for a request.
    fn received_permit(self: &Arc<Self>) -> BodyPermit {
        self.permit_for(LimitedResource {
            counter: |usage| &usage.received_bytes,
            per_address: self.limits.received_per_address.0,
            total: self.limits.received.0,
            errors: [LimitReached::ReceivedPerAddress, LimitReached::Received],
        })
    }

    fn permit_for(self: &Arc<Self>, resource: LimitedResource) -> BodyPermit {
        BodyPermit { connection: Arc::clone(self), resource, bytes: AtomicU64::new(0) }
    }

    /// Starts to count the bytes of a request's body for its client: the connected peer, or the address that
    /// a trusted proxy reports. A proxy that reports none is the client itself.
    pub(crate) fn body_permit_for(self: &Arc<Self>, client: IpAddr) -> BodyPermit {
        let prefixes = self.networks.each_ref().map(|network| network.as_ref().map(|(network, _)| *network));
        if prefixes == networks_of(client) {
            return self.body_permit();
        }
        self.limiter.without_connection(client, self.limits).body_permit()
    }

    /// Returns the accounts of clients for services' responses.
    pub(crate) fn response_accounts(&self) -> ResponseAccounts {
        ResponseAccounts { limiter: Arc::clone(&self.limiter), limits: self.limits }
    }

    /// Counts response bytes until the client receives them. A single piece is always admitted, however
    /// large.
    ///
    /// # Errors
    /// Fails if the connection, its network or all clients together have too many bytes to receive already.
    pub(crate) fn reserve_unsent(self: &Arc<Self>, bytes: u64) -> Result<UnsentPermit, LimitReached> {
        self.reserve_up_to(1, bytes).map_err(|limit| self.limiter.count_refusal(limit))
    }

    /// Like [`Self::reserve_unsent`], for bytes of a response that is read before it is sent. They are
    /// refused above half of the limits, so that other responses can be sent meanwhile. This is not reported
    /// as a limit that was reached: the response is sent as it arrives instead.
    ///
    /// # Errors
    /// Fails if the connection, its network or all clients together have too many bytes to receive for that.
    pub(crate) fn reserve_buffered(self: &Arc<Self>, bytes: u64) -> Result<UnsentPermit, LimitReached> {
        self.reserve_up_to(2, bytes)
    }

    /// Counts response bytes up to the limits divided by `divisor`, without a report.
    fn reserve_up_to(self: &Arc<Self>, divisor: u64, bytes: u64) -> Result<UnsentPermit, LimitReached> {
        if !try_add(&self.unsent_bytes, bytes, self.limits.unsent_per_connection.0 / divisor) {
            return Err(LimitReached::UnsentPerConnection);
        }
        let mut unsent = self.unsent_resource(|usage| &usage.unsent_bytes);
        unsent.per_address /= divisor;
        unsent.total /= divisor;
        if let Err(limit) = self.reserve_unreported(&unsent, 0, bytes) {
            self.unsent_bytes.fetch_sub(bytes, Relaxed);
            return Err(limit);
        }
        Ok(UnsentPermit { connection: Arc::clone(self), bytes })
    }
}

impl BodyPermit {
    /// Counts `total` bytes. They are always admitted if no others are counted, however many.
    ///
    /// # Errors
    /// Fails if too many bytes are held for the network or for all clients together.
    pub(crate) fn reserve_total(&self, total: u64) -> Result<(), LimitReached> {
        let own = self.bytes.load(Relaxed);
        let more = total.saturating_sub(own);
        if more == 0 {
            return Ok(());
        }
        self.connection.reserve_shared(&self.resource, own, more)?;
        self.bytes.fetch_add(more, Relaxed);
        Ok(())
    }

    /// Whether many bytes are held for the network: see [`ConnectionPermit::has_many_body_bytes`].
    pub(crate) fn is_under_pressure(&self) -> bool {
        self.connection.has_many_body_bytes()
    }

    /// Releases the bytes.
    pub(crate) fn release(&self) {
        let bytes = self.bytes.swap(0, Relaxed);
        let counter = self.resource.counter;
        self.connection.usages().for_each(|usage| _ = counter(usage).fetch_sub(bytes, Relaxed));
    }
}

impl ReceivedPermit for BodyPermit {
    fn try_hold(&self, total: u64) -> Result<(), ReceivedLimit> {
        self.reserve_total(total).map_err(|limit| match limit {
            LimitReached::Received => ReceivedLimit::Total,
            _ => ReceivedLimit::Client,
        })
    }

    fn release(&self) {
        BodyPermit::release(self);
    }
}

impl ReceivedAccounts for ResponseAccounts {
    fn open_account(&self, client: IpAddr) -> Box<dyn ReceivedPermit> {
        Box::new(self.limiter.without_connection(client, self.limits).received_permit())
    }
}

impl RequestPermit {
    /// Counts an answer over HTTP/2 of at least this many bytes. Such answers have an account of their own,
    /// so that long ones, which are counted by [`ConnectionPermit::reserve_unsent`], do not displace the
    /// short ones.
    ///
    /// # Errors
    /// Fails if the network or all clients together have too many bytes to receive already.
    pub(crate) fn reserve_answer(&self, bytes: u64) -> Result<AnswerPermit, LimitReached> {
        let connection = &self.0;
        let mut permit = AnswerPermit { connection: Arc::clone(connection), bytes, shared_bytes: 0 };
        if connection.answer_bytes.fetch_add(bytes, Relaxed) + bytes > FREE_ANSWER_BYTES {
            connection.reserve_shared(&connection.unsent_resource(|usage| &usage.answer_bytes), 0, bytes)?;
            permit.shared_bytes = bytes;
        }
        Ok(permit)
    }
}

impl AnswerPermit {
    /// Counts the answer with this many bytes if it counts with fewer, even above the limit: its client has
    /// most of it.
    pub(crate) fn grow_to(&mut self, bytes: u64) {
        let more = bytes.saturating_sub(self.bytes);
        if more == 0 {
            return;
        }
        self.bytes += more;
        if self.connection.answer_bytes.fetch_add(more, Relaxed) + more > FREE_ANSWER_BYTES {
            self.shared_bytes += more;
            self.connection.usages().for_each(|usage| _ = usage.answer_bytes.fetch_add(more, Relaxed));
        }
    }
}

impl NetworkPrefix {
    /// The limit of a resource, given that of a network and that of all clients.
    fn limit(self, per_address: u64, total: u64) -> u64 {
        if !self.is_block {
            return per_address;
        }
        per_address.saturating_mul(BLOCK_SHARE).min(total / BLOCK_DIVISOR).max(per_address)
    }
}

/// Adds an amount unless the result would exceed the maximum. An amount above the maximum is admitted if the
/// counter is zero.
fn try_add(counter: &AtomicU64, amount: u64, most: u64) -> bool {
    try_add_more(counter, 0, amount, most)
}

/// Like [`try_add`], for a user that has taken `own` already: an amount above the maximum is admitted if no
/// others have taken any.
fn try_add_more(counter: &AtomicU64, own: u64, amount: u64, most: u64) -> bool {
    let more = |taken: u64| (taken == own || taken.saturating_add(amount) <= most).then(|| taken + amount);
    counter.fetch_update(Relaxed, Relaxed, more).is_ok()
}

/// Returns the network of an address and its block. A network is an IPv4 address, or the first 64 bits of an
/// IPv6 address, since a client with one address of such a network usually has all of them.
fn networks_of(address: IpAddr) -> [Option<NetworkPrefix>; 2] {
    let network = |bits| Some(NetworkPrefix { bits, is_block: false });
    match address.to_canonical() {
        IpAddr::V4(address) => [network(address.to_ipv6_mapped().to_bits()), None],
        IpAddr::V6(address) => {
            let bits = address.to_bits();
            [network(bits >> 64 << 64), Some(NetworkPrefix { bits: bits >> 80 << 80, is_block: true })]
        }
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.limiter.all.connections.fetch_sub(self.connections, Relaxed);
        if self.networks.iter().all(Option::is_none) {
            return;
        }
        let mut networks = self.limiter.networks();
        for (network, usage) in self.networks.iter_mut().filter_map(Option::take) {
            usage.connections.fetch_sub(self.connections, Relaxed);
            // Permits get and drop their handles under the lock. The last two are this one and the map's.
            if Arc::strong_count(&usage) == 2 {
                networks.remove(&network);
            }
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

impl Drop for BodyPermit {
    fn drop(&mut self) {
        self.release();
    }
}

impl Drop for UnsentPermit {
    fn drop(&mut self) {
        self.connection.unsent_bytes.fetch_sub(self.bytes, Relaxed);
        self.connection.usages().for_each(|usage| _ = usage.unsent_bytes.fetch_sub(self.bytes, Relaxed));
    }
}

impl Drop for AnswerPermit {
    fn drop(&mut self) {
        self.connection.answer_bytes.fetch_sub(self.bytes, Relaxed);
        if self.shared_bytes > 0 {
            self.connection
                .usages()
                .for_each(|usage| _ = usage.answer_bytes.fetch_sub(self.shared_bytes, Relaxed));
        }
    }
}

#[cfg(test)]
mod tests;
