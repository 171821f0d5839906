//! Requests of the gateway itself to URLs in the config: signing keys for tokens, trace collectors.
//!
//! They belong to no client's request and use no budget; each has limits of its own. Redirects are not
//! followed but returned: the operator configures the final URL.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::header::{HeaderValue, USER_AGENT};
use http::uri::Scheme;
use http::{Request, Response, Uri};
use tokio::time::timeout;

use crate::body::{BodyError, ReadBodyError, full, read_limited};
use crate::config::{ServiceProtocol, ServiceTlsConfig};
use crate::headers::DEFAULT_USER_AGENT;
use crate::transport::{
    ConnectSettings, LiveTransport, ReachableAddresses, RequestEndpoint, ServiceTransport, TargetOrigin,
    TransportError, tls,
};

/// The timeout for connecting, if the total timeout is longer.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// A client for requests of the gateway itself. Clones share connections.
#[derive(Clone, Debug)]
pub struct GatewayClient {
    dial: ConnectSettings,
    /// The origins contacted so far; their number is limited by the URLs in the config.
    origins: Arc<Mutex<Vec<Arc<TargetOrigin>>>>,
}

/// An error from fetching a URL.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// The URL is not supported.
    #[error("the URL can't be fetched: {0}")]
    Url(&'static str),
    /// There was no connection, or the target refused the request unprocessed.
    #[error("no connection")]
    Unreachable(#[source] BodyError),
    /// The response was not complete within the timeout.
    #[error("no complete response within {0:?}")]
    Timeout(Duration),
    /// The response exceeds this number of bytes.
    #[error("the response is larger than {0} bytes")]
    TooLarge(u64),
    /// The connection broke, or the response is not HTTP.
    #[error("the connection broke, or the response is not HTTP")]
    Broken(#[source] BodyError),
}

impl GatewayClient {
    /// Creates a client with a connection pool of its own. Opens no connections.
    ///
    /// # Errors
    /// An error if the build lacks the cryptography that TLS needs.
    pub fn new() -> Result<Self, BodyError> {
        let tls = tls::client_tls(&ServiceTlsConfig::default(), ServiceProtocol::Auto, Path::new(""));
        let tls = Some(tls.map_err(|mistake| mistake.message)?);
        let dial = ConnectSettings {
            timeout: CONNECT_TIMEOUT,
            protocol: ServiceProtocol::Auto,
            tls,
            server_name: None,
            reachable_addresses: ReachableAddresses::Unrestricted,
        };
        Ok(Self { dial, origins: Arc::default() })
    }

    /// Sends a request to its `http` or `https` URL, and reads the response, whatever its status, to its end.
    /// The response may have at most `limit` bytes; `time` covers everything from connecting to the last
    /// byte.
    ///
    /// # Errors
    /// See [`FetchError`]. Only [`FetchError::Unreachable`] guarantees that the request was not processed.
    pub async fn send(
        &self,
        request: Request<Bytes>,
        time: Duration,
        limit: u64,
    ) -> Result<Response<Bytes>, FetchError> {
        let endpoint = self.endpoint_for(request.uri()).map_err(FetchError::Url)?;
        let mut request = request.map(full);
        request
            .headers_mut()
            .entry(USER_AGENT)
            .or_insert(const { HeaderValue::from_static(DEFAULT_USER_AGENT) });
        let exchange = async {
            let (head, body) = LiveTransport.send(&endpoint, request).await?.into_parts();
            Ok(Response::from_parts(head, read_limited(body, limit).await?))
        };
        timeout(time, exchange).await.unwrap_or(Err(FetchError::Timeout(time)))
    }

    fn endpoint_for(&self, uri: &Uri) -> Result<RequestEndpoint, &'static str> {
        let scheme = match uri.scheme() {
            Some(scheme) if [&Scheme::HTTP, &Scheme::HTTPS].contains(&scheme) => scheme,
            _ => return Err("it begins with neither `http://` nor `https://`"),
        };
        let authority = uri.authority().ok_or("it has no host")?;
        if authority.as_str().contains('@') {
            return Err("it contains a user name; send credentials in headers");
        }
        let mut origins = self.origins.lock().unwrap_or_else(PoisonError::into_inner);
        let target_origin =
            origins.iter().find(|known| known.scheme == *scheme && known.authority == *authority);
        let origin = match target_origin {
            Some(known) => Arc::clone(known),
            None => {
                let url = (scheme.clone(), authority.clone());
                let new = Arc::new(TargetOrigin::new(Arc::from(""), url, String::new(), self.dial.clone())?);
                origins.push(Arc::clone(&new));
                new
            }
        };
        Ok(RequestEndpoint { origin, address: None })
    }
}

impl From<ReadBodyError> for FetchError {
    fn from(error: ReadBodyError) -> Self {
        match error {
            ReadBodyError::TooLarge(limit) => Self::TooLarge(limit),
            ReadBodyError::Broken(source) => Self::Broken(source),
        }
    }
}

impl From<TransportError> for FetchError {
    fn from(error: TransportError) -> Self {
        match error {
            TransportError::Unreachable(source) | TransportError::Refused(source) => {
                Self::Unreachable(source)
            }
            TransportError::Timeout(source) | TransportError::Broken(source) => Self::Broken(source),
        }
    }
}

#[cfg(test)]
mod tests;
