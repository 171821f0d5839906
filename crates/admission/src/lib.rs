//! Admission control: an overloaded queue refuses excess requests at once, so that the requests it admits are
//! still answered in good time.
//!
//! The gateway's load shedder, the run queue of guests and the queue of a script's workers implement
//! [`Admission`]. They differ in their signal (the delay of a probe, an estimated wait, a length) and in the
//! rule by which they refuse (a rate, a short queue, a maximum length). They share the following:
//!
//! - An overload begins by CoDel's rule, so that bursts pass: [`StandingQueue`].
//! - A wait counts only as far as this process caused it: [`ProcessTimes`] for a wait that is measured,
//!   [`OwnShare`] for one that is estimated.
//! - They follow the same laws, which the feature `test-util` checks on a simulated machine (`laws.rs`).
//!
//! The modules, from low to high: `process_times`, `own_share` and `standing_queue`; `laws`.
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

#[cfg(any(test, feature = "test-util"))]
pub mod laws;
mod own_share;
mod process_times;
mod standing_queue;

use std::error::Error;
use std::time::Instant;

pub use own_share::OwnShare;
pub use process_times::{ClockReading, ProcessTimes, process_cpu_time};
pub use standing_queue::StandingQueue;

/// A queue that admits or refuses requests. `R` is the information about a request or about the load that the
/// decision depends on.
pub trait Admission<R> {
    /// The place of an admitted request, which is free again once it is dropped.
    type Permit;
    /// The refusal of a request.
    type Error: Error;

    /// Admits a request that arrives at this time, or refuses it. Decides at once. Implementations never read
    /// the time themselves, so that tests can simulate it.
    ///
    /// # Errors
    /// Fails if the queue is overloaded.
    fn try_acquire(&self, now: Instant, request: R) -> Result<Self::Permit, Self::Error>;
}
