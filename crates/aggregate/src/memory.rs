//! Memory accounting for a request's own structures, apart from the texts that services sent: indexes of
//! these texts, lists of items, and the tree of the response. A response of `[{},{},...]` is short, but a
//! list of its items is not.

use std::sync::atomic::{AtomicUsize, Ordering};

/// The bytes left for a request's own structures. Only one task uses it at a time.
#[derive(Debug)]
pub(crate) struct MemoryBudget {
    remaining: AtomicUsize,
    /// The number of items that lists have dropped.
    #[cfg(test)]
    pub(crate) dropped_items: AtomicUsize,
}

/// A list that charges its memory to a budget before it allocates.
pub(crate) struct BudgetedVec<'b, T> {
    items: Vec<T>,
    budget: &'b MemoryBudget,
    is_full: bool,
}

/// The memory budget of the request is exhausted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MemoryExhausted;

impl MemoryBudget {
    pub(crate) fn new(bytes: u64) -> Self {
        Self {
            remaining: AtomicUsize::new(usize::try_from(bytes).unwrap_or(usize::MAX)),
            #[cfg(test)]
            dropped_items: AtomicUsize::new(0),
        }
    }

    pub(crate) fn remaining(&self) -> usize {
        self.remaining.load(Ordering::Relaxed)
    }

    pub(crate) fn charge(&self, bytes: usize) -> Result<(), MemoryExhausted> {
        let left = self.remaining().checked_sub(bytes).ok_or(MemoryExhausted)?;
        self.remaining.store(left, Ordering::Relaxed);
        Ok(())
    }

    /// Runs work that keeps no memory, and releases the memory charged for it.
    pub(crate) fn charge_temporarily<T>(&self, work: impl FnOnce() -> T) -> T {
        let left = self.remaining();
        let done = work();
        self.remaining.store(left, Ordering::Relaxed);
        done
    }

    /// Releases memory that was charged.
    pub(crate) fn release(&self, bytes: usize) {
        self.remaining.store(self.remaining().saturating_add(bytes), Ordering::Relaxed);
    }

    /// Charges the memory of `count` values.
    pub(crate) fn charge_for<T>(&self, count: usize) -> Result<(), MemoryExhausted> {
        self.charge(count.saturating_mul(size_of::<T>()))
    }
}

impl<'b, T> BudgetedVec<'b, T> {
    pub(crate) fn new(budget: &'b MemoryBudget) -> Self {
        Self { items: Vec::new(), budget, is_full: false }
    }

    /// Adds an item. Once the budget is exhausted, this item and all further ones are dropped.
    pub(crate) fn push(&mut self, item: T) {
        if self.items.len() == self.items.capacity() {
            let more = self.items.len().max(4);
            self.is_full = self.is_full || self.budget.charge_for::<T>(more).is_err();
            if self.is_full {
                #[cfg(test)]
                self.budget.dropped_items.fetch_add(1, Ordering::Relaxed);
                return;
            }
            self.items.reserve_exact(more);
        }
        self.items.push(item);
    }

    /// Whether an item was dropped.
    pub(crate) fn is_full(&self) -> bool {
        self.is_full
    }

    /// Returns all items, or an error if some were dropped.
    pub(crate) fn finish(self) -> Result<Vec<T>, MemoryExhausted> {
        if self.is_full { Err(MemoryExhausted) } else { Ok(self.items) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn charges_memory_before_a_list_grows() {
        let budget = MemoryBudget::new(100 * 8);
        let mut list = BudgetedVec::new(&budget);
        (0..64_u64).for_each(|item| list.push(item));
        assert_eq!(list.finish().unwrap().len(), 64);
        assert_eq!(budget.remaining(), 36 * 8);
        let mut list = BudgetedVec::new(&budget);
        (0..1_000_000_u64).for_each(|item| list.push(item));
        assert!(list.items.capacity() <= 36);
        assert!(list.finish().is_err());
    }
}
