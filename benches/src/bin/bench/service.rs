//! Services behind the gateway that a bench makes up for itself, within its own process.

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

/// What a service answers.
pub(crate) type Answer = Response<UnsyncBoxBody<Bytes, Infallible>>;

/// A running service. When it is dropped it is dead: its port is closed, and so are its connections.
pub(crate) struct Service {
    pub(crate) address: SocketAddr,
    _tasks: JoinSet<()>,
}

impl Service {
    /// Starts a service; at port 0 it gets a free one.
    pub(crate) fn start<F, A>(at: SocketAddr, answer: F) -> Result<Self>
    where
        F: Fn(Request<Incoming>) -> A + Clone + Send + 'static,
        A: Future<Output = Answer> + Send + 'static,
    {
        let socket = TcpSocket::new_v4()?;
        socket.set_reuseaddr(true)?;
        // Little waits in the system, so that what has been sent is what somebody wanted.
        socket.set_send_buffer_size(256 << 10)?;
        socket.set_recv_buffer_size(256 << 10)?;
        socket.bind(at)?;
        let listener = socket.listen(1024)?;
        let address = listener.local_addr()?;
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, answer));
        Ok(Self { address, _tasks: tasks })
    }
}

async fn accept<F, A>(listener: TcpListener, answer: F)
where
    F: Fn(Request<Incoming>) -> A + Clone + Send + 'static,
    A: Future<Output = Answer> + Send + 'static,
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

/// An answer of a text.
pub(crate) fn text(text: impl Into<Bytes>) -> Answer {
    Response::new(http_body_util::Full::new(text.into()).boxed_unsync())
}
