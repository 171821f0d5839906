//! How much compiling one owner's unseen programs may take.
//!
//! Compiling is the dearest thing that a client can ask for with few bytes. What it took is charged to the program's
//! owner afterwards; who is in debt waits until enough has come back (429 with `Retry-After`). One
//! owner's programs are compiled one after the other, so that all owners get their turns.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use sandbox::OwnerId;
use tokio::sync::Mutex as Turn;

use crate::problem::QueryError;

/// How long it takes until a whole allowance has come back.
const PERIOD: Duration = Duration::from_secs(10);
/// What any unseen program costs, however little there is to compile: it is checked and kept, too.
const LEAST: Duration = Duration::from_millis(1);
/// From so many owners on, those that owe nothing are forgotten.
const MANY: usize = 4096;

/// The accounts of all owners.
#[derive(Debug)]
pub(crate) struct Allowance {
    most: Duration,
    owners: Mutex<HashMap<OwnerId, Account>>,
}

#[derive(Debug)]
struct Account {
    /// When all that it owes will have come back.
    clear: Instant,
    turn: Arc<Turn<()>>,
}

impl Allowance {
    /// Accounts from which so much can be taken at once.
    pub(crate) fn new(most: Duration) -> Self {
        Self { most, owners: Mutex::default() }
    }

    /// The owner's turn, if it has any allowance left.
    ///
    /// # Errors
    /// When it has none, and when it will have some.
    pub(crate) fn turn(
        &self,
        owner: OwnerId,
        is_charged: bool,
        now: Instant,
    ) -> Result<Arc<Turn<()>>, QueryError> {
        let mut owners = self.owners.lock().unwrap_or_else(PoisonError::into_inner);
        if owners.len() >= MANY && !owners.contains_key(&owner) {
            owners.retain(|_, account| account.clear > now || Arc::strong_count(&account.turn) > 1);
        }
        let account = owners.entry(owner).or_insert_with(|| Account { clear: now, turn: Arc::default() });
        let until = account.clear.saturating_duration_since(now);
        match until.checked_sub(PERIOD).filter(|wait| is_charged && !wait.is_zero()) {
            Some(wait) => Err(QueryError::CompileRate { wait }),
            None => Ok(Arc::clone(&account.turn)),
        }
    }

    /// Charges for a program.
    pub(crate) fn charge(&self, owner: OwnerId, took: Duration, now: Instant) {
        let mut owners = self.owners.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(account) = owners.get_mut(&owner) {
            let share = took.max(LEAST).as_secs_f64() / self.most.as_secs_f64().max(1e-6);
            account.clear = account.clear.max(now) + PERIOD.mul_f64(share.min(100.0));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLI: Duration = Duration::from_millis(1);

    #[test]
    fn who_has_used_it_up_waits_and_nobody_else_does() {
        let (allowance, now) = (Allowance::new(100 * MILLI), Instant::now());
        for _ in 0..=50 {
            allowance.turn(1, true, now).unwrap();
            allowance.charge(1, 2 * MILLI, now);
        }
        let Err(QueryError::CompileRate { wait }) = allowance.turn(1, true, now) else {
            panic!("it is used up")
        };
        assert!(wait <= PERIOD / 50, "{wait:?}");
        assert!(allowance.turn(2, true, now).is_ok());
        assert!(allowance.turn(1, true, now + wait).is_ok(), "it comes back");
    }

    #[test]
    fn what_costs_nothing_to_compile_still_costs() {
        let (allowance, now) = (Allowance::new(100 * MILLI), Instant::now());
        let served = (0..1000).take_while(|_| {
            let turn = allowance.turn(1, true, now).is_ok();
            allowance.charge(1, Duration::ZERO, now);
            turn
        });
        assert_eq!(served.count(), 101);
    }

    #[test]
    fn those_that_owe_nothing_are_forgotten() {
        let (allowance, now) = (Allowance::new(100 * MILLI), Instant::now());
        for owner in 0..(3 * MANY as u64) {
            allowance.turn(owner, true, now).unwrap();
        }
        assert!(allowance.owners.lock().unwrap().len() <= MANY);
    }
}
