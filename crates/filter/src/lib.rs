//! Proxy-Wasm: modules that see, change and answer requests, on any route.
//!
//! [`Filters`] loads modules, once per content, and is shared by all configs of a process. A route has a
//! [`Chain`] of them; [`Chain::around`] is the whole of what the gateway has to call. A module, with what it
//! was configured with, is a [`Plugin`]. Modules are the operator's own code: contained against faults, with
//! limits on time and memory, and replaced when they trap.
//!
//! The words are those of the specification (github.com/proxy-wasm/spec). A *virtual machine* has a few
//! instances of one module, each in a *slot*, at most one a thread; a plugin is a *root context* in each of
//! them, an exchange a *stream context* in one.
//!
//! A callback runs in a fiber, under the slot's lock, and yields at the engine's tick as a query does. What takes time
//! outside of the module (a paused stream, a call to a service) is a future or a task of its own, without the lock.
//!
//! Read next: `exchange.rs` (the way of one request), `stream.rs` (what a context is at the moment),
//! `body.rs` (bodies through callbacks), `vm.rs` and `slot.rs` (where instances live and die), `entry.rs` (how callbacks
//! get into them), `callbacks.rs` and `instance.rs` (callbacks), `host.rs` (host functions).
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod abi;
mod body;
mod callbacks;
mod chain;
mod clock;
mod config;
mod entry;
mod exchange;
mod exports;
mod facts;
mod filters;
mod host;
mod instance;
mod message;
mod messages;
mod metrics;
mod module;
mod observe;
mod plugin;
mod problem;
mod refused;
mod restarts;
mod shared;
mod shim;
mod slot;
mod spelling;
mod stats;
mod stream;
mod vm;

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;

pub use chain::Chain;
pub use config::{Dialect, FilterConfig, FilterLimits, OnRefusal, OnTrap};
pub use facts::{Certificate, Facts, Tls};
pub use filters::{Filters, StartError};
pub use metrics::{Metric, Value};
pub use observe::{Event, Observe};
pub use problem::Failed;
pub use refused::{Reason, Refused};
pub use stats::FilterStats;
