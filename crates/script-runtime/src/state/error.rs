//! Errors of the state.

use std::sync::Arc;

use services::ToProblem;

/// A failure to read, write or create state. The failed operation has no effect.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StateError {
    /// An error of the store.
    #[error(transparent)]
    Store(#[from] store::StoreError),
    /// The pool did not do long work.
    #[error(transparent)]
    Unfinished(#[from] services::UnfinishedResponse),
    /// A run requests a group that one of its callers, or the run itself, is writing (rule 7).
    #[error("{asker} needs state that {holder} holds, and {holder} waits for {asker}: neither could go on")]
    SelfCall {
        /// The requesting handler.
        asker: Arc<str>,
        /// The handler that holds the group, from which the call originates.
        holder: Arc<str>,
    },
    /// Runs wait for each other's state.
    #[error(
        "{asker} needs state that {holder} holds, which in turn waits for state that {asker}'s callers hold"
    )]
    Deadlock {
        /// The requesting handler.
        asker: Arc<str>,
        /// The handler that holds the group.
        holder: Arc<str>,
    },
    /// A worker's change set is invalid.
    #[error("the worker's change set of {handler} is refused: {reason}")]
    Changes {
        /// The handler that ran.
        handler: Arc<str>,
        /// The reason.
        reason: String,
    },
    /// The resource was removed while it was in use.
    #[error("`{path}` was removed")]
    ResourceRemoved {
        /// The path of the resource.
        path: Arc<str>,
    },
    /// Another declaration owns the path (rule 10).
    #[error("the path `{path}` is already taken by `{owner}`; `{site}` can't have it too")]
    PathTaken {
        /// The path.
        path: Arc<str>,
        /// The declaration that owns the path.
        owner: Arc<str>,
        /// The declaration that was refused.
        site: Arc<str>,
    },
    /// The maximum number of dynamic resources is reached.
    #[error("`{service}` has {most} dynamic resources, which is the maximum")]
    TooManyResources {
        /// The service.
        service: Arc<str>,
        /// The maximum.
        most: usize,
    },
    /// The state would exceed its maximum size.
    #[error("the state of `{service}` would have {size} bytes, more than the maximum of {most}")]
    StateFull {
        /// The service.
        service: Arc<str>,
        /// The size in bytes including the refused write.
        size: u64,
        /// The maximum size in bytes.
        most: u64,
    },
    /// A declaration of a resource is invalid.
    #[error("`{path}` can't be declared: {reason}")]
    Declaration {
        /// The path.
        path: Arc<str>,
        /// The reason.
        reason: String,
    },
    /// A stored value is corrupt.
    #[error("`{key}` in the store is not valid state: {reason}")]
    Unreadable {
        /// The store's key.
        key: Arc<str>,
        /// The reason.
        reason: String,
    },
    /// Two S services have the same name, and therefore would have the same state.
    #[error("the S service `{service}` is deployed twice, and both would have the same state")]
    DuplicateService {
        /// The name.
        service: Arc<str>,
    },
    /// The folder of the state can't be used.
    #[error("the folder `{folder}` of the state can't be used: {reason}")]
    Folder {
        /// The folder.
        folder: Arc<str>,
        /// The error of the system.
        reason: String,
    },
    /// State is requested for a handler that has none.
    #[error("handler {handler} of `{service}` has no state")]
    Stateless {
        /// The service.
        service: Arc<str>,
        /// The index of the handler.
        handler: usize,
    },
}

/// The maximum length in bytes of a path in an error message.
const MAX_SHOWN_PATH: usize = 128;

impl StateError {
    /// Returns the error of a refused declaration. A long path is truncated.
    pub(crate) fn invalid_declaration(path: &str, reason: String) -> Self {
        let shown = path.get(..path.floor_char_boundary(MAX_SHOWN_PATH)).unwrap_or_default();
        let rest = if shown.len() < path.len() { ".." } else { "" };
        Self::Declaration { path: format!("{shown}{rest}").into(), reason }
    }

    /// The stable code. It never changes its meaning.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Store(error) => error.code(),
            Self::Unfinished(error) => error.code(),
            Self::SelfCall { .. } => "state-self-call",
            Self::Deadlock { .. } => "state-circle",
            Self::Changes { .. } => "state-changes-invalid",
            Self::ResourceRemoved { .. } => "state-resource-gone",
            Self::PathTaken { .. } => "state-path-taken",
            Self::TooManyResources { .. } => "state-resources-full",
            Self::StateFull { .. } => "state-full",
            Self::Declaration { .. } => "state-declaration-invalid",
            Self::Unreadable { .. } => "state-unreadable",
            Self::DuplicateService { .. } => "state-service-twice",
            Self::Folder { .. } => "state-folder",
            Self::Stateless { .. } => "state-none",
        }
    }

    /// The status of the response.
    #[must_use]
    pub fn status(&self) -> u16 {
        match self {
            Self::Store(_) | Self::Unfinished(_) | Self::TooManyResources { .. } | Self::StateFull { .. } => {
                503
            }
            Self::SelfCall { .. } | Self::Deadlock { .. } => 508,
            Self::ResourceRemoved { .. } => 404,
            _ => 500,
        }
    }

    /// A suggestion for the reader, in one sentence.
    #[must_use]
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Store(store::StoreError::LeaseLost { .. } | store::StoreError::LeaseTaken { .. }) => {
                "another gateway writes this state; nothing of this request was stored, so send it again"
            }
            Self::Store(store::StoreError::Conflict { .. } | store::StoreError::Abandoned) => {
                "nothing of this request was stored, so send it again"
            }
            Self::Store(error) => error.hint(),
            Self::Unfinished(_) => "nothing of this request was stored, so send it again later",
            Self::SelfCall { .. } => {
                "make the call after the last use of the state in its handler, or let the called handler only read"
            }
            Self::Deadlock { .. } => {
                "send it again; to avoid this error, let handlers call each other in one direction only"
            }
            Self::Changes { .. } => {
                "this is a bug of the worker, or a handler that changed its built-in objects"
            }
            Self::ResourceRemoved { .. } => "create the resource again",
            Self::PathTaken { .. } => "delete the resource, or give this one another path",
            Self::TooManyResources { .. } => "delete some, set a time to live, or raise the limit",
            Self::StateFull { .. } => "delete some of it, or raise `state.size` of the script",
            Self::Declaration { .. } => {
                "give it a path that requests can have, and less to capture; larger values can be state of the service"
            }
            Self::Unreadable { .. } => {
                "restore a backup of the store that was made before other software wrote to it"
            }
            Self::DuplicateService { .. } => "give one of them another name",
            Self::Folder { .. } => "give the gateway's user write access to it",
            Self::Stateless { .. } => "this is a bug of the gateway",
        }
    }
}
