//! What the demo and the benches measure with.
//!
//! The gateway that is measured is that of a release, started as an operator starts it
//! ([`process`]), and asked as a client asks it ([`client`], [`call`]), at the distance of the demo through a proxy
//! that delays and counts ([`delay`]). Both ask the same questions ([`jobs`]). What comes out goes to `benches/results/` ([`scoreboard`]) with
//! what the machine was like ([`machine`]), and from there to docs/benchmarks.md with its pictures ([`page`], [`svg`]).

pub mod call;
pub mod client;
pub mod delay;
pub mod jobs;
pub mod machine;
pub mod open;
pub mod page;
pub mod process;
pub mod programs;
pub mod scoreboard;
pub mod stats;
pub mod svg;
pub mod upstream;
