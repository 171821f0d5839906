//! Protocol upgrades of proxied requests (RFC 9110, section 7.8), such as WebSocket.
//!
//! After a switch of protocols the gateway sees bytes instead of requests: rights, filters, `paths` and the
//! removal of credentials no longer apply. Of a client's offers, only those that the service's config lists
//! are forwarded. Others are dropped, and the request proceeds without them. A service that switches to a
//! protocol that was not offered is treated as broken. HTTP itself is never tunnelled (`h2c`), since its
//! requests would bypass all checks. Upgrades exist in HTTP/1.1 only.
//!
//! After a switch, the server connects the client with the service by a [`ServiceTunnel`].
//!
//! A tunnel without traffic in either direction for `upgrade_idle_timeout` is closed: a vanished peer cannot
//! be detected otherwise, and its tunnel would stay open forever.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONNECTION, HeaderName, HeaderValue, UPGRADE};
use http::{HeaderMap, Response, StatusCode, Version, request};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf, copy_bidirectional};
use tokio::time::{Instant, sleep_until};
use tokio_util::io::InspectReader;

use super::http1::ResettingSocket;
use crate::body::StreamedServiceBody;
use crate::headers::{list_contains, list_members};

/// Protocols that connections are never upgraded to, by the name before a version: they would hide other
/// requests, or require the gateway to have their keys.
const NEVER_TUNNELLED: [&str; 5] = ["http", "h2", "h2c", "h3", "tls"];

/// The protocols that a request offers and the service's config lists.
pub(crate) struct UpgradeOffer(Vec<HeaderValue>);

/// The service's side of an upgraded connection, as an extension of its response.
#[derive(Clone)]
pub(crate) struct UpgradedService(Arc<Mutex<Option<UpgradedStream>>>);

/// A tunnel to the service, as an extension of a 101 response. The server connects the client's side to it
/// once the response is written.
#[derive(Clone)]
pub struct ServiceTunnel(Arc<Mutex<Option<TunnelServiceSide>>>);

/// A guard that a tunnel holds until it is closed, such as an endpoint lease or a concurrency permit.
type TunnelGuard = Box<dyn Send>;

/// The connection, and the bytes that were read from it already.
type UpgradedStream = (ResettingSocket, Bytes);

/// The service's side of a tunnel. The guards are held until the tunnel closes.
struct TunnelServiceSide {
    service: UpgradedStream,
    idle_timeout: Duration,
    guards: Vec<TunnelGuard>,
}

/// A stream whose first bytes were read already, and are read again. Their buffer is freed after that.
#[derive(Debug)]
pub struct RewoundStream<S> {
    read_ahead: Bytes,
    stream: S,
}

impl<S> RewoundStream<S> {
    /// Creates a stream from the rest of it and the bytes that were read already.
    #[must_use]
    pub fn new(stream: S, read_ahead: Bytes) -> Self {
        Self { read_ahead, stream }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for RewoundStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.read_ahead.is_empty() {
            return Pin::new(&mut self.stream).poll_read(context, buffer);
        }
        let length = self.read_ahead.len().min(buffer.remaining());
        buffer.put_slice(&self.read_ahead.split_to(length));
        if self.read_ahead.is_empty() {
            // An empty slice may still hold the buffer.
            self.read_ahead = Bytes::new();
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for RewoundStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

impl UpgradedService {
    pub(crate) fn new(stream: ResettingSocket, begun: Bytes) -> Self {
        Self(Arc::new(Mutex::new(Some((stream, begun)))))
    }

    fn take_stream(&self) -> Option<UpgradedStream> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl ServiceTunnel {
    /// Copies bytes in both directions until both sides have ended, one of them fails, or the idle timeout
    /// expires. Further calls have no effect.
    pub async fn connect_client(&self, client: impl AsyncRead + AsyncWrite + Unpin) {
        let side = self.lock().take();
        let Some(TunnelServiceSide { service: (stream, begun), idle_timeout: idle, guards: _guards }) = side
        else {
            return;
        };
        splice(client, RewoundStream::new(stream, begun), idle).await;
    }

    /// Holds a guard until the tunnel closes, so that limits include open tunnels.
    pub fn hold_guard(&self, guard: impl Send + 'static) {
        if let Some(side) = &mut *self.lock() {
            side.guards.push(Box::new(guard));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<TunnelServiceSide>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl UpgradeOffer {
    /// Reads the offers of a request that are `listed`. Requests with a body are excluded, since the switch
    /// could occur in the middle of the body.
    pub(crate) fn from_request(
        head: &request::Parts,
        has_body: bool,
        listed: &[HeaderValue],
    ) -> Option<Self> {
        let headers = &head.headers;
        let is_offer = head.version == Version::HTTP_11
            && !has_body
            && headers.contains_key(UPGRADE)
            && list_contains(headers, &CONNECTION, b"upgrade");
        if !is_offer {
            return None;
        }
        let is_offered = |listed: &&HeaderValue| list_contains(headers, &UPGRADE, listed.as_bytes());
        let offered: Vec<HeaderValue> = listed.iter().filter(is_offered).cloned().collect();
        (!offered.is_empty()).then_some(Self(offered))
    }

    /// Adds the offer for the service: the client's own header was hop-by-hop, and has been removed.
    pub(crate) fn add_headers(&self, headers: &mut HeaderMap) {
        for protocol in &self.0 {
            headers.append(UPGRADE, protocol.clone());
        }
    }

    /// Returns the offered protocol that a response switches to; `None` if it names another protocol,
    /// none or several.
    fn accepted_protocol(&self, response: &Response<StreamedServiceBody>) -> Option<&HeaderValue> {
        let mut named = list_members(response.headers(), &UPGRADE);
        let (Some(named), None) = (named.next(), named.next()) else { return None };
        self.0.iter().find(|offered| offered.as_bytes().eq_ignore_ascii_case(named))
    }

    /// Whether a response switches to a protocol that was offered.
    pub(crate) fn is_accepted(&self, response: &Response<StreamedServiceBody>) -> bool {
        self.accepted_protocol(response).is_some()
    }

    /// Turns an accepting response of the service into the response to the client, with a tunnel to the
    /// service that holds the endpoint's lease. Returns `false` if the response does not accept the offer.
    pub(crate) fn accept_switch(
        &self,
        response: &mut Response<StreamedServiceBody>,
        lease: impl Send + 'static,
        idle: Duration,
    ) -> bool {
        let protocol = self.accepted_protocol(response).cloned();
        let service =
            response.extensions_mut().remove::<UpgradedService>().and_then(|switched| switched.take_stream());
        let (Some(protocol), Some(service)) = (protocol, service) else { return false };
        crate::headers::strip_hop_by_hop(response.headers_mut());
        response.headers_mut().insert(UPGRADE, protocol);
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("upgrade"));
        let side = TunnelServiceSide { service, idle_timeout: idle, guards: vec![Box::new(lease)] };
        response.extensions_mut().insert(ServiceTunnel(Arc::new(Mutex::new(Some(side)))));
        true
    }
}

/// Parses a protocol from the config: a name, and optionally a version after a slash (RFC 9110, section 7.8).
///
/// # Errors
/// The reason why connections cannot be upgraded to the protocol.
pub(crate) fn parse_protocol(text: &str) -> Result<HeaderValue, &'static str> {
    let mut parts = text.split('/');
    let (name, version) = (parts.next().unwrap_or_default(), parts.next());
    // Field names are tokens, as are the parts of a protocol.
    let is_token = |part: &str| HeaderName::from_bytes(part.as_bytes()).is_ok();
    if !is_token(name) || version.is_some_and(|version| !is_token(version)) || parts.next().is_some() {
        return Err("it is not a protocol of an `Upgrade` field");
    }
    if NEVER_TUNNELLED.iter().any(|never| name.eq_ignore_ascii_case(never)) {
        return Err("its requests would bypass the gateway's checks");
    }
    HeaderValue::from_str(text).map_err(|_| "it is not a protocol of an `Upgrade` field")
}

/// Whether a response switches protocols.
pub(crate) fn is_protocol_switch(response: &Response<StreamedServiceBody>) -> bool {
    response.status() == StatusCode::SWITCHING_PROTOCOLS
}

/// Copies bytes in both directions until both sides have ended, one of them fails, or the idle timeout
/// expires.
async fn splice(
    client: impl AsyncRead + AsyncWrite + Unpin,
    service: impl AsyncRead + AsyncWrite + Unpin,
    idle: Duration,
) {
    let moved = LastActivity(Mutex::new(Instant::now()));
    // A side that stops reading also stalls the other side, which counts as idle.
    let mut client = InspectReader::new(client, |_: &[u8]| moved.record_activity());
    let mut service = InspectReader::new(service, |_: &[u8]| moved.record_activity());
    tokio::select! {
        // Errors of either side just end the tunnel.
        _ = copy_bidirectional(&mut client, &mut service) => {}
        () = moved.wait_until_idle(idle) => {}
    }
}

/// The time of the last bytes from either side.
struct LastActivity(Mutex<Instant>);

impl LastActivity {
    fn record_activity(&self) {
        *self.lock() = Instant::now();
    }

    /// Waits until there was no traffic for `idle`. Rechecks only when the timeout could have expired:
    /// traffic wakes no task.
    async fn wait_until_idle(&self, idle: Duration) {
        loop {
            let end = *self.lock() + idle;
            if end <= Instant::now() {
                return;
            }
            sleep_until(end).await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Instant> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
