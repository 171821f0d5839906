//! A single connection, from its first byte to its last: TLS if the port requires it, then HTTP/2 or
//! HTTP/1.1.
//!
//! Over TLS, ALPN has selected the protocol. In clear text a client of HTTP/2 starts with its preface (RFC
//! 9113, section 3.4), and every other start is HTTP/1.1.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use http::{HeaderValue, Request, Response, StatusCode, Version, header};
use offload::polls::{PollSite, attribute_polls};
use services::StreamedServiceBody;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::timeout;

use super::active_config::ActiveConfig;
use super::drain::{DrainPhase, OpenConnectionToken};
use super::linger::LingeringConnection;
use super::listener_rules::ListenerRules;
use super::phase_change::PhaseChange;
use super::readiness::LifecycleState;
use super::tls::{self, ListenerTls};
use super::{BoxError, GREETING_TIMEOUT, IDLE_TIMEOUT, http1, http2, wait_for_phase};
use crate::http_semantics::client::{ClientInfo, ConnectionContext};
use crate::http_semantics::request_refusal::RequestRefusal;
use crate::limits::client_limiter::ConnectionPermit;
use crate::pipeline::context::LoggedBody;

/// The time that a connection without a request gets when the gateway stops listening, since its request is
/// probably on its way.
const NEW_CONNECTION_GRACE: Duration = Duration::from_secs(1);
/// The preface of an HTTP/2 client.
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// The first byte of a TLS handshake (RFC 8446, section 5.1).
const TLS_HANDSHAKE_BYTE: u8 = 22;

/// A connection and its context.
pub(super) struct AcceptedConnection {
    pub(super) active_config: Arc<ActiveConfig>,
    pub(super) address: SocketAddr,
    pub(super) listener_rules: ListenerRules,
    pub(super) phase: watch::Receiver<DrainPhase>,
    pub(super) open_token: OpenConnectionToken,
    pub(super) permit: Arc<ConnectionPermit>,
}

impl AcceptedConnection {
    pub(super) async fn run(self, stream: TcpStream) {
        // With Nagle's algorithm a response of two packets would wait for the client's delayed
        // acknowledgement.
        let _ = stream.set_nodelay(true);
        let Some(first) = self.peek_first_byte(&stream).await else { return };
        let link = ConnectionContext::new(stream.local_addr().ok(), Some(Arc::clone(&self.permit)));
        let link = Arc::new(link.with_hosts(Arc::clone(&self.listener_rules.hosts)));
        let stream = LingeringConnection::new(stream, Arc::clone(&link), self.listener_rules.tls.is_some());
        let address = self.address;
        let served = match self.listener_rules.tls.clone() {
            None => self.serve_cleartext(stream, link).await,
            Some(_) if first != TLS_HANDSHAKE_BYTE => Box::pin(self.refuse_cleartext(stream, link)).await,
            Some(tls) => Box::pin(self.serve_tls(stream, &tls, link)).await,
        };
        if let Err(error) = served {
            tracing::debug!(%error, client = %address, "the connection broke");
        }
    }

    /// Peeks at the first byte. Returns `None` if the client closes the connection or sends nothing.
    async fn peek_first_byte(&self, stream: &TcpStream) -> Option<u8> {
        let mut first = [0];
        let peeked = tokio::select! {
            peeked = timeout(IDLE_TIMEOUT, stream.peek(&mut first)) => peeked,
            () = wait_for_end(self.phase.clone(), None) => return None,
        };
        matches!(peeked, Ok(Ok(1))).then_some(first[0])
    }

    async fn serve_cleartext(
        self,
        mut stream: LingeringConnection,
        link: Arc<ConnectionContext>,
    ) -> Result<(), BoxError> {
        let (begun, is_http2) = timeout(GREETING_TIMEOUT, read_preface(&mut stream)).await??;
        self.serve(stream, begun, is_http2, link).await
    }

    async fn serve_tls(
        self,
        stream: LingeringConnection,
        tls: &ListenerTls,
        link: Arc<ConnectionContext>,
    ) -> Result<(), BoxError> {
        let Ok(handshake) = self.permit.start_handshake() else { return Ok(()) };
        let stream =
            timeout(GREETING_TIMEOUT, attribute_polls(PollSite::Handshake, tls.acceptor().accept(stream)))
                .await??;
        drop(handshake);
        let (_, session) = stream.get_ref();
        link.set_tls_session(tls::tls_session(session));
        let is_http2 = tls::is_http2(session);
        self.serve(stream, Vec::new(), is_http2, link).await
    }

    /// Answers every request in clear text on a TLS port with an error.
    async fn refuse_cleartext(
        self,
        stream: LingeringConnection,
        link: Arc<ConnectionContext>,
    ) -> Result<(), BoxError> {
        let client = ClientInfo::new(self.address, link);
        Ok(timeout(GREETING_TIMEOUT, http1::refuse(stream, client, &RequestRefusal::TlsRequired)).await??)
    }

    async fn serve<S>(
        self,
        stream: S,
        begun: Vec<u8>,
        is_http2: bool,
        link: Arc<ConnectionContext>,
    ) -> Result<(), BoxError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let _open = self.active_config.pipeline().telemetry.metrics.open_connection(is_http2);
        let client = ClientInfo::new(self.address, Arc::clone(&link));
        if is_http2 {
            self.serve_http2(stream, begun, client).await
        } else {
            self.serve_http1(stream, &begun, client).await
        }
    }

    async fn serve_http1<S>(self, stream: S, begun: &[u8], client: ClientInfo) -> Result<(), BoxError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let Self { active_config: current, phase, open_token: _open, .. } = self;
        let ending =
            PhaseChange::new(phase.clone(), wait_for_end(phase.clone(), Some(client.connection_context())));
        let mut over = PhaseChange::new(phase.clone(), async move {
            wait_for_phase(&mut phase.clone(), DrainPhase::Stopped).await
        });
        let answer = |request, client| handle_request(&current, request, client);
        // The load shedding state outlives its config.
        let shed = Arc::clone(&current.pipeline().load_shedder);
        let is_prompt = || shed.is_prompt();
        let mut serving = pin!(http1::serve(stream, begun, client, ending, answer, is_prompt));
        let served = poll_fn(|context| match serving.as_mut().poll(context) {
            Poll::Ready(served) => Poll::Ready(served),
            Poll::Pending => over.poll(context).map(Ok),
        });
        Ok(served.await?)
    }

    async fn serve_http2<S>(self, stream: S, begun: Vec<u8>, client: ClientInfo) -> Result<(), BoxError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let Self { active_config: current, phase, open_token: _open, .. } = self;
        let ending =
            PhaseChange::new(phase.clone(), wait_for_end(phase.clone(), Some(client.connection_context())));
        let mut over = PhaseChange::new(phase.clone(), async move {
            wait_for_phase(&mut phase.clone(), DrainPhase::Stopped).await
        });
        let answer = move |request, client| {
            let current = Arc::clone(&current);
            async move { handle_request(&current, request, client).await }
        };
        let serving = http2::serve(stream, begun, client, ending, answer);
        let mut serving = Box::pin(attribute_polls(PollSite::Http2, serving));
        let served = poll_fn(|context| match serving.as_mut().poll(context) {
            Poll::Ready(served) => Poll::Ready(served),
            Poll::Pending => over.poll(context).map(Ok),
        });
        served.await
    }
}

/// Handles a request, and sets `Connection: close` where the connection should end. Over HTTP/1.1 a draining
/// gateway does this, so that the connection ends with this response and not during the next request, and so
/// does a connection whose client certificate has expired.
async fn handle_request(
    current: &ActiveConfig,
    request: Request<StreamedServiceBody>,
    client: ClientInfo,
) -> Response<LoggedBody> {
    let is_http1 = request.version() < Version::HTTP_2;
    let is_stale = is_http1 && client.has_stale_certificate();
    let mut response = current.pipeline().handle_request(request, client).await;
    let is_switch = response.status() == StatusCode::SWITCHING_PROTOCOLS;
    let is_last = is_stale || current.readiness.state() == LifecycleState::Draining;
    if is_http1 && !is_switch && is_last {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// Waits until the connection should end. It gets more time before its first request.
async fn wait_for_end(mut phase: watch::Receiver<DrainPhase>, link: Option<Arc<ConnectionContext>>) {
    wait_for_phase(&mut phase, DrainPhase::Draining).await;
    if !link.is_some_and(|link| link.has_begun()) {
        tokio::time::sleep(NEW_CONNECTION_GRACE).await;
    }
}

/// Reads until it is clear whether this is HTTP/2. Returns the bytes that were read.
async fn read_preface(stream: &mut LingeringConnection) -> io::Result<(Vec<u8>, bool)> {
    let mut begun = [0; PREFACE.len()];
    let mut length = 0;
    while length < PREFACE.len() && begun[..length] == PREFACE[..length] {
        match stream.read(&mut begun[length..]).await? {
            0 => break,
            read => length += read,
        }
    }
    Ok((begun[..length].to_vec(), begun == *PREFACE))
}

#[cfg(test)]
mod fixture;
#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;
