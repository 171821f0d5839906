//! Load balancing: the endpoints of a service, and the choice of an endpoint for each request.
//!
//! Each address of each target is an endpoint ([`EndpointPeer`]). A request goes to the endpoint with the
//! fewest requests in flight. Endpoints that fail are ejected for a while (`endpoint_health.rs`); if all are
//! ejected, all are tried. Names are resolved again periodically (`names.rs`), and health checks run if the
//! config enables them (`checks.rs`), in tasks that end with the [`ServiceEndpoints`].

mod checks;
mod endpoint_health;
mod names;
mod peer;

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use arc_swap::ArcSwap;
use offload::OffloadPool;
use offload::polls::{PollSite, watch_polls};

use crate::body::BodyError;
use crate::transport::{RequestEndpoint, ServiceTransport, TargetOrigin};
pub(crate) use checks::HealthChecks;
pub(crate) use endpoint_health::RequestVerdict;
pub use names::{NameResolver, SystemResolver};
pub use peer::EndpointStats;
pub(crate) use peer::{EndpointLease, EndpointPeer};

/// The largest number of endpoints for which all are compared. With more endpoints, the better of two random
/// ones is chosen (power of two choices): nearly as even, at a constant cost.
const MAX_FULL_SCAN: usize = 8;

/// The external dependencies of the background tasks.
#[derive(Clone)]
pub(crate) struct BackgroundDependencies {
    pub(crate) transport: Arc<dyn ServiceTransport>,
    pub(crate) resolver: Arc<dyn NameResolver>,
    /// The pool that decodes responses; `None` to decode them on the caller's thread.
    pub(crate) offload: Option<OffloadPool>,
}

/// The settings of a service's targets. Equal plans share their [`ServiceEndpoints`] across a reload.
#[derive(Debug, PartialEq)]
pub(crate) struct TargetSettings {
    pub(crate) origins: Vec<Arc<TargetOrigin>>,
    /// The interval between lookups of names.
    pub(crate) dns_refresh_rate: std::time::Duration,
    pub(crate) checks: Option<HealthChecks>,
}

/// The endpoints of one service.
#[derive(Debug)]
pub(crate) struct ServiceEndpoints {
    settings: TargetSettings,
    peers: ArcSwap<Vec<Arc<EndpointPeer>>>,
    pick_count: AtomicUsize,
    /// Whether requests can be distributed: the names are resolved, and the tasks are running.
    ready: AtomicBool,
    /// Whether there was a request since the last lookup of the names.
    was_used: AtomicBool,
    names: names::NameResolution,
    check_task: Mutex<Option<tokio::task::JoinHandle<()>>>,
    /// The previous targets, which these replace once they are in force.
    previous: Mutex<Weak<ServiceEndpoints>>,
}

impl ServiceEndpoints {
    /// Creates endpoints for a plan, taking over the state of previous endpoints.
    pub(crate) fn new(settings: TargetSettings, before: Option<&Arc<Self>>) -> Self {
        let endpoint_peers = before.map(|before| before.peers.load_full()).unwrap_or_default();
        let mut peers = Vec::with_capacity(settings.origins.len());
        for origin in &settings.origins {
            match literal_address(origin) {
                Some(address) => peers.push(reuse_or_create_peer(&endpoint_peers, origin, Some(address))),
                None => peers.extend(endpoint_peers.iter().filter(|peer| peer.has_target(origin)).map(
                    |endpoint_peer| {
                        reuse_or_create_peer(
                            std::slice::from_ref(endpoint_peer),
                            origin,
                            endpoint_peer.endpoint.address,
                        )
                    },
                )),
            }
        }
        let settled = settings.checks.is_none()
            && settings.origins.iter().all(|origin| literal_address(origin).is_some());
        Self {
            settings,
            peers: ArcSwap::from_pointee(peers),
            pick_count: AtomicUsize::new(0),
            ready: AtomicBool::new(settled),
            was_used: AtomicBool::new(false),
            names: names::NameResolution::default(),
            check_task: Mutex::default(),
            previous: Mutex::new(before.map(Arc::downgrade).unwrap_or_default()),
        }
    }

    pub(crate) fn settings(&self) -> &TargetSettings {
        &self.settings
    }

    /// Whether a request can be assigned an endpoint without waiting.
    pub(crate) fn is_ready(&self) -> bool {
        if !self.was_used.load(Relaxed) {
            self.was_used.store(true, Relaxed);
        }
        self.ready.load(Acquire)
    }

    /// Waits until requests can be distributed: on first use, until the names are resolved.
    ///
    /// # Errors
    /// The error of the lookup, if not a single endpoint is known.
    pub(crate) async fn wait_until_ready(
        self: &Arc<Self>,
        dependencies: &BackgroundDependencies,
    ) -> Result<(), BodyError> {
        if self.is_ready() {
            return Ok(());
        }
        self.start_health_checks(dependencies);
        if self.settings.origins.iter().all(|origin| literal_address(origin).is_some()) {
            self.ready.store(true, Release);
            return Ok(());
        }
        self.wait_for_lookup(dependencies).await
    }

    /// Starts the background tasks: health checks, if configured. Stops those of the previous targets, and
    /// clears health state that only they had determined.
    pub(crate) fn start_background_tasks(self: &Arc<Self>, dependencies: &BackgroundDependencies) {
        let before = std::mem::take(&mut *self.previous.lock().unwrap_or_else(PoisonError::into_inner));
        if let Some(before) = before.upgrade() {
            before.stop_health_checks();
        }
        if self.settings.checks.is_none() {
            self.peers.load().iter().for_each(|peer| _ = peer.health.set_unhealthy(false));
        } else if !self.ready.load(Acquire) {
            let (targets, background_dependencies) = (Arc::clone(self), dependencies.clone());
            // The first lookup of the names may take long.
            tokio::spawn(watch_polls(PollSite::Upstream, async move {
                targets.wait_until_ready(&background_dependencies).await
            }));
        }
    }

    /// Leases an endpoint for a request that has failed on the `tried` ones; `None` if there is no other.
    pub(crate) fn pick(&self, tried: &[Arc<EndpointPeer>]) -> Option<EndpointLease> {
        let peers = self.peers.load();
        match (peers.as_slice(), tried) {
            ([], _) => None,
            ([only], []) => Some(only.lease(!only.health.is_available())),
            (peers, _) => pick_endpoint(peers, tried, self.pick_count.fetch_add(1, Relaxed)),
        }
    }

    /// Whether this `host:port` is the address of an endpoint, written as such.
    pub(crate) fn has_address(&self, authority: &str) -> bool {
        self.peers.load().iter().any(|peer| {
            let endpoint = &peer.endpoint;
            endpoint.address.is_some_and(|address| endpoint.origin.has_address(authority, address))
        })
    }

    /// The number of endpoints, healthy or not.
    pub(crate) fn endpoint_count(&self) -> usize {
        self.peers.load().len()
    }

    pub(crate) fn stats(&self) -> Vec<EndpointStats> {
        self.peers.load().iter().map(|peer| peer.stats()).collect()
    }
}

impl Drop for ServiceEndpoints {
    fn drop(&mut self) {
        self.stop_lookups();
        self.stop_health_checks();
    }
}

fn pick_endpoint(
    peers: &[Arc<EndpointPeer>],
    tried: &[Arc<EndpointPeer>],
    turn: usize,
) -> Option<EndpointLease> {
    if peers.len() > MAX_FULL_SCAN && tried.is_empty() {
        let (one, two) = random_pair(turn, peers.len());
        if let (Some(one), Some(two)) = (peers.get(one), peers.get(two))
            && one.health.is_available()
            && two.health.is_available()
        {
            let fewest = if two.outstanding() < one.outstanding() { two } else { one };
            return Some(fewest.lease(false));
        }
    }
    let is_tried = |peer: &Arc<EndpointPeer>| tried.iter().any(|tried| Arc::ptr_eq(tried, peer));
    let any_in = peers.iter().any(|peer| peer.health.is_available());
    for peer in peers.iter().filter(|peer| !peer.health.is_available() && !is_tried(peer)) {
        if peer.health.try_take_probe() {
            return Some(peer.lease(true));
        }
    }
    // If all endpoints are ejected, any of them is better than none.
    let may = |peer: &&Arc<EndpointPeer>| peer.health.is_available() == any_in && !is_tried(peer);
    let least = peers.iter().filter(may).map(|peer| peer.outstanding()).min()?;
    let mut ties = peers.iter().filter(may).filter(|peer| peer.outstanding() <= least);
    // Between the two passes, all endpoints may have become busier or unavailable.
    let count = ties.clone().count().max(1);
    let peer = ties.nth(turn % count).or_else(|| peers.iter().find(may))?;
    Some(peer.lease(!any_in))
}

/// Returns two different indices below `count`, pseudo-randomly chosen by the turn (the finalizer of
/// SplitMix64).
fn random_pair(turn: usize, count: usize) -> (usize, usize) {
    let mut mixed = (turn as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^= mixed >> 31;
    let (high, low) = ((mixed >> 32) as usize, mixed as u32 as usize);
    let one = high % count;
    (one, (one + 1 + low % (count - 1)) % count)
}

/// Returns the endpoint at this address: the known one, or a copy of it with its state if its connection
/// settings have changed, or a new one.
fn reuse_or_create_peer(
    peers: &[Arc<EndpointPeer>],
    origin: &Arc<TargetOrigin>,
    address: Option<SocketAddr>,
) -> Arc<EndpointPeer> {
    let endpoint = || RequestEndpoint { origin: Arc::clone(origin), address };
    match peers.iter().find(|peer| peer.endpoint.address == address && peer.has_target(origin)) {
        Some(peer) if Arc::ptr_eq(&peer.endpoint.origin, origin) => Arc::clone(peer),
        Some(peer) => Arc::new(peer.with_endpoint(endpoint())),
        None => Arc::new(EndpointPeer::new(endpoint())),
    }
}

/// Returns the IP address in the URL, if it contains one, so that no lookup is needed.
fn literal_address(origin: &TargetOrigin) -> Option<SocketAddr> {
    let host = origin.authority.host();
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    Some(SocketAddr::new(host.parse::<IpAddr>().ok()?, origin.port()))
}
