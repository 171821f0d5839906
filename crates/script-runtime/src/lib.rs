//! The runtime of S: services that are written in S, run in worker processes, with durable state.
//!
//! A request passes through these files in order: `route.rs` (the HTTP request, parsed by
//! `script_request.rs`) → `deployment.rs` and `generation.rs` (the active program) → `table.rs` (selects the
//! handler) → `run.rs` (waits for its turn; executes a recipe in `inline_evaluation.rs` or enters a worker;
//! makes calls, the external ones through `outbound_call.rs`) → `handler_reply.rs` (the HTTP response).
//! `worker_queue.rs` sheds load, `workers.rs` manages the worker processes, `frame.rs` implements the worker
//! protocol, `state.rs` holds the handlers' state, and `scripts.rs` contains everything that all routes
//! share. `worker_sandbox.rs` sandboxes worker processes. `problem.rs` defines the errors, `config.rs` the
//! operator's settings, and `modules.rs` finds the modules that a script imports. Long work on texts is done
//! in the pool of `offload`, see `work.rs`. The JavaScript of a worker is in `worker/`, the compiler in
//! `crates/script`.
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod config;
mod deployment;
mod frame;
mod generation;
mod handler_reply;
mod index;
mod inline_evaluation;
mod location;
mod modules;
mod outbound_call;
mod problem;
mod route;
mod run;
mod script_request;
mod scripts;
mod setup;
pub mod state;
mod table;
mod work;
mod worker_queue;
mod worker_sandbox;
mod workers;

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;

pub use config::{
    EngineConfig, ResourcesConfig, ScriptConfig, ScriptLimitsConfig, ScriptOptions, ScriptsConfig,
    StateConfig, StateDurability, WorkerEngine, WorkersConfig,
};
pub use modules::{ScriptModule, imported_modules};
pub use route::{DeployedNames, ScriptRoute, ScriptRouteContext};
pub use scripts::{ScriptRuntime, ScriptStartError};
pub use worker_sandbox::exec_sandboxed;
pub use workers::{NoEngine, PoolStats, WorkerLauncher};
