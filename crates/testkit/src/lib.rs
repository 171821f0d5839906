//! Misbehaving services, a gateway builder and a small HTTP client, for tests and benches only.
//!
//! This crate depends on no other crate of the workspace: the gateway is driven as its users drive it, by its
//! binary, its config and its ports. Errors panic, since they end a test.
#![expect(clippy::panic, reason = "a test that can't be set up has failed")]

pub mod gateway;
pub mod http;
pub mod misbehaving_upstream;

pub use gateway::GatewayProcess;

/// The timeout of every wait: far longer than any of them takes, so that a test that waits for something that
/// never happens fails instead of blocking the others.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(60);

/// Waits for an event that has to happen.
///
/// # Panics
/// Panics on a timeout.
pub async fn with_timeout<T>(what: impl std::fmt::Display, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, future).await {
        Ok(value) => value,
        Err(_) => panic!("waited {PATIENCE:?} in vain: {what}"),
    }
}
