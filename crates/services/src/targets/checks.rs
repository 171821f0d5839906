//! Active health: requests of the gateway's own to every endpoint, at a steady pace.
//!
//! An endpoint counts as well until the checks say otherwise. They say it once so many answers in a row
//! agree, and end with the service.

use std::sync::{Arc, PoisonError, Weak};
use std::time::Duration;

use futures_util::future::join_all;
use http::header::{HeaderName, HeaderValue, USER_AGENT};
use http::uri::PathAndQuery;
use http_body_util::BodyExt;
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::{Outside, Peer, Targets};
use crate::body::empty;
use crate::config::Statuses;
use crate::transport::Transport;

/// How much of an answer is read, so that its connection can be used again.
const READ: usize = 64 * 1024;
const AGENT: HeaderValue = HeaderValue::from_static("orfa-health");

/// What is asked, how often, and what the answers mean.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Checks {
    pub(crate) path: PathAndQuery,
    /// The operator's headers for the service.
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
    pub(crate) every: Duration,
    pub(crate) timeout: Duration,
    pub(crate) status: Statuses,
    pub(crate) healthy: u32,
    pub(crate) unhealthy: u32,
}

impl Targets {
    /// Begins the checks, if there are to be any and they have not begun.
    pub(super) fn check(self: &Arc<Self>, outside: &Outside) {
        let Some(checks) = &self.plan.checks else { return };
        let mut checking = self.checking.lock().unwrap_or_else(PoisonError::into_inner);
        if checking.as_ref().is_none_or(tokio::task::JoinHandle::is_finished) {
            let transport = Arc::clone(&outside.transport);
            *checking = Some(tokio::spawn(run(Arc::downgrade(self), checks.clone(), transport)));
        }
    }

    pub(super) fn stop_checking(&self) {
        if let Some(task) = self.checking.lock().unwrap_or_else(PoisonError::into_inner).take() {
            task.abort();
        }
    }
}

async fn run(targets: Weak<Targets>, checks: Checks, transport: Arc<dyn Transport>) {
    let mut ticks = interval(checks.every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let Some(peers) = targets.upgrade().map(|targets| targets.peers.load_full()) else { return };
        join_all(peers.iter().map(|peer| check(peer, &checks, &*transport))).await;
    }
}

/// Asks one endpoint once.
async fn check(peer: &Peer, checks: &Checks, transport: &dyn Transport) {
    let well = timeout(checks.timeout, ask(peer, checks, transport)).await.unwrap_or(false);
    let needed = if well { checks.healthy } else { checks.unhealthy };
    if peer.standing.heard(well) < needed || !peer.standing.set_ill(!well) {
        return;
    }
    let (service, endpoint) = (&*peer.endpoint.origin.service, peer.place());
    if well {
        tracing::info!(service, endpoint, "an endpoint is well again, by its checks");
    } else {
        tracing::warn!(service, endpoint, "an endpoint is not well, by its checks, and is left out");
    }
}

async fn ask(peer: &Peer, checks: &Checks, transport: &dyn Transport) -> bool {
    let Ok(uri) = peer.endpoint.origin.uri(checks.path.clone(), None) else { return false };
    let mut request = http::Request::new(empty());
    *request.uri_mut() = uri;
    request.headers_mut().insert(USER_AGENT, AGENT);
    for (name, value) in &checks.headers {
        request.headers_mut().insert(name, value.clone());
    }
    let Ok(answer) = transport.send(&peer.endpoint, request).await else { return false };
    let status = answer.status();
    // However the body ends: what counts is the status. But an endpoint that never ends it is not well.
    let (mut body, mut read) = (answer.into_body(), 0);
    while let Some(Ok(frame)) = body.frame().await {
        read += frame.data_ref().map_or(0, bytes::Bytes::len);
        if read > READ {
            break;
        }
    }
    checks.status.contain(status)
}
