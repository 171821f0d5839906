//! The admin listener: health and metrics, on a separate port that only the operator can reach.
//!
//! It is read-only and therefore needs no token, and it listens on the loopback address unless the config
//! sets another. It answers requests for IP addresses, `localhost` and the names in the config, which
//! prevents DNS rebinding: a page whose own name was made to resolve to this address has another host. It is
//! never shed, and it answers until the process ends, because a load balancer has to learn that a gateway
//! drains.

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
use offload::polls::{PollSite, watch_polls};
use services::{StreamedServiceBody, body};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};

use crate::config::host_names::HostNames;
use crate::gateway::Gateway;
use crate::http_semantics::own_hosts::is_rebinding_safe;
use crate::http_semantics::{cors, problem_details};
use crate::server::listeners::Listener;
use crate::telemetry::metrics::ProcessStats;
use refusal::AdminError;

/// The maximum number of concurrent connections; further ones wait.
const MAX_CONNECTIONS: usize = 64;
/// The timeout for the head of a request, including the next one on the same connection.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// The maximum age of a connection, so that clients that don't read their responses can't occupy all of them.
const MAX_CONNECTION_AGE: Duration = Duration::from_secs(120);
/// The maximum size of a request's head.
const MAX_HEAD: usize = 16 << 10;
/// The delay before accepting again when the process is out of file descriptors.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(50);

/// The admin listener of a gateway.
pub struct AdminListener {
    listener: TcpListener,
    state: Arc<AdminState>,
}

/// The state that the pages are made from.
struct AdminState {
    gateway: Gateway,
    process: Arc<ProcessStats>,
    /// The host names that are answered besides `localhost`.
    hosts: HostNames,
}

impl Gateway {
    /// Serves the admin pages of this gateway on `listener`.
    ///
    /// # Errors
    /// If the runtime can't register the socket.
    pub fn admin(&self, listener: Listener) -> io::Result<AdminListener> {
        AdminListener::new(listener, self.clone())
    }
}

impl AdminListener {
    fn new(listener: Listener, gateway: Gateway) -> io::Result<Self> {
        let listener = listener.into_tokio()?;
        let address: SocketAddr = listener.local_addr()?;
        tracing::info!(%address, "admin listening");
        let admin_state =
            AdminState { hosts: gateway.admin_hosts(), gateway, process: Arc::new(ProcessStats::new()) };
        Ok(Self { listener, state: Arc::new(admin_state) })
    }

    /// Returns the address that is listened on.
    ///
    /// # Errors
    /// If the system doesn't report it.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Answers requests until it is dropped.
    pub async fn serve(self) {
        let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        while let Ok(place) = Arc::clone(&places).acquire_owned().await {
            match self.listener.accept().await {
                Ok((stream, _)) => {
                    let connection = serve_connection(stream, Arc::clone(&self.state), place);
                    drop(tokio::spawn(watch_polls(PollSite::Admin, connection)));
                }
                Err(_) => sleep(ACCEPT_RETRY_DELAY).await,
            }
        }
    }
}

async fn serve_connection<S>(stream: S, state: Arc<AdminState>, place: OwnedSemaphorePermit)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let service = service_fn(move |request| {
        let admin_state = Arc::clone(&state);
        async move { Ok::<_, Infallible>(admin_state.handle_request(&request).await) }
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT).max_buf_size(MAX_HEAD);
    // Errors of a connection need no handling here.
    let _ = timeout(MAX_CONNECTION_AGE, builder.serve_connection(TokioIo::new(stream), service)).await;
    drop(place);
}

impl AdminState {
    async fn handle_request(&self, request: &Request<Incoming>) -> Response<StreamedServiceBody> {
        let page = self.render_page(request).await;
        page.unwrap_or_else(|denied| problem_details::problem_response(&denied).response)
    }

    async fn render_page(
        &self,
        request: &Request<Incoming>,
    ) -> Result<Response<StreamedServiceBody>, AdminError> {
        // A request without a host isn't from a browser.
        let answers_to = |host: &str| is_rebinding_safe(host) || self.hosts.contains(host, false);
        if !cors::host_of(request).is_none_or(answers_to) {
            return Err(AdminError::Host);
        }
        let is_reading = matches!(*request.method(), Method::GET | Method::HEAD);
        match request.uri().path() {
            "/healthz" | "/readyz" | "/metrics" if !is_reading => Err(AdminError::Method),
            // Liveness: any response will do.
            "/healthz" => {
                Ok(text_response(StatusCode::OK, "application/json", r#"{"status":"alive"}"#.to_owned()))
            }
            "/readyz" => Ok(self.readiness_page()),
            "/metrics" => self.metrics_page().await,
            _ => Err(AdminError::Path),
        }
    }

    /// The readiness page, for load balancers.
    fn readiness_page(&self) -> Response<StreamedServiceBody> {
        let (status, word, reason) = match self.gateway.unready_reason() {
            Some((word, reason)) => (StatusCode::SERVICE_UNAVAILABLE, word, reason),
            None => (StatusCode::OK, "ready", String::new()),
        };
        let mut document = serde_json::Map::new();
        document.insert("status".to_owned(), word.into());
        if !reason.is_empty() {
            document.insert("reason".to_owned(), reason.into());
        }
        text_response(status, "application/json", serde_json::Value::Object(document).to_string())
    }

    /// The metrics page. Modules may define thousands of metrics, and writing them takes milliseconds. The
    /// offload pool might refuse the work when the metrics are needed most.
    async fn metrics_page(&self) -> Result<Response<StreamedServiceBody>, AdminError> {
        let (gateway, process) = (self.gateway.clone(), Arc::clone(&self.process));
        let written = spawn_blocking(move || metrics::render_metrics(&gateway, &process)).await;
        let written = written.ok().and_then(Result::ok).ok_or(AdminError::MetricsFailed)?;
        Ok(text_response(StatusCode::OK, metrics::MEDIA_TYPE, written))
    }
}

fn text_response(
    status: StatusCode,
    media_type: &'static str,
    text: String,
) -> Response<StreamedServiceBody> {
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
