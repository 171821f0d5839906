//! Requests to handlers, from a client over HTTP or from another handler.

use std::borrow::Cow;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, Uri};
use offload::{OffloadPool, SHORT_TEXT};
use script::Method;
use serde_json::{Map, Value};
use services::{Call, CallError, work_on_text};

use crate::frame::{Kind, Payload};

/// The kind of jobs.
const KIND: &str = "script-text";
/// The factor by which parameters take longer to read than other texts: each may be of two bytes.
const PARAMETER: usize = 32;

/// A request in the form in which a handler gets it.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub(crate) method: Method,
    /// The path below the mount path.
    pub(crate) path: String,
    /// The parameters: a JSON object, or empty.
    pub(crate) query: Bytes,
    /// The headers as received; converted to JSON only for a handler that reads them.
    pub(crate) headers: HeaderMap,
    pub(crate) body: Payload,
}

/// Converts the query parameters of a URL to JSON. Values are strings, or lists if a name is repeated or ends
/// in `[]`.
pub(crate) fn parameters(query: Option<&str>) -> Bytes {
    let Some(query) = query.filter(|query| !query.is_empty()) else { return Bytes::new() };
    let mut pairs: Vec<Parameter<'_>> = form_urlencoded::parse(query.as_bytes()).enumerate().collect();
    pairs.sort_by(|one, other| named(one).cmp(named(other)));
    let mut groups: Vec<&[Parameter<'_>]> = pairs.chunk_by(|one, other| named(one) == named(other)).collect();
    groups.sort_by_key(|group| group.first().map(|(place, _)| place));
    let mut text = Vec::with_capacity(query.len() * 2 + 16);
    text.push(b'{');
    for group in groups {
        let Some((first, more)) = group.split_first() else { continue };
        let (name, is_list) = (named(first), !more.is_empty() || first.1.0.ends_with("[]"));
        put(&mut text, name);
        text.extend_from_slice(if is_list { b":[" } else { b":" });
        for (_, (_, value)) in group {
            put(&mut text, value);
            text.push(b',');
        }
        if is_list {
            close(&mut text, b']');
            text.push(b',');
        }
    }
    close(&mut text, b'}');
    text.into()
}

/// Like [`parameters`]; many of them are converted in the pool.
pub(crate) async fn parameters_of(pool: &OffloadPool, call: &Call, query: &str) -> Result<Bytes, CallError> {
    let bytes = query.len().saturating_mul(PARAMETER);
    if bytes <= SHORT_TEXT {
        return Ok(parameters(Some(query)));
    }
    let query = query.to_owned();
    work_on_text(pool, KIND, call, bytes, move || parameters(Some(&query))).await
}

/// A parameter: its index in the URL, and its name and value.
type Parameter<'u> = (usize, (Cow<'u, str>, Cow<'u, str>));

/// Returns the name of a parameter, without `[]`.
fn named<'p>((_, (name, _)): &'p Parameter<'_>) -> &'p str {
    name.strip_suffix("[]").unwrap_or(name)
}

/// Writes a string as JSON.
fn put(text: &mut Vec<u8>, value: &str) {
    let _ = serde_json::to_writer(text, value); // Writing into memory does not fail.
}

/// Closes a list or an object, replacing the last comma.
fn close(text: &mut Vec<u8>, end: u8) {
    text.pop_if(|last| *last == b',');
    text.push(end);
}

/// Converts headers to JSON; empty without headers. Repeated headers are joined as in HTTP, except that
/// `set-cookie` is a list.
pub(crate) fn headers(headers: &HeaderMap) -> Bytes {
    if headers.is_empty() {
        return Bytes::new();
    }
    let mut object = Map::new();
    for name in headers.keys() {
        let values = headers.get_all(name).iter().map(|value| String::from_utf8_lossy(value.as_bytes()));
        let value = match name.as_str() {
            "set-cookie" => values.map(|value| Value::String(value.into_owned())).collect(),
            _ => Value::String(values.collect::<Vec<_>>().join(", ")),
        };
        object.insert(name.as_str().to_owned(), value);
    }
    json(&Value::Object(object))
}

/// Reads a request body by its media type, a long one in the pool. Without a type it is text if it is valid
/// UTF-8. Returns the reason if the type is JSON and the body is not.
pub(crate) async fn payload(
    pool: &OffloadPool,
    call: &Call,
    headers: &HeaderMap,
    bytes: Bytes,
) -> Result<Result<Payload, serde_json::Error>, CallError> {
    let (kind, length) = (kind(media(headers)), bytes.len());
    work_on_text(pool, KIND, call, length, move || valid(kind, bytes)).await
}

fn valid(kind: Kind, bytes: Bytes) -> Result<Payload, serde_json::Error> {
    if bytes.is_empty() {
        return Ok(Payload::default());
    }
    Ok(match kind {
        Kind::Json => {
            serde_json::from_slice::<serde::de::IgnoredAny>(&bytes)?;
            Payload::json(bytes)
        }
        Kind::Text => Payload::text(bytes),
        _ => Payload::bytes(bytes),
    })
}

/// Reads the response body of a service by its media type, a long one in the pool. The worker validates JSON
/// when it parses it; validating it here as well took a tenth of the gateway's part of a request.
pub(crate) async fn answered(
    pool: &OffloadPool,
    call: &Call,
    headers: &HeaderMap,
    bytes: Bytes,
) -> Result<Payload, CallError> {
    let (kind, length) = (kind(media(headers)), bytes.len());
    work_on_text(pool, KIND, call, length, move || claimed(kind, bytes)).await
}

fn claimed(kind: Kind, bytes: Bytes) -> Payload {
    if bytes.is_empty() {
        return Payload::default();
    }
    match kind {
        Kind::Json => Payload::claimed_json(bytes),
        Kind::Text => Payload::text(bytes),
        _ => Payload::bytes(bytes),
    }
}

/// Returns the media type of a body; `text/plain` if it is not specified.
fn media(headers: &HeaderMap) -> &str {
    headers.get(CONTENT_TYPE).map_or("text/plain", |value| value.to_str().unwrap_or_default())
}

/// Returns the representation of a media type: text, JSON or bytes.
fn kind(media: &str) -> Kind {
    let essence = media.split(';').next().unwrap_or_default().trim();
    let is = |word: &str| essence.eq_ignore_ascii_case(word);
    let ends = |with: &str| {
        let end = essence.len().checked_sub(with.len()).and_then(|from| essence.get(from..));
        end.is_some_and(|end| end.eq_ignore_ascii_case(with))
    };
    if is("application/json") || ends("+json") {
        return Kind::Json;
    }
    let words = ["application/xml", "application/javascript", "application/x-www-form-urlencoded"];
    let is_text = essence.get(..5).is_some_and(|start| start.eq_ignore_ascii_case("text/"));
    if is_text || ends("+xml") || words.into_iter().any(is) { Kind::Text } else { Kind::Bytes }
}

/// Returns the method of S that corresponds to an HTTP method, if there is one.
pub(crate) fn method(method: &http::Method) -> Option<Method> {
    Method::ALL.into_iter().find(|known| known.word() == method.as_str())
}

/// Returns the part of a request's path below the mount path.
pub(crate) fn below<'u>(mount: &str, uri: &'u Uri) -> &'u str {
    match uri.path().strip_prefix(mount) {
        Some("") | None => "/",
        Some(path) => path,
    }
}

fn json(value: &Value) -> Bytes {
    value.to_string().into()
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn read(query: &str) -> Value {
        serde_json::from_slice(&parameters(Some(query))).expect("JSON")
    }

    fn answered(headers: &HeaderMap, body: &'static [u8]) -> Payload {
        claimed(kind(media(headers)), Bytes::from_static(body))
    }

    #[tokio::test]
    async fn long_texts_and_many_parameters_are_read_in_the_pool() {
        let pool = OffloadPool::start(offload::OffloadConfig::default()).expect("threads");
        let (call, headers) = (Call::unlimited(), HeaderMap::new());
        let jobs = || pool.stats().kinds.get(KIND).map_or(0, |kind| kind.jobs);
        let text = |length| Bytes::from("x".repeat(length));
        assert!(payload(&pool, &call, &headers, text(SHORT_TEXT)).await.expect("read").is_ok());
        super::answered(&pool, &call, &headers, text(SHORT_TEXT)).await.expect("read");
        let few = "a&".repeat(SHORT_TEXT / PARAMETER / 2);
        parameters_of(&pool, &call, &few).await.expect("read");
        assert_eq!(jobs(), 0);
        assert!(payload(&pool, &call, &headers, text(SHORT_TEXT + 1)).await.expect("read").is_ok());
        assert_eq!(jobs(), 1);
        super::answered(&pool, &call, &headers, text(SHORT_TEXT + 1)).await.expect("read");
        assert_eq!(jobs(), 2);
        parameters_of(&pool, &call, &(few + "a&")).await.expect("read");
        assert_eq!(jobs(), 3);
    }

    #[test]
    fn rule_14_a_repeated_parameter_is_a_list() {
        assert_eq!(read("a=1&b=x%20y&a=2"), serde_json::json!({"a": ["1", "2"], "b": "x y"}));
        assert_eq!(read("urls[]=1"), serde_json::json!({"urls": ["1"]}));
        assert_eq!(read("urls=1&urls[]=2"), serde_json::json!({"urls": ["1", "2"]}));
        assert_eq!(parameters(None), "");
    }

    #[test]
    fn parameters_keep_the_order_of_the_url() {
        assert_eq!(parameters(Some("b=%22&a=1&b=2&%0A=")), r#"{"b":["\"","2"],"a":"1","\n":""}"#);
        assert_eq!(parameters(Some("&")), "{}");
    }

    #[test]
    fn a_parameter_may_be_named_proto() {
        assert_eq!(read("__proto__=1")["__proto__"], "1");
    }

    #[test]
    fn a_json_response_is_not_validated_before_the_worker_reads_it() {
        let read = |body: &'static [u8]| {
            let headers =
                HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static("application/json"))]);
            answered(&headers, body).kind
        };
        assert_eq!(read(b"<p>"), Kind::AsciiJson, "the worker validates it");
        assert_eq!(read("\"ä\"".as_bytes()), Kind::Json);
        assert_eq!(read(b""), Kind::None);
    }

    #[test]
    fn a_json_response_may_have_a_byte_order_mark_and_invalid_utf_8() {
        let headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static("application/json"))]);
        let read = |body: &'static [u8]| {
            let payload = answered(&headers, body);
            (payload.kind, payload.bytes)
        };
        assert_eq!(read(b"\xef\xbb\xbf[1]"), (Kind::Json, "[1]".into()));
        assert_eq!(read(b"\xef\xbb\xbf\"\xc3\xa4\""), (Kind::Json, "\"ä\"".into()));
        assert_eq!(read(b"\"M\xfcller\""), (Kind::Json, "\"M\u{fffd}ller\"".into()));
        assert_eq!(answered(&headers, b"\"\xff\"").check(), Ok(()));
    }

    #[test]
    fn a_body_is_read_by_its_type() {
        let read = |media: &str, body: &'static str| {
            let headers = HeaderMap::from_iter([(CONTENT_TYPE, media.parse().expect("a type"))]);
            valid(kind(super::media(&headers)), Bytes::from(body)).ok().map(|payload| payload.kind)
        };
        assert_eq!(read("application/json", "{}"), Some(Kind::AsciiJson));
        assert_eq!(read("application/problem+json; charset=utf-8", "\"ä\""), Some(Kind::Json));
        assert_eq!(read("application/json", "{"), None);
        assert_eq!(read("text/html", "<p>"), Some(Kind::AsciiText));
        assert_eq!(read("text/html", "ä"), Some(Kind::Text));
        assert_eq!(read("image/png", "x"), Some(Kind::Bytes));
        assert_eq!(read("image/png", ""), Some(Kind::None));
    }

    #[test]
    fn rule_16_a_body_without_a_type_is_text_if_it_is_utf_8_and_bytes_otherwise() {
        let read = |body: &'static [u8]| answered(&HeaderMap::new(), body).kind;
        assert_eq!(read(b"{\"a\":1}"), Kind::AsciiText);
        assert_eq!(read("ä".as_bytes()), Kind::Text);
        assert_eq!(read(b"\xff\x00"), Kind::Bytes);
        assert_eq!(read(b""), Kind::None);
    }
}
