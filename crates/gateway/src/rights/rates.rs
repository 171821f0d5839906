//! Rate limits of callers: requests, CPU time and concurrent requests.
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

use services::{Caller, Payer};

use super::config::RateConfig;

/// The maximum number of accounts, of about 150 bytes each, and the number of shards.
const ACCOUNTS: usize = 64 << 10;
const PARTS: usize = 64;
/// The CPU time that may be saved up: the amount that is earned in this span.
const SAVED: Duration = Duration::from_secs(1);

/// The owner of an account.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Owner {
    Caller(Caller),
    /// An anonymous client: its IPv4 address, or the first 64 bits of its IPv6 address, which identify a
    /// network.
    Net(u128),
}

/// The rates of a row in computed form.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rate {
    requests: Option<Earning>,
    /// Nanoseconds to earn one nanosecond of CPU time.
    cpu: Option<f64>,
    at_once: Option<u32>,
}

/// The rate of requests, in nanoseconds.
#[derive(Clone, Copy, Debug)]
struct Earning {
    each: u64,
    /// The limit for the account's time ahead of now, up to which another request is accepted.
    ahead: u64,
}

/// The usage of one caller. Times are nanoseconds since the accounts were opened.
#[derive(Debug, Default)]
pub(super) struct Account {
    requests: AtomicU64,
    cpu: AtomicU64,
    at_once: AtomicU32,
}

/// The accounts of all callers.
#[derive(Debug)]
pub(crate) struct Accounts {
    opened: Instant,
    hasher: RandomState,
    parts: Vec<Mutex<HashMap<Owner, Arc<Account>>>>,
}

/// The rate limit that was reached, and the time to wait or the limit itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Over {
    Requests(Duration),
    Cpu(Duration),
    AtOnce(u32),
}

/// A permit for one of the concurrent requests, released when dropped.
#[derive(Debug)]
pub(crate) struct Held(Arc<Account>);

/// Charges CPU time to an account.
#[derive(Debug)]
pub(super) struct Bill {
    account: Arc<Account>,
    opened: Instant,
    price: f64,
}

impl Owner {
    pub(super) fn of(caller: &Caller, address: IpAddr) -> Self {
        match (caller, address.to_canonical()) {
            (Caller::Anonymous, IpAddr::V4(address)) => Self::Net(address.to_ipv6_mapped().to_bits()),
            (Caller::Anonymous, IpAddr::V6(address)) => Self::Net(address.to_bits() >> 64 << 64),
            (caller, _) => Self::Caller(caller.clone()),
        }
    }
}

impl Rate {
    pub(super) fn new(config: &RateConfig) -> Self {
        let requests = config.requests.map(|rate| {
            let each = (rate.span.as_nanos() / u128::from(rate.count)).clamp(1, u128::from(u64::MAX)) as u64;
            let second = 1_000_000_000 / each;
            let burst = config.burst.map_or(second.max(1), u64::from);
            Earning { each, ahead: each.saturating_mul(burst.saturating_sub(1)) }
        });
        let cpu = config.cpu.map(|rate| rate.span.as_secs_f64() / rate.cpu.as_secs_f64());
        Self { requests, cpu, at_once: config.at_once }
    }
}

impl Account {
    /// Acquires a concurrency permit. Returns `None` if `at_most` are taken already.
    fn hold(self: &Arc<Self>, at_most: u32) -> Option<Held> {
        let more = |taken: u32| (taken < at_most).then_some(taken + 1);
        self.at_once.fetch_update(Relaxed, Relaxed, more).ok().map(|_| Held(Arc::clone(self)))
    }

    /// Charges one request. On failure, returns the nanoseconds to wait.
    fn take(&self, rate: Earning, now: u64) -> Result<(), u64> {
        let mut missing = 0;
        let taken = self.requests.fetch_update(Relaxed, Relaxed, |earned| {
            let from = earned.max(now);
            missing = (from - now).saturating_sub(rate.ahead);
            (missing == 0).then(|| from.saturating_add(rate.each))
        });
        taken.map(drop).map_err(|_| missing)
    }

    /// Returns the nanoseconds to wait until CPU time is available again.
    fn debt(&self, now: u64) -> u64 {
        let ahead = self.cpu.load(Relaxed).saturating_sub(now);
        if ahead < nanos(SAVED) { 0 } else { ahead - nanos(SAVED) + 1 }
    }

    fn charge(&self, cost: u64, now: u64) {
        let charged = |earned: u64| Some(earned.max(now).saturating_add(cost));
        let _ = self.cpu.fetch_update(Relaxed, Relaxed, charged);
    }

    /// The time at which everything that was taken is earned.
    fn even(&self) -> u64 {
        self.requests.load(Relaxed).max(self.cpu.load(Relaxed))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.0.at_once.fetch_sub(1, Relaxed);
    }
}

impl Payer for Bill {
    fn charge(&self, cpu: Duration) {
        let cost = (nanos(cpu) as f64 * self.price) as u64;
        self.account.charge(cost, nanos(self.opened.elapsed()));
    }
}

impl Accounts {
    pub(super) fn new(opened: Instant) -> Self {
        let parts = std::iter::repeat_with(Mutex::default).take(PARTS).collect();
        Self { opened, hasher: RandomState::new(), parts }
    }

    /// Charges an account for one request. Returns its concurrency permit and the payer for its CPU time.
    pub(super) fn take(
        &self,
        owner: &Owner,
        rate: &Rate,
        now: Instant,
    ) -> Result<(Option<Held>, Option<Arc<Bill>>), Over> {
        let at = nanos(now.saturating_duration_since(self.opened));
        let account = self.account(owner, at);
        let debt = rate.cpu.map_or(0, |_| account.debt(at));
        if debt > 0 {
            return Err(Over::Cpu(Duration::from_nanos(debt)));
        }
        let held = match rate.at_once {
            Some(at_most) => Some(account.hold(at_most).ok_or(Over::AtOnce(at_most))?),
            None => None,
        };
        if let Some(requests) = rate.requests {
            account.take(requests, at).map_err(|missing| Over::Requests(Duration::from_nanos(missing)))?;
        }
        let bill = |price| Arc::new(Bill { account: Arc::clone(&account), opened: self.opened, price });
        Ok((held, rate.cpu.map(bill)))
    }

    fn account(&self, owner: &Owner, now: u64) -> Arc<Account> {
        let mut part = self.part(owner);
        if let Some(account) = part.get(owner) {
            return Arc::clone(account);
        }
        if part.len() >= ACCOUNTS / PARTS {
            make_room(&mut part, now);
        }
        Arc::clone(part.entry(owner.clone()).or_default())
    }

    fn part(&self, owner: &Owner) -> MutexGuard<'_, HashMap<Owner, Arc<Account>>> {
        let index = self.hasher.hash_one(owner) as usize % PARTS;
        self.parts[index].lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.parts.iter().map(|part| part.lock().unwrap().len()).sum()
    }
}

/// Removes idle accounts that are even. If that frees too little, because a client uses many addresses, also
/// removes those that are closest to even, so that the heaviest users are forgotten last. Accounts with
/// requests in flight stay.
fn make_room(part: &mut HashMap<Owner, Arc<Account>>, now: u64) {
    let is_idle = |account: &Arc<Account>| Arc::strong_count(account) == 1;
    part.retain(|_, account| !is_idle(account) || account.even() > now);
    let most = ACCOUNTS / PARTS * 3 / 4;
    if part.len() > most {
        let mut times: Vec<u64> = part.values().map(|account| account.even()).collect();
        let nearest = times.len() - most;
        let (_, time, _) = times.select_nth_unstable(nearest);
        let time = *time;
        part.retain(|_, account| !is_idle(account) || account.even() > time);
    }
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
