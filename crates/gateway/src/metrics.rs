//! What the gateway counts, for as long as the process lives: a reload takes the counts over.
//!
//! A request pays a handful of atomic additions. What it adds to is found when its route is built, so
//! that no label is looked up, no lock taken and nothing allocated on its way. Labels come from the config
//! and from this code, never from a client: their number is bounded whatever is sent.
//!
//! `page.rs` writes all of it, and what others count, as text for Prometheus.

mod page;
mod process;
mod route;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::server::limiter::ClientLimiter;
use crate::trace::Tally;

pub(crate) use page::Page;
pub(crate) use process::Process;
pub use process::observe_heap;
pub(crate) use route::{Ended, RouteMetrics};

/// The counts of one process.
#[derive(Debug)]
pub(crate) struct Metrics {
    /// Those of every route that some life still has.
    routes: Mutex<BTreeMap<Name, Weak<RouteMetrics>>>,
    /// Requests that no route answers.
    pub(crate) nowhere: Arc<RouteMetrics>,
    /// Problems that were answered, by code.
    problems: Mutex<BTreeMap<&'static str, u64>>,
    connections: [Connections; PROTOCOLS.len()],
    /// Spans of traces.
    pub(crate) spans: Arc<Tally>,
    /// What clients take of the gateway.
    pub(crate) limiter: Arc<ClientLimiter>,
}

/// A route's path and way.
type Name = (Arc<str>, &'static str);

/// What connections speak.
const PROTOCOLS: [&str; 2] = ["http/1.1", "h2"];

/// Connections of clients that speak one protocol.
#[derive(Debug, Default)]
struct Connections {
    accepted: AtomicU64,
    ended: AtomicU64,
}

/// A connection that counts as open until this is dropped.
pub(crate) struct Open(Arc<Metrics>, usize);

impl Default for Metrics {
    fn default() -> Self {
        Self {
            routes: Mutex::default(),
            nowhere: Arc::new(RouteMetrics::new("none".into(), "none")),
            problems: Mutex::default(),
            connections: Default::default(),
            spans: Arc::default(),
            limiter: Arc::default(),
        }
    }
}

impl Metrics {
    /// What a route counts in: the same as before a reload, if the config had it already.
    pub(crate) fn route(&self, path: &str, way: &'static str) -> Arc<RouteMetrics> {
        let mut routes = lock(&self.routes);
        routes.retain(|_, route| route.strong_count() > 0);
        let path: Arc<str> = path.into();
        let known = routes.get(&(Arc::clone(&path), way)).and_then(Weak::upgrade);
        known.unwrap_or_else(|| {
            let route = Arc::new(RouteMetrics::new(Arc::clone(&path), way));
            routes.insert((path, way), Arc::downgrade(&route));
            route
        })
    }

    /// Every route, and what no route answers.
    fn routes(&self) -> Vec<Arc<RouteMetrics>> {
        let routes = lock(&self.routes).values().filter_map(Weak::upgrade).collect::<Vec<_>>();
        routes.into_iter().chain([Arc::clone(&self.nowhere)]).collect()
    }

    /// An answer was this problem. Not every request is one, so it may take a lock.
    pub(crate) fn problem(&self, code: &'static str) {
        *lock(&self.problems).entry(code).or_default() += 1;
    }

    /// A connection was accepted, and this is what it speaks.
    pub(crate) fn open(self: &Arc<Self>, is_http2: bool) -> Open {
        let protocol = usize::from(is_http2);
        self.connections[protocol].accepted.fetch_add(1, Relaxed);
        Open(Arc::clone(self), protocol)
    }

    /// Writes what is counted here.
    pub(crate) fn write(&self, page: &mut Page<'_>) -> std::fmt::Result {
        let routes = self.routes();
        route::write(&routes, page)?;
        let problems = lock(&self.problems).clone();
        let problems = problems.iter().map(|(code, count)| ([("code", *code)], *count));
        page.counter("orfa_problems", "Requests that were answered with a problem document", problems)?;
        let each = |count: fn(&Connections) -> u64| {
            PROTOCOLS.iter().zip(&self.connections).map(move |(name, of)| ([("protocol", *name)], count(of)))
        };
        let accepted = each(|of| of.accepted.load(Relaxed));
        page.counter("orfa_connections", "Connections that clients opened", accepted)?;
        let open = each(|of| {
            let ended = of.ended.load(Relaxed);
            of.accepted.load(Relaxed).saturating_sub(ended)
        });
        page.gauge("orfa_connections_open", "Connections of clients that are open", open)?;
        self.limiter.write(page)?;
        let spans = [
            ("exported", &self.spans.exported),
            ("dropped", &self.spans.dropped),
            ("failed", &self.spans.failed),
        ];
        let spans = spans.map(|(result, count)| ([("result", result)], count.load(Relaxed)));
        page.counter("orfa_trace_spans", "Spans of traces, by what became of them", spans)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.connections[self.1].ended.fetch_add(1, Relaxed);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
