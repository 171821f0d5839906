//! The execution of programs: `run.rs` runs one in an instance, and `replay.rs` runs one again with a
//! recording in place of services, clock and random numbers.

mod replay;
mod run;

pub use replay::{ReplayEnd, ReplayError, ReplayResult, convert_to_javascript};
pub(crate) use run::{ExecutionSlot, RunResult, run};
