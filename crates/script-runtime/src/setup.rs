//! The context that all runs of a route share.

use std::sync::Arc;

use crate::call::Outside;
use crate::config::LimitsConfig;
use crate::scripts::Scripts;

/// The context that all runs of a route share.
pub(crate) struct Setup {
    pub(crate) scripts: Arc<Scripts>,
    pub(crate) outside: Outside,
    pub(crate) limits: LimitsConfig,
    /// The route's path, without `/*`: empty at the root.
    pub(crate) mount: String,
    pub(crate) show_versions: bool,
}
