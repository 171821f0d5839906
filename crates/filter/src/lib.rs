//! Proxy-Wasm filters: modules that inspect, change and answer requests, on any route.
//!
//! [`FilterRuntime`] loads each module once per content and is shared by all configs of a process. A route
//! has a [`FilterChain`] of filters; [`FilterChain::run_exchange`] is the only call that the gateway has to
//! make for a request. A module together with its configuration is a `FilterPlugin`. Modules are the
//! operator's own code: faults are contained, time and memory are limited, and instances that trap are
//! replaced.
//!
//! The terms are those of the specification (github.com/proxy-wasm/spec). A *virtual machine* has a few
//! instances of one module, each in a *slot*, at most one per thread. A plugin is a *root context* in each
//! instance, and an exchange is a *stream context* in one of them.
//!
//! A callback runs in a fiber, under the slot's lock, and yields at the engine's tick, as a query does. Work
//! that takes time outside the module (a paused stream, a call to a service) is a separate future or task and
//! does not hold the lock.
//!
//! Read next: `exchange.rs` (the path of one request), `stream.rs` (the current state of a context),
//! `body.rs` (bodies through callbacks), `vm.rs` and `slot.rs` (the life cycle of instances), `entry.rs` (how
//! callbacks enter them), `callbacks.rs` and `instance.rs` (callbacks), `host.rs` (host functions).
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

pub use chain::FilterChain;
pub use config::{FilterConfig, FilterLimits, HostDialect, OnRefusal, OnTrap};
pub use facts::{CertificateInfo, ExchangeInfo, TlsInfo};
pub use filters::{FilterRuntime, FilterStartError};
pub use metrics::{FilterMetric, MetricValue};
pub use observe::{FilterEvent, FilterObserver};
pub use problem::FilterFailure;
pub use refused::{FilterRefusalReason, RefusedFilter};
pub use stats::FilterStats;
