//! Query routes: a client sends a program, which runs beside the services and answers in one request.
//!
//! The modules, from the lowest level to the highest; each uses only those before it:
//!
//! - `typescript` strips types, `config` defines the settings, `limits` the limits that both client and
//!   operator set, and `problem` the errors.
//! - `program` resolves the program of a request and authorises its use.
//! - `record` writes and follows recordings of runs.
//! - `host` is the state of a running program, with the host functions.
//! - `runtime` is shared by all routes: it compiles programs, once for each owner, and keeps engines, cached
//!   code and warm instances.
//! - `exec` runs a program in an instance, or replays a recording.
//! - `protocol` reads HTTP requests and builds the responses.
//! - `route` is the handler, with the stored programs and the route's own description.
//!
//! A request passes through `protocol` (parsed), `program` (resolved), `runtime` (compiled or cached), `exec`
//! (run) and `protocol` (answered). The protocol and the ABI are specified in docs/query.md and in
//! `query-abi`.
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod config;
mod exec;
mod host;
mod limits;
mod problem;
mod program;
mod protocol;
mod record;
mod route;
mod runtime;
mod typescript;

#[cfg(test)]
mod tests;

pub use config::{ANYONE, AllowedPrograms, CacheMode, QueryConfig, QueryLimitsConfig, RuntimeConfig};
pub use exec::{ReplayEnd, ReplayError, ReplayResult, convert_to_javascript};
pub use program::{
    BlockedPrograms, KeyConfig, ProgramLanguage, ProgramsConfig, SigningKeys, TrustConfig, format_public_key,
    is_low_s, signed_message,
};
pub use record::{RecordingError, RunRecording};
pub use route::{QueryRoute, QueryRouteContext, RouteDocuments, matching_files as stored_files};
pub use runtime::{PoolUsage, QueryRuntime, RuntimeStartError};
pub use sandbox::HeavyGate;
