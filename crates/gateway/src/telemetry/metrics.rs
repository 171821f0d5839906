//! The gateway's metrics. They last as long as the process: a reload keeps the counts.
//!
//! A request costs a handful of atomic additions. Its counters are resolved when its route is built, so the
//! request path has no label lookup, lock or allocation. Labels come from the config and from this code,
//! never from clients, so their number is bounded.
//!
//! `page.rs` writes these metrics and those of other parts as text for Prometheus.

mod page;
mod process;
mod route;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::trace::SpanCounts;
use crate::limits::client_limiter::{ClientLimiter, ClientUsage};

pub(crate) use page::MetricsPage;
pub(crate) use process::ProcessStats;
pub use process::observe_heap;
pub(crate) use route::{CountedRequest, RouteMetrics};

/// The metrics of the process.
#[derive(Debug)]
pub(crate) struct GatewayMetrics {
    /// The metrics of every route of a config that is still in use.
    routes: Mutex<BTreeMap<RouteName, Weak<RouteMetrics>>>,
    /// The metrics of requests that match no route.
    pub(crate) unmatched: Arc<RouteMetrics>,
    /// The number of responses with a problem document, by code.
    problems: Mutex<BTreeMap<&'static str, u64>>,
    connections: [ConnectionCounters; PROTOCOLS.len()],
    /// Spans of traces.
    pub(crate) spans: Arc<SpanCounts>,
    /// The limits and counts of clients' connections.
    pub(crate) limiter: Arc<ClientLimiter>,
}

/// A route's path and handler.
type RouteName = (Arc<str>, &'static str);

/// The protocols of connections.
const PROTOCOLS: [&str; 2] = ["http/1.1", "h2"];

/// The connections of clients that use one protocol.
#[derive(Debug, Default)]
struct ConnectionCounters {
    accepted: AtomicU64,
    closed: AtomicU64,
}

/// A guard that counts a connection as open until it is dropped.
pub(crate) struct OpenConnectionGuard(Arc<GatewayMetrics>, usize);

impl Default for GatewayMetrics {
    fn default() -> Self {
        Self {
            routes: Mutex::default(),
            unmatched: Arc::new(RouteMetrics::new("none".into(), "none")),
            problems: Mutex::default(),
            connections: Default::default(),
            spans: Arc::default(),
            limiter: Arc::default(),
        }
    }
}

impl GatewayMetrics {
    /// Returns the metrics of a route. They are the same as before a reload if the config had the route
    /// already.
    pub(crate) fn route(&self, path: &str, handler: &'static str) -> Arc<RouteMetrics> {
        let mut routes = lock(&self.routes);
        routes.retain(|_, route| route.strong_count() > 0);
        let path: Arc<str> = path.into();
        let metrics = routes.get(&(Arc::clone(&path), handler)).and_then(Weak::upgrade);
        metrics.unwrap_or_else(|| {
            let route = Arc::new(RouteMetrics::new(Arc::clone(&path), handler));
            routes.insert((path, handler), Arc::downgrade(&route));
            route
        })
    }

    /// Returns the metrics of every route, and those of unmatched requests.
    fn routes(&self) -> Vec<Arc<RouteMetrics>> {
        let routes = lock(&self.routes).values().filter_map(Weak::upgrade).collect::<Vec<_>>();
        routes.into_iter().chain([Arc::clone(&self.unmatched)]).collect()
    }

    /// Counts a response with a problem document. Takes a lock, since these are less frequent than other
    /// responses.
    pub(crate) fn count_problem(&self, code: &'static str) {
        *lock(&self.problems).entry(code).or_default() += 1;
    }

    /// Counts an accepted connection by its protocol.
    pub(crate) fn open_connection(self: &Arc<Self>, is_http2: bool) -> OpenConnectionGuard {
        let protocol = usize::from(is_http2);
        self.connections[protocol].accepted.fetch_add(1, Relaxed);
        OpenConnectionGuard(Arc::clone(self), protocol)
    }

    /// Writes the metrics.
    pub(crate) fn write(&self, page: &mut MetricsPage<'_>) -> std::fmt::Result {
        let routes = self.routes();
        route::write_routes(&routes, page)?;
        let problems = lock(&self.problems).clone();
        let problems = problems.iter().map(|(code, count)| ([("code", *code)], *count));
        page.counter("orfa_problems", "Requests that were answered with a problem document", problems)?;
        let each = |count: fn(&ConnectionCounters) -> u64| {
            PROTOCOLS.iter().zip(&self.connections).map(move |(name, of)| ([("protocol", *name)], count(of)))
        };
        let accepted = each(|of| of.accepted.load(Relaxed));
        page.counter("orfa_connections", "Connections that clients opened", accepted)?;
        let open = each(|of| {
            let ended = of.closed.load(Relaxed);
            of.accepted.load(Relaxed).saturating_sub(ended)
        });
        page.gauge("orfa_connections_open", "Connections of clients that are open", open)?;
        write_client_limits(&self.limiter, page)?;
        let spans = [
            ("exported", &self.spans.exported),
            ("dropped", &self.spans.dropped),
            ("failed", &self.spans.failed),
        ];
        let spans = spans.map(|(result, count)| ([("result", result)], count.load(Relaxed)));
        page.counter("orfa_trace_spans", "Spans of traces, by result", spans)
    }
}

impl Drop for OpenConnectionGuard {
    fn drop(&mut self) {
        self.0.connections[self.1].closed.fetch_add(1, Relaxed);
    }
}

/// Writes the resources that clients use, and the number of refusals by limit.
fn write_client_limits(limiter: &ClientLimiter, page: &mut MetricsPage<'_>) -> std::fmt::Result {
    let ClientUsage { body_bytes, received_bytes, unsent_bytes, handshakes } = limiter.usage();
    let help = "Bytes of request bodies that the gateway holds";
    page.gauge("orfa_request_bodies_buffered_bytes", help, [([], body_bytes)])?;
    let help = "Bytes of services' responses that the gateway holds";
    page.gauge("orfa_upstream_responses_buffered_bytes", help, [([], received_bytes)])?;
    let help = "Bytes of responses that clients have yet to receive";
    page.gauge("orfa_unsent_bytes", help, [([], unsent_bytes)])?;
    page.gauge("orfa_handshakes_in_flight", "TLS handshakes in flight", [([], handshakes)])?;
    let refused = limiter.refusals().map(|(name, count)| ([("limit", name)], count));
    let help = "Connections that were refused and responses that were cut off, by field of `connections`";
    page.counter("orfa_client_limits_reached", help, refused)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
