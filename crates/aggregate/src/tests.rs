//! Tests of aggregates against in-process services.

mod bad;
mod caching;
mod declared;
mod documented;
mod hostile;
mod joins;
mod moves;
pub(crate) mod rig;
mod shapes;
mod streams;
mod told;
