//! The head of a request (RFC 9112, sections 3 and 5), and the framing of its body (section 6.3).
//!
//! Input that is not a valid request ends the connection. A request that another parser could interpret
//! differently is marked as doubtful, and the request pipeline refuses it, so that it is logged.

use std::mem::MaybeUninit;

use bytes::Bytes;
use http::header::{CONNECTION, EXPECT, TE, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderName, Method, Request, Uri, Version, request};
use httparse::{Error, ParserConfig, Status};
use services::headers::{MAX_MEMBERS, accepts_trailers, is_within_member_limit, list_contains};
use services::http1::{
    BodyFraming, ReceiveBuffer, content_length, has_bare_line_feed, is_chunked, parse_fields,
};

use crate::http_semantics::request_refusal::RequestRefusal;
use crate::http_semantics::request_validation::{MAX_FIELDS, MAX_HEAD};

/// The maximum number of empty lines before a request. Some clients send one after a body (RFC 9112, 2.2).
const MAX_EMPTY_LINES: usize = 8;
/// The headers that affect the connection or the framing and trailers of bodies.
static CONNECTION_HEADERS: [HeaderName; 4] = [CONNECTION, EXPECT, TE, TRANSFER_ENCODING];

/// A request without its body.
#[derive(Debug)]
pub(super) struct RequestHead {
    pub(super) request: request::Parts,
    pub(super) request_framing: RequestFraming,
    /// The size in bytes.
    pub(super) length: usize,
}

/// The properties of a request that determine the connection's behaviour and the response's framing.
#[derive(Debug)]
pub(super) struct RequestFraming {
    pub(super) version: Version,
    pub(super) is_head: bool,
    /// The framing of the request's body.
    pub(super) framing: BodyFraming,
    /// Whether the request could be interpreted in two ways.
    pub(super) is_ambiguous: bool,
    /// Whether the connection may be used for another request.
    pub(super) keep_alive: bool,
    pub(super) expects_continue: bool,
    pub(super) accepts_trailers: bool,
}

impl RequestFraming {
    /// The properties of a request that can't be parsed.
    pub(super) fn unparsed() -> Self {
        Self {
            version: Version::HTTP_11,
            is_head: false,
            framing: BodyFraming::Length(0),
            is_ambiguous: true,
            keep_alive: false,
            expects_continue: false,
            accepts_trailers: false,
        }
    }

    /// Whether a body follows, as far as the head determines it.
    pub(super) fn has_body(&self) -> bool {
        self.framing != BodyFraming::Length(0)
    }

    /// Returns `None` if `Connection` has more options than are read: a field that such an option names would
    /// be sent on.
    fn from_head(head: &request::Parts, has_bare_line_feed: bool) -> Option<Self> {
        let headers = &head.headers;
        // Most heads have none of these headers: one pass is cheaper than a lookup of each.
        let is_special = headers.keys().any(|name| CONNECTION_HEADERS.contains(name));
        if is_special && !is_within_member_limit(headers, &CONNECTION) {
            return None;
        }
        let framing = body_framing(headers, head.version, is_special);
        let says = |word| is_special && list_contains(headers, &CONNECTION, word);
        let is_old = head.version == Version::HTTP_10;
        let is_doubtful = has_bare_line_feed || framing.is_none();
        let framing = framing.filter(|_| !is_doubtful).unwrap_or(BodyFraming::Length(0));
        Some(Self {
            version: head.version,
            is_head: head.method == Method::HEAD,
            framing,
            is_ambiguous: is_doubtful,
            keep_alive: !is_doubtful && !says(b"close") && (!is_old || says(b"keep-alive")),
            expects_continue: is_special && !is_old && headers.contains_key(EXPECT),
            accepts_trailers: is_special && accepts_trailers(headers),
        })
    }
}

/// Takes a head from the input, if it is complete. Skips empty lines before it, and counts them.
pub(super) fn read_head(
    input: &mut ReceiveBuffer,
    empty_lines: &mut usize,
) -> Option<Result<RequestHead, RequestRefusal>> {
    while input.bytes().starts_with(b"\r\n") {
        *empty_lines += 1;
        if *empty_lines > MAX_EMPTY_LINES {
            let reason = format!("more than {MAX_EMPTY_LINES} empty lines precede it");
            return Some(Err(RequestRefusal::Malformed { reason }));
        }
        input.skip(2);
    }
    let Some(length) = input.head_length() else {
        return (input.bytes().len() >= MAX_HEAD).then_some(Err(RequestRefusal::HeadTooLarge));
    };
    if length > MAX_HEAD {
        return Some(Err(RequestRefusal::HeadTooLarge));
    }
    Some(parse_head(&input.take(length)))
}

fn parse_head(text: &Bytes) -> Result<RequestHead, RequestRefusal> {
    let malformed = |reason: &str| RequestRefusal::Malformed { reason: reason.to_owned() };
    let mut room = [const { MaybeUninit::uninit() }; MAX_FIELDS];
    let mut parsed = httparse::Request::new(&mut []);
    match ParserConfig::default().parse_request_with_uninit_headers(&mut parsed, text, &mut room) {
        Ok(Status::Complete(length)) if length == text.len() => {}
        Ok(_) => return Err(malformed("its head ends twice")),
        Err(Error::TooManyHeaders) => return Err(RequestRefusal::HeadTooLarge),
        Err(error) => return Err(malformed(&error.to_string())),
    }
    let (method, path) = (parsed.method.unwrap_or_default(), parsed.path.unwrap_or_default());
    let mut request = Request::new(());
    *request.method_mut() =
        Method::from_bytes(method.as_bytes()).map_err(|_| malformed("its method is invalid"))?;
    let target = Uri::from_maybe_shared(text.slice_ref(path.as_bytes())).ok();
    // A target that consists of a host alone is valid for CONNECT only (RFC 9112, 3.2.3).
    let target = target
        .filter(|target| target.scheme().is_some() || target.authority().is_none() || method == "CONNECT");
    // The fragment would be dropped and the rest used as the target (RFC 9112, 3.2).
    let target = target.filter(|_| !path.as_bytes().contains(&b'#'));
    *request.uri_mut() = target.ok_or_else(|| malformed("its target is invalid"))?;
    *request.version_mut() = if parsed.version == Some(0) { Version::HTTP_10 } else { Version::HTTP_11 };
    *request.headers_mut() =
        parse_fields(text, parsed.headers).ok_or_else(|| malformed("one of its headers is invalid"))?;
    let (head, ()) = request.into_parts();
    let framing = RequestFraming::from_head(&head, has_bare_line_feed(text))
        .ok_or_else(|| malformed(&format!("its `Connection` has more than {MAX_MEMBERS} options")))?;
    Ok(RequestHead { request: head, request_framing: framing, length: text.len() })
}

/// Returns the framing of the body, or `None` if it is ambiguous.
fn body_framing(headers: &HeaderMap, version: Version, is_special: bool) -> Option<BodyFraming> {
    match (is_special && is_chunked(headers).ok()?, content_length(headers).ok()?) {
        (false, length) => Some(BodyFraming::Length(length.unwrap_or(0))),
        (true, None) if version == Version::HTTP_11 => Some(BodyFraming::Chunked),
        (true, _) => None,
    }
}
