//! How much compiling one owner's unseen programs may take.
//!
//! Compiling is the dearest thing that a client can ask for with few bytes. What it took is charged to the program's
//! owner afterwards; who is in debt waits until enough has come back (429 with `Retry-After`). A client that has
//! many networks is no more than a few owners: their block is charged, too. One
//! owner's programs are compiled one after the other, so that all owners get their turns.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use sandbox::OwnerId;
use tokio::sync::Mutex as Turn;

/// How long it takes until a whole allowance has come back.
const PERIOD: Duration = Duration::from_secs(10);
/// What any unseen program costs, however little there is to compile: it is checked and kept, too.
const LEAST: Duration = Duration::from_millis(1);
/// From so many owners on, those that owe nothing are forgotten.
const MANY: usize = 4096;

/// The allowance of a block of addresses, in those of one of its networks.
const BLOCK: u32 = 16;

/// Who pays: an owner, and the block that its network is one of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Debtor {
    pub(crate) owner: OwnerId,
    pub(crate) block: Option<OwnerId>,
}

/// The accounts of all owners and blocks.
#[derive(Debug)]
pub(crate) struct Allowance {
    most: Duration,
    accounts: Mutex<HashMap<OwnerId, Account>>,
}

#[derive(Debug)]
struct Account {
    /// When all that it owes will have come back.
    clear: Instant,
    turn: Arc<Turn<()>>,
}

impl Account {
    fn new(now: Instant) -> Self {
        Self { clear: now, turn: Arc::default() }
    }

    /// How long it has to wait until it has any allowance.
    fn wait(&self, now: Instant) -> Option<Duration> {
        self.clear.saturating_duration_since(now).checked_sub(PERIOD).filter(|wait| !wait.is_zero())
    }
}

impl Allowance {
    /// Accounts from which so much can be taken at once.
    pub(crate) fn new(most: Duration) -> Self {
        Self { most, accounts: Mutex::default() }
    }

    /// How long somebody has to wait who has used up its allowance, or that of its block.
    pub(crate) fn wait(&self, debtor: Debtor, now: Instant) -> Option<Duration> {
        let accounts = self.lock();
        let waits = debtor.accounts().filter_map(|(id, _)| accounts.get(&id)?.wait(now));
        waits.max()
    }

    /// The owner's turn, if it has any allowance left.
    ///
    /// # Errors
    /// When it has none: how long it has to wait.
    pub(crate) fn turn(
        &self,
        debtor: Debtor,
        is_charged: bool,
        now: Instant,
    ) -> Result<Arc<Turn<()>>, Duration> {
        if let Some(wait) = self.wait(debtor, now).filter(|_| is_charged) {
            return Err(wait);
        }
        let mut accounts = self.lock();
        make_room(&mut accounts, debtor.owner, now);
        let account = accounts.entry(debtor.owner).or_insert_with(|| Account::new(now));
        Ok(Arc::clone(&account.turn))
    }

    /// Charges for a program.
    pub(crate) fn charge(&self, debtor: Debtor, took: Duration, now: Instant) {
        let mut accounts = self.lock();
        for (id, most) in debtor.accounts() {
            make_room(&mut accounts, id, now);
            let most = self.most.as_secs_f64().max(1e-6) * f64::from(most);
            let share = took.max(LEAST).as_secs_f64() / most;
            let account = accounts.entry(id).or_insert_with(|| Account::new(now));
            account.clear = account.clear.max(now) + PERIOD.mul_f64(share.min(100.0));
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<OwnerId, Account>> {
        self.accounts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Debtor {
    /// The accounts that are charged, and how many allowances each has.
    fn accounts(self) -> impl Iterator<Item = (OwnerId, u32)> {
        [(self.owner, 1)].into_iter().chain(self.block.map(|block| (block, BLOCK)))
    }
}

/// Forgets those that owe nothing, where there are many and one more comes.
fn make_room(accounts: &mut HashMap<OwnerId, Account>, id: OwnerId, now: Instant) {
    if accounts.len() >= MANY && !accounts.contains_key(&id) {
        accounts.retain(|_, account| account.clear > now || Arc::strong_count(&account.turn) > 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLI: Duration = Duration::from_millis(1);

    fn one(owner: OwnerId) -> Debtor {
        Debtor { owner, block: None }
    }

    #[test]
    fn who_has_used_it_up_waits_and_nobody_else_does() {
        let (allowance, now) = (Allowance::new(100 * MILLI), Instant::now());
        for _ in 0..=50 {
            allowance.turn(one(1), true, now).unwrap();
            allowance.charge(one(1), 2 * MILLI, now);
        }
        let wait = allowance.turn(one(1), true, now).unwrap_err();
        assert!(wait <= PERIOD / 50, "{wait:?}");
        assert!(allowance.turn(one(2), true, now).is_ok());
        assert!(allowance.turn(one(1), true, now + wait).is_ok(), "it comes back");
    }

    #[test]
    fn what_costs_nothing_to_compile_still_costs() {
        let (allowance, now) = (Allowance::new(100 * MILLI), Instant::now());
        let served = (0..1000).take_while(|_| {
            let turn = allowance.turn(one(1), true, now).is_ok();
            allowance.charge(one(1), Duration::ZERO, now);
            turn
        });
        assert_eq!(served.count(), 101);
    }

    #[test]
    fn a_block_of_networks_has_no_more_than_a_few_of_them() {
        let (allowance, now) = (Allowance::new(100 * MILLI), Instant::now());
        let network = |owner| Debtor { owner, block: Some(u64::MAX) };
        let served = (0..10_000).take_while(|owner| {
            let turn = allowance.turn(network(*owner), true, now).is_ok();
            allowance.charge(network(*owner), 10 * MILLI, now);
            turn
        });
        assert_eq!(served.count(), 10 * BLOCK as usize + 1, "each asks once, for a tenth of its own");
        assert!(allowance.turn(one(20_000), true, now).is_ok());
    }

    #[test]
    fn those_that_owe_nothing_are_forgotten() {
        let (allowance, now) = (Allowance::new(100 * MILLI), Instant::now());
        for owner in 0..(3 * MANY as u64) {
            allowance.turn(one(owner), true, now).unwrap();
        }
        assert!(allowance.lock().len() <= MANY);
    }
}
