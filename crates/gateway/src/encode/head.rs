//! What the head of an answer says of its encoding, and lets be done to it.

use http::header::{
    ACCEPT_RANGES, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG,
    HeaderName, VARY,
};
use http::{HeaderMap, HeaderValue, Response, StatusCode};

use super::coding::Coding;

/// What speaks of the very bytes of a body: they stay as they are.
static SETTLED: [HeaderName; 6] = [
    CONTENT_ENCODING,
    CONTENT_RANGE,
    HeaderName::from_static("content-digest"),
    HeaderName::from_static("repr-digest"),
    HeaderName::from_static("digest"),
    HeaderName::from_static("content-md5"),
];

/// The types that are text, whatever they are called.
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

/// Whether the answer may be transformed: it has a whole text of its own, and nobody has settled how it is sent.
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
        && !words(headers, CACHE_CONTROL, "no-transform")
}

/// Whether compressing pays: not for what is compressed in itself, nor for events, of which each is to arrive at once.
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

/// Whether a media type ends like this, which says what its text is written in (RFC 6839).
pub(super) fn ends(kind: &str, end: &str) -> bool {
    let last = kind.len().checked_sub(end.len()).and_then(|at| kind.get(at..));
    last.is_some_and(|last| last.eq_ignore_ascii_case(end))
}

/// Says that the answer is encoded. Its length is another then, a part of it nobody can ask for, and a tag that stood for
/// its very bytes stands for what it means.
pub(super) fn encode(headers: &mut HeaderMap, coding: Coding) {
    headers.insert(CONTENT_ENCODING, HeaderValue::from_static(coding.name()));
    change(headers);
}

/// Says that the answer's bytes are others than its handler's.
pub(super) fn change(headers: &mut HeaderMap) {
    headers.remove(CONTENT_LENGTH);
    headers.remove(ACCEPT_RANGES);
    if let Some(tag) = headers.get_mut(ETAG)
        && let Some(weak) = weak(tag)
    {
        *tag = weak;
    }
}

/// A tag that stands for what an answer means, of one that stands for its bytes (RFC 9110, section 8.8.3).
fn weak(tag: &HeaderValue) -> Option<HeaderValue> {
    let strong = Some(tag.as_bytes()).filter(|tag| tag.starts_with(b"\""))?;
    HeaderValue::from_bytes(&[b"W/", strong].concat()).ok()
}

/// Has a 304 name the answer as its client knows it, which was encoded when it got it.
pub(super) fn name_as_known(headers: &mut HeaderMap, known: &HeaderValue) {
    let Some(weak) = headers.get(ETAG).and_then(weak) else { return };
    let is_known = |tag: &HeaderValue| known.as_bytes().windows(tag.len()).any(|part| part == tag.as_bytes());
    if is_known(&weak) {
        headers.insert(ETAG, weak);
    }
}

/// Says that a field of the request decided on the answer (RFC 9110, section 12.5.5).
pub(crate) fn vary(headers: &mut HeaderMap, field: &'static str) {
    if !headers.contains_key(VARY) || !(words(headers, VARY, field) || words(headers, VARY, "*")) {
        headers.append(VARY, HeaderValue::from_static(field));
    }
}

/// Whether a word stands in a list.
fn words(headers: &HeaderMap, name: HeaderName, word: &str) -> bool {
    let mut values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    values.any(|value| value.split(',').any(|item| item.trim().eq_ignore_ascii_case(word)))
}
