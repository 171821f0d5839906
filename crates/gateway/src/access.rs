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
    pub took: Duration,
    /// The upstream calls of the gateway itself, which are those of a proxied request.
    pub made: Vec<UpstreamCallRecord>,
    /// The handler's report: the upstream calls and CPU time of a program.
    pub report: Option<RequestReport>,
}

/// A callback for each completed request.
pub(crate) type RequestObserver = Arc<dyn Fn(CompletedRequest) + Send + Sync>;

/// The telemetry sinks: access log, observer, metrics and traces.
#[derive(Clone, Default)]
pub(crate) struct Telemetry {
    pub(crate) log: Option<Arc<LogWriter>>,
    pub(crate) watch: Option<RequestObserver>,
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
    audience: Arc<Telemetry>,
    pub(crate) began: Instant,
    pub(crate) at: SystemTime,
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
    pub(crate) taken: Option<InFlightGuard>,
    pub(crate) held: Option<ConcurrencyPermit>,
    pub(crate) budget: Option<Arc<RequestBudget>>,
    version: Version,
    begun: StartedTrace,
    status: StatusCode,
    /// The start of the response, if spans are recorded.
    answered_at: Option<Instant>,
    spoken: Option<LoggedProblem>,
    report: Option<RequestReport>,
    made: Vec<UpstreamCallRecord>,
    sent: u64,
    ended: RequestEnd,
}

/// A counter of received bytes.
#[derive(Debug, Default)]
pub(crate) struct ByteMeter {
    received: AtomicU64,
    fault: OnceLock<BodyFault>,
    answered: AtomicBool,
    /// The permit for the bytes that the route holds; not set for a short body.
    held: OnceLock<Option<BodyPermit>>,
}

/// The reason why a request's body is incomplete. The client is at fault, whatever the handler makes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyFault {
    TooSlow,
    TooLarge,
    /// The gateway holds too many bytes of request bodies already.
    NoRoom,
    /// The body's end can't be determined.
    Malformed(FramingError),
    /// The connection or the stream ended early.
    BrokenOff,
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
    yields: bool,
}

/// A response body that counts its bytes, and logs the request when it is dropped.
pub(crate) struct LoggedBody {
    body: StreamedServiceBody,
    entry: Box<RequestContext>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum RequestEnd {
    NotYet,
    Well,
    Broken,
}

/// The longest pause within a request's body: longer than a phone's handover between two cells.
const BODY_STALL: Duration = Duration::from_secs(30);

/// The length up to which a body is not counted among the bytes that are held, and the unit in which longer
/// ones are.
const HELD_UNIT: u64 = 16 << 10;

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
        let begun = trace::begin(audience.tracer.as_ref(), request.headers(), client.is_trusted);
        Box::new(Self {
            audience: Arc::clone(audience),
            began: Instant::now(),
            at: SystemTime::now(),
            client,
            method: request.method().clone(),
            uri: request.uri().clone(),
            meter: None,
            route: None,
            caller: CallerId::Anonymous,
            service: None,
            taken: None,
            held: None,
            budget: None,
            version: request.version(),
            begun,
            status: StatusCode::from_u16(CLIENT_CLOSED_REQUEST).unwrap_or_default(),
            answered_at: None,
            spoken: None,
            report: None,
            made: Vec::new(),
            sent: 0,
            ended: RequestEnd::NotYet,
        })
    }

    /// Returns the request's body, counted and bounded by `limits`. At most `held_limit` bytes of it are held
    /// before the response begins.
    pub(crate) fn metered(
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
            yields: false,
        }
        .boxed_unsync()
    }

    /// Assigns the request to a route.
    pub(crate) fn enter(&mut self, route: &Arc<RouteMetrics>) {
        route.begin();
        self.route = Some(Arc::clone(route));
    }

    /// The trace that the request belongs to.
    pub(crate) fn trace(&self) -> &RequestTrace {
        &self.begun.trace
    }

    /// The time since the request began.
    pub(crate) fn age(&self) -> Duration {
        self.began.elapsed()
    }

    /// The number of body bytes received.
    fn received(&self) -> u64 {
        self.meter.as_ref().map_or(0, |meter| meter.received.load(Relaxed))
    }

    /// The fault in the part of the body that was read, if any.
    pub(crate) fn body_fault(&self) -> Option<BodyFault> {
        self.meter.as_ref()?.fault.get().copied()
    }

    /// Records the start of the response. The entry moves into its body.
    pub(crate) fn end(mut self: Box<Self>, response: Response<StreamedServiceBody>) -> Response<LoggedBody> {
        self.meter.iter().for_each(|meter| meter.note_answered());
        self.answered_at = self.begun.trace.is_recorded().then(Instant::now);
        let (mut head, body) = response.into_parts();
        self.status = head.status;
        let told = head
            .extensions
            .remove::<LoggedErrorCode>()
            .map(|LoggedErrorCode(code)| LoggedProblem { code, request_id: None });
        self.spoken = head.extensions.remove::<LoggedProblem>().or(told);
        Response::from_parts(head, LoggedBody { body, entry: self })
    }

    /// Releases the concurrency limits once the response is complete: a client that reads it slowly doesn't
    /// block others.
    fn finish_work(&mut self) {
        (self.taken, self.held) = (None, None);
    }

    fn seen(&mut self, took: Duration) -> CompletedRequest {
        CompletedRequest {
            method: self.method.clone(),
            path: self.uri.path().to_owned(),
            status: self.status,
            code: self.spoken.as_ref().map(|spoken| spoken.code),
            took,
            made: std::mem::take(&mut self.made),
            report: self.report.take(),
        }
    }

    /// The status, if a response began.
    fn answered(&self) -> Option<StatusCode> {
        Some(self.status).filter(|status| status.as_u16() != CLIENT_CLOSED_REQUEST)
    }

    /// Exports the spans of a recorded request.
    fn record(&self, took: Duration) {
        let (Some(tracer), Some(context)) = (&self.audience.tracer, self.begun.trace.context()) else {
            return;
        };
        if !self.begun.trace.is_recorded() {
            return;
        }
        let since = self.budget.as_ref().map_or(self.began, |budget| budget.started);
        let report = self.report.as_ref().and_then(|report| Some((&*report.call_records, report.started?)));
        tracer.take(&FinishedRequest {
            trace: &self.begun.trace,
            context: *context,
            parent: self.begun.parent,
            began: (self.began, self.at),
            answered: self.answered_at,
            took,
            method: &self.method,
            path: self.uri.path(),
            version: self.version,
            client: self.client.address.ip().to_string(),
            route: self.route.as_ref().map(|route| (&*route.path, route.handler)),
            status: self.answered(),
            code: self.spoken.as_ref().map(|spoken| spoken.code),
            made: report.unwrap_or((&self.made, since)),
        });
    }

    fn count(&self, took: Duration) {
        let metrics = &self.audience.metrics;
        let route = self.route.as_ref().unwrap_or_else(|| {
            metrics.nowhere.begin();
            &metrics.nowhere
        });
        self.spoken.iter().for_each(|spoken| metrics.problem(spoken.code));
        route.end(&metrics::CountedRequest {
            method: &self.method,
            status: self.answered(),
            took,
            received: self.received(),
            sent: self.sent,
            cpu: self.report.as_ref().map(|report| report.cpu),
        });
    }

    fn line(&self, line: &mut Vec<u8>, took: Duration) {
        use writer::{address, millis, number, text};
        line.extend_from_slice(b"{\"time\":\"");
        clock::write(line, self.at);
        line.extend_from_slice(b"\",\"level\":\"INFO\",\"message\":\"request\"");
        address(line, "client", self.client.address.ip());
        text(line, "method", self.method.as_str());
        text(line, "path", self.uri.path());
        number(line, "status", self.status.as_u16().into());
        if let Some(LoggedProblem { code, request_id }) = &self.spoken {
            text(line, "code", code);
            request_id.iter().for_each(|id| text(line, "request_id", id));
        }
        match self.ended {
            RequestEnd::Well => {}
            RequestEnd::NotYet => text(line, "ended", "early"),
            RequestEnd::Broken => text(line, "ended", "broken"),
        }
        self.route.iter().for_each(|route| text(line, "route", &route.path));
        self.caller.name().iter().for_each(|name| text(line, "caller", name));
        if let Some(context) = self.begun.trace.context() {
            text(line, "trace_id", &format!("{:032x}", context.trace_id));
        }
        let mut made = self.made.iter();
        let is_wanted =
            |made: &&UpstreamCallRecord| self.service.as_ref().is_none_or(|service| made.service == *service);
        if let Some(made) = made.find(is_wanted) {
            text(line, "service", &made.service);
            if let UpstreamCallOutcome::Status(status) = made.outcome {
                number(line, "upstream_status", status.into());
            }
            made.span.1.iter().for_each(|end| millis(line, "upstream_ms", end.saturating_sub(made.span.0)));
        }
        number(line, "bytes_received", self.received());
        number(line, "bytes_sent", self.sent);
        millis(line, "duration_ms", took);
        self.report.iter().for_each(|report| millis(line, "cpu_ms", report.cpu));
        let calls = self.made.len() + self.report.as_ref().map_or(0, |report| report.call_records.len());
        number(line, "calls", calls as u64);
        line.extend_from_slice(b"}\n");
    }
}

/// Records, counts and logs the request, whether or not it was answered.
impl Drop for RequestContext {
    fn drop(&mut self) {
        let took = self.began.elapsed();
        if let Some(budget) = &self.budget {
            (self.made, self.report) = (budget.take_call_records(), budget.take_report());
        }
        self.record(took);
        self.count(took);
        if let Some(log) = &self.audience.log {
            log.write(|line| self.line(line, took));
        }
        if let Some(watch) = self.audience.watch.clone() {
            watch(self.seen(took));
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
        if mem::take(&mut self.yields) {
            end_poll(context);
            return Poll::Pending;
        }
        let polled = Pin::new(&mut self.body).poll_frame(context).map_err(|error| {
            self.meter.note(BodyFault::of(&*error));
            error
        })?;
        if polled.is_pending() && self.is_stuck(context) {
            return Poll::Ready(Some(Err(TooSlow.into())));
        }
        let Some(mut frame) = ready!(polled) else { return Poll::Ready(None) };
        if let Some(trailers) = frame.trailers_mut() {
            sanitize_trailers(trailers, self.address_field.as_ref());
        }
        self.stall.end();
        let length = frame.data_ref().map_or(0, |data| data.len() as u64);
        let received = self.meter.received.fetch_add(length, Relaxed) + length;
        if received > self.limit {
            self.meter.note(BodyFault::TooLarge);
            return Poll::Ready(Some(Err(TooLarge(self.limit).into())));
        }
        if received > HELD_UNIT {
            self.hold(received)?;
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
    fn of(error: &(dyn std::error::Error + Send + Sync + 'static)) -> Self {
        match error.downcast_ref() {
            Some(wrong @ (FramingError::Chunk | FramingError::Trailers)) => Self::Malformed(*wrong),
            Some(FramingError::Incomplete) | None => Self::BrokenOff,
        }
    }
}

impl ByteMeter {
    /// Notes a fault. Only the first is stored, since it causes those that follow.
    fn note(&self, fault: BodyFault) {
        let _ = self.fault.set(fault);
    }

    /// Notes that the response has begun. The body is no longer held for it.
    fn note_answered(&self) {
        self.answered.store(true, Relaxed);
        if let Some(Some(permit)) = self.held.get() {
            permit.release();
        }
    }
}

impl MeteredBody {
    /// Counts the bytes that the route holds, of those that it has received.
    fn hold(&mut self, received: u64) -> Result<(), LimitReached> {
        let bytes = received.min(self.held_limit).next_multiple_of(HELD_UNIT);
        if bytes == 0 || self.meter.answered.load(Relaxed) {
            return Ok(());
        }
        let permit = self.meter.held.get_or_init(|| self.client.body_permit());
        let held = permit.as_ref().map_or(Ok(()), |permit| permit.hold(bytes));
        self.yields = permit.as_ref().is_some_and(BodyPermit::is_among_many);
        held.inspect_err(|_| self.meter.note(BodyFault::NoRoom))
    }

    /// Whether the body arrives too slowly. Once the response has begun, the client may take its time: the
    /// two sides may then exchange messages.
    fn is_stuck(&mut self, context: &mut Context<'_>) -> bool {
        let received = self.meter.received.load(Relaxed);
        let is_stuck = !self.meter.answered.load(Relaxed)
            && self.stall.is_over_for(received, self.rate, BODY_STALL, context);
        if is_stuck {
            self.meter.note(BodyFault::TooSlow);
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
                self.entry.sent += frame.data_ref().map_or(0, |data| data.len() as u64);
                if self.body.is_end_stream() {
                    self.entry.finish_work();
                }
            }
            Some(Err(_)) => self.entry.ended = RequestEnd::Broken,
            None => self.entry.ended = RequestEnd::Well,
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
        if self.entry.ended == RequestEnd::NotYet && (is_all || bodiless) {
            self.entry.ended = RequestEnd::Well;
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
            yields: false,
        };
        let others = client.body_permit().unwrap();
        let mut has_read = || body.frame().now_or_never().is_some();
        assert!(has_read() && has_read(), "a single long body is read without pauses");
        others.hold(5 << 20).unwrap();
        assert!(has_read() && has_budget_remaining());
        assert!(!has_read());
        assert!(!has_budget_remaining(), "nothing else is read in this poll");
        assert!(has_read());
    }
}
