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

fn work(assignments: &Receiver<Assignment>) {
    // Where the system lets no thread be nice, it works as others do.
    let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), NICENESS);
    while let Ok(Assignment { context, work, finished }) = assignments.recv() {
        let clock = CpuClock::now();
        let delivery = work(&context);
        context.set_cpu(clock.elapsed());
        delivery();
        let _ = finished.send(());
    }
}
