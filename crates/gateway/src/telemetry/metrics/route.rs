//! The metrics of the requests of a route.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use http::{Method, StatusCode};
use services::stats::DurationHistogram;

use super::page::MetricsPage;

/// The methods that are counted by name, and one label for all others, since clients can send any method.
const METHODS: [&str; 9] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "QUERY", "other"];
/// The classes of status codes, and one for clients that disconnected before the response started.
const CLASSES: [&str; 6] = ["1xx", "2xx", "3xx", "4xx", "5xx", "client-closed-request"];

/// The metrics of a route, about 700 bytes.
#[derive(Debug)]
pub(crate) struct RouteMetrics {
    /// The path as the config contains it.
    pub(crate) path: Arc<str>,
    /// The name of the handler.
    pub(crate) handler: &'static str,
    completed: [[AtomicU64; CLASSES.len()]; METHODS.len()],
    duration: DurationHistogram,
    started: AtomicU64,
    bytes_received: AtomicU64,
    bytes_sent: AtomicU64,
    programs: AtomicU64,
    cpu_nanos: AtomicU64,
}

/// The data of a completed request that is counted.
pub(crate) struct CountedRequest<'a> {
    pub(crate) method: &'a Method,
    /// `None` if the client disconnected before the response started.
    pub(crate) status: Option<StatusCode>,
    pub(crate) duration: Duration,
    /// Bytes of the request body.
    pub(crate) bytes_received: u64,
    /// Bytes of the response body.
    pub(crate) bytes_sent: u64,
    /// CPU time of the program that ran, if any.
    pub(crate) cpu: Option<Duration>,
}

impl RouteMetrics {
    pub(super) fn new(path: Arc<str>, handler: &'static str) -> Self {
        Self {
            path,
            handler,
            completed: Default::default(),
            duration: DurationHistogram::default(),
            started: AtomicU64::new(0),
            bytes_received: AtomicU64::new(0),
            bytes_sent: AtomicU64::new(0),
            programs: AtomicU64::new(0),
            cpu_nanos: AtomicU64::new(0),
        }
    }

    /// Counts a request as in flight.
    pub(crate) fn begin_request(&self) {
        self.started.fetch_add(1, Relaxed);
    }

    /// Counts a request that has completed.
    pub(crate) fn end_request(&self, request: &CountedRequest<'_>) {
        self.completed[method_index(request.method)][status_class_index(request.status)]
            .fetch_add(1, Relaxed);
        self.duration.observe(request.duration);
        add_nonzero(&self.bytes_received, request.bytes_received);
        add_nonzero(&self.bytes_sent, request.bytes_sent);
        if let Some(cpu) = request.cpu {
            self.programs.fetch_add(1, Relaxed);
            add_nonzero(&self.cpu_nanos, u64::try_from(cpu.as_nanos()).unwrap_or(u64::MAX));
        }
    }

    fn in_flight(&self) -> u64 {
        // Reads the completed requests first, so that none of them can have started after the read of
        // `started`.
        let ended: u64 = self.completed.iter().flatten().map(|count| count.load(Relaxed)).sum();
        self.started.load(Relaxed).saturating_sub(ended)
    }

    fn labels(&self) -> [(&str, &str); 2] {
        [("route", &self.path), ("handler", self.handler)]
    }
}

/// Adds to a counter. Skips zero, which saves a contended atomic operation.
fn add_nonzero(counter: &AtomicU64, amount: u64) {
    if amount > 0 {
        counter.fetch_add(amount, Relaxed);
    }
}

fn method_index(method: &Method) -> usize {
    METHODS.iter().position(|name| *name == method.as_str()).unwrap_or(METHODS.len() - 1)
}

fn status_class_index(status: Option<StatusCode>) -> usize {
    let class = status.map(|status| usize::from(status.as_u16() / 100).clamp(1, 5));
    class.map_or(CLASSES.len() - 1, |class| class - 1)
}

/// Writes the metrics of these routes.
pub(super) fn write_routes(routes: &[Arc<RouteMetrics>], page: &mut MetricsPage<'_>) -> fmt::Result {
    let requests = routes.iter().flat_map(|route| {
        METHODS.iter().zip(&route.completed).flat_map(|(method, classes)| {
            CLASSES.iter().zip(classes).filter_map(|(class, count)| {
                let [path, handler] = route.labels();
                let count = Some(count.load(Relaxed)).filter(|count| *count > 0)?;
                Some(([path, handler, ("method", *method), ("status", *class)], count))
            })
        })
    });
    page.counter("orfa_requests", "Completed requests, by the status of their response", requests)?;
    let took = routes.iter().map(|route| (route.labels(), route.duration.snapshot()));
    let help = "Time from a request's head to the last byte of its response";
    page.histogram("orfa_request_duration_seconds", help, took)?;
    let in_flight = routes.iter().map(|route| (route.labels(), route.in_flight()));
    page.gauge("orfa_requests_in_flight", "Requests in flight", in_flight)?;
    let received = routes.iter().map(|route| (route.labels(), route.bytes_received.load(Relaxed)));
    page.counter("orfa_request_body_bytes", "Bytes of request bodies", received)?;
    let sent = routes.iter().map(|route| (route.labels(), route.bytes_sent.load(Relaxed)));
    page.counter("orfa_response_body_bytes", "Bytes of response bodies", sent)?;
    let queries = || routes.iter().filter(|route| route.handler == "query");
    let runs = queries().map(|route| ([("route", &*route.path)], route.programs.load(Relaxed)));
    page.counter("orfa_program_runs", "Programs that were run", runs)?;
    let cpu = queries().map(|route| {
        let cpu = Duration::from_nanos(route.cpu_nanos.load(Relaxed));
        ([("route", &*route.path)], cpu.as_secs_f64())
    });
    page.counter("orfa_program_cpu_seconds", "CPU time of programs, host functions included", cpu)?;
    let scripts = || routes.iter().filter(|route| route.handler == "script");
    let runs = scripts().map(|route| ([("route", &*route.path)], route.programs.load(Relaxed)));
    page.counter("orfa_script_requests", "Requests that scripts handled", runs)?;
    let cpu = scripts().map(|route| {
        let cpu = Duration::from_nanos(route.cpu_nanos.load(Relaxed));
        ([("route", &*route.path)], cpu.as_secs_f64())
    });
    page.counter("orfa_script_cpu_seconds", "CPU time of the handlers of scripts", cpu)
}
