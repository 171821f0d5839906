//! The runtime of S: services that are written in S, run in worker processes, with durable state.
//!
//! A request passes through these modules in order: `route` (the HTTP request) → `deployment` (the active
//! program and the handler of the path) → `run` (its turn, a worker or a recipe, its calls) → `http_message`
//! (the HTTP response). The modules, from low to high:
//!
//! - `config`: the operator's settings; `work`: tasks, and long work in the pool of `offload`
//! - `frame`: the worker protocol
//! - `http_message`: requests to handlers and their responses; `state`: the handlers' state; `workers`: the
//!   worker processes
//! - `problem`: the errors
//! - `deployment`: deployed services and their active programs
//! - `runtime`: everything that all services share
//! - `run`: the execution of a handler
//! - `route`: the routes of services, and load shedding
//!
//! A module uses lower ones only. The JavaScript of a worker is in `worker/`, the compiler in
//! `crates/script`.
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod config;
mod deployment;
mod frame;
mod http_message;
mod problem;
mod route;
mod run;
mod runtime;
pub mod state;
mod work;
mod workers;

#[cfg(test)]
mod tests;

pub use config::{
    EngineConfig, ResourcesConfig, ScriptConfig, ScriptLimitsConfig, ScriptOptions, ScriptsConfig,
    StateConfig, StateDurability, WorkerEngine, WorkersConfig,
};
pub use deployment::{ScriptModule, imported_modules};
pub use route::{DeployedNames, ScriptRoute, ScriptRouteContext};
pub use runtime::{ScriptRuntime, ScriptStartError};
pub use workers::{NoEngine, PoolStats, WorkerLauncher, exec_sandboxed};
