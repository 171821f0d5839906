//! Aggregates against services in this process.

mod bad;
mod declared;
mod joins;
mod rig;
mod shapes;
mod told;
