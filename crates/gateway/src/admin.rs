//! The admin listener: health and metrics, on a port of its own that only the operator can reach.
//!
//! Nothing here changes anything, so it asks for no token; it is on the loopback address unless the config
//! says otherwise. It answers to addresses, to `localhost` and to names that the config has: a page whose own name was made
//! to point here (DNS rebinding) has another. It is never shed, and it answers until the process ends: a load balancer
//! has to hear that a gateway drains.

mod metrics;
mod refusal;

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use offload::polls::{PollSite, watched};
use services::{Body, body};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};

use crate::cors;
use crate::gateway::Gateway;
use crate::hosts::{self, HostNames};
use crate::listen::Listener;
use crate::metrics::Process;
use crate::respond;
use refusal::Denied;

/// How many connections are answered at once; the others wait.
const CONNECTIONS: usize = 64;
/// How long the head of a request may take, and the next one on the same connection.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a connection may live: whoever does not read what was asked for holds its place no longer.
const LONGEST: Duration = Duration::from_secs(120);
/// The largest head of a request.
const MAX_HEAD: usize = 16 << 10;
/// How long to wait when the system has no more file descriptors.
const BREATHER: Duration = Duration::from_millis(50);

/// The operator's listener of a gateway.
pub struct Admin {
    listener: TcpListener,
    seen: Arc<Seen>,
}

/// What can be seen.
struct Seen {
    gateway: Gateway,
    process: Arc<Process>,
    /// The names that are answered to besides `localhost`.
    hosts: HostNames,
}

impl Gateway {
    /// What the operator sees of it, there.
    ///
    /// # Errors
    /// When the runtime can't have the socket.
    pub fn admin(&self, listener: Listener) -> io::Result<Admin> {
        Admin::new(listener, self.clone())
    }
}

impl Admin {
    fn new(listener: Listener, gateway: Gateway) -> io::Result<Self> {
        let listener = listener.into_tokio()?;
        let address: SocketAddr = listener.local_addr()?;
        tracing::info!(%address, "admin listening");
        let seen = Seen { hosts: gateway.admin_hosts(), gateway, process: Arc::new(Process::new()) };
        Ok(Self { listener, seen: Arc::new(seen) })
    }

    /// Where it really listens.
    ///
    /// # Errors
    /// When the system does not say.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Answers until it is dropped.
    pub async fn serve(self) {
        let places = Arc::new(Semaphore::new(CONNECTIONS));
        while let Ok(place) = Arc::clone(&places).acquire_owned().await {
            match self.listener.accept().await {
                Ok((stream, _)) => {
                    let connection = connection(stream, Arc::clone(&self.seen), place);
                    drop(tokio::spawn(watched(PollSite::Admin, connection)));
                }
                Err(_) => sleep(BREATHER).await,
            }
        }
    }
}

async fn connection<S>(stream: S, seen: Arc<Seen>, place: OwnedSemaphorePermit)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let service = service_fn(|request| {
        let answer = seen.answer(&request);
        async move { Ok::<_, Infallible>(answer) }
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT).max_buf_size(MAX_HEAD);
    // However it ends, it is over.
    let _ = timeout(LONGEST, builder.serve_connection(TokioIo::new(stream), service)).await;
    drop(place);
}

impl Seen {
    fn answer(&self, request: &Request<Incoming>) -> Response<Body> {
        self.page(request).unwrap_or_else(|denied| respond::problem(&denied))
    }

    fn page(&self, request: &Request<Incoming>) -> Result<Response<Body>, Denied> {
        // Without a host it is no browser's.
        let answers_to = |host: &str| hosts::is_beyond_rebinding(host) || self.hosts.contain(host, false);
        if !cors::host_of(request).is_none_or(answers_to) {
            return Err(Denied::Host);
        }
        let is_reading = matches!(*request.method(), Method::GET | Method::HEAD);
        match request.uri().path() {
            "/healthz" | "/readyz" | "/metrics" if !is_reading => Err(Denied::Method),
            // It answers, so it lives.
            "/healthz" => Ok(text(StatusCode::OK, "application/json", r#"{"status":"alive"}"#.to_owned())),
            "/readyz" => Ok(self.ready()),
            "/metrics" => self.metrics(),
            _ => Err(Denied::Path),
        }
    }

    /// Whether a load balancer should send requests here.
    fn ready(&self) -> Response<Body> {
        let (status, word, reason) = match self.gateway.unready() {
            Some((word, reason)) => (StatusCode::SERVICE_UNAVAILABLE, word, reason),
            None => (StatusCode::OK, "ready", String::new()),
        };
        let mut document = serde_json::Map::new();
        document.insert("status".to_owned(), word.into());
        if !reason.is_empty() {
            document.insert("reason".to_owned(), reason.into());
        }
        text(status, "application/json", serde_json::Value::Object(document).to_string())
    }

    fn metrics(&self) -> Result<Response<Body>, Denied> {
        let text_of = metrics::text(&self.gateway, &self.process).map_err(|_| Denied::Unwritten)?;
        Ok(text(StatusCode::OK, metrics::MEDIA_TYPE, text_of))
    }
}

fn text(status: StatusCode, media_type: &'static str, text: String) -> Response<Body> {
    let mut response = Response::new(body::full(text));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

#[cfg(test)]
mod tests;
