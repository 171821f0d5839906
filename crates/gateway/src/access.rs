//! The access log: one JSON line per request, written in the last phase, and the other observers of requests.
//!
//! A [`RequestContext`] travels with the request and ends as part of the response body, [`LoggedBody`]. The
//! line is written when the last byte has been sent or the client has disconnected, so it reports the bytes
//! that actually left. Writing never blocks a request; see `writer.rs`.

mod clock;
mod writer;

use std::mem;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use http::{HeaderName, Method, Request, Response, StatusCode, Uri, Version};
use http_body::{Body as _, Frame, SizeHint};
use http_body_util::BodyExt;
use services::call::UpstreamCallOutcome;
use services::coop::end_poll;
use services::headers::sanitize_trailers;
use services::http1::FramingError;
use services::{
    CallerId, LoggedErrorCode, RequestBudget, RequestReport, RequestTrace, StreamedServiceBody,
    UpstreamCallRecord,
};

use crate::client::ClientInfo;
use crate::config::RouteLimitsConfig;
use crate::metrics::{self, GatewayMetrics, RouteMetrics};
use crate::respond::LoggedProblem;
use crate::rights::ConcurrencyPermit;
use crate::server::StallTimer;
use crate::server::limiter::{BodyPermit, LimitReached};
use crate::shed::InFlightGuard;
use crate::trace::{self, FinishedRequest, RequestTracer, StartedTrace};

pub(crate) use writer::LogWriter;

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

/// A callback for each completed request.
pub(crate) type RequestObserver = Arc<dyn Fn(CompletedRequest) + Send + Sync>;

/// The telemetry sinks: access log, observer, metrics and traces.
#[derive(Clone, Default)]
pub(crate) struct Telemetry {
    pub(crate) log: Option<Arc<LogWriter>>,
    pub(crate) observer: Option<RequestObserver>,
    pub(crate) metrics: Arc<GatewayMetrics>,
    pub(crate) tracer: Option<Arc<RequestTracer>>,
}

impl Telemetry {
    /// Flushes the traces and the access log when the gateway stops.
    pub(crate) async fn finish(&self) {
        if let Some(tracer) = &self.tracer {
            tracer.finish().await;
        }
        self.log.iter().for_each(|log| log.finish());
    }
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

/// A counter of received bytes.
#[derive(Debug, Default)]
pub(crate) struct ByteMeter {
    bytes_received: AtomicU64,
    fault: OnceLock<BodyFault>,
    response_started: AtomicBool,
    /// The permit for the bytes that the route holds; not set for a short body.
    body_permit: OnceLock<Option<BodyPermit>>,
}

/// The reason why a request's body is incomplete. The client is at fault, whatever the handler makes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyFault {
    TooSlow,
    TooLarge,
    /// The gateway holds too many bytes of request bodies already.
    MemoryLimit,
    /// The body's end can't be determined.
    Malformed(FramingError),
    /// The connection or the stream ended early.
    Incomplete,
}

/// A request body that is counted and bounded.
struct MeteredBody {
    body: StreamedServiceBody,
    meter: Arc<ByteMeter>,
    client: ClientInfo,
    limit: u64,
    /// The number of bytes that the route holds at most before the response begins.
    held_limit: u64,
    /// The minimum rate in bytes a second.
    rate: u64,
    stall: StallTimer,
    /// The operator's own header field for the client's address. A trailer must not have this name.
    address_field: Option<HeaderName>,
    /// Whether other tasks run before more of the body is read.
    must_yield: bool,
}

/// A response body that counts its bytes, and logs the request when it is dropped.
pub(crate) struct LoggedBody {
    body: StreamedServiceBody,
    entry: Box<RequestContext>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum RequestEnd {
    Unfinished,
    Completed,
    Failed,
}

/// The longest pause within a request's body: longer than a phone's handover between two cells.
const BODY_STALL: Duration = Duration::from_secs(30);

/// The length up to which a body is not counted among the bytes that are held, and the unit in which longer
/// ones are.
const BODY_PERMIT_UNIT: u64 = 16 << 10;

/// The status in the log if the client disconnected before the response began.
const CLIENT_CLOSED_REQUEST: u16 = 499;

#[derive(Debug, thiserror::Error)]
#[error("the body came too slowly")]
struct TooSlow;

#[derive(Debug, thiserror::Error)]
#[error("the body is larger than {0} bytes")]
struct TooLarge(u64);

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

    /// Returns the request's body, counted and bounded by `limits`. At most `held_limit` bytes of it are held
    /// before the response begins.
    pub(crate) fn meter_body(
        &mut self,
        body: StreamedServiceBody,
        (limits, held_limit): (&RouteLimitsConfig, u64),
        address_field: Option<&HeaderName>,
    ) -> StreamedServiceBody {
        if body.is_end_stream() {
            return body;
        }
        MeteredBody {
            body,
            meter: Arc::clone(self.meter.get_or_insert_default()),
            client: self.client.clone(),
            limit: limits.request_body.0,
            held_limit,
            rate: limits.min_request_body_rate.0,
            stall: StallTimer::default(),
            address_field: address_field.cloned(),
            must_yield: false,
        }
        .boxed_unsync()
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
        self.meter.as_ref().map_or(0, |meter| meter.bytes_received.load(Relaxed))
    }

    /// The fault in the part of the body that was read, if any.
    pub(crate) fn body_fault(&self) -> Option<BodyFault> {
        self.meter.as_ref()?.fault.get().copied()
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

    fn write_log_line(&self, line: &mut Vec<u8>, took: Duration) {
        use writer::{write_address_field, write_millis_field, write_number_field, write_text_field};
        line.extend_from_slice(b"{\"time\":\"");
        clock::write_timestamp(line, self.start_time);
        line.extend_from_slice(b"\",\"level\":\"INFO\",\"message\":\"request\"");
        write_address_field(line, "client", self.client.address.ip());
        write_text_field(line, "method", self.method.as_str());
        write_text_field(line, "path", self.uri.path());
        write_number_field(line, "status", self.status.as_u16().into());
        if let Some(LoggedProblem { code, request_id }) = &self.logged_problem {
            write_text_field(line, "code", code);
            request_id.iter().for_each(|id| write_text_field(line, "request_id", id));
        }
        match self.request_end {
            RequestEnd::Completed => {}
            RequestEnd::Unfinished => write_text_field(line, "ended", "early"),
            RequestEnd::Failed => write_text_field(line, "ended", "broken"),
        }
        self.route.iter().for_each(|route| write_text_field(line, "route", &route.path));
        self.caller.name().iter().for_each(|name| write_text_field(line, "caller", name));
        if let Some(context) = self.started_trace.trace.context() {
            write_text_field(line, "trace_id", &format!("{:032x}", context.trace_id));
        }
        let mut made = self.upstream_calls.iter();
        let is_wanted =
            |made: &&UpstreamCallRecord| self.service.as_ref().is_none_or(|service| made.service == *service);
        if let Some(made) = made.find(is_wanted) {
            write_text_field(line, "service", &made.service);
            if let UpstreamCallOutcome::Status(status) = made.outcome {
                write_number_field(line, "upstream_status", status.into());
            }
            made.span
                .1
                .iter()
                .for_each(|end| write_millis_field(line, "upstream_ms", end.saturating_sub(made.span.0)));
        }
        write_number_field(line, "bytes_received", self.bytes_received());
        write_number_field(line, "bytes_sent", self.bytes_sent);
        write_millis_field(line, "duration_ms", took);
        self.report.iter().for_each(|report| write_millis_field(line, "cpu_ms", report.cpu));
        let calls =
            self.upstream_calls.len() + self.report.as_ref().map_or(0, |report| report.call_records.len());
        write_number_field(line, "calls", calls as u64);
        line.extend_from_slice(b"}\n");
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
            log.write(|line| self.write_log_line(line, took));
        }
        if let Some(watch) = self.telemetry.observer.clone() {
            watch(self.completed_request(took));
        }
    }
}

impl http_body::Body for MeteredBody {
    type Data = Bytes;
    type Error = services::body::BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if mem::take(&mut self.must_yield) {
            end_poll(context);
            return Poll::Pending;
        }
        let polled = Pin::new(&mut self.body).poll_frame(context).map_err(|error| {
            self.meter.set_fault(BodyFault::from_error(&*error));
            error
        })?;
        if polled.is_pending() && self.is_stalled(context) {
            return Poll::Ready(Some(Err(TooSlow.into())));
        }
        let Some(mut frame) = ready!(polled) else { return Poll::Ready(None) };
        if let Some(trailers) = frame.trailers_mut() {
            sanitize_trailers(trailers, self.address_field.as_ref());
        }
        self.stall.end_stall();
        let length = frame.data_ref().map_or(0, |data| data.len() as u64);
        let received = self.meter.bytes_received.fetch_add(length, Relaxed) + length;
        if received > self.limit {
            self.meter.set_fault(BodyFault::TooLarge);
            return Poll::Ready(Some(Err(TooLarge(self.limit).into())));
        }
        if received > BODY_PERMIT_UNIT {
            self.hold_bytes(received)?;
        }
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl BodyFault {
    fn from_error(error: &(dyn std::error::Error + Send + Sync + 'static)) -> Self {
        match error.downcast_ref() {
            Some(wrong @ (FramingError::Chunk | FramingError::Trailers)) => Self::Malformed(*wrong),
            Some(FramingError::Incomplete) | None => Self::Incomplete,
        }
    }
}

impl ByteMeter {
    /// Notes a fault. Only the first is stored, since it causes those that follow.
    fn set_fault(&self, fault: BodyFault) {
        let _ = self.fault.set(fault);
    }

    /// Notes that the response has begun. The body is no longer held for it.
    fn note_response_started(&self) {
        self.response_started.store(true, Relaxed);
        if let Some(Some(permit)) = self.body_permit.get() {
            permit.release();
        }
    }
}

impl MeteredBody {
    /// Counts the bytes that the route holds, of those that it has received.
    fn hold_bytes(&mut self, received: u64) -> Result<(), LimitReached> {
        let bytes = received.min(self.held_limit).next_multiple_of(BODY_PERMIT_UNIT);
        if bytes == 0 || self.meter.response_started.load(Relaxed) {
            return Ok(());
        }
        let permit = self.meter.body_permit.get_or_init(|| self.client.body_permit());
        let held = permit.as_ref().map_or(Ok(()), |permit| permit.reserve_total(bytes));
        self.must_yield = permit.as_ref().is_some_and(BodyPermit::is_under_pressure);
        held.inspect_err(|_| self.meter.set_fault(BodyFault::MemoryLimit))
    }

    /// Whether the body arrives too slowly. Once the response has begun, the client may take its time: the
    /// two sides may then exchange messages.
    fn is_stalled(&mut self, context: &mut Context<'_>) -> bool {
        let received = self.meter.bytes_received.load(Relaxed);
        let is_stuck = !self.meter.response_started.load(Relaxed)
            && self.stall.is_over_at_rate(received, self.rate, BODY_STALL, context);
        if is_stuck {
            self.meter.set_fault(BodyFault::TooSlow);
        }
        is_stuck
    }
}

impl Drop for MeteredBody {
    fn drop(&mut self) {
        if !self.body.is_end_stream() {
            self.client.note_unread();
        }
    }
}

impl http_body::Body for LoggedBody {
    type Data = Bytes;
    type Error = services::body::BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        match &frame {
            Some(Ok(frame)) => {
                self.entry.bytes_sent += frame.data_ref().map_or(0, |data| data.len() as u64);
                if self.body.is_end_stream() {
                    self.entry.release_limits();
                }
            }
            Some(Err(_)) => self.entry.request_end = RequestEnd::Failed,
            None => self.entry.request_end = RequestEnd::Completed,
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for LoggedBody {
    fn drop(&mut self) {
        // The body isn't polled again after all announced bytes, or if there are none to send.
        let is_all = self.body.is_end_stream() || self.body.size_hint().exact() == Some(0);
        let is_empty = matches!(
            self.entry.status,
            StatusCode::NO_CONTENT | StatusCode::RESET_CONTENT | StatusCode::NOT_MODIFIED
        );
        let bodiless = self.entry.method == Method::HEAD || is_empty;
        if self.entry.request_end == RequestEnd::Unfinished && (is_all || bodiless) {
            self.entry.request_end = RequestEnd::Completed;
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::{FutureExt, stream};
    use http_body_util::StreamBody;
    use tokio::task::coop::has_budget_remaining;

    use super::*;
    use crate::config::ConnectionsConfig;

    #[tokio::test]
    async fn others_run_after_each_read_from_a_client_that_sends_many_long_bodies() {
        let client = ClientInfo::with_limits(ConnectionsConfig::default());
        let piece = || Ok::<_, services::body::BodyError>(Frame::data(Bytes::from(vec![b'x'; 32 << 10])));
        let mut body = MeteredBody {
            body: StreamBody::new(stream::iter([(); 4].map(|()| piece()))).boxed_unsync(),
            meter: Arc::default(),
            client: client.clone(),
            limit: u64::MAX,
            held_limit: u64::MAX,
            rate: 1,
            stall: StallTimer::default(),
            address_field: None,
            must_yield: false,
        };
        let others = client.body_permit().unwrap();
        let mut has_read = || body.frame().now_or_never().is_some();
        assert!(has_read() && has_read(), "a single long body is read without pauses");
        others.reserve_total(5 << 20).unwrap();
        assert!(has_read() && has_budget_remaining());
        assert!(!has_read());
        assert!(!has_budget_remaining(), "nothing else is read in this poll");
        assert!(has_read());
    }
}
