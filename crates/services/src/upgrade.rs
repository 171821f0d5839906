//! Proxied requests that ask for another protocol on their connection (RFC 9110, 7.8): WebSocket.
//!
//! A connection to a service is made something else only if the client asked for it; then whoever serves the
//! client joins the two sides by a [`Tunnel`], and the gateway no longer knows what they say. It is a matter of HTTP/1.1 alone.
//!
//! All that can be seen of such a connection is whether anything moves. One on which nothing does for
//! `upgrade_idle_timeout` is closed: a peer that vanished says nothing, and would be kept for ever.

use std::io::Cursor;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONNECTION, HeaderValue, UPGRADE};
use http::{HeaderMap, Response, StatusCode, Version, request};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, copy_bidirectional, join, split};
use tokio::time::{Instant, sleep_until};
use tokio_util::io::InspectReader;

use crate::body::Body;
use crate::headers::lists;
use crate::targets::Lease;
use crate::transport::Stream;

/// What a client asked for.
pub(crate) struct Wish(Vec<HeaderValue>);

/// A service's side of a connection that is no longer one of HTTP, among the extensions of its answer.
#[derive(Clone)]
pub(crate) struct Switched(Arc<Mutex<Option<Service>>>);

/// What follows an answer that switches protocols, among its extensions: whoever serves the client joins its
/// side, once the answer is written.
#[derive(Clone)]
pub struct Tunnel(Arc<Mutex<Option<Far>>>);

/// The connection, and what of it was read already.
type Service = (Stream, Bytes);

/// The far side of a tunnel. The lease is held until the sides part.
struct Far {
    service: Service,
    idle: Duration,
    _lease: Lease,
}

impl Switched {
    pub(crate) fn new(stream: Stream, begun: Bytes) -> Self {
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
        let far = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(Far { service: (stream, begun), idle, _lease }) = far else { return };
        let (reader, writer) = split(stream);
        splice(client, join(Cursor::new(begun).chain(reader), writer), idle).await;
    }
}

impl Wish {
    /// The wish of a request, if it has one that can be granted.
    pub(crate) fn of(head: &request::Parts) -> Option<Self> {
        let is_wish = head.version == Version::HTTP_11 && asks(&head.headers);
        is_wish.then(|| Self(head.headers.get_all(UPGRADE).iter().cloned().collect()))
    }

    /// Says it again to the service: both headers are of one connection only and have been taken away.
    pub(crate) fn say(&self, headers: &mut HeaderMap) {
        for protocol in &self.0 {
            headers.append(UPGRADE, protocol.clone());
        }
    }

    /// Gives the service's side along with its answer, if that is to switch and it knows to what.
    pub(crate) fn grant(self, response: &mut Response<Body>, lease: Lease, idle: Duration) -> bool {
        let protocol = response.headers().get(UPGRADE).cloned();
        let service = response.extensions_mut().remove::<Switched>().and_then(|switched| switched.take());
        let (Some(protocol), Some(service)) = (protocol, service) else { return false };
        crate::headers::strip_hop_by_hop(response.headers_mut());
        response.headers_mut().insert(UPGRADE, protocol);
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("upgrade"));
        let far = Far { service, idle, _lease: lease };
        response.extensions_mut().insert(Tunnel(Arc::new(Mutex::new(Some(far)))));
        true
    }
}

/// Whether a response says that its connection has become something else.
pub(crate) fn is_switch(response: &Response<Body>) -> bool {
    response.status() == StatusCode::SWITCHING_PROTOCOLS
}

fn asks(headers: &HeaderMap) -> bool {
    headers.contains_key(UPGRADE) && lists(headers, &CONNECTION, b"upgrade")
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
