//! The first phase: connections. HTTP/1.1 and HTTP/2 in clear text share one port.
//!
//! How they end is `drain.rs`.

mod linger;

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use futures_util::FutureExt;
use http::{HeaderValue, Request, Response, StatusCode, Version, header};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::access::Logged;
use crate::client::Client;
use crate::drain::{Drained, Phase, Stop, cut_off, drain};
use crate::life::Current;
use crate::listen::{BACKLOG, Listener, Listeners};
use crate::readiness::State;
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

/// What a connection gets that has said nothing yet when the gateway stops listening: its request is
/// likely to be on its way.
const NEWCOMER: Duration = Duration::from_secs(1);

/// Serves until it is to stop, then drains.
pub(crate) async fn serve(
    current: Arc<Current>,
    listeners: Listeners,
    stop: impl Future<Output = Stop>,
) -> Drained {
    let (phase, watched) = watch::channel(Phase::Serving);
    let mut accepting = Box::pin(accept_all(Arc::clone(&current), listeners, watched));
    let stop = tokio::select! {
        stop = stop => stop,
        () = &mut accepting => Stop::Promptly,
    };
    current.readiness.advance(State::Draining);
    let config = current.life().drain.clone();
    tokio::select! {
        drained = drain(&phase, accepting, stop, &config) => drained,
        () = current.cut.notified() => cut_off(&phase).await,
    }
}

/// Accepts on every socket until the gateway drains.
async fn accept_all(current: Arc<Current>, listeners: Listeners, phase: watch::Receiver<Phase>) {
    let builder = Arc::new(builder());
    let each = listeners.into_vec().into_iter().map(|listener| accept(&current, listener, &builder, &phase));
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
    let take = |(stream, client)| {
        let connection = Connection { current: Arc::clone(current), client, phase: phase.clone() };
        tokio::spawn(connection.run(stream, Arc::clone(builder)));
    };
    let mut draining = pin!(async { reached(&mut phase.clone(), Phase::Draining).await });
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok(accepted) => take(accepted),
                Err(error) => pause(&error).await,
            },
            () = &mut draining => break,
        }
    }
    // Who is connected already, and waits to be let in, would be turned away when the socket closes.
    for _ in 0..BACKLOG {
        let Some(Ok(accepted)) = listener.accept().now_or_never() else { return };
        take(accepted);
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

/// Waits until the connection had better come to its end: before its first request it gets more time.
async fn ending(phase: &mut watch::Receiver<Phase>, has_begun: &AtomicBool) {
    reached(phase, Phase::Draining).await;
    if !has_begun.load(Relaxed) {
        tokio::time::sleep(NEWCOMER).await;
    }
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
        let has_begun = AtomicBool::new(false);
        let service = service_fn(|request| {
            has_begun.store(true, Relaxed);
            let (current, client) = (Arc::clone(&current), client.clone());
            async move { Ok::<_, Infallible>(live(&current, request, client).await) }
        });
        let mut connection = pin!(builder.serve_connection_with_upgrades(stream, service));
        let served = tokio::select! {
            served = connection.as_mut() => served,
            () = ending(&mut self.phase, &has_begun) => {
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
            () = reached(&mut self.phase, Phase::Draining) => {
                matches!(timeout(NEWCOMER, stream.readable()).await, Ok(Ok(())))
            }
        }
    }
}

/// A request's whole life. Over HTTP/1.1 a gateway that leaves says so: the connection ends with this
/// answer, and not under the next request.
async fn live(current: &Current, request: Request<Incoming>, client: Client) -> Response<Logged> {
    let is_http1 = request.version() < Version::HTTP_2;
    let mut response = current.life().live(request, client).await;
    let is_switched = response.status() == StatusCode::SWITCHING_PROTOCOLS;
    if is_http1 && !is_switched && current.readiness.state() == State::Draining {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}
