//! An adversarial suite: attacks that a hostile client can send to a gateway, and how each of them must end.
//!
//! An [`AttackCase`] is an attack (a function of a running [`AttackTarget`]), the endings that the
//! documentation allows for it, and the [bounds](BoundRow) of the memory that it may make the gateway hold.
//! The cases are in `cases/`, one file per area. The binary plays all of them against a debug build and
//! checks endings and counters, without timing anything. `make hostile` plays them against a release build
//! beside a light load, with the same functions.

mod bounds;
mod case;
mod cases;
mod counters;
mod ending;
mod http2;
mod measure;
mod run;
mod target;
mod wire;

pub use bounds::{BOUNDS, BoundRow, SCOPES, bounds_table};
pub use case::{AttackCase, AttackFunction};
pub use cases::all_cases;
pub use counters::ReturningCounters;
pub use ending::AttackEnding;
pub use measure::{CaseMeasurement, measure};
pub use run::{AttackVerdict, SuiteReport, play_all, play_case};
pub use target::AttackTarget;
