//! Name resolution for the hosts in a service's URLs.
//!
//! Names are resolved when the service is first used, and then periodically as long as it is used or has
//! health checks. A background task does this, so that only the first request waits. If a lookup fails, the
//! previous addresses remain.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, join_all};
use offload::polls::{PollSite, watch_polls};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::{BackgroundDependencies, EndpointPeer, ServiceEndpoints, literal_address, reuse_or_create_peer};
use crate::body::BodyError;
use crate::transport::TargetOrigin;

/// The timeout of one lookup. The previous addresses are used meanwhile.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest time that a request waits for a lookup if there are previous addresses.
const MAX_LOOKUP_WAIT: Duration = Duration::from_secs(1);
/// The number of lookups without a request in between after which a service is considered unused.
const MAX_UNUSED_LOOKUPS: u32 = 12;

/// A resolver of host names: the system's, or a table in tests.
pub trait NameResolver: Send + Sync {
    /// Returns all addresses of a host, with this port.
    fn resolve(&self, host: &str, port: u16) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>>;
}

/// The system's resolver, with `/etc/hosts` and DNS as configured.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemResolver;

impl NameResolver for SystemResolver {
    fn resolve(&self, host: &str, port: u16) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>> {
        let host = host.to_owned();
        async move { Ok(tokio::net::lookup_host((host, port)).await?.collect()) }.boxed()
    }
}

/// The background task that resolves the names, and its last result.
#[derive(Debug)]
pub(super) struct NameResolution {
    task: Mutex<Option<JoinHandle<()>>>,
    result_sender: watch::Sender<Result<(), Arc<str>>>,
}

/// The result of a lookup for one origin.
type LookupResult = io::Result<Vec<SocketAddr>>;

impl ServiceEndpoints {
    /// Waits for the next lookup, and starts the task if it is not running.
    pub(super) async fn wait_for_lookup(
        self: &Arc<Self>,
        dependencies: &BackgroundDependencies,
    ) -> Result<(), BodyError> {
        let mut told = self.names.result_sender.subscribe();
        {
            let mut task = self.names.lock();
            if self.ready.load(Relaxed) {
                return Ok(());
            }
            if task.as_ref().is_none_or(JoinHandle::is_finished) {
                let followed = resolve_periodically(Arc::downgrade(self), dependencies.clone());
                *task = Some(tokio::spawn(watch_polls(PollSite::Upstream, followed)));
            }
        }
        // The sender lives as long as `self`. Previous addresses are better than a long wait.
        let patience = if self.endpoint_count() > 0 { MAX_LOOKUP_WAIT } else { Duration::MAX };
        if timeout(patience, told.changed()).await.is_err() {
            return Ok(());
        }
        let told = told.borrow().clone();
        told.map_err(|reason| reason.to_string().into())
    }

    pub(super) fn stop_lookups(&self) {
        if let Some(task) = self.names.lock().take() {
            task.abort();
        }
    }

    /// Updates the endpoints from the results of a lookup. Returns an error if no endpoint remains.
    fn update_endpoints(&self, found: Vec<LookupResult>) -> Result<(), Arc<str>> {
        let endpoint_peers = self.peers.load_full();
        let mut peers: Vec<Arc<EndpointPeer>> = Vec::with_capacity(endpoint_peers.len());
        let mut failed: Arc<str> = "it has no address".into();
        for (origin, found) in self.settings.origins.iter().zip(found) {
            let reason = match found {
                Ok(addresses) if !addresses.is_empty() => {
                    let mut addresses: Vec<_> = addresses;
                    addresses.sort_unstable();
                    addresses.dedup();
                    peers.extend(
                        addresses
                            .into_iter()
                            .map(|address| reuse_or_create_peer(&endpoint_peers, origin, Some(address))),
                    );
                    continue;
                }
                Ok(_) => "it has no address".to_owned(),
                Err(error) => error.to_string(),
            };
            let (service, name) = (&*origin.service, origin.authority.as_str());
            tracing::warn!(service, name, reason, "a name can't be resolved; its old addresses remain");
            failed = format!("the name in `{}` can't be resolved: {reason}", origin.authority).into();
            peers.extend(endpoint_peers.iter().filter(|peer| peer.has_target(origin)).cloned());
        }
        if peers.is_empty() {
            return Err(failed);
        }
        let same = peers.len() == endpoint_peers.len()
            && peers.iter().zip(&*endpoint_peers).all(|(a, b)| Arc::ptr_eq(a, b));
        if !same {
            self.peers.store(Arc::new(peers));
        }
        Ok(())
    }
}

impl Default for NameResolution {
    fn default() -> Self {
        Self { task: Mutex::default(), result_sender: watch::Sender::new(Ok(())) }
    }
}

impl NameResolution {
    fn lock(&self) -> MutexGuard<'_, Option<JoinHandle<()>>> {
        self.task.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Resolves the names periodically. Ends when the service is unused, dropped, or without addresses, so that
/// the next request starts a new task.
async fn resolve_periodically(targets: Weak<ServiceEndpoints>, dependencies: BackgroundDependencies) {
    let mut unused = 0;
    while let Some(strong) = targets.upgrade() {
        let (origins, pause) = (strong.settings.origins.clone(), strong.settings.dns_refresh_rate);
        drop(strong);
        let found = join_all(origins.iter().map(|origin| look_up_origin(origin, &dependencies))).await;
        let Some(strong) = targets.upgrade() else { return };
        let learnt = strong.update_endpoints(found);
        let failed = learnt.is_err();
        unused = if strong.was_used.swap(false, Relaxed) { 0 } else { unused + 1 };
        let asleep = unused >= MAX_UNUSED_LOOKUPS && strong.settings.checks.is_none();
        {
            // Under the lock, so that a request that sees this task cannot miss its result.
            let mut task = strong.names.lock();
            strong.ready.store(!failed && !asleep, Release);
            if failed || asleep {
                *task = None;
            }
            let _ = strong.names.result_sender.send_replace(learnt);
        }
        if failed || asleep {
            return;
        }
        drop(strong);
        tokio::time::sleep(pause).await;
    }
}

async fn look_up_origin(origin: &TargetOrigin, dependencies: &BackgroundDependencies) -> LookupResult {
    match literal_address(origin) {
        Some(address) => Ok(vec![address]),
        None => {
            let look_up = dependencies.resolver.resolve(origin.authority.host(), origin.port());
            timeout(LOOKUP_TIMEOUT, look_up).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
        }
    }
}
