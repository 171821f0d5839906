//! The names in a service's URLs, followed as they change.
//!
//! They are looked up when the service is first used, and again and again for as long as it is used or
//! has checks. A task does it, so that no request waits but the first. Where a look-up fails, the
//! addresses that were known stay.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, join_all};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::{Outside, Peer, Targets, literal, peer};
use crate::body::Error;
use crate::transport::Origin;

/// How long one look-up may take. The old addresses serve meanwhile.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a request waits for a look-up where there are old addresses.
const PATIENCE_WITH_OLD: Duration = Duration::from_secs(1);
/// After how many look-ups without a request in between a service counts as no longer used.
const UNUSED: u32 = 12;

/// Finds the addresses that a name stands for: the system, or a table in tests.
pub trait Resolve: Send + Sync {
    /// All addresses of a host, with this port.
    fn resolve(&self, host: &str, port: u16) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>>;
}

/// The system's resolver: `/etc/hosts`, DNS, whatever it is told to ask.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemResolver;

impl Resolve for SystemResolver {
    fn resolve(&self, host: &str, port: u16) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>> {
        let host = host.to_owned();
        async move { Ok(tokio::net::lookup_host((host, port)).await?.collect()) }.boxed()
    }
}

/// The task that follows the names, and what it last told.
#[derive(Debug)]
pub(super) struct Names {
    task: Mutex<Option<JoinHandle<()>>>,
    told: watch::Sender<Result<(), Arc<str>>>,
}

/// What a look-up brought for one origin.
type Found = io::Result<Vec<SocketAddr>>;

impl Targets {
    /// Waits for the next look-up, and makes sure that one is under way.
    pub(super) async fn look_up(self: &Arc<Self>, outside: &Outside) -> Result<(), Error> {
        let mut told = self.names.told.subscribe();
        {
            let mut task = self.names.lock();
            if self.ready.load(Relaxed) {
                return Ok(());
            }
            if task.as_ref().is_none_or(JoinHandle::is_finished) {
                *task = Some(tokio::spawn(follow(Arc::downgrade(self), outside.clone())));
            }
        }
        // The sender lives as long as `self`. Addresses from before are better than a long wait.
        let patience = if self.count() > 0 { PATIENCE_WITH_OLD } else { Duration::MAX };
        if timeout(patience, told.changed()).await.is_err() {
            return Ok(());
        }
        let told = told.borrow().clone();
        told.map_err(|reason| reason.to_string().into())
    }

    pub(super) fn stop_looking_up(&self) {
        if let Some(task) = self.names.lock().take() {
            task.abort();
        }
    }

    /// Takes in what was found. `Err` if there is no endpoint then.
    fn learn(&self, found: Vec<Found>) -> Result<(), Arc<str>> {
        let known = self.peers.load_full();
        let mut peers: Vec<Arc<Peer>> = Vec::with_capacity(known.len());
        let mut failed: Arc<str> = "it has no address".into();
        for (origin, found) in self.plan.origins.iter().zip(found) {
            let reason = match found {
                Ok(addresses) if !addresses.is_empty() => {
                    let mut addresses: Vec<_> = addresses;
                    addresses.sort_unstable();
                    addresses.dedup();
                    peers.extend(addresses.into_iter().map(|address| peer(&known, origin, Some(address))));
                    continue;
                }
                Ok(_) => "it has no address".to_owned(),
                Err(error) => error.to_string(),
            };
            let (service, name) = (&*origin.service, origin.authority.as_str());
            tracing::warn!(service, name, reason, "a name can't be looked up; what was known of it stays");
            failed = format!("the name in `{}` can't be looked up: {reason}", origin.authority).into();
            peers.extend(known.iter().filter(|peer| peer.is_at(origin)).cloned());
        }
        if peers.is_empty() {
            return Err(failed);
        }
        let same = peers.len() == known.len() && peers.iter().zip(&*known).all(|(a, b)| Arc::ptr_eq(a, b));
        if !same {
            self.peers.store(Arc::new(peers));
        }
        Ok(())
    }
}

impl Default for Names {
    fn default() -> Self {
        Self { task: Mutex::default(), told: watch::Sender::new(Ok(())) }
    }
}

impl Names {
    fn lock(&self) -> MutexGuard<'_, Option<JoinHandle<()>>> {
        self.task.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Looks the names up, again and again; ends when the service is no longer used, no longer there, or has
/// no address, so that the next request begins anew.
async fn follow(targets: Weak<Targets>, outside: Outside) {
    let mut unused = 0;
    while let Some(strong) = targets.upgrade() {
        let (origins, pause) = (strong.plan.origins.clone(), strong.plan.dns);
        drop(strong);
        let found = join_all(origins.iter().map(|origin| find(origin, &outside))).await;
        let Some(strong) = targets.upgrade() else { return };
        let learnt = strong.learn(found);
        let failed = learnt.is_err();
        unused = if strong.used.swap(false, Relaxed) { 0 } else { unused + 1 };
        let asleep = unused >= UNUSED && strong.plan.checks.is_none();
        {
            // Under the lock, so that whoever finds this task has not missed what it tells.
            let mut task = strong.names.lock();
            strong.ready.store(!failed && !asleep, Release);
            if failed || asleep {
                *task = None;
            }
            let _ = strong.names.told.send_replace(learnt);
        }
        if failed || asleep {
            return;
        }
        drop(strong);
        tokio::time::sleep(pause).await;
    }
}

async fn find(origin: &Origin, outside: &Outside) -> Found {
    match literal(origin) {
        Some(address) => Ok(vec![address]),
        None => {
            let look_up = outside.resolver.resolve(origin.authority.host(), origin.port());
            timeout(PATIENCE, look_up).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
        }
    }
}
