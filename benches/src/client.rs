//! An HTTP/1.1 client with as many kept connections as it has requests under way at once.
//!
//! A browser has six to a host over HTTP/1.1. To give it six would make "all at once" look worse than it
//! is over HTTP/2; so every request of ours gets a connection of its own that already stands. Requests
//! carry only the headers that they need, some 60 bytes, where a browser sends 500.

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

/// What goes wrong between a client and a server.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No connection.
    #[error("can't connect: {0}")]
    Connect(#[from] std::io::Error),
    /// The connection broke, or what came was not HTTP.
    #[error("no whole answer: {0}")]
    Http(#[from] hyper::Error),
}

/// What is wrong with the body of an answer.
#[derive(Debug, thiserror::Error)]
pub enum Undecodable {
    /// It was compressed otherwise, or not as it says.
    #[error("the body can't be decompressed: {0}")]
    Compressed(#[from] std::io::Error),
    /// It says that it is without duplicates, and is not.
    #[error("the body can't be expanded: {0}")]
    Deduplicated(#[from] dedup::Error),
}

/// A client of one server.
#[derive(Debug)]
pub struct Client {
    address: SocketAddr,
    host: HeaderValue,
    /// The last one used is the first one taken.
    idle: Mutex<Vec<Connection>>,
    opened: AtomicUsize,
}

/// An answer, read to its end.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The body as it came.
    pub body: Bytes,
}

impl Answer {
    /// What a browser says that it understands.
    pub const ENCODINGS: &str = "gzip, deflate, br, zstd";
    /// What is asked for where duplicates may be left out.
    pub const WITHOUT_DUPLICATES: &str = "application/vnd.orfa.dedup+json, application/json;q=0.9";

    /// How it was compressed; empty where it was not.
    #[must_use]
    pub fn encoding(&self) -> &str {
        self.header(CONTENT_ENCODING)
    }

    /// The body as it was before it was compressed and before duplicates were left out.
    ///
    /// # Errors
    /// If it is not what its headers say.
    pub async fn decoded(&self) -> Result<Vec<u8>, Undecodable> {
        let body: &[u8] = &self.body;
        let plain = match self.encoding() {
            "gzip" => all(GzipDecoder::new(body)).await?,
            "br" => all(BrotliDecoder::new(body)).await?,
            "zstd" => all(ZstdDecoder::new(body)).await?,
            _ => body.to_vec(),
        };
        match self.header(CONTENT_TYPE).starts_with(dedup::media_type(dedup::Form::Json)) {
            true => Ok(dedup::decode(&plain, EXPANDED)?),
            false => Ok(plain),
        }
    }

    fn header(&self, name: http::HeaderName) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }
}

async fn all(mut from: impl AsyncRead + Unpin) -> std::io::Result<Vec<u8>> {
    let mut all = Vec::new();
    from.read_to_end(&mut all).await?;
    Ok(all)
}

/// How many connections come from one address of the loopback.
const PER_ADDRESS: usize = 1_000;
/// The most that an answer without duplicates may come to.
const EXPANDED: usize = 64 << 20;

type Connection = SendRequest<Full<Bytes>>;

impl Client {
    /// A client that has no connection yet.
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

    /// Where the server is.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Opens so many connections, for requests to come.
    ///
    /// # Errors
    /// If one can't be opened.
    pub async fn open(&self, connections: usize) -> Result<(), Error> {
        for _ in 0..connections {
            let connection = self.connect().await?;
            self.lock().push(connection);
        }
        Ok(())
    }

    /// Sends a request, on a connection that stands idle or a new one, and reads the answer. What could not
    /// be sent at all, since the server had just closed a kept connection, goes over the next one.
    ///
    /// # Errors
    /// If there is no connection, or it breaks.
    pub async fn send(&self, mut request: Request<Full<Bytes>>) -> Result<Answer, Error> {
        request.headers_mut().insert(HOST, self.host.clone());
        loop {
            let kept = self.take();
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

    /// Reads an answer to its end, and keeps the connection.
    async fn receive(&self, connection: Connection, response: Response<Incoming>) -> Result<Answer, Error> {
        let (head, body) = response.into_parts();
        let body = body.collect().await?.to_bytes();
        self.lock().push(connection);
        Ok(Answer { status: head.status, headers: head.headers, body })
    }

    fn take(&self) -> Option<Connection> {
        let mut idle = self.lock();
        std::iter::from_fn(|| idle.pop()).find(|connection| !connection.is_closed())
    }

    async fn connect(&self) -> Result<Connection, Error> {
        let stream = self.connect_from_own_address().await?;
        stream.set_nodelay(true)?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        // What ends the connection also fails the request on it, whose sender is told.
        tokio::spawn(connection);
        Ok(sender)
    }

    /// A connection to this machine from the next of its addresses once one has [`PER_ADDRESS`]: a gateway lets in so many
    /// of each.
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

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Connection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Bytes by which gzip makes a body smaller; none where it would not.
///
/// # Errors
/// None: what is written to is memory.
pub fn gzip_saves(body: &[u8]) -> std::io::Result<u64> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(body)?;
    Ok(body.len().saturating_sub(encoder.finish()?.len()) as u64)
}
