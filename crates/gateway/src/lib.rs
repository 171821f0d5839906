//! The gateway: listening, routing, handling and logging of requests.
//!
//! The modules, from the lowest level to the highest. Each depends only on those before it.
//!
//! - `config`: the config and the check of its text.
//! - `limits`: load shedding, limits of clients' resources, rate limits.
//! - `http_semantics`: clients, trusted proxies, validation, cross-origin rules, encodings, problem
//!   documents.
//! - `auth`: authentication and authorisation of callers.
//! - `telemetry`: the record of a completed request, the access log, metrics and traces.
//! - `handlers`: the handlers of routes.
//! - `pipeline`: the routes, the context of a request and its phases.
//! - `server`: listeners, TLS, HTTP/1.1 and HTTP/2, the active config, readiness and drain.
//! - `build`: from a config to its pipeline.
//! - `gateway`: the gateway as a whole: build, serve, reload.
//! - `admin`: the operator's own listener.
//!
//! The phases of a request, in the order that code, docs and hooks follow ([`RequestPhase`]). ARCHITECTURE.md
//! explains them. `pipeline.rs` calls them:
//!
//! 1. **accept** (`server.rs`): a connection, HTTP/1.1 or HTTP/2 on one port, in clear text or over TLS.
//! 2. **route** (`pipeline/routes.rs`): by path.
//! 3. **admit** (`limits/load_shedder.rs`): refuses requests at once that the gateway can't handle in good
//!    time.
//! 4. **validate** (`pipeline.rs`): the head of the request, by the rules of its route; preflights.
//! 5. **identify** (`auth/authn.rs`): by key, token or certificate.
//! 6. **authorise** (`auth/authz.rs`): the rights, the limits and the rate of the caller.
//! 7. **filter** (the crate `filter`): the filters of the route, around its handler.
//! 8. **handle** (`handlers.rs`): the route's handler, one of `query`, `script`, `aggregate`, `graphql` or
//!    `proxy`.
//! 9. **cors** (`http_semantics/cors.rs`): cross-origin headers. An error has become a problem document
//!    before (`http_semantics/problem_details.rs`, the only place that does this).
//! 10. **encode** (`http_semantics/encode.rs`): deduplication and compression, if the client accepts them.
//! 11. **log** (`telemetry/access_log.rs`): one line, written after the last byte of the response is sent.
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
pub use telemetry::escape::EscapingWriter;
pub use telemetry::metrics::observe_heap;
pub use telemetry::phase::{PhaseSequence, RequestPhase};
pub use telemetry::request_record::CompletedRequest;
