//! The millisecond that makes guests yield.
//!
//! One thread moves the epoch of every engine while guests run, and sleeps when none do: an idle gateway
//! uses no CPU. It measures nothing; that is [`crate::Metered`]'s part. Where its thread is late, guests yield all the same:
//! [`crate::with_alarm`] sees to that.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::thread::{self, Thread};
use std::time::Duration;

use wasmtime::{Engine, EngineWeak};

/// How long a guest runs before it yields.
const TICK: Duration = Duration::from_millis(1);
/// Ticks without a guest after which the thread sleeps: waking it costs a system call.
const IDLE_TICKS: u32 = 100;

/// The thread's handle. The thread ends when the last handle is gone.
#[derive(Clone, Debug)]
pub struct Ticker {
    state: Arc<State>,
    thread: Thread,
}

/// A guest is running as long as this lives.
#[derive(Debug)]
pub struct Running<'a>(&'a State);

/// Each guest writes to it: nothing else lies beside it in memory.
#[derive(Debug, Default)]
#[repr(align(128))]
struct State {
    running: AtomicUsize,
    asleep: AtomicBool,
}

impl Ticker {
    /// Starts the thread for these engines.
    ///
    /// # Errors
    /// When the system refuses the thread.
    pub fn start(engines: &[&Engine]) -> std::io::Result<Self> {
        let state = Arc::new(State::default());
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

    /// Keeps the ticks coming until the result is dropped.
    #[must_use]
    pub fn run(&self) -> Running<'_> {
        self.state.running.fetch_add(1, SeqCst);
        // To look costs less than to write what other threads then have to read again.
        if self.state.asleep.load(SeqCst) && self.state.asleep.swap(false, SeqCst) {
            self.thread.unpark();
        }
        Running(&self.state)
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, SeqCst);
    }
}

impl State {
    /// Parks until a guest runs. `asleep` is set before `running` is read again, and [`Ticker::run`] does
    /// the two in the other order, so no guest is missed. It wakes up once a second all the same, to see
    /// whether anybody still holds a handle.
    fn sleep(&self) {
        self.asleep.store(true, SeqCst);
        if self.running.load(SeqCst) == 0 {
            thread::park_timeout(Duration::from_secs(1));
        }
        self.asleep.store(false, SeqCst);
    }
}
