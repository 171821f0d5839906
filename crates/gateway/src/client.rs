//! The other end of a connection: what a request knows of who sent it before a byte of it is read.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{
    AtomicBool, AtomicU32,
    Ordering::{Relaxed, SeqCst},
};
use std::task::Context;

use futures_util::task::AtomicWaker;
use http::HeaderMap;
use std::sync::{Arc, OnceLock};
use tokio::sync::Notify;

use crate::server::Certificate;
use crate::trusted::TrustedProxies;

/// The other end of a connection, as one request knows it.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    /// Where the client is, behind the proxies that the operator trusts.
    pub(crate) address: SocketAddr,
    /// Who is connected: the client itself or the nearest proxy.
    pub(crate) peer: IpAddr,
    /// Whether the peer's word about others is believed.
    pub(crate) is_trusted: bool,
    /// Whether its request could be read in two ways.
    pub(crate) is_doubtful: bool,
    link: Arc<Link>,
}

/// What a connection and its requests tell each other.
#[derive(Debug, Default)]
pub(crate) struct Link {
    /// Set once the connection is encrypted: the client's certificate, verified, if it has shown one.
    secured: OnceLock<Option<Certificate>>,
    unread: AtomicBool,
    /// How many requests have come.
    requests: AtomicU32,
    /// The first of them that could be read in two ways, counted from 1; 0 if none.
    doubtful: AtomicU32,
    upgraded: AtomicBool,
    ended: Notify,
    cut: AtomicBool,
    reader: AtomicWaker,
}

impl Client {
    pub(crate) fn new(address: SocketAddr, link: Arc<Link>) -> Self {
        Self { address, peer: address.ip(), is_trusted: false, is_doubtful: false, link }
    }

    /// Whether the connection is encrypted.
    pub(crate) fn is_secure(&self) -> bool {
        self.link.secured.get().is_some()
    }

    /// The names in the certificate that was shown and verified: the alternative names, without them the
    /// common name (RFC 9525, section 6.3, for services).
    pub(crate) fn certificate_names(&self) -> impl Iterator<Item = &str> {
        let certificate = self.link.secured.get().and_then(Option::as_ref);
        certificate.into_iter().flat_map(Certificate::bare_names)
    }

    /// Notes that some of the request was left unread.
    pub(crate) fn note_unread(&self) {
        self.link.unread.store(true, Relaxed);
    }

    /// The same for the next request that comes on this connection.
    pub(crate) fn begin_request(&self) -> Self {
        let request = self.link.requests.fetch_add(1, Relaxed) + 1;
        let doubtful = self.link.doubtful.load(Relaxed);
        Self { is_doubtful: doubtful != 0 && request >= doubtful, ..self.clone() }
    }

    /// The same, with what trusted proxies say of it.
    pub(crate) fn behind(self, proxies: &TrustedProxies, headers: &HeaderMap) -> Self {
        if !proxies.believe(self.peer) {
            return self;
        }
        let client = proxies.client(self.peer, headers);
        // Of a client that is not the peer, nobody knows the port.
        let address = if client == self.peer { self.address } else { SocketAddr::new(client, 0) };
        Self { address, is_trusted: true, ..self }
    }

    /// Notes that the connection is no longer one of HTTP.
    pub(crate) fn note_upgrade(&self) {
        self.link.upgraded.store(true, Relaxed);
    }
}

impl Link {
    /// Notes that the connection is encrypted, and who the client has proven to be.
    pub(crate) fn secure(&self, certificate: Option<Certificate>) {
        // A handshake ends once.
        let _ = self.secured.set(certificate);
    }

    /// Whether a request has come.
    pub(crate) fn has_begun(&self) -> bool {
        self.requests.load(Relaxed) > 0
    }

    /// Notes the first request that could be read in two ways.
    pub(crate) fn doubt(&self, request: u32) {
        self.doubtful.store(request, Relaxed);
    }

    /// Whether the connection is no longer one of HTTP.
    pub(crate) fn is_upgraded(&self) -> bool {
        self.upgraded.load(Relaxed)
    }

    /// Waits until nobody reads or writes any longer.
    pub(crate) async fn ended(&self) {
        self.ended.notified().await;
    }

    /// Notes that nobody will read or write any longer.
    pub(crate) fn note_end(&self) {
        self.ended.notify_one();
    }

    /// Ends a connection that is no longer one of HTTP.
    pub(crate) fn cut(&self) {
        self.cut.store(true, SeqCst);
        self.reader.wake();
    }

    /// Whether its end has come; wakes the reader when it does.
    pub(crate) fn is_cut(&self, context: &Context<'_>) -> bool {
        self.reader.register(context.waker());
        self.cut.load(SeqCst)
    }

    /// Whether some of a request was left unread.
    pub(crate) fn is_unread(&self) -> bool {
        self.unread.load(Relaxed)
    }
}
