//! The first phase: connections. HTTP/1.1 and HTTP/2 share each port, in clear text or over TLS.
//!
//! One of them is `connection.rs`; how HTTP/1.1 is spoken is `http1.rs`, HTTP/2 is left to hyper; how they end is
//! `drain.rs`.

mod awaited;
mod connection;
mod http1;
mod linger;
mod patient;
mod ports;
mod stall;
mod tls;

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::watch;

use crate::drain::{Drained, Ending, Phase, Stop, cut_off, drain};
use crate::life::Current;
use crate::listen::{BACKLOG, Listener, Listeners};
use crate::readiness::State;
use connection::{Connection, Protocols};
use ports::Port;

#[cfg(test)]
pub(crate) use http1::tests::refused_chunks;
pub(crate) use ports::Ports;
pub(crate) use stall::Stall;
pub(crate) use tls::Certificate;

/// How long a client may keep a connection idle, before its first request and between two.
const IDLE: Duration = Duration::from_secs(60);
/// How long a client may take nothing of its answer: longer than a phone is in a tunnel.
const UNREAD: Duration = Duration::from_secs(60);
/// The largest head of a request: four times what common servers take, for large cookies.
pub(crate) const MAX_HEAD: usize = 64 << 10;
/// How long to wait when the system has no more file descriptors.
const BREATHER: Duration = Duration::from_millis(50);

/// Serves until it is to stop, then drains.
pub(crate) async fn serve(
    current: Arc<Current>,
    listeners: Listeners,
    stop: impl Future<Output = Stop>,
) -> Drained {
    let ending = Ending::new();
    let mut accepting = Box::pin(accept_all(Arc::clone(&current), listeners, &ending));
    let stop = tokio::select! {
        stop = stop => stop,
        () = &mut accepting => Stop::Promptly,
        () = refresh(&current) => Stop::Promptly,
    };
    current.readiness.advance(State::Draining);
    let config = current.life().drain.clone();
    let leaving = async { tokio::join!(drain(&ending, accepting, stop, &config), current.leave_scripts()).0 };
    tokio::select! {
        drained = leaving => drained,
        () = current.cut.notified() => {
            // What comes after the connections is cut off as well.
            current.cut.notify_one();
            cut_off(&ending).await
        }
    }
}

/// Accepts on every socket until the gateway drains.
async fn accept_all(current: Arc<Current>, listeners: Listeners, ending: &Ending) {
    let protocols = Arc::new(Protocols::new());
    let accept = |listener| accept(&current, listener, &protocols, ending);
    futures_util::future::join_all(listeners.into_vec().into_iter().map(accept)).await;
}

async fn accept(current: &Arc<Current>, listener: Listener, protocols: &Arc<Protocols>, ending: &Ending) {
    let name = listener.name().to_owned();
    let listener = match listener.into_tokio() {
        Ok(listener) => listener,
        Err(error) => return tracing::error!(%error, "a socket can't be served"),
    };
    let take = |(stream, address)| {
        let Some(port) = current.life().ports.get(&name).cloned() else { return };
        let (current, protocols) = (Arc::clone(current), Arc::clone(protocols));
        let (phase, open) = (ending.phase(), ending.open());
        let connection = Connection { current, address, port, phase, open, protocols };
        tokio::spawn(connection.run(stream));
    };
    let mut phase = ending.phase();
    let mut draining = pin!(reached(&mut phase, Phase::Draining));
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

/// Keeps certificates as fresh as their files, for ever.
async fn refresh(current: &Current) {
    loop {
        tokio::time::sleep(tls::LOOK).await;
        current.life().ports.refresh();
    }
}

/// A connection that was gone before it was accepted is nothing; being out of descriptors takes time.
async fn pause(error: &io::Error) {
    if !matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset) {
        tracing::warn!(%error, "cannot accept a connection");
        tokio::time::sleep(BREATHER).await;
    }
}

/// Waits for the phase, and lets go of the channel's lock at once.
async fn reached(phase: &mut watch::Receiver<Phase>, wanted: Phase) {
    let _ = phase.wait_for(|phase| *phase >= wanted).await;
}
