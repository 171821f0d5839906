//! What a request is allowed to do, handed down to every upstream call made for it.
//!
//! A [`Call`] is cheap to clone: the clones share one [`Budget`], so that calls in flight at once count
//! together. It also keeps the list of the calls that were [`Made`], which answers, problems and
//! `orfa dev` show.

use std::collections::BTreeSet;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use http::{HeaderMap, Method};
use offload::QuotaKey;
use tokio::sync::Semaphore;

use crate::caching::CacheNotes;
use crate::error::CallError;
use crate::headers::{Arrival, network};
use crate::trace::Trace;

/// On whose behalf a request is made. Two callers are equal only if they are the same one: a token's
/// subject never passes for a caller of the config, whatever it is called.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Caller {
    /// Nobody said who they are.
    #[default]
    Anonymous,
    /// A caller that the config knows, by the name that it gives.
    Named(Arc<str>),
    /// One that only the issuer of its token knows, by the name in the token.
    Subject(Arc<str>),
}

/// What a caller may ask of services, within what the route opens to everybody.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rights {
    /// The services, in lower case; `None` where all are open.
    pub services: Option<BTreeSet<Box<str>>>,
    /// The methods; `None` where all are open.
    pub methods: Option<Vec<Method>>,
}

/// Who is charged for the CPU time that a request's program used.
pub trait Payer: fmt::Debug + Send + Sync {
    /// Charges for a run that is over, or was given up by its client.
    fn charge(&self, cpu: Duration);
}

/// The call that a client's request is: its caller, its budget, its hops.
#[derive(Clone, Debug)]
pub struct Call {
    /// On whose behalf.
    pub caller: Caller,
    /// What this caller may ask; `None` where nothing is kept from it.
    pub rights: Option<Arc<Rights>>,
    /// Who is charged for CPU time, if anybody.
    pub payer: Option<Arc<dyn Payer>>,
    /// The client's own headers, of which a service gets those that its `forward` names; `None` where none are lent.
    pub headers: Option<Arc<HeaderMap>>,
    /// The trace that it belongs to.
    pub trace: Trace,
    /// How the client's request came; `None` where there is no client.
    pub arrival: Option<Arrival>,
    /// How many gateways the request has passed (`CDN-Loop`, RFC 8586).
    pub hops: u8,
    /// What is left.
    pub budget: Arc<Budget>,
}

/// What is left of a request's allowance, and what was done of it.
#[derive(Debug)]
pub struct Budget {
    /// When the request began: calls are timed from here.
    pub started: Instant,
    /// When time is up.
    pub deadline: Instant,
    calls: AtomicU32,
    received: AtomicU64,
    parallel: Semaphore,
    made: Mutex<Vec<Made>>,
    /// Whether any was made: whose request made none need not look for them.
    has_made: AtomicBool,
    refused: AtomicBool,
    report: Mutex<Option<Report>>,
    cache: Arc<CacheNotes>,
}

/// An upstream call that was made, or tried.
#[derive(Clone, Debug)]
pub struct Made {
    /// The service's name.
    pub service: Arc<str>,
    /// The method.
    pub method: Method,
    /// Path and query as sent.
    pub path: String,
    /// Which of the service's addresses it was sent to last.
    pub address: Option<SocketAddr>,
    /// How it ended.
    pub outcome: Outcome,
    /// When it was sent again, each time to another endpoint: from the start of the request.
    pub again: Vec<Duration>,
    /// From the start of the request to the start of the call, and to its end where it ended.
    pub span: (Duration, Option<Duration>),
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It waits for its turn, or was refused: nothing left the gateway.
    NotSent,
    /// It was sent; no answer has come, or not to its end (yet).
    NoAnswer,
    /// It was answered with this status.
    Status(u16),
}

/// What a request cost, for the access log and `orfa dev`. A handler that has an allowance of its own leaves it with
/// the request's: [`Budget::report`].
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The upstream calls.
    pub made: Vec<Made>,
    /// The moment that their times are counted from.
    pub since: Option<Instant>,
    /// CPU time of the program that was run, if any.
    pub cpu: Duration,
}

impl Report {
    /// Of a handler whose calls were made by this allowance, and are not listed there any more.
    #[must_use]
    pub fn of(budget: &Budget) -> Self {
        Self { made: budget.take_made(), since: Some(budget.started), cpu: Duration::ZERO }
    }
}

impl Call {
    /// A call for nobody in particular, with room for everything: tests, health checks, benches.
    #[must_use]
    pub fn unlimited() -> Self {
        let budget = Budget::new(Duration::from_secs(3600), u32::MAX, u64::MAX, 1024);
        Self {
            caller: Caller::Anonymous,
            rights: None,
            payer: None,
            headers: None,
            trace: Trace::default(),
            arrival: None,
            hops: 0,
            budget: Arc::new(budget),
        }
    }

    /// The same call by another allowance, with these headers to lend.
    #[must_use]
    pub fn within(&self, budget: Arc<Budget>, headers: HeaderMap) -> Self {
        Self {
            caller: self.caller.clone(),
            rights: self.rights.clone(),
            payer: self.payer.clone(),
            headers: Some(Arc::new(headers)),
            trace: self.trace.clone(),
            arrival: self.arrival,
            hops: self.hops,
            budget,
        }
    }

    /// Who pays for the work that it causes in the gateway.
    #[must_use]
    pub fn quota_key(&self) -> QuotaKey {
        quota_key(&self.caller, self.arrival.map(|arrival| arrival.client))
    }

    /// Whether the caller may send this method to this service.
    ///
    /// # Errors
    /// [`CallError::ServiceForbidden`] and [`CallError::ServiceMethodForbidden`].
    pub fn check(&self, service: &Arc<str>, method: &Method) -> Result<(), CallError> {
        let Some(rights) = &self.rights else { return Ok(()) };
        if !rights.open(service) {
            return Err(CallError::ServiceForbidden(Arc::clone(service)));
        }
        if rights.methods.as_ref().is_some_and(|methods| !methods.contains(method)) {
            let (service, method) = (Arc::clone(service), method.clone());
            return Err(CallError::ServiceMethodForbidden { service, method });
        }
        Ok(())
    }
}

/// Who pays for the work that a client causes: the caller, or without a name its network, which in IPv6 is one of a block
/// of 48 bits. That many networks often belong to one customer.
#[must_use]
pub fn quota_key(caller: &Caller, client: Option<IpAddr>) -> QuotaKey {
    match (caller, client.map(network)) {
        (Caller::Anonymous, Some(network)) => {
            let key = QuotaKey::new(&network);
            match network {
                IpAddr::V6(v6) => key.in_block(&v6.octets().first_chunk::<6>()),
                IpAddr::V4(_) => key,
            }
        }
        (caller, _) => QuotaKey::new(caller),
    }
}

impl Caller {
    /// What the caller is called, for logs; `None` for nobody.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        match self {
            Self::Anonymous => None,
            Self::Named(name) | Self::Subject(name) => Some(name),
        }
    }
}

impl Rights {
    fn open(&self, service: &str) -> bool {
        let Some(services) = &self.services else { return true };
        services.contains(service) || services.contains(&*service.to_ascii_lowercase())
    }
}

impl Budget {
    /// An allowance that begins now.
    #[must_use]
    pub fn new(time: Duration, calls: u32, received: u64, parallel: usize) -> Self {
        Self::since(Instant::now(), time, calls, received, parallel)
    }

    /// An allowance that began at this moment.
    #[must_use]
    pub fn since(started: Instant, time: Duration, calls: u32, received: u64, parallel: usize) -> Self {
        Self {
            started,
            deadline: started + time,
            calls: AtomicU32::new(calls),
            received: AtomicU64::new(received),
            parallel: Semaphore::new(parallel.clamp(1, Semaphore::MAX_PERMITS)),
            made: Mutex::default(),
            has_made: AtomicBool::new(false),
            refused: AtomicBool::new(false),
            report: Mutex::default(),
            cache: Arc::default(),
        }
    }

    /// The same, as a part of another request's: what services say of their answers is noted for that one.
    #[must_use]
    pub fn part_of(self, whole: &Self) -> Self {
        Self { cache: Arc::clone(&whole.cache), ..self }
    }

    /// What services said of their answers.
    #[must_use]
    pub fn cache(&self) -> &CacheNotes {
        &self.cache
    }

    /// Leaves what the request cost, whether it went well or not: for whoever made the allowance.
    pub fn report(&self, report: Report) {
        *guard(&self.report) = Some(report);
    }

    /// What was left so, given away.
    #[must_use]
    pub fn take_report(&self) -> Option<Report> {
        guard(&self.report).take()
    }

    /// Takes one call out of the allowance; `false` if there is none left.
    pub fn take_call(&self) -> bool {
        self.calls.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_ok()
    }

    /// Takes bytes that an upstream sent out of the allowance; `false` if there are not so many left.
    pub fn take_received(&self, bytes: u64) -> bool {
        self.received.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(bytes)).is_ok()
    }

    /// How many bytes upstreams may still send.
    #[must_use]
    pub fn received_left(&self) -> u64 {
        self.received.load(Relaxed)
    }

    /// One of the places of calls under way at once, if one is free. Held until dropped.
    pub(crate) fn try_place(&self) -> Option<tokio::sync::SemaphorePermit<'_>> {
        self.parallel.try_acquire().ok()
    }

    /// Waits for one of the places of calls under way at once. Held until dropped.
    pub async fn place(&self) -> Option<tokio::sync::SemaphorePermit<'_>> {
        self.parallel.acquire().await.ok()
    }

    /// The calls so far, in the order in which they were asked for.
    #[must_use]
    pub fn made(&self) -> Vec<Made> {
        self.lock().clone()
    }

    /// What is to be seen in them, without a copy.
    pub fn see_made<T>(&self, see: impl FnOnce(&[Made]) -> T) -> T {
        see(&self.lock())
    }

    /// The same, given away: for whoever comes last.
    #[must_use]
    pub fn take_made(&self) -> Vec<Made> {
        if self.has_made.load(Acquire) { std::mem::take(&mut *self.lock()) } else { Vec::new() }
    }

    /// How many calls there were so far.
    #[must_use]
    pub fn made_count(&self) -> usize {
        self.lock().len()
    }

    /// Notes a call that is about to be made; the number is what [`Budget::note`] takes.
    pub fn begin(&self, service: Arc<str>, method: Method, path: String) -> usize {
        let span = (self.started.elapsed(), None);
        self.has_made.store(true, Release);
        let mut made = self.lock();
        let (address, outcome) = (None, Outcome::NotSent);
        made.push(Made { service, method, path, address, outcome, again: Vec::new(), span });
        made.len() - 1
    }

    /// Notes a call that the allowance has no room for. Only the first is kept, so that a program that
    /// goes on asking can't fill the memory.
    pub fn refuse(&self, service: Arc<str>, method: Method, path: String) {
        if !self.refused.swap(true, Relaxed) {
            self.begin(service, method, path);
        }
    }

    /// Notes how far a call has come.
    pub fn note(&self, number: usize, outcome: Outcome) {
        let end = matches!(outcome, Outcome::Status(_)).then(|| self.started.elapsed());
        if let Some(made) = self.lock().get_mut(number) {
            made.outcome = outcome;
            made.span.1 = end;
        }
    }

    /// Notes that a call is sent, to this address.
    pub fn sent(&self, number: usize, address: Option<SocketAddr>) {
        if let Some(made) = self.lock().get_mut(number) {
            made.outcome = Outcome::NoAnswer;
            made.address = address;
        }
    }

    /// Notes that a call is sent once more, to another endpoint.
    pub fn again(&self, number: usize, address: Option<SocketAddr>) {
        let now = self.started.elapsed();
        if let Some(made) = self.lock().get_mut(number) {
            made.again.push(now);
            made.address = address;
        }
    }

    /// Notes what became of a call that another request made for this one, too, by that one's budget.
    pub(crate) fn note_made(&self, number: usize, by: &Self) {
        let Some(other) = by.see_made(|made| made.first().cloned()) else { return };
        let now = self.started.elapsed();
        if let Some(made) = self.lock().get_mut(number) {
            made.address = other.address;
            made.outcome = other.outcome;
            made.again = other.again.iter().map(|at| (by.started + *at) - self.started).collect();
            made.span.1 = Some(now);
        }
    }

    /// Notes that a call is over, however it went: from here on nothing of it is under way.
    pub fn end(&self, number: usize) {
        if let Some(made) = self.lock().get_mut(number) {
            made.span.1.get_or_insert_with(|| self.started.elapsed());
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Made>> {
        guard(&self.made)
    }
}

/// What a panic could leave half done is a list of calls, which is still a list of calls.
fn guard<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_pays_as_one_and_as_a_part_of_its_block() {
        let key = |text: &str| quota_key(&Caller::Anonymous, Some(text.parse().unwrap()));
        assert_eq!(key("2001:db8::1"), key("2001:db8::ffff:1"));
        assert_eq!(key("::ffff:192.0.2.1"), key("192.0.2.1"));
        let keys = ["192.0.2.1", "192.0.2.2", "2001:db8::1", "2001:db8:0:1::1", "2001:db8:1::1"].map(key);
        let distinct: std::collections::HashSet<QuotaKey> = keys.into_iter().collect();
        assert_eq!(distinct.len(), keys.len());
        assert!(keys[2].shares_block(keys[3]), "its neighbour may be itself");
        assert!(!keys[3].shares_block(keys[4]) && !keys[0].shares_block(keys[1]));
        let address = Some("192.0.2.1".parse().unwrap());
        let named = Caller::Named("a".into());
        assert_eq!(quota_key(&named, address), quota_key(&named, None), "a name pays, wherever it is");
        assert_ne!(quota_key(&named, None), quota_key(&Caller::Subject("a".into()), None));
    }
}
