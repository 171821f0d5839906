//! The access log: one JSON line per request, written when its last byte has been sent or its client has
//! disconnected. Writing never blocks a request; see `access_log/writer.rs`.

mod clock;
mod writer;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http::{Method, StatusCode};
use services::call::UpstreamCallOutcome;
use services::trace::SpanContext;
use services::{CallerId, RequestReport, UpstreamCallRecord};

use crate::http_semantics::problem_details::LoggedProblem;
pub(crate) use writer::LogWriter;
use writer::{write_address_field, write_millis_field, write_number_field, write_text_field};

/// The data of a completed request that is logged.
pub(super) struct LoggedRequest<'a> {
    pub(super) start_time: SystemTime,
    pub(super) duration: Duration,
    pub(super) client: IpAddr,
    pub(super) method: &'a Method,
    /// The path, without its query.
    pub(super) path: &'a str,
    pub(super) status: StatusCode,
    pub(super) problem: Option<&'a LoggedProblem>,
    pub(super) end: RequestEnd,
    /// The path of the route, if there is a route.
    pub(super) route: Option<&'a str>,
    pub(super) caller: &'a CallerId,
    pub(super) trace: Option<&'a SpanContext>,
    /// The service that a proxied request is for. Filters may call other services too.
    pub(super) service: Option<&'a Arc<str>>,
    pub(super) upstream_calls: &'a [UpstreamCallRecord],
    pub(super) report: Option<&'a RequestReport>,
    pub(super) bytes_received: u64,
    pub(super) bytes_sent: u64,
}

/// The way in which a request ended.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum RequestEnd {
    Unfinished,
    Completed,
    Failed,
}

impl LoggedRequest<'_> {
    /// Appends the line to a buffer.
    pub(super) fn write_line(&self, line: &mut Vec<u8>) {
        line.extend_from_slice(b"{\"time\":\"");
        clock::write_timestamp(line, self.start_time);
        line.extend_from_slice(b"\",\"level\":\"INFO\",\"message\":\"request\"");
        write_address_field(line, "client", self.client);
        write_text_field(line, "method", self.method.as_str());
        write_text_field(line, "path", self.path);
        write_number_field(line, "status", self.status.as_u16().into());
        if let Some(LoggedProblem { code, request_id }) = self.problem {
            write_text_field(line, "code", code);
            request_id.iter().for_each(|id| write_text_field(line, "request_id", id));
        }
        match self.end {
            RequestEnd::Completed => {}
            RequestEnd::Unfinished => write_text_field(line, "ended", "early"),
            RequestEnd::Failed => write_text_field(line, "ended", "broken"),
        }
        self.route.iter().for_each(|route| write_text_field(line, "route", route));
        self.caller.name().iter().for_each(|name| write_text_field(line, "caller", name));
        if let Some(context) = self.trace {
            write_text_field(line, "trace_id", &format!("{:032x}", context.trace_id));
        }
        let mut made = self.upstream_calls.iter();
        let is_wanted =
            |made: &&UpstreamCallRecord| self.service.is_none_or(|service| made.service == *service);
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
        write_number_field(line, "bytes_received", self.bytes_received);
        write_number_field(line, "bytes_sent", self.bytes_sent);
        write_millis_field(line, "duration_ms", self.duration);
        self.report.iter().for_each(|report| write_millis_field(line, "cpu_ms", report.cpu));
        let calls = self.upstream_calls.len() + self.report.map_or(0, |report| report.call_records.len());
        write_number_field(line, "calls", calls as u64);
        line.extend_from_slice(b"}\n");
    }
}
