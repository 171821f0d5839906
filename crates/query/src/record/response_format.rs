//! The forms in which a program sees the result of an upstream call: an error's code, and headers as lines.
//!
//! Recordings contain these forms, and a replay reads them back.

use std::sync::Arc;

use http::{HeaderMap, HeaderName, HeaderValue};
use query_abi::AbiCode;
use services::client::AwaitedEvent;
use services::problem::CallErrorKind;
use services::{CallError, DurationConfig};

/// Returns the code by which programs see an error.
pub(crate) fn abi_code(error: &CallError) -> AbiCode {
    match error.kind() {
        CallErrorKind::Invalid => AbiCode::Invalid,
        CallErrorKind::UnknownService => AbiCode::UnknownService,
        CallErrorKind::Unreachable => AbiCode::Unreachable,
        CallErrorKind::Timeout => AbiCode::Timeout,
        CallErrorKind::Broken => AbiCode::Broken,
        _ => AbiCode::Forbidden,
    }
}

/// Returns an error that a program sees as this code.
pub(super) fn recorded_error(code: i32) -> CallError {
    let (service, source) = (Arc::from("recorded"), "recorded".into());
    match code {
        code if code == AbiCode::Unreachable as i32 => CallError::Unreachable { service, source },
        code if code == AbiCode::Timeout as i32 => CallError::Timeout {
            service,
            timeout: DurationConfig::from_secs(0),
            waited: AwaitedEvent::CompleteResponse,
        },
        code if code == AbiCode::Forbidden as i32 => CallError::Loop(service),
        _ => CallError::Broken { service, source },
    }
}

/// Returns the headers that a program may see. `Set-Cookie` is withheld.
fn visible_headers(headers: &HeaderMap) -> impl Iterator<Item = (&HeaderName, &HeaderValue)> {
    headers.iter().filter(|(name, _)| *name != http::header::SET_COOKIE)
}

/// Returns the length of [`header_text`].
pub(crate) fn header_len(headers: &HeaderMap) -> usize {
    visible_headers(headers).map(|(name, value)| name.as_str().len() + value.len() + 4).sum()
}

/// Returns the headers as lines.
pub(crate) fn header_text(headers: &HeaderMap) -> Vec<u8> {
    let mut text = Vec::with_capacity(header_len(headers));
    for (name, value) in visible_headers(headers) {
        text.extend_from_slice(name.as_str().as_bytes());
        text.extend_from_slice(b": ");
        text.extend_from_slice(value.as_bytes());
        text.extend_from_slice(b"\r\n");
    }
    text
}

/// Parses headers from `name: value` lines.
pub(super) fn read_headers(lines: &[u8]) -> HeaderMap {
    let lines = lines.split(|byte| *byte == b'\n').filter_map(|line| line.strip_suffix(b"\r"));
    let mut headers = HeaderMap::new();
    lines.filter_map(read_header).for_each(|(name, value)| {
        headers.append(name, value);
    });
    headers
}

fn read_header(line: &[u8]) -> Option<(HeaderName, HeaderValue)> {
    let colon = line.windows(2).position(|two| two == b": ")?;
    let name = HeaderName::from_bytes(line.get(..colon)?).ok()?;
    Some((name, HeaderValue::from_bytes(line.get(colon + 2..)?).ok()?))
}
