//! The context that all runs of a route share.

use std::sync::Arc;

use super::outbound_call::ExternalCalls;
use crate::config::ScriptLimitsConfig;
use crate::runtime::ScriptRuntime;

/// The context that all runs of a route share.
pub(crate) struct RunSetup {
    pub(crate) scripts: Arc<ScriptRuntime>,
    pub(crate) external_calls: ExternalCalls,
    pub(crate) limits: ScriptLimitsConfig,
    /// The route's path, without `/*`: empty at the root.
    pub(crate) mount: String,
    pub(crate) show_versions: bool,
}
