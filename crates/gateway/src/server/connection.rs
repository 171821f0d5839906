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

use super::awaited::PhaseChange;
use super::limiter::ConnectionPermit;
use super::linger::LingeringConnection;
use super::tls::{self, ListenerTls};
use super::{BoxError, GREETING, IDLE, ListenerRules, http1, http2, reached};
use crate::access::LoggedBody;
use crate::client::{ClientInfo, ConnectionContext};
use crate::drain::{DrainPhase, OpenConnectionToken};
use crate::life::ActiveConfig;
use crate::readiness::LifecycleState;
use crate::refusal::RequestRefusal;

/// The time that a connection without a request gets when the gateway stops listening, since its request is
/// probably on its way.
const NEWCOMER: Duration = Duration::from_secs(1);
/// The preface of an HTTP/2 client.
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// The first byte of a TLS handshake (RFC 8446, section 5.1).
const HANDSHAKE: u8 = 22;

/// A connection and its context.
pub(super) struct AcceptedConnection {
    pub(super) current: Arc<ActiveConfig>,
    pub(super) address: SocketAddr,
    pub(super) port: ListenerRules,
    pub(super) phase: watch::Receiver<DrainPhase>,
    pub(super) open: OpenConnectionToken,
    pub(super) permit: Arc<ConnectionPermit>,
}

impl AcceptedConnection {
    pub(super) async fn run(self, stream: TcpStream) {
        // With Nagle's algorithm a response of two packets would wait for the client's delayed
        // acknowledgement.
        let _ = stream.set_nodelay(true);
        let Some(first) = self.first_byte(&stream).await else { return };
        let link = ConnectionContext::new(stream.local_addr().ok(), Some(Arc::clone(&self.permit)));
        let link = Arc::new(link.for_hosts(Arc::clone(&self.port.hosts)));
        let stream = LingeringConnection::new(stream, Arc::clone(&link), self.port.tls.is_some());
        let address = self.address;
        let served = match self.port.tls.clone() {
            None => self.serve_clear(stream, link).await,
            Some(_) if first != HANDSHAKE => Box::pin(self.refuse_clear(stream, link)).await,
            Some(tls) => Box::pin(self.serve_secure(stream, &tls, link)).await,
        };
        if let Err(error) = served {
            tracing::debug!(%error, client = %address, "the connection broke");
        }
    }

    /// Peeks at the first byte. Returns `None` if the client closes the connection or sends nothing.
    async fn first_byte(&self, stream: &TcpStream) -> Option<u8> {
        let mut first = [0];
        let peeked = tokio::select! {
            peeked = timeout(IDLE, stream.peek(&mut first)) => peeked,
            () = ending(self.phase.clone(), None) => return None,
        };
        matches!(peeked, Ok(Ok(1))).then_some(first[0])
    }

    async fn serve_clear(
        self,
        mut stream: LingeringConnection,
        link: Arc<ConnectionContext>,
    ) -> Result<(), BoxError> {
        let (begun, is_http2) = timeout(GREETING, preface(&mut stream)).await??;
        self.serve(stream, begun, is_http2, link).await
    }

    async fn serve_secure(
        self,
        stream: LingeringConnection,
        tls: &ListenerTls,
        link: Arc<ConnectionContext>,
    ) -> Result<(), BoxError> {
        let Ok(handshake) = self.permit.handshake() else { return Ok(()) };
        let stream =
            timeout(GREETING, attribute_polls(PollSite::Handshake, tls.acceptor().accept(stream))).await??;
        drop(handshake);
        let (_, session) = stream.get_ref();
        link.secure(tls::secured(session));
        let is_http2 = tls::is_http2(session);
        self.serve(stream, Vec::new(), is_http2, link).await
    }

    /// Answers every request in clear text on a TLS port with an error.
    async fn refuse_clear(
        self,
        stream: LingeringConnection,
        link: Arc<ConnectionContext>,
    ) -> Result<(), BoxError> {
        let client = ClientInfo::new(self.address, link);
        Ok(timeout(GREETING, http1::refuse(stream, client, &RequestRefusal::TlsRequired)).await??)
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
        let _open = self.current.life().audience.metrics.open(is_http2);
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
        let Self { current, phase, open: _open, .. } = self;
        let ending = PhaseChange::new(phase.clone(), ending(phase.clone(), Some(client.link())));
        let mut over =
            PhaseChange::new(
                phase.clone(),
                async move { reached(&mut phase.clone(), DrainPhase::Over).await },
            );
        let answer = |request, client| live(&current, request, client);
        // The load shedding state outlives its config.
        let shed = Arc::clone(&current.life().shed);
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
        let Self { current, phase, open: _open, .. } = self;
        let ending = PhaseChange::new(phase.clone(), ending(phase.clone(), Some(client.link())));
        let mut over =
            PhaseChange::new(
                phase.clone(),
                async move { reached(&mut phase.clone(), DrainPhase::Over).await },
            );
        let answer = move |request, client| {
            let current = Arc::clone(&current);
            async move { live(&current, request, client).await }
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
async fn live(
    current: &ActiveConfig,
    request: Request<StreamedServiceBody>,
    client: ClientInfo,
) -> Response<LoggedBody> {
    let is_http1 = request.version() < Version::HTTP_2;
    let is_stale = is_http1 && client.has_stale_certificate();
    let mut response = current.life().live(request, client).await;
    let is_switch = response.status() == StatusCode::SWITCHING_PROTOCOLS;
    let is_last = is_stale || current.readiness.state() == LifecycleState::Draining;
    if is_http1 && !is_switch && is_last {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// Waits until the connection should end. It gets more time before its first request.
async fn ending(mut phase: watch::Receiver<DrainPhase>, link: Option<Arc<ConnectionContext>>) {
    reached(&mut phase, DrainPhase::Draining).await;
    if !link.is_some_and(|link| link.has_begun()) {
        tokio::time::sleep(NEWCOMER).await;
    }
}

/// Reads until it is clear whether this is HTTP/2. Returns the bytes that were read.
async fn preface(stream: &mut LingeringConnection) -> io::Result<(Vec<u8>, bool)> {
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
mod fuzz;
#[cfg(test)]
mod rig;
#[cfg(test)]
mod tests;
