//! Proxied requests that ask for another protocol on their connection (RFC 9110, 7.8): WebSocket.
//!
//! A connection to a service is made something else only if the client asked for it; then the two sides
//! are joined, and the gateway no longer knows what they say. It is a matter of HTTP/1.1 alone.

use http::header::{CONNECTION, HeaderValue, UPGRADE};
use http::{HeaderMap, Response, StatusCode, Version, request};
use std::io::Cursor;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, copy_bidirectional, join, split};

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
    /// held until they part.
    pub(crate) fn grant(self, response: &mut Response<Body>, lease: Lease) -> bool {
        let protocol = response.headers().get(UPGRADE).cloned();
        let service = response.extensions_mut().remove::<Switched>().and_then(|switched| switched.take());
        let (Some(protocol), Some(service)) = (protocol, service) else { return false };
        crate::headers::strip_hop_by_hop(response.headers_mut());
        response.headers_mut().insert(UPGRADE, protocol);
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("upgrade"));
        tokio::spawn(pass(self.client, service, lease));
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

/// Passes bytes on both ways until both sides have ended, or one of them breaks.
async fn pass(client: OnUpgrade, (service, begun): Service, _lease: Lease) {
    // The client's side is there once the answer has been written: if it is not, the client is gone.
    let Ok(client) = client.await else { return };
    let (reader, writer) = split(service);
    let mut service = join(Cursor::new(begun).chain(reader), writer);
    // Whoever breaks off is no trouble of the gateway's.
    let _ = copy_bidirectional(&mut TokioIo::new(client), &mut service).await;
}
