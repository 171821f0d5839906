//! An exchange as all its filters see it: the heads of its two messages, whether they can still be changed,
//! and the data that filters share. The filter chain drives it.

mod info;
pub(crate) mod message;
mod spelling;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderValue};
use http::{Method, StatusCode, request, response};
use services::RequestCall;

use self::message::{ClientScheme, HeadOverrides, MessageHead};
use crate::abi::MessageSide;
use crate::sync::lock;

pub use self::info::{CertificateInfo, ExchangeInfo, TlsInfo};

/// An exchange, shared by all its filters.
pub(crate) struct FilterExchange {
    pub(crate) facts: ExchangeInfo,
    pub(crate) call: RequestCall,
    byte_counts: [AtomicU64; 2],
    messages: Mutex<ExchangeMessages>,
}

/// The heads of the two messages, and the data that filters share.
pub(crate) struct ExchangeMessages {
    pub(crate) request: Option<request::Parts>,
    pub(crate) head_overrides: HeadOverrides,
    pub(crate) response: Option<response::Parts>,
    /// The response's trailers, once they have left.
    pub(crate) trailers: Option<HeaderMap>,
    /// The number of calls made before the handler's own.
    pub(crate) calls_before: usize,
    /// Whether the request's head has left for the handler.
    request_has_left: bool,
    request_properties: RequestProperties,
    /// Whether the response's head has left for the client.
    pub(crate) response_has_left: bool,
    /// Whether the exchange is over and only read by final callbacks.
    pub(crate) is_over: bool,
    /// The announced lengths of the request and the response before a filter changed the heads; `None` if
    /// none did.
    announced_lengths: [Option<AnnouncedLength>; 2],
    /// Changes of a response that has not arrived yet.
    pub(crate) early_changes: Vec<EarlyResponseChange>,
    pub(crate) properties: HashMap<Vec<u8>, Bytes>,
    /// The id of the request, if it has no id header.
    pub(crate) id: Option<Bytes>,
    /// The details of a local response, given by the filter.
    pub(crate) details: String,
}

/// The properties of a request that affect its response, kept after the head has left.
#[derive(Default)]
struct RequestProperties {
    is_head: bool,
    is_grpc: bool,
}

/// The `content-length` of a head, if it has one.
struct AnnouncedLength(Option<HeaderValue>);

/// A change of a response that has not arrived yet.
pub(crate) enum EarlyResponseChange {
    Add((Vec<u8>, HeaderValue)),
    Replace((Vec<u8>, HeaderValue)),
    Remove(Vec<u8>),
}

impl FilterExchange {
    pub(crate) fn new(head: request::Parts, call: RequestCall, facts: ExchangeInfo) -> Arc<Self> {
        let messages = ExchangeMessages {
            request: Some(head),
            head_overrides: HeadOverrides::new(ClientScheme(facts.tls.is_some())),
            response: None,
            trailers: None,
            calls_before: 0,
            request_has_left: false,
            request_properties: RequestProperties::default(),
            response_has_left: false,
            is_over: false,
            announced_lengths: [None, None],
            early_changes: Vec::new(),
            properties: HashMap::new(),
            id: None,
            details: String::new(),
        };
        Arc::new(Self { facts, call, byte_counts: Default::default(), messages: Mutex::new(messages) })
    }

    pub(crate) fn messages(&self) -> MutexGuard<'_, ExchangeMessages> {
        lock(&self.messages)
    }

    /// The request's deadline.
    pub(crate) fn deadline(&self) -> tokio::time::Instant {
        self.call.budget.deadline.into()
    }

    /// Counts bytes of a body.
    pub(crate) fn count_bytes(&self, side: MessageSide, bytes: usize) {
        let [request, response] = &self.byte_counts;
        let counter = if side == MessageSide::Request { request } else { response };
        counter.fetch_add(bytes as u64, Relaxed);
    }

    /// The number of bytes of a body so far.
    pub(crate) fn byte_count(&self, side: MessageSide) -> u64 {
        let [request, response] = &self.byte_counts;
        if side == MessageSide::Request { request.load(Relaxed) } else { response.load(Relaxed) }
    }

    pub(crate) fn is_grpc(&self) -> bool {
        let messages = self.messages();
        messages.request.as_ref().map_or(messages.request_properties.is_grpc, is_grpc_request)
    }
}

impl ExchangeMessages {
    /// Returns a head, if it is present.
    pub(crate) fn head(&mut self, is_request: bool) -> Option<MessageHead<'_>> {
        if is_request {
            self.request.as_mut().map(|head| MessageHead::Request(head, &mut self.head_overrides))
        } else {
            self.response.as_mut().map(MessageHead::Response)
        }
    }

    /// The number of headers of a head.
    pub(crate) fn header_count(&mut self, side: MessageSide) -> u32 {
        self.head(side == MessageSide::Request).map_or(0, |head| head.count())
    }

    /// Whether the response has no body, regardless of its headers.
    pub(crate) fn is_bodiless(&self) -> bool {
        let is_head =
            self.request.as_ref().map_or(self.request_properties.is_head, |head| head.method == Method::HEAD);
        let status = self.response.as_ref().map(|head| head.status);
        let is_empty = |status| {
            matches!(status, StatusCode::NO_CONTENT | StatusCode::RESET_CONTENT | StatusCode::NOT_MODIFIED)
        };
        is_head || status.is_some_and(is_empty)
    }

    /// Whether a head can still be changed.
    pub(crate) fn is_changeable(&self, is_request: bool) -> bool {
        match is_request {
            true => !self.request_has_left && self.request.is_some(),
            false => !self.response_has_left && self.response.is_some(),
        }
    }

    /// Whether the request's head has left for the handler.
    pub(crate) fn has_request_left(&self) -> bool {
        self.request_has_left
    }

    pub(crate) fn release_request(&mut self, keeps: bool) -> Option<request::Parts> {
        self.request_has_left = true;
        if keeps {
            return self.request.clone();
        }
        let request = self.request.take()?;
        self.request_properties =
            RequestProperties { is_head: request.method == Method::HEAD, is_grpc: is_grpc_request(&request) };
        Some(request)
    }

    pub(crate) fn release_response(&mut self, keeps: bool) -> Option<response::Parts> {
        self.response_has_left = true;
        if keeps { self.response.clone() } else { self.response.take() }
    }

    /// Returns a head to be changed, and records the length that it announced before.
    pub(crate) fn head_mut(&mut self, is_request: bool) -> Option<MessageHead<'_>> {
        let [of_request, of_response] = &mut self.announced_lengths;
        let (announced, headers) = match is_request {
            true => (of_request, &self.request.as_ref()?.headers),
            false => (of_response, &self.response.as_ref()?.headers),
        };
        announced.get_or_insert_with(|| AnnouncedLength(headers.get(CONTENT_LENGTH).cloned()));
        self.head(is_request)
    }

    /// Removes the announced length before a head leaves if filters have changed the header or the body,
    /// since the value is then unverified.
    pub(crate) fn settle_length(&mut self, side: MessageSide, is_changed: bool) {
        let is_bodiless = side == MessageSide::Response && self.is_bodiless();
        let [of_request, of_response] = &mut self.announced_lengths;
        let (before, headers) = match side {
            MessageSide::Request => (of_request.take(), self.request.as_mut().map(|head| &mut head.headers)),
            MessageSide::Response => {
                (of_response.take(), self.response.as_mut().map(|head| &mut head.headers))
            }
        };
        let Some(headers) = headers.filter(|_| !is_bodiless) else { return };
        let is_other = |AnnouncedLength(before)| !headers.get_all(CONTENT_LENGTH).iter().eq(&before);
        if is_changed || before.is_some_and(is_other) {
            headers.remove(CONTENT_LENGTH);
        }
    }

    /// The announced length of the body that follows a head.
    pub(crate) fn announced_length(&self, side: MessageSide) -> Option<u64> {
        let headers = match side {
            MessageSide::Request => &self.request.as_ref()?.headers,
            MessageSide::Response if self.is_bodiless() => return None,
            MessageSide::Response => &self.response.as_ref()?.headers,
        };
        headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
    }

    /// Stores a response and applies the changes that filters have requested before.
    pub(crate) fn set_response(&mut self, head: response::Parts) {
        let [_, of_response] = &mut self.announced_lengths;
        *of_response = None;
        self.response = Some(head);
        if self.early_changes.is_empty() {
            return;
        }
        let early = std::mem::take(&mut self.early_changes);
        let Some(mut head) = self.head_mut(false) else { return };
        for early in &early {
            // Early changes were validated when they were made. Any that no longer fits is skipped.
            let _ = match early {
                EarlyResponseChange::Add((name, value)) => head.add(name, value.as_bytes()),
                EarlyResponseChange::Replace((name, value)) => head.replace(name, value.as_bytes()),
                EarlyResponseChange::Remove(name) => {
                    head.remove(name);
                    Ok(())
                }
            };
        }
        self.early_changes = early;
    }
}

fn is_grpc_request(head: &request::Parts) -> bool {
    let content = head.headers.get(CONTENT_TYPE);
    content.is_some_and(|value| value.as_bytes().starts_with(b"application/grpc"))
}

/// Sets the headers of a gRPC response. Its HTTP status is always 200.
pub(crate) fn grpc_headers(headers: &mut HeaderMap, status: u32, message: &str) {
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    headers.insert("grpc-status", HeaderValue::from(status));
    if let Ok(message) = HeaderValue::from_str(message) {
        headers.insert("grpc-message", message);
    }
}
