//! The facts about a completed request, for the access log, the metrics, the traces and the observer.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use handler::LoggedProblem;
use http::{Method, StatusCode, Version};
use services::{CallerId, RequestReport, UpstreamCallRecord};

use super::Telemetry;
use super::metrics::{CountedRequest, RouteMetrics};
use super::phase::PhaseSequence;
use super::trace::{FinishedRequest, StartedTrace};

/// The status in the log if the client disconnected before the response began.
pub(crate) const CLIENT_CLOSED_REQUEST: u16 = 499;

/// A completed request, for an observer such as `orfa dev`.
#[derive(Clone, Debug)]
pub struct CompletedRequest {
    /// The method.
    pub method: Method,
    /// The path, without its query.
    pub path: String,
    /// The status of the response.
    pub status: StatusCode,
    /// The problem code, if the response is a problem document.
    pub code: Option<&'static str>,
    /// The time from the request's head to the last byte of the response.
    pub duration: Duration,
    /// The upstream calls of the gateway itself, which are those of a proxied request.
    pub upstream_calls: Vec<UpstreamCallRecord>,
    /// The handler's report: the upstream calls and CPU time of a program.
    pub report: Option<RequestReport>,
    /// The phases that the request passed through.
    pub phases: PhaseSequence,
}

/// The facts about a completed request.
pub(crate) struct RequestRecord<'a> {
    pub(crate) method: &'a Method,
    /// The path, without its query.
    pub(crate) path: &'a str,
    pub(crate) version: Version,
    pub(crate) client: IpAddr,
    pub(crate) caller: &'a CallerId,
    /// The start of the request, on both clocks.
    pub(crate) started_at: (Instant, SystemTime),
    /// The start of its response, if spans are recorded.
    pub(crate) response_started_at: Option<Instant>,
    pub(crate) duration: Duration,
    /// The route, if there is one.
    pub(crate) route: Option<&'a RouteMetrics>,
    /// The service that a proxied request is for. Filters may call other services too.
    pub(crate) service: Option<&'a Arc<str>>,
    pub(crate) trace: &'a StartedTrace,
    pub(crate) status: StatusCode,
    pub(crate) problem: Option<&'a LoggedProblem>,
    pub(crate) end: RequestEnd,
    pub(crate) bytes_received: u64,
    pub(crate) bytes_sent: u64,
    pub(crate) upstream_calls: Vec<UpstreamCallRecord>,
    /// The moment that the times of the upstream calls are relative to.
    pub(crate) calls_started_at: Instant,
    pub(crate) report: Option<RequestReport>,
    pub(crate) phases: PhaseSequence,
}

/// The way in which a request ended.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestEnd {
    Unfinished,
    Completed,
    Failed,
}

impl Telemetry {
    /// Traces, counts and logs a completed request.
    pub(crate) fn record_request(&self, record: RequestRecord<'_>) {
        self.export_spans(&record);
        self.count_request(&record);
        if let Some(log) = &self.log {
            log.write(|line| record.write_line(line));
        }
        if let Some(observe) = &self.observer {
            observe(record.into_completed_request());
        }
    }

    /// Exports the spans of a recorded request.
    fn export_spans(&self, record: &RequestRecord<'_>) {
        let trace = &record.trace.trace;
        let (Some(tracer), Some(context)) = (&self.tracer, trace.context()) else { return };
        if !trace.is_recorded() {
            return;
        }
        let report = record.report.as_ref().and_then(|report| Some((&*report.call_records, report.started?)));
        tracer.export_spans(&FinishedRequest {
            trace,
            context: *context,
            parent: record.trace.parent,
            started_at: record.started_at,
            response_started_at: record.response_started_at,
            duration: record.duration,
            method: record.method,
            path: record.path,
            version: record.version,
            client: record.client.to_string(),
            route: record.route.map(|route| (&*route.path, route.handler)),
            status: record.response_status(),
            code: record.problem.map(|problem| problem.code),
            upstream_calls: report.unwrap_or((&record.upstream_calls, record.calls_started_at)),
        });
    }

    fn count_request(&self, record: &RequestRecord<'_>) {
        let route = record.route.unwrap_or_else(|| {
            self.metrics.unmatched.begin_request();
            &self.metrics.unmatched
        });
        if let Some(problem) = record.problem {
            self.metrics.count_problem(problem.code);
        }
        route.end_request(&CountedRequest {
            method: record.method,
            status: record.response_status(),
            duration: record.duration,
            bytes_received: record.bytes_received,
            bytes_sent: record.bytes_sent,
            cpu: record.report.as_ref().map(|report| report.cpu),
        });
    }
}

impl RequestRecord<'_> {
    /// The status, if a response began.
    fn response_status(&self) -> Option<StatusCode> {
        Some(self.status).filter(|status| status.as_u16() != CLIENT_CLOSED_REQUEST)
    }

    fn into_completed_request(self) -> CompletedRequest {
        CompletedRequest {
            method: self.method.clone(),
            path: self.path.to_owned(),
            status: self.status,
            code: self.problem.map(|problem| problem.code),
            duration: self.duration,
            upstream_calls: self.upstream_calls,
            report: self.report,
            phases: self.phases,
        }
    }
}
