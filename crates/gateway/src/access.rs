//! The last phase of a request: one JSON line in the access log, and a word to whoever watches.
//!
//! An [`Entry`] travels with the request and ends as part of the answer's body, [`Logged`]: the line is
//! written when the last byte is gone or the client is, so that it tells what really left. Writing
//! never blocks a request: `writer.rs` says how.

mod clock;
mod writer;

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use http::{HeaderName, Method, Request, Response, StatusCode, Uri, Version};
use http_body::{Body as _, Frame, SizeHint};
use http_body_util::BodyExt;
use services::call::Outcome;
use services::headers::settle_trailers;
use services::http1::Wrong;
use services::{Body, Budget, Caller, Made, Report, Told, Trace};

use crate::client::Client;
use crate::config::LimitsConfig;
use crate::metrics::{self, Metrics, RouteMetrics};
use crate::respond::Spoken;
use crate::rights::Held;
use crate::server::Stall;
use crate::shed::Taken;
use crate::trace::{self, Begun, Finished, Tracer};

pub(crate) use writer::Log;

/// A request that was answered, for whoever watches: `orfa dev`.
#[derive(Clone, Debug)]
pub struct Seen {
    /// The method.
    pub method: Method,
    /// The path, without its query.
    pub path: String,
    /// The status of the answer.
    pub status: StatusCode,
    /// The problem's code, where the answer is one.
    pub code: Option<&'static str>,
    /// From the request's head to the last byte of the answer.
    pub took: Duration,
    /// The upstream calls of the gateway itself: those of a proxied request.
    pub made: Vec<Made>,
    /// What a handler says that it did: the upstream calls and CPU time of a program.
    pub report: Option<Report>,
}

/// What is called for each request that was answered.
pub(crate) type Watch = Arc<dyn Fn(Seen) + Send + Sync>;

/// Who is told of requests.
#[derive(Clone, Default)]
pub(crate) struct Audience {
    pub(crate) log: Option<Arc<Log>>,
    pub(crate) watch: Option<Watch>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) tracer: Option<Arc<Tracer>>,
}

impl Audience {
    /// The gateway ends: sends and writes what is left.
    pub(crate) async fn finish(&self) {
        if let Some(tracer) = &self.tracer {
            tracer.finish().await;
        }
        self.log.iter().for_each(|log| log.finish());
    }
}

/// What is known of a request so far.
pub(crate) struct Entry {
    audience: Arc<Audience>,
    pub(crate) began: Instant,
    pub(crate) at: SystemTime,
    pub(crate) client: Client,
    method: Method,
    uri: Uri,
    /// `None` where no body comes.
    meter: Option<Arc<Meter>>,
    route: Option<Arc<RouteMetrics>>,
    pub(crate) caller: Caller,
    /// The service that the request is for, where filters may ask others too.
    pub(crate) service: Option<Arc<str>>,
    /// Its places in what is counted at once, given back when it is over.
    pub(crate) taken: Option<Taken>,
    pub(crate) held: Option<Held>,
    pub(crate) budget: Option<Arc<Budget>>,
    version: Version,
    begun: Begun,
    status: StatusCode,
    /// When the answer began, where spans are recorded.
    answered_at: Option<Instant>,
    spoken: Option<Spoken>,
    report: Option<Report>,
    made: Vec<Made>,
    sent: u64,
    ended: Ended,
}

/// Counts what comes in.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    received: AtomicU64,
    fault: OnceLock<BodyFault>,
    answered: AtomicBool,
}

/// Why a request's body did not come to its end: the client's fault, whatever a handler makes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyFault {
    TooSlow,
    TooLarge,
    /// Where it ends is not known.
    Malformed(Wrong),
    /// The connection or the stream ended before.
    BrokenOff,
}

/// A request's body, counted and bounded.
struct Metered {
    body: Body,
    meter: Arc<Meter>,
    client: Client,
    limit: u64,
    /// Bytes a second.
    rate: u64,
    stall: Stall,
    /// The operator's own field for the client's address, which no trailer may be.
    address_field: Option<HeaderName>,
}

/// An answer's body, counted; logs when it ends.
pub(crate) struct Logged {
    body: Body,
    entry: Box<Entry>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Ended {
    NotYet,
    Well,
    Broken,
}

/// How long a request's body may stand still: longer than a phone's line does between two cells.
const BODY_STALL: Duration = Duration::from_secs(30);

/// What stands in the log where a client was gone before its answer began.
const CLIENT_GONE: u16 = 499;

#[derive(Debug, thiserror::Error)]
#[error("the body came too slowly")]
struct TooSlow;

#[derive(Debug, thiserror::Error)]
#[error("the body is larger than {0} bytes")]
struct TooLarge(u64);

impl Entry {
    /// A request begins. It is boxed, since it is handed on with the answer from layer to layer.
    pub(crate) fn begin<B>(audience: &Arc<Audience>, request: &Request<B>, client: Client) -> Box<Self> {
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
            caller: Caller::Anonymous,
            service: None,
            taken: None,
            held: None,
            budget: None,
            version: request.version(),
            begun,
            status: StatusCode::from_u16(CLIENT_GONE).unwrap_or_default(),
            answered_at: None,
            spoken: None,
            report: None,
            made: Vec::new(),
            sent: 0,
            ended: Ended::NotYet,
        })
    }

    /// The request's body, from here on counted, and bounded by these.
    pub(crate) fn metered(
        &mut self,
        body: Body,
        limits: &LimitsConfig,
        address_field: Option<&HeaderName>,
    ) -> Body {
        if body.is_end_stream() {
            return body;
        }
        Metered {
            body,
            meter: Arc::clone(self.meter.get_or_insert_default()),
            client: self.client.clone(),
            limit: limits.body.0,
            rate: limits.body_rate.0,
            stall: Stall::default(),
            address_field: address_field.cloned(),
        }
        .boxed_unsync()
    }

    /// The request is one for this route.
    pub(crate) fn enter(&mut self, route: &Arc<RouteMetrics>) {
        route.begin();
        self.route = Some(Arc::clone(route));
    }

    /// The trace that the request belongs to.
    pub(crate) fn trace(&self) -> &Trace {
        &self.begun.trace
    }

    /// How long ago the request began.
    pub(crate) fn age(&self) -> Duration {
        self.began.elapsed()
    }

    /// Bytes of the body that have come.
    fn received(&self) -> u64 {
        self.meter.as_ref().map_or(0, |meter| meter.received.load(Relaxed))
    }

    /// What was wrong with the body, as far as it was read.
    pub(crate) fn body_fault(&self) -> Option<BodyFault> {
        self.meter.as_ref()?.fault.get().copied()
    }

    /// The answer begins; the entry goes with its body.
    pub(crate) fn end(mut self: Box<Self>, response: Response<Body>) -> Response<Logged> {
        self.meter.iter().for_each(|meter| meter.answered.store(true, Relaxed));
        self.answered_at = self.begun.trace.is_recorded().then(Instant::now);
        let (mut head, body) = response.into_parts();
        self.status = head.status;
        let told = head.extensions.remove::<Told>().map(|Told(code)| Spoken { code, request_id: None });
        self.spoken = head.extensions.remove::<Spoken>().or(told);
        Response::from_parts(head, Logged { body, entry: self })
    }

    /// The answer is made to its end: whoever takes it slowly keeps nobody else from being answered.
    fn finish_work(&mut self) {
        (self.taken, self.held) = (None, None);
    }

    fn seen(&mut self, took: Duration) -> Seen {
        Seen {
            method: self.method.clone(),
            path: self.uri.path().to_owned(),
            status: self.status,
            code: self.spoken.as_ref().map(|spoken| spoken.code),
            took,
            made: std::mem::take(&mut self.made),
            report: self.report.take(),
        }
    }

    /// The status, where there was an answer.
    fn answered(&self) -> Option<StatusCode> {
        Some(self.status).filter(|status| status.as_u16() != CLIENT_GONE)
    }

    /// Gives a recorded request's spans away.
    fn record(&self, took: Duration) {
        let (Some(tracer), Some(context)) = (&self.audience.tracer, self.begun.trace.context()) else {
            return;
        };
        if !self.begun.trace.is_recorded() {
            return;
        }
        let since = self.budget.as_ref().map_or(self.began, |budget| budget.started);
        let report = self.report.as_ref().and_then(|report| Some((&*report.made, report.since?)));
        tracer.take(&Finished {
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
            route: self.route.as_ref().map(|route| (&*route.path, route.way)),
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
        route.end(&metrics::Ended {
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
        if let Some(Spoken { code, request_id }) = &self.spoken {
            text(line, "code", code);
            request_id.iter().for_each(|id| text(line, "request_id", id));
        }
        match self.ended {
            Ended::Well => {}
            Ended::NotYet => text(line, "ended", "early"),
            Ended::Broken => text(line, "ended", "broken"),
        }
        self.route.iter().for_each(|route| text(line, "route", &route.path));
        self.caller.name().iter().for_each(|name| text(line, "caller", name));
        if let Some(context) = self.begun.trace.context() {
            text(line, "trace_id", &format!("{:032x}", context.trace_id));
        }
        let mut made = self.made.iter();
        let is_wanted = |made: &&Made| self.service.as_ref().is_none_or(|service| made.service == *service);
        if let Some(made) = made.find(is_wanted) {
            text(line, "service", &made.service);
            if let Outcome::Status(status) = made.outcome {
                number(line, "upstream_status", status.into());
            }
            made.span.1.iter().for_each(|end| millis(line, "upstream_ms", end.saturating_sub(made.span.0)));
        }
        number(line, "in", self.received());
        number(line, "out", self.sent);
        millis(line, "ms", took);
        self.report.iter().for_each(|report| millis(line, "cpu_ms", report.cpu));
        let calls = self.made.len() + self.report.as_ref().map_or(0, |report| report.made.len());
        number(line, "calls", calls as u64);
        line.extend_from_slice(b"}\n");
    }
}

/// Whatever becomes of a request, answered or not, it ends here.
impl Drop for Entry {
    fn drop(&mut self) {
        let took = self.began.elapsed();
        if let Some(budget) = &self.budget {
            (self.made, self.report) = (budget.take_made(), budget.take_report());
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

impl http_body::Body for Metered {
    type Data = Bytes;
    type Error = services::body::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context).map_err(|error| {
            self.meter.note(BodyFault::of(&*error));
            error
        })?;
        if polled.is_pending() && self.is_stuck(context) {
            return Poll::Ready(Some(Err(TooSlow.into())));
        }
        let Some(mut frame) = ready!(polled) else { return Poll::Ready(None) };
        if let Some(trailers) = frame.trailers_mut() {
            settle_trailers(trailers, self.address_field.as_ref());
        }
        self.stall.end();
        let length = frame.data_ref().map_or(0, |data| data.len() as u64);
        let received = self.meter.received.fetch_add(length, Relaxed) + length;
        if received > self.limit {
            self.meter.note(BodyFault::TooLarge);
            return Poll::Ready(Some(Err(TooLarge(self.limit).into())));
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
            Some(wrong @ (Wrong::Chunk | Wrong::Trailers)) => Self::Malformed(*wrong),
            Some(Wrong::Short) | None => Self::BrokenOff,
        }
    }
}

impl Meter {
    /// The first fault is the reason for those that follow.
    fn note(&self, fault: BodyFault) {
        let _ = self.fault.set(fault);
    }
}

impl Metered {
    /// Whether the client keeps everybody waiting. Once its answer has begun, it may take its time: then the
    /// two sides talk to each other.
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

impl Drop for Metered {
    fn drop(&mut self) {
        if !self.body.is_end_stream() {
            self.client.note_unread();
        }
    }
}

impl http_body::Body for Logged {
    type Data = Bytes;
    type Error = services::body::Error;

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
            Some(Err(_)) => self.entry.ended = Ended::Broken,
            None => self.entry.ended = Ended::Well,
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

impl Drop for Logged {
    fn drop(&mut self) {
        // Nobody asks further once as many bytes are there as were announced, or none are to be sent.
        let is_all = self.body.is_end_stream() || self.body.size_hint().exact() == Some(0);
        let is_empty = matches!(
            self.entry.status,
            StatusCode::NO_CONTENT | StatusCode::RESET_CONTENT | StatusCode::NOT_MODIFIED
        );
        let bodiless = self.entry.method == Method::HEAD || is_empty;
        if self.entry.ended == Ended::NotYet && (is_all || bodiless) {
            self.entry.ended = Ended::Well;
        }
    }
}
