//! Proxied requests that ask for another protocol on their connection (RFC 9110, 7.8): WebSocket.
//!
//! A connection to a service is made something else only if the client asked for it; then the two sides
//! are joined, and the gateway no longer knows what they say. It is a matter of HTTP/1.1 alone.
//!
//! All that can be seen of such a connection is whether anything moves. One on which nothing does for
//! `upgrade_idle_timeout` is closed: a peer that vanished says nothing, and would be kept for ever.

use std::io::Cursor;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONNECTION, HeaderValue, UPGRADE};
use http::{HeaderMap, Response, StatusCode, Version, request};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, copy_bidirectional, join, split};
use tokio::time::{Instant, sleep_until};
use tokio_util::io::InspectReader;

use crate::body::Body;
use crate::targets::Lease;
use crate::transport::Stream;

/// What a client asked for, and its side of the connection once the answer says yes.
pub(crate) struct Wish {
    protocols: Vec<HeaderValue>,
    client: OnUpgrade,
}

/// A service's side of a connection that is no longer one of HTTP, among the extensions of its answer.
#[derive(Clone)]
pub(crate) struct Switched(Arc<Mutex<Option<Service>>>);

/// The connection, and what of it was read already.
type Service = (Stream, Bytes);

impl Switched {
    pub(crate) fn new(stream: Stream, begun: Bytes) -> Self {
        Self(Arc::new(Mutex::new(Some((stream, begun)))))
    }

    fn take(&self) -> Option<Service> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Wish {
    /// The wish of a request, if it has one that can be granted.
    pub(crate) fn of(head: &mut request::Parts) -> Option<Self> {
        if head.version != Version::HTTP_11 || !asks(&head.headers) {
            return None;
        }
        let client = head.extensions.remove::<OnUpgrade>()?;
        Some(Self { protocols: head.headers.get_all(UPGRADE).iter().cloned().collect(), client })
    }

    /// Says it again to the service: both headers are of one connection only and have been taken away.
    pub(crate) fn say(&self, headers: &mut HeaderMap) {
        for protocol in &self.protocols {
            headers.append(UPGRADE, protocol.clone());
        }
    }

    /// Joins the two sides, if the answer is that the service switches and it knows to what. The lease is
    /// held until they part, or have been silent for too long.
    pub(crate) fn grant(self, response: &mut Response<Body>, lease: Lease, idle: Duration) -> bool {
        let protocol = response.headers().get(UPGRADE).cloned();
        let service = response.extensions_mut().remove::<Switched>().and_then(|switched| switched.take());
        let (Some(protocol), Some(service)) = (protocol, service) else { return false };
        crate::headers::strip_hop_by_hop(response.headers_mut());
        response.headers_mut().insert(UPGRADE, protocol);
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("upgrade"));
        tokio::spawn(pass(self.client, service, idle, lease));
        true
    }
}

/// Whether a response says that its connection has become something else.
pub(crate) fn is_switch(response: &Response<Body>) -> bool {
    response.status() == StatusCode::SWITCHING_PROTOCOLS
}

fn asks(headers: &HeaderMap) -> bool {
    let options =
        headers.get_all(CONNECTION).iter().flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
    headers.contains_key(UPGRADE)
        && options.map(<[u8]>::trim_ascii).any(|option| option.eq_ignore_ascii_case(b"upgrade"))
}

async fn pass(client: OnUpgrade, (service, begun): Service, idle: Duration, _lease: Lease) {
    // The client's side is there once the answer has been written: if it is not, the client is gone.
    let Ok(client) = client.await else { return };
    let (reader, writer) = split(service);
    splice(TokioIo::new(client), join(Cursor::new(begun).chain(reader), writer), idle).await;
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
