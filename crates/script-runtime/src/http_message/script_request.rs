//! Requests to handlers, from a client over HTTP or from another handler.

use std::borrow::Cow;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, StatusCode, Uri};
use offload::{OffloadPool, SHORT_TEXT};
use script::HandlerMethod;
use serde_json::{Map, Value};
use services::{CallError, RequestCall, process_text};

use crate::frame::{FramePayload, PayloadKind};

/// The kind of jobs.
const JOB_KIND: &str = "script-text";
/// The factor by which parameters take longer to read than other texts: each may be of two bytes.
const PARAMETER_COST: usize = 32;

/// The characters of the bytes from 0x80 in windows-1252.
const WINDOWS_1252: [char; 32] = [
    '€', '\u{81}', '‚', 'ƒ', '„', '…', '†', '‡', 'ˆ', '‰', 'Š', '‹', 'Œ', '\u{8d}', 'Ž', '\u{8f}', '\u{90}',
    '‘', '’', '“', '”', '•', '–', '—', '˜', '™', 'š', '›', 'œ', '\u{9d}', 'ž', 'Ÿ',
];

/// The representation of a body that its media type declares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BodyRepresentation {
    Json,
    Text(TextCharset),
    Bytes,
}

/// The encoding of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TextCharset {
    /// Not declared for a media type of texts.
    Undeclared,
    Utf8,
    /// The encoding of texts that are declared as ISO 8859-1 or ASCII as well (WHATWG Encoding).
    Windows1252,
    /// Not supported, or not declared without a media type.
    Unknown,
}

/// The reason why a request body is not of its media type.
#[derive(Debug)]
pub(crate) enum InvalidBody {
    Json(String),
    /// A text that is not valid UTF-8.
    Text,
}

/// A request in the form in which a handler gets it.
#[derive(Clone, Debug)]
pub(crate) struct ScriptRequest {
    pub(crate) method: HandlerMethod,
    /// The path below the mount path.
    pub(crate) path: String,
    /// The parameters: a JSON object, or empty.
    pub(crate) query: Bytes,
    /// The headers as received; converted to JSON only for a handler that reads them.
    pub(crate) headers: HeaderMap,
    pub(crate) body: FramePayload,
}

/// Converts the query parameters of a URL to JSON. Values are strings, or lists if a name is repeated or ends
/// in `[]`.
pub(crate) fn query_to_json(query: Option<&str>) -> Bytes {
    let Some(query) = query.filter(|query| !query.is_empty()) else { return Bytes::new() };
    let mut pairs: Vec<UrlParameter<'_>> = form_urlencoded::parse(query.as_bytes()).enumerate().collect();
    pairs.sort_by(|one, other| parameter_name(one).cmp(parameter_name(other)));
    let mut groups: Vec<&[UrlParameter<'_>]> =
        pairs.chunk_by(|one, other| parameter_name(one) == parameter_name(other)).collect();
    groups.sort_by_key(|group| group.first().map(|(place, _)| place));
    let mut text = Vec::with_capacity(query.len() * 2 + 16);
    text.push(b'{');
    for group in groups {
        let Some((first, more)) = group.split_first() else { continue };
        let (name, is_list) = (parameter_name(first), !more.is_empty() || first.1.0.ends_with("[]"));
        write_json_string(&mut text, name);
        text.extend_from_slice(if is_list { b":[" } else { b":" });
        for (_, (_, value)) in group {
            write_json_string(&mut text, value);
            text.push(b',');
        }
        if is_list {
            close_json(&mut text, b']');
            text.push(b',');
        }
    }
    close_json(&mut text, b'}');
    text.into()
}

/// Like [`query_to_json`]; many of them are converted in the pool.
pub(crate) async fn query_to_json_pooled(
    pool: &OffloadPool,
    call: &RequestCall,
    query: &str,
) -> Result<Bytes, CallError> {
    let bytes = query.len().saturating_mul(PARAMETER_COST);
    if bytes <= SHORT_TEXT {
        return Ok(query_to_json(Some(query)));
    }
    let query = query.to_owned();
    process_text(pool, JOB_KIND, call, bytes, move || query_to_json(Some(&query))).await
}

/// A parameter: its index in the URL, and its name and value.
type UrlParameter<'u> = (usize, (Cow<'u, str>, Cow<'u, str>));

/// Returns the name of a parameter, without `[]`.
fn parameter_name<'p>((_, (name, _)): &'p UrlParameter<'_>) -> &'p str {
    name.strip_suffix("[]").unwrap_or(name)
}

/// Writes a string as JSON.
fn write_json_string(text: &mut Vec<u8>, value: &str) {
    let _ = serde_json::to_writer(text, value); // Writing into memory does not fail.
}

/// Closes a list or an object, replacing the last comma.
fn close_json(text: &mut Vec<u8>, end: u8) {
    text.pop_if(|last| *last == b',');
    text.push(end);
}

/// Converts headers to JSON; empty without headers. Repeated headers are joined as in HTTP, except that
/// `set-cookie` is a list.
pub(crate) fn headers_to_json(headers: &HeaderMap) -> Bytes {
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
    to_json_bytes(&Value::Object(object))
}

/// Reads a request body by its media type, a long one in the pool. Without a type it is text if it is valid
/// UTF-8. Returns the reason if the type is JSON or text in UTF-8 and the body is not.
pub(crate) async fn parse_request_body(
    pool: &OffloadPool,
    call: &RequestCall,
    headers: &HeaderMap,
    bytes: Bytes,
) -> Result<Result<FramePayload, InvalidBody>, CallError> {
    let (representation, length) = (BodyRepresentation::from_headers(headers), bytes.len());
    process_text(pool, JOB_KIND, call, length, move || validate_body(representation, bytes)).await
}

fn validate_body(representation: BodyRepresentation, bytes: Bytes) -> Result<FramePayload, InvalidBody> {
    if bytes.is_empty() {
        return Ok(FramePayload::default());
    }
    Ok(match representation {
        BodyRepresentation::Json => {
            // Skipped strings are not checked for UTF-8.
            let text = std::str::from_utf8(&bytes).map_err(|error| InvalidBody::Json(error.to_string()))?;
            serde_json::from_str::<serde::de::IgnoredAny>(text)
                .map_err(|error| InvalidBody::Json(error.to_string()))?;
            FramePayload::json(bytes)
        }
        BodyRepresentation::Text(TextCharset::Utf8 | TextCharset::Undeclared) => {
            match FramePayload::text(bytes) {
                FramePayload { kind: PayloadKind::Bytes, .. } => return Err(InvalidBody::Text),
                text => text,
            }
        }
        BodyRepresentation::Text(charset) => charset.decode(bytes),
        BodyRepresentation::Bytes => FramePayload::bytes(bytes),
    })
}

/// Reads the response body of a service by its media type, a long one in the pool. The worker validates JSON
/// when it parses it; validating it here as well took a tenth of the gateway's part of a request. An empty
/// body is not JSON either, unless the method or the status allow for one.
pub(crate) async fn parse_response_body(
    pool: &OffloadPool,
    call: &RequestCall,
    (method, status): (HandlerMethod, StatusCode),
    headers: &HeaderMap,
    bytes: Bytes,
) -> Result<FramePayload, CallError> {
    if bytes.is_empty() && (matches!(method, HandlerMethod::Head) || status != StatusCode::OK) {
        return Ok(FramePayload::default());
    }
    let (representation, length) = (BodyRepresentation::from_headers(headers), bytes.len());
    process_text(pool, JOB_KIND, call, length, move || decode_response_body(representation, bytes)).await
}

fn decode_response_body(representation: BodyRepresentation, bytes: Bytes) -> FramePayload {
    match representation {
        BodyRepresentation::Json => FramePayload::decode_json(bytes),
        _ if bytes.is_empty() => FramePayload::default(),
        BodyRepresentation::Text(charset) => charset.decode(bytes),
        BodyRepresentation::Bytes => FramePayload::bytes(bytes),
    }
}

impl BodyRepresentation {
    /// Returns the representation that the headers declare; text of an unknown encoding without a media type.
    fn from_headers(headers: &HeaderMap) -> Self {
        let Some(media) = headers.get(CONTENT_TYPE) else { return Self::Text(TextCharset::Unknown) };
        let media = media.to_str().unwrap_or_default();
        let (essence, parameters) = media.split_once(';').unwrap_or((media, ""));
        let essence = essence.trim();
        let is = |word: &str| essence.eq_ignore_ascii_case(word);
        let ends = |with: &str| {
            let end = essence.len().checked_sub(with.len()).and_then(|from| essence.get(from..));
            end.is_some_and(|end| end.eq_ignore_ascii_case(with))
        };
        if is("application/json") || ends("+json") {
            return Self::Json;
        }
        let words = ["application/xml", "application/javascript", "application/x-www-form-urlencoded"];
        let is_text = essence.get(..5).is_some_and(|start| start.eq_ignore_ascii_case("text/"));
        match is_text || ends("+xml") || words.into_iter().any(is) {
            true => Self::Text(TextCharset::from_parameters(parameters)),
            false => Self::Bytes,
        }
    }
}

impl TextCharset {
    /// Returns the charset among the parameters of a text's media type.
    fn from_parameters(parameters: &str) -> Self {
        let charset = parameters.split(';').find_map(|parameter| {
            let (name, value) = parameter.split_once('=')?;
            name.trim().eq_ignore_ascii_case("charset").then(|| value.trim().trim_matches('"'))
        });
        let Some(charset) = charset else { return Self::Undeclared };
        let is = |label: &&str| charset.eq_ignore_ascii_case(label);
        let latin = ["iso-8859-1", "iso8859-1", "latin1", "windows-1252", "cp1252", "us-ascii", "ascii"];
        match ["utf-8", "utf8"].iter().any(is) {
            true => Self::Utf8,
            false if latin.iter().any(is) => Self::Windows1252,
            false => Self::Unknown,
        }
    }

    /// Decodes the text of a response. Invalid bytes become U+FFFD only where it is declared to be UTF-8. In
    /// an undeclared or unknown encoding it is text if it is valid UTF-8, and bytes otherwise.
    fn decode(self, bytes: Bytes) -> FramePayload {
        match self {
            Self::Utf8 => FramePayload::decode_text(bytes),
            Self::Windows1252 if !bytes.is_ascii() => FramePayload::text(decode_windows_1252(&bytes).into()),
            Self::Windows1252 | Self::Undeclared | Self::Unknown => FramePayload::text(bytes),
        }
    }
}

fn decode_windows_1252(bytes: &[u8]) -> String {
    let decoded = |byte: &u8| {
        let above = usize::from(*byte).checked_sub(0x80).and_then(|index| WINDOWS_1252.get(index));
        above.copied().unwrap_or(char::from(*byte))
    };
    bytes.iter().map(decoded).collect()
}

/// Returns the method of S that corresponds to an HTTP method, if there is one.
pub(crate) fn parse_method(method: &http::Method) -> Option<HandlerMethod> {
    HandlerMethod::ALL.into_iter().find(|known| known.as_str() == method.as_str())
}

/// Returns the part of a request's path below the mount path.
pub(crate) fn path_below_mount<'u>(mount: &str, uri: &'u Uri) -> &'u str {
    match uri.path().strip_prefix(mount) {
        Some("") | None => "/",
        Some(path) => path,
    }
}

fn to_json_bytes(value: &Value) -> Bytes {
    value.to_string().into()
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn parse_query(query: &str) -> Value {
        serde_json::from_slice(&query_to_json(Some(query))).expect("JSON")
    }

    fn decode_response(headers: &HeaderMap, body: &'static [u8]) -> FramePayload {
        decode_response_body(BodyRepresentation::from_headers(headers), Bytes::from_static(body))
    }

    fn content_type_headers(media: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(media))])
    }

    #[tokio::test]
    async fn long_texts_and_many_parameters_are_read_in_the_pool() {
        let pool = OffloadPool::start(offload::OffloadConfig::default()).expect("threads");
        let (call, headers) = (RequestCall::unlimited(), HeaderMap::new());
        let jobs = || pool.stats().kinds.get(JOB_KIND).map_or(0, |kind| kind.jobs);
        let text = |length| Bytes::from("x".repeat(length));
        assert!(parse_request_body(&pool, &call, &headers, text(SHORT_TEXT)).await.expect("read").is_ok());
        let response = (HandlerMethod::Get, StatusCode::OK);
        parse_response_body(&pool, &call, response, &headers, text(SHORT_TEXT)).await.expect("read");
        let few = "a&".repeat(SHORT_TEXT / PARAMETER_COST / 2);
        query_to_json_pooled(&pool, &call, &few).await.expect("read");
        assert_eq!(jobs(), 0);
        assert!(
            parse_request_body(&pool, &call, &headers, text(SHORT_TEXT + 1)).await.expect("read").is_ok()
        );
        assert_eq!(jobs(), 1);
        parse_response_body(&pool, &call, response, &headers, text(SHORT_TEXT + 1)).await.expect("read");
        assert_eq!(jobs(), 2);
        query_to_json_pooled(&pool, &call, &(few + "a&")).await.expect("read");
        assert_eq!(jobs(), 3);
    }

    #[test]
    fn rule_14_a_repeated_parameter_is_a_list() {
        assert_eq!(parse_query("a=1&b=x%20y&a=2"), serde_json::json!({"a": ["1", "2"], "b": "x y"}));
        assert_eq!(parse_query("urls[]=1"), serde_json::json!({"urls": ["1"]}));
        assert_eq!(parse_query("urls=1&urls[]=2"), serde_json::json!({"urls": ["1", "2"]}));
        assert_eq!(query_to_json(None), "");
    }

    #[test]
    fn parameters_keep_the_order_of_the_url() {
        assert_eq!(query_to_json(Some("b=%22&a=1&b=2&%0A=")), r#"{"b":["\"","2"],"a":"1","\n":""}"#);
        assert_eq!(query_to_json(Some("&")), "{}");
    }

    #[test]
    fn a_json_request_body_must_be_utf_8() {
        let read = |body: &'static [u8]| validate_body(BodyRepresentation::Json, Bytes::from_static(body));
        for body in [b"\"\xff\"".as_slice(), b"{\"M\xfcller\":1}", b"[\"\xed\xa0\x80\"]", b"\"\xc3"] {
            assert!(matches!(read(body), Err(InvalidBody::Json(_))), "{}", body.escape_ascii());
        }
        assert_eq!(read("\"ä\"".as_bytes()).expect("JSON").kind, PayloadKind::Json);
    }

    #[test]
    fn a_parameter_may_be_named_proto() {
        assert_eq!(parse_query("__proto__=1")["__proto__"], "1");
    }

    #[test]
    fn a_json_response_is_not_validated_before_the_worker_reads_it() {
        let read =
            |body: &'static [u8]| decode_response(&content_type_headers("application/json"), body).kind;
        assert_eq!(read(b"<p>"), PayloadKind::AsciiJson, "the worker validates it");
        assert_eq!(read("\"ä\"".as_bytes()), PayloadKind::Json);
    }

    #[tokio::test]
    async fn an_empty_json_response_is_read_as_json_where_a_body_is_expected() {
        let pool = OffloadPool::start(offload::OffloadConfig::default()).expect("threads");
        let (call, pool) = (RequestCall::unlimited(), &pool);
        for (media, method, status, kind) in [
            ("application/json", HandlerMethod::Get, StatusCode::OK, PayloadKind::AsciiJson),
            ("application/json", HandlerMethod::Head, StatusCode::OK, PayloadKind::None),
            ("application/json", HandlerMethod::Put, StatusCode::NO_CONTENT, PayloadKind::None),
            ("application/json", HandlerMethod::Post, StatusCode::CREATED, PayloadKind::None),
            ("text/plain", HandlerMethod::Get, StatusCode::OK, PayloadKind::None),
        ] {
            let (headers, response) = (content_type_headers(media), (method, status));
            let read =
                parse_response_body(pool, &call, response, &headers, Bytes::new()).await.expect("read");
            assert_eq!(read.kind, kind, "{media} {} {status}", method.as_str());
        }
    }

    #[test]
    fn a_json_response_may_have_a_byte_order_mark_and_invalid_utf_8() {
        let headers = content_type_headers("application/json");
        let read = |body: &'static [u8]| {
            let payload = decode_response(&headers, body);
            (payload.kind, payload.bytes)
        };
        assert_eq!(read(b"\xef\xbb\xbf[1]"), (PayloadKind::Json, "[1]".into()));
        assert_eq!(read(b"\xef\xbb\xbf\"\xc3\xa4\""), (PayloadKind::Json, "\"ä\"".into()));
        assert_eq!(read(b"\"M\xfcller\""), (PayloadKind::Json, "\"M\u{fffd}ller\"".into()));
        assert_eq!(decode_response(&headers, b"\"\xff\"").validate(), Ok(()));
    }

    #[test]
    fn a_body_is_read_by_its_type() {
        let read = |media: &'static str, body: &'static str| {
            let representation = BodyRepresentation::from_headers(&content_type_headers(media));
            validate_body(representation, Bytes::from(body)).ok().map(|payload| payload.kind)
        };
        assert_eq!(read("application/json", "{}"), Some(PayloadKind::AsciiJson));
        assert_eq!(read("application/problem+json; charset=utf-8", "\"ä\""), Some(PayloadKind::Json));
        assert_eq!(read("application/json", "{"), None);
        assert_eq!(read("text/html", "<p>"), Some(PayloadKind::AsciiText));
        assert_eq!(read("text/html", "ä"), Some(PayloadKind::Text));
        assert_eq!(read("image/png", "x"), Some(PayloadKind::Bytes));
        assert_eq!(read("image/png", ""), Some(PayloadKind::None));
    }

    #[test]
    fn rule_16_a_body_that_is_declared_to_be_text_is_text() {
        let request = |media: &'static str, body: &'static [u8]| {
            validate_body(
                BodyRepresentation::from_headers(&content_type_headers(media)),
                Bytes::from_static(body),
            )
        };
        let response = |media: &'static str, body: &'static [u8]| {
            let payload = decode_response(&content_type_headers(media), body);
            (payload.kind, payload.bytes)
        };
        let read = |media: &'static str, body: &'static [u8]| {
            let payload = request(media, body).expect("text");
            assert_eq!(
                payload,
                decode_response(&content_type_headers(media), body),
                "a request's body is read like a response's"
            );
            (payload.kind, payload.bytes)
        };
        let latin = b"M\xfcller".as_slice();
        let lossy = (PayloadKind::Text, Bytes::from_static("M\u{fffd}ller".as_bytes()));
        let unchanged = (PayloadKind::Bytes, Bytes::from_static(latin));
        for (media, expected) in [
            ("text/csv", &unchanged),
            ("text/plain; header=present", &unchanged),
            ("a/b+xml", &unchanged),
            ("application/x-www-form-urlencoded", &unchanged),
            ("text/html; charset=utf-8", &lossy),
            ("application/xml;Charset=\"UTF-8\"", &lossy),
        ] {
            assert!(matches!(request(media, latin), Err(InvalidBody::Text)), "{media}");
            assert_eq!(&response(media, latin), expected, "{media}");
            assert_eq!(read(media, "Müller".as_bytes()), (PayloadKind::Text, "Müller".into()), "{media}");
        }
        for media in
            ["text/plain; charset=iso-8859-1", "text/html;q=1; CHARSET=Latin1", "text/css; charset=cp1252"]
        {
            assert_eq!(
                read(media, b"M\xfcller \x80\x9f\x81"),
                (PayloadKind::Text, "Müller €Ÿ\u{81}".into()),
                "{media}"
            );
            assert_eq!(read(media, b"x"), (PayloadKind::AsciiText, "x".into()), "{media}");
        }
        let other = "text/plain; charset=shift_jis";
        assert_eq!(read(other, b"\x83e"), (PayloadKind::Bytes, b"\x83e".as_slice().into()), "not supported");
        assert_eq!(read(other, b"x").0, PayloadKind::AsciiText);
    }

    #[test]
    fn decoding_makes_a_text_at_most_three_times_as_long() {
        for (media, byte) in [("text/css; charset=cp1252", b'\x80'), ("text/css; charset=utf-8", b'\xff')] {
            let response = decode_response_body(
                BodyRepresentation::from_headers(&content_type_headers(media)),
                vec![byte; 1000].into(),
            );
            assert_eq!((response.kind, response.bytes.len()), (PayloadKind::Text, 3000), "{media}");
        }
        let json = decode_response_body(BodyRepresentation::Json, vec![b'\xff'; 1000].into());
        assert_eq!((json.kind, json.bytes.len()), (PayloadKind::Json, 3000));
    }

    #[test]
    fn rule_16_a_body_without_a_type_is_text_if_it_is_utf_8_and_bytes_otherwise() {
        let read = |body: &'static [u8]| decode_response(&HeaderMap::new(), body).kind;
        assert_eq!(read(b"{\"a\":1}"), PayloadKind::AsciiText);
        assert_eq!(read("ä".as_bytes()), PayloadKind::Text);
        assert_eq!(read(b"\xff\x00"), PayloadKind::Bytes);
        assert_eq!(read(b""), PayloadKind::None);
    }
}
