//! Errors that keep the query runtime from starting.

/// An error that keeps the runtime from starting.
#[derive(Debug, thiserror::Error)]
pub enum RuntimeStartError {
    /// The instance pool can't be reserved, or an environment does not load.
    #[error(transparent)]
    Sandbox(#[from] sandbox::SandboxError),
    /// The compile cache's folder can't be used.
    #[error(transparent)]
    Disk(#[from] sandbox::DiskError),
    /// The environment's imports do not match the host functions.
    #[error("the environment {environment} can't be linked: {reason}")]
    Link {
        /// The environment.
        environment: &'static str,
        /// The engine's message.
        reason: String,
    },
    /// The environment lacks an export.
    #[error("the environment {environment} does not export `{name}`")]
    Export {
        /// The environment.
        environment: &'static str,
        /// The name of the missing export.
        name: &'static str,
    },
    /// A thread (for the clock or for compiling) can't be started, or there are no random bytes.
    #[error("the system refuses: {0}")]
    Thread(#[from] std::io::Error),
}

impl RuntimeStartError {
    pub(crate) fn link_error(environment: &'static str) -> impl FnOnce(sandbox::Trapped) -> Self {
        move |error| Self::Link { environment, reason: format!("{error:#}") }
    }
}
