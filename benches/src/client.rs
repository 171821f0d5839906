//! An HTTP/1.1 client with one kept connection per request in flight.
//!
//! A browser opens at most six connections to a host over HTTP/1.1. With that limit, "all at once" would look
//! worse than it is over HTTP/2, so every request here gets a connection of its own that is already set up.
//! Requests carry only the headers that they need, some 60 bytes, where a browser sends 500.

use std::io::Write;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use async_compression::tokio::bufread::{BrotliDecoder, GzipDecoder, ZstdDecoder};
use bytes::Bytes;
use flate2::{Compression, write::GzEncoder};
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, HOST, HeaderValue};
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::net::{TcpSocket, TcpStream};

/// Errors between a client and a server.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The connection can't be set up.
    #[error("can't connect: {0}")]
    Connect(#[from] std::io::Error),
    /// The connection broke, or the response was not valid HTTP.
    #[error("incomplete response: {0}")]
    Http(#[from] hyper::Error),
}

/// Errors in the body of a response.
#[derive(Debug, thiserror::Error)]
pub enum BodyDecodeError {
    /// The compression is unsupported or invalid.
    #[error("the body can't be decompressed: {0}")]
    Compressed(#[from] std::io::Error),
    /// The deduplicated form is invalid.
    #[error("the body can't be expanded: {0}")]
    Deduplicated(#[from] dedup::DecodeError),
}

/// A client of one server.
#[derive(Debug)]
pub struct BenchClient {
    address: SocketAddr,
    host: HeaderValue,
    /// Idle connections; the last one used is taken first.
    idle: Mutex<Vec<BenchConnection>>,
    opened: AtomicUsize,
}

/// A complete response.
#[derive(Clone, Debug)]
pub struct BenchResponse {
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The body as received.
    pub body: Bytes,
}

impl BenchResponse {
    /// The `accept-encoding` of a browser.
    pub const ENCODINGS: &str = "gzip, deflate, br, zstd";
    /// The `accept` header that requests deduplicated responses.
    pub const WITHOUT_DUPLICATES: &str = "application/vnd.orfa.dedup+json, application/json;q=0.9";

    /// The content encoding; empty if there is none.
    #[must_use]
    pub fn encoding(&self) -> &str {
        self.header(CONTENT_ENCODING)
    }

    /// The body after decompression and expansion.
    ///
    /// # Errors
    /// Fails if the body does not match its headers.
    pub async fn decode_body(&self) -> Result<Vec<u8>, BodyDecodeError> {
        let body: &[u8] = &self.body;
        let plain = match self.encoding() {
            "gzip" => read_all(GzipDecoder::new(body)).await?,
            "br" => read_all(BrotliDecoder::new(body)).await?,
            "zstd" => read_all(ZstdDecoder::new(body)).await?,
            _ => body.to_vec(),
        };
        match self.header(CONTENT_TYPE).starts_with(dedup::media_type(dedup::DedupForm::Json)) {
            true => Ok(dedup::decode(&plain, MAX_EXPANDED)?),
            false => Ok(plain),
        }
    }

    fn header(&self, name: http::HeaderName) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }
}

async fn read_all(mut from: impl AsyncRead + Unpin) -> std::io::Result<Vec<u8>> {
    let mut all = Vec::new();
    from.read_to_end(&mut all).await?;
    Ok(all)
}

/// The number of connections from each loopback address.
const PER_ADDRESS: usize = 1_000;
/// The maximum size of an expanded response.
const MAX_EXPANDED: usize = 64 << 20;

type BenchConnection = SendRequest<Full<Bytes>>;

impl BenchClient {
    /// Creates a client without connections.
    #[must_use]
    pub fn new(address: SocketAddr) -> Self {
        let host = HeaderValue::try_from(address.to_string());
        Self {
            address,
            host: host.unwrap_or(HeaderValue::from_static("localhost")),
            idle: Mutex::default(),
            opened: AtomicUsize::new(0),
        }
    }

    /// The server's address.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Opens connections for later requests.
    ///
    /// # Errors
    /// Fails if one can't be opened.
    pub async fn open(&self, connections: usize) -> Result<(), ClientError> {
        for _ in 0..connections {
            let connection = self.connect().await?;
            self.lock_idle().push(connection);
        }
        Ok(())
    }

    /// Sends a request over an idle connection or a new one, and reads the response. A request that could not
    /// be sent because the server has just closed a kept connection is sent over the next one.
    ///
    /// # Errors
    /// Fails if there is no connection, or it breaks.
    pub async fn send(&self, mut request: Request<Full<Bytes>>) -> Result<BenchResponse, ClientError> {
        request.headers_mut().insert(HOST, self.host.clone());
        loop {
            let kept = self.take_idle();
            let is_new = kept.is_none();
            let mut connection = match kept {
                Some(connection) => connection,
                None => self.connect().await?,
            };
            match connection.ready().await {
                Err(error) if is_new => return Err(error.into()),
                Err(_) => continue,
                Ok(()) => {}
            }
            let mut failed = match connection.try_send_request(request).await {
                Ok(response) => return self.receive(connection, response).await,
                Err(failed) => failed,
            };
            match failed.take_message() {
                Some(unsent) if !is_new => request = unsent,
                _ => return Err(failed.into_error().into()),
            }
        }
    }

    /// Reads a response to its end, and keeps the connection.
    async fn receive(
        &self,
        connection: BenchConnection,
        response: Response<Incoming>,
    ) -> Result<BenchResponse, ClientError> {
        let (head, body) = response.into_parts();
        let body = body.collect().await?.to_bytes();
        self.lock_idle().push(connection);
        Ok(BenchResponse { status: head.status, headers: head.headers, body })
    }

    fn take_idle(&self) -> Option<BenchConnection> {
        let mut idle = self.lock_idle();
        std::iter::from_fn(|| idle.pop()).find(|connection| !connection.is_closed())
    }

    async fn connect(&self) -> Result<BenchConnection, ClientError> {
        let stream = self.connect_from_own_address().await?;
        stream.set_nodelay(true)?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        // An error of the connection is also reported by the request on it.
        tokio::spawn(connection);
        Ok(sender)
    }

    /// Connects from the next loopback address after [`PER_ADDRESS`] connections, since a gateway limits the
    /// connections of each address.
    async fn connect_from_own_address(&self) -> Result<TcpStream, std::io::Error> {
        let number = self.opened.fetch_add(1, Relaxed) / PER_ADDRESS;
        let last = 1 + u8::try_from(number % 250).unwrap_or_default();
        if !self.address.ip().is_loopback() || self.address.is_ipv6() {
            return TcpStream::connect(self.address).await;
        }
        let socket = TcpSocket::new_v4()?;
        socket.bind(SocketAddr::from(([127, 0, 0, last], 0)))?;
        socket.connect(self.address).await
    }

    fn lock_idle(&self) -> std::sync::MutexGuard<'_, Vec<BenchConnection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The number of bytes that gzip saves; 0 if it saves none.
///
/// # Errors
/// Never fails in practice: it writes to memory.
pub fn gzip_saves(body: &[u8]) -> std::io::Result<u64> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(body)?;
    Ok(body.len().saturating_sub(encoder.finish()?.len()) as u64)
}
