//! The headers of a response that describe or permit its encoding.

use http::header::{
    ACCEPT_RANGES, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG,
    HeaderName, VARY,
};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use services::headers::{is_within_member_limit, list_contains};

use crate::config::ContentCodingKind;

/// The headers that depend on the exact bytes of a body, which is then left unchanged.
static BODY_DEPENDENT_HEADERS: [HeaderName; 6] = [
    CONTENT_ENCODING,
    CONTENT_RANGE,
    HeaderName::from_static("content-digest"),
    HeaderName::from_static("repr-digest"),
    HeaderName::from_static("digest"),
    HeaderName::from_static("content-md5"),
];

/// The textual media types beyond `text/*`.
const TEXT_MEDIA_TYPES: [&str; 18] = [
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
pub(super) fn is_transformable<B>(response: &Response<B>) -> bool {
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
        && !headers.keys().any(|name| BODY_DEPENDENT_HEADERS.contains(name))
        && !list_contains(headers, &CACHE_CONTROL, b"no-transform")
        && is_within_member_limit(headers, &CACHE_CONTROL)
}

/// Whether compressing pays. It doesn't for compressed formats, nor for event streams, whose events must
/// arrive at once.
pub(super) fn is_compressible(headers: &HeaderMap) -> bool {
    let kind = media_type(headers);
    let is_text = kind.get(..5).is_some_and(|start| start.eq_ignore_ascii_case("text/"));
    (is_text && !kind.eq_ignore_ascii_case("text/event-stream"))
        || TEXT_MEDIA_TYPES.iter().any(|text| kind.eq_ignore_ascii_case(text))
        || has_suffix(kind, "+json")
        || has_suffix(kind, "+xml")
}

/// The media type, without parameters.
pub(super) fn media_type(headers: &HeaderMap) -> &str {
    let kind = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    kind.split(';').next().unwrap_or_default().trim()
}

/// Whether a media type has this structured syntax suffix (RFC 6839).
pub(super) fn has_suffix(kind: &str, end: &str) -> bool {
    let last = kind.len().checked_sub(end.len()).and_then(|at| kind.get(at..));
    last.is_some_and(|last| last.eq_ignore_ascii_case(end))
}

/// Marks the response as encoded. Its length changes, ranges become unavailable, and a strong entity tag
/// becomes weak.
pub(super) fn mark_encoded(headers: &mut HeaderMap, coding: ContentCodingKind) {
    headers.insert(CONTENT_ENCODING, HeaderValue::from_static(coding.name()));
    mark_changed(headers);
}

/// Marks the response's bytes as different from its handler's.
pub(super) fn mark_changed(headers: &mut HeaderMap) {
    headers.remove(CONTENT_LENGTH);
    headers.remove(ACCEPT_RANGES);
    if let Some(tag) = headers.get_mut(ETAG)
        && let Some(weak) = weaken_etag(tag)
    {
        *tag = weak;
    }
}

/// Converts a strong entity tag to a weak one (RFC 9110, section 8.8.3).
fn weaken_etag(tag: &HeaderValue) -> Option<HeaderValue> {
    let strong = Some(tag.as_bytes()).filter(|tag| tag.starts_with(b"\""))?;
    HeaderValue::from_bytes(&[b"W/", strong].concat()).ok()
}

/// Sets the tag of a 304 to the weak one that the client received with the encoded response.
pub(super) fn restore_weak_etag(headers: &mut HeaderMap, known: &HeaderValue) {
    let Some(weak) = headers.get(ETAG).and_then(weaken_etag) else { return };
    // Searching text takes linear time. Both may be as long as a head.
    if let (Ok(known), Ok(tag)) = (known.to_str(), weak.to_str())
        && known.contains(tag)
    {
        headers.insert(ETAG, weak);
    }
}

/// Adds a request header to `Vary` (RFC 9110, section 12.5.5).
pub(crate) fn add_vary(headers: &mut HeaderMap, field: &'static str) {
    if !(list_contains(headers, &VARY, field.as_bytes()) || list_contains(headers, &VARY, b"*")) {
        headers.append(VARY, HeaderValue::from_static(field));
    }
}
