//! In-process services behind the gateway, defined by a bench.

use std::convert::Infallible;
use std::net::SocketAddr;

use anyhow::Result;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpSocket};
use tokio::task::JoinSet;

/// The response of a service.
pub(crate) type BenchServiceResponse = Response<UnsyncBoxBody<Bytes, Infallible>>;

/// A running service. Dropping it closes its port and its connections.
pub(crate) struct BenchService {
    pub(crate) address: SocketAddr,
    _tasks: JoinSet<()>,
}

impl BenchService {
    /// Starts a service; port 0 selects a free one.
    pub(crate) fn start<F, A>(at: SocketAddr, answer: F) -> Result<Self>
    where
        F: Fn(Request<Incoming>) -> A + Clone + Send + 'static,
        A: Future<Output = BenchServiceResponse> + Send + 'static,
    {
        let socket = TcpSocket::new_v4()?;
        socket.set_reuseaddr(true)?;
        // Small socket buffers, so that the bytes sent are close to those received.
        socket.set_send_buffer_size(256 << 10)?;
        socket.set_recv_buffer_size(256 << 10)?;
        socket.bind(at)?;
        let listener = socket.listen(1024)?;
        let address = listener.local_addr()?;
        let mut tasks = JoinSet::new();
        tasks.spawn(accept_connections(listener, answer));
        Ok(Self { address, _tasks: tasks })
    }
}

async fn accept_connections<F, A>(listener: TcpListener, answer: F)
where
    F: Fn(Request<Incoming>) -> A + Clone + Send + 'static,
    A: Future<Output = BenchServiceResponse> + Send + 'static,
{
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            Ok((stream, _)) = listener.accept() => {
                let _ = stream.set_nodelay(true);
                let answer = answer.clone();
                let service = service_fn(move |request| {
                    let answer = answer(request);
                    async move { Ok::<_, Infallible>(answer.await) }
                });
                connections.spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

/// A response with a text body.
pub(crate) fn text_response(text: impl Into<Bytes>) -> BenchServiceResponse {
    Response::new(http_body_util::Full::new(text.into()).boxed_unsync())
}
