//! The client side of a connection: the facts that are available before a request is read.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::{Instant, SystemTime};

use http::Request;
use http::uri::Scheme;
use services::RequestBudget;
use services::headers::sanitize_headers;

use super::peer_certificate::PeerCertificate;
use super::trusted_proxies::TrustedProxies;
#[cfg(test)]
use crate::config::ConnectionsConfig;
use crate::config::host_names::HostNames;
#[cfg(test)]
use crate::limits::client_limiter::ClientLimiter;
use crate::limits::client_limiter::{
    BodyPermit, ConnectionPermit, LimitReached, RequestPermit, ResponseAccounts, UnsentPermit,
};

/// The client of a connection, from the perspective of one request.
#[derive(Clone, Debug)]
pub(crate) struct ClientInfo {
    /// The client's address, behind the trusted proxies.
    pub(crate) address: SocketAddr,
    /// The address of the connected peer: the client itself or the nearest proxy.
    pub(crate) peer: IpAddr,
    /// Whether the peer is a trusted proxy.
    pub(crate) is_trusted: bool,
    /// Whether the client used TLS to reach the first trusted proxy, if a proxy reports it.
    is_proxied_secure: Option<bool>,
    /// Whether the request's framing was ambiguous.
    pub(crate) has_ambiguous_framing: bool,
    connection: Arc<ConnectionContext>,
}

/// The state that a connection shares with its requests.
#[derive(Debug)]
pub(crate) struct ConnectionContext {
    /// A number that is unique within this process.
    number: u64,
    /// The local address of the connection.
    local_address: Option<SocketAddr>,
    /// The hosts that are served at this address. Empty for all hosts.
    hosts: Arc<HostNames>,
    /// Set once the connection is encrypted.
    tls_session: OnceLock<TlsSession>,
    has_unread: AtomicBool,
    has_begun: AtomicBool,
    /// The permit of the connection; `None` in tests.
    permit: Option<Arc<ConnectionPermit>>,
    accounts: Option<Arc<ResponseAccounts>>,
}

/// The facts about an encrypted connection.
#[derive(Debug)]
pub(crate) struct TlsSession {
    /// The client's verified certificate, if it has sent one.
    pub(crate) certificate: Option<PeerCertificate>,
    pub(crate) tls: Arc<filter::TlsInfo>,
}

impl ClientInfo {
    pub(crate) fn new(address: SocketAddr, connection: Arc<ConnectionContext>) -> Self {
        Self {
            address,
            peer: address.ip(),
            is_trusted: false,
            is_proxied_secure: None,
            has_ambiguous_framing: false,
            connection,
        }
    }

    /// Creates a client that counts against no limit.
    #[cfg(test)]
    pub(crate) fn for_tests() -> Self {
        Self::new(([127, 0, 0, 1], 1).into(), Arc::new(ConnectionContext::new(None, None)))
    }

    /// Creates a client whose connection has these limits.
    #[cfg(test)]
    pub(crate) fn with_limits(limits: ConnectionsConfig) -> Self {
        let address = SocketAddr::from(([127, 0, 0, 1], 1));
        let limiter = Arc::new(ClientLimiter::default());
        let permit = limiter.connect(address.ip(), false, &limits, Instant::now());
        let permit = permit.expect("the first connection");
        Self::new(address, Arc::new(ConnectionContext::new(None, Some(Arc::new(permit)))))
    }

    /// Creates a client whose connection may have this many unsent response bytes.
    #[cfg(test)]
    pub(crate) fn with_unsent_limit(bytes: u64) -> Self {
        Self::with_limits(ConnectionsConfig {
            unsent_per_connection: services::BytesConfig(bytes),
            ..Default::default()
        })
    }

    /// Whether the client uses TLS: to the gateway, or to the trusted proxies in front of it.
    pub(crate) fn is_secure(&self) -> bool {
        self.is_proxied_secure.unwrap_or_else(|| self.connection.tls_session.get().is_some())
    }

    /// The client's verified certificate.
    pub(crate) fn certificate(&self) -> Option<&PeerCertificate> {
        self.connection.tls_session.get().and_then(|secured| secured.certificate.as_ref())
    }

    /// Whether the client's certificate has become invalid. Requests on the connection are then refused.
    pub(crate) fn has_stale_certificate(&self) -> bool {
        self.certificate().is_some_and(|certificate| certificate.staleness(SystemTime::now()).is_some())
    }

    /// The local address of the connection.
    pub(crate) fn local_address(&self) -> Option<SocketAddr> {
        self.connection.local_address
    }

    /// The server name in the TLS handshake with the gateway (SNI).
    pub(crate) fn server_name(&self) -> Option<&str> {
        self.connection.tls_session.get().and_then(|secured| secured.tls.server_name.as_deref())
    }

    /// Whether URLs of this scheme may be requested here. `https` URLs need TLS or a trusted proxy, which may
    /// terminate TLS (RFC 9110, section 7.4).
    pub(crate) fn accepts_scheme(&self, scheme: Option<&Scheme>) -> bool {
        scheme != Some(&Scheme::HTTPS) || self.is_trusted || self.is_secure()
    }

    /// Whether this host is served at the connection's local address.
    pub(crate) fn serves_host(&self, host: Option<&str>) -> bool {
        let hosts = &self.connection.hosts;
        hosts.is_empty() || host.is_some_and(|host| hosts.contains(host, self.is_secure()))
    }

    /// The facts that filters on a route may see.
    pub(crate) fn filter_facts(
        &self,
        route: &Arc<str>,
        service: Option<&Arc<str>>,
        began: (Instant, SystemTime),
    ) -> filter::ExchangeInfo {
        filter::ExchangeInfo {
            route: Arc::clone(route),
            service: service.cloned(),
            source: self.address,
            destination: self.connection.local_address,
            connection: self.connection.number,
            tls: self.connection.tls_session.get().map(|secured| Arc::clone(&secured.tls)),
            started_at: began,
        }
    }

    /// Notes that a part of the request was left unread.
    pub(crate) fn note_unread(&self) {
        self.connection.has_unread.store(true, Relaxed);
    }

    /// Returns the client for the next request on this connection.
    pub(crate) fn begin_request(&self, is_doubtful: bool) -> Self {
        self.connection.has_begun.store(true, Relaxed);
        Self { has_ambiguous_framing: is_doubtful, ..self.clone() }
    }

    /// Takes a permit for an HTTP/2 request of this client.
    pub(crate) fn request_permit(&self) -> Option<RequestPermit> {
        self.connection.permit.as_ref().map(ConnectionPermit::start_request)
    }

    /// Whether the client's request bodies take so much memory that less of each is read at once. Trusted
    /// proxies have no account of their own.
    pub(crate) fn has_many_body_bytes(&self) -> bool {
        self.connection.permit.as_ref().is_some_and(|permit| permit.has_many_body_bytes())
    }

    /// Takes a permit for the bytes of a request's body. A trusted proxy that names no client is the client.
    pub(crate) fn body_permit(&self) -> Option<BodyPermit> {
        self.connection.permit.as_ref().map(|permit| permit.body_permit_for(self.address.ip()))
    }

    /// Counts the bytes of services' responses for a request in the client's account.
    pub(crate) fn charge(&self, budget: RequestBudget) -> RequestBudget {
        match &self.connection.accounts {
            Some(accounts) => budget.with_accounts(accounts.clone(), self.address.ip()),
            None => budget,
        }
    }

    /// Whether the client's address exceeds its limit of requests in flight.
    pub(crate) fn exceeds_request_limit(&self) -> bool {
        self.connection.permit.as_ref().is_some_and(|permit| permit.exceeds_request_limit())
    }

    /// Reserves `bytes` of a response until the client has received them.
    ///
    /// # Errors
    /// If the client already has too many unsent bytes.
    pub(crate) fn reserve_unsent(&self, bytes: u64) -> Result<Option<UnsentPermit>, LimitReached> {
        self.connection.permit.as_ref().map(|permit| permit.reserve_unsent(bytes)).transpose()
    }

    /// Like [`Self::reserve_unsent`], for bytes of a response that is read before it is sent: they take up at
    /// most half of the limits.
    ///
    /// # Errors
    /// If the client already has too many unsent bytes for that.
    pub(crate) fn reserve_buffered(&self, bytes: u64) -> Result<Option<UnsentPermit>, LimitReached> {
        self.connection.permit.as_ref().map(|permit| permit.reserve_buffered(bytes)).transpose()
    }

    /// The state that is shared with the connection.
    pub(crate) fn connection_context(&self) -> Arc<ConnectionContext> {
        Arc::clone(&self.connection)
    }

    /// Applies the information from trusted proxies. Removes connection-specific headers from the request,
    /// and those that its sender must not set.
    pub(crate) fn apply_proxies<B>(self, proxies: &TrustedProxies, request: &mut Request<B>) -> Self {
        let proxied = proxies.proxied_client(self.peer, self.is_secure(), request.headers());
        sanitize_headers(request.headers_mut(), proxied.is_some());
        let Some(proxied) = proxied else {
            proxies.strip_custom_header(request.headers_mut());
            return self;
        };
        proxies.write_forwarded(&proxied, request);
        let client = proxied.address();
        // The port of a client behind a proxy is unknown.
        let address = if client == self.peer { self.address } else { SocketAddr::new(client, 0) };
        Self { address, is_trusted: true, is_proxied_secure: Some(proxied.is_secure), ..self }
    }
}

impl ConnectionContext {
    /// Creates the link of a connection with this local address and permit.
    pub(crate) fn new(local_address: Option<SocketAddr>, permit: Option<Arc<ConnectionPermit>>) -> Self {
        static NUMBERS: AtomicU64 = AtomicU64::new(1);
        let number = NUMBERS.fetch_add(1, Relaxed);
        Self {
            number,
            local_address,
            hosts: Arc::default(),
            tls_session: OnceLock::new(),
            has_unread: AtomicBool::new(false),
            has_begun: AtomicBool::new(false),
            accounts: permit.as_ref().map(|permit| Arc::new(permit.response_accounts())),
            permit,
        }
    }

    /// Restricts the connection to these hosts.
    pub(crate) fn with_hosts(self, hosts: Arc<HostNames>) -> Self {
        Self { hosts, ..self }
    }

    /// Notes that the connection is encrypted, with the client's certificate.
    pub(crate) fn set_tls_session(&self, secured: TlsSession) {
        // A handshake completes only once.
        let _ = self.tls_session.set(secured);
    }

    /// Whether a request has begun.
    pub(crate) fn has_begun(&self) -> bool {
        self.has_begun.load(Relaxed)
    }

    /// Whether a part of a request was left unread.
    pub(crate) fn has_unread_request(&self) -> bool {
        self.has_unread.load(Relaxed)
    }
}
