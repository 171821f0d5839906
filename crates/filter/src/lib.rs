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
//! The modules by level. Each uses only those above it:
//!
//! - `sync`, `abi` (numbers and names of the ABI), `config`, `error`
//! - `telemetry` (metrics, counters, events) and `exchange` (the heads and the shared data of an exchange)
//! - `context` (plugins, root contexts, stream contexts and the events for them)
//! - `shared` (data and queues that modules share)
//! - `host` (host functions and the host data of an instance)
//! - `vm` (virtual machines, their instances, and callbacks)
//! - `chain` (the filters of a route, and the path of requests and bodies through them)
//!
//! Read next: `chain/exchange_run.rs` (the path of one request), `context/stream.rs` (the current state of a
//! context), `chain/body.rs` (bodies through callbacks), `vm.rs` and `vm/slot.rs` (the life cycle of
//! instances), `vm/entry.rs` (how callbacks enter them), `vm/callbacks.rs` and `vm/instance.rs` (callbacks),
//! `host.rs` (host functions).
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod abi;
mod chain;
mod config;
mod context;
mod error;
mod exchange;
mod host;
mod shared;
mod sync;
mod telemetry;
mod vm;

#[cfg(test)]
mod tests;

pub use chain::FilterChain;
pub use config::{FilterConfig, FilterLimits, HostDialect, OnRefusal, OnTrap};
pub use error::{FilterFailure, FilterRefusalReason, RefusedFilter};
pub use exchange::{CertificateInfo, ExchangeInfo, TlsInfo};
pub use telemetry::{FilterEvent, FilterMetric, FilterObserver, FilterStats, MetricValue};
pub use vm::{FilterRuntime, FilterStartError};
