//! Active health checks: periodic requests of the gateway to every endpoint.
//!
//! An endpoint is considered healthy until its checks change that. The state changes after a number of
//! consecutive equal results. The checks end with the service.

use std::sync::{Arc, PoisonError, Weak};
use std::time::Duration;

use futures_util::future::join_all;
use http::header::{HeaderName, HeaderValue, USER_AGENT};
use http::uri::PathAndQuery;
use http_body_util::BodyExt;
use offload::polls::{PollSite, watch_polls};
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::{BackgroundDependencies, EndpointPeer, ServiceEndpoints};
use crate::body::empty;
use crate::config::StatusRange;
use crate::transport::ServiceTransport;

/// The part of a response body in bytes that is read, so that its connection can be reused.
const MAX_BODY_READ: usize = 64 * 1024;
const HEALTH_USER_AGENT: HeaderValue = HeaderValue::from_static("orfa-health");

/// The settings of the checks: the request, the interval, and the evaluation of the results.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct HealthChecks {
    pub(crate) path: PathAndQuery,
    /// The operator's headers for the service.
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
    pub(crate) interval: Duration,
    pub(crate) timeout: Duration,
    pub(crate) status: StatusRange,
    pub(crate) healthy_threshold: u32,
    pub(crate) unhealthy_threshold: u32,
}

impl ServiceEndpoints {
    /// Starts the checks, if they are configured and not running.
    pub(super) fn start_health_checks(self: &Arc<Self>, dependencies: &BackgroundDependencies) {
        let Some(checks) = &self.settings.checks else { return };
        let mut checking = self.check_task.lock().unwrap_or_else(PoisonError::into_inner);
        if checking.as_ref().is_none_or(tokio::task::JoinHandle::is_finished) {
            let transport = Arc::clone(&dependencies.transport);
            let checked = run_health_checks(Arc::downgrade(self), checks.clone(), transport);
            *checking = Some(tokio::spawn(watch_polls(PollSite::Upstream, checked)));
        }
    }

    pub(super) fn stop_health_checks(&self) {
        if let Some(task) = self.check_task.lock().unwrap_or_else(PoisonError::into_inner).take() {
            task.abort();
        }
    }
}

async fn run_health_checks(
    targets: Weak<ServiceEndpoints>,
    checks: HealthChecks,
    transport: Arc<dyn ServiceTransport>,
) {
    let mut ticks = interval(checks.interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let Some(peers) = targets.upgrade().map(|targets| targets.peers.load_full()) else { return };
        join_all(peers.iter().map(|peer| check_endpoint(peer, &checks, &*transport))).await;
    }
}

/// Checks one endpoint once.
async fn check_endpoint(peer: &EndpointPeer, checks: &HealthChecks, transport: &dyn ServiceTransport) {
    let well = timeout(checks.timeout, send_health_check(peer, checks, transport)).await.unwrap_or(false);
    let needed = if well { checks.healthy_threshold } else { checks.unhealthy_threshold };
    if peer.health.record_check(well) < needed || !peer.health.set_unhealthy(!well) {
        return;
    }
    let (service, endpoint) = (&*peer.endpoint.origin.service, peer.log_name());
    if well {
        tracing::info!(service, endpoint, "an endpoint is healthy again, according to its health checks");
    } else {
        tracing::warn!(service, endpoint, "an endpoint is unhealthy, according to its health checks");
    }
}

async fn send_health_check(
    peer: &EndpointPeer,
    checks: &HealthChecks,
    transport: &dyn ServiceTransport,
) -> bool {
    let Ok(uri) = peer.endpoint.origin.build_uri(checks.path.clone(), None) else { return false };
    let mut request = http::Request::new(empty());
    *request.uri_mut() = uri;
    request.headers_mut().insert(USER_AGENT, HEALTH_USER_AGENT);
    for (name, value) in &checks.headers {
        request.headers_mut().insert(name, value.clone());
    }
    let Ok(answer) = transport.send(&peer.endpoint, request).await else { return false };
    let status = answer.status();
    // The status alone decides, even if the body is incomplete. But an endpoint that never ends the body runs
    // into the timeout.
    let (mut body, mut read) = (answer.into_body(), 0);
    while let Some(Ok(frame)) = body.frame().await {
        read += frame.data_ref().map_or(0, bytes::Bytes::len);
        if read > MAX_BODY_READ {
            break;
        }
    }
    checks.status.contains_status(status)
}
