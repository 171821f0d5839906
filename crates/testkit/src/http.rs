//! A small HTTP client: one connection, without caching or retries.
//!
//! [`request`] is for well-formed requests, [`send_raw`] for malformed ones, [`HeldConnection`] for requests
//! that share a connection or are aborted.

use std::net::SocketAddr;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// An error in the communication with the server under test.
pub type HttpTestError = Box<dyn std::error::Error + Send + Sync>;

/// A response, read to its end.
#[derive(Clone, Debug)]
pub struct TestResponse {
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The body as received.
    pub body: Bytes,
}

/// A connection that stays open until this is dropped.
#[derive(Debug)]
pub struct HeldConnection {
    sender: SendRequest<Full<Bytes>>,
    authority: String,
    driver: tokio::task::JoinHandle<()>,
}

impl TestResponse {
    /// The body as text.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON.
    ///
    /// # Panics
    /// Panics if the body is not JSON.
    #[must_use]
    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        match serde_json::from_slice(&self.body) {
            Ok(value) => value,
            Err(error) => panic!("{} with a body that is not JSON ({error}): {}", self.status, self.text()),
        }
    }

    /// A header as text, or empty if it is missing.
    #[must_use]
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }
}

impl HeldConnection {
    /// Connects to `127.0.0.1:8080` or to the host of a URL.
    ///
    /// # Errors
    /// Fails if nothing listens there.
    pub async fn open(to: &str) -> Result<Self, HttpTestError> {
        let authority = match to.parse::<Uri>()?.into_parts().authority {
            Some(authority) => authority.to_string(),
            None => to.to_owned(),
        };
        let stream = TcpStream::connect(&authority).await?;
        stream.set_nodelay(true)?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        let driver = tokio::spawn(async move {
            // An error on the connection also fails the request on it, which reports it to the test.
            let _ = connection.await;
        });
        Ok(Self { sender, authority, driver })
    }

    /// Sends a request and reads its response. Dropping the future closes the connection.
    ///
    /// # Errors
    /// Fails if the connection breaks or the response is not HTTP.
    pub async fn request(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Result<TestResponse, HttpTestError> {
        let mut request = Request::new(Full::new(body.into()));
        *request.method_mut() = Method::from_bytes(method.as_bytes())?;
        *request.uri_mut() = path.parse()?;
        for (name, value) in headers {
            let name = HeaderName::from_bytes(name.as_bytes())?;
            request.headers_mut().append(name, HeaderValue::from_str(value)?);
        }
        let host = HeaderValue::from_str(&self.authority)?;
        request.headers_mut().entry("host").or_insert(host);
        self.sender.ready().await?;
        let (head, body) = self.sender.send_request(request).await?.into_parts();
        let body = body.collect().await?.to_bytes();
        Ok(TestResponse { status: head.status, headers: head.headers, body })
    }
}

impl Drop for HeldConnection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// Sends one request on a connection of its own.
///
/// # Errors
/// Fails if there is no connection, it breaks, or the response is not HTTP.
pub async fn request(
    method: &str,
    url: &str,
    headers: &[(&str, &str)],
    body: impl Into<Bytes>,
) -> Result<TestResponse, HttpTestError> {
    let uri: Uri = url.parse()?;
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    HeldConnection::open(url).await?.request(method, path, headers, body).await
}

/// Sends bytes unchanged, however malformed, and reads until the peer closes the connection. Add `Connection:
/// close` if it might not. Returns the bytes received before an error, if there is one.
///
/// # Errors
/// Fails if there is no connection.
pub async fn send_raw(address: SocketAddr, bytes: &[u8]) -> Result<String, HttpTestError> {
    let mut stream = TcpStream::connect(address).await?;
    let mut answer = Vec::new();
    // A peer that refuses early may close while the client writes, so write errors are ignored.
    let _ = stream.write_all(bytes).await;
    let _ = stream.read_to_end(&mut answer).await;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}
