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
use crate::scheduling::enter_background;

/// The reserved stack size of each thread; pages that are never touched use no memory.
const STACK_BYTES: usize = 16 << 20;

/// The work of a job. Returns a closure that delivers the result to the caller.
pub(crate) type JobFunction = Box<dyn FnOnce(&JobContext) -> ResultDelivery + Send>;
/// Delivers a result to the caller, or drops it if it is not needed any more.
pub(crate) type ResultDelivery = Box<dyn FnOnce() + Send>;

/// A job for a thread.
pub(crate) struct ThreadAssignment {
    pub(crate) context: Arc<JobContext>,
    pub(crate) work: JobFunction,
    /// Completes, by a value or by being dropped, when the job is over.
    pub(crate) finished: oneshot::Sender<()>,
}

/// Starts a thread, which ends when the sender is dropped.
pub(crate) fn start_worker(number: usize) -> io::Result<Sender<ThreadAssignment>> {
    let (sender, assignments) = channel();
    let thread = thread::Builder::new().name(format!("offload-{number}")).stack_size(STACK_BYTES);
    thread.spawn(move || run_jobs(&assignments))?;
    Ok(sender)
}

fn run_jobs(assignments: &Receiver<ThreadAssignment>) {
    enter_background();
    while let Ok(ThreadAssignment { context, work, finished }) = assignments.recv() {
        let clock = CpuClock::now();
        let delivery = work(&context);
        context.set_worker_cpu(clock.elapsed());
        delivery();
        let _ = finished.send(());
    }
}
