//! Rate limits of callers: requests, CPU time and concurrent requests; and those of new connections.
//!
//! The algorithm is the generic cell rate algorithm (GCRA, ITU-T I.371, virtual scheduling). An account
//! consists of one number, the theoretical arrival time: the time at which everything that was taken would
//! have been earned. A request conforms while this time is less than the burst ahead of now. CPU time uses
//! the same algorithm with a cost that is only known afterwards: an account may go into debt once and then
//! has to wait. (The library `governor` refuses costs above the burst and can't charge afterwards.)
//!
//! Accounts do not contain rates. Rates are passed in with each request, so a reload changes them and keeps
//! the accounts.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use services::config::PerTime;
use services::{CallerId, CpuAccounting};

use crate::config::RateConfig;

/// The maximum number of accounts, of about 150 bytes each, and the number of shards.
const MAX_ACCOUNTS: usize = 64 << 10;
const SHARDS: usize = 64;
/// The CPU time that may be saved up: the amount that is earned in this span.
const MAX_SAVED_CPU: Duration = Duration::from_secs(1);

/// The factor of a block's rates, relative to those of a network in it.
const BLOCK_SHARE: u32 = 16;

/// The owner of an account.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum AccountOwner {
    Caller(CallerId),
    /// An anonymous client: its IPv4 address, or the first 64 bits of its IPv6 address, which identify a
    /// network.
    Net(IpAddr),
    /// The first 48 bits of the IPv6 addresses of anonymous clients. A single customer often owns all
    /// networks of such a block, so the block has an account too.
    Block([u8; 6]),
}

/// The rates of a row in computed form.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RateLimit {
    requests: Option<TokenRefill>,
    /// Nanoseconds to earn one nanosecond of CPU time.
    cpu: Option<f64>,
    max_in_flight: Option<u32>,
}

/// The rate of requests, in nanoseconds.
#[derive(Clone, Copy, Debug)]
struct TokenRefill {
    interval: u64,
    /// The limit for the account's time ahead of now, up to which another request is accepted.
    burst_tolerance: u64,
}

/// The usage of one caller. Times are nanoseconds since the accounts were opened.
#[derive(Debug, Default)]
struct CallerAccount {
    requests: AtomicU64,
    cpu: AtomicU64,
    in_flight: AtomicU32,
}

/// The accounts of all callers, or of all networks for new connections.
#[derive(Debug)]
pub(crate) struct AccountTable {
    epoch: Instant,
    hasher: RandomState,
    shards: Vec<Mutex<HashMap<AccountOwner, Arc<CallerAccount>>>>,
}

/// The rate limit that was reached, and the time to wait or the limit itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RateLimitExceeded {
    Requests(Duration),
    Cpu(Duration),
    InFlight(u32),
}

/// The accounts that a request is charged to: the owner's, and that of its block.
#[derive(Debug)]
struct ChargedAccounts {
    own: Arc<CallerAccount>,
    block: Option<Arc<CallerAccount>>,
}

/// The permits for one of the concurrent requests of an account and of its block, released when dropped.
#[derive(Debug)]
pub(crate) struct ConcurrencyPermit {
    _own: AccountPermit,
    _block: Option<AccountPermit>,
}

/// A permit for one of the concurrent requests of an account, released when dropped.
#[derive(Debug)]
struct AccountPermit(Arc<CallerAccount>);

/// Charges CPU time to accounts.
#[derive(Debug)]
pub(crate) struct CpuBill {
    accounts: ChargedAccounts,
    epoch: Instant,
    price: f64,
}

impl AccountOwner {
    pub(crate) fn from_caller(caller: &CallerId, address: IpAddr) -> Self {
        match caller {
            CallerId::Anonymous => Self::Net(services::client_network(address)),
            caller => Self::Caller(caller.clone()),
        }
    }

    /// Returns the block that a network belongs to.
    fn block(&self) -> Option<Self> {
        match self {
            Self::Net(IpAddr::V6(network)) => network.octets().first_chunk().copied().map(Self::Block),
            _ => None,
        }
    }
}

impl TokenRefill {
    /// Returns the rate of this many owners together.
    fn for_share(self, share: u32) -> Self {
        let each = (self.interval / u64::from(share)).max(1);
        Self { interval: each, burst_tolerance: self.burst_tolerance.saturating_add(self.interval - each) }
    }
}

impl ChargedAccounts {
    /// Returns the accounts, each with the factor of its rates.
    fn iter_with_shares(&self) -> impl Iterator<Item = (&Arc<CallerAccount>, u32)> {
        let block = self.block.iter().map(|block| (block, BLOCK_SHARE));
        std::iter::once((&self.own, 1)).chain(block)
    }

    /// Acquires concurrency permits, given the maximum of an owner.
    fn acquire_permits(&self, at_most: u32) -> Result<ConcurrencyPermit, RateLimitExceeded> {
        let hold = |account: &Arc<CallerAccount>, share: u32| {
            let at_most = at_most.saturating_mul(share);
            account.acquire_permit(at_most).ok_or(RateLimitExceeded::InFlight(at_most))
        };
        let permit = hold(&self.own, 1)?;
        let block = self.block.as_ref().map(|block| hold(block, BLOCK_SHARE)).transpose()?;
        Ok(ConcurrencyPermit { _own: permit, _block: block })
    }
}

impl RateLimit {
    pub(crate) fn new(config: &RateConfig) -> Self {
        let requests = config.requests.map(|rate| {
            let each = (rate.span.as_nanos() / u128::from(rate.count)).clamp(1, u128::from(u64::MAX)) as u64;
            let second = 1_000_000_000 / each;
            let burst = config.burst.map_or(second.max(1), u64::from);
            TokenRefill { interval: each, burst_tolerance: each.saturating_mul(burst.saturating_sub(1)) }
        });
        let cpu = config.cpu.map(|rate| rate.span.as_secs_f64() / rate.cpu.as_secs_f64());
        Self { requests, cpu, max_in_flight: config.max_in_flight }
    }
}

impl CallerAccount {
    /// Acquires a concurrency permit. Returns `None` if `at_most` are taken already.
    fn acquire_permit(self: &Arc<Self>, at_most: u32) -> Option<AccountPermit> {
        let more = |taken: u32| (taken < at_most).then_some(taken + 1);
        self.in_flight.fetch_update(Relaxed, Relaxed, more).ok().map(|_| AccountPermit(Arc::clone(self)))
    }

    /// Charges one request. On failure, returns the nanoseconds to wait.
    fn charge_request(&self, rate: TokenRefill, now: u64) -> Result<(), u64> {
        let mut missing = 0;
        let taken = self.requests.fetch_update(Relaxed, Relaxed, |earned| {
            let from = earned.max(now);
            missing = (from - now).saturating_sub(rate.burst_tolerance);
            (missing == 0).then(|| from.saturating_add(rate.interval))
        });
        taken.map(drop).map_err(|_| missing)
    }

    /// Takes back charges above the maximum of a rate, which come from a lower rate.
    fn limit_charges(&self, rate: TokenRefill, now: u64) {
        let most = now.saturating_add(rate.burst_tolerance).saturating_add(rate.interval);
        self.requests.fetch_min(most, Relaxed);
    }

    /// Takes back the charge for a request that is refused for another reason.
    fn refund_request(&self, rate: TokenRefill) {
        let _ =
            self.requests.fetch_update(Relaxed, Relaxed, |earned| Some(earned.saturating_sub(rate.interval)));
    }

    /// Returns the nanoseconds to wait until CPU time is available again.
    fn cpu_debt(&self, now: u64) -> u64 {
        let ahead = self.cpu.load(Relaxed).saturating_sub(now);
        if ahead < nanos(MAX_SAVED_CPU) { 0 } else { ahead - nanos(MAX_SAVED_CPU) + 1 }
    }

    fn charge_cpu(&self, cost: u64, now: u64) {
        let charged = |earned: u64| Some(earned.max(now).saturating_add(cost));
        let _ = self.cpu.fetch_update(Relaxed, Relaxed, charged);
    }

    /// The time at which everything that was taken is earned.
    fn repaid_at(&self) -> u64 {
        self.requests.load(Relaxed).max(self.cpu.load(Relaxed))
    }
}

impl Drop for AccountPermit {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Relaxed);
    }
}

impl CpuAccounting for CpuBill {
    fn charge(&self, cpu: Duration) {
        let (cost, now) = (nanos(cpu) as f64 * self.price, nanos(self.epoch.elapsed()));
        for (account, share) in self.accounts.iter_with_shares() {
            account.charge_cpu((cost / f64::from(share)) as u64, now);
        }
    }
}

impl Default for AccountTable {
    fn default() -> Self {
        Self::new(Instant::now())
    }
}

impl AccountTable {
    fn new(epoch: Instant) -> Self {
        let shards = std::iter::repeat_with(Mutex::default).take(SHARDS).collect();
        Self { epoch, hasher: RandomState::new(), shards }
    }

    /// Charges an account, and that of its block, for one request. Returns its concurrency permits and the
    /// payer for its CPU time.
    pub(crate) fn charge_request(
        &self,
        owner: &AccountOwner,
        rate: &RateLimit,
        now: Instant,
    ) -> Result<(Option<ConcurrencyPermit>, Option<Arc<CpuBill>>), RateLimitExceeded> {
        let at = self.nanos_since_epoch(now);
        let accounts = self.charged_accounts(owner, at);
        let debts = || accounts.iter_with_shares().map(|(account, _)| account.cpu_debt(at)).max();
        let debt = rate.cpu.and_then(|_| debts()).unwrap_or(0);
        if debt > 0 {
            return Err(RateLimitExceeded::Cpu(Duration::from_nanos(debt)));
        }
        let permit = rate.max_in_flight.map(|at_most| accounts.acquire_permits(at_most)).transpose()?;
        if let Some(requests) = rate.requests {
            let over = |missing| RateLimitExceeded::Requests(Duration::from_nanos(missing));
            // The own account is charged first, so that requests above its limit are not charged to the
            // block.
            accounts.own.charge_request(requests, at).map_err(over)?;
            if let Some(block) = &accounts.block
                && let Err(missing) = block.charge_request(requests.for_share(BLOCK_SHARE), at)
            {
                accounts.own.refund_request(requests);
                return Err(over(missing));
            }
        }
        let bill = rate.cpu.map(|price| Arc::new(CpuBill { accounts, epoch: self.epoch, price }));
        Ok((permit, bill))
    }

    /// Charges the network of an address, and its block, for a new connection. Returns whether it conforms to
    /// the rate. The burst is `at_once`, or the connections of a second if that is more.
    pub(crate) fn charge_connection(
        &self,
        address: IpAddr,
        rate: PerTime,
        at_once: u32,
        now: Instant,
    ) -> bool {
        let second = rate.count / rate.span.as_secs().max(1);
        let burst = at_once.max(u32::try_from(second).unwrap_or(u32::MAX));
        let config = RateConfig { requests: Some(rate), burst: Some(burst), ..RateConfig::default() };
        let (owner, rate) =
            (AccountOwner::from_caller(&CallerId::Anonymous, address), RateLimit::new(&config));
        // A rate that was raised applies to earlier connections, too.
        if let Some(requests) = rate.requests {
            let at = self.nanos_since_epoch(now);
            for (account, share) in self.charged_accounts(&owner, at).iter_with_shares() {
                account.limit_charges(requests.for_share(share), at);
            }
        }
        self.charge_request(&owner, &rate, now).is_ok()
    }

    fn nanos_since_epoch(&self, now: Instant) -> u64 {
        nanos(now.saturating_duration_since(self.epoch))
    }

    /// Returns the accounts of an owner.
    fn charged_accounts(&self, owner: &AccountOwner, now: u64) -> ChargedAccounts {
        let block = owner.block().map(|block| self.account_for(&block, now));
        ChargedAccounts { own: self.account_for(owner, now), block }
    }

    fn account_for(&self, owner: &AccountOwner, now: u64) -> Arc<CallerAccount> {
        let mut part = self.lock_shard(owner);
        if let Some(account) = part.get(owner) {
            return Arc::clone(account);
        }
        if part.len() >= MAX_ACCOUNTS / SHARDS {
            evict_idle(&mut part, now);
        }
        Arc::clone(part.entry(owner.clone()).or_default())
    }

    fn lock_shard(&self, owner: &AccountOwner) -> MutexGuard<'_, HashMap<AccountOwner, Arc<CallerAccount>>> {
        let index = self.hasher.hash_one(owner) as usize % SHARDS;
        self.shards[index].lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.shards.iter().map(|part| part.lock().unwrap().len()).sum()
    }
}

/// Removes idle accounts that are even. If that frees too little, because a client uses many addresses, also
/// removes those that are closest to even, so that the heaviest users are forgotten last. Accounts with
/// requests in flight stay.
fn evict_idle(part: &mut HashMap<AccountOwner, Arc<CallerAccount>>, now: u64) {
    let is_idle = |account: &Arc<CallerAccount>| Arc::strong_count(account) == 1;
    part.retain(|_, account| !is_idle(account) || account.repaid_at() > now);
    let most = MAX_ACCOUNTS / SHARDS * 3 / 4;
    if part.len() > most {
        let mut times: Vec<u64> = part.values().map(|account| account.repaid_at()).collect();
        let nearest = times.len() - most;
        let (_, time, _) = times.select_nth_unstable(nearest);
        let time = *time;
        part.retain(|_, account| !is_idle(account) || account.repaid_at() > time);
    }
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
