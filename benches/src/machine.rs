//! What the machine was like while a bench ran. A virtual machine's processors are lent: its host takes them away for others, and
//! Linux counts for how long (`steal`, proc(5)). Times and rates hang on that, ratios hardly, so it stands beside them.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::scoreboard;

/// How long the processors have run for this machine's programs, and how long something was ready to run and they were with
/// others, since the start; in the system's ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    ran: u64,
    taken: u64,
}

/// What a bench met.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Met {
    bench: String,
    seconds: u64,
    /// Of the processor time that was wanted.
    taken_percent: f64,
}

impl Moment {
    /// Now.
    ///
    /// # Errors
    /// If this is no Linux.
    pub fn now() -> Result<Self> {
        let text = std::fs::read_to_string("/proc/stat").context("/proc/stat can't be read")?;
        Self::of(&text).context("/proc/stat does not say what the processors did")
    }

    /// `cpu  USER NICE SYSTEM IDLE IOWAIT IRQ SOFTIRQ STEAL ...`, the first line.
    fn of(text: &str) -> Option<Self> {
        let ticks = text.lines().next()?.strip_prefix("cpu ")?.split_whitespace();
        let ticks: Vec<u64> = ticks.map_while(|ticks| ticks.parse().ok()).collect();
        let [user, nice, system, _, _, irq, softirq, taken, ..] = ticks[..] else { return None };
        Some(Self { ran: user + nice + system + irq + softirq, taken })
    }

    /// What a bench met that began here and ends now.
    ///
    /// # Errors
    /// If this is no Linux.
    pub fn until_now(self, bench: &str, took: Duration) -> Result<Met> {
        let now = Self::now()?;
        Ok(Met { bench: bench.into(), seconds: took.as_secs(), taken_percent: self.taken_percent(now) })
    }

    fn taken_percent(self, later: Self) -> f64 {
        let taken = later.taken.saturating_sub(self.taken) as f64;
        let ran = later.ran.saturating_sub(self.ran) as f64;
        (taken / (taken + ran).max(1.0) * 1000.0).round() / 10.0
    }
}

/// Writes what a bench met to `machine.json`; what others met stays.
///
/// # Errors
/// If the file can't be read or written.
pub fn record(met: Met) -> Result<()> {
    record_in(&path(), met)
}

fn path() -> PathBuf {
    scoreboard::folder().join("machine.json")
}

fn record_in(path: &Path, met: Met) -> Result<()> {
    let mut all: Vec<Met> = match std::fs::read(path) {
        Ok(text) => serde_json::from_slice(&text).with_context(|| format!("{} is wrong", path.display()))?,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(error).with_context(|| format!("{} can't be read", path.display())),
    };
    match all.iter_mut().find(|known| known.bench == met.bench) {
        Some(known) => *known = met,
        None => all.push(met),
    }
    scoreboard::write(path, &all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_taken_is_a_share_of_what_was_wanted() {
        let moment = |text| Moment::of(text).expect("ticks");
        let before = moment("cpu  100 10 50 9000 70 0 20 5 0 0\ncpu0 1 1 1 1 1 1 1 1 1 1\n");
        let later = moment("cpu  160 10 70 9500 90 0 30 15 0 0\n");
        assert_eq!(later, Moment { ran: 270, taken: 15 });
        assert_eq!(before.taken_percent(later), 10.0);
        assert_eq!(before.taken_percent(before), 0.0);
        assert_eq!(Moment::of("intr 1 2 3"), None);
    }

    #[test]
    fn a_bench_that_ran_again_has_one_row() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("machine.json");
        let met = |bench: &str, seconds| Met { bench: bench.into(), seconds, taken_percent: 1.5 };
        for met in [met("a", 1), met("b", 2), met("a", 3)] {
            record_in(&path, met).expect("to write");
        }
        let all: Vec<Met> = serde_json::from_slice(&std::fs::read(&path).expect("a file")).expect("rows");
        assert_eq!(all, [met("a", 3), met("b", 2)]);
    }
}
