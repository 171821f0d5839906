//! Handlers' responses, converted for a client or for a calling handler.

use std::fmt::Display;

use bytes::Bytes;
use http::header::{
    ALLOW, CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HeaderName, HeaderValue, LOCATION, TE,
    TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use http::{HeaderMap, Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use offload::OffloadPool;
use script::HandlerMethod;
use serde_json::{Map, Value};
use services::body::{self, read_limited};
use services::{CallError, RequestCall, StreamedServiceBody};

use super::location::encode_url;
use super::script_request;
use crate::frame::{self, CallReply, FramePayload, PayloadKind};

/// The headers of a resource's response that are passed through with its status and body, since they are
/// needed to read the body.
static FORWARDED_HEADERS: [HeaderName; 3] = [CONTENT_TYPE, CONTENT_ENCODING, CONTENT_LENGTH];

/// The headers that a script cannot set.
static RESERVED_HEADERS: [HeaderName; 6] =
    [CONNECTION, CONTENT_LENGTH, TE, TRAILER, TRANSFER_ENCODING, UPGRADE];

/// The maximum length of the headers that a handler sets, as JSON.
const MAX_HEADERS: usize = 64 << 10;

/// A response.
#[derive(Debug)]
pub(crate) enum HandlerReply {
    /// A response of the handler.
    Complete { status: StatusCode, headers: HeaderMap, body: FramePayload },
    /// A resource's response, streamed past the handler.
    Streamed(Response<StreamedServiceBody>),
}

impl HandlerReply {
    /// Converts a handler's response. A response without a body has status 204 unless the handler sets
    /// another one (rule 12).
    pub(crate) fn from_answer(answer: frame::HandlerAnswer) -> Result<Self, String> {
        let frame::HandlerAnswer { status, headers, body } = answer;
        let status = match (status, body.kind) {
            (0, PayloadKind::None) => StatusCode::NO_CONTENT,
            (0, _) => StatusCode::OK,
            (status, _) => {
                StatusCode::from_u16(status).map_err(|_| format!("{status} is not a valid status"))?
            }
        };
        if status.is_informational() {
            return Err(format!("{status} is an interim status, which can't be the response"));
        }
        Ok(Self::Complete { status, headers: parse_headers(&headers)?, body })
    }

    /// Returns the empty response (rule 12).
    pub(crate) fn empty() -> Self {
        Self::Complete {
            status: StatusCode::NO_CONTENT,
            headers: HeaderMap::new(),
            body: FramePayload::default(),
        }
    }

    /// Returns the response to OPTIONS for a resource without a handler for it.
    pub(crate) fn options_response(allow: &str) -> Self {
        let allow = HeaderValue::from_str(allow).ok().map(|allow| (ALLOW, allow));
        let (status, headers) = (StatusCode::NO_CONTENT, HeaderMap::from_iter(allow));
        Self::Complete { status, headers, body: FramePayload::default() }
    }

    /// Wraps a resource's response that is passed through to the client.
    pub(crate) fn pass_through(answer: Response<StreamedServiceBody>) -> Self {
        let (mut head, body) = answer.into_parts();
        let headers =
            FORWARDED_HEADERS.iter().filter_map(|name| Some((name.clone(), head.headers.remove(name)?)));
        let mut answer = Response::new(body);
        *answer.status_mut() = head.status;
        answer.headers_mut().extend(headers);
        Self::Streamed(answer)
    }

    /// Returns the target of a redirect response.
    pub(crate) fn location(&self) -> Option<&HeaderValue> {
        match self {
            Self::Complete { status, headers, .. } if status.is_redirection() => headers.get(LOCATION),
            Self::Complete { .. } | Self::Streamed(_) => None,
        }
    }

    /// Converts the response for a client. A `Location` that begins with `/` is relative to the mount path
    /// (rule 22).
    pub(crate) fn into_response(self, mount: &str, is_head: bool) -> Response<StreamedServiceBody> {
        let (status, mut headers, payload) = match self {
            Self::Streamed(answer) if is_head => return answer.map(|_| body::empty()),
            Self::Streamed(answer) => return answer,
            Self::Complete { status, headers, body } => (status, headers, body),
        };
        if let Some(content_type) = payload.kind.content_type() {
            headers.entry(CONTENT_TYPE).or_insert(HeaderValue::from_static(content_type));
        }
        if let Some(location) = headers.get(LOCATION).and_then(|location| prefix_mount(location, mount)) {
            headers.insert(LOCATION, location);
        }
        if is_head && !matches!(status, StatusCode::NO_CONTENT | StatusCode::RESET_CONTENT) {
            headers.insert(CONTENT_LENGTH, payload.bytes.len().into());
        }
        let mut response = Response::new(if is_head { body::empty() } else { body::full(payload.bytes) });
        (*response.status_mut(), *response.headers_mut()) = (status, headers);
        response
    }

    /// Converts the response for the handler that called `what` by a method: an outcome and a body. A
    /// streamed response is read up to the limit.
    ///
    /// # Errors
    /// If the pool does not read a long text.
    pub(crate) async fn into_call_reply(
        self,
        (method, what): (HandlerMethod, &str),
        limit: u64,
        pool: &OffloadPool,
        call: &RequestCall,
    ) -> Result<(CallReply, FramePayload), CallError> {
        let (status, headers, payload) = match self {
            Self::Complete { status, headers, body } => (status, headers, body),
            Self::Streamed(answer) => {
                let (head, body) = answer.into_parts();
                let Ok(body) = read_limited(body, limit).await else {
                    return Ok(failed_reply(502, "the answer broke off, or is too large"));
                };
                let response = (method, head.status);
                let payload =
                    script_request::parse_response_body(pool, call, response, &head.headers, body).await?;
                (head.status, head.headers, payload)
            }
        };
        Ok((reply_from_status(what, status, &headers), payload))
    }
}

/// Encodes a `Location` as a URL reference, and prefixes it with the mount path if it begins with `/`.
fn prefix_mount(location: &HeaderValue, mount: &str) -> Option<HeaderValue> {
    let mut target = encode_url(location.as_bytes());
    if target.starts_with('/') && !target.starts_with("//") {
        target.insert_str(0, mount);
    }
    HeaderValue::try_from(target).ok()
}

/// Limits a body: it fails once it exceeds the limit.
pub(crate) fn limit_body(body: StreamedServiceBody, limit: u64) -> StreamedServiceBody {
    Limited::new(body, usize::try_from(limit).unwrap_or(usize::MAX)).boxed_unsync()
}

/// Returns the outcome of a call to `what` that ended with this status.
pub(crate) fn reply_from_status(what: impl Display, status: StatusCode, headers: &HeaderMap) -> CallReply {
    if status.is_success() {
        return CallReply::Ok;
    }
    let message = format!("{what} answered {}", status.as_u16());
    CallReply::Status(status.as_u16(), script_request::headers_to_json(headers).into(), message)
}

pub(crate) fn failed_reply(status: u16, message: impl Into<String>) -> (CallReply, FramePayload) {
    (CallReply::Failed(status, message.into()), FramePayload::default())
}

/// Reads the headers that a handler set: an object of strings, numbers and lists of them.
fn parse_headers(text: &Bytes) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    if text.is_empty() {
        return Ok(headers);
    }
    if text.len() > MAX_HEADERS {
        return Err(format!("its headers take {} bytes, more than the maximum of {MAX_HEADERS}", text.len()));
    }
    let object: Map<String, Value> = serde_json::from_slice(text).map_err(|error| error.to_string())?;
    for (name, value) in object {
        let known =
            HeaderName::try_from(&name).map_err(|_| format!("`{name}` is not a valid header name"))?;
        if RESERVED_HEADERS.contains(&known) {
            continue;
        }
        let values = match value {
            Value::Array(values) => values,
            Value::Null => continue,
            value => vec![value],
        };
        for value in values {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            let value = HeaderValue::try_from(text).map_err(|_| format!("`{name}` has an invalid value"))?;
            headers.append(known.clone(), value);
        }
    }
    Ok(headers)
}

#[cfg(test)]
mod tests {
    use http_body::Body as _;

    use super::*;

    fn make_reply(status: u16, headers: &'static str, body: FramePayload) -> Result<HandlerReply, String> {
        HandlerReply::from_answer(frame::HandlerAnswer { status, headers: Bytes::from(headers), body })
    }

    fn respond(reply: HandlerReply) -> Response<StreamedServiceBody> {
        reply.into_response("/shop", false)
    }

    #[test]
    fn rule_13_a_body_has_the_type_of_its_kind() {
        for (body, status, media) in [
            (FramePayload::text("x".into()), 200, Some("text/plain; charset=utf-8")),
            (FramePayload::json("[1]".into()), 200, Some("application/json")),
            (FramePayload::bytes("x".into()), 200, Some("application/octet-stream")),
            (FramePayload::default(), 204, None),
        ] {
            let response = respond(make_reply(0, "", body).expect("an answer"));
            assert_eq!(response.status(), status);
            assert_eq!(response.headers().get(CONTENT_TYPE).and_then(|media| media.to_str().ok()), media);
        }
    }

    #[test]
    fn rule_22_a_location_is_relative_to_the_mount_path() {
        for (said, sent) in [("/total/1", "/shop/total/1"), ("http://x/", "http://x/"), ("//x/", "//x/")] {
            let headers = Bytes::from(serde_json::json!({ "Location": said }).to_string());
            let answer = frame::HandlerAnswer { status: 302, headers, body: FramePayload::default() };
            let response = respond(HandlerReply::from_answer(answer).expect("an answer"));
            assert_eq!(response.headers()[LOCATION], sent);
        }
    }

    #[test]
    fn rule_22_a_location_is_percent_encoded() {
        for (given, sent) in [
            ("/lists/é", "/shop/lists/%C3%A9"),
            ("/lists/a b?q=ü#ä", "/shop/lists/a%20b?q=%C3%BC#%C3%A4"),
            ("/lists/%C3%A9", "/shop/lists/%C3%A9"),
            ("/\\other.example/", "/shop/%5Cother.example/"),
            ("http://x/é", "http://x/%C3%A9"),
            ("é", "%C3%A9"),
        ] {
            let headers = Bytes::from(serde_json::json!({ "Location": given }).to_string());
            let answer = || frame::HandlerAnswer {
                status: 201,
                headers: headers.clone(),
                body: FramePayload::default(),
            };
            let response = respond(HandlerReply::from_answer(answer()).expect("an answer"));
            assert_eq!(response.headers()[LOCATION], sent, "{given}");
            let response = HandlerReply::from_answer(answer()).expect("an answer").into_response("", false);
            assert_eq!(response.headers()[LOCATION], sent.replacen("/shop", "", 1), "{given}");
        }
    }

    #[test]
    fn a_script_cannot_set_connection_headers() {
        let said =
            r#"{"Content-Length": 7, "Transfer-Encoding": "chunked", "X-A": ["1", 2], "Set-Cookie": null}"#;
        let response = respond(make_reply(200, said, FramePayload::text("x".into())).expect("an answer"));
        assert_eq!(
            response.headers().keys().map(HeaderName::as_str).collect::<Vec<_>>(),
            ["x-a", "content-type"]
        );
        assert_eq!(response.headers().get_all("x-a").iter().count(), 2);
    }

    #[test]
    fn invalid_answers_are_errors() {
        assert!(make_reply(99, "", FramePayload::default()).is_err());
        assert!(make_reply(100, "", FramePayload::default()).is_err());
        assert!(make_reply(200, "{", FramePayload::default()).is_err());
        assert!(make_reply(200, r#"{"a b": 1}"#, FramePayload::default()).is_err());
        assert!(make_reply(200, r#"{"a": "\n"}"#, FramePayload::default()).is_err());
        let answer = |length: usize| {
            let headers = Bytes::from(format!(r#"{{"a":"{}"}}"#, "x".repeat(length - 8)));
            frame::HandlerAnswer { status: 200, headers, body: FramePayload::default() }
        };
        assert!(HandlerReply::from_answer(answer(MAX_HEADERS)).is_ok());
        assert!(HandlerReply::from_answer(answer(MAX_HEADERS + 1)).is_err());
    }

    #[test]
    fn a_head_response_has_the_content_length_of_the_body() {
        let reply = make_reply(200, "", FramePayload::text("four".into())).expect("an answer");
        let response = reply.into_response("", true);
        assert_eq!(response.headers()[CONTENT_LENGTH], "4");
        assert!(response.body().is_end_stream());
        for status in [204, 205] {
            let reply = self::make_reply(status, "", FramePayload::text("four".into())).expect("an answer");
            assert!(!reply.into_response("", true).headers().contains_key(CONTENT_LENGTH), "{status}");
        }
    }
}
