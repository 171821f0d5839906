//! The head of a response (RFC 9112, section 4), and the framing of its body.

use std::cell::RefCell;
use std::time::{Duration, UNIX_EPOCH};

use http::header::{CONNECTION, CONTENT_LENGTH, DATE, TRANSFER_ENCODING};
use http::{StatusCode, Version, response};
use http_body::Body;
use rustix::time::{ClockId, clock_gettime};
use services::http1::{BodyFraming, content_length, write_field};

use super::head::RequestFraming;

/// Whether the response has a body (RFC 9110, 6.4.1 and 15.3.6).
pub(in crate::server) fn has_body(status: StatusCode, is_head: bool) -> bool {
    !is_head && may_have_content(status) && status != StatusCode::NOT_MODIFIED
}

/// Whether the response to a GET would have a body, so that the response may contain the body's length (RFC
/// 9110, 8.6).
pub(in crate::server) fn may_have_content(status: StatusCode) -> bool {
    !status.is_informational() && !matches!(status, StatusCode::NO_CONTENT | StatusCode::RESET_CONTENT)
}

/// The framing of the body, or the one it would have if there were a body.
pub(super) fn response_framing(
    head: &response::Parts,
    body: &impl Body,
    framing: &RequestFraming,
) -> BodyFraming {
    let known = if body.is_end_stream() { Some(0) } else { body.size_hint().exact() };
    let said = || content_length(&head.headers).ok().flatten();
    let length = match head.status {
        status if !may_have_content(status) => Some(0),
        status if has_body(status, framing.is_head) => known.or_else(said),
        _ => said().or(known),
    };
    match length {
        Some(length) => BodyFraming::Length(length),
        None if framing.version == Version::HTTP_10 => BodyFraming::UntilClose,
        None => BodyFraming::Chunked,
    }
}

/// Returns the status line and the fields, after the bytes in `before`.
pub(super) fn encode_head(
    head: &response::Parts,
    framing: BodyFraming,
    request_framing: &RequestFraming,
    stays: bool,
    before: &[u8],
) -> Vec<u8> {
    let mut text = Vec::with_capacity(before.len() + 512);
    text.extend_from_slice(before);
    for part in ["HTTP/1.1 ", head.status.as_str(), " ", head.status.canonical_reason().unwrap_or(""), "\r\n"]
    {
        text.extend_from_slice(part.as_bytes());
    }
    let is_switch = head.status == StatusCode::SWITCHING_PROTOCOLS;
    let mut has_date = false;
    for (name, value) in &head.headers {
        has_date |= name == DATE;
        let is_ours = name == CONTENT_LENGTH || name == TRANSFER_ENCODING;
        if !is_ours && (name != CONNECTION || is_switch) {
            write_field(&mut text, name, value);
        }
    }
    if !has_date && !is_switch {
        put_date(&mut text);
    }
    put_framing(&mut text, head, framing, request_framing);
    match (stays, request_framing.version) {
        _ if is_switch => {}
        (false, _) => text.extend_from_slice(b"connection: close\r\n"),
        (true, Version::HTTP_10) => text.extend_from_slice(b"connection: keep-alive\r\n"),
        (true, _) => {}
    }
    text.extend_from_slice(b"\r\n");
    text
}

fn put_framing(
    text: &mut Vec<u8>,
    head: &response::Parts,
    framing: BodyFraming,
    request_framing: &RequestFraming,
) {
    let has_body = has_body(head.status, request_framing.is_head);
    match framing {
        // Without a length, clients would wait for a body (RFC 9112, 6.3).
        _ if head.status == StatusCode::RESET_CONTENT => text.extend_from_slice(b"content-length: 0\r\n"),
        _ if !may_have_content(head.status) => {}
        // The missing body of a HEAD response does not determine its length.
        BodyFraming::Length(0) if !has_body && !head.headers.contains_key(CONTENT_LENGTH) => {}
        BodyFraming::Length(length) => {
            text.extend_from_slice(b"content-length: ");
            text.extend_from_slice(itoa::Buffer::new().format(length).as_bytes());
            text.extend_from_slice(b"\r\n");
        }
        BodyFraming::Chunked if has_body => text.extend_from_slice(b"transfer-encoding: chunked\r\n"),
        BodyFraming::Chunked | BodyFraming::UntilClose => {}
    }
}

/// Appends `Date`, which is formatted once a second on each thread.
fn put_date(text: &mut Vec<u8>) {
    thread_local! {
        static NOW: RefCell<(u64, String)> = const { RefCell::new((0, String::new())) };
    }
    // The coarse clock lags by a few milliseconds and costs almost nothing.
    let second = u64::try_from(clock_gettime(ClockId::RealtimeCoarse).tv_sec).unwrap_or_default();
    NOW.with_borrow_mut(|(at, line)| {
        if *at != second {
            let date = httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(second));
            (*at, *line) = (second, format!("date: {date}\r\n"));
        }
        text.extend_from_slice(line.as_bytes());
    });
}
