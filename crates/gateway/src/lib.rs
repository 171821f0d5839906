//! The gateway: listening, routing, handling and logging of requests.
//!
//! The phases of a request, in the order that code, docs and hooks follow:
//!
//! 1. **accept** (`server.rs`): a connection, HTTP/1.1 or HTTP/2 on one port, in clear text or over TLS.
//! 2. **admit** (`shed.rs`): refuses requests at once that the gateway can't handle in good time.
//! 3. **identify** (`identity.rs`): by key, token or certificate; then authorisation (`rights.rs`).
//!    In the code this follows routing, since the route's cross-origin rule applies to refusals too.
//! 4. **route** (`routes.rs`): by path; then the route's cross-origin rule (`cors.rs`).
//! 5. **request filters** of the route.
//! 6. **handle** (`way.rs`): the route's handler, one of `query`, `script`, `aggregate`, `graphql` or
//!    `proxy`.
//! 7. **response filters** of the route. An error becomes a problem document (`respond.rs`, the only place
//!    that does this), and cross-origin headers are added.
//! 8. **encode** (`encode.rs`): deduplication and compression, if the client accepts them.
//! 9. **log** (`access.rs`): one line, written after the last byte of the response is sent.
//!
//! `life.rs` implements this list and `build.rs` builds it from a config. `config.rs` defines the config,
//! `admin.rs` the operator's own listener.
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod access;
mod admin;
pub mod aggregates;
mod build;
mod catalogue;
mod client;
pub mod config;
mod conform;
mod cors;
pub mod documents;
mod drain;
mod encode;
mod escape;
mod gateway;
pub mod graphqls;
mod hosts;
mod identity;
mod life;
mod listen;
mod metrics;
mod proxy;
mod readiness;
mod refusal;
mod reload;
mod respond;
mod rights;
mod routes;
pub mod scripts;
mod server;
mod shed;
mod trace;
mod trusted;
mod unsent;
mod way;

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;

pub use access::CompletedRequest;
pub use admin::AdminListener;
pub use build::BuildError;
pub use config::{ConfigMistake, GatewayConfig};
pub use drain::{DrainResult, ShutdownMode};
pub use escape::EscapingWriter;
pub use gateway::Gateway;
pub use listen::{BindError, Listener, ListenerSet};
pub use metrics::observe_heap;
pub use readiness::{LifecycleState, Readiness};
pub use reload::{ReloadShared, ReloadState};
