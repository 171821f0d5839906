//! The head of a request (RFC 9112, sections 3 and 5), and where its body ends (section 6.3).
//!
//! What is no request at all ends the connection. One that another reader could understand in another way is
//! doubtful: the life of a request refuses it, so that it stands in the log.

use std::mem::MaybeUninit;

use bytes::Bytes;
use http::header::{CONNECTION, EXPECT, TE, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderName, Method, Request, Uri, Version, request};
use httparse::{Error, ParserConfig, Status};
use services::headers::{lists, takes_trailers};
use services::http1::{Framing, Input, content_length, fields, has_bare_line_feed, is_chunked};

use crate::conform::MAX_FIELDS;
use crate::refusal::Refusal;
use crate::server::MAX_HEAD;

/// What says something of the connection, of a body without a length, or of what is to follow one.
static SPECIAL: [HeaderName; 4] = [CONNECTION, EXPECT, TE, TRANSFER_ENCODING];

/// A request without its body.
#[derive(Debug)]
pub(super) struct Head {
    pub(super) request: request::Parts,
    pub(super) asked: Asked,
}

/// What a request says of the connection and of its answer.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) version: Version,
    pub(super) is_head: bool,
    /// Where its body ends.
    pub(super) framing: Framing,
    /// Whether it could be read in two ways.
    pub(super) is_doubtful: bool,
    /// Whether the connection may outlive the answer.
    pub(super) stays: bool,
    pub(super) expects_continue: bool,
    pub(super) takes_trailers: bool,
}

impl Asked {
    /// Nobody knows what was asked.
    pub(super) fn unknown() -> Self {
        Self {
            version: Version::HTTP_11,
            is_head: false,
            framing: Framing::Length(0),
            is_doubtful: true,
            stays: false,
            expects_continue: false,
            takes_trailers: false,
        }
    }

    /// Whether a body comes with it, as far as can be said before it is read.
    pub(super) fn has_body(&self) -> bool {
        self.framing != Framing::Length(0)
    }

    fn of(head: &request::Parts, has_bare_line_feed: bool) -> Self {
        let headers = &head.headers;
        // Most heads have none of them: to look once takes less than to look for each.
        let is_special = headers.keys().any(|name| SPECIAL.contains(name));
        let framing = framing(headers, head.version, is_special);
        let says = |word| is_special && lists(headers, &CONNECTION, word);
        let is_old = head.version == Version::HTTP_10;
        let is_doubtful = has_bare_line_feed || framing.is_none();
        let framing = framing.filter(|_| !is_doubtful).unwrap_or(Framing::Length(0));
        Self {
            version: head.version,
            is_head: head.method == Method::HEAD,
            framing,
            is_doubtful,
            stays: !is_doubtful && !says(b"close") && (!is_old || says(b"keep-alive")),
            expects_continue: is_special && !is_old && headers.contains_key(EXPECT),
            takes_trailers: is_special && takes_trailers(headers),
        }
    }
}

/// Takes a head out of the input, if all of it is there.
pub(super) fn read(input: &mut Input) -> Option<Result<Head, Refusal>> {
    // Empty lines before a request are passed over (RFC 9112, section 2.2).
    while input.bytes().starts_with(b"\r\n") {
        input.skip(2);
    }
    let Some(length) = input.head_length() else {
        return (input.bytes().len() >= MAX_HEAD).then_some(Err(Refusal::HeadTooLarge));
    };
    if length > MAX_HEAD {
        return Some(Err(Refusal::HeadTooLarge));
    }
    Some(parse(&input.take(length)))
}

fn parse(text: &Bytes) -> Result<Head, Refusal> {
    let malformed = |reason: &str| Refusal::Malformed { reason: reason.to_owned() };
    let mut room = [const { MaybeUninit::uninit() }; MAX_FIELDS];
    let mut parsed = httparse::Request::new(&mut []);
    match ParserConfig::default().parse_request_with_uninit_headers(&mut parsed, text, &mut room) {
        Ok(Status::Complete(length)) if length == text.len() => {}
        Ok(_) => return Err(malformed("its head ends twice")),
        Err(Error::TooManyHeaders) => return Err(Refusal::HeadTooLarge),
        Err(error) => return Err(malformed(&error.to_string())),
    }
    let (method, path) = (parsed.method.unwrap_or_default(), parsed.path.unwrap_or_default());
    let mut request = Request::new(());
    *request.method_mut() =
        Method::from_bytes(method.as_bytes()).map_err(|_| malformed("its method is none"))?;
    let target = Uri::from_maybe_shared(text.slice_ref(path.as_bytes())).ok();
    // A host alone is a target for CONNECT only (RFC 9112, 3.2.3).
    let target = target
        .filter(|target| target.scheme().is_some() || target.authority().is_none() || method == "CONNECT");
    // It would be dropped, and the rest taken for all that was asked (RFC 9112, 3.2).
    let target = target.filter(|_| !path.as_bytes().contains(&b'#'));
    *request.uri_mut() = target.ok_or_else(|| malformed("its target is none"))?;
    *request.version_mut() = if parsed.version == Some(0) { Version::HTTP_10 } else { Version::HTTP_11 };
    *request.headers_mut() =
        fields(text, parsed.headers).ok_or_else(|| malformed("one of its headers is none"))?;
    let (head, ()) = request.into_parts();
    let asked = Asked::of(&head, has_bare_line_feed(text));
    Ok(Head { request: head, asked })
}

/// Where the body ends; `None` where two readers may differ.
fn framing(headers: &HeaderMap, version: Version, is_special: bool) -> Option<Framing> {
    match (is_special && is_chunked(headers).ok()?, content_length(headers).ok()?) {
        (false, length) => Some(Framing::Length(length.unwrap_or(0))),
        (true, None) if version == Version::HTTP_11 => Some(Framing::Chunked),
        (true, _) => None,
    }
}
