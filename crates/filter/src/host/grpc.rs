//! gRPC calls: unary ones and streams, over HTTP/2 to a service with `protocol: http2`.
//!
//! Messages are sent and received uncompressed. A unary call ends with its message or its failure, a stream
//! with its trailers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use futures_util::stream;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderValue, TE};
use http::{Method, Request, Uri};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use offload::QuotaKey;
use sandbox::GuestResult;
use services::coop::ByteTurn;
use services::{StreamedServiceBody, body};
use tokio::sync::mpsc;

use super::calls::{CallOrigin, check_payload, resolve_service};
use super::memory::MemorySpan;
use super::refusals::{CallRefusal, log_failure};
use super::system::grpc_status;
use super::{GuestModule, HostResult};
use crate::abi::HostStatus;
use crate::context::{ContextEvent, GrpcEvent, InstanceHandle, ReceivedData, RootGrpcEvent};
use crate::exchange::message::{self, MessageHead};

/// The maximum number of messages that wait to be sent on a stream.
const MAX_QUEUED_MESSAGES: usize = 256;
/// The length of a message's prefix in bytes.
const PREFIX_LENGTH: u64 = 5;
/// Status codes of gRPC.
const OK: u32 = 0;
const DEADLINE_EXCEEDED: u32 = 4;
const RESOURCE_EXHAUSTED: u32 = 8;
const UNIMPLEMENTED: u32 = 12;
const INTERNAL: u32 = 13;
const UNAVAILABLE: u32 = 14;

/// The receiver of a call's events.
struct GrpcEventTarget {
    instance: InstanceHandle,
    token: u32,
    payer: QuotaKey,
    is_stream: bool,
    limit: u64,
}

/// The status code and message of a call that has ended.
struct GrpcFailure(u32, String);

impl GrpcFailure {
    fn code(&self) -> &'static str {
        match self.0 {
            DEADLINE_EXCEEDED => "upstream-timeout",
            UNAVAILABLE => "upstream-unreachable",
            RESOURCE_EXHAUSTED => "filter-response-too-large",
            _ => "upstream-broken",
        }
    }
}

/// The parameters of `proxy_grpc_call`: pointer and length of the upstream, the service, the method, the
/// metadata and the message, the timeout, and the address to which the token is written.
type GrpcCallParameters = (u32, u32, u32, u32, u32, u32, u32, u32, u32, u32, u32, u32);

/// `proxy_grpc_call`
///
/// # Errors
/// Traps if the callback's time limit is exceeded.
pub(super) async fn call(
    guest: &mut GuestModule<'_>,
    (
        upstream,
        upstream_length,
        name,
        name_length,
        method,
        method_length,
        metadata,
        metadata_length,
        message,
        message_length,
        timeout,
        to,
    ): GrpcCallParameters,
) -> GuestResult<HostResult> {
    let parts = CallParts {
        name: "proxy_grpc_call",
        target: [(upstream, upstream_length), (name, name_length), (method, method_length)],
        metadata: (metadata, metadata_length),
        to,
    };
    let message = (message, message_length);
    let payload = match check_payload(guest, message) {
        Ok(()) => copy_framed(guest, message).await?.map(body::full).map_err(CallRefusal::from),
        Err(refusal) => Err(refusal),
    };
    Ok(begin_call(guest, &parts, payload, None, Duration::from_millis(timeout.into())))
}

/// `proxy_grpc_stream`
#[expect(clippy::too_many_arguments, reason = "the ABI has as many")]
pub(super) fn stream(
    guest: &mut GuestModule<'_>,
    upstream: u32,
    upstream_length: u32,
    name: u32,
    name_length: u32,
    method: u32,
    method_length: u32,
    metadata: u32,
    metadata_length: u32,
    to: u32,
) -> HostResult {
    let (outbox, payload) = GrpcOutbox::new();
    let parts = CallParts {
        name: "proxy_grpc_stream",
        target: [(upstream, upstream_length), (name, name_length), (method, method_length)],
        metadata: (metadata, metadata_length),
        to,
    };
    begin_call(guest, &parts, Ok(payload), Some(outbox), Duration::ZERO)
}

/// The arguments of a call, in the module's memory.
struct CallParts {
    /// The name of the host function.
    name: &'static str,
    /// The upstream, the service and the method.
    target: [(u32, u32); 3],
    metadata: (u32, u32),
    to: u32,
}

fn begin_call(
    guest: &mut GuestModule<'_>,
    parts: &CallParts,
    payload: Result<StreamedServiceBody, CallRefusal>,
    outbox: Option<GrpcOutbox>,
    time: Duration,
) -> HostResult {
    let [upstream, name, method] = parts.target.map(|span| guest.memory_text(span).unwrap_or_default());
    guest.describe_call(|| format!("{upstream}, /{name}/{method}"));
    let target = (&*upstream, &*name, &*method);
    let made = payload.and_then(|payload| start_call(guest, parts, target, payload, outbox, time));
    guest.host().note_call(parts.name, &upstream, made)
}

fn start_call(
    guest: &mut GuestModule<'_>,
    parts: &CallParts,
    (upstream, name, method): (&str, &str, &str),
    payload: StreamedServiceBody,
    outbox: Option<GrpcOutbox>,
    time: Duration,
) -> Result<(), CallRefusal> {
    for span in parts.target {
        guest.short_bytes(span)?;
    }
    guest.write_u32(parts.to, 0)?;
    // Envoy accepts a cluster name or a whole configuration; only a cluster name is meaningful here.
    let service = resolve_service(guest.host(), upstream)?;
    let mut request = build_request(name, method, guest.memory_bytes(parts.metadata)?, payload)
        .map_err(|_| CallRefusal::Headers)?;
    let is_stream = outbox.is_some();
    // The timeout applies to unary calls only. A stream lasts as long as its request or its filter.
    let time = if time.is_zero() { service.timeout() } else { time };
    let maker = CallOrigin::new(guest.host_mut(), is_stream)?;
    maker.set_hop_count(request.headers_mut());
    let spec = Arc::clone(guest.host().spec().ok_or(CallRefusal::Unavailable)?);
    let (limit, token) = (spec.limits.buffer.0, maker.token);
    let (instance, payer) = (maker.instance.clone(), maker.call.quota_key());
    let target = GrpcEventTarget { instance, token, payer, is_stream, limit };
    let answer = spec.services.forward(&maker.call, &service, request, None);
    let (function, upstream) = (parts.name, upstream.to_owned());
    maker.spawn(guest.host_mut(), outbox, async move {
        let whole = async {
            match answer.await {
                Ok(answer) => target.deliver_response(answer).await,
                Err(error) => Err(GrpcFailure(UNAVAILABLE, error.to_string())),
            }
        };
        let late =
            || Err(GrpcFailure(DEADLINE_EXCEEDED, format!("it took longer than its timeout of {time:?}")));
        let result = match is_stream {
            true => whole.await,
            false => tokio::time::timeout(time, whole).await.unwrap_or_else(|_| late()),
        };
        if let Err(failure) = result {
            log_failure(&spec, function, &upstream, failure.code(), &failure.1);
            target.deliver_close(failure.0, failure.1).await;
        }
    });
    Ok(guest.write_u32(parts.to, token)?)
}

fn build_request(
    service: &str,
    method: &str,
    metadata: &[u8],
    payload: StreamedServiceBody,
) -> Result<Request<StreamedServiceBody>, HostStatus> {
    let mut headers = HeaderMap::new();
    for (name, value) in message::decode_pairs(metadata)? {
        MessageHead::Plain(&mut headers).add(name, value)?;
    }
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    headers.insert(TE, HeaderValue::from_static("trailers"));
    let mut request = Request::new(payload);
    *request.method_mut() = Method::POST;
    *request.uri_mut() =
        Uri::try_from(format!("/{service}/{method}")).map_err(|_| HostStatus::BadArgument)?;
    *request.headers_mut() = headers;
    Ok(request)
}

/// The queue of messages to be sent on a stream.
#[derive(Clone)]
pub(super) struct GrpcOutbox {
    sender: mpsc::Sender<Bytes>,
    /// The number of bytes queued.
    queued_bytes: Arc<AtomicU64>,
}

impl GrpcOutbox {
    /// Creates an empty queue and the body that reads from it.
    fn new() -> (Self, StreamedServiceBody) {
        let (sender, mut receiver) = mpsc::channel::<Bytes>(MAX_QUEUED_MESSAGES);
        let queued = Arc::<AtomicU64>::default();
        let sent = Arc::clone(&queued);
        let pieces = stream::poll_fn(move |context| receiver.poll_recv(context));
        let frames = futures_util::StreamExt::map(pieces, move |piece: Bytes| {
            sent.fetch_sub(piece.len() as u64, Relaxed);
            Ok(Frame::data(piece))
        });
        (Self { sender, queued_bytes: queued }, StreamBody::new(frames).boxed_unsync())
    }

    /// Queues a message, unless the queued bytes would exceed the limit.
    fn send(&self, message: Bytes, limit: u64) -> Result<(), HostStatus> {
        let length = message.len() as u64;
        if self.queued_bytes.fetch_add(length, Relaxed).saturating_add(length) <= limit
            && self.sender.try_send(message).is_ok()
        {
            return Ok(());
        }
        self.queued_bytes.fetch_sub(length, Relaxed);
        Err(HostStatus::InternalFailure)
    }
}

/// `proxy_grpc_send`
///
/// # Errors
/// Traps if the callback's time limit is exceeded.
pub(super) async fn send(
    guest: &mut GuestModule<'_>,
    (token, message, length, end): (u32, u32, u32, u32),
) -> GuestResult<HostResult> {
    let message = match check_payload(guest, (message, length)) {
        Ok(()) => copy_framed(guest, (message, length)).await?,
        Err(refusal) => Err(refusal.status()),
    };
    Ok(message.and_then(|message| queue_message(guest, token, message, end != 0)))
}

/// Queues a message on a stream, the last one if `is_end` is set.
fn queue_message(guest: &mut GuestModule<'_>, token: u32, message: Bytes, is_end: bool) -> HostResult {
    let limit = guest.host().spec().map_or(0, |spec| spec.limits.buffer.0);
    let pending = guest.host_mut().calls.get_mut(token).ok_or(HostStatus::BadArgument)?;
    let outbox = pending.messages.as_ref().ok_or(HostStatus::BadArgument)?;
    let sent = outbox.send(message, limit.saturating_add(PREFIX_LENGTH));
    if is_end {
        pending.messages = None;
    }
    sent
}

/// `proxy_grpc_cancel`
pub(super) fn cancel(guest: &mut GuestModule<'_>, token: u32) -> HostResult {
    let host = guest.host_mut();
    let pending = host.calls.cancel(token).ok_or(HostStatus::BadArgument)?;
    host.end_call(&pending);
    Ok(())
}

/// `proxy_grpc_close`: ends the sending side.
pub(super) fn close(guest: &mut GuestModule<'_>, token: u32) -> HostResult {
    let pending = guest.host_mut().calls.get_mut(token).ok_or(HostStatus::BadArgument)?;
    if pending.messages.take().is_some() { Ok(()) } else { cancel(guest, token) }
}

/// `proxy_get_status`: the status of the call that the callback is about.
pub(super) fn get_status(guest: &mut GuestModule<'_>, code: u32, text: u32, length: u32) -> HostResult {
    let (status, message) = guest.host().received_data.status.clone();
    guest.write_u32(code, status)?;
    guest.return_bytes(message, (text, length))
}

/// Copies a message, with its prefix.
async fn copy_framed(guest: &mut GuestModule<'_>, message: MemorySpan) -> GuestResult<HostResult<Bytes>> {
    Ok(guest.append_bytes(message_prefix(message.1), message).await?.map(BytesMut::freeze))
}

/// The prefix of a message: a zero for "not compressed", and its length.
fn message_prefix(length: u32) -> BytesMut {
    let mut prefix = BytesMut::with_capacity(PREFIX_LENGTH as usize);
    prefix.put_u8(0);
    prefix.put_u32(length);
    prefix
}

/// Removes the next complete message, if there is one.
fn unframe(data: &mut BytesMut, limit: u64) -> Result<Option<Bytes>, GrpcFailure> {
    let Some((front, _)) = data.split_first_chunk::<5>() else { return Ok(None) };
    let [compressed, a, b, c, d] = *front;
    let length = u32::from_be_bytes([a, b, c, d]) as usize;
    if compressed != 0 {
        return Err(GrpcFailure(UNIMPLEMENTED, "the message is compressed".to_owned()));
    }
    if length as u64 > limit {
        return Err(GrpcFailure(RESOURCE_EXHAUSTED, "the message is too large".to_owned()));
    }
    if data.len() < length + 5 {
        return Ok(None);
    }
    data.advance(5);
    Ok(Some(data.split_to(length).freeze()))
}

impl GrpcEventTarget {
    /// Delivers a response as it arrives. `Err` is a final status that has not been delivered yet.
    async fn deliver_response(&self, answer: http::Response<StreamedServiceBody>) -> Result<(), GrpcFailure> {
        let (head, mut body) = answer.into_parts();
        if !head.status.is_success() {
            return Err(GrpcFailure(grpc_status(head.status), format!("HTTP {}", head.status)));
        }
        if let Some(end) = final_status(&head.headers) {
            // A trailers-only response.
            return self.finish_call(head.headers, end).await;
        }
        if self.is_stream {
            let number = u32::try_from(head.headers.len()).unwrap_or(u32::MAX);
            let received = ReceivedData { metadata: head.headers, ..ReceivedData::default() };
            self.deliver_event(RootGrpcEvent::InitialMetadata(number), false, received).await;
        }
        let (mut data, mut turn) = (BytesMut::new(), ByteTurn::default());
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| GrpcFailure(UNAVAILABLE, error.to_string()))?;
            match frame.into_data() {
                Ok(piece) => {
                    turn.consume_bytes(piece.len()).await;
                    data.extend_from_slice(&piece);
                    while let Some(message) = unframe(&mut data, self.limit)? {
                        turn.consume_bytes(message.len()).await;
                        let size = u32::try_from(message.len()).unwrap_or(u32::MAX);
                        let received = ReceivedData { body: message, ..ReceivedData::default() };
                        self.deliver_event(RootGrpcEvent::Message(size), !self.is_stream, received).await;
                        if !self.is_stream {
                            return Ok(());
                        }
                    }
                }
                Err(frame) => {
                    let trailers = frame.into_trailers().unwrap_or_default();
                    let end = final_status(&trailers)
                        .unwrap_or(GrpcFailure(INTERNAL, "the response has no gRPC status".to_owned()));
                    return self.finish_call(trailers, end).await;
                }
            }
        }
        Err(GrpcFailure(INTERNAL, "the response has no trailers".to_owned()))
    }

    async fn finish_call(
        &self,
        trailers: HeaderMap,
        GrpcFailure(status, message): GrpcFailure,
    ) -> Result<(), GrpcFailure> {
        if self.is_stream {
            let number = u32::try_from(trailers.len()).unwrap_or(u32::MAX);
            let received = ReceivedData { trailers, ..ReceivedData::default() };
            self.deliver_event(RootGrpcEvent::TrailingMetadata(number), false, received).await;
        }
        // A successful unary call has ended with its message. One that ends without a message failed.
        let status = if !self.is_stream && status == OK { INTERNAL } else { status };
        self.deliver_close(status, message).await;
        Ok(())
    }

    async fn deliver_close(&self, status: u32, message: String) {
        let received = ReceivedData { status: (status, message.into()), ..ReceivedData::default() };
        self.deliver_event(RootGrpcEvent::Close(status), true, received).await;
    }

    async fn deliver_event(&self, event: RootGrpcEvent, is_last: bool, received: ReceivedData) {
        let event = GrpcEvent { token: self.token, payer: self.payer, event, is_last, received };
        self.instance.deliver(ContextEvent::Grpc(event)).await;
    }
}

/// The status in trailers.
fn final_status(trailers: &HeaderMap) -> Option<GrpcFailure> {
    let status = trailers.get("grpc-status")?.to_str().ok()?.parse().ok()?;
    let message = trailers.get("grpc-message").and_then(|message| message.to_str().ok());
    Some(GrpcFailure(status, message.unwrap_or_default().to_owned()))
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn refuses_messages_beyond_queue_length_or_bytes() {
        let message = || Bytes::from_static(b"four");
        let (outbox, mut body) = GrpcOutbox::new();
        for _ in 0..MAX_QUEUED_MESSAGES {
            assert_eq!(outbox.send(message(), u64::MAX), Ok(()));
        }
        assert_eq!(outbox.send(message(), u64::MAX), Err(HostStatus::InternalFailure));
        // Sending a message frees space.
        let frame = body.frame().now_or_never().flatten().expect("a message").unwrap();
        assert_eq!(frame.into_data().unwrap(), message());
        assert_eq!(outbox.send(message(), u64::MAX), Ok(()));
        let (outbox, _body) = GrpcOutbox::new();
        assert_eq!(outbox.send(message(), 7), Ok(()));
        assert_eq!(outbox.send(message(), 7), Err(HostStatus::InternalFailure));
        assert_eq!(outbox.send(Bytes::from_static(b"abc"), 7), Ok(()));
    }

    #[test]
    fn reassembles_messages_from_any_split() {
        let framed = |message: &[u8]| {
            let mut framed = message_prefix(message.len() as u32);
            framed.extend_from_slice(message);
            framed
        };
        let mut sent = BytesMut::new();
        for message in [b"one".as_slice(), b"", b"three"] {
            sent.extend_from_slice(&framed(message));
        }
        let (mut data, mut messages) = (BytesMut::new(), Vec::new());
        for byte in sent {
            data.put_u8(byte);
            while let Ok(Some(message)) = unframe(&mut data, 5) {
                messages.push(message);
            }
        }
        assert_eq!(messages, ["one", "", "three"]);
        assert!(unframe(&mut framed(b"123456"), 5).is_err());
        assert!(unframe(&mut BytesMut::from(&b"\x01\0\0\0\0"[..]), 5).is_err());
    }
}
