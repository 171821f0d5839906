//! The CPU time quota of each payer.
//!
//! Each account is a single value, as in the generic cell rate algorithm (ITU-T I.371): the time at which all
//! charges will have been earned back. A payer whose time is more than [`PERIOD`] ahead has used up its
//! quota. Work is charged by an estimate before it starts, so that queued jobs count, and corrected to its
//! actual CPU time afterwards.
//!
//! The number of accounts is bounded: beyond the limit, those with the smallest debts are evicted first.

mod key;

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

pub(crate) use key::BLOCK_SHARE;
pub use key::{QuotaKey, ShareKey};

/// The time in which a whole quota is earned back.
const PERIOD: Duration = Duration::from_secs(10);
/// The minimum charge for any work, which covers receiving and queuing it.
const MIN_CHARGE: Duration = Duration::from_millis(1);
/// The number of accounts beyond which some are evicted. Each takes about 30 bytes.
const MAX_ACCOUNTS: usize = 16 << 10;
/// The maximum debt from a single charge, in periods.
const MAX_PERIODS: f64 = 100.0;

/// The accounts of all payers.
#[derive(Debug)]
pub struct QuotaBook {
    limit: Duration,
    /// The time at which each account is free of debt.
    accounts: Mutex<HashMap<u64, Instant>>,
}

impl QuotaBook {
    /// Creates a book in which each payer may use `limit` of CPU time in ten seconds.
    #[must_use]
    pub fn new(limit: Duration) -> Self {
        Self { limit, accounts: Mutex::default() }
    }

    /// Returns the time until a payer that has used up its quota, or that of its block, has quota again.
    #[must_use]
    pub fn retry_after(&self, key: QuotaKey, now: Instant) -> Option<Duration> {
        time_to_quota(&self.lock(), key, now)
    }

    /// Charges for completed work.
    pub fn charge(&self, key: QuotaKey, cpu: Duration, now: Instant) {
        self.add_debt(&mut self.lock(), key, cpu, now);
    }

    /// Charges for work in advance, unless the payer's quota is used up. Returns the time at which previous
    /// debts are earned back: payers with little debt are served first.
    ///
    /// # Errors
    /// The time until the payer has quota again.
    pub fn try_charge(&self, key: QuotaKey, estimate: Duration, now: Instant) -> Result<Instant, Duration> {
        let mut accounts = self.lock();
        if let Some(wait) = time_to_quota(&accounts, key, now) {
            return Err(wait);
        }
        let clear = key.accounts().filter_map(|(id, _)| accounts.get(&id).copied()).max();
        self.add_debt(&mut accounts, key, estimate, now);
        Ok(clear.map_or(now, |clear| clear.max(now)))
    }

    /// Replaces the estimate of work with its actual CPU time.
    pub fn correct_charge(&self, key: QuotaKey, estimate: Duration, actual: Duration, now: Instant) {
        let mut accounts = self.lock();
        for (id, share) in key.accounts() {
            let (charged, actual) = (self.debt(estimate, share), self.debt(actual, share));
            if let Some(clear) = accounts.get_mut(&id) {
                // Time that has been earned back since then remains earned.
                *clear = clear.checked_sub(charged.saturating_sub(actual)).unwrap_or(now);
                *clear = (*clear).max(now) + actual.saturating_sub(charged);
            }
        }
    }

    fn add_debt(&self, accounts: &mut HashMap<u64, Instant>, key: QuotaKey, cpu: Duration, now: Instant) {
        for (id, share) in key.accounts() {
            if !accounts.contains_key(&id) {
                evict_accounts(accounts, now);
            }
            let clear = accounts.entry(id).or_insert(now);
            *clear = (*clear).max(now) + self.debt(cpu, share);
        }
    }

    /// Returns the time in which this CPU time is earned back.
    fn debt(&self, cpu: Duration, share: u32) -> Duration {
        let limit = self.limit.as_secs_f64().max(1e-6) * f64::from(share);
        PERIOD.mul_f64((cpu.max(MIN_CHARGE).as_secs_f64() / limit).min(MAX_PERIODS))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Instant>> {
        self.accounts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn time_to_quota(accounts: &HashMap<u64, Instant>, key: QuotaKey, now: Instant) -> Option<Duration> {
    let debts = key.accounts().filter_map(|(id, _)| Some(accounts.get(&id)?.saturating_duration_since(now)));
    debts.max()?.checked_sub(PERIOD).filter(|wait| !wait.is_zero())
}

/// Evicts accounts without debt if there are too many accounts. If that is not enough, evicts the quarter
/// with the smallest debts.
fn evict_accounts(accounts: &mut HashMap<u64, Instant>, now: Instant) {
    if accounts.len() < MAX_ACCOUNTS {
        return;
    }
    accounts.retain(|_, clear| *clear > now);
    let kept = MAX_ACCOUNTS / 4 * 3;
    if accounts.len() > kept {
        let mut moments: Vec<Instant> = accounts.values().copied().collect();
        let (_, least, _) = moments.select_nth_unstable(accounts.len() - kept);
        let least = *least;
        accounts.retain(|_, clear| *clear > least);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLI: Duration = Duration::from_millis(1);

    fn key(number: u64) -> QuotaKey {
        QuotaKey::new(&number)
    }

    /// The number of jobs granted to payers at the same time.
    fn count_granted(
        book: &QuotaBook,
        keys: impl Iterator<Item = QuotaKey>,
        cost: Duration,
        now: Instant,
    ) -> usize {
        keys.take_while(|key| book.try_charge(*key, cost, now).is_ok()).count()
    }

    #[test]
    fn refuses_only_the_payer_that_has_used_up_its_quota() {
        let (book, now) = (QuotaBook::new(100 * MILLI), Instant::now());
        assert_eq!(count_granted(&book, std::iter::repeat(key(1)), 2 * MILLI, now), 51);
        let wait = book.try_charge(key(1), MILLI, now).unwrap_err();
        assert!(wait <= PERIOD / 50, "{wait:?}");
        assert!(book.try_charge(key(2), MILLI, now).is_ok());
        assert!(book.try_charge(key(1), MILLI, now + wait).is_ok(), "quota is earned back");
    }

    #[test]
    fn charges_the_estimate_in_advance_and_refunds_the_rest() {
        let (book, now) = (QuotaBook::new(100 * MILLI), Instant::now());
        book.try_charge(key(1), 150 * MILLI, now).unwrap();
        assert!(book.try_charge(key(1), MILLI, now).is_err(), "the estimate counts at once");
        book.correct_charge(key(1), 150 * MILLI, 10 * MILLI, now);
        assert_eq!(count_granted(&book, std::iter::repeat(key(1)), 10 * MILLI, now), 10);
        book.correct_charge(key(1), 10 * MILLI, 500 * MILLI, now);
        let wait = book.retry_after(key(1), now).unwrap();
        assert!(wait > 4 * PERIOD, "CPU time beyond the estimate is charged: {wait:?}");
    }

    #[test]
    fn charges_for_work_that_takes_no_time() {
        let (book, now) = (QuotaBook::new(100 * MILLI), Instant::now());
        let served = count_granted(&book, std::iter::repeat_n(key(1), 1000), Duration::ZERO, now);
        assert_eq!(served, 101);
        book.correct_charge(key(1), Duration::ZERO, Duration::ZERO, now);
        assert!(book.retry_after(key(1), now).is_some());
    }

    #[test]
    fn grants_a_block_of_networks_no_more_than_sixteen_quotas() {
        let (book, now) = (QuotaBook::new(100 * MILLI), Instant::now());
        let network = |number: u64| key(number).with_block(&"block");
        assert_eq!(count_granted(&book, (0..10_000).map(network), 10 * MILLI, now), 161, "one request each");
        assert!(book.try_charge(key(20_000), MILLI, now).is_ok());
    }

    #[test]
    fn work_on_responses_has_a_separate_account_of_eight_quotas() {
        let (book, now) = (QuotaBook::new(100 * MILLI), Instant::now());
        let answers = key(1).for_responses();
        assert_eq!(count_granted(&book, std::iter::repeat(answers), 10 * MILLI, now), 81);
        assert!(book.try_charge(key(1), MILLI, now).is_ok(), "programs have a separate account");
        let network = |number: u64| key(number).with_block(&"block").for_responses();
        assert_eq!(count_granted(&book, (10..10_000).map(network), 80 * MILLI, now), 161);
    }

    #[test]
    fn charges_an_exempt_payer_nothing() {
        let (book, now) = (QuotaBook::new(MILLI), Instant::now());
        assert_eq!(count_granted(&book, std::iter::repeat_n(key(1).exempt(), 50), 100 * MILLI, now), 50);
        assert!(book.lock().is_empty());
    }

    #[test]
    fn bounds_the_accounts_even_if_all_have_debts() {
        let (book, now) = (QuotaBook::new(100 * MILLI), Instant::now());
        book.charge(key(u64::MAX), 300 * MILLI, now);
        for number in 0..(4 * MAX_ACCOUNTS as u64) {
            book.charge(key(number), MILLI * (1 + number as u32 % 7), now);
            assert!(book.lock().len() <= MAX_ACCOUNTS);
        }
        assert!(book.retry_after(key(u64::MAX), now).is_some(), "the largest debt is evicted last");
    }
}
