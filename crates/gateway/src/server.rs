//! The first phase: connections. HTTP/1.1 and HTTP/2 in clear text share one port.
//!
//! Draining: the listener closes, idle connections end, busy ones end after their last answer, and
//! what is still there when time is up is cut off.

mod linger;

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::client::Client;
use crate::life::Current;
use crate::listen::{Listener, Listeners};
use linger::Lingering;

pub(crate) use linger::Unread;

/// How long a client may take for the head of a request, and may keep a connection idle.
const HEAD_TIMEOUT: Duration = Duration::from_secs(60);
/// The largest head of a request.
const MAX_HEAD: usize = 64 << 10;
/// How many requests one HTTP/2 connection may have under way.
const MAX_STREAMS: u32 = 256;
/// How long to wait when the system has no more file descriptors.
const BREATHER: Duration = Duration::from_millis(50);

/// How the gateway stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drained {
    /// Connections that were cut off because time was up.
    pub cut_off: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    Serving,
    Draining,
    Over,
}

/// Serves until `shutdown` is ready, then drains.
pub(crate) async fn serve(
    current: Arc<Current>,
    listeners: Listeners,
    shutdown: impl Future<Output = ()>,
    drain: Duration,
) -> Drained {
    let (phase, watched) = watch::channel(Phase::Serving);
    tokio::select! {
        () = accept_all(&current, listeners, &watched) => {}
        () = shutdown => {}
    }
    drop(watched);
    tracing::info!(connections = phase.receiver_count(), "draining");
    phase.send_replace(Phase::Draining);
    let cut_off = match timeout(drain, phase.closed()).await {
        Ok(()) => 0,
        Err(_) => phase.receiver_count(),
    };
    phase.send_replace(Phase::Over);
    phase.closed().await;
    tracing::info!(cut_off, "stopped");
    Drained { cut_off }
}

/// Accepts on every socket, for ever.
async fn accept_all(current: &Arc<Current>, listeners: Listeners, phase: &watch::Receiver<Phase>) {
    let builder = Arc::new(builder());
    let each = listeners.into_vec().into_iter().map(|listener| accept(current, listener, &builder, phase));
    futures_util::future::join_all(each).await;
}

async fn accept(
    current: &Arc<Current>,
    listener: Listener,
    builder: &Arc<auto::Builder<TokioExecutor>>,
    phase: &watch::Receiver<Phase>,
) {
    let listener = match listener.into_tokio() {
        Ok(listener) => listener,
        Err(error) => return tracing::error!(%error, "a socket can't be served"),
    };
    loop {
        match listener.accept().await {
            Ok((stream, client)) => {
                let connection = Connection { current: Arc::clone(current), client, phase: phase.clone() };
                tokio::spawn(connection.run(stream, Arc::clone(builder)));
            }
            Err(error) => pause(&error).await,
        }
    }
}

/// A connection that was gone before it was accepted is nothing; being out of descriptors takes time.
async fn pause(error: &io::Error) {
    if !matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset) {
        tracing::warn!(%error, "cannot accept a connection");
        tokio::time::sleep(BREATHER).await;
    }
}

fn builder() -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT).max_buf_size(MAX_HEAD);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(MAX_STREAMS)
        .max_header_list_size(MAX_HEAD as u32)
        .keep_alive_interval(HEAD_TIMEOUT);
    builder
}

/// Waits for the phase, and lets go of the channel's lock at once.
async fn reached(phase: &mut watch::Receiver<Phase>, wanted: Phase) {
    let _ = phase.wait_for(|phase| *phase >= wanted).await;
}

struct Connection {
    current: Arc<Current>,
    client: SocketAddr,
    phase: watch::Receiver<Phase>,
}

impl Connection {
    async fn run(mut self, stream: TcpStream, builder: Arc<auto::Builder<TokioExecutor>>) {
        // Without it an answer of two packets waits for the client's delayed acknowledgement.
        let _ = stream.set_nodelay(true);
        if !self.has_spoken(&stream).await {
            return;
        }
        let unread = Unread::default();
        let stream = TokioIo::new(Lingering::new(stream, unread.clone()));
        let (current, client) = (self.current, Client { address: self.client, unread });
        let service = service_fn(move |request| {
            let (life, client) = (current.life(), client.clone());
            async move { Ok::<_, Infallible>(life.live(request, client).await) }
        });
        let mut connection = pin!(builder.serve_connection(stream, service));
        let served = tokio::select! {
            served = connection.as_mut() => served,
            () = reached(&mut self.phase, Phase::Draining) => {
                connection.as_mut().graceful_shutdown();
                tokio::select! {
                    served = connection => served,
                    () = reached(&mut self.phase, Phase::Over) => Ok(()),
                }
            }
        };
        if let Err(error) = served {
            tracing::debug!(%error, client = %self.client, "the connection broke");
        }
    }

    /// Waits for the first byte: the library's own clock starts only after it.
    async fn has_spoken(&mut self, stream: &TcpStream) -> bool {
        tokio::select! {
            ready = timeout(HEAD_TIMEOUT, stream.readable()) => matches!(ready, Ok(Ok(()))),
            () = reached(&mut self.phase, Phase::Draining) => false,
        }
    }
}
