//! Thread pool for CPU-heavy work that clients cause: compiling, query planning, type stripping, and other
//! work that occupies a thread for long.
//!
//! [`OffloadPool::run`] runs a job on a low-priority thread. Jobs wait in a bounded queue (`pool/queue.rs`),
//! are charged to their payer before they start (`quota.rs`, with a [`QuotaKey`] for the payer), have a
//! deadline, and leave the queue when their caller's future is dropped. A job can check for cancellation by
//! [`JobContext::is_cancelled`]. A request with long work between short steps moves to the pool for a while
//! ([`move_to_pool`]), and so does a request with much short work in one poll ([`move_if_long`], with the
//! estimates in [`work`]). Work that should have been offloaded but was not is visible in [`polls`], which
//! counts the polls that block a serving thread for too long. [`WaitQueue`] and [`FairSemaphore`] share what
//! is scarce between payers.
//!
//! The modules, from low to high: `clock` and `scheduling` (threads), `work` and `quota`; `fairness`, `job`
//! and `polls`; `pool`; `movable`.
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod clock;
mod fairness;
mod job;
mod movable;
pub mod polls;
mod pool;
mod quota;
mod scheduling;
pub mod work;

pub use clock::CpuClock;
pub use fairness::{FairPermit, FairSemaphore, WaitQueue};
pub use job::{JobContext, JobRequest, OffloadError};
pub use movable::{MovableFuture, move_if_long, move_to_pool};
pub use pool::{JobKindStats, OffloadConfig, OffloadPool, OffloadStats};
pub use quota::{QuotaBook, QuotaKey, ShareKey};
pub use scheduling::{restore_slice, shorten_slice};
pub use work::SHORT_TEXT;
