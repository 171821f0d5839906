//! How much each caller asks at a time: requests, CPU time, requests at once.
//!
//! The law is the generic cell rate algorithm (GCRA, ITU-T I.371, the virtual scheduling form): of an
//! account one number is kept, the time at which all that was taken would have been earned. As long as
//! it lies less than the burst ahead of now, there is something left. CPU time is the same law with a
//! price that is known only afterwards: an account may go into debt once, and then waits. (The library
//! `governor` refuses what costs more than a burst and can't charge afterwards.)
//!
//! Accounts know no rate: those of the config are given with each request, so that a reload changes the
//! rates and keeps the accounts.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use services::{Caller, Payer};

use super::config::RateConfig;

/// How many accounts there are at most, in how many parts. Each takes about 150 bytes.
const ACCOUNTS: usize = 64 << 10;
const PARTS: usize = 64;
/// How much CPU time may be saved up: what comes in this time.
const SAVED: Duration = Duration::from_secs(1);

/// Whose account it is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Owner {
    Caller(Caller),
    /// Without a name: an IPv4 address, or the 64 bits of an IPv6 address that a network has.
    Net(u128),
}

/// The rates of a row, ready to be applied.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rate {
    requests: Option<Earning>,
    /// Nanoseconds that a nanosecond of CPU time takes to earn.
    cpu: Option<f64>,
    at_once: Option<u32>,
}

/// How fast requests are earned, in nanoseconds.
#[derive(Clone, Copy, Debug)]
struct Earning {
    each: u64,
    /// How far ahead the account may be before another one is taken.
    ahead: u64,
}

/// What one caller has taken. Times are nanoseconds since the accounts were opened.
#[derive(Debug, Default)]
pub(super) struct Account {
    requests: AtomicU64,
    cpu: AtomicU64,
    at_once: AtomicU32,
}

/// Everybody's accounts.
#[derive(Debug)]
pub(crate) struct Accounts {
    opened: Instant,
    hasher: RandomState,
    parts: Vec<Mutex<HashMap<Owner, Arc<Account>>>>,
}

/// Which rate is used up, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Over {
    Requests(Duration),
    Cpu(Duration),
    AtOnce(u32),
}

/// A place among the requests at once, given back when dropped.
#[derive(Debug)]
pub(crate) struct Held(Arc<Account>);

/// What charges an account for CPU time.
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
    /// Takes a place; `None` if so many are taken already.
    fn hold(self: &Arc<Self>, at_most: u32) -> Option<Held> {
        let more = |taken: u32| (taken < at_most).then_some(taken + 1);
        self.at_once.fetch_update(Relaxed, Relaxed, more).ok().map(|_| Held(Arc::clone(self)))
    }

    /// Takes a request, or says how many nanoseconds are missing.
    fn take(&self, rate: Earning, now: u64) -> Result<(), u64> {
        let mut missing = 0;
        let taken = self.requests.fetch_update(Relaxed, Relaxed, |earned| {
            let from = earned.max(now);
            missing = (from - now).saturating_sub(rate.ahead);
            (missing == 0).then(|| from.saturating_add(rate.each))
        });
        taken.map(drop).map_err(|_| missing)
    }

    /// How many nanoseconds are missing until CPU time is earned again.
    fn debt(&self, now: u64) -> u64 {
        let ahead = self.cpu.load(Relaxed).saturating_sub(now);
        if ahead < nanos(SAVED) { 0 } else { ahead - nanos(SAVED) + 1 }
    }

    fn charge(&self, cost: u64, now: u64) {
        let charged = |earned: u64| Some(earned.max(now).saturating_add(cost));
        let _ = self.cpu.fetch_update(Relaxed, Relaxed, charged);
    }

    /// When everything that was taken is earned.
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

    /// Takes one request out of an account: what holds its place until it is over, and who pays for its
    /// CPU time.
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

/// Closes accounts that are even. If too few are (somebody has many addresses), closes those that are
/// nearest to it too: who has taken most is forgotten last. Accounts of requests under way stay.
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
