//! The access log: one JSON line per request, written when its last byte has been sent or its client has
//! disconnected. Writing never blocks a request; see `access_log/writer.rs`.

mod clock;
mod writer;

use handler::LoggedProblem;
use services::UpstreamCallRecord;
use services::call::UpstreamCallOutcome;

use super::request_record::{RequestEnd, RequestRecord};
pub(crate) use writer::LogWriter;
use writer::{write_address_field, write_millis_field, write_number_field, write_text_field};

impl RequestRecord<'_> {
    /// Appends the line to a buffer.
    pub(super) fn write_line(&self, line: &mut Vec<u8>) {
        line.extend_from_slice(b"{\"time\":\"");
        clock::write_timestamp(line, self.started_at.1);
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
        self.route.iter().for_each(|route| write_text_field(line, "route", &route.path));
        self.caller.name().iter().for_each(|name| write_text_field(line, "caller", name));
        if let Some(context) = self.trace.trace.context() {
            write_text_field(line, "trace_id", &format!("{:032x}", context.trace_id));
        }
        let mut made = self.upstream_calls.iter();
        let is_wanted =
            |record: &&UpstreamCallRecord| self.service.is_none_or(|service| record.service == *service);
        if let Some(call_record) = made.find(is_wanted) {
            write_text_field(line, "service", &call_record.service);
            if let UpstreamCallOutcome::Status(status) = call_record.outcome {
                write_number_field(line, "upstream_status", status.into());
            }
            call_record.span.1.iter().for_each(|end| {
                write_millis_field(line, "upstream_ms", end.saturating_sub(call_record.span.0))
            });
        }
        write_number_field(line, "bytes_received", self.bytes_received);
        write_number_field(line, "bytes_sent", self.bytes_sent);
        write_millis_field(line, "duration_ms", self.duration);
        self.report.iter().for_each(|report| write_millis_field(line, "cpu_ms", report.cpu));
        let calls =
            self.upstream_calls.len() + self.report.as_ref().map_or(0, |report| report.call_records.len());
        write_number_field(line, "calls", calls as u64);
        line.extend_from_slice(b"}\n");
    }
}
