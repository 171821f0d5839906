//! Proxied requests that offer another protocol for their connection (RFC 9110, 7.8): WebSocket.
//!
//! Behind a switch of protocols the gateway sees bytes and no requests: rights, filters, `paths` and the stripping of
//! credentials end there. So of a client's offers only those are passed on that the service's config lists. All
//! others are dropped, and the request is answered as if they had not been made; a service that switches to
//! something that was not offered is broken. HTTP itself is never tunnelled (`h2c`): it would be requests that
//! nothing has checked. Upgrades are a matter of HTTP/1.1 alone.
//!
//! After a switch the server of the client joins the two sides by a [`Tunnel`].
//!
//! All that can be seen of such a connection is whether anything moves. One on which nothing does for
//! `upgrade_idle_timeout` is closed: a peer that vanished says nothing, and would be kept for ever.

use std::io::Cursor;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONNECTION, HeaderName, HeaderValue, UPGRADE};
use http::{HeaderMap, Response, StatusCode, Version, request};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, copy_bidirectional, join, split};
use tokio::time::{Instant, sleep_until};
use tokio_util::io::InspectReader;

use crate::body::Body;
use crate::headers::{lists, tokens};
use crate::targets::Lease;
use crate::transport::Socket;

/// Protocols that no connection may be handed over to, by the name before a version: other requests would hide in
/// them, or the gateway would have to be told their keys.
const NEVER_TUNNELLED: [&str; 5] = ["http", "h2", "h2c", "h3", "tls"];

/// The protocols that a request offers for its connection and the service's config lists.
pub(crate) struct UpgradeOffer(Vec<HeaderValue>);

/// A service's side of a connection that is no longer one of HTTP, among the extensions of its answer.
#[derive(Clone)]
pub(crate) struct Switched(Arc<Mutex<Option<Service>>>);

/// What follows an answer that switches protocols, among its extensions: whoever serves the client joins its
/// side, once the answer is written.
#[derive(Clone)]
pub struct Tunnel(Arc<Mutex<Option<Far>>>);

/// What a tunnel keeps until its sides part: a place among what is counted at once.
type TunnelGuard = Box<dyn Send>;

/// The connection, and what of it was read already.
type Service = (Socket, Bytes);

/// The far side of a tunnel. The lease is held until the sides part.
struct Far {
    service: Service,
    idle: Duration,
    _lease: Lease,
    guards: Vec<TunnelGuard>,
}

impl Switched {
    pub(crate) fn new(stream: Socket, begun: Bytes) -> Self {
        Self(Arc::new(Mutex::new(Some((stream, begun)))))
    }

    fn take(&self) -> Option<Service> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Tunnel {
    /// Passes bytes on both ways until both sides have ended, one of them breaks, or nothing has moved for
    /// too long. A second time there is nobody to pass them to.
    pub async fn join(&self, client: impl AsyncRead + AsyncWrite + Unpin) {
        let far = self.lock().take();
        let Some(Far { service: (stream, begun), idle, _lease, guards: _guards }) = far else { return };
        let (reader, writer) = split(stream);
        splice(client, join(Cursor::new(begun).chain(reader), writer), idle).await;
    }

    /// Keeps a value until the sides part, so that a tunnel counts for as long as it lasts.
    pub fn keep(&self, guard: impl Send + 'static) {
        if let Some(far) = &mut *self.lock() {
            far.guards.push(Box::new(guard));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Far>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl UpgradeOffer {
    /// Reads what a request without a body offers, as far as it is `listed`. A request with a body would go on in the
    /// middle of it.
    pub(crate) fn read(head: &request::Parts, has_body: bool, listed: &[HeaderValue]) -> Option<Self> {
        let headers = &head.headers;
        let is_offer = head.version == Version::HTTP_11
            && !has_body
            && headers.contains_key(UPGRADE)
            && lists(headers, &CONNECTION, b"upgrade");
        if !is_offer {
            return None;
        }
        let is_offered = |listed: &&HeaderValue| lists(headers, &UPGRADE, listed.as_bytes());
        let offered: Vec<HeaderValue> = listed.iter().filter(is_offered).cloned().collect();
        (!offered.is_empty()).then_some(Self(offered))
    }

    /// Makes the offer to the service: the client's own was for its connection alone and has been taken away.
    pub(crate) fn make(&self, headers: &mut HeaderMap) {
        for protocol in &self.0 {
            headers.append(UPGRADE, protocol.clone());
        }
    }

    /// The offered protocol that a response switches to; none where it names another, none or several.
    fn accepted(&self, response: &Response<Body>) -> Option<&HeaderValue> {
        let mut named = tokens(response.headers(), &UPGRADE);
        let (Some(named), None) = (named.next(), named.next()) else { return None };
        self.0.iter().find(|offered| offered.as_bytes().eq_ignore_ascii_case(named))
    }

    /// Whether a response switches to a protocol that was offered.
    pub(crate) fn is_accepted(&self, response: &Response<Body>) -> bool {
        self.accepted(response).is_some()
    }

    /// Makes of a response that accepts the offer one to the client, with a tunnel to the service.
    pub(crate) fn grant(&self, response: &mut Response<Body>, lease: Lease, idle: Duration) -> bool {
        let protocol = self.accepted(response).cloned();
        let service = response.extensions_mut().remove::<Switched>().and_then(|switched| switched.take());
        let (Some(protocol), Some(service)) = (protocol, service) else { return false };
        crate::headers::strip_hop_by_hop(response.headers_mut());
        response.headers_mut().insert(UPGRADE, protocol);
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("upgrade"));
        let far = Far { service, idle, _lease: lease, guards: Vec::new() };
        response.extensions_mut().insert(Tunnel(Arc::new(Mutex::new(Some(far)))));
        true
    }
}

/// A protocol as a config lists it: a name, and perhaps a version behind a slash (RFC 9110, 7.8).
///
/// # Errors
/// Why connections can't be handed over to it.
pub(crate) fn listed_protocol(text: &str) -> Result<HeaderValue, &'static str> {
    let mut parts = text.split('/');
    let (name, version) = (parts.next().unwrap_or_default(), parts.next());
    // Field names are tokens, as the parts of a protocol are.
    let is_token = |part: &str| HeaderName::from_bytes(part.as_bytes()).is_ok();
    if !is_token(name) || version.is_some_and(|version| !is_token(version)) || parts.next().is_some() {
        return Err("it is no protocol of an `Upgrade` field");
    }
    if NEVER_TUNNELLED.iter().any(|never| name.eq_ignore_ascii_case(never)) {
        return Err("requests in it would pass by the gateway's checks");
    }
    HeaderValue::from_str(text).map_err(|_| "it is no protocol of an `Upgrade` field")
}

/// Whether a response says that its connection has become something else.
pub(crate) fn is_switch(response: &Response<Body>) -> bool {
    response.status() == StatusCode::SWITCHING_PROTOCOLS
}

/// Passes bytes on both ways until both sides have ended, one of them breaks, or nothing has moved for so long.
async fn splice(
    client: impl AsyncRead + AsyncWrite + Unpin,
    service: impl AsyncRead + AsyncWrite + Unpin,
    idle: Duration,
) {
    let moved = Moved(Mutex::new(Instant::now()));
    // A side that no longer takes what the other says is not read from for the other either: it is silence too.
    let mut client = InspectReader::new(client, |_: &[u8]| moved.note());
    let mut service = InspectReader::new(service, |_: &[u8]| moved.note());
    tokio::select! {
        // Whoever breaks off is no trouble of the gateway's.
        _ = copy_bidirectional(&mut client, &mut service) => {}
        () = moved.not_for(idle) => {}
    }
}

/// When bytes last came, from either side.
struct Moved(Mutex<Instant>);

impl Moved {
    fn note(&self) {
        *self.lock() = Instant::now();
    }

    /// Waits until there were none for so long. Looks only when they could be up: bytes wake nobody.
    async fn not_for(&self, idle: Duration) {
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
