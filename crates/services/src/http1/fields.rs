//! Header fields as text (RFC 9112, section 5), and what they say of where a body ends (section 6.3).
//!
//! Whatever another reader could understand in another way is refused: where this message ends, the next one
//! begins.

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_LENGTH, HOST, TE, TRAILER, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderName, HeaderValue};
use httparse::Status;

use crate::headers::{strip_hop_by_hop, tokens};

/// The most fields of trailers.
const MAX_TRAILERS: usize = 64;
/// What no trailer may say (RFC 9110, 6.5.1).
const NOT_AFTERWARDS: [HeaderName; 6] = [AUTHORIZATION, CONTENT_LENGTH, HOST, TE, TRAILER, TRANSFER_ENCODING];

/// Why the length of a body is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doubt {
    /// It is said twice, or is no number.
    Length,
    /// The transfer coding is not the one that all know, or said twice.
    Coding,
}

/// Fields whose values share the memory of the text that they were found in; `None` where a name or a value
/// is none. There is room for two more: the gateway's own, and a filter's.
#[must_use]
pub fn fields(text: &Bytes, found: &[httparse::Header<'_>]) -> Option<HeaderMap> {
    let mut fields = HeaderMap::with_capacity(found.len() + 2);
    for field in found {
        let name = HeaderName::from_bytes(field.name.as_bytes()).ok()?;
        let value = HeaderValue::from_maybe_shared(text.slice_ref(field.value)).ok()?;
        fields.try_append(name, value).ok()?;
    }
    Some(fields)
}

/// Whether some line ends with a line feed alone, which some take for its end and others do not.
#[must_use]
pub fn has_bare_line_feed(text: &[u8]) -> bool {
    let after = |before: u8, byte: u8| byte == b'\n' && before != b'\r';
    // All pairs, and not from line to line: lines are short, and many pairs are looked at at once.
    let pairs = text.iter().zip(text.get(1..).unwrap_or_default());
    text.first() == Some(&b'\n') || pairs.fold(false, |found, (before, byte)| found | after(*before, *byte))
}

/// Trailers without those that would say something of the message that was read already (RFC 9110, 6.5.1).
pub(super) fn trailers(text: &Bytes) -> Option<HeaderMap> {
    let mut room = [httparse::EMPTY_HEADER; MAX_TRAILERS];
    let Ok(Status::Complete((length, found))) = httparse::parse_headers(text, &mut room) else { return None };
    // What ends elsewhere for others, or has lines that only some see, is none.
    if length != text.len() || has_bare_line_feed(text) {
        return None;
    }
    let mut trailers = fields(text, found)?;
    strip_hop_by_hop(&mut trailers);
    for name in [CONTENT_LENGTH, HOST] {
        trailers.remove(name);
    }
    Some(trailers)
}

/// The names that `Trailer` announces, and may: a recipient may have to decide by it whether to wait for them.
#[must_use]
pub fn announced(headers: &HeaderMap) -> Box<[HeaderName]> {
    let names = tokens(headers, &TRAILER).filter_map(|name| HeaderName::from_bytes(name).ok());
    names.filter(|name| !NOT_AFTERWARDS.contains(name)).collect()
}

/// `Content-Length`, which may be said several times if it is the same.
///
/// # Errors
/// Where it is no number, or several.
pub fn content_length(headers: &HeaderMap) -> Result<Option<u64>, Doubt> {
    let mut length = None;
    for value in headers.get_all(CONTENT_LENGTH) {
        let digits = value.as_bytes();
        let text = value.to_str().ok().filter(|_| digits.iter().all(u8::is_ascii_digit));
        let said = text.and_then(|text| text.parse().ok()).ok_or(Doubt::Length)?;
        if length.replace(said).is_some_and(|before| before != said) {
            return Err(Doubt::Length);
        }
    }
    Ok(length)
}

/// Whether the body comes in chunks: the one transfer coding that all know, and that is understood here.
///
/// # Errors
/// Where it is another, or said twice.
pub fn is_chunked(headers: &HeaderMap) -> Result<bool, Doubt> {
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    match (codings.next(), codings.next()) {
        (None, _) => Ok(false),
        (Some(coding), None) if coding.as_bytes().eq_ignore_ascii_case(b"chunked") => Ok(true),
        _ => Err(Doubt::Coding),
    }
}

/// Appends a field as text.
pub fn put(text: &mut Vec<u8>, name: &HeaderName, value: &HeaderValue) {
    for part in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
        text.extend_from_slice(part);
    }
}
