//! The spans of a request that is over: one of its own, one for each phase, the answer's way to the client
//! among them, one for each upstream call, and below a call that was sent again one for each attempt.
//!
//! Names and attributes are those of OpenTelemetry's semantic conventions for HTTP. What a client sends is
//! in them as far as the access log has it too: the path, never the query.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use http::{Method, StatusCode, Version};
use services::call::Outcome;
use services::trace::{Context, Phase};
use services::{Made, Trace};

use super::otlp::{CLIENT, ERROR, INTERNAL, KeyValue, SERVER, Span, Status, number, text};

/// Upstream calls that get a span at most.
const MAX_CALLS: usize = 256;
/// The most bytes of a path in a span: thousands of spans wait for a slow collector, and a client's path may have 64 KiB.
pub(super) const MAX_PATH: usize = 1024;
/// Whether the parent is of another process (`SPAN_FLAGS_CONTEXT_HAS_IS_REMOTE` and `..._IS_REMOTE`), and
/// that the span is sampled.
const FLAGS: [u32; 2] = [0x101, 0x301];

/// A request that was recorded and is over.
pub(crate) struct Finished<'a> {
    pub(crate) trace: &'a Trace,
    pub(crate) context: Context,
    pub(crate) parent: Option<u64>,
    /// When it began, by both clocks.
    pub(crate) began: (Instant, SystemTime),
    /// When its answer did.
    pub(crate) answered: Option<Instant>,
    pub(crate) took: Duration,
    pub(crate) method: &'a Method,
    pub(crate) path: &'a str,
    pub(crate) version: Version,
    pub(crate) client: String,
    /// The route's path and way, if there is one.
    pub(crate) route: Option<(&'a str, &'static str)>,
    /// `None` where the client was gone before an answer began.
    pub(crate) status: Option<StatusCode>,
    pub(crate) code: Option<&'static str>,
    /// The upstream calls, and the moment from which theirs are counted.
    pub(crate) made: (&'a [Made], Instant),
}

/// The beginning of a path that is too long.
fn shortened(path: &str) -> &str {
    &path[..path.floor_char_boundary(MAX_PATH)]
}

impl Finished<'_> {
    pub(super) fn spans(&self) -> Vec<Span> {
        let mut phases = self.trace.phases();
        let end = self.began.0 + self.took;
        phases.extend(self.answered.map(|answered| Phase { name: "answer", span: (answered, end) }));
        let (made, since) = self.made;
        let mut spans = Vec::with_capacity(1 + phases.len() + made.len().min(MAX_CALLS));
        spans.push(self.request());
        for (index, phase) in phases.iter().enumerate() {
            // The numbers of calls begin at the other end.
            let id = self.context.child(usize::MAX - 1 - index).span_id;
            let (from, to) = phase.span;
            spans.push(self.below(id, phase.name.to_owned(), INTERNAL, (self.at(from), self.at(to))));
        }
        for (number, call) in made.iter().enumerate().take(MAX_CALLS) {
            spans.push(self.call(number, call, since));
            spans.extend(self.attempts(number, call, since));
        }
        spans
    }

    fn request(&self) -> Span {
        let method = known(self.method);
        let mut attributes = vec![
            text("http.request.method", method),
            text("url.path", shortened(self.path)),
            text("network.protocol.version", version(self.version)),
            text("client.address", &*self.client),
        ];
        let mut name = if method == OTHER { "HTTP" } else { method }.to_owned();
        if let Some((route, way)) = self.route {
            name = format!("{name} {route}");
            attributes.extend([text("http.route", route), text("orfa.way", way)]);
        }
        attributes.extend(self.status.map(|status| number("http.response.status_code", status.as_u16())));
        let code = self.code.or_else(|| self.status.is_none().then_some("client-gone"));
        attributes.extend(code.map(|code| text("error.type", code)));
        let end = self.at(self.began.0 + self.took);
        let span = self.span(self.context.span_id, name, SERVER, (self.at(self.began.0), end));
        Span {
            parent_span_id: self.parent.map_or_else(Vec::new, |parent| parent.to_be_bytes().to_vec()),
            flags: FLAGS[usize::from(self.parent.is_some())],
            // For a server only its own errors are errors.
            status: self
                .status
                .is_some_and(|status| status.is_server_error())
                .then_some(Status { code: ERROR }),
            attributes,
            ..span
        }
    }

    fn call(&self, index: usize, call: &Made, since: Instant) -> Span {
        let id = self.context.child(index).span_id;
        let (from, to) = (since + call.span.0, self.end(call, since));
        let method = known(&call.method);
        let name = format!("{} {}", if method == OTHER { "HTTP" } else { method }, call.service);
        let path = call.path.split('?').next().unwrap_or_default();
        let mut attributes = vec![
            text("http.request.method", method),
            text("server.address", &*call.service),
            text("peer.service", &*call.service),
            text("url.path", shortened(path)),
        ];
        attributes.extend(resent(call.again.len()));
        let error = match call.outcome {
            Outcome::Status(status) => {
                attributes.push(number("http.response.status_code", status));
                (status >= 400).then(|| status.to_string())
            }
            Outcome::NotSent => Some("not-sent".to_owned()),
            Outcome::NoAnswer => Some("no-answer".to_owned()),
        };
        let status = error.is_some().then_some(Status { code: ERROR });
        attributes.extend(error.map(|error| text("error.type", error)));
        Span { attributes, status, ..self.below(id, name, CLIENT, (self.at(from), self.at(to))) }
    }

    /// Each time that a call was sent, where that was more than once: all but the last failed.
    fn attempts(&self, index: usize, call: &Made, since: Instant) -> Vec<Span> {
        let call_id = self.context.child(index);
        let mut from = call.span.0;
        let ends = call.again.iter().map(|again| since + *again).chain([self.end(call, since)]);
        let attempt = |(number, to): (usize, Instant)| {
            let begun = since + std::mem::replace(&mut from, to.saturating_duration_since(since));
            let id = call_id.child(number).span_id;
            let span = self.span(id, "attempt".to_owned(), INTERNAL, (self.at(begun), self.at(to)));
            Span {
                parent_span_id: call_id.span_id.to_be_bytes().to_vec(),
                attributes: resent(number).into_iter().collect(),
                status: (number < call.again.len()).then_some(Status { code: ERROR }),
                ..span
            }
        };
        if call.again.is_empty() { Vec::new() } else { ends.enumerate().map(attempt).collect() }
    }

    /// The end of a call; it ends with its request at the latest.
    fn end(&self, call: &Made, since: Instant) -> Instant {
        call.span.1.map_or(self.began.0 + self.took, |to| since + to)
    }

    /// A span within the request's own.
    fn below(&self, id: u64, name: String, kind: i32, span: (u64, u64)) -> Span {
        let parent_span_id = self.context.span_id.to_be_bytes().to_vec();
        Span { parent_span_id, ..self.span(id, name, kind, span) }
    }

    fn span(&self, id: u64, name: String, kind: i32, (from, to): (u64, u64)) -> Span {
        Span {
            trace_id: self.context.trace_id.to_be_bytes().to_vec(),
            span_id: id.to_be_bytes().to_vec(),
            trace_state: self
                .trace
                .state()
                .and_then(|state| state.to_str().ok())
                .unwrap_or_default()
                .to_owned(),
            parent_span_id: Vec::new(),
            name,
            kind,
            start_time_unix_nano: from,
            end_time_unix_nano: to.max(from),
            attributes: Vec::<KeyValue>::new(),
            status: None,
            flags: FLAGS[0],
        }
    }

    /// A moment in nanoseconds since the epoch.
    fn at(&self, moment: Instant) -> u64 {
        let began = self.began.1.duration_since(UNIX_EPOCH).unwrap_or_default();
        let at = began + moment.saturating_duration_since(self.began.0);
        u64::try_from(at.as_nanos()).unwrap_or(u64::MAX)
    }
}

/// How often something was sent before.
fn resent(times: usize) -> Option<KeyValue> {
    let times = u32::try_from(times).ok().filter(|times| *times > 0)?;
    Some(number("http.request.resend_count", times))
}

/// What the conventions call a method that anybody made up.
const OTHER: &str = "_OTHER";

fn known(method: &Method) -> &str {
    match method.as_str() {
        name @ ("GET" | "HEAD" | "POST" | "PUT" | "PATCH" | "DELETE" | "OPTIONS" | "QUERY") => name,
        _ => OTHER,
    }
}

fn version(version: Version) -> &'static str {
    match version {
        Version::HTTP_10 => "1.0",
        Version::HTTP_2 => "2",
        _ => "1.1",
    }
}
