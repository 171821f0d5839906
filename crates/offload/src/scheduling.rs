//! The scheduling of this process's threads.
//!
//! Since Linux 6.12, a waking thread preempts a running one at once if it has requested a shorter time slice
//! (`PREEMPT_SHORT`). Otherwise it may wait for the end of the other thread's slice, which takes 1 to 3 ms by
//! default. Earlier versions ignore the request.

/// The nice value of background threads.
const BACKGROUND_NICENESS: i32 = 18;
/// The time slice of background threads: the longest that Linux grants.
const BACKGROUND_SLICE_NANOS: u64 = 100_000_000;
/// The time slice of serving threads. Most of their polls are shorter. Linux grants 0.1 ms and more.
const SERVING_SLICE_NANOS: u64 = 300_000;
/// Requests the default time slice.
const DEFAULT_SLICE: u64 = 0;

/// Lets other threads run before this one. If the system refuses, the thread runs at normal priority.
pub(crate) fn enter_background() {
    if !set_scheduling(BACKGROUND_NICENESS, BACKGROUND_SLICE_NANOS) {
        let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), BACKGROUND_NICENESS);
    }
}

/// Lets this thread, which serves requests, run as soon as it has something to do, before threads of this and
/// of other processes that run for longer. Its priority stays the same, so its share of a core does, too. If
/// the system refuses, it waits for the ends of their slices.
pub fn shorten_slice() {
    set_time_slice(SERVING_SLICE_NANOS);
}

/// Gives this thread the default time slice, for programs that inherit it from a serving thread.
pub fn restore_slice() {
    set_time_slice(DEFAULT_SLICE);
}

fn set_time_slice(nanos: u64) {
    if let Ok(niceness) = rustix::process::getpriority_process(Some(rustix::thread::gettid())) {
        set_scheduling(niceness, nanos);
    }
}

/// Sets the nice value and the time slice of this thread, and returns whether the system accepts it.
fn set_scheduling(niceness: i32, slice_nanos: u64) -> bool {
    let mut attributes = libc::sched_attr {
        size: size_of::<libc::sched_attr>() as u32,
        sched_policy: libc::SCHED_OTHER as u32,
        // Keep the scheduling policy that the operator has set.
        sched_flags: libc::SCHED_FLAG_KEEP_POLICY as u64,
        sched_nice: niceness,
        sched_priority: 0,
        sched_runtime: slice_nanos,
        sched_deadline: 0,
        sched_period: 0,
    };
    // SAFETY: sched_setattr(2) reads `size` bytes of the structure, which lives until the call returns,
    // writes to no field but `size`, and has no other effect than to change the scheduling of this thread
    // (0).
    #[expect(
        unsafe_code,
        reason = "rustix has no such call; measured, it takes 1 ms off the p99 beside long jobs and attacks"
    )]
    let refused = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw mut attributes, 0) } != 0;
    !refused
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::{
        BACKGROUND_SLICE_NANOS, SERVING_SLICE_NANOS, enter_background, restore_slice, shorten_slice,
    };

    /// Returns the time slice of this thread in nanoseconds; `None` before Linux 6.12.
    fn time_slice() -> Option<u64> {
        let text = std::fs::read_to_string("/proc/thread-self/sched").ok()?;
        let line = text.lines().find(|line| line.starts_with("se.slice"))?;
        line.rsplit(':').next()?.trim().parse().ok()
    }

    #[test]
    fn serving_threads_have_shorter_slices_than_others() {
        let slices = thread::spawn(|| {
            let before = time_slice();
            shorten_slice();
            let shortened = time_slice();
            // A program that this thread starts inherits it.
            let inherited = thread::spawn(|| {
                let inherited = time_slice();
                restore_slice();
                (inherited, time_slice())
            });
            (before, shortened, inherited.join().unwrap())
        });
        let (Some(before), shortened, (inherited, restored)) = slices.join().unwrap() else { return };
        assert!(before > SERVING_SLICE_NANOS);
        assert_eq!(shortened, Some(SERVING_SLICE_NANOS));
        assert_eq!(inherited, Some(SERVING_SLICE_NANOS));
        assert_eq!(restored, Some(before));
    }

    #[test]
    fn background_threads_have_the_longest_slices() {
        let slices = thread::spawn(|| {
            let before = time_slice();
            enter_background();
            (before, time_slice())
        });
        let (Some(before), after) = slices.join().unwrap() else { return };
        assert!(before < BACKGROUND_SLICE_NANOS);
        assert_eq!(after, Some(BACKGROUND_SLICE_NANOS));
    }
}
