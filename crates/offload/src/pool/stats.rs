//! Statistics of a pool, for metrics.

use std::collections::BTreeMap;
use std::time::Duration;

/// The jobs of a pool, current and past.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OffloadStats {
    /// The number of queued jobs.
    pub queued: usize,
    /// The number of running jobs.
    pub running: usize,
    /// The numbers of rejected jobs, by reason: `queue-full`, `quota`, `deadline`, `panic`, `cancelled`.
    pub rejected: BTreeMap<&'static str, u64>,
    /// Statistics of the jobs that ran, by kind.
    pub kinds: BTreeMap<&'static str, JobKindStats>,
}

/// Statistics of the jobs of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JobKindStats {
    /// The number of jobs that ran.
    pub jobs: u64,
    /// Their CPU time.
    pub cpu: Duration,
}

impl OffloadStats {
    pub(crate) fn count_rejection(&mut self, reason: &'static str) {
        *self.rejected.entry(reason).or_default() += 1;
    }

    pub(crate) fn count_job(&mut self, kind: &'static str, cpu: Duration) {
        let stats = self.kinds.entry(kind).or_default();
        stats.jobs += 1;
        stats.cpu += cpu;
    }
}
