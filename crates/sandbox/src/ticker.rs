//! Advances the epoch every millisecond, which makes guests yield.
//!
//! A single thread increments the epoch of every engine while guests run. It sleeps while none do, so that an
//! idle gateway uses no CPU. CPU time is measured by [`crate::MeteredFuture`]. If the thread is late,
//! [`crate::with_alarm`] makes guests yield.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::thread::{self, Thread};
use std::time::Duration;

use wasmtime::{Engine, EngineWeak};

/// The time that a guest runs before it yields.
const TICK: Duration = Duration::from_millis(1);
/// The number of ticks without guests after which the thread sleeps, since waking it costs a system call.
const IDLE_TICKS: u32 = 100;

/// A handle to the ticker's thread. The thread ends after the last handle is dropped.
#[derive(Clone, Debug)]
pub struct EpochTicker {
    state: Arc<TickerState>,
    thread: Thread,
}

/// Keeps the ticker running while a guest runs.
#[derive(Debug)]
pub struct RunningGuest<'a>(&'a TickerState);

/// Aligned to avoid false sharing: each guest writes to it.
#[derive(Debug, Default)]
#[repr(align(128))]
struct TickerState {
    running: AtomicUsize,
    asleep: AtomicBool,
}

impl EpochTicker {
    /// Starts the thread for these engines.
    ///
    /// # Errors
    /// If the system refuses the thread.
    pub fn start(engines: &[&Engine]) -> std::io::Result<Self> {
        let state = Arc::new(TickerState::default());
        let weak = Arc::downgrade(&state);
        let engines: Vec<EngineWeak> = engines.iter().map(|engine| engine.weak()).collect();
        let handle = thread::Builder::new().name("ticker".into()).spawn(move || {
            let mut idle = 0;
            while let Some(state) = weak.upgrade() {
                idle = if state.running.load(SeqCst) == 0 { idle + 1 } else { 0 };
                if idle > IDLE_TICKS {
                    state.sleep();
                    idle = 0;
                }
                drop(state);
                thread::sleep(TICK);
                engines.iter().filter_map(EngineWeak::upgrade).for_each(|engine| engine.increment_epoch());
            }
        })?;
        Ok(Self { state, thread: handle.thread().clone() })
    }

    /// Keeps the ticker running until the result is dropped.
    #[must_use]
    pub fn track_guest(&self) -> RunningGuest<'_> {
        self.state.running.fetch_add(1, SeqCst);
        // Load before swapping, since a write invalidates the cache line in other cores.
        if self.state.asleep.load(SeqCst) && self.state.asleep.swap(false, SeqCst) {
            self.thread.unpark();
        }
        RunningGuest(&self.state)
    }
}

impl Drop for RunningGuest<'_> {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, SeqCst);
    }
}

impl TickerState {
    /// Parks until a guest runs. Sets `asleep` before reading `running` again, while
    /// [`EpochTicker::track_guest`] accesses them in the opposite order, so that no guest is missed. Wakes up
    /// once a second anyway, to check whether any handle is left.
    fn sleep(&self) {
        self.asleep.store(true, SeqCst);
        if self.running.load(SeqCst) == 0 {
            thread::park_timeout(Duration::from_secs(1));
        }
        self.asleep.store(false, SeqCst);
    }
}
