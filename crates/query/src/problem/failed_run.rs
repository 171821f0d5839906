//! The problem of a failed run: its error, with the run's calls, console output and timing.

use http::header::{HeaderName, HeaderValue};
use http::{HeaderMap, StatusCode};
use serde_json::{Map, Value};
use services::call::UpstreamCallOutcome;
use services::{FaultParty, ToProblem, UpstreamCallRecord};

use super::{QueryError, truncate_chars};

/// The error of a failed run, with its calls, console output and timing.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub(crate) struct FailedRun {
    error: QueryError,
    members: Map<String, Value>,
    headers: HeaderMap,
}

impl ToProblem for FailedRun {
    fn code(&self) -> &'static str {
        self.error.code()
    }

    fn status(&self) -> StatusCode {
        self.error.status()
    }

    fn fault(&self) -> FaultParty {
        self.error.fault()
    }

    fn hint(&self) -> String {
        self.error.hint()
    }

    fn members(&self) -> Map<String, Value> {
        let mut members = self.error.members();
        members.extend(self.members.clone());
        members
    }

    fn headers(&self) -> HeaderMap {
        let mut headers = self.error.headers();
        headers.extend(self.headers.clone());
        headers
    }
}

/// Builds the problem of a failed run.
pub(crate) fn failed_run_problem(
    error: QueryError,
    timing: &str,
    console: String,
    records: &[UpstreamCallRecord],
) -> FailedRun {
    let calls: Vec<Value> =
        records.iter().filter(|record| is_listed_call(record)).map(call_to_json).collect();
    let members = Map::from_iter([("calls".into(), calls.into()), ("console".into(), console.into())]);
    let timing = HeaderValue::from_str(timing).ok();
    let headers =
        timing.map(|timing| (HeaderName::from_static("server-timing"), timing)).into_iter().collect();
    FailedRun { error, members, headers }
}

/// Whether a problem lists this call: unsafe calls, since they may have changed something, and failed ones.
fn is_listed_call(record: &UpstreamCallRecord) -> bool {
    !record.method.is_safe() || !matches!(record.outcome, UpstreamCallOutcome::Status(..400))
}

fn call_to_json(record: &UpstreamCallRecord) -> Value {
    let status = match record.outcome {
        UpstreamCallOutcome::NotSent => "not sent".into(),
        UpstreamCallOutcome::NoAnswer => "no answer".into(),
        UpstreamCallOutcome::Status(status) => Value::from(status),
    };
    serde_json::json!({
        "service": &*record.service, "method": record.method.as_str(), "path": truncate_chars(&record.path, 512), "status": status,
    })
}
