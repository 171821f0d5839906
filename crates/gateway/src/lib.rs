//! The gateway: what listens, routes, answers and logs.
//!
//! The life of a request, which code, docs and hooks keep the order of:
//!
//! 1. **accept** (`server.rs`): a connection, HTTP/1.1 or HTTP/2 on one port, in clear text or over TLS.
//! 2. **admit** (`shed.rs`): what the gateway can't do in good time is refused at once.
//! 3. **identify** (`identity.rs`): by key, token or certificate; then what the caller may do (`rights.rs`).
//!    In the code this comes after the route, whose cross-origin rule holds for refusals too.
//! 4. **route** (`routes.rs`): by path; then the route's cross-origin rule (`cors.rs`).
//! 5. **request filters** join here.
//! 6. **handle** (`way.rs`): the route's way of answering, today `query`, `script`, `aggregate`,
//!    `graphql` or `proxy`.
//! 7. **response filters** join here. What is there today: an error becomes a problem document
//!    (`respond.rs`, the only place that does it), and cross-origin headers.
//! 8. **encode** (`encode.rs`): deduplication and compression, as the client takes them.
//! 9. **log** (`access.rs`): one line, written once the last byte of the answer is gone.
//!
//! `life.rs` is that list as code, `build.rs` makes it of a config. The config stands in `config.rs`, the operator's own listener in
//! `admin.rs`.
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

pub use access::Seen;
pub use admin::Admin;
pub use build::BuildError;
pub use config::{Config, Mistake};
pub use drain::{Drained, Stop};
pub use escape::EscapingWriter;
pub use gateway::Gateway;
pub use listen::{BindError, Listener, Listeners};
pub use metrics::observe_heap;
pub use readiness::{Readiness, State};
pub use reload::{ReloadState, Reloads};
