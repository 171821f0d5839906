//! CPU time of a callback, measured in slices.
//!
//! At each tick of the engine, one per millisecond, the callback yields, so that its thread can serve other
//! requests. The first slice, up to the first tick, is not counted, so a callback that ends before it reads
//! no clock at all. A slice begins on whichever thread polls next. Its start is therefore recorded by the
//! future that the callback awaits, the last code to run before the module.

use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use offload::QuotaKey;
use sandbox::{CpuClock, GuestResult, HeavyGate, Trapped, TurnPermit};

use crate::sync::lock;

/// The clock of a callback.
pub(crate) struct CallbackClock {
    limit: Duration,
    cpu_used: Duration,
    gate: HeavyGate,
    /// The instance, which takes turns with programs as a payer of its own: it runs one callback at a time.
    payer: QuotaKey,
    slice: Arc<Mutex<Option<ThreadTimeSlice>>>,
    /// Whether the callback in flight has had a tick.
    has_ticked: bool,
}

/// Time on one thread, from one tick to the next.
struct ThreadTimeSlice {
    cpu_clock: CpuClock,
    _permit: Option<TurnPermit>,
}

/// The error of a callback that exceeded its limit.
#[derive(Debug, thiserror::Error)]
#[error("it used more CPU time than {0:?}")]
struct OverTime(Duration);

impl CallbackClock {
    pub(crate) fn new(gate: &HeavyGate) -> Self {
        let (limit, cpu_used) = (Duration::ZERO, Duration::ZERO);
        let slice: Arc<Mutex<Option<ThreadTimeSlice>>> = Arc::default();
        let payer = QuotaKey::new(&Arc::as_ptr(&slice));
        Self { limit, cpu_used, gate: gate.clone(), payer, slice, has_ticked: false }
    }

    /// Resets the clock for the next callback.
    pub(crate) fn arm(&mut self, limit: Duration) {
        self.limit = limit;
        self.end_callback();
    }

    /// Ends the callback and releases its turn.
    pub(crate) fn end_callback(&mut self) {
        if std::mem::take(&mut self.has_ticked) {
            self.cpu_used = Duration::ZERO;
            *lock(&self.slice) = None;
        }
    }

    /// Counts time from here on, without waiting for the tick. For host functions that take long.
    pub(crate) fn begin_slice(&mut self) {
        self.has_ticked = true;
        lock(&self.slice)
            .get_or_insert_with(|| ThreadTimeSlice { cpu_clock: CpuClock::now(), _permit: None });
    }

    /// Counts CPU time that the callback has used on another thread.
    pub(crate) fn add_cpu_time(&mut self, cpu: Duration) {
        self.cpu_used += cpu;
    }

    /// Handles a tick: ends a slice. The next one begins when the returned future is ready.
    ///
    /// # Errors
    /// Fails if the limit is exceeded.
    pub(crate) fn tick(&mut self) -> GuestResult<impl Future<Output = ()> + Send + use<>> {
        self.has_ticked = true;
        if let Some(slice) = lock(&self.slice).take() {
            self.cpu_used += slice.cpu_clock.elapsed();
        }
        if self.cpu_used > self.limit {
            return Err(Trapped::new(OverTime(self.limit)));
        }
        let (gate, payer, slice, spent) =
            (self.gate.clone(), self.payer, Arc::clone(&self.slice), self.cpu_used);
        Ok(async move {
            tokio::task::yield_now().await;
            let permit = gate.wait_turn(payer, spent).await;
            *lock(&slice) = Some(ThreadTimeSlice { cpu_clock: CpuClock::now(), _permit: permit });
        })
    }
}
