//! The head of a response (RFC 9112, section 4), and the framing of its body (section 6.3).
//!
//! Heads that another reader could interpret differently are rejected: the end of this response is the start
//! of the next one.

use std::mem::MaybeUninit;

use bytes::Bytes;
use http::header::CONNECTION;
use http::{Method, Response, StatusCode, Version};
use httparse::Status;

use crate::headers::{MAX_MEMBERS, is_within_member_limit, list_contains};
use crate::protocol::http1::{
    AmbiguousFraming, BodyFraming, ReceiveBuffer, content_length, is_chunked, parse_fields,
};

/// The maximum size of a head in bytes, and the maximum number of headers.
const MAX_HEAD: usize = crate::transport::MAX_HEAD as usize;
const MAX_HEADERS: usize = 128;

/// The head of a response.
#[derive(Debug)]
pub(super) struct ResponseHead {
    pub(super) response: Response<()>,
    pub(super) framing: BodyFraming,
    /// Whether the connection ends with this response.
    pub(super) is_last: bool,
}

/// The reason why the input is not a valid response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum ResponseParseError {
    #[error("the head of the response is larger than {MAX_HEAD} bytes")]
    Large,
    #[error("the head of the response is not HTTP: {0}")]
    Head(#[from] httparse::Error),
    #[error("the head of the response has an invalid header")]
    Header,
    #[error("the `Connection` of the response has more than {MAX_MEMBERS} options")]
    Options,
    #[error("the length of the response is ambiguous or malformed")]
    Length,
    #[error("the response has an unsupported transfer coding")]
    Coding,
}

impl ResponseHead {
    /// Whether this is an interim response.
    pub(super) fn is_interim(&self) -> bool {
        self.response.status().is_informational() && self.response.status() != StatusCode::SWITCHING_PROTOCOLS
    }
}

/// Takes a head out of the input, if it is complete.
pub(super) fn read_head(
    input: &mut ReceiveBuffer,
    asked: &Method,
) -> Result<Option<ResponseHead>, ResponseParseError> {
    let Some(length) = input.head_length() else {
        return if input.bytes().len() < MAX_HEAD { Ok(None) } else { Err(ResponseParseError::Large) };
    };
    let text = Bytes::copy_from_slice(&input.bytes()[..length]);
    input.skip(length);
    parse_head(&text, asked).map(Some)
}

fn parse_head(text: &Bytes, asked: &Method) -> Result<ResponseHead, ResponseParseError> {
    let mut room = [const { MaybeUninit::uninit() }; MAX_HEADERS];
    let mut parsed = httparse::Response::new(&mut []);
    let config = httparse::ParserConfig::default();
    let status = config.parse_response_with_uninit_headers(&mut parsed, text, &mut room)?;
    if status != Status::Complete(text.len()) {
        return Err(ResponseParseError::Head(httparse::Error::NewLine));
    }
    let mut response = Response::new(());
    *response.status_mut() =
        parsed.code.and_then(|code| StatusCode::from_u16(code).ok()).ok_or(httparse::Error::Status)?;
    *response.version_mut() = if parsed.version == Some(0) { Version::HTTP_10 } else { Version::HTTP_11 };
    *response.headers_mut() = parse_fields(text, parsed.headers).ok_or(ResponseParseError::Header)?;
    if !is_within_member_limit(response.headers(), &CONNECTION) {
        return Err(ResponseParseError::Options);
    }
    let framing = response_framing(&mut response, asked)?;
    let is_last =
        response.version() == Version::HTTP_10 || list_contains(response.headers(), &CONNECTION, b"close");
    Ok(ResponseHead { response, framing, is_last })
}

fn response_framing(response: &mut Response<()>, asked: &Method) -> Result<BodyFraming, ResponseParseError> {
    let length = content_length(response.headers())?;
    let is_chunked = is_chunked(response.headers())?;
    let status = response.status();
    if *asked == Method::HEAD
        || status.is_informational()
        || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED)
    {
        return Ok(BodyFraming::Length(0));
    }
    match (is_chunked, length) {
        // The combination is ambiguous (RFC 9112, section 6.3), as is a transfer coding in HTTP/1.0.
        (true, Some(_)) => Err(ResponseParseError::Length),
        (true, None) if response.version() == Version::HTTP_10 => Err(ResponseParseError::Coding),
        (true, None) => Ok(BodyFraming::Chunked),
        (false, Some(length)) => Ok(BodyFraming::Length(length)),
        (false, None) => Ok(BodyFraming::UntilClose),
    }
}

impl From<AmbiguousFraming> for ResponseParseError {
    fn from(doubt: AmbiguousFraming) -> Self {
        match doubt {
            AmbiguousFraming::Length => Self::Length,
            AmbiguousFraming::Coding => Self::Coding,
        }
    }
}

#[cfg(test)]
mod tests {
    use http::header::CONTENT_LENGTH;

    use super::*;

    fn parse_head_text(text: &str, asked: &Method) -> Result<ResponseHead, ResponseParseError> {
        parse_head(&Bytes::copy_from_slice(text.as_bytes()), asked)
    }

    #[test]
    fn determines_response_framing_as_in_rfc_9112() {
        use BodyFraming::{Chunked, Length, UntilClose};
        for (status, headers, framing) in [
            ("200 OK", "content-length: 7\r\n", Ok(Length(7))),
            ("200 OK", "content-length: 7\r\ncontent-length: 7\r\n", Ok(Length(7))),
            ("200 OK", "transfer-encoding: Chunked\r\n", Ok(Chunked)),
            ("200 OK", "", Ok(UntilClose)),
            ("204 No Content", "transfer-encoding: chunked\r\n", Ok(Length(0))),
            ("304 Not Modified", "content-length: 7\r\n", Ok(Length(0))),
            ("200 OK", "content-length: 7\r\ncontent-length: 8\r\n", Err(ResponseParseError::Length)),
            ("200 OK", "content-length: 7, 7\r\n", Err(ResponseParseError::Length)),
            ("200 OK", "content-length: +7\r\n", Err(ResponseParseError::Length)),
            ("200 OK", "content-length:\r\n", Err(ResponseParseError::Length)),
            ("200 OK", "content-length: 99999999999999999999\r\n", Err(ResponseParseError::Length)),
            (
                "200 OK",
                "content-length: 7\r\ntransfer-encoding: chunked\r\n",
                Err(ResponseParseError::Length),
            ),
            ("200 OK", "transfer-encoding: gzip, chunked\r\n", Err(ResponseParseError::Coding)),
            (
                "200 OK",
                "transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n",
                Err(ResponseParseError::Coding),
            ),
            ("200 OK", "a: b\r\n c\r\n", Err(ResponseParseError::Head(httparse::Error::HeaderName))),
        ] {
            let response_head = parse_head_text(&format!("HTTP/1.1 {status}\r\n{headers}\r\n"), &Method::GET);
            assert_eq!(response_head.map(|head| head.framing), framing, "{status} {headers:?}");
        }
        let asked = parse_head_text("HTTP/1.1 200 OK\r\ncontent-length: 7\r\n\r\n", &Method::HEAD).unwrap();
        assert_eq!(asked.framing, Length(0));
        assert_eq!(asked.response.headers()[CONTENT_LENGTH], "7");
    }

    #[test]
    fn limits_the_size_and_the_header_count_of_a_head() {
        let with = |count: usize| {
            parse_head_text(&format!("HTTP/1.1 200 OK\r\n{}\r\n", "a: b\r\n".repeat(count)), &Method::GET)
        };
        assert!(with(MAX_HEADERS).is_ok());
        assert_eq!(
            with(MAX_HEADERS + 1).err(),
            Some(ResponseParseError::Head(httparse::Error::TooManyHeaders))
        );
        let mut input = ReceiveBuffer::default();
        input.append_bytes(&[b'a'; MAX_HEAD - 1]);
        assert!(matches!(read_head(&mut input, &Method::GET), Ok(None)));
        input.append_bytes(b"a");
        assert!(matches!(read_head(&mut input, &Method::GET), Err(ResponseParseError::Large)));
    }

    #[test]
    fn rejects_more_connection_options_than_are_read() {
        let with = |count: usize| {
            parse_head_text(
                &format!("HTTP/1.1 200 OK\r\nconnection: {}x-a\r\n\r\n", "a,".repeat(count - 1)),
                &Method::GET,
            )
        };
        assert!(with(MAX_MEMBERS).is_ok());
        assert_eq!(with(MAX_MEMBERS + 1).err(), Some(ResponseParseError::Options));
    }

    #[test]
    fn keeps_connections_alive_unless_the_response_closes_them() {
        for (text, is_last) in [
            ("HTTP/1.1 200 OK\r\n\r\n", false),
            ("HTTP/1.1 200\r\nconnection: x, Close\r\n\r\n", true),
            ("HTTP/1.0 200 OK\r\nconnection: keep-alive\r\n\r\n", true),
        ] {
            assert_eq!(parse_head_text(text, &Method::GET).unwrap().is_last, is_last, "{text}");
        }
    }
}
