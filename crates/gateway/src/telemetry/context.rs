//! The context of a request, from its head to the last byte of its response.
//!
//! A [`RequestContext`] travels with the request and ends as part of the response body, [`LoggedBody`]. It is
//! logged, counted and traced when the last byte has been sent or the client has disconnected, so the log
//! reports the bytes that actually left.

mod logged_body;
mod metered_body;

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use http::{HeaderName, Method, Request, Response, StatusCode, Uri, Version};
use http_body::Body as _;
use http_body_util::BodyExt;
use services::{
    CallerId, LoggedErrorCode, RequestBudget, RequestReport, RequestTrace, StreamedServiceBody,
    UpstreamCallRecord,
};

use super::Telemetry;
use super::access_log::{LoggedRequest, RequestEnd};
use super::metrics::{self, RouteMetrics};
use super::trace::{self, FinishedRequest, StartedTrace};
use crate::config::RouteLimitsConfig;
use crate::http_semantics::client::ClientInfo;
use crate::http_semantics::problem_details::LoggedProblem;
use crate::limits::load_shedder::InFlightGuard;
use crate::limits::rate_limits::ConcurrencyPermit;

pub(crate) use logged_body::LoggedBody;
pub(crate) use metered_body::BodyFault;
use metered_body::{ByteMeter, MeteredBody};

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
}

/// The context of a request: its facts for the log, the metrics and the traces.
pub(crate) struct RequestContext {
    telemetry: Arc<Telemetry>,
    pub(crate) started_at: Instant,
    pub(crate) start_time: SystemTime,
    pub(crate) client: ClientInfo,
    method: Method,
    uri: Uri,
    /// `None` for a request without a body.
    meter: Option<Arc<ByteMeter>>,
    route: Option<Arc<RouteMetrics>>,
    pub(crate) caller: CallerId,
    /// The service that a proxied request is for. Filters may call other services too.
    pub(crate) service: Option<Arc<str>>,
    /// The request's shares of the concurrency limits, released when it is over.
    pub(crate) in_flight_guard: Option<InFlightGuard>,
    pub(crate) concurrency_permit: Option<ConcurrencyPermit>,
    pub(crate) budget: Option<Arc<RequestBudget>>,
    version: Version,
    started_trace: StartedTrace,
    status: StatusCode,
    /// The start of the response, if spans are recorded.
    answered_at: Option<Instant>,
    logged_problem: Option<LoggedProblem>,
    report: Option<RequestReport>,
    upstream_calls: Vec<UpstreamCallRecord>,
    bytes_sent: u64,
    request_end: RequestEnd,
}

/// The status in the log if the client disconnected before the response began.
const CLIENT_CLOSED_REQUEST: u16 = 499;

impl RequestContext {
    /// Begins a request. The entry is boxed, since it is moved with the response from layer to layer.
    pub(crate) fn begin<B>(audience: &Arc<Telemetry>, request: &Request<B>, client: ClientInfo) -> Box<Self> {
        let begun = trace::start_trace(audience.tracer.as_ref(), request.headers(), client.is_trusted);
        Box::new(Self {
            telemetry: Arc::clone(audience),
            started_at: Instant::now(),
            start_time: SystemTime::now(),
            client,
            method: request.method().clone(),
            uri: request.uri().clone(),
            meter: None,
            route: None,
            caller: CallerId::Anonymous,
            service: None,
            in_flight_guard: None,
            concurrency_permit: None,
            budget: None,
            version: request.version(),
            started_trace: begun,
            status: StatusCode::from_u16(CLIENT_CLOSED_REQUEST).unwrap_or_default(),
            answered_at: None,
            logged_problem: None,
            report: None,
            upstream_calls: Vec::new(),
            bytes_sent: 0,
            request_end: RequestEnd::Unfinished,
        })
    }

    /// Returns the request's body, counted and bounded by `limits`: those of its route, and the number of
    /// bytes of it that are held at most before the response begins.
    pub(crate) fn meter_body(
        &mut self,
        body: StreamedServiceBody,
        limits: (&RouteLimitsConfig, u64),
        address_field: Option<&HeaderName>,
    ) -> StreamedServiceBody {
        if body.is_end_stream() {
            return body;
        }
        let meter = Arc::clone(self.meter.get_or_insert_default());
        MeteredBody::new(body, meter, self.client.clone(), limits, address_field).boxed_unsync()
    }

    /// Assigns the request to a route.
    pub(crate) fn set_route(&mut self, route: &Arc<RouteMetrics>) {
        route.begin_request();
        self.route = Some(Arc::clone(route));
    }

    /// The trace that the request belongs to.
    pub(crate) fn trace(&self) -> &RequestTrace {
        &self.started_trace.trace
    }

    /// The time since the request began.
    pub(crate) fn age(&self) -> Duration {
        self.started_at.elapsed()
    }

    /// The number of body bytes received.
    fn bytes_received(&self) -> u64 {
        self.meter.as_ref().map_or(0, |meter| meter.bytes_received())
    }

    /// The fault in the part of the body that was read, if any.
    pub(crate) fn body_fault(&self) -> Option<BodyFault> {
        self.meter.as_ref()?.fault()
    }

    /// Records the start of the response. The entry moves into its body.
    pub(crate) fn begin_response(
        mut self: Box<Self>,
        response: Response<StreamedServiceBody>,
    ) -> Response<LoggedBody> {
        self.meter.iter().for_each(|meter| meter.note_response_started());
        self.answered_at = self.started_trace.trace.is_recorded().then(Instant::now);
        let (mut head, body) = response.into_parts();
        self.status = head.status;
        let told = head
            .extensions
            .remove::<LoggedErrorCode>()
            .map(|LoggedErrorCode(code)| LoggedProblem { code, request_id: None });
        self.logged_problem = head.extensions.remove::<LoggedProblem>().or(told);
        Response::from_parts(head, LoggedBody { body, entry: self })
    }

    /// Releases the concurrency limits once the response is complete: a client that reads it slowly doesn't
    /// block others.
    fn release_limits(&mut self) {
        (self.in_flight_guard, self.concurrency_permit) = (None, None);
    }

    fn completed_request(&mut self, took: Duration) -> CompletedRequest {
        CompletedRequest {
            method: self.method.clone(),
            path: self.uri.path().to_owned(),
            status: self.status,
            code: self.logged_problem.as_ref().map(|spoken| spoken.code),
            duration: took,
            upstream_calls: std::mem::take(&mut self.upstream_calls),
            report: self.report.take(),
        }
    }

    /// The status, if a response began.
    fn response_status(&self) -> Option<StatusCode> {
        Some(self.status).filter(|status| status.as_u16() != CLIENT_CLOSED_REQUEST)
    }

    /// Exports the spans of a recorded request.
    fn export_spans(&self, took: Duration) {
        let (Some(tracer), Some(context)) = (&self.telemetry.tracer, self.started_trace.trace.context())
        else {
            return;
        };
        if !self.started_trace.trace.is_recorded() {
            return;
        }
        let since = self.budget.as_ref().map_or(self.started_at, |budget| budget.started);
        let report = self.report.as_ref().and_then(|report| Some((&*report.call_records, report.started?)));
        tracer.export_spans(&FinishedRequest {
            trace: &self.started_trace.trace,
            context: *context,
            parent: self.started_trace.parent,
            started_at: (self.started_at, self.start_time),
            response_started_at: self.answered_at,
            duration: took,
            method: &self.method,
            path: self.uri.path(),
            version: self.version,
            client: self.client.address.ip().to_string(),
            route: self.route.as_ref().map(|route| (&*route.path, route.handler)),
            status: self.response_status(),
            code: self.logged_problem.as_ref().map(|spoken| spoken.code),
            upstream_calls: report.unwrap_or((&self.upstream_calls, since)),
        });
    }

    fn record_metrics(&self, took: Duration) {
        let metrics = &self.telemetry.metrics;
        let route = self.route.as_ref().unwrap_or_else(|| {
            metrics.unmatched.begin_request();
            &metrics.unmatched
        });
        self.logged_problem.iter().for_each(|spoken| metrics.count_problem(spoken.code));
        route.end_request(&metrics::CountedRequest {
            method: &self.method,
            status: self.response_status(),
            duration: took,
            bytes_received: self.bytes_received(),
            bytes_sent: self.bytes_sent,
            cpu: self.report.as_ref().map(|report| report.cpu),
        });
    }

    fn logged_request(&self, took: Duration) -> LoggedRequest<'_> {
        LoggedRequest {
            start_time: self.start_time,
            duration: took,
            client: self.client.address.ip(),
            method: &self.method,
            path: self.uri.path(),
            status: self.status,
            problem: self.logged_problem.as_ref(),
            end: self.request_end,
            route: self.route.as_ref().map(|route| &*route.path),
            caller: &self.caller,
            trace: self.started_trace.trace.context(),
            service: self.service.as_ref(),
            upstream_calls: &self.upstream_calls,
            report: self.report.as_ref(),
            bytes_received: self.bytes_received(),
            bytes_sent: self.bytes_sent,
        }
    }
}

/// Records, counts and logs the request, whether or not it was answered.
impl Drop for RequestContext {
    fn drop(&mut self) {
        let took = self.started_at.elapsed();
        if let Some(budget) = &self.budget {
            (self.upstream_calls, self.report) = (budget.take_call_records(), budget.take_report());
        }
        self.export_spans(took);
        self.record_metrics(took);
        if let Some(log) = &self.telemetry.log {
            let logged = self.logged_request(took);
            log.write(|line| logged.write_line(line));
        }
        if let Some(watch) = self.telemetry.observer.clone() {
            watch(self.completed_request(took));
        }
    }
}
