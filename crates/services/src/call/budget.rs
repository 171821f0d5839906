//! The budget of a request: its remaining allowance, and the list of calls so far.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use http::Method;
use tokio::sync::Semaphore;

use super::CallError;
use super::caching::CacheNotes;
use crate::problem::UnfinishedResponse;

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

/// The limits of the upstream calls that a handler makes for one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallLimits {
    /// The time for all of them, from the start that is passed to [`CallLimits::new_budget`].
    pub timeout: Duration,
    /// The number of calls.
    pub calls: u32,
    /// The bytes of all responses together.
    pub upstream_bytes: u64,
    /// The number of concurrent calls. Further ones wait.
    pub concurrency: usize,
}

impl CallLimits {
    /// Creates a budget with these limits that started at the given time.
    #[must_use]
    pub fn new_budget(self, started: Instant) -> RequestBudget {
        RequestBudget::new_at(started, self.timeout, self.calls, self.upstream_bytes, self.concurrency)
    }
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
/// report in the request's budget, see [`RequestBudget::store_report`].
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
    pub fn with_parent(self, budget: &Self) -> Self {
        Self { cache_notes: Arc::clone(&budget.cache_notes), accounts: budget.accounts.clone(), ..self }
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
        if let Some(record) = self.lock().get_mut(number) {
            record.outcome = outcome;
            record.span.1 = end;
        }
    }

    /// Records that a call is being sent to this address.
    pub fn record_sent(&self, number: usize, address: Option<SocketAddr>) {
        if let Some(record) = self.lock().get_mut(number) {
            record.outcome = UpstreamCallOutcome::NoAnswer;
            record.address = address;
        }
    }

    /// Records that a call is being retried on another endpoint.
    pub fn record_retry(&self, number: usize, address: Option<SocketAddr>) {
        let now = self.started.elapsed();
        if let Some(record) = self.lock().get_mut(number) {
            record.retry_times.push(now);
            record.address = address;
        }
    }

    /// Copies the record of a coalesced call from the budget of the request that made it.
    pub(crate) fn copy_call_record(&self, number: usize, by: &Self) {
        if by.has_reached_client_limit() {
            self.client_limit_reached.store(true, Relaxed);
        }
        let Some(other) = by.inspect_call_records(|records| records.first().cloned()) else { return };
        let now = self.started.elapsed();
        if let Some(record) = self.lock().get_mut(number) {
            record.address = other.address;
            record.outcome = other.outcome;
            record.retry_times =
                other.retry_times.iter().map(|at| (by.started + *at) - self.started).collect();
            record.span.1 = Some(now);
        }
    }

    /// Adds copies of the records of another budget, whose calls this request made together with others.
    pub fn append_call_records(&self, other: &Self) {
        let mut added = other.call_records();
        if added.is_empty() {
            return;
        }
        let offset = other.started.saturating_duration_since(self.started);
        for record in &mut added {
            record.span = (record.span.0 + offset, record.span.1.map(|end| end + offset));
            record.retry_times.iter_mut().for_each(|at| *at += offset);
        }
        self.has_calls.store(true, Release);
        self.lock().extend(added);
    }

    /// Records the end of a call, whatever its outcome: afterwards no part of it is in flight.
    pub fn end_call(&self, number: usize) {
        if let Some(record) = self.lock().get_mut(number) {
            record.span.1.get_or_insert_with(|| self.started.elapsed());
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
