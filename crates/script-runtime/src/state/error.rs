//! What can go wrong with state, in plain words.

use std::sync::Arc;

/// Why state was not read, written or made. Nothing of what was asked is kept then.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The store says no.
    #[error(transparent)]
    Store(#[from] store::Error),
    /// A run asks to write what one of its callers, or itself, is writing (rule 7).
    #[error("{asker} needs state that {holder} holds, and {holder} waits for {asker}: neither could go on")]
    SelfCall {
        /// The handler that asks.
        asker: Arc<str>,
        /// The handler that holds it, from which the call came.
        holder: Arc<str>,
    },
    /// Runs wait for each other's state.
    #[error(
        "{asker} needs state that {holder} holds, which in its turn waits for state that {asker}'s callers hold"
    )]
    Circle {
        /// The handler that asks.
        asker: Arc<str>,
        /// The handler that holds it.
        holder: Arc<str>,
    },
    /// A worker's change set is not one of this state.
    #[error("the worker's change set of {handler} is refused: {reason}")]
    Changes {
        /// The handler that ran.
        handler: Arc<str>,
        /// What is wrong with it.
        reason: String,
    },
    /// The resource was removed while it was used.
    #[error("`{path}` was removed")]
    Gone {
        /// Its path.
        path: Arc<str>,
    },
    /// Another declaration has the path (rule 10).
    #[error("the path `{path}` is already taken by `{owner}`; `{site}` can't have it too")]
    Taken {
        /// The path.
        path: Arc<str>,
        /// The declaration that has it.
        owner: Arc<str>,
        /// The one that wants it.
        site: Arc<str>,
    },
    /// There are as many dynamic resources as may be.
    #[error("`{service}` has {most} dynamic resources, and that is the most it may have")]
    TooMany {
        /// The service.
        service: Arc<str>,
        /// How many.
        most: usize,
    },
    /// The state would be larger than it may be.
    #[error("the state of `{service}` would have {size} bytes, and {most} are the most it may have")]
    StateFull {
        /// The service.
        service: Arc<str>,
        /// Its bytes with the refused write.
        size: u64,
        /// The most bytes.
        most: u64,
    },
    /// A resource is declared with something that can't be kept.
    #[error("`{path}` can't be declared: {reason}")]
    Declaration {
        /// Its path.
        path: Arc<str>,
        /// What is wrong.
        reason: String,
    },
    /// What the store has is not what was written there.
    #[error("`{key}` in the store is not what state looks like: {reason}")]
    Unreadable {
        /// The store's key.
        key: Arc<str>,
        /// What is wrong.
        reason: String,
    },
    /// Two S services of one name: they would have the same state.
    #[error("the S service `{service}` is deployed twice, and both would have the same state")]
    Twice {
        /// Its name.
        service: Arc<str>,
    },
    /// The folder of the state can't be used.
    #[error("the folder `{folder}` of the state can't be used: {reason}")]
    Folder {
        /// Which.
        folder: Arc<str>,
        /// What the system says.
        reason: String,
    },
    /// State is asked for a handler that has none.
    #[error("handler {handler} of `{service}` has no state")]
    Stateless {
        /// The service.
        service: Arc<str>,
        /// The handler's number.
        handler: usize,
    },
}

/// The most bytes of a path that the text of an error repeats.
const SHOWN: usize = 128;

impl Error {
    /// A declaration that is refused. Of a long path only the start is repeated.
    pub(crate) fn declaration(path: &str, reason: String) -> Self {
        let shown = path.get(..path.floor_char_boundary(SHOWN)).unwrap_or_default();
        let rest = if shown.len() < path.len() { ".." } else { "" };
        Self::Declaration { path: format!("{shown}{rest}").into(), reason }
    }

    /// The stable code. It never changes its meaning.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Store(error) => error.code(),
            Self::SelfCall { .. } => "state-self-call",
            Self::Circle { .. } => "state-circle",
            Self::Changes { .. } => "state-changes-invalid",
            Self::Gone { .. } => "state-resource-gone",
            Self::Taken { .. } => "state-path-taken",
            Self::TooMany { .. } => "state-resources-full",
            Self::StateFull { .. } => "state-full",
            Self::Declaration { .. } => "state-declaration-invalid",
            Self::Unreadable { .. } => "state-unreadable",
            Self::Twice { .. } => "state-service-twice",
            Self::Folder { .. } => "state-folder",
            Self::Stateless { .. } => "state-none",
        }
    }

    /// The status of the answer.
    #[must_use]
    pub fn status(&self) -> u16 {
        match self {
            Self::Store(_) | Self::TooMany { .. } | Self::StateFull { .. } => 503,
            Self::SelfCall { .. } | Self::Circle { .. } => 508,
            Self::Gone { .. } => 404,
            _ => 500,
        }
    }

    /// What the reader can do about it, in one sentence.
    #[must_use]
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Store(store::Error::LeaseLost { .. } | store::Error::LeaseTaken { .. }) => {
                "another gateway writes this state; nothing of this request was kept there, so send it again"
            }
            Self::Store(store::Error::Conflict { .. } | store::Error::Abandoned) => {
                "nothing of this request was kept in the state, so send it again"
            }
            Self::Store(error) => error.hint(),
            Self::SelfCall { .. } => {
                "make the call after the last use of the state in its handler, or let the called handler only read"
            }
            Self::Circle { .. } => {
                "send it again; to be rid of it, let handlers call each other in one direction only"
            }
            Self::Changes { .. } => {
                "this is a bug of the worker, or a handler that changed its built-in objects"
            }
            Self::Gone { .. } => "make the resource again",
            Self::Taken { .. } => "delete the resource, or give this one another path",
            Self::TooMany { .. } => "delete some, let them end by a time to live, or allow more",
            Self::StateFull { .. } => "delete some of it, or raise `state.size` of the script",
            Self::Declaration { .. } => {
                "give it a path that requests can have, and less to capture; larger values can be state of the service"
            }
            Self::Unreadable { .. } => "put back a copy of the store from before somebody else wrote to it",
            Self::Twice { .. } => "give one of them another name",
            Self::Folder { .. } => "let the gateway's user write to it",
            Self::Stateless { .. } => "this is a bug of the gateway",
        }
    }
}
