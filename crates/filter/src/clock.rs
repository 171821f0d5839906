//! The CPU time of a callback. The engine's millisecond is its bell: only who is still running then is measured
//! at all.

use std::time::Duration;

use sandbox::{CpuClock, GuestResult, Trapped};

/// The time of a callback. It runs from the first millisecond's end on.
#[derive(Default)]
pub(crate) struct Clock {
    pub(crate) limit: Duration,
    pub(crate) since: Option<CpuClock>,
}

/// A callback took too long.
#[derive(Debug, thiserror::Error)]
#[error("it used more CPU time than {0:?}")]
struct OverTime(Duration);

impl Clock {
    /// A millisecond is over.
    ///
    /// # Errors
    /// When the time is up.
    pub(crate) fn tick(&mut self) -> GuestResult<()> {
        let since = *self.since.get_or_insert_with(CpuClock::now);
        if since.elapsed() > self.limit { Err(Trapped::new(OverTime(self.limit))) } else { Ok(()) }
    }
}
