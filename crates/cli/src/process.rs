//! The process of a verb that serves: its runtime, logs, signals, watched files and workers.

pub(crate) mod logs;
pub(crate) mod runtime;
pub(crate) mod signal;
pub(crate) mod watch;
pub(crate) mod worker;
