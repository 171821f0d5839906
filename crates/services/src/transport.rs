//! The one seam through which bytes leave for a service: [`Live`] here, a recording elsewhere.
//!
//! A request takes a kept connection (`transport/pool.rs`) or makes one (`connect.rs`, `tls.rs`), and
//! is exchanged for an answer on it (`http1.rs`, `http2.rs`).

mod connect;
mod http1;
mod http2;
mod pool;
pub(crate) mod tls;

use std::net::SocketAddr;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use http::header::HeaderValue;
use http::uri::{Authority, Parts, PathAndQuery, Scheme};
use http::{Request, Response, Uri};

use crate::body::{Body, Error};
use crate::config::Protocol;
use connect::{Connection, Tls, connect};
use pool::{Found, Pool};

pub(crate) use connect::Dial;
pub(crate) use http1::Socket;

/// The largest head of an answer.
const MAX_HEAD: u32 = 64 << 10;
/// How many new connections a request tries that the target closes before they are of use.
const NEW_CONNECTIONS: usize = 3;

/// Sends requests to services. Dropping the future ends the exchange.
pub trait Transport: Send + Sync {
    /// Sends one request to one target. The request's URI is complete, and nothing is added to it but
    /// what the protocol needs. No redirect is followed, and nothing that was sent is sent again.
    fn send(
        &self,
        endpoint: &Endpoint,
        request: Request<Body>,
    ) -> BoxFuture<'static, Result<Response<Body>, TransportError>>;
}

/// One of a service's targets, taken apart when the config was read, and the connections kept to it.
#[derive(Debug)]
pub struct Origin {
    /// The service's name.
    pub service: Arc<str>,
    /// `http` or `https`.
    pub scheme: Scheme,
    /// Host and port.
    pub authority: Authority,
    /// What stands before every path; empty for most.
    pub base: String,
    /// What HTTP/1.1 calls it: the port is left out where it is the scheme's own.
    host: HeaderValue,
    dial: Dial,
    tls: Option<Tls>,
    pool: Pool,
}

/// Where one request goes: a target, and which of its addresses.
#[derive(Clone, Debug)]
pub struct Endpoint {
    /// The target.
    pub origin: Arc<Origin>,
    /// What its name stands for at the moment; `None` where that is yet to be found out.
    pub address: Option<SocketAddr>,
}

/// Why no answer came.
#[derive(Debug, thiserror::Error)]
pub enum TransportError {
    /// No connection, or one that was closed before it took a byte: nothing was sent.
    #[error("no connection")]
    Unreachable(#[source] Error),
    /// The target gave it back, and says that nothing was done with it. Another connection may have it, even
    /// one to the same target.
    #[error("the target gave it back")]
    Refused(#[source] Error),
    /// No answer in time.
    #[error("no answer in time")]
    Timeout(#[source] Error),
    /// The connection broke, or what came was not HTTP. Something may have been sent.
    #[error("the connection broke")]
    Broken(#[source] Error),
}

/// What is left of a request that got no answer.
pub(crate) enum Unsent {
    /// All of it: nothing was begun, another connection may have it.
    Whole(Box<Request<Body>>, Error),
    /// Nothing.
    Lost(TransportError),
}

/// Real connections: pooled, HTTP/1.1 or HTTP/2. The connections are kept by each [`Origin`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Live;

impl Transport for Live {
    fn send(
        &self,
        endpoint: &Endpoint,
        request: Request<Body>,
    ) -> BoxFuture<'static, Result<Response<Body>, TransportError>> {
        send(endpoint.clone(), request).boxed()
    }
}

async fn send(endpoint: Endpoint, mut request: Request<Body>) -> Result<Response<Body>, TransportError> {
    let mut tries = 0;
    loop {
        let (result, is_new) = match endpoint.origin.pool.find(&endpoint) {
            Found::Http1(connection) => (connection.send(request, endpoint.clone()).await, false),
            Found::Http2(place) => (place.send(request).await, true),
            Found::Soon(probe) => {
                probe.wait().await.map_err(TransportError::Unreachable)?;
                continue;
            }
            // Rare and large: boxed, so that the future of every other request is small.
            Found::Nothing => match connect(&endpoint).boxed().await.map_err(TransportError::Unreachable)? {
                Connection::Http1(connection) => (connection.send(request, endpoint.clone()).await, true),
                // It spoke HTTP/1.1 before.
                Connection::Http2(connection) => {
                    endpoint.origin.pool.share(endpoint.address, connection);
                    continue;
                }
            },
        };
        match result {
            Ok(response) => return Ok(response),
            Err(Unsent::Lost(error)) => return Err(error),
            Err(Unsent::Whole(_, error)) if tries == NEW_CONNECTIONS => {
                return Err(TransportError::Unreachable(error));
            }
            Err(Unsent::Whole(whole, _)) => request = *whole,
        }
        tries += usize::from(is_new);
    }
}

impl Origin {
    /// A target, to which nothing is connected yet; or why there can be none.
    pub(crate) fn new(
        service: Arc<str>,
        (scheme, authority): (Scheme, Authority),
        base: String,
        dial: Dial,
    ) -> Result<Self, &'static str> {
        let tls = dial.tls(&scheme, &authority)?;
        let host = match authority.port_u16() {
            Some(port) if port != default_port(&scheme) => authority.as_str(),
            _ => authority.host(),
        };
        // What stands in an authority may stand in a header.
        let host = HeaderValue::from_str(host).unwrap_or(HeaderValue::from_static(""));
        Ok(Self { service, scheme, authority, base, host, dial, tls, pool: Pool::default() })
    }

    /// Whether requests may share a connection to it, on which the target may give one of them back.
    pub(crate) fn is_shared(&self) -> bool {
        match self.dial.protocol {
            Protocol::Auto => self.tls.is_some(),
            protocol => protocol == Protocol::Http2,
        }
    }

    /// Whether it is at this `host:port`; the scheme's own port need not be written.
    pub(crate) fn is_at(&self, authority: &str) -> bool {
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, port.parse().ok()),
            _ => (authority, Some(default_port(&self.scheme))),
        };
        self.authority.host().eq_ignore_ascii_case(host) && port == Some(self.port())
    }

    /// The port that is connected to.
    pub(crate) fn port(&self) -> u16 {
        self.authority.port_u16().unwrap_or(default_port(&self.scheme))
    }

    /// The complete URI of a path at this target, called so or by its own name.
    pub(crate) fn uri(&self, path: PathAndQuery, called: Option<&Authority>) -> Result<Uri, http::Error> {
        let path = match self.base.as_str() {
            "" => path,
            base => PathAndQuery::try_from(format!("{base}{path}"))?,
        };
        let mut parts = Parts::default();
        parts.scheme = Some(self.scheme.clone());
        parts.authority = Some(called.unwrap_or(&self.authority).clone());
        parts.path_and_query = Some(path);
        Ok(Uri::from_parts(parts)?)
    }

    /// What HTTP/1.1 calls it in a request to this URI.
    fn host(&self, uri: &Uri) -> HeaderValue {
        let called = uri.authority().filter(|called| **called != self.authority);
        let called = called.and_then(|called| HeaderValue::from_str(called.as_str()).ok());
        called.unwrap_or_else(|| self.host.clone())
    }
}

/// Whether they are the same target, connected to in the same way: connections to one will do for the
/// other.
impl PartialEq for Origin {
    fn eq(&self, other: &Self) -> bool {
        (&self.service, &self.scheme, &self.authority, &self.base, &self.dial)
            == (&other.service, &other.scheme, &other.authority, &other.base, &other.dial)
    }
}

fn default_port(scheme: &Scheme) -> u16 {
    if *scheme == Scheme::HTTPS { 443 } else { 80 }
}

#[cfg(test)]
mod tests;
