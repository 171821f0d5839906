//! CPU time of a callback, slice by slice.
//!
//! The engine's millisecond is the bell: at each, the callback yields, so that its thread serves others. What the first
//! slice took up to its bell is not counted, so a callback that ends before it pays for no clock at all. A slice
//! begins on whichever thread polls next, which is why its beginning is noted by the future that the callback waits
//! for, the last thing to run before the module does.

use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sandbox::{CpuClock, Gate, GuestResult, Trapped, TurnPermit};

use crate::filters::lock;

/// The time of a callback.
pub(crate) struct CallbackClock {
    limit: Duration,
    spent: Duration,
    gate: Gate,
    slice: Arc<Mutex<Option<Slice>>>,
    /// Whether the bell has rung in this callback.
    has_ticked: bool,
}

/// A time on a thread, from one bell to the next.
struct Slice {
    since: CpuClock,
    _permit: Option<TurnPermit>,
}

/// A callback took too long.
#[derive(Debug, thiserror::Error)]
#[error("it used more CPU time than {0:?}")]
struct OverTime(Duration);

impl CallbackClock {
    pub(crate) fn new(gate: &Gate) -> Self {
        let (limit, spent) = (Duration::ZERO, Duration::ZERO);
        Self { limit, spent, gate: gate.clone(), slice: Arc::default(), has_ticked: false }
    }

    /// Winds it for the next callback.
    pub(crate) fn arm(&mut self, limit: Duration) {
        self.limit = limit;
        self.rest();
    }

    /// A callback is over: its turn is another's.
    pub(crate) fn rest(&mut self) {
        if std::mem::take(&mut self.has_ticked) {
            self.spent = Duration::ZERO;
            *lock(&self.slice) = None;
        }
    }

    /// Counts the time from here on, and does not wait for the bell: for host functions that take long.
    pub(crate) fn begin_slice(&mut self) {
        self.has_ticked = true;
        lock(&self.slice).get_or_insert_with(|| Slice { since: CpuClock::now(), _permit: None });
    }

    /// The bell rings: ends a slice. The next one begins when the result is ready.
    ///
    /// # Errors
    /// When the time is up.
    pub(crate) fn tick(&mut self) -> GuestResult<impl Future<Output = ()> + Send + use<>> {
        self.has_ticked = true;
        if let Some(slice) = lock(&self.slice).take() {
            self.spent += slice.since.elapsed();
        }
        if self.spent > self.limit {
            return Err(Trapped::new(OverTime(self.limit)));
        }
        let (gate, slice, spent) = (self.gate.clone(), Arc::clone(&self.slice), self.spent);
        Ok(async move {
            tokio::task::yield_now().await;
            let permit = gate.wait_turn(spent).await;
            *lock(&slice) = Some(Slice { since: CpuClock::now(), _permit: permit });
        })
    }
}
