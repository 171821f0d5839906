//! The gateway's own calls to URLs of the operator's: keys to check tokens with, a collector of traces.
//!
//! They belong to no client's request and take nothing out of a budget; instead each brings its own
//! bounds. Redirects are answers, not followed: the operator wrote where to go.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::header::{HeaderValue, USER_AGENT};
use http::uri::Scheme;
use http::{Request, Response, Uri};
use tokio::time::timeout;

use crate::body::{Error, ReadBodyError, full, read_within};
use crate::config::{Protocol, ServiceTlsConfig};
use crate::headers::AGENT;
use crate::hosts::Reach;
use crate::transport::{Dial, Endpoint, Live, Origin, Transport, TransportError, tls};

/// How long connecting may take, where the caller gives more for all of it.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// A client for the gateway's own errands. Clones share connections.
#[derive(Clone, Debug)]
pub struct Fetch {
    dial: Dial,
    /// Where it has been sent to: as many places as the config names URLs.
    origins: Arc<Mutex<Vec<Arc<Origin>>>>,
}

/// Why nothing was fetched.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// The URL can't be fetched.
    #[error("the URL can't be fetched: {0}")]
    Url(&'static str),
    /// No connection, or the target gave the request back: nothing was done with it.
    #[error("no connection")]
    Unreachable(#[source] Error),
    /// No answer, or not all of it, within the time given.
    #[error("no whole answer within {0:?}")]
    Timeout(Duration),
    /// The answer is longer than allowed, in bytes.
    #[error("the answer is larger than {0} bytes")]
    TooLarge(u64),
    /// The connection broke, or what came was not HTTP.
    #[error("the connection broke, or what came is not HTTP")]
    Broken(#[source] Error),
}

impl Fetch {
    /// A client with connections of its own. Connects to nothing yet.
    ///
    /// # Errors
    /// If the cryptography that TLS needs is missing from the build.
    pub fn new() -> Result<Self, Error> {
        let tls = tls::client(&ServiceTlsConfig::default(), Protocol::Auto, Path::new(""));
        let tls = Some(tls.map_err(|mistake| mistake.message)?);
        let dial = Dial {
            timeout: CONNECT_TIMEOUT,
            protocol: Protocol::Auto,
            tls,
            server_name: None,
            reach: Reach::Everywhere,
        };
        Ok(Self { dial, origins: Arc::default() })
    }

    /// Sends one request to the `http` or `https` URL that it names, and reads the answer, whatever its
    /// status, to its end: `limit` bytes at most, within `time` from connecting to the last byte.
    ///
    /// # Errors
    /// What [`FetchError`] lists. Only after [`FetchError::Unreachable`] was nothing done for sure.
    pub async fn send(
        &self,
        request: Request<Bytes>,
        time: Duration,
        limit: u64,
    ) -> Result<Response<Bytes>, FetchError> {
        let endpoint = self.endpoint(request.uri()).map_err(FetchError::Url)?;
        let mut request = request.map(full);
        request.headers_mut().entry(USER_AGENT).or_insert(const { HeaderValue::from_static(AGENT) });
        let exchange = async {
            let (head, body) = Live.send(&endpoint, request).await?.into_parts();
            Ok(Response::from_parts(head, read_within(body, limit).await?))
        };
        timeout(time, exchange).await.unwrap_or(Err(FetchError::Timeout(time)))
    }

    fn endpoint(&self, uri: &Uri) -> Result<Endpoint, &'static str> {
        let scheme = match uri.scheme() {
            Some(scheme) if [&Scheme::HTTP, &Scheme::HTTPS].contains(&scheme) => scheme,
            _ => return Err("it begins with neither `http://` nor `https://`"),
        };
        let authority = uri.authority().ok_or("it has no host")?;
        if authority.as_str().contains('@') {
            return Err("it names a user; credentials belong into headers");
        }
        let mut origins = self.origins.lock().unwrap_or_else(PoisonError::into_inner);
        let known = origins.iter().find(|known| known.scheme == *scheme && known.authority == *authority);
        let origin = match known {
            Some(known) => Arc::clone(known),
            None => {
                let url = (scheme.clone(), authority.clone());
                let new = Arc::new(Origin::new(Arc::from(""), url, String::new(), self.dial.clone())?);
                origins.push(Arc::clone(&new));
                new
            }
        };
        Ok(Endpoint { origin, address: None })
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
