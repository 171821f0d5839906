//! Aggregates against services in this process.

mod bad;
mod declared;
mod documented;
mod joins;
mod rig;
mod shapes;
mod streams;
mod told;
