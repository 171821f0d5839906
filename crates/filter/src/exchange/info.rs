//! Data about an exchange beyond its messages, which modules read as properties.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

/// The origin and the route of a request. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ExchangeInfo {
    /// The route's path: `route_name`.
    pub route: Arc<str>,
    /// The service that the route proxies to, if it has one: `cluster_name`.
    pub service: Option<Arc<str>>,
    /// The client: `source.address`.
    pub source: SocketAddr,
    /// The address at which the gateway accepted the connection: `destination.address`.
    pub destination: Option<SocketAddr>,
    /// The number of the connection, unique in this process: `connection.id`.
    pub connection: u64,
    /// The TLS session, if there is one.
    pub tls: Option<Arc<TlsInfo>>,
    /// The start of the request on both clocks: `request.time`, `request.duration`.
    pub started_at: (Instant, SystemTime),
}

/// The TLS session of a client's connection.
#[derive(Clone, Debug, Default)]
pub struct TlsInfo {
    /// The version, e.g. `TLSv1.3`: `connection.tls_version`.
    pub version: Option<&'static str>,
    /// The server name that the client requested (SNI): `connection.requested_server_name`.
    pub server_name: Option<Arc<str>>,
    /// Whether the client has presented a trusted certificate: `connection.mtls`.
    pub is_mutual: bool,
    /// The client's certificate.
    pub certificate: Option<CertificateInfo>,
}

/// A client's certificate.
#[derive(Clone, Debug, Default)]
pub struct CertificateInfo {
    /// The subject, e.g. `CN=checkout,O=Shop` (RFC 4514): `connection.subject_peer_certificate`.
    pub subject: String,
    /// The first DNS subject alternative name: `connection.dns_san_peer_certificate`.
    pub dns: Option<String>,
    /// The first URI subject alternative name: `connection.uri_san_peer_certificate`.
    pub uri: Option<String>,
    /// The SHA-256 digest of the certificate in hexadecimal: `connection.sha256_peer_certificate_digest`.
    pub digest: String,
}
