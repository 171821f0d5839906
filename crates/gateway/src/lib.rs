//! The gateway: listening, routing, handling and logging of requests.
//!
//! The modules, from the lowest level to the highest. Each depends only on those before it.
//!
//! - `config`: the config and the check of its text.
//! - `limits`: load shedding, limits of clients' resources, rate limits.
//! - `http_semantics`: clients, trusted proxies, validation, cross-origin rules, encodings, problem
//!   documents.
//! - `auth`: authentication and authorisation of callers.
//! - `telemetry`: the context of a request, the access log, metrics and traces.
//! - `handlers`: the handlers of routes.
//! - `pipeline`: the routes, and the phases of a request.
//! - `server`: listeners, TLS, HTTP/1.1 and HTTP/2, the active config, readiness and drain.
//! - `build`: from a config to its pipeline.
//! - `gateway`: the gateway as a whole: build, serve, reload.
//! - `admin`: the operator's own listener.
//!
//! The phases of a request, in the order that code, docs and hooks follow. `pipeline.rs` implements them:
//!
//! 1. **accept** (`server.rs`): a connection, HTTP/1.1 or HTTP/2 on one port, in clear text or over TLS.
//! 2. **admit** (`limits/load_shedder.rs`): refuses requests at once that the gateway can't handle in good
//!    time.
//! 3. **identify** (`auth/authn.rs`): by key, token or certificate; then authorisation (`auth/authz.rs`). In
//!    the code this follows routing, since the route's cross-origin rule applies to refusals too.
//! 4. **route** (`pipeline/routes.rs`): by path; then the route's cross-origin rule
//!    (`http_semantics/cors.rs`).
//! 5. **request filters** of the route.
//! 6. **handle** (`handlers.rs`): the route's handler, one of `query`, `script`, `aggregate`, `graphql` or
//!    `proxy`.
//! 7. **response filters** of the route. An error becomes a problem document
//!    (`http_semantics/problem_details.rs`, the only place that does this), and cross-origin headers are
//!    added.
//! 8. **encode** (`http_semantics/encode.rs`): deduplication and compression, if the client accepts them.
//! 9. **log** (`telemetry/access_log.rs`): one line, written after the last byte of the response is sent.
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod admin;
mod auth;
pub mod build;
pub mod config;
mod gateway;
mod handlers;
mod http_semantics;
mod limits;
mod pipeline;
mod server;
mod telemetry;

#[cfg(test)]
mod tests;

pub use admin::AdminListener;
pub use build::BuildError;
pub use config::GatewayConfig;
pub use gateway::Gateway;
pub use gateway::reload::{ReloadShared, ReloadState};
pub use server::drain::{DrainResult, ShutdownMode};
pub use server::listeners::{BindError, Listener, ListenerSet};
pub use server::readiness::{LifecycleState, Readiness};
pub use telemetry::context::CompletedRequest;
pub use telemetry::escape::EscapingWriter;
pub use telemetry::metrics::observe_heap;
