//! Fair sharing of scarce resources between payers: waiting tasks are served in rounds with one task per
//! payer. `wait_queue.rs` is the queue, and `semaphore.rs` is a semaphore with such a queue.

mod semaphore;
mod wait_queue;

pub use semaphore::{FairPermit, FairSemaphore};
pub use wait_queue::WaitQueue;
