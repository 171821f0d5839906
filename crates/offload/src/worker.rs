//! The threads of a pool.
//!
//! Their priority is one step above the system's lowest, so that a thread that serves requests gets a core as
//! soon as it needs one. For the same reason they take no lock shared with other threads: a low-priority
//! thread that is preempted while it holds a lock blocks high-priority threads (priority inversion). Work
//! arrives through a channel, and its completion is reported through another.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use tokio::sync::oneshot;

use crate::clock::CpuClock;
use crate::job::JobContext;

/// The nice value of these threads.
const NICENESS: i32 = 18;
/// The requested time slice of these threads: the longest that Linux grants. Since Linux 6.12, a waking
/// thread with a shorter slice, such as the default, preempts them without waiting for the end of the slice
/// (`PREEMPT_SHORT`). Earlier versions ignore the value.
const SLICE_NANOS: u64 = 100_000_000;
/// The reserved stack size of each thread; pages that are never touched use no memory.
const STACK_BYTES: usize = 16 << 20;

/// The work of a job. Returns a closure that delivers the result to the caller.
pub(crate) type Work = Box<dyn FnOnce(&JobContext) -> Delivery + Send>;
/// Delivers a result to the caller, or drops it if it is not needed any more.
pub(crate) type Delivery = Box<dyn FnOnce() + Send>;

/// A job for a thread.
pub(crate) struct Assignment {
    pub(crate) context: Arc<JobContext>,
    pub(crate) work: Work,
    /// Completes, by a value or by being dropped, when the job is over.
    pub(crate) finished: oneshot::Sender<()>,
}

/// Starts a thread, which ends when the sender is dropped.
pub(crate) fn start(number: usize) -> io::Result<Sender<Assignment>> {
    let (sender, assignments) = channel();
    let thread = thread::Builder::new().name(format!("offload-{number}")).stack_size(STACK_BYTES);
    thread.spawn(move || work(&assignments))?;
    Ok(sender)
}

/// Lowers the priority of this thread. If the system refuses, the thread runs at normal priority.
fn give_way() {
    let mut attributes = libc::sched_attr {
        size: size_of::<libc::sched_attr>() as u32,
        sched_policy: libc::SCHED_OTHER as u32,
        // Keep the scheduling policy that the operator has set.
        sched_flags: libc::SCHED_FLAG_KEEP_POLICY as u64,
        sched_nice: NICENESS,
        sched_priority: 0,
        sched_runtime: SLICE_NANOS,
        sched_deadline: 0,
        sched_period: 0,
    };
    // SAFETY: sched_setattr(2) reads `size` bytes of the structure, which lives until the call returns,
    // writes to no field but `size`, and has no other effect than to change the scheduling of this thread
    // (0).
    #[expect(
        unsafe_code,
        reason = "rustix has no such call; measured, it takes 1 ms off the p99 that long jobs add"
    )]
    let refused = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw mut attributes, 0) } != 0;
    if refused {
        let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), NICENESS);
    }
}

fn work(assignments: &Receiver<Assignment>) {
    give_way();
    while let Ok(Assignment { context, work, finished }) = assignments.recv() {
        let clock = CpuClock::now();
        let delivery = work(&context);
        context.set_cpu(clock.elapsed());
        delivery();
        let _ = finished.send(());
    }
}
