//! Measurement tools for the demo and the benches.
//!
//! The measured gateway is a release build, started as an operator starts it ([`process`]) and called as a
//! client calls it ([`client`], [`call`]), at the distance of the demo through a proxy that delays and counts
//! ([`delay`]). Demo and benches ask the same questions ([`jobs`]). Results are written to `benches/results/`
//! ([`scoreboard`]) with the state of the machine ([`machine`]), and from there to docs/benchmarks.md with
//! its charts ([`page`]).

pub mod call;
pub mod client;
pub mod delay;
pub mod jobs;
pub mod machine;
pub mod open_loop;
pub mod page;
pub mod process;
pub mod programs;
pub mod scoreboard;
pub mod stats;
pub mod upstream;
