//! The threads of a pool.
//!
//! Their priority is the system's lowest but one step, so that a thread that answers requests gets a core as soon as it
//! asks for one. For the same reason they take no lock that others take: a thread of low priority that is preempted with
//! a lock in its hands keeps those waiting that have a high one. What is to be done comes through a channel, and that it
//! is done goes through another.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use tokio::sync::oneshot;

use crate::clock::CpuClock;
use crate::job::JobContext;

/// How much nicer than others these threads are.
const NICENESS: i32 = 18;
/// How long these threads ask to run at a time: the longest that Linux grants. From 6.12 on a thread that asks for less, as all do
/// that ask for nothing, goes first when it wakes, and does not wait for the end of a turn (`PREEMPT_SHORT`); earlier ones
/// ignore it.
const SLICE_NANOS: u64 = 100_000_000;
/// Reserved for each thread's stack; pages that nothing reaches are never there.
const STACK_BYTES: usize = 16 << 20;

/// A job, which leaves what gives its result to the caller.
pub(crate) type Work = Box<dyn FnOnce(&JobContext) -> Delivery + Send>;
/// Gives a result to the caller, or drops it here where nobody wants it any more.
pub(crate) type Delivery = Box<dyn FnOnce() + Send>;

/// A job for a thread.
pub(crate) struct Assignment {
    pub(crate) context: Arc<JobContext>,
    pub(crate) work: Work,
    /// Told, by a value or by being dropped, when the job is over.
    pub(crate) finished: oneshot::Sender<()>,
}

/// Starts a thread, which ends when the sender is gone.
pub(crate) fn start(number: usize) -> io::Result<Sender<Assignment>> {
    let (sender, assignments) = channel();
    let thread = thread::Builder::new().name(format!("offload-{number}")).stack_size(STACK_BYTES);
    thread.spawn(move || work(&assignments))?;
    Ok(sender)
}

/// Has this thread give way to others. Where the system doesn't let it, it works as they do.
fn give_way() {
    let mut attributes = libc::sched_attr {
        size: size_of::<libc::sched_attr>() as u32,
        sched_policy: libc::SCHED_OTHER as u32,
        // The operator's choice of a policy stays.
        sched_flags: libc::SCHED_FLAG_KEEP_POLICY as u64,
        sched_nice: NICENESS,
        sched_priority: 0,
        sched_runtime: SLICE_NANOS,
        sched_deadline: 0,
        sched_period: 0,
    };
    // SAFETY: sched_setattr(2) reads `size` bytes of the structure, which lives until it returns, writes none but `size` itself,
    // and changes nothing else but how this thread (0) is scheduled.
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
