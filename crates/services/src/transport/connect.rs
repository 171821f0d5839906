//! Opening of connections: name resolution, TCP, TLS, and the choice of the HTTP version.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::uri::{Authority, Scheme};
use rustix::net::sockopt::set_socket_linger;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::{TcpSocket, TcpStream, lookup_host};
use tokio::time::{Instant, timeout_at};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_util::either::Either;

use super::{ReachableAddresses, RequestEndpoint, TargetOrigin, http1, http2, tls};
use crate::body::BodyError;
use crate::config::ServiceProtocol;
use crate::coop::CooperativeStream;

/// The connection settings in a service's config.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ConnectSettings {
    /// The timeout for connecting, from the name lookup to the end of the TLS handshake.
    pub(crate) timeout: Duration,
    pub(crate) protocol: ServiceProtocol,
    /// Trusted authorities and credentials, for `https` targets.
    pub(crate) tls: Option<tls::ClientTls>,
    /// The server name that certificates must match, if it is not the target's host.
    pub(crate) server_name: Option<ServerName<'static>>,
    /// The addresses that targets may have.
    pub(crate) reachable_addresses: ReachableAddresses,
}

/// TLS settings for one target.
#[derive(Clone, Debug)]
pub(crate) struct TargetTls {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl ConnectSettings {
    /// Returns the TLS settings for a target, if its scheme requires TLS.
    pub(crate) fn target_tls(
        &self,
        scheme: &Scheme,
        authority: &Authority,
    ) -> Result<Option<TargetTls>, &'static str> {
        if *scheme != Scheme::HTTPS {
            return Ok(None);
        }
        let config = Arc::clone(&self.tls.as_ref().ok_or("TLS can't be used")?.config);
        let name = match &self.server_name {
            Some(name) => name.clone(),
            None => ServerName::try_from(strip_brackets(authority.host()).to_owned())
                .map_err(|_| "its host is not a valid server name")?,
        };
        Ok(Some(TargetTls { config, name }))
    }
}

/// Returns a host without the brackets of IPv6 addresses in URLs.
fn strip_brackets(host: &str) -> &str {
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
}

/// A connection to a target below HTTP: TCP, or TLS over TCP.
pub(crate) type TransportStream =
    Either<CooperativeStream<TcpStream>, Box<TlsStream<CooperativeStream<TcpStream>>>>;

/// A connection that is ready for requests.
pub(crate) enum TransportConnection {
    Http1(http1::ClientHttp1Connection),
    Http2(http2::ClientHttp2Connection),
}

/// Opens a connection, within the configured timeout.
pub(crate) async fn connect(endpoint: &RequestEndpoint) -> Result<TransportConnection, BodyError> {
    let origin = &*endpoint.origin;
    let end = Instant::now() + origin.dial.timeout;
    let late = || io::Error::new(io::ErrorKind::TimedOut, "connecting took too long");
    let stream = async {
        let socket = match endpoint.address {
            Some(address) => connect_tcp(origin, address).await?,
            None => connect_any(origin, end).await?,
        };
        // A request of two packets must not wait for the target's delayed acknowledgement.
        socket.set_nodelay(true)?;
        start_tls(origin, socket).await
    };
    let stream = timeout_at(end, stream).await.map_err(|_| late())??;
    set_socket_linger(tcp_stream(&stream), None)?;
    if is_http2(origin, &stream) {
        Ok(TransportConnection::Http2(http2::ClientHttp2Connection::new(stream).await?))
    } else {
        Ok(TransportConnection::Http1(http1::ClientHttp1Connection::new(stream)))
    }
}

async fn connect_tcp(origin: &TargetOrigin, address: SocketAddr) -> io::Result<TcpStream> {
    origin.dial.reachable_addresses.check_address(address)?;
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // An aborted attempt must not occupy a port (`http1/socket.rs`).
    socket.set_zero_linger()?;
    socket.connect(address).await
}

/// Connects to the first of the name's addresses that accepts. Each gets its share of the remaining time.
async fn connect_any(origin: &TargetOrigin, end: Instant) -> io::Result<TcpStream> {
    let host = strip_brackets(origin.authority.host());
    let addresses: Vec<SocketAddr> = lookup_host((host, origin.port())).await?.collect();
    let mut result = Err(io::Error::new(io::ErrorKind::NotFound, "the name has no address"));
    for (index, address) in addresses.iter().enumerate() {
        let left = u32::try_from(addresses.len() - index).unwrap_or(u32::MAX);
        let share = Instant::now() + end.duration_since(Instant::now()) / left;
        match timeout_at(share, connect_tcp(origin, *address)).await {
            Ok(Ok(socket)) => return Ok(socket),
            Ok(Err(error)) => result = Err(error),
            Err(_) => result = Err(io::ErrorKind::TimedOut.into()),
        }
    }
    result
}

async fn start_tls(origin: &TargetOrigin, socket: TcpStream) -> io::Result<TransportStream> {
    let Some(tls) = &origin.tls else { return Ok(Either::Left(CooperativeStream::new(socket))) };
    let socket = CooperativeStream::for_tls_session(socket);
    let connector = TlsConnector::from(Arc::clone(&tls.config));
    Ok(Either::Right(Box::new(connector.connect(tls.name.clone(), socket).await?)))
}

/// Returns the socket of a connection.
pub(crate) fn tcp_stream(stream: &TransportStream) -> &TcpStream {
    match stream {
        Either::Left(socket) => socket.get_ref(),
        Either::Right(tls) => tls.get_ref().0.get_ref(),
    }
}

/// Whether the connection uses HTTP/2: as negotiated by TLS (RFC 7301), or as configured.
fn is_http2(origin: &TargetOrigin, stream: &TransportStream) -> bool {
    match stream {
        Either::Right(tls) => match tls.get_ref().1.alpn_protocol() {
            Some(agreed) => agreed == b"h2",
            None => origin.dial.protocol == ServiceProtocol::Http2,
        },
        Either::Left(_) => origin.dial.protocol == ServiceProtocol::Http2,
    }
}
