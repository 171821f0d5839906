//! One place for work that clients cause: compiling, planning, type stripping, and whatever else takes a thread for
//! longer than a moment.
//!
//! [`OffloadPool::run`] runs a job on a thread of low priority. Jobs wait in a bounded queue (`queue.rs`), are charged to
//! their payer before they start (`quota.rs`; [`QuotaKey`] names the payer), have a deadline, and leave the queue when
//! their caller's future is dropped. A job that can look stops when [`JobContext::is_cancelled`]. A request that does long
//! work between others moves there for a while ([`leave`]). What should have gone
//! there and did not, [`polls`] shows: it counts the polls that keep a serving thread for too long.
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod clock;
mod job;
mod key;
mod movable;
pub mod polls;
mod pool;
mod queue;
mod quota;
mod stats;
mod worker;

pub use clock::CpuClock;
pub use job::{JobContext, JobRequest, OffloadError};
pub use key::QuotaKey;
pub use movable::{Movable, leave};
pub use pool::{OffloadConfig, OffloadPool, SHORT_TEXT};
pub use quota::QuotaBook;
pub use stats::{JobKindStats, OffloadStats};
