//! The connection pool of one target, by address.
//!
//! The most recently used connection is taken first, so that the surplus of a burst becomes idle and is
//! closed. Age is counted in sweeps instead of clock time, so that returning a connection costs only a lock
//! and a push.

use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use offload::polls::{PollSite, watch_polls};
use tokio::sync::watch;

use super::connect::{TransportConnection, connect};
use super::{RequestEndpoint, http1, http2};
use crate::body::BodyError;
use crate::config::ServiceProtocol;

/// The interval of sweeps, which close idle connections that are too old or were closed by the peer.
const SWEEP_INTERVAL: Duration = Duration::from_secs(5);
/// The number of sweeps after which an idle connection is closed: at most 55 seconds, less than the idle
/// timeout of most servers.
const MAX_IDLE_SWEEPS: u32 = 11;
/// The maximum number of idle HTTP/1.1 connections per address. A burst may open more, which are closed after
/// use.
pub(super) const MAX_IDLE: usize = 512;
/// The number of HTTP/2 connections per address beyond which requests wait for capacity on one of them.
pub(super) const MAX_SHARED: usize = 16;

/// The connection pool of one target.
#[derive(Default)]
pub(crate) struct ConnectionPool(Arc<Mutex<PooledConnections>>);

#[derive(Default)]
struct PooledConnections {
    sweeps: u32,
    is_sweeping: bool,
    address_pools: Vec<AddressPool>,
}

/// The connections for one address of the target; `None` means any address of its name.
struct AddressPool {
    address: Option<SocketAddr>,
    idle: Vec<AgedConnection<http1::ClientHttp1Connection>>,
    shared: Vec<AgedConnection<http2::ClientHttp2Connection>>,
    /// The HTTP version that the target has negotiated.
    negotiated_protocol: Option<ServiceProtocol>,
    probe: Option<PendingConnection>,
}

/// A connection, with the sweep count at its last use.
struct AgedConnection<C> {
    last_used_sweep: u32,
    connection: C,
}

/// A pending connection that several requests wait for, since they may share it, or since it determines the
/// HTTP version of the target.
#[derive(Clone)]
pub(crate) struct PendingConnection(
    watch::Receiver<Option<Result<(), Arc<dyn std::error::Error + Send + Sync>>>>,
);

/// The result of looking for a connection.
pub(crate) enum PoolLookup {
    Http1(http1::ClientHttp1Connection),
    Http2(http2::StreamSlot),
    /// A connection is pending: wait and look again.
    Pending(PendingConnection),
    /// There is no connection: open one.
    Missing,
}

impl ConnectionPool {
    /// Returns a connection for a request to this endpoint.
    pub(crate) fn find_connection(&self, endpoint: &RequestEndpoint) -> PoolLookup {
        let mut kept = self.lock();
        let sweeps = kept.sweeps;
        let pool = kept.address_pool(endpoint.address);
        if let Some(idle) = pool.idle.pop() {
            return PoolLookup::Http1(idle.connection);
        }
        if pool.known_protocol(endpoint) == Some(ServiceProtocol::Http1) {
            return PoolLookup::Missing;
        }
        pool.shared.retain(|shared| !shared.connection.is_closed());
        let is_full = pool.shared.len() >= MAX_SHARED;
        let fitting = pool.shared.iter_mut().filter(|shared| is_full || shared.connection.has_free_slot());
        if let Some(shared) = fitting.min_by_key(|shared| shared.connection.streams()) {
            shared.last_used_sweep = sweeps;
            return PoolLookup::Http2(shared.connection.reserve_slot());
        }
        let probe = pool.probe.get_or_insert_with(|| self.start_probe(endpoint));
        PoolLookup::Pending(probe.clone())
    }

    /// Puts back an HTTP/1.1 connection for the next request.
    pub(crate) fn put_idle(&self, address: Option<SocketAddr>, mut connection: http1::ClientHttp1Connection) {
        let mut kept = self.lock();
        let used = kept.sweeps;
        let idle = &mut kept.address_pool(address).idle;
        if idle.len() < MAX_IDLE {
            connection.mark_idle();
            idle.push(AgedConnection { last_used_sweep: used, connection });
            self.start_sweeping(kept);
        }
    }

    /// Adds an HTTP/2 connection for all further requests; closes it if the maximum is reached.
    pub(crate) fn put_shared(&self, address: Option<SocketAddr>, connection: http2::ClientHttp2Connection) {
        let mut kept = self.lock();
        let used = kept.sweeps;
        let pool = kept.address_pool(address);
        // Recorded even if this connection is closed, so that requests look for shared connections.
        pool.negotiated_protocol = Some(ServiceProtocol::Http2);
        if pool.shared.len() < MAX_SHARED {
            pool.shared.push(AgedConnection { last_used_sweep: used, connection });
            self.start_sweeping(kept);
        }
    }

    /// Opens a connection for all waiting requests. It is opened in a task, so that a cancelled request
    /// cannot abort it.
    fn start_probe(&self, endpoint: &RequestEndpoint) -> PendingConnection {
        let (told, probe) = watch::channel(None);
        let endpoint = endpoint.clone();
        let connecting = async move {
            let pool = &endpoint.origin.pool;
            let transport_connection = connect(&endpoint).await;
            let mut kept = pool.lock();
            let used = kept.sweeps;
            let address_pool = kept.address_pool(endpoint.address);
            address_pool.probe = None;
            let result = transport_connection.map(|connection| address_pool.add_connection(used, connection));
            pool.start_sweeping(kept);
            told.send_replace(Some(result.map_err(Arc::from)));
        };
        tokio::spawn(watch_polls(PollSite::Upstream, connecting));
        PendingConnection(probe)
    }

    fn start_sweeping(&self, mut kept: MutexGuard<'_, PooledConnections>) {
        if !std::mem::replace(&mut kept.is_sweeping, true) {
            tokio::spawn(watch_polls(PollSite::Upstream, sweep_pool(Arc::downgrade(&self.0))));
        }
    }

    fn lock(&self) -> MutexGuard<'_, PooledConnections> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PendingConnection {
    /// Waits for the connection.
    pub(crate) async fn wait(mut self) -> Result<(), BodyError> {
        match self.0.wait_for(Option::is_some).await.as_deref() {
            Ok(Some(Err(error))) => Err(SharedConnectError(Arc::clone(error)).into()),
            Ok(_) => Ok(()),
            Err(_) => Err("connecting was cancelled".into()),
        }
    }
}

/// The error of a connection that several requests waited for.
#[derive(Debug)]
struct SharedConnectError(Arc<dyn std::error::Error + Send + Sync>);

impl fmt::Display for SharedConnectError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("connecting failed")
    }
}

impl std::error::Error for SharedConnectError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&*self.0)
    }
}

impl PooledConnections {
    fn address_pool(&mut self, address: Option<SocketAddr>) -> &mut AddressPool {
        let index = match self.address_pools.iter().position(|pool| pool.address == address) {
            Some(index) => index,
            None => {
                self.address_pools.push(AddressPool {
                    address,
                    idle: Vec::new(),
                    shared: Vec::new(),
                    negotiated_protocol: None,
                    probe: None,
                });
                self.address_pools.len() - 1
            }
        };
        &mut self.address_pools[index]
    }
}

impl AddressPool {
    /// Returns the HTTP version of connections to the endpoint, if it is known in advance.
    fn known_protocol(&self, endpoint: &RequestEndpoint) -> Option<ServiceProtocol> {
        match endpoint.origin.dial.protocol {
            ServiceProtocol::Auto if endpoint.origin.tls.is_some() => self.negotiated_protocol,
            ServiceProtocol::Auto => Some(ServiceProtocol::Http1),
            protocol => Some(protocol),
        }
    }

    fn add_connection(&mut self, used: u32, connection: TransportConnection) {
        match connection {
            TransportConnection::Http1(connection) => {
                self.negotiated_protocol = Some(ServiceProtocol::Http1);
                self.idle.push(AgedConnection { last_used_sweep: used, connection });
            }
            TransportConnection::Http2(connection) => {
                self.negotiated_protocol = Some(ServiceProtocol::Http2);
                self.shared.push(AgedConnection { last_used_sweep: used, connection });
            }
        }
    }
}

/// Closes connections that are too old or were closed by the peer, until the pool is empty or dropped.
async fn sweep_pool(pool: Weak<Mutex<PooledConnections>>) {
    loop {
        tokio::time::sleep(SWEEP_INTERVAL).await;
        let Some(connections) = pool.upgrade() else { return };
        let mut aged_connections = Vec::new();
        let is_empty = {
            let mut kept = connections.lock().unwrap_or_else(PoisonError::into_inner);
            kept.sweeps = kept.sweeps.wrapping_add(1);
            let sweeps = kept.sweeps;
            let is_old = |used: u32| sweeps.wrapping_sub(used) >= MAX_IDLE_SWEEPS;
            for address_pool in &mut kept.address_pools {
                aged_connections.extend(
                    address_pool
                        .idle
                        .extract_if(.., |idle| is_old(idle.last_used_sweep) || !idle.connection.is_idle()),
                );
                address_pool.shared.retain(|shared| {
                    let is_over = is_old(shared.last_used_sweep) && shared.connection.is_idle();
                    !is_over && !shared.connection.is_closed()
                });
            }
            kept.address_pools
                .retain(|place| !place.idle.is_empty() || !place.shared.is_empty() || place.probe.is_some());
            kept.is_sweeping = !kept.address_pools.is_empty();
            kept.address_pools.is_empty()
        };
        // Outside of the lock, since closing takes system calls. There may be hundreds.
        for connection in aged_connections {
            drop(connection);
            tokio::task::yield_now().await;
        }
        if is_empty {
            return;
        }
    }
}

impl fmt::Debug for ConnectionPool {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kept = self.lock();
        let counts = kept.address_pools.iter().map(|pool| (pool.address, pool.idle.len(), pool.shared.len()));
        formatter.debug_list().entries(counts).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::pin::pin;

    use tokio::net::{TcpListener, TcpStream};
    use tokio_util::either::Either;

    use super::*;
    use crate::coop::CooperativeStream;

    #[tokio::test(start_paused = true)]
    async fn yields_after_closing_each_connection() {
        const COUNT: usize = 20;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut connections =
            PooledConnections { sweeps: MAX_IDLE_SWEEPS, is_sweeping: true, address_pools: Vec::new() };
        for _ in 0..COUNT {
            let stream = TcpStream::connect(address).await.unwrap();
            let connection = http1::ClientHttp1Connection::new(Either::Left(CooperativeStream::new(stream)));
            connections.address_pool(None).idle.push(AgedConnection { last_used_sweep: 0, connection });
        }
        let pooled_connections = Arc::new(Mutex::new(connections));
        let (mut sweeping, mut polls) = (pin!(sweep_pool(Arc::downgrade(&pooled_connections))), 0);
        poll_fn(|context| {
            polls += 1;
            sweeping.as_mut().poll(context)
        })
        .await;
        assert!(polls > COUNT, "{polls} polls");
    }
}
