//! The upstream services, and what every way of asking hands down to them.
//!
//! [`Services`] is the only thing in the house that opens a connection to a service. Whoever asks
//! (a query program, a proxied request, later a script or GraphQL) brings a [`Call`]: on whose behalf,
//! and how much time, how many calls and bytes are left. What goes wrong is a [`Problem`]: a code, a
//! status, whose fault; `gateway` alone turns it into HTTP.
//!
//! Read next: `call.rs` and `problem.rs` (the seam), `config.rs` (what an operator writes),
//! `client.rs` (the way of one request), `calls.rs` (many for one request), `flights.rs` (one for many requests), `targets.rs` (where it goes), `hosts.rs` (hosts that are no services),
//! `transport.rs` (what may be swapped for a recording), `fetch.rs` (the gateway's own errands).
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod accept;
pub mod body;
pub mod caching;
pub mod call;
pub mod calls;
pub mod client;
pub mod config;
mod deadline;
mod decompress;
mod error;
pub mod fetch;
pub mod flights;
pub mod headers;
mod hosts;
pub mod http1;
pub mod path;
pub mod problem;
mod receive;
mod retry;
mod service;
pub mod stats;
mod targets;
pub mod trace;
pub mod transport;
pub mod turn;
mod upgrade;
mod work;

#[cfg(test)]
mod fuzz;

pub use body::Body;
pub use call::{Budget, Call, Caller, Made, Outcome, Payer, Report, Rights, quota_key};
pub use calls::{Calls, Coalescer};
pub use client::{CallError, Request, Response, Services};
pub use config::{Bytes, ConfigProblem, Duration, GraphqlServiceConfig, ServiceConfig};
pub use deadline::by;
pub use decompress::{DecoderPool, DecompressError, decompress};
pub use fetch::{Fetch, FetchError};
pub use flights::{Fingerprint, Flights};
pub use headers::network;
pub use hosts::{Hosts, HostsError};
pub use path::{PathError, Target, parse_target};
pub use problem::{AnswerTimeout, Fault, Kind, Overloaded, Problem, Told, Unfinished};
pub use service::Service;
pub use stats::{EndpointStats, ServiceStats};
pub use targets::{Resolve, SystemResolver};
pub use trace::Trace;
pub use transport::{Transport, TransportError};
pub use upgrade::Tunnel;
pub use work::{movable, work_on_text};
