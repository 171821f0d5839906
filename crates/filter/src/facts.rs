//! What the gateway knows of an exchange beyond its messages: what modules read as properties.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

/// Where a request came from and which way it takes. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Facts {
    /// The route's path: `route_name`.
    pub route: Arc<str>,
    /// The service that the route passes requests on to, if it has one: `cluster_name`.
    pub service: Option<Arc<str>>,
    /// The client: `source.address`.
    pub source: SocketAddr,
    /// Where the gateway took the connection: `destination.address`.
    pub destination: Option<SocketAddr>,
    /// A number that no other connection of this process has: `connection.id`.
    pub connection: u64,
    /// The encryption, if there is one.
    pub tls: Option<Arc<Tls>>,
    /// When the request began, by both clocks: `request.time`, `request.duration`.
    pub began: (Instant, SystemTime),
}

/// The encryption of a client's connection.
#[derive(Clone, Debug, Default)]
pub struct Tls {
    /// `TLSv1.3`: `connection.tls_version`.
    pub version: Option<&'static str>,
    /// What the client asked for (SNI): `connection.requested_server_name`.
    pub server_name: Option<Arc<str>>,
    /// Whether the client has shown a certificate that is trusted: `connection.mtls`.
    pub is_mutual: bool,
    /// What stands in that.
    pub certificate: Option<Certificate>,
}

/// A client's certificate.
#[derive(Clone, Debug, Default)]
pub struct Certificate {
    /// `CN=checkout,O=Shop` (RFC 4514): `connection.subject_peer_certificate`.
    pub subject: String,
    /// The first DNS name that it was given for: `connection.dns_san_peer_certificate`.
    pub dns: Option<String>,
    /// The first URI: `connection.uri_san_peer_certificate`.
    pub uri: Option<String>,
    /// The SHA-256 of all of it, in hexadecimal digits: `connection.sha256_peer_certificate_digest`.
    pub digest: String,
}
