//! What keeps the gateway from running programs at all.

/// Why the runtime can't start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The pool can't be reserved, or an environment does not load.
    #[error(transparent)]
    Sandbox(#[from] sandbox::Error),
    /// The folder of compiled programs can't be used.
    #[error(transparent)]
    Disk(#[from] sandbox::DiskError),
    /// The environment and the host functions do not fit together.
    #[error("the environment {environment} can't be linked: {reason}")]
    Link {
        /// Which.
        environment: &'static str,
        /// What the engine says.
        reason: String,
    },
    /// The environment lacks something.
    #[error("the environment {environment} does not export `{name}`")]
    Export {
        /// Which.
        environment: &'static str,
        /// What it lacks.
        name: &'static str,
    },
    /// No thread for the clock or for compiling, or no random bytes.
    #[error("the system refuses: {0}")]
    Thread(#[from] std::io::Error),
}

impl StartError {
    pub(crate) fn link(environment: &'static str) -> impl FnOnce(sandbox::Trapped) -> Self {
        move |error| Self::Link { environment, reason: format!("{error:#}") }
    }
}
