//! Limits that protect the gateway and its clients from each other: load shedding, limits of clients'
//! resources, rate limits, and timers for clients that make no progress.

pub(crate) mod client_limiter;
pub(crate) mod load_shedder;
pub(crate) mod rate_limits;
pub(crate) mod stall_timer;
