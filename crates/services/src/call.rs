//! The context of a client's request, passed down to each upstream call made for it.
//!
//! A [`RequestCall`] is cheap to clone. The clones share one [`RequestBudget`], so that concurrent calls
//! count together. The budget also keeps the list of calls [`UpstreamCallRecord`] so far, which responses,
//! problem documents and `orfa dev` show.

use std::collections::BTreeSet;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use http::{HeaderMap, Method};
use offload::QuotaKey;
use tokio::sync::Semaphore;

use crate::caching::CacheNotes;
use crate::error::CallError;
use crate::headers::{ConnectionDetails, client_network};
use crate::problem::UnfinishedResponse;
use crate::trace::RequestTrace;

/// The caller on whose behalf a request is made. Variants never compare equal: a token's subject never passes
/// for a caller from the config of the same name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum CallerId {
    /// An unauthenticated caller.
    #[default]
    Anonymous,
    /// A caller from the config, by its configured name.
    Named(Arc<str>),
    /// A caller that is known only to the issuer of its token, by the name in the token.
    Subject(Arc<str>),
}

/// Restricts the services and methods that a caller may use, within the limits of the route.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallRights {
    /// The permitted services, in lower case; `None` permits all.
    pub services: Option<BTreeSet<Box<str>>>,
    /// The permitted methods; `None` permits all.
    pub methods: Option<Vec<Method>>,
}

/// The account that is charged for the CPU time of a request's program.
pub trait CpuAccounting: fmt::Debug + Send + Sync {
    /// Charges for a run that is complete or was cancelled by its client.
    fn charge(&self, cpu: Duration);
}

/// The accounts of clients for the bytes of services' responses that the gateway holds for them.
pub trait ReceivedAccounts: fmt::Debug + Send + Sync {
    /// Opens the account of a client, for one request.
    fn open_account(&self, client: IpAddr) -> Box<dyn ReceivedPermit>;
}

/// A guard that counts bytes of services' responses in the account of a client.
pub trait ReceivedPermit: fmt::Debug + Send + Sync {
    /// Counts `total` bytes.
    ///
    /// # Errors
    /// The limit that has no room for them. Then no more bytes count than before.
    fn try_hold(&self, total: u64) -> Result<(), ReceivedLimit>;

    /// Counts no bytes any more.
    fn release(&self);
}

/// A limit of the bytes of services' responses that the gateway holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReceivedLimit {
    /// The limit of one client. Others may have room.
    Client,
    /// The limit of all clients together.
    Total,
}

/// The context of a client's request: its caller, its budget, its hop count.
#[derive(Clone, Debug)]
pub struct RequestCall {
    /// The caller on whose behalf the request is made.
    pub caller: CallerId,
    /// The caller's rights; `None` for no restrictions.
    pub rights: Option<Arc<CallRights>>,
    /// The account that is charged for CPU time, if any.
    pub payer: Option<Arc<dyn CpuAccounting>>,
    /// The client's own headers. A service gets those that its `forward` setting lists. `None` forwards no
    /// headers.
    pub headers: Option<Arc<HeaderMap>>,
    /// The trace that the request belongs to.
    pub trace: RequestTrace,
    /// The connection details of the client's request; `None` for requests without a client.
    pub connection_details: Option<ConnectionDetails>,
    /// The number of gateways that the request has passed (`CDN-Loop`, RFC 8586).
    pub hops: u8,
    /// The remaining allowance.
    pub budget: Arc<RequestBudget>,
}

/// The bytes of responses up to which a request counts in no account, and the unit in which more are counted.
pub(crate) const HELD_UNIT: u64 = 64 << 10;

/// The remaining allowance of a request, and a record of its use.
#[derive(Debug)]
pub struct RequestBudget {
    /// The start of the request; the times of calls are relative to it.
    pub started: Instant,
    /// The deadline of the request.
    pub deadline: Instant,
    calls_left: AtomicU32,
    received_left: AtomicU64,
    /// The bytes of responses that the gateway holds for the request.
    held_bytes: AtomicU64,
    /// The accounts that these bytes count in, and the client; `None` for requests without a client.
    accounts: Option<(Arc<dyn ReceivedAccounts>, IpAddr)>,
    /// The budget of the request that started a shared call. Short responses count there.
    starter_budget: Option<Arc<RequestBudget>>,
    /// The permit for these bytes; not set for short responses.
    permit: OnceLock<Arc<dyn ReceivedPermit>>,
    /// Whether the account of the client had no room for a response.
    client_limit_reached: AtomicBool,
    concurrency: Semaphore,
    call_records: Mutex<Vec<UpstreamCallRecord>>,
    /// Whether any call was made. Avoids locking the list for requests without calls.
    has_calls: AtomicBool,
    has_refused_call: AtomicBool,
    report: Mutex<Option<RequestReport>>,
    cache_notes: Arc<CacheNotes>,
    /// Whether several requests share the responses.
    is_shared: bool,
}

/// A record of an upstream call that was made or attempted.
#[derive(Clone, Debug)]
pub struct UpstreamCallRecord {
    /// The service's name.
    pub service: Arc<str>,
    /// The method.
    pub method: Method,
    /// Path and query as sent.
    pub path: String,
    /// The address of the endpoint that the last attempt was sent to.
    pub address: Option<SocketAddr>,
    /// The outcome of the call.
    pub outcome: UpstreamCallOutcome,
    /// The times of the retries, each on another endpoint, relative to the start of the request.
    pub retry_times: Vec<Duration>,
    /// The start and, once it is over, the end of the call, relative to the start of the request.
    pub span: (Duration, Option<Duration>),
}

/// The outcome of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpstreamCallOutcome {
    /// The call is queued or was rejected: nothing left the gateway.
    NotSent,
    /// The request was sent; there is no complete response, or not yet.
    NoAnswer,
    /// The response had this status.
    Status(u16),
}

/// The cost of a request, for the access log and `orfa dev`. A handler with a budget of its own stores its
/// report in the request's budget, see [`RequestBudget::report`].
#[derive(Clone, Debug, Default)]
pub struct RequestReport {
    /// The upstream calls.
    pub call_records: Vec<UpstreamCallRecord>,
    /// The start time that the times of the calls are relative to.
    pub started: Option<Instant>,
    /// The CPU time of the program that was run, if any.
    pub cpu: Duration,
}

impl RequestReport {
    /// Creates the report of a handler whose calls used this budget, and moves the list of calls out of it.
    #[must_use]
    pub fn from_budget(budget: &RequestBudget) -> Self {
        Self { call_records: budget.take_call_records(), started: Some(budget.started), cpu: Duration::ZERO }
    }
}

impl RequestCall {
    /// Returns an anonymous call with practically no limits, for tests, health checks and benchmarks.
    #[must_use]
    pub fn unlimited() -> Self {
        let budget = RequestBudget::new(Duration::from_secs(3600), u32::MAX, u64::MAX, 1024);
        Self {
            caller: CallerId::Anonymous,
            rights: None,
            payer: None,
            headers: None,
            trace: RequestTrace::default(),
            connection_details: None,
            hops: 0,
            budget: Arc::new(budget),
        }
    }

    /// Returns a copy of the call with another budget, and with these client headers for forwarding.
    #[must_use]
    pub fn with_budget(&self, budget: Arc<RequestBudget>, headers: HeaderMap) -> Self {
        Self {
            caller: self.caller.clone(),
            rights: self.rights.clone(),
            payer: self.payer.clone(),
            headers: Some(Arc::new(headers)),
            trace: self.trace.clone(),
            connection_details: self.connection_details,
            hops: self.hops,
            budget,
        }
    }

    /// Returns the quota key that is charged for the work that this call causes in the gateway.
    #[must_use]
    pub fn quota_key(&self) -> QuotaKey {
        quota_key(&self.caller, self.connection_details.map(|arrival| arrival.client))
    }

    /// Checks that the caller may send this method to this service.
    ///
    /// # Errors
    /// [`CallError::ServiceForbidden`] and [`CallError::ServiceMethodForbidden`].
    pub fn check_rights(&self, service: &Arc<str>, method: &Method) -> Result<(), CallError> {
        let Some(rights) = &self.rights else { return Ok(()) };
        if !rights.permits_service(service) {
            return Err(CallError::ServiceForbidden(Arc::clone(service)));
        }
        if rights.methods.as_ref().is_some_and(|methods| !methods.contains(method)) {
            let (service, method) = (Arc::clone(service), method.clone());
            return Err(CallError::ServiceMethodForbidden { service, method });
        }
        Ok(())
    }
}

/// Returns the quota key that is charged for a client's work: the named caller, or for anonymous clients
/// their network. An IPv6 network is also part of a /48 block, since a single customer often owns the whole
/// block.
#[must_use]
pub fn quota_key(caller: &CallerId, client: Option<IpAddr>) -> QuotaKey {
    match (caller, client.map(client_network)) {
        (CallerId::Anonymous, Some(IpAddr::V4(network))) => QuotaKey::new(&network.to_bits()),
        (CallerId::Anonymous, Some(IpAddr::V6(network))) => {
            QuotaKey::new(&network.to_bits()).with_block(&network.octets().first_chunk::<6>())
        }
        (caller, _) => QuotaKey::new(caller),
    }
}

impl CallerId {
    /// Returns the caller's name, for logs; `None` for an anonymous caller.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        match self {
            Self::Anonymous => None,
            Self::Named(name) | Self::Subject(name) => Some(name),
        }
    }
}

impl CallRights {
    fn permits_service(&self, service: &str) -> bool {
        let Some(services) = &self.services else { return true };
        services.contains(service) || services.contains(&*service.to_ascii_lowercase())
    }
}

impl RequestBudget {
    /// Creates a budget that starts now.
    #[must_use]
    pub fn new(time: Duration, calls: u32, received: u64, parallel: usize) -> Self {
        Self::new_at(Instant::now(), time, calls, received, parallel)
    }

    /// Creates a budget that started at the given time.
    #[must_use]
    pub fn new_at(started: Instant, time: Duration, calls: u32, received: u64, parallel: usize) -> Self {
        Self {
            started,
            deadline: started + time,
            calls_left: AtomicU32::new(calls),
            received_left: AtomicU64::new(received),
            held_bytes: AtomicU64::new(0),
            accounts: None,
            starter_budget: None,
            permit: OnceLock::new(),
            client_limit_reached: AtomicBool::new(false),
            concurrency: Semaphore::new(parallel.clamp(1, Semaphore::MAX_PERMITS)),
            call_records: Mutex::default(),
            has_calls: AtomicBool::new(false),
            has_refused_call: AtomicBool::new(false),
            report: Mutex::default(),
            cache_notes: Arc::default(),
            is_shared: false,
        }
    }

    /// Makes this the budget of calls whose responses several requests share. No caller is charged for
    /// decoding them, so that none waits for the quota of another.
    #[must_use]
    pub fn into_shared(self) -> Self {
        Self { is_shared: true, ..self }
    }

    /// Whether several requests share the responses.
    pub(crate) fn is_shared(&self) -> bool {
        self.is_shared
    }

    /// Counts the bytes of responses in the account of this client.
    #[must_use]
    pub fn with_accounts(self, accounts: Arc<dyn ReceivedAccounts>, client: IpAddr) -> Self {
        Self { accounts: Some((accounts, client)), ..self }
    }

    /// Counts the bytes of shared responses in the account of the client whose request starts the call.
    #[must_use]
    pub fn with_starter(self, starter: &Arc<Self>) -> Self {
        Self { accounts: starter.accounts.clone(), starter_budget: Some(Arc::clone(starter)), ..self }
    }

    /// Makes this a partial budget of another request: cache directives of responses are recorded for
    /// `whole`, and their bytes count in the account of its client.
    #[must_use]
    pub fn with_parent(self, whole: &Self) -> Self {
        Self { cache_notes: Arc::clone(&whole.cache_notes), accounts: whole.accounts.clone(), ..self }
    }

    /// The cache directives of the services' responses so far.
    #[must_use]
    pub fn cache_notes(&self) -> &CacheNotes {
        &self.cache_notes
    }

    /// Stores the cost of the request, whether it succeeded or not, for the creator of the budget.
    pub fn store_report(&self, report: RequestReport) {
        *lock_unpoisoned(&self.report) = Some(report);
    }

    /// Takes the stored report.
    #[must_use]
    pub fn take_report(&self) -> Option<RequestReport> {
        lock_unpoisoned(&self.report).take()
    }

    /// Takes one call out of the allowance; returns `false` if none is left.
    pub fn take_call(&self) -> bool {
        self.calls_left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_ok()
    }

    /// Takes received bytes out of the allowance; returns `false` if too few are left.
    pub fn take_received(&self, bytes: u64) -> bool {
        self.received_left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(bytes)).is_ok()
    }

    /// Takes the bytes of a response out of the allowance, and counts them in the account of the client until
    /// the budget is dropped.
    ///
    /// # Errors
    /// [`CallError::Limit`] with `limit-received` if too few bytes are left, and [`CallError::Unfinished`] if
    /// the gateway holds too many bytes of responses, for this client or in total.
    pub fn receive(&self, bytes: u64) -> Result<(), CallError> {
        if !self.take_received(bytes) {
            return Err(CallError::Limit("limit-received"));
        }
        self.hold_received(bytes).map_err(Into::into)
    }

    /// Counts bytes that the gateway holds. Short responses only take an addition.
    pub(crate) fn hold_received(&self, bytes: u64) -> Result<(), UnfinishedResponse> {
        self.try_hold_received(bytes).map_err(|_| UnfinishedResponse)
    }

    fn try_hold_received(&self, bytes: u64) -> Result<(), ReceivedLimit> {
        let held = self.held_bytes.fetch_add(bytes, Relaxed) + bytes;
        let result = match (&self.starter_budget, &self.accounts) {
            (None, _) if held <= HELD_UNIT => Ok(()),
            (Some(starter), _) if held <= HELD_UNIT => starter.try_hold_received(bytes),
            (_, None) => Ok(()),
            (_, Some((accounts, client))) => {
                let permit = self.permit.get_or_init(|| Arc::from(accounts.open_account(*client)));
                permit.try_hold(held.next_multiple_of(HELD_UNIT))
            }
        };
        if let Err(limit) = result {
            self.held_bytes.fetch_sub(bytes, Relaxed);
            if limit == ReceivedLimit::Client {
                self.client_limit_reached.store(true, Relaxed);
            }
        }
        result
    }

    /// Counts the received bytes no longer in the account of the client: they are passed on, and count as
    /// unsent.
    pub fn release_received(&self) {
        self.held_bytes.store(0, Relaxed);
        if let Some(permit) = self.permit.get() {
            permit.release();
        }
    }

    /// Returns the permit for the received bytes, unless they are few or count in no account.
    pub(crate) fn received_permit(&self) -> Option<Arc<dyn ReceivedPermit>> {
        self.permit.get().cloned()
    }

    /// Whether the account of the client had no room for a response. That of another client may have room; if
    /// all clients together have too many bytes, this is `false`.
    #[must_use]
    pub fn has_reached_client_limit(&self) -> bool {
        self.client_limit_reached.load(Relaxed)
    }

    /// The number of bytes that upstreams may still send.
    #[must_use]
    pub fn received_left(&self) -> u64 {
        self.received_left.load(Relaxed)
    }

    /// Returns a concurrency permit for a call if one is free. It is released on drop.
    pub(crate) fn try_acquire_permit(&self) -> Option<tokio::sync::SemaphorePermit<'_>> {
        self.concurrency.try_acquire().ok()
    }

    /// Stops waiting calls from starting: there is no client left for their responses.
    pub fn close(&self) {
        self.concurrency.close();
    }

    /// Waits for a concurrency permit for a call. It is released on drop. `None` once the budget is closed.
    pub async fn acquire_permit(&self) -> Option<tokio::sync::SemaphorePermit<'_>> {
        self.concurrency.acquire().await.ok()
    }

    /// Returns the calls so far, in the order of their start.
    #[must_use]
    pub fn call_records(&self) -> Vec<UpstreamCallRecord> {
        self.lock().clone()
    }

    /// Runs a closure on the calls so far, without a copy. The list is locked meanwhile.
    pub fn inspect_call_records<T>(&self, see: impl FnOnce(&[UpstreamCallRecord]) -> T) -> T {
        see(&self.lock())
    }

    /// Takes the list of calls; for the last reader.
    #[must_use]
    pub fn take_call_records(&self) -> Vec<UpstreamCallRecord> {
        if self.has_calls.load(Acquire) { std::mem::take(&mut *self.lock()) } else { Vec::new() }
    }

    /// The number of calls so far.
    #[must_use]
    pub fn call_count(&self) -> usize {
        self.lock().len()
    }

    /// Records a call that is about to be made and returns its index, for [`RequestBudget::set_outcome`].
    pub fn begin_call(&self, service: Arc<str>, method: Method, path: String) -> usize {
        let span = (self.started.elapsed(), None);
        self.has_calls.store(true, Release);
        let mut made = self.lock();
        let (address, outcome) = (None, UpstreamCallOutcome::NotSent);
        made.push(UpstreamCallRecord {
            service,
            method,
            path,
            address,
            outcome,
            retry_times: Vec::new(),
            span,
        });
        made.len() - 1
    }

    /// Records a call that exceeds the allowance. Only the first one is recorded, so that a program that
    /// keeps calling cannot exhaust memory.
    pub fn refuse_call(&self, service: Arc<str>, method: Method, path: String) {
        if !self.has_refused_call.swap(true, Relaxed) {
            self.begin_call(service, method, path);
        }
    }

    /// Updates the outcome of a call.
    pub fn set_outcome(&self, number: usize, outcome: UpstreamCallOutcome) {
        let end = matches!(outcome, UpstreamCallOutcome::Status(_)).then(|| self.started.elapsed());
        if let Some(made) = self.lock().get_mut(number) {
            made.outcome = outcome;
            made.span.1 = end;
        }
    }

    /// Records that a call is being sent to this address.
    pub fn record_sent(&self, number: usize, address: Option<SocketAddr>) {
        if let Some(made) = self.lock().get_mut(number) {
            made.outcome = UpstreamCallOutcome::NoAnswer;
            made.address = address;
        }
    }

    /// Records that a call is being retried on another endpoint.
    pub fn record_retry(&self, number: usize, address: Option<SocketAddr>) {
        let now = self.started.elapsed();
        if let Some(made) = self.lock().get_mut(number) {
            made.retry_times.push(now);
            made.address = address;
        }
    }

    /// Copies the record of a coalesced call from the budget of the request that made it.
    pub(crate) fn copy_call_record(&self, number: usize, by: &Self) {
        if by.has_reached_client_limit() {
            self.client_limit_reached.store(true, Relaxed);
        }
        let Some(other) = by.inspect_call_records(|made| made.first().cloned()) else { return };
        let now = self.started.elapsed();
        if let Some(made) = self.lock().get_mut(number) {
            made.address = other.address;
            made.outcome = other.outcome;
            made.retry_times = other.retry_times.iter().map(|at| (by.started + *at) - self.started).collect();
            made.span.1 = Some(now);
        }
    }

    /// Adds copies of the records of another budget, whose calls this request made together with others.
    pub fn append_call_records(&self, other: &Self) {
        let mut added = other.call_records();
        if added.is_empty() {
            return;
        }
        let offset = other.started.saturating_duration_since(self.started);
        for made in &mut added {
            made.span = (made.span.0 + offset, made.span.1.map(|end| end + offset));
            made.retry_times.iter_mut().for_each(|at| *at += offset);
        }
        self.has_calls.store(true, Release);
        self.lock().extend(added);
    }

    /// Records the end of a call, whatever its outcome: afterwards no part of it is in flight.
    pub fn end_call(&self, number: usize) {
        if let Some(made) = self.lock().get_mut(number) {
            made.span.1.get_or_insert_with(|| self.started.elapsed());
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<UpstreamCallRecord>> {
        lock_unpoisoned(&self.call_records)
    }
}

/// Ignores poisoning: a panic cannot leave the list of calls in an inconsistent state.
fn lock_unpoisoned<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quota_key_is_per_network_and_shares_ipv6_block() {
        let key = |text: &str| quota_key(&CallerId::Anonymous, Some(text.parse().unwrap()));
        assert_eq!(key("2001:db8::1"), key("2001:db8::ffff:1"));
        assert_eq!(key("::ffff:192.0.2.1"), key("192.0.2.1"));
        let keys = ["192.0.2.1", "192.0.2.2", "2001:db8::1", "2001:db8:0:1::1", "2001:db8:1::1"].map(key);
        let distinct: std::collections::HashSet<QuotaKey> = keys.into_iter().collect();
        assert_eq!(distinct.len(), keys.len());
        assert!(keys[2].has_same_block(keys[3]), "same /48 block");
        assert!(!keys[3].has_same_block(keys[4]) && !keys[0].has_same_block(keys[1]));
        let address = Some("192.0.2.1".parse().unwrap());
        let named = CallerId::Named("a".into());
        assert_eq!(quota_key(&named, address), quota_key(&named, None), "independent of the address");
        assert_ne!(quota_key(&named, None), quota_key(&CallerId::Subject("a".into()), None));
    }
}
