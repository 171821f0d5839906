//! Misbehaving services, a gateway builder and a small HTTP client, for tests and benches only.
//!
//! Nothing here knows a crate of the house: the gateway is driven as its users drive it, by its binary,
//! its config and its ports. What goes wrong here panics, since it ends a test.
#![expect(clippy::panic, reason = "a test that can't be set up has failed")]

pub mod gateway;
pub mod http;
pub mod misbehave;

pub use gateway::Gateway;

/// How long anything is waited for before the test is failed: far beyond what any of it takes, so that
/// a test which waits for what never comes says so instead of holding up the others.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(60);

/// Waits for what has to come.
///
/// # Panics
/// If it does not come.
pub async fn patiently<T>(what: impl std::fmt::Display, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, future).await {
        Ok(value) => value,
        Err(_) => panic!("waited {PATIENCE:?} in vain: {what}"),
    }
}
