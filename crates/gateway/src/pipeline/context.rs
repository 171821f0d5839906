//! The context of a request, from its head to the last byte of its response.
//!
//! A [`RequestContext`] travels with the request and ends as part of the response body, [`LoggedBody`]. It is
//! logged, counted and traced when the last byte has been sent or the client has disconnected, so the log
//! reports the bytes that actually left.

mod logged_body;
mod metered_body;

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use handler::LoggedProblem;
use http::{HeaderName, Method, Request, Response, StatusCode, Uri, Version};
use http_body::Body as _;
use http_body_util::BodyExt;
use services::{CallerId, RequestBudget, RequestTrace, StreamedServiceBody};

use crate::config::RouteLimitsConfig;
use crate::http_semantics::client::ClientInfo;
use crate::limits::load_shedder::InFlightGuard;
use crate::limits::rate_limits::ConcurrencyPermit;
use crate::telemetry::Telemetry;
use crate::telemetry::metrics::RouteMetrics;
use crate::telemetry::phase::{PhaseRecorder, RequestPhase};
use crate::telemetry::request_record::{CLIENT_CLOSED_REQUEST, RequestEnd, RequestRecord};
use crate::telemetry::trace::{self, StartedTrace};

pub(crate) use logged_body::LoggedBody;
pub(crate) use metered_body::BodyFault;
use metered_body::{ByteMeter, MeteredBody};

/// The context of a request: the results of its phases, and the facts that telemetry records at its end.
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
    /// The error that the response reports.
    problem: Option<LoggedProblem>,
    bytes_sent: u64,
    request_end: RequestEnd,
    phases: PhaseRecorder,
}

impl RequestContext {
    /// Begins a request. The context is boxed, since it is moved with the response from layer to layer.
    pub(crate) fn begin<B>(
        telemetry: &Arc<Telemetry>,
        request: &Request<B>,
        client: ClientInfo,
    ) -> Box<Self> {
        let begun = trace::start_trace(telemetry.tracer.as_ref(), request.headers(), client.is_trusted);
        Box::new(Self {
            telemetry: Arc::clone(telemetry),
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
            problem: None,
            bytes_sent: 0,
            request_end: RequestEnd::Unfinished,
            phases: PhaseRecorder::default(),
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

    /// Notes that a phase begins. In debug builds, checks that phases begin in order.
    pub(crate) fn enter(&self, phase: RequestPhase) {
        self.phases.enter(phase);
    }

    /// The fault in the part of the body that was read, if any.
    pub(crate) fn body_fault(&self) -> Option<BodyFault> {
        self.meter.as_ref()?.fault()
    }

    /// Records the start of the response, and the error that it reports, if any. The context moves into the
    /// body of the response.
    pub(crate) fn begin_response(
        mut self: Box<Self>,
        response: Response<StreamedServiceBody>,
        problem: Option<LoggedProblem>,
    ) -> Response<LoggedBody> {
        self.meter.iter().for_each(|meter| meter.note_response_started());
        self.answered_at = self.started_trace.trace.is_recorded().then(Instant::now);
        let (head, body) = response.into_parts();
        self.status = head.status;
        self.problem = problem;
        Response::from_parts(head, LoggedBody { body, context: self })
    }

    /// Releases the concurrency limits once the response is complete: a client that reads it slowly doesn't
    /// block others.
    fn release_limits(&mut self) {
        (self.in_flight_guard, self.concurrency_permit) = (None, None);
    }
}

/// Records the request, whether or not it was answered.
impl Drop for RequestContext {
    fn drop(&mut self) {
        let budget = self.budget.as_ref();
        self.telemetry.record_request(RequestRecord {
            method: &self.method,
            path: self.uri.path(),
            version: self.version,
            client: self.client.address.ip(),
            caller: &self.caller,
            started_at: (self.started_at, self.start_time),
            response_started_at: self.answered_at,
            duration: self.started_at.elapsed(),
            route: self.route.as_deref(),
            service: self.service.as_ref(),
            trace: &self.started_trace,
            status: self.status,
            problem: self.problem.as_ref(),
            end: self.request_end,
            bytes_received: self.meter.as_ref().map_or(0, |meter| meter.bytes_received()),
            bytes_sent: self.bytes_sent,
            upstream_calls: budget.map(|budget| budget.take_call_records()).unwrap_or_default(),
            calls_started_at: budget.map_or(self.started_at, |budget| budget.started),
            report: budget.and_then(|budget| budget.take_report()),
            phases: self.phases.sequence(),
        });
    }
}
