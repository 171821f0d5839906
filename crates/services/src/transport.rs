//! The one seam through which bytes leave for a service: [`Live`] here, a recording elsewhere.

use std::net::SocketAddr;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use http::uri::{Authority, Parts, PathAndQuery, Scheme};
use http::{Request, Response, Uri};
use http_body_util::BodyExt;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use std::sync::Arc;

use crate::body::{Body, Error};

/// How long connecting may take, whatever the service's own timeout.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a connection is kept for the next call: less than most servers keep it.
const IDLE_TIMEOUT: Duration = Duration::from_secs(55);
/// How many idle connections are kept for a target. A burst may open more; they close after it.
const IDLE_CONNECTIONS: usize = 512;

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

/// One of a service's targets, taken apart when the config was read.
#[derive(Clone, Debug)]
pub struct Origin {
    /// The service's name.
    pub service: Arc<str>,
    /// `http` or `https`.
    pub scheme: Scheme,
    /// Host and port.
    pub authority: Authority,
    /// What stands before every path; empty for most.
    pub base: String,
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
    /// No connection: nothing was sent.
    #[error("no connection")]
    Unreachable(#[source] Error),
    /// No answer in time.
    #[error("no answer in time")]
    Timeout(#[source] Error),
    /// The connection broke, or what came was not HTTP.
    #[error("the connection broke")]
    Broken(#[source] Error),
}

/// Real connections: pooled, HTTP/1.1, or HTTP/2 where TLS agrees on it.
#[derive(Clone, Debug)]
pub struct Live {
    client: Client<HttpsConnector<HttpConnector>, Body>,
}

impl Live {
    /// A pool of its own. Connects to nothing yet.
    ///
    /// # Errors
    /// If the cryptography that TLS needs is missing from the build.
    pub fn new() -> Result<Self, Error> {
        let mut connector = HttpConnector::new();
        connector.enforce_http(false);
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
        let connector = HttpsConnectorBuilder::new()
            .with_provider_and_webpki_roots(rustls::crypto::ring::default_provider())?
            .https_or_http()
            .enable_all_versions()
            .wrap_connector(connector);
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_TIMEOUT)
            .pool_max_idle_per_host(IDLE_CONNECTIONS)
            .build(connector);
        Ok(Self { client })
    }
}

impl Transport for Live {
    fn send(
        &self,
        _endpoint: &Endpoint,
        request: Request<Body>,
    ) -> BoxFuture<'static, Result<Response<Body>, TransportError>> {
        let answer = self.client.request(request);
        async move {
            match answer.await {
                Ok(response) => Ok(response.map(|body| body.map_err(Error::from).boxed_unsync())),
                Err(error) if error.is_connect() => Err(TransportError::Unreachable(error.into())),
                Err(error) => Err(TransportError::Broken(error.into())),
            }
        }
        .boxed()
    }
}

impl Origin {
    /// The complete URI of a path at this target.
    pub(crate) fn uri(&self, path: PathAndQuery) -> Result<Uri, http::Error> {
        let path = match self.base.as_str() {
            "" => path,
            base => PathAndQuery::try_from(format!("{base}{path}"))?,
        };
        let mut parts = Parts::default();
        parts.scheme = Some(self.scheme.clone());
        parts.authority = Some(self.authority.clone());
        parts.path_and_query = Some(path);
        Ok(Uri::from_parts(parts)?)
    }
}
