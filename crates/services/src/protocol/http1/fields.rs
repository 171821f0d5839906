//! Header fields as text (RFC 9112, section 5), and the framing that they determine (section 6.3).
//!
//! Fields that another reader could interpret differently are rejected: the end of this message is the start
//! of the next one.

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONNECTION, CONTENT_LENGTH, HOST, TE, TRAILER, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderName, HeaderValue};
use httparse::Status;

use crate::headers::{is_within_member_limit, list_members, strip_hop_by_hop};

/// The maximum number of trailer fields.
pub const MAX_TRAILERS: usize = 64;
/// The longest text whose memory values share. HTTP/2 keeps values in its table of fields (RFC 7541, section
/// 2.3.2) after their message, about a hundred for each connection, and each would keep the whole text.
pub(super) const MAX_SHARED_TEXT: usize = 1 << 10;
/// Fields that are not permitted in trailers (RFC 9110, section 6.5.1).
const FORBIDDEN_TRAILERS: [HeaderName; 6] =
    [AUTHORIZATION, CONTENT_LENGTH, HOST, TE, TRAILER, TRANSFER_ENCODING];

/// The reason why the framing of a body is ambiguous.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AmbiguousFraming {
    /// The length is contradictory or malformed.
    Length,
    /// The transfer coding is not `chunked`, or is repeated.
    Coding,
}

/// Returns fields whose values share the memory of `text` unless it is long; `None` if a name or a value is
/// invalid. Reserves capacity for two more: the gateway's own and a filter's.
#[must_use]
pub fn parse_fields(text: &Bytes, found: &[httparse::Header<'_>]) -> Option<HeaderMap> {
    let mut fields = HeaderMap::with_capacity(found.len() + 2);
    for field in found {
        let name = HeaderName::from_bytes(field.name.as_bytes()).ok()?;
        let value = if text.len() > MAX_SHARED_TEXT {
            HeaderValue::from_bytes(field.value)
        } else {
            HeaderValue::from_maybe_shared(text.slice_ref(field.value))
        };
        let value = value.ok()?;
        fields.try_append(name, value).ok()?;
    }
    Some(fields)
}

/// Whether a line ends with a line feed alone, which only some readers accept as a line end.
#[must_use]
pub fn has_bare_line_feed(text: &[u8]) -> bool {
    let after = |before: u8, byte: u8| byte == b'\n' && before != b'\r';
    // Compares all pairs of bytes instead of searching line by line: lines are short, and the loop is
    // vectorized.
    let pairs = text.iter().zip(text.get(1..).unwrap_or_default());
    text.first() == Some(&b'\n') || pairs.fold(false, |found, (before, byte)| found | after(*before, *byte))
}

/// Parses trailers and removes fields that concern the framing or routing of the message (RFC 9110, section
/// 6.5.1).
pub(super) fn parse_trailers(text: &Bytes) -> Option<HeaderMap> {
    let mut room = [httparse::EMPTY_HEADER; MAX_TRAILERS];
    let Ok(Status::Complete((length, found))) = httparse::parse_headers(text, &mut room) else { return None };
    // Reject trailers with an ambiguous end, or with lines that only some readers recognize.
    if length != text.len() || has_bare_line_feed(text) {
        return None;
    }
    let mut trailers = parse_fields(text, found)?;
    if !is_within_member_limit(&trailers, &CONNECTION) {
        return None;
    }
    strip_hop_by_hop(&mut trailers);
    for name in [CONTENT_LENGTH, HOST] {
        trailers.remove(name);
    }
    Some(trailers)
}

/// Returns the permitted names that `Trailer` announces, up to [`MAX_TRAILERS`]. Recipients may use it to
/// decide whether to wait for trailers.
#[must_use]
pub fn announced_trailers(headers: &HeaderMap) -> Box<[HeaderName]> {
    let names = list_members(headers, &TRAILER).filter_map(|name| HeaderName::from_bytes(name).ok());
    names.filter(|name| !FORBIDDEN_TRAILERS.contains(name)).take(MAX_TRAILERS).collect()
}

/// Parses `Content-Length`. Repeated fields are permitted if they are equal.
///
/// # Errors
/// [`AmbiguousFraming::Length`] if the length is malformed or contradictory.
pub fn content_length(headers: &HeaderMap) -> Result<Option<u64>, AmbiguousFraming> {
    let mut length = None;
    for value in headers.get_all(CONTENT_LENGTH) {
        let digits = value.as_bytes();
        let text = value.to_str().ok().filter(|_| digits.iter().all(u8::is_ascii_digit));
        let said = text.and_then(|text| text.parse().ok()).ok_or(AmbiguousFraming::Length)?;
        if length.replace(said).is_some_and(|before| before != said) {
            return Err(AmbiguousFraming::Length);
        }
    }
    Ok(length)
}

/// Whether the body is chunked: the only transfer coding that is supported.
///
/// # Errors
/// [`AmbiguousFraming::Coding`] for other or repeated codings.
pub fn is_chunked(headers: &HeaderMap) -> Result<bool, AmbiguousFraming> {
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    match (codings.next(), codings.next()) {
        (None, _) => Ok(false),
        (Some(coding), None) if coding.as_bytes().eq_ignore_ascii_case(b"chunked") => Ok(true),
        _ => Err(AmbiguousFraming::Coding),
    }
}

/// Appends a field as text.
pub fn write_field(text: &mut Vec<u8>, name: &HeaderName, value: &HeaderValue) {
    for part in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
        text.extend_from_slice(part);
    }
}
