//! Upstream services and the client that every handler calls them through.
//!
//! [`ServiceSet`] is the only component of the gateway that opens connections to services. Its callers (query
//! programs, proxied requests, scripts, GraphQL) pass a [`RequestCall`], which identifies the caller and
//! carries the remaining time, calls and bytes. Errors implement [`ToProblem`]: an error code, a status and
//! the party at fault. Only `gateway` turns them into HTTP responses.
//!
//! Read next: `call.rs` and `problem.rs` (the interface to the handlers), `config.rs` (the operator's
//! settings), `client.rs` (the path of one request), `calls.rs` (several calls of one request),
//! `in_flight.rs` (request coalescing across requests), `targets.rs` (endpoint selection), `hosts.rs`
//! (external hosts that are not configured services), `transport.rs` (the part that a recording can replace),
//! `fetch.rs` (requests of the gateway itself).
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod accept;
pub mod body;
pub mod caching;
pub mod call;
pub mod calls;
pub mod client;
pub mod config;
pub mod coop;
mod deadline;
mod decompress;
mod error;
pub mod fetch;
pub mod headers;
mod hosts;
pub mod http1;
pub mod http2;
pub mod in_flight;
pub mod path;
pub mod problem;
mod receive;
mod retry;
mod service;
pub mod stats;
mod targets;
pub mod trace;
pub mod transport;
mod upgrade;
mod work;

#[cfg(test)]
mod fuzz;

pub use body::StreamedServiceBody;
pub use call::{
    CallRights, CallerId, CpuAccounting, ReceivedAccounts, ReceivedLimit, ReceivedPermit, RequestBudget,
    RequestCall, RequestReport, UpstreamCallOutcome, UpstreamCallRecord, quota_key,
};
pub use calls::{CallCoalescer, RequestCalls};
pub use client::{CallError, ProgramResponse, ServiceRequest, ServiceSet};
pub use config::{BytesConfig, ConfigProblem, DurationConfig, GraphqlServiceConfig, ServiceConfig};
pub use deadline::timeout_at;
pub use decompress::{DecoderPool, DecompressError, decompress};
pub use fetch::{FetchError, GatewayClient};
pub use headers::client_network;
pub use hosts::{HostsError, PermittedHosts};
pub use in_flight::{InFlightMap, WorkFingerprint};
pub use path::{PathError, RequestTarget, parse_target};
pub use problem::{
    AnswerTimeout, BodyDeadlineExceeded, CallErrorKind, FaultParty, GatewayOverloaded, LoggedErrorCode,
    ToProblem, UnfinishedResponse,
};
pub use service::UpstreamService;
pub use stats::{EndpointStats, ServiceStats};
pub use targets::{NameResolver, SystemResolver};
pub use trace::RequestTrace;
pub use transport::{ChainLimitVerifier, ServiceTransport, TransportError};
pub use upgrade::{RewoundStream, ServiceTunnel};
pub use work::{composition_error, make_movable, process_text};
