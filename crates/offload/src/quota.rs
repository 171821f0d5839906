//! The CPU time that each payer may cause.
//!
//! Of an account one number is kept, as in the generic cell rate algorithm (ITU-T I.371): the moment at which all that
//! was charged will have been earned back. A payer whose moment lies more than [`PERIOD`] ahead has used up its quota.
//! Work is charged by an estimate before it starts, so that jobs that wait count, and corrected to what it took.
//!
//! The number of accounts is bounded: where there are too many, those that owe least are forgotten first.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::key::QuotaKey;

/// The time in which a whole quota is earned back.
const PERIOD: Duration = Duration::from_secs(10);
/// The charge for any piece of work, however short it was: it is received, queued and kept, too.
const MIN_CHARGE: Duration = Duration::from_millis(1);
/// The number of accounts above which some are forgotten. Each takes some 30 bytes.
const MAX_ACCOUNTS: usize = 16 << 10;
/// The longest debt, in periods, that one charge can make.
const MAX_PERIODS: f64 = 100.0;

/// The accounts of all payers.
#[derive(Debug)]
pub struct QuotaBook {
    limit: Duration,
    /// By account, the moment at which nothing is owed any more.
    accounts: Mutex<HashMap<u64, Instant>>,
}

impl QuotaBook {
    /// Opens a book in which each payer may use `limit` of CPU time in ten seconds.
    #[must_use]
    pub fn new(limit: Duration) -> Self {
        Self { limit, accounts: Mutex::default() }
    }

    /// The time until a payer that has used up its quota, or that of its block, has some again.
    #[must_use]
    pub fn retry_after(&self, key: QuotaKey, now: Instant) -> Option<Duration> {
        wait(&self.lock(), key, now)
    }

    /// Charges for work that was done.
    pub fn charge(&self, key: QuotaKey, cpu: Duration, now: Instant) {
        self.add(&mut self.lock(), key, cpu, now);
    }

    /// Charges for work that is to be done, unless the payer's quota is used up. The result is the moment at which
    /// nothing was owed before that: payers with little debt are served first.
    ///
    /// # Errors
    /// The time until the payer has some quota again.
    pub fn try_charge(&self, key: QuotaKey, estimate: Duration, now: Instant) -> Result<Instant, Duration> {
        let mut accounts = self.lock();
        if let Some(wait) = wait(&accounts, key, now) {
            return Err(wait);
        }
        let clear = key.accounts().filter_map(|(id, _)| accounts.get(&id).copied()).max();
        self.add(&mut accounts, key, estimate, now);
        Ok(clear.map_or(now, |clear| clear.max(now)))
    }

    /// Puts what work took in the place of its estimate.
    pub fn correct(&self, key: QuotaKey, estimate: Duration, actual: Duration, now: Instant) {
        let mut accounts = self.lock();
        for (id, share) in key.accounts() {
            let (charged, actual) = (self.debt(estimate, share), self.debt(actual, share));
            if let Some(clear) = accounts.get_mut(&id) {
                // What was earned back since then stays earned.
                *clear = clear.checked_sub(charged.saturating_sub(actual)).unwrap_or(now);
                *clear = (*clear).max(now) + actual.saturating_sub(charged);
            }
        }
    }

    fn add(&self, accounts: &mut HashMap<u64, Instant>, key: QuotaKey, cpu: Duration, now: Instant) {
        for (id, share) in key.accounts() {
            if !accounts.contains_key(&id) {
                make_room(accounts, now);
            }
            let clear = accounts.entry(id).or_insert(now);
            *clear = (*clear).max(now) + self.debt(cpu, share);
        }
    }

    /// The time in which CPU time is earned back.
    fn debt(&self, cpu: Duration, share: u32) -> Duration {
        let limit = self.limit.as_secs_f64().max(1e-6) * f64::from(share);
        PERIOD.mul_f64((cpu.max(MIN_CHARGE).as_secs_f64() / limit).min(MAX_PERIODS))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Instant>> {
        self.accounts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn wait(accounts: &HashMap<u64, Instant>, key: QuotaKey, now: Instant) -> Option<Duration> {
    let debts = key.accounts().filter_map(|(id, _)| Some(accounts.get(&id)?.saturating_duration_since(now)));
    debts.max()?.checked_sub(PERIOD).filter(|wait| !wait.is_zero())
}

/// Forgets accounts that owe nothing where there are too many; if those are too few, then a quarter of all, those that
/// owe least.
fn make_room(accounts: &mut HashMap<u64, Instant>, now: Instant) {
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

    /// The number of jobs that a payer is granted, all at once.
    fn granted(
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
        assert_eq!(granted(&book, std::iter::repeat(key(1)), 2 * MILLI, now), 51);
        let wait = book.try_charge(key(1), MILLI, now).unwrap_err();
        assert!(wait <= PERIOD / 50, "{wait:?}");
        assert!(book.try_charge(key(2), MILLI, now).is_ok());
        assert!(book.try_charge(key(1), MILLI, now + wait).is_ok(), "it is earned back");
    }

    #[test]
    fn charges_an_estimate_before_the_work_starts_and_gives_back_what_it_did_not_take() {
        let (book, now) = (QuotaBook::new(100 * MILLI), Instant::now());
        book.try_charge(key(1), 150 * MILLI, now).unwrap();
        assert!(book.try_charge(key(1), MILLI, now).is_err(), "the estimate counts at once");
        book.correct(key(1), 150 * MILLI, 10 * MILLI, now);
        assert_eq!(granted(&book, std::iter::repeat(key(1)), 10 * MILLI, now), 10);
        book.correct(key(1), 10 * MILLI, 500 * MILLI, now);
        let wait = book.retry_after(key(1), now).unwrap();
        assert!(wait > 4 * PERIOD, "what it took beyond the estimate is charged: {wait:?}");
    }

    #[test]
    fn charges_for_work_that_takes_no_time() {
        let (book, now) = (QuotaBook::new(100 * MILLI), Instant::now());
        let served = granted(&book, std::iter::repeat_n(key(1), 1000), Duration::ZERO, now);
        assert_eq!(served, 101);
        book.correct(key(1), Duration::ZERO, Duration::ZERO, now);
        assert!(book.retry_after(key(1), now).is_some());
    }

    #[test]
    fn grants_a_block_of_networks_no_more_than_sixteen_quotas() {
        let (book, now) = (QuotaBook::new(100 * MILLI), Instant::now());
        let network = |number: u64| key(number).in_block(&"block");
        assert_eq!(granted(&book, (0..10_000).map(network), 10 * MILLI, now), 161, "each asks once");
        assert!(book.try_charge(key(20_000), MILLI, now).is_ok());
    }

    #[test]
    fn work_on_answers_has_an_account_of_eight_quotas() {
        let (book, now) = (QuotaBook::new(100 * MILLI), Instant::now());
        let answers = key(1).for_answers();
        assert_eq!(granted(&book, std::iter::repeat(answers), 10 * MILLI, now), 81);
        assert!(book.try_charge(key(1), MILLI, now).is_ok(), "its programs are charged elsewhere");
        let network = |number: u64| key(number).in_block(&"block").for_answers();
        assert_eq!(granted(&book, (10..10_000).map(network), 80 * MILLI, now), 161);
    }

    #[test]
    fn charges_an_exempt_payer_nothing() {
        let (book, now) = (QuotaBook::new(MILLI), Instant::now());
        assert_eq!(granted(&book, std::iter::repeat_n(key(1).exempt(), 50), 100 * MILLI, now), 50);
        assert!(book.lock().is_empty());
    }

    #[test]
    fn bounds_its_accounts_though_each_of_them_owes() {
        let (book, now) = (QuotaBook::new(100 * MILLI), Instant::now());
        book.charge(key(u64::MAX), 300 * MILLI, now);
        for number in 0..(4 * MAX_ACCOUNTS as u64) {
            book.charge(key(number), MILLI * (1 + number as u32 % 7), now);
            assert!(book.lock().len() <= MAX_ACCOUNTS);
        }
        assert!(book.retry_after(key(u64::MAX), now).is_some(), "who owes most is forgotten last");
    }
}
