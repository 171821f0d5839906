//! The interface for sending requests to services: [`LiveTransport`] here, recordings elsewhere.
//!
//! A request takes an idle connection (`transport/pool.rs`) or opens one (`connect.rs`, `tls.rs`), and is
//! exchanged for a response on it (`http1.rs`, `http2.rs`). The address is checked before it is connected to
//! (`address_check.rs`). A connection that switches its protocol becomes a tunnel (`upgrade.rs`).

mod address_check;
mod chain_limit;
mod connect;
mod http1;
mod http2;
mod pool;
pub(crate) mod tls;
pub(crate) mod upgrade;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use http::header::HeaderValue;
use http::uri::{Authority, Parts, PathAndQuery, Scheme};
use http::{Request, Response, Uri};

use crate::body::{BodyError, StreamedServiceBody};
use crate::config::ServiceProtocol;
use connect::{TargetTls, TransportConnection, connect};
use pool::{ConnectionPool, PoolLookup};

pub(crate) use address_check::{ReachableAddresses, is_private_address_error};
pub use chain_limit::ChainLimitVerifier;
pub(crate) use connect::ConnectSettings;

/// The maximum size of a response head in bytes.
const MAX_HEAD: u32 = 64 << 10;
/// The number of new connections that a request tries if the target closes them before use.
const MAX_NEW_CONNECTIONS: usize = 3;

/// Sends requests to services. Dropping the future cancels the exchange.
pub trait ServiceTransport: Send + Sync {
    /// Sends one request to one target. The request's URI is complete; only headers that the protocol needs
    /// are added. Redirects are not followed, and requests that were sent are not sent again.
    fn send(
        &self,
        endpoint: &RequestEndpoint,
        request: Request<StreamedServiceBody>,
    ) -> BoxFuture<'static, Result<Response<StreamedServiceBody>, TransportError>>;
}

/// A target of a service, parsed when the config was read, with its connection pool.
#[derive(Debug)]
pub struct TargetOrigin {
    /// The service's name.
    pub service: Arc<str>,
    /// `http` or `https`.
    pub scheme: Scheme,
    /// Host and port.
    pub authority: Authority,
    /// The path prefix of all requests; usually empty.
    pub base_path: String,
    /// The `Host` header of HTTP/1.1 requests, without the scheme's default port.
    host_header: HeaderValue,
    dial: ConnectSettings,
    tls: Option<TargetTls>,
    pool: ConnectionPool,
}

/// The destination of one request: a target and one of its addresses.
#[derive(Clone, Debug)]
pub struct RequestEndpoint {
    /// The target.
    pub origin: Arc<TargetOrigin>,
    /// The address from the target's host name; `None` if it is not resolved yet.
    pub address: Option<SocketAddr>,
}

/// An error from sending a request.
#[derive(Debug, thiserror::Error)]
pub enum TransportError {
    /// There was no connection, or it was closed before it took a byte: nothing was sent.
    #[error("no connection")]
    Unreachable(#[source] BodyError),
    /// The target reports that it did not process the request. It may be sent again on another connection,
    /// even to the same target.
    #[error("the target refused the request unprocessed")]
    Refused(#[source] BodyError),
    /// There was no response in time.
    #[error("no response in time")]
    Timeout(#[source] BodyError),
    /// The connection broke, or the response was not HTTP. Parts of the request may have been sent.
    #[error("the connection broke")]
    Broken(#[source] BodyError),
}

/// The remainder of a request without a response.
pub(crate) enum UnsentRequest {
    /// The complete request: nothing was sent, so it may use another connection.
    Retryable(Box<Request<StreamedServiceBody>>, BodyError),
    /// The request cannot be sent again.
    NotRetryable(TransportError),
}

/// Real connections over HTTP/1.1 or HTTP/2. The connections are pooled by each [`TargetOrigin`].
#[derive(Clone, Copy, Debug, Default)]
pub struct LiveTransport;

impl ServiceTransport for LiveTransport {
    fn send(
        &self,
        endpoint: &RequestEndpoint,
        request: Request<StreamedServiceBody>,
    ) -> BoxFuture<'static, Result<Response<StreamedServiceBody>, TransportError>> {
        send_pooled(endpoint.clone(), request).boxed()
    }
}

async fn send_pooled(
    endpoint: RequestEndpoint,
    mut request: Request<StreamedServiceBody>,
) -> Result<Response<StreamedServiceBody>, TransportError> {
    let mut tries = 0;
    loop {
        let (result, is_new) = match endpoint.origin.pool.find_connection(&endpoint) {
            PoolLookup::Http1(connection) => (connection.send(request, endpoint.clone()).await, false),
            PoolLookup::Http2(place) => (place.send(request).await, true),
            PoolLookup::Pending(probe) => {
                probe.wait().await.map_err(TransportError::Unreachable)?;
                continue;
            }
            // Rare and large: boxed, so that the futures of all other requests stay small.
            PoolLookup::Missing => {
                match connect(&endpoint).boxed().await.map_err(TransportError::Unreachable)? {
                    TransportConnection::Http1(connection) => {
                        (connection.send(request, endpoint.clone()).await, true)
                    }
                    // The target used HTTP/1.1 for earlier connections.
                    TransportConnection::Http2(connection) => {
                        endpoint.origin.pool.put_shared(endpoint.address, connection);
                        continue;
                    }
                }
            }
        };
        match result {
            Ok(response) => return Ok(response),
            Err(UnsentRequest::NotRetryable(error)) => return Err(error),
            Err(UnsentRequest::Retryable(_, error)) if tries == MAX_NEW_CONNECTIONS => {
                return Err(TransportError::Unreachable(error));
            }
            Err(UnsentRequest::Retryable(whole, _)) => request = *whole,
        }
        tries += usize::from(is_new);
    }
}

impl TargetOrigin {
    /// Creates a target without connections, or returns the reason why it is invalid.
    pub(crate) fn new(
        service: Arc<str>,
        (scheme, authority): (Scheme, Authority),
        base: String,
        dial: ConnectSettings,
    ) -> Result<Self, &'static str> {
        let tls = dial.target_tls(&scheme, &authority)?;
        let host = match authority.port_u16() {
            Some(port) if port != default_port(&scheme) => authority.as_str(),
            _ => authority.host(),
        };
        // All characters of an authority are valid in headers.
        let host = HeaderValue::from_str(host).unwrap_or(HeaderValue::from_static(""));
        Ok(Self {
            service,
            scheme,
            authority,
            base_path: base,
            host_header: host,
            dial,
            tls,
            pool: ConnectionPool::default(),
        })
    }

    /// Whether requests may share a connection, on which the target may refuse single requests unprocessed.
    pub(crate) fn is_multiplexed(&self) -> bool {
        match self.dial.protocol {
            ServiceProtocol::Auto => self.tls.is_some(),
            protocol => protocol == ServiceProtocol::Http2,
        }
    }

    /// Whether the target is at this `host:port`, in any spelling of an address; the scheme's default port
    /// may be omitted.
    pub(crate) fn has_authority(&self, authority: &str) -> bool {
        let (host, port) = self.split_authority(authority);
        let own = self.authority.host();
        let is_same = || {
            own.eq_ignore_ascii_case(host)
                || parse_host_address(own).is_some_and(|own| parse_host_address(host) == Some(own))
        };
        port == Some(self.port()) && is_same()
    }

    /// Whether this `host:port` is an address of the target, written as such.
    pub(crate) fn has_address(&self, authority: &str, address: SocketAddr) -> bool {
        let (host, port) = self.split_authority(authority);
        port == Some(address.port()) && parse_host_address(host) == Some(address.ip().to_canonical())
    }

    /// Splits `host:port`. The port is `None` if it is invalid, and the scheme's default if there is none.
    fn split_authority<'a>(&self, authority: &'a str) -> (&'a str, Option<u16>) {
        match authority.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, port.parse().ok()),
            _ => (authority, Some(default_port(&self.scheme))),
        }
    }

    /// The port for connections.
    pub(crate) fn port(&self) -> u16 {
        self.authority.port_u16().unwrap_or(default_port(&self.scheme))
    }

    /// Returns the complete URI of a path at this target, with the authority `called` or the target's own.
    pub(crate) fn build_uri(
        &self,
        path: PathAndQuery,
        called: Option<&Authority>,
    ) -> Result<Uri, http::Error> {
        let path = match self.base_path.as_str() {
            "" => path,
            base => PathAndQuery::try_from(format!("{base}{path}"))?,
        };
        let mut parts = Parts::default();
        parts.scheme = Some(self.scheme.clone());
        parts.authority = Some(called.unwrap_or(&self.authority).clone());
        parts.path_and_query = Some(path);
        Ok(Uri::from_parts(parts)?)
    }

    /// Returns the `Host` header of HTTP/1.1 for a request to this URI.
    fn host_header(&self, uri: &Uri) -> HeaderValue {
        let called = uri.authority().filter(|called| **called != self.authority);
        let called = called.and_then(|called| HeaderValue::from_str(called.as_str()).ok());
        called.unwrap_or_else(|| self.host_header.clone())
    }
}

/// Compares targets including their connection settings: connections to equal targets are interchangeable.
impl PartialEq for TargetOrigin {
    fn eq(&self, other: &Self) -> bool {
        (&self.service, &self.scheme, &self.authority, &self.base_path, &self.dial)
            == (&other.service, &other.scheme, &other.authority, &other.base_path, &other.dial)
    }
}

/// Parses a host that is an address, with brackets if it is an IPv6 address. IPv4-mapped ones become IPv4
/// addresses.
fn parse_host_address(host: &str) -> Option<IpAddr> {
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    bare.parse().ok().map(|address: IpAddr| address.to_canonical())
}

fn default_port(scheme: &Scheme) -> u16 {
    if *scheme == Scheme::HTTPS { 443 } else { 80 }
}

#[cfg(test)]
mod tests;
