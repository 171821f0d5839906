//! The other end of a connection: what a request knows of who sent it before a byte of it is read.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::{Instant, SystemTime};

use http::Request;
use http::uri::Scheme;
use services::headers::settle;

use crate::hosts::HostNames;
use crate::server::Certificate;
use crate::server::limiter::{ConnectionPermit, LimitReached, RequestPermit, UnsentPermit};
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
    /// Whether the client spoke TLS to the first of the trusted proxies, where one of them says so.
    is_secure_there: Option<bool>,
    /// Whether its request could be read in two ways.
    pub(crate) is_doubtful: bool,
    link: Arc<Link>,
}

/// What a connection and its requests tell each other.
#[derive(Debug)]
pub(crate) struct Link {
    /// A number that no other connection of this process has.
    number: u64,
    /// Where the gateway took it.
    local: Option<SocketAddr>,
    /// The hosts that are answered for there; where there are none, all.
    hosts: Arc<HostNames>,
    /// Set once the connection is encrypted.
    secured: OnceLock<Secured>,
    unread: AtomicBool,
    has_begun: AtomicBool,
    /// What it counts in; `None` in tests.
    permit: Option<Arc<ConnectionPermit>>,
}

/// What is known of an encrypted connection.
#[derive(Debug)]
pub(crate) struct Secured {
    /// The client's certificate, verified, if it has shown one.
    pub(crate) certificate: Option<Certificate>,
    pub(crate) tls: Arc<filter::Tls>,
}

impl Client {
    pub(crate) fn new(address: SocketAddr, link: Arc<Link>) -> Self {
        Self {
            address,
            peer: address.ip(),
            is_trusted: false,
            is_secure_there: None,
            is_doubtful: false,
            link,
        }
    }

    /// One that counts in nothing.
    #[cfg(test)]
    pub(crate) fn for_tests() -> Self {
        Self::new(([127, 0, 0, 1], 1).into(), Arc::new(Link::new(None, None)))
    }

    /// One whose connection may leave this many bytes of answers.
    #[cfg(test)]
    pub(crate) fn that_may_leave(bytes: u64) -> Self {
        let limits = crate::config::ConnectionsConfig {
            unsent_per_connection: services::Bytes(bytes),
            ..Default::default()
        };
        let address = SocketAddr::from(([127, 0, 0, 1], 1));
        let limiter = Arc::new(crate::server::limiter::ClientLimiter::default());
        let permit = limiter.connect(address.ip(), false, &limits).expect("the first connection");
        Self::new(address, Arc::new(Link::new(None, Some(Arc::new(permit)))))
    }

    /// Whether the client speaks TLS: to the gateway, or to the trusted proxies before it.
    pub(crate) fn is_secure(&self) -> bool {
        self.is_secure_there.unwrap_or_else(|| self.link.secured.get().is_some())
    }

    /// The certificate that was shown and verified.
    pub(crate) fn certificate(&self) -> Option<&Certificate> {
        self.link.secured.get().and_then(|secured| secured.certificate.as_ref())
    }

    /// Whether the certificate that was shown is no longer valid: requests on the connection are refused.
    pub(crate) fn has_stale_certificate(&self) -> bool {
        self.certificate().is_some_and(|certificate| certificate.staleness(SystemTime::now()).is_some())
    }

    /// Where the gateway took the connection.
    pub(crate) fn local(&self) -> Option<SocketAddr> {
        self.link.local
    }

    /// The name that the client asked for in the TLS handshake with the gateway.
    pub(crate) fn server_name(&self) -> Option<&str> {
        self.link.secured.get().and_then(|secured| secured.tls.server_name.as_deref())
    }

    /// Whether URLs of this scheme may be asked for here: those of `https` over TLS alone, or by a trusted proxy, which may
    /// end TLS (RFC 9110, section 7.4).
    pub(crate) fn may_ask(&self, scheme: Option<&Scheme>) -> bool {
        scheme != Some(&Scheme::HTTPS) || self.is_trusted || self.is_secure()
    }

    /// Whether this host is answered for where the connection was taken.
    pub(crate) fn answers_for(&self, host: Option<&str>) -> bool {
        let hosts = &self.link.hosts;
        hosts.is_empty() || host.is_some_and(|host| hosts.contain(host, self.is_secure()))
    }

    /// What filters on a route may know of it.
    pub(crate) fn facts(
        &self,
        route: &Arc<str>,
        service: Option<&Arc<str>>,
        began: (Instant, SystemTime),
    ) -> filter::Facts {
        filter::Facts {
            route: Arc::clone(route),
            service: service.cloned(),
            source: self.address,
            destination: self.link.local,
            connection: self.link.number,
            tls: self.link.secured.get().map(|secured| Arc::clone(&secured.tls)),
            began,
        }
    }

    /// Notes that some of the request was left unread.
    pub(crate) fn note_unread(&self) {
        self.link.unread.store(true, Relaxed);
    }

    /// The same for the next request that comes on this connection.
    pub(crate) fn begin_request(&self, is_doubtful: bool) -> Self {
        self.link.has_begun.store(true, Relaxed);
        Self { is_doubtful, ..self.clone() }
    }

    /// A request of this client begins over HTTP/2.
    pub(crate) fn request_permit(&self) -> Option<RequestPermit> {
        self.link.permit.as_ref().map(ConnectionPermit::request)
    }

    /// Whether its address has more requests under way than it may have.
    pub(crate) fn is_crowded(&self) -> bool {
        self.link.permit.as_ref().is_some_and(|permit| permit.is_crowded())
    }

    /// Keeps so many bytes of an answer until the client takes them.
    ///
    /// # Errors
    /// When too many are kept for it already.
    pub(crate) fn keep(&self, bytes: u64) -> Result<Option<UnsentPermit>, LimitReached> {
        self.link.permit.as_ref().map(|permit| permit.keep(bytes)).transpose()
    }

    /// What it shares with its connection.
    pub(crate) fn link(&self) -> Arc<Link> {
        Arc::clone(&self.link)
    }

    /// The same, with what trusted proxies say of it. Leaves in the request what its sender may say, and nothing of what
    /// was meant for its connection.
    pub(crate) fn behind<B>(self, proxies: &TrustedProxies, request: &mut Request<B>) -> Self {
        let proxied = proxies.client(self.peer, self.is_secure(), request.headers());
        settle(request.headers_mut(), proxied.is_some());
        let Some(proxied) = proxied else {
            proxies.strip(request.headers_mut());
            return self;
        };
        proxies.write(&proxied, request);
        let client = proxied.address();
        // Of a client that is not the peer, nobody knows the port.
        let address = if client == self.peer { self.address } else { SocketAddr::new(client, 0) };
        Self { address, is_trusted: true, is_secure_there: Some(proxied.is_secure), ..self }
    }
}

impl Link {
    /// That of a connection that was taken here, and counts in this.
    pub(crate) fn new(local: Option<SocketAddr>, permit: Option<Arc<ConnectionPermit>>) -> Self {
        static NUMBERS: AtomicU64 = AtomicU64::new(1);
        let number = NUMBERS.fetch_add(1, Relaxed);
        Self {
            number,
            local,
            hosts: Arc::default(),
            secured: OnceLock::new(),
            unread: AtomicBool::new(false),
            has_begun: AtomicBool::new(false),
            permit,
        }
    }

    /// The same, where only these hosts are answered for.
    pub(crate) fn for_hosts(self, hosts: Arc<HostNames>) -> Self {
        Self { hosts, ..self }
    }

    /// Notes that the connection is encrypted, and who the client has proven to be.
    pub(crate) fn secure(&self, secured: Secured) {
        // A handshake ends once.
        let _ = self.secured.set(secured);
    }

    /// Whether a request has come.
    pub(crate) fn has_begun(&self) -> bool {
        self.has_begun.load(Relaxed)
    }

    /// Whether some of a request was left unread.
    pub(crate) fn is_unread(&self) -> bool {
        self.unread.load(Relaxed)
    }
}
