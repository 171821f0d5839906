//! The headers of a response that describe or permit its encoding.

use http::header::{
    ACCEPT_RANGES, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG,
    HeaderName, VARY,
};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use services::headers::{is_within_member_limit, list_contains};

use super::coding::ContentCodingKind;

/// The headers that depend on the exact bytes of a body, which is then left unchanged.
static SETTLED: [HeaderName; 6] = [
    CONTENT_ENCODING,
    CONTENT_RANGE,
    HeaderName::from_static("content-digest"),
    HeaderName::from_static("repr-digest"),
    HeaderName::from_static("digest"),
    HeaderName::from_static("content-md5"),
];

/// The textual media types beyond `text/*`.
const TEXTS: [&str; 18] = [
    "application/json",
    "application/javascript",
    "application/x-javascript",
    "application/xml",
    "application/wasm",
    "application/x-ndjson",
    "application/ndjson",
    "application/jsonl",
    "application/json-seq",
    "application/yaml",
    "application/x-yaml",
    "application/toml",
    "application/graphql",
    "application/sql",
    "application/rtf",
    "font/ttf",
    "font/otf",
    "image/x-icon",
];

/// Whether the response may be transformed: it has a complete body, its encoding isn't settled yet, and no
/// directive forbids it. Directives beyond those that are read may forbid it.
pub(super) fn is_open<B>(response: &Response<B>) -> bool {
    let headers = response.headers();
    let has_text = !response.status().is_informational()
        && !matches!(
            response.status(),
            StatusCode::NO_CONTENT
                | StatusCode::RESET_CONTENT
                | StatusCode::PARTIAL_CONTENT
                | StatusCode::NOT_MODIFIED
        );
    has_text
        && !headers.keys().any(|name| SETTLED.contains(name))
        && !list_contains(headers, &CACHE_CONTROL, b"no-transform")
        && is_within_member_limit(headers, &CACHE_CONTROL)
}

/// Whether compressing pays. It doesn't for compressed formats, nor for event streams, whose events must
/// arrive at once.
pub(super) fn is_worth(headers: &HeaderMap) -> bool {
    let kind = kind(headers);
    let is_text = kind.get(..5).is_some_and(|start| start.eq_ignore_ascii_case("text/"));
    (is_text && !kind.eq_ignore_ascii_case("text/event-stream"))
        || TEXTS.iter().any(|text| kind.eq_ignore_ascii_case(text))
        || ends(kind, "+json")
        || ends(kind, "+xml")
}

/// The media type, without parameters.
pub(super) fn kind(headers: &HeaderMap) -> &str {
    let kind = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    kind.split(';').next().unwrap_or_default().trim()
}

/// Whether a media type has this structured syntax suffix (RFC 6839).
pub(super) fn ends(kind: &str, end: &str) -> bool {
    let last = kind.len().checked_sub(end.len()).and_then(|at| kind.get(at..));
    last.is_some_and(|last| last.eq_ignore_ascii_case(end))
}

/// Marks the response as encoded. Its length changes, ranges become unavailable, and a strong entity tag
/// becomes weak.
pub(super) fn encode(headers: &mut HeaderMap, coding: ContentCodingKind) {
    headers.insert(CONTENT_ENCODING, HeaderValue::from_static(coding.name()));
    change(headers);
}

/// Marks the response's bytes as different from its handler's.
pub(super) fn change(headers: &mut HeaderMap) {
    headers.remove(CONTENT_LENGTH);
    headers.remove(ACCEPT_RANGES);
    if let Some(tag) = headers.get_mut(ETAG)
        && let Some(weak) = weak(tag)
    {
        *tag = weak;
    }
}

/// Converts a strong entity tag to a weak one (RFC 9110, section 8.8.3).
fn weak(tag: &HeaderValue) -> Option<HeaderValue> {
    let strong = Some(tag.as_bytes()).filter(|tag| tag.starts_with(b"\""))?;
    HeaderValue::from_bytes(&[b"W/", strong].concat()).ok()
}

/// Sets the tag of a 304 to the weak one that the client received with the encoded response.
pub(super) fn name_as_known(headers: &mut HeaderMap, known: &HeaderValue) {
    let Some(weak) = headers.get(ETAG).and_then(weak) else { return };
    // Searching text takes linear time. Both may be as long as a head.
    if let (Ok(known), Ok(tag)) = (known.to_str(), weak.to_str())
        && known.contains(tag)
    {
        headers.insert(ETAG, weak);
    }
}

/// Adds a request header to `Vary` (RFC 9110, section 12.5.5).
pub(crate) fn vary(headers: &mut HeaderMap, field: &'static str) {
    if !(list_contains(headers, &VARY, field.as_bytes()) || list_contains(headers, &VARY, b"*")) {
        headers.append(VARY, HeaderValue::from_static(field));
    }
}
