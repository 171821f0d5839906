//! The spans of a completed request: one for the request, one for each phase including the sending of the
//! response, one for each upstream call, and one for each attempt of a call that was retried.
//!
//! Names and attributes follow OpenTelemetry's semantic conventions for HTTP. Of the client's data they
//! contain nothing that the access log omits: the path, never the query.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use http::{Method, StatusCode, Version};
use services::call::UpstreamCallOutcome;
use services::trace::{SpanContext, TracePhase};
use services::{RequestTrace, UpstreamCallRecord};

use super::otlp::{
    CLIENT, ERROR, INTERNAL, KeyValue, OtlpSpan, OtlpStatus, SERVER, number_attribute, text_attribute,
};

/// The maximum number of upstream calls with a span.
const MAX_CALLS: usize = 256;
/// The maximum length of a path in a span, in bytes. A client's path may have 64 KiB, and thousands of spans
/// may wait for a slow collector.
pub(super) const MAX_PATH: usize = 1024;
/// The span flags: `SPAN_FLAGS_CONTEXT_HAS_IS_REMOTE`, with or without `..._IS_REMOTE` for a parent in
/// another process, and the sampled flag.
const FLAGS: [u32; 2] = [0x101, 0x301];

/// A sampled request that has completed.
pub(crate) struct FinishedRequest<'a> {
    pub(crate) trace: &'a RequestTrace,
    pub(crate) context: SpanContext,
    pub(crate) parent: Option<u64>,
    /// The start of the request, on both clocks.
    pub(crate) started_at: (Instant, SystemTime),
    /// The start of its response.
    pub(crate) response_started_at: Option<Instant>,
    pub(crate) duration: Duration,
    pub(crate) method: &'a Method,
    pub(crate) path: &'a str,
    pub(crate) version: Version,
    pub(crate) client: String,
    /// The route's path and handler, if there is a route.
    pub(crate) route: Option<(&'a str, &'static str)>,
    /// `None` if the client disconnected before the response started.
    pub(crate) status: Option<StatusCode>,
    pub(crate) code: Option<&'static str>,
    /// The upstream calls, and the moment that their times are relative to.
    pub(crate) upstream_calls: (&'a [UpstreamCallRecord], Instant),
}

/// Truncates a long path.
fn truncate_path(path: &str) -> &str {
    &path[..path.floor_char_boundary(MAX_PATH)]
}

impl FinishedRequest<'_> {
    pub(super) fn spans(&self) -> Vec<OtlpSpan> {
        let mut phases = self.trace.completed_phases();
        let end = self.started_at.0 + self.duration;
        phases.extend(
            self.response_started_at.map(|answered| TracePhase { name: "response", span: (answered, end) }),
        );
        let (records, since) = self.upstream_calls;
        let mut spans = Vec::with_capacity(1 + phases.len() + records.len().min(MAX_CALLS));
        spans.push(self.request_span());
        for (index, phase) in phases.iter().enumerate() {
            // Calls are numbered from 0, so phases are numbered downwards from the maximum.
            let id = self.context.child(usize::MAX - 1 - index).span_id;
            let (from, to) = phase.span;
            spans.push(self.child_span(
                id,
                phase.name.to_owned(),
                INTERNAL,
                (self.unix_nanos(from), self.unix_nanos(to)),
            ));
        }
        for (number, call) in records.iter().enumerate().take(MAX_CALLS) {
            spans.push(self.call_span(number, call, since));
            spans.extend(self.attempt_spans(number, call, since));
        }
        spans
    }

    fn request_span(&self) -> OtlpSpan {
        let method = known_method(self.method);
        let mut attributes = vec![
            text_attribute("http.request.method", method),
            text_attribute("url.path", truncate_path(self.path)),
            text_attribute("network.protocol.version", protocol_version(self.version)),
            text_attribute("client.address", &*self.client),
        ];
        let mut name = if method == OTHER { "HTTP" } else { method }.to_owned();
        if let Some((route, handler)) = self.route {
            name = format!("{name} {route}");
            attributes.extend([text_attribute("http.route", route), text_attribute("orfa.handler", handler)]);
        }
        attributes
            .extend(self.status.map(|status| number_attribute("http.response.status_code", status.as_u16())));
        let code = self.code.or_else(|| self.status.is_none().then_some("client-closed-request"));
        attributes.extend(code.map(|code| text_attribute("error.type", code)));
        let end = self.unix_nanos(self.started_at.0 + self.duration);
        let span =
            self.new_span(self.context.span_id, name, SERVER, (self.unix_nanos(self.started_at.0), end));
        OtlpSpan {
            parent_span_id: self.parent.map_or_else(Vec::new, |parent| parent.to_be_bytes().to_vec()),
            flags: FLAGS[usize::from(self.parent.is_some())],
            // For a server span only server errors are errors.
            status: self
                .status
                .is_some_and(|status| status.is_server_error())
                .then_some(OtlpStatus { code: ERROR }),
            attributes,
            ..span
        }
    }

    fn call_span(&self, index: usize, call: &UpstreamCallRecord, since: Instant) -> OtlpSpan {
        let id = self.context.child(index).span_id;
        let (from, to) = (since + call.span.0, self.call_end(call, since));
        let method = known_method(&call.method);
        let name = format!("{} {}", if method == OTHER { "HTTP" } else { method }, call.service);
        let path = call.path.split('?').next().unwrap_or_default();
        let mut attributes = vec![
            text_attribute("http.request.method", method),
            text_attribute("server.address", &*call.service),
            text_attribute("peer.service", &*call.service),
            text_attribute("url.path", truncate_path(path)),
        ];
        attributes.extend(resend_count(call.retry_times.len()));
        let error = match call.outcome {
            UpstreamCallOutcome::Status(status) => {
                attributes.push(number_attribute("http.response.status_code", status));
                (status >= 400).then(|| status.to_string())
            }
            UpstreamCallOutcome::NotSent => Some("not-sent".to_owned()),
            UpstreamCallOutcome::NoAnswer => Some("no-answer".to_owned()),
        };
        let status = error.is_some().then_some(OtlpStatus { code: ERROR });
        attributes.extend(error.map(|error| text_attribute("error.type", error)));
        OtlpSpan {
            attributes,
            status,
            ..self.child_span(id, name, CLIENT, (self.unix_nanos(from), self.unix_nanos(to)))
        }
    }

    /// Returns a span for each attempt of a call that was retried. All but the last failed.
    fn attempt_spans(&self, index: usize, call: &UpstreamCallRecord, since: Instant) -> Vec<OtlpSpan> {
        let call_id = self.context.child(index);
        let mut from = call.span.0;
        let ends = call.retry_times.iter().map(|again| since + *again).chain([self.call_end(call, since)]);
        let attempt = |(number, to): (usize, Instant)| {
            let begun = since + std::mem::replace(&mut from, to.saturating_duration_since(since));
            let id = call_id.child(number).span_id;
            let span = self.new_span(
                id,
                "attempt".to_owned(),
                INTERNAL,
                (self.unix_nanos(begun), self.unix_nanos(to)),
            );
            OtlpSpan {
                parent_span_id: call_id.span_id.to_be_bytes().to_vec(),
                attributes: resend_count(number).into_iter().collect(),
                status: (number < call.retry_times.len()).then_some(OtlpStatus { code: ERROR }),
                ..span
            }
        };
        if call.retry_times.is_empty() { Vec::new() } else { ends.enumerate().map(attempt).collect() }
    }

    /// The end of a call, which is at the latest the end of its request.
    fn call_end(&self, call: &UpstreamCallRecord, since: Instant) -> Instant {
        call.span.1.map_or(self.started_at.0 + self.duration, |to| since + to)
    }

    /// Creates a span whose parent is the request's span.
    fn child_span(&self, id: u64, name: String, kind: i32, span: (u64, u64)) -> OtlpSpan {
        let parent_span_id = self.context.span_id.to_be_bytes().to_vec();
        OtlpSpan { parent_span_id, ..self.new_span(id, name, kind, span) }
    }

    fn new_span(&self, id: u64, name: String, kind: i32, (from, to): (u64, u64)) -> OtlpSpan {
        OtlpSpan {
            trace_id: self.context.trace_id.to_be_bytes().to_vec(),
            span_id: id.to_be_bytes().to_vec(),
            trace_state: self
                .trace
                .trace_state()
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

    /// Converts a moment to nanoseconds since the epoch.
    fn unix_nanos(&self, moment: Instant) -> u64 {
        let began = self.started_at.1.duration_since(UNIX_EPOCH).unwrap_or_default();
        let at = began + moment.saturating_duration_since(self.started_at.0);
        u64::try_from(at.as_nanos()).unwrap_or(u64::MAX)
    }
}

/// The number of earlier attempts, as an attribute.
fn resend_count(times: usize) -> Option<KeyValue> {
    let times = u32::try_from(times).ok().filter(|times| *times > 0)?;
    Some(number_attribute("http.request.resend_count", times))
}

/// The conventions' name for an unknown method.
const OTHER: &str = "_OTHER";

fn known_method(method: &Method) -> &str {
    match method.as_str() {
        name @ ("GET" | "HEAD" | "POST" | "PUT" | "PATCH" | "DELETE" | "OPTIONS" | "QUERY") => name,
        _ => OTHER,
    }
}

fn protocol_version(version: Version) -> &'static str {
    match version {
        Version::HTTP_10 => "1.0",
        Version::HTTP_2 => "2",
        _ => "1.1",
    }
}
