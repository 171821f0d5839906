//! Upstream services and the client that every handler calls them through.
//!
//! [`ServiceSet`] is the only component of the gateway that opens connections to services. Its callers (query
//! programs, proxied requests, scripts, GraphQL) pass a [`RequestCall`], which identifies the caller and
//! carries the remaining time, calls and bytes. Errors implement [`ToProblem`]: an error code, a status and
//! the party at fault. Only `gateway` turns them into HTTP responses.
//!
//! The modules by level; each uses only the levels above its own:
//!
//! - `problem` (the interface of errors), `config` (the operator's settings), `coop` (cooperative scheduling,
//!   deadlines);
//! - `headers` and `path` (rules for requests), `body` (streamed bodies and their decoding);
//! - `protocol` (HTTP/1.1 and HTTP/2 on the wire), `call` (the context of a client's request: caller, budget,
//!   trace, errors);
//! - `transport` (connections: pools, TLS, upgrades; the part that a recording can replace);
//! - `endpoints` (load balancing, health, name resolution);
//! - `service` (a service from its config; external hosts that are not configured services);
//! - `client` (the path of one request, several calls of one request, coalescing across requests, requests of
//!   the gateway itself).
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod body;
pub mod call;
pub mod client;
pub mod config;
pub mod coop;
mod endpoints;
pub mod headers;
pub mod path;
pub mod problem;
mod protocol;
mod service;
pub mod transport;

pub use body::StreamedServiceBody;
pub use body::decompress::{DecoderPool, DecompressError, decompress};
pub use body::request_body::{RequestBodyError, read_request_body};
pub use call::trace::RequestTrace;
pub use call::work::{composition_error, make_movable, process_text};
pub use call::{
    CallError, CallLimits, CallRights, CallerId, CpuAccounting, ReceivedAccounts, ReceivedLimit,
    ReceivedPermit, RequestBudget, RequestCall, RequestReport, UpstreamCallOutcome, UpstreamCallRecord,
    quota_key,
};
pub use call::{caching, trace};
pub use client::calls::{CallCoalescer, RequestCalls};
pub use client::fetch::{FetchError, GatewayClient};
pub use client::in_flight::{InFlightMap, WorkFingerprint};
pub use client::{ProgramResponse, ServiceRequest, ServiceSet};
pub use client::{calls, fetch, in_flight};
pub use config::{BytesConfig, DurationConfig, GraphqlServiceConfig, ServiceConfig};
pub use coop::timeout_at;
pub use endpoints::{EndpointStats, NameResolver, SystemResolver};
pub use headers::{accept, client_network};
pub use path::{PathError, RequestTarget, parse_target};
pub use problem::{
    AnswerTimeout, CallErrorKind, FaultParty, GatewayOverloaded, ToProblem, UnfinishedResponse,
};
pub use protocol::{http1, http2};
pub use service::stats::{self, ServiceStats};
pub use service::{HostsError, PermittedHosts, UpstreamService};
pub use transport::upgrade::{RewoundStream, ServiceTunnel};
pub use transport::{ChainLimitVerifier, ServiceTransport, TransportError};
