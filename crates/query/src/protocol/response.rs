//! Builds the HTTP response from a program's answer.
//!
//! The program decides on status, type and body. The gateway adds the headers that keep untrusted content
//! from being interpreted (`nosniff`, a sandboxing policy), forbids caching unless the program allows it, and
//! sets `Vary` if it does.

use std::fmt::{self, Write};
use std::time::Duration;

use http::header::{
    AUTHORIZATION, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, COOKIE, HeaderName, HeaderValue,
    VARY, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, Response, StatusCode};
use services::call::UpstreamCallOutcome;
use services::{StreamedServiceBody, UpstreamCallRecord};

use crate::host::AnswerBuilder;
use crate::problem::truncate_chars;
use crate::program::CallPermissions;

/// The maximum number of upstream calls listed: proxies reject long headers.
const MAX_LISTED_CALLS: usize = 64;
/// The maximum length of each listed path in characters, for the same reason.
const MAX_LISTED_PATH: usize = 256;
/// `Server-Timing` (W3C Server Timing).
const SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");
const BINARY: HeaderValue = HeaderValue::from_static("application/octet-stream");
const NOSNIFF: HeaderValue = HeaderValue::from_static("nosniff");
const SANDBOX: HeaderValue = HeaderValue::from_static("sandbox");
const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");

/// The durations of a request's phases.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PhaseTimes {
    pub(crate) total: Duration,
    pub(crate) compile_time: Option<Duration>,
    pub(crate) cpu: Duration,
    pub(crate) list_calls: bool,
}

/// Builds the response of a successful run.
pub(crate) fn build_response(
    answer: AnswerBuilder,
    timing: String,
    vary: Option<HeaderValue>,
) -> Response<StreamedServiceBody> {
    let AnswerBuilder { status, headers, body } = answer;
    let mut response = Response::new(services::body::full(body.unwrap_or_default()));
    *response.status_mut() = status.unwrap_or(StatusCode::OK);
    *response.headers_mut() = headers;
    let headers = response.headers_mut();
    complete_headers(headers, vary);
    if let Ok(timing) = HeaderValue::try_from(timing) {
        headers.insert(SERVER_TIMING, timing);
    }
    response
}

fn complete_headers(headers: &mut HeaderMap, vary: Option<HeaderValue>) {
    headers.entry(CONTENT_TYPE).or_insert(BINARY);
    headers.insert(X_CONTENT_TYPE_OPTIONS, NOSNIFF);
    headers.insert(CONTENT_SECURITY_POLICY, SANDBOX);
    match (headers.get_mut(CACHE_CONTROL), vary) {
        (None, _) => {
            headers.insert(CACHE_CONTROL, NO_STORE);
        }
        (Some(control), Some(vary)) => {
            if let Some(private) = varies_by_credentials(&vary).then(|| private_directives(control)).flatten()
            {
                *control = private;
            }
            headers.insert(VARY, vary);
        }
        (Some(_), None) => {}
    }
}

/// Keeps shared caches from storing an answer that is for one caller only.
pub(crate) fn make_private(headers: &mut HeaderMap) {
    let said = headers.get(CACHE_CONTROL).filter(|said| *said != "no-store");
    let closed = said.and_then(private_directives);
    closed.into_iter().for_each(|closed| drop(headers.insert(CACHE_CONTROL, closed)));
}

/// Whether an answer that varies by these headers was made with the caller's credentials.
fn varies_by_credentials(vary: &HeaderValue) -> bool {
    let named = |name: &HeaderName| vary.to_str().is_ok_and(|vary| vary.contains(name.as_str()));
    named(&AUTHORIZATION) || named(&COOKIE)
}

/// Returns the directives (RFC 9111, section 5.2.2) with `private` instead of `public`, or `None` if shared
/// caches don't store the answer anyway. Directives that can't be read may be `no-store`.
fn private_directives(control: &HeaderValue) -> Option<HeaderValue> {
    let Ok(text) = control.to_str() else { return Some(NO_STORE) };
    let directives = text.split(',').map(str::trim).filter(|directive| !directive.is_empty());
    let is = |directive: &str, name: &str| directive.eq_ignore_ascii_case(name);
    if directives.clone().any(|directive| is(directive, "private") || is(directive, "no-store")) {
        return None;
    }
    let kept = directives.filter(|directive| !is(directive, "public"));
    HeaderValue::from_str(&std::iter::once("private").chain(kept).collect::<Vec<_>>().join(", ")).ok()
}

/// Builds `Vary`: the client's headers that were forwarded to the called services.
pub(crate) fn vary_header(access: &CallPermissions, records: &[UpstreamCallRecord]) -> Option<HeaderValue> {
    let called = access
        .services
        .values()
        .filter(|service| records.iter().any(|record| record.service == *service.name()));
    let mut names: Vec<&str> =
        called.flat_map(|service| service.forwarded_headers()).map(HeaderName::as_str).collect();
    names.sort_unstable();
    names.dedup();
    (!names.is_empty()).then(|| HeaderValue::from_str(&names.join(", ")).ok()).flatten()
}

/// Builds `Server-Timing`: compile time (if the program was compiled), the program's CPU time, upstream
/// calls, the total.
pub(crate) fn server_timing(times: &PhaseTimes, records: &[UpstreamCallRecord]) -> String {
    let mut text = String::with_capacity(96);
    if let Some(compiled) = times.compile_time {
        let _ = write!(text, "compile;dur={}, ", DecimalMillis(compiled));
    }
    text.push_str("cpu;dur=");
    DecimalMillis(times.cpu).append_to(&mut text);
    text.push_str(", ");
    if !records.is_empty() {
        let _ = write!(text, "calls;desc={}, ", records.len());
    }
    if times.list_calls {
        records.iter().take(MAX_LISTED_CALLS).for_each(|record| append_call(&mut text, record));
    }
    text.push_str("total;dur=");
    DecimalMillis(times.total).append_to(&mut text);
    text
}

fn append_call(text: &mut String, record: &UpstreamCallRecord) {
    let (start, end) = record.span;
    let took = DecimalMillis(end.map_or(Duration::ZERO, |end| end.saturating_sub(start)));
    let status = match record.outcome {
        UpstreamCallOutcome::Status(status) => status.to_string(),
        UpstreamCallOutcome::NoAnswer => "no answer".into(),
        UpstreamCallOutcome::NotSent => "not sent".into(),
    };
    let path = truncate_chars(&record.path, MAX_LISTED_PATH).replace(['"', '\\'], "");
    let (service, method) = (&record.service, &record.method);
    let _ = write!(
        text,
        "call;desc=\"{service} {method} {path} {status}\";dur={took};start={}, ",
        DecimalMillis(start)
    );
}

/// Milliseconds with two decimals. Formatted from integers, which is several times as fast as from floats.
struct DecimalMillis(Duration);

impl DecimalMillis {
    /// Appends the text. Avoids formatting machinery, since every answer has two of them.
    fn append_to(&self, text: &mut String) {
        let nanos = u64::try_from(self.0.as_nanos()).unwrap_or(u64::MAX);
        let hundredths = nanos.saturating_add(5_000) / 10_000;
        text.push_str(itoa::Buffer::new().format(hundredths / 100));
        text.push('.');
        let rest = (hundredths % 100) as u8;
        text.push(char::from(b'0' + rest / 10));
        text.push(char::from(b'0' + rest % 10));
    }
}

impl fmt::Display for DecimalMillis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        self.append_to(&mut text);
        f.write_str(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_private_answers_out_of_shared_caches() {
        for (said, closed) in [
            ("max-age=60", "private, max-age=60"),
            ("Public, max-age=60", "private, max-age=60"),
            ("private=\"set-cookie\"", "private, private=\"set-cookie\""),
            ("PRIVATE, max-age=1", "PRIVATE, max-age=1"),
            ("no-store", "no-store"),
            ("public, max-age=60, x=\u{e9}", "no-store"),
        ] {
            let mut headers = HeaderMap::from_iter([(CACHE_CONTROL, HeaderValue::from_str(said).unwrap())]);
            make_private(&mut headers);
            assert_eq!(headers[CACHE_CONTROL], closed, "{said}");
        }
    }

    #[test]
    fn formats_times_with_two_decimals() {
        for (micros, text) in
            [(0, "0.00"), (4, "0.00"), (5, "0.01"), (12_345, "12.35"), (1_000_000, "1000.00")]
        {
            assert_eq!(DecimalMillis(Duration::from_micros(micros)).to_string(), text);
        }
    }
}
