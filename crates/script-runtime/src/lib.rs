//! S at run time: services that are written in S, run in worker processes, with state that lasts.
//!
//! The way of a request, a file a step: `route.rs` (what the HTTP request asks for: `ask.rs`) → `deployment.rs` and
//! `generation.rs` (the program in force) → `table.rs` (which handler) → `run.rs` (its turn; by a recipe, `compose.rs`,
//! or its worker; its calls: to the outside by `call.rs`) → `answer.rs` (HTTP again). `line.rs` says when it is not to
//! begin, `workers.rs` are the processes, `frame.rs` what is said to them and by them, `state.rs` is what handlers keep,
//! `scripts.rs` what all routes share. `confine.rs` what a worker's process may not. `problem.rs` holds all that can go
//! wrong on it, `config.rs` what an operator writes, `modules.rs` the files that a script stands on. The JavaScript of a
//! worker stands in `worker/`, the compiler in `crates/script`.
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod answer;
mod ask;
mod call;
mod compose;
mod config;
mod confine;
mod deployment;
mod frame;
mod generation;
mod index;
mod line;
mod location;
mod modules;
mod problem;
mod route;
mod run;
mod scripts;
mod setup;
pub mod state;
mod table;
mod workers;

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;

pub use config::{
    Durability, Engine, EngineConfig, LimitsConfig, ResourcesConfig, ScriptConfig, ScriptOptions,
    ScriptsConfig, StateConfig, WorkersConfig,
};
pub use confine::confined;
pub use modules::{Module, modules};
pub use route::{Deployed, Ground, Script};
pub use scripts::{Scripts, StartError};
pub use workers::{Launcher, NoEngine, PoolStats};
