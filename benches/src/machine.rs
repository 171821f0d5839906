//! The state of the machine during a bench. The host of a virtual machine takes its processors away for
//! others, and Linux counts that time (`steal`, proc(5)). Times and rates depend on it, ratios hardly do, so
//! it is recorded with the results.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::scoreboard;

/// The time for which the processors have run this machine's programs, and for which they were taken away
/// while something was ready to run, since the start, in clock ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessorMoment {
    busy: u64,
    stolen: u64,
}

/// The steal during a bench.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StealDuringBench {
    bench: String,
    seconds: u64,
    /// The stolen part of the processor time that was wanted.
    taken_percent: f64,
}

impl ProcessorMoment {
    /// The current counters.
    ///
    /// # Errors
    /// Fails if the system is not Linux.
    pub fn now() -> Result<Self> {
        let text = std::fs::read_to_string("/proc/stat").context("/proc/stat can't be read")?;
        Self::parse(&text).context("/proc/stat does not have the processors' times")
    }

    /// Parses the first line, `cpu  USER NICE SYSTEM IDLE IOWAIT IRQ SOFTIRQ STEAL ...`.
    fn parse(text: &str) -> Option<Self> {
        let ticks = text.lines().next()?.strip_prefix("cpu ")?.split_whitespace();
        let ticks: Vec<u64> = ticks.map_while(|ticks| ticks.parse().ok()).collect();
        let [user, nice, system, _, _, irq, softirq, taken, ..] = ticks[..] else { return None };
        Some(Self { busy: user + nice + system + irq + softirq, stolen: taken })
    }

    /// The steal of a bench that began at `self` and ends now.
    ///
    /// # Errors
    /// Fails if the system is not Linux.
    pub fn steal_until_now(self, bench: &str, took: Duration) -> Result<StealDuringBench> {
        let now = Self::now()?;
        Ok(StealDuringBench {
            bench: bench.into(),
            seconds: took.as_secs(),
            taken_percent: self.steal_percent(now),
        })
    }

    /// The time between `self` and now for which the processors were taken away, in steps of 10 ms.
    ///
    /// # Errors
    /// Fails if the system is not Linux.
    pub fn stolen_time_until_now(self) -> Result<Duration> {
        Ok(self.stolen_time(Self::now()?, rustix::param::clock_ticks_per_second()))
    }

    fn stolen_time(self, moment: Self, ticks_per_second: u64) -> Duration {
        let taken = moment.stolen.saturating_sub(self.stolen);
        Duration::from_millis(taken * 1000 / ticks_per_second.max(1))
    }

    fn steal_percent(self, moment: Self) -> f64 {
        let taken = moment.stolen.saturating_sub(self.stolen) as f64;
        let ran = moment.busy.saturating_sub(self.busy) as f64;
        (taken / (taken + ran).max(1.0) * 1000.0).round() / 10.0
    }
}

/// Writes the row of a bench to `machine.json` and keeps the rows of others.
///
/// # Errors
/// Fails if the file can't be read or written.
pub fn record(met: StealDuringBench) -> Result<()> {
    record_in(&machine_file(), met)
}

fn machine_file() -> PathBuf {
    scoreboard::results_folder().join("machine.json")
}

fn record_in(path: &Path, met: StealDuringBench) -> Result<()> {
    let mut all: Vec<StealDuringBench> = match std::fs::read(path) {
        Ok(text) => serde_json::from_slice(&text).with_context(|| format!("{} is wrong", path.display()))?,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(error).with_context(|| format!("{} can't be read", path.display())),
    };
    match all.iter_mut().find(|bench| bench.bench == met.bench) {
        Some(during_bench) => *during_bench = met,
        None => all.push(met),
    }
    scoreboard::write_json(path, &all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steal_is_a_share_of_the_wanted_time() {
        let moment = |text| ProcessorMoment::parse(text).expect("ticks");
        let before = moment("cpu  100 10 50 9000 70 0 20 5 0 0\ncpu0 1 1 1 1 1 1 1 1 1 1\n");
        let processor_moment = moment("cpu  160 10 70 9500 90 0 30 15 0 0\n");
        assert_eq!(processor_moment, ProcessorMoment { busy: 270, stolen: 15 });
        assert_eq!(before.steal_percent(processor_moment), 10.0);
        assert_eq!(before.steal_percent(before), 0.0);
        assert_eq!(before.stolen_time(processor_moment, 100), Duration::from_millis(100));
        assert_eq!(ProcessorMoment::parse("intr 1 2 3"), None);
    }

    #[test]
    fn repeated_benches_replace_their_row() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("machine.json");
        let met =
            |bench: &str, seconds| StealDuringBench { bench: bench.into(), seconds, taken_percent: 1.5 };
        for met in [met("a", 1), met("b", 2), met("a", 3)] {
            record_in(&path, met).expect("to write");
        }
        let all: Vec<StealDuringBench> =
            serde_json::from_slice(&std::fs::read(&path).expect("a file")).expect("rows");
        assert_eq!(all, [met("a", 3), met("b", 2)]);
    }
}
