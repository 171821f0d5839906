//! An attack, the endings that are allowed for it, and the memory that it may make the gateway hold.

use std::fmt;
use std::sync::Arc;

use anyhow::Result;
use futures_util::future::BoxFuture;

use crate::ending::AttackEnding;
use crate::target::AttackTarget;

/// A function that plays an attack to its end.
pub type AttackFunction = fn(Arc<AttackTarget>) -> BoxFuture<'static, Result<AttackEnding>>;

/// An attack, its allowed endings, and the memory that it may make the gateway hold.
#[derive(Clone, Copy)]
pub struct AttackCase {
    /// Area and behaviour, such as `graphql/chain of fragments that are spread twice`.
    pub name: &'static str,
    /// The function that plays the attack.
    pub attack: AttackFunction,
    /// The endings that the documentation allows.
    pub endings: &'static [AttackEnding],
    /// The rows of [`BOUNDS`](crate::BOUNDS) that the case fills, each with a count.
    pub holds: &'static [(&'static str, u64)],
}

impl fmt::Debug for AttackCase {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Case")
            .field("name", &self.name)
            .field("endings", &self.endings)
            .finish_non_exhaustive()
    }
}
