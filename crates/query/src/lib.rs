//! Query routes: a client sends a program, which runs beside the services and answers in one request.
//!
//! A request passes through these modules, in this order:
//! `ask.rs` parses the HTTP request, `claim.rs` resolves the program and authorises its use (`owner.rs`,
//! `cached.rs`, `token.rs`, `trust.rs`), `program.rs` checks it and compiles it once for each owner, `run.rs`
//! runs it in an instance, fresh or from the pool in `live.rs`, with the host functions of `host.rs` and the
//! limits, and `answer.rs` builds the HTTP response.
//!
//! `route.rs` is the handler itself, `runtime.rs` the state that all routes share, `stored.rs` the programs
//! that the operator deploys, `route/describe.rs` the route's own description. `problem.rs` defines the
//! errors, `config.rs` the settings, and `limits.rs` the limits that both client and operator set. The
//! protocol and the ABI are specified in docs/query.md and in `query-abi`.
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod answer;
mod ask;
mod blocked;
mod cached;
mod claim;
mod config;
mod environment;
mod fields;
mod futures;
mod guest;
mod host;
mod lanes;
mod limits;
mod live;
mod owner;
mod problem;
mod program;
mod random;
mod record;
mod replay;
mod route;
mod run;
mod runtime;
mod start;
mod stored;
mod token;
mod trust;
mod typescript;

#[cfg(test)]
mod fuzz;

pub use ask::ProgramLanguage;
pub use blocked::{BlockedPrograms, ProgramsConfig};
pub use cached::CacheMode;
pub use config::{AllowedPrograms, CallerLimits, QueryConfig, QueryLimitsConfig, RuntimeConfig};
pub use record::{ANYONE, RecordingError, RunRecording};
pub use replay::{ReplayEnd, ReplayError, ReplayResult, convert_to_javascript};
pub use route::{QueryRoute, QueryRouteContext, RouteDocuments};
pub use runtime::{PoolUsage, QueryRuntime};
pub use sandbox::HeavyGate;
pub use start::RuntimeStartError;
pub use stored::matching_files as stored_files;
pub use trust::{KeyConfig, SigningKeys, TrustConfig, format_public_key, is_low_s, signed_message};
