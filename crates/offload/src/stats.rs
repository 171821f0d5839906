//! What a pool counts, for metrics.

use std::collections::BTreeMap;
use std::time::Duration;

/// What a pool has to do, and did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OffloadStats {
    /// Jobs that wait for a thread.
    pub queued: usize,
    /// Jobs that a thread has.
    pub running: usize,
    /// Jobs that were not done, by reason: `queue-full`, `quota`, `deadline`, `panic`, `cancelled`.
    pub rejected: BTreeMap<&'static str, u64>,
    /// Jobs that threads were given, by kind.
    pub kinds: BTreeMap<&'static str, JobKindStats>,
}

/// The jobs of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JobKindStats {
    /// How many have run.
    pub jobs: u64,
    /// The CPU time that they took.
    pub cpu: Duration,
}

impl OffloadStats {
    pub(crate) fn reject(&mut self, reason: &'static str) {
        *self.rejected.entry(reason).or_default() += 1;
    }

    pub(crate) fn count(&mut self, kind: &'static str, cpu: Duration) {
        let stats = self.kinds.entry(kind).or_default();
        stats.jobs += 1;
        stats.cpu += cpu;
    }
}
