//! An endpoint of a service: its address, its counters, and its requests in flight.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use super::endpoint_health::{EndpointHealth, HealthChange, RequestVerdict};
use crate::transport::{RequestEndpoint, TargetOrigin};

/// An endpoint that requests are distributed to.
#[derive(Debug)]
pub(crate) struct EndpointPeer {
    pub(crate) endpoint: RequestEndpoint,
    pub(super) health: EndpointHealth,
    outstanding: AtomicU32,
    requests: AtomicU64,
    failures: AtomicU64,
    ejections: AtomicU64,
}

/// Statistics of one endpoint of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointStats {
    /// Host and port as written in the config.
    pub target: String,
    /// The address of the endpoint, one of those that the host name resolves to.
    pub address: Option<SocketAddr>,
    /// The number of requests sent to the endpoint, retries included.
    pub requests: u64,
    /// The number of failed requests: no connection, an incomplete response, a timeout, or status 500,
    /// 502, 503 or 504.
    pub failures: u64,
    /// The number of outlier ejections, including failed probes.
    pub ejections: u64,
    /// The number of requests in flight, streamed responses included.
    pub outstanding: u32,
    /// Whether the endpoint receives requests.
    pub healthy: bool,
}

/// A guard for a request on its endpoint: the request counts as in flight until the lease is dropped.
#[derive(Debug)]
pub(crate) struct EndpointLease {
    pub(crate) peer: Arc<EndpointPeer>,
    /// Whether the endpoint was ejected, and this request is a probe.
    is_probe: bool,
}

impl EndpointPeer {
    pub(super) fn new(endpoint: RequestEndpoint) -> Self {
        Self {
            endpoint,
            health: EndpointHealth::new(),
            outstanding: AtomicU32::new(0),
            requests: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            ejections: AtomicU64::new(0),
        }
    }

    /// Returns the same endpoint with other connection settings, keeping its state.
    pub(super) fn with_endpoint(&self, endpoint: RequestEndpoint) -> Self {
        Self {
            endpoint,
            health: self.health.copy_state(),
            outstanding: AtomicU32::new(0),
            requests: AtomicU64::new(self.requests.load(Relaxed)),
            failures: AtomicU64::new(self.failures.load(Relaxed)),
            ejections: AtomicU64::new(self.ejections.load(Relaxed)),
        }
    }

    /// Whether the endpoint belongs to this target, whatever the connection settings.
    pub(super) fn has_target(&self, origin: &TargetOrigin) -> bool {
        let target_origin = &self.endpoint.origin;
        (&target_origin.scheme, &target_origin.authority, &target_origin.base_path)
            == (&origin.scheme, &origin.authority, &origin.base_path)
    }

    /// The number of requests in flight.
    pub(super) fn outstanding(&self) -> u32 {
        self.outstanding.load(Relaxed)
    }

    /// Counts a request, and returns its lease.
    pub(super) fn lease(self: &Arc<Self>, chance: bool) -> EndpointLease {
        self.outstanding.fetch_add(1, Relaxed);
        self.requests.fetch_add(1, Relaxed);
        EndpointLease { peer: Arc::clone(self), is_probe: chance }
    }

    /// Records the outcome of a request. `chance` marks a request that was sent although the endpoint was
    /// ejected.
    pub(crate) fn record_outcome(&self, verdict: RequestVerdict, chance: bool) {
        if verdict != RequestVerdict::Success {
            self.failures.fetch_add(1, Relaxed);
        }
        let service = &*self.endpoint.origin.service;
        match self.health.record_outcome(verdict, chance) {
            Some(HealthChange::Ejected(pause)) => {
                self.ejections.fetch_add(1, Relaxed);
                let (endpoint, pause) = (self.log_name(), pause.as_secs_f64());
                tracing::warn!(service, endpoint, pause, "an endpoint failed too often and is ejected");
            }
            Some(HealthChange::Restored) => {
                let endpoint = self.log_name();
                tracing::info!(service, endpoint, "an endpoint is restored");
            }
            None => {}
        }
    }

    pub(super) fn stats(&self) -> EndpointStats {
        EndpointStats {
            target: self.endpoint.origin.authority.to_string(),
            address: self.endpoint.address,
            requests: self.requests.load(Relaxed),
            failures: self.failures.load(Relaxed),
            ejections: self.ejections.load(Relaxed),
            outstanding: self.outstanding(),
            healthy: self.health.is_available(),
        }
    }

    /// Returns the endpoint's name and address, for the log.
    pub(super) fn log_name(&self) -> String {
        let authority = &self.endpoint.origin.authority;
        match self.endpoint.address {
            Some(address) if authority.as_str() != address.to_string() => format!("{authority} ({address})"),
            _ => authority.to_string(),
        }
    }
}

impl EndpointLease {
    /// Records the outcome of the request.
    pub(crate) fn record_outcome(&self, verdict: RequestVerdict) {
        self.peer.record_outcome(verdict, self.is_probe);
    }

    /// Whether this request is a probe of an ejected endpoint.
    pub(crate) fn is_probe(&self) -> bool {
        self.is_probe
    }
}

impl Drop for EndpointLease {
    fn drop(&mut self) {
        self.peer.outstanding.fetch_sub(1, Relaxed);
    }
}
