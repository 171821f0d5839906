//! A timer for each thread that makes guests yield when the ticker is late.
//!
//! The ticker's thread sleeps for a millisecond. In a virtual machine whose core was idle meanwhile, it wakes
//! up two to ten milliseconds late in about two of a thousand cases, and a guest on another core keeps
//! running. So each thread that runs guests has a timer that interrupts the thread itself, and the signal
//! handler increments the epoch of the guest's engine. If the ticks are in time, it has nothing to do.
//! Setting the timer takes one system call for all polls within [`signal::DELAY`].

use wasmtime::Engine;

/// Polls a guest of an engine, and makes it yield if it runs for much longer than [`signal::DELAY`].
pub fn with_alarm<T>(engine: &Engine, poll: impl FnOnce() -> T) -> T {
    let _watch = signal::watch(engine);
    poll()
}

#[cfg(target_os = "linux")]
#[expect(
    unsafe_code,
    reason = "no library has a thread's timer; measured, spinning programs had 10 to 15 long polls in 4.5 s"
)]
mod signal {
    use std::cell::Cell;
    use std::mem::MaybeUninit;
    use std::ptr::{self, null, null_mut};
    use std::sync::Once;
    use std::sync::atomic::{Ordering::SeqCst, compiler_fence};

    use super::Engine;

    /// The signal of the timers. It is ignored by default, and harmless if another process sends it.
    const SIGNAL: libc::c_int = libc::SIGURG;
    /// The duration from which on a poll is late, and the delay of the timer, in nanoseconds. Both give the
    /// ticker its chance first.
    const LATE_AFTER_NANOS: u64 = 1_200_000;
    pub(super) const DELAY: u64 = 1_300_000;
    /// The minimum delay until the next check.
    const MIN_RECHECK_NANOS: u64 = 100_000;

    /// The state that a thread's signal handler reads. None of it has a destructor or is initialised lazily,
    /// so that the handler may interrupt the thread at any point.
    struct WatchedThread {
        /// The engine of the guest that is being polled; null if there is none.
        engine: Cell<*const Engine>,
        /// The start of that poll, in nanoseconds.
        since: Cell<u64>,
        /// Whether the timer is set.
        is_set: Cell<bool>,
        timer: Cell<libc::timer_t>,
    }

    thread_local! {
        static WATCHED: WatchedThread = const {
            WatchedThread {
                engine: Cell::new(null()),
                since: Cell::new(0),
                is_set: Cell::new(false),
                timer: Cell::new(null_mut()),
            }
        };
        /// The timer, or `None` if the system has none for this thread.
        static TIMER: Option<ThreadTimer> = ThreadTimer::new();
    }

    /// A timer that sends the signal to its thread.
    struct ThreadTimer(libc::timer_t);

    /// Watches a poll of an engine's guest until it is dropped.
    pub(super) struct WatchGuard {
        previous_engine: *const Engine,
    }

    /// Watches a poll of a guest of this engine. The poll must not outlive the guard.
    pub(super) fn watch(engine: &Engine) -> WatchGuard {
        let timer = TIMER.with(|timer| timer.as_ref().map(|timer| timer.0));
        WATCHED.with(|watched| {
            let before = watched.engine.get();
            let Some(timer) = timer else { return WatchGuard { previous_engine: before } };
            watched.since.set(monotonic_nanos());
            watched.timer.set(timer);
            compiler_fence(SeqCst);
            watched.engine.set(ptr::from_ref(engine));
            if !watched.is_set.replace(true) {
                set_timer(timer, DELAY);
            }
            WatchGuard { previous_engine: before }
        })
    }

    impl Drop for WatchGuard {
        fn drop(&mut self) {
            WATCHED.with(|watched| watched.engine.set(self.previous_engine));
            compiler_fence(SeqCst);
        }
    }

    impl ThreadTimer {
        fn new() -> Option<Self> {
            static HANDLER: Once = Once::new();
            HANDLER.call_once(install_handler);
            // SAFETY: all zeros are a `sigevent`.
            let mut event: libc::sigevent = unsafe { MaybeUninit::zeroed().assume_init() };
            event.sigev_notify = libc::SIGEV_THREAD_ID;
            event.sigev_signo = SIGNAL;
            event.sigev_notify_thread_id = rustix::thread::gettid().as_raw_nonzero().get();
            let mut timer = null_mut();
            // SAFETY: both pointers are valid for the call, and the kernel keeps neither.
            let made = unsafe { libc::timer_create(libc::CLOCK_MONOTONIC, &raw mut event, &raw mut timer) };
            (made == 0).then_some(Self(timer))
        }
    }

    impl Drop for ThreadTimer {
        fn drop(&mut self) {
            // SAFETY: it was made by `timer_create`, and is deleted once.
            unsafe { libc::timer_delete(self.0) };
        }
    }

    /// Installs the signal handler.
    fn install_handler() {
        // SAFETY: all zeros are a `sigaction`: an empty mask, and no flags.
        let mut action: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
        action.sa_sigaction = on_alarm as extern "C" fn(libc::c_int) as usize;
        action.sa_flags = libc::SA_RESTART | libc::SA_ONSTACK;
        // SAFETY: `action` is valid for the call, and its handler does only things that are allowed in a
        // signal handler (see `on_alarm`).
        unsafe { libc::sigaction(SIGNAL, &raw const action, null_mut()) };
    }

    /// Makes the guest of this thread yield if its poll is late. Accesses only the cells of its own thread,
    /// an atomic number and the clock, and sets the timer, all of which is allowed in a signal handler
    /// (POSIX.1-2024, 2.4.3).
    extern "C" fn on_alarm(_signal: libc::c_int) {
        // SAFETY: the location of `errno` belongs to this thread. The value is restored below for the
        // interrupted code.
        let errno = unsafe { *libc::__errno_location() };
        WATCHED.with(|watched| {
            watched.is_set.set(false);
            let engine = watched.engine.get();
            if engine.is_null() {
                return;
            }
            let took = monotonic_nanos().saturating_sub(watched.since.get());
            if took >= LATE_AFTER_NANOS {
                // SAFETY: the engine outlives the guard of the poll, and the guard clears the pointer before
                // it ends, on this thread, which is the interrupted one.
                unsafe { (*engine).increment_epoch() };
            }
            watched.is_set.set(true);
            set_timer(
                watched.timer.get(),
                if took >= LATE_AFTER_NANOS { DELAY } else { (DELAY - took).max(MIN_RECHECK_NANOS) },
            );
        });
        // SAFETY: as above.
        unsafe { *libc::__errno_location() = errno };
    }

    fn monotonic_nanos() -> u64 {
        let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: `now` is valid for the call, which is allowed in a signal handler.
        unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
        now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
    }

    /// Sets a timer to expire once after `nanos` nanoseconds, less than a second.
    fn set_timer(timer: libc::timer_t, nanos: u64) {
        let zero = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let value = libc::timespec { tv_sec: 0, tv_nsec: nanos.cast_signed() };
        let value = libc::itimerspec { it_interval: zero, it_value: value };
        // SAFETY: the timer belongs to this thread, which is still running; the kernel reads `value` during
        // the call.
        unsafe { libc::timer_settime(timer, 0, &raw const value, null_mut()) };
    }
}

#[cfg(not(target_os = "linux"))]
mod signal {
    use super::Engine;

    #[expect(dead_code, reason = "no alarm is set here")]
    pub(super) const DELAY: u64 = 0;

    pub(super) fn watch(_engine: &Engine) {}
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use super::*;

    /// Returns the number of epoch changes while a guest spins.
    fn count_spinning_yields(alarmed: bool) -> u32 {
        let mut config = wasmtime::Config::new();
        config.epoch_interruption(true);
        let engine = Engine::new(&config).unwrap();
        let module = wasmtime::Module::new(
            &engine,
            wat::parse_str(
                r#"(module (func (export "spin") (local i32)
                     (loop $l
                       (local.set 0 (i32.add (local.get 0) (i32.const 1)))
                       (br_if $l (i32.lt_u (local.get 0) (i32.const 200000000))))))"#,
            )
            .unwrap(),
        )
        .unwrap();
        let mut store = wasmtime::Store::new(&engine, 0_u32);
        store.set_epoch_deadline(1);
        store.epoch_deadline_callback(|mut store| {
            *store.data_mut() += 1;
            Ok(wasmtime::UpdateDeadline::Continue(1))
        });
        let instance = wasmtime::Instance::new(&mut store, &module, &[]).unwrap();
        let spin = instance.get_typed_func::<(), ()>(&mut store, "spin").unwrap();
        let mut call = || spin.call(&mut store, ()).unwrap();
        if alarmed {
            with_alarm(&engine, call);
        } else {
            call();
        }
        *store.data()
    }

    #[test]
    fn interrupts_a_guest_without_ticks() {
        assert_eq!(count_spinning_yields(false), 0, "nothing else increments the epoch");
        assert!(count_spinning_yields(true) > 1);
    }

    #[test]
    fn ignores_an_alarm_outside_of_polls() {
        let config = wasmtime::Config::new();
        let engine = Engine::new(&config).unwrap();
        for _ in 0..3 {
            with_alarm(&engine, || ());
            let signal = rustix::process::Signal::URG;
            rustix::process::kill_process(rustix::process::getpid(), signal).unwrap();
        }
    }
}
