//! End-to-end tests of the binary `orfa`, one module per concern. They share a single test binary, because
//! each test binary would link the whole gateway again.

mod admin;
mod aggregate;
mod browser;
mod cli;
mod client;
mod debugging;
mod docs;
mod encoding;
mod filters;
mod folder;
mod graphql;
mod graphql_docs;
mod grpc;
mod identity;
mod lifecycle;
mod long_responses;
mod low_memory;
mod market;
mod query;
mod replicas;
mod script;
mod script_docs;
mod service_manager;
mod strapi;
mod support;
mod traces;
mod types;
mod upgrade;

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

/// Returns the path of the binary under test. The environment variable `ORFA_BINARY` overrides it with the
/// absolute path of another one, such as `target/dist/orfa`.
pub(crate) fn orfa() -> &'static Path {
    static BINARY: LazyLock<PathBuf> = LazyLock::new(|| {
        let named = std::env::var_os("ORFA_BINARY").filter(|path| !path.is_empty());
        named.unwrap_or_else(|| env!("CARGO_BIN_EXE_orfa").into()).into()
    });
    &BINARY
}
