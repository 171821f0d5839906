//! End to end: the binary `orfa` as its users run it. A module a concern; one test binary for all, since
//! each would be linked against the whole house again.

mod admin;
mod aggregate;
mod browser;
mod cli;
mod client;
mod debugging;
mod docs;
mod encoding;
mod filters;
mod graphql;
mod graphql_docs;
mod grpc;
mod identity;
mod life;
mod manager;
mod market;
mod query;
mod room;
mod script;
mod script_docs;
mod seeing;
mod strapi;
mod support;
mod types;
mod upgrade;

use std::path::Path;

/// The binary under test.
pub(crate) fn orfa() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_orfa"))
}
