//! Targets for the tests: a correct HTTP server, with or without TLS, and a scripted one.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

use crate::body::StreamedServiceBody;

/// A server that ends when it is dropped.
pub(super) struct TargetServer {
    pub(super) address: SocketAddr,
    task: JoinHandle<()>,
}

impl Drop for TargetServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl TargetServer {
    /// Starts a server that answers every request by a function, in the HTTP version of the request.
    pub(super) async fn start_server<F>(
        tls: Option<ServerConfig>,
        answer: impl Fn(Request<Incoming>) -> F + Clone + Send + 'static,
    ) -> Self
    where
        F: Future<Output = Response<StreamedServiceBody>> + Send + 'static,
    {
        let acceptor = tls.map(|config| TlsAcceptor::from(Arc::new(config)));
        Self::start_acceptor(move |socket| {
            let (acceptor, answer) = (acceptor.clone(), answer.clone());
            async move {
                match acceptor {
                    Some(acceptor) => {
                        if let Ok(stream) = acceptor.accept(socket).await {
                            serve(stream, answer).await;
                        }
                    }
                    None => serve(socket, answer).await,
                }
            }
        })
        .await
    }

    /// Starts a server that handles every connection by a function.
    pub(super) async fn start_acceptor<F>(handle: impl Fn(TcpStream) -> F + Send + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let task = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((socket, _)) = listener.accept().await {
                let _ = socket.set_nodelay(true);
                connections.spawn(handle(socket));
            }
        });
        Self { address, task }
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

/// Answers every request on a connection by a function.
pub(super) async fn serve<F>(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    answer: impl Fn(Request<Incoming>) -> F + Send + 'static,
) where
    F: Future<Output = Response<StreamedServiceBody>> + Send + 'static,
{
    let service = service_fn(move |request| {
        let answer = answer(request);
        async move { Ok::<_, Infallible>(answer.await) }
    });
    let builder = auto::Builder::new(TokioExecutor::new());
    let _ = builder.serve_connection(TokioIo::new(stream), service).await;
}

/// Reads the head of a request without a body; returns `None` if the peer has closed the connection.
pub(super) async fn read_head(socket: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(socket.read_u8().await.ok()?);
    }
    String::from_utf8(head).ok()
}

pub(super) async fn write_text(socket: &mut TcpStream, text: impl AsRef<[u8]>) {
    let _ = socket.write_all(&Bytes::copy_from_slice(text.as_ref())).await;
}
