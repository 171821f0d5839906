//! The active config: the pipeline for new requests, and the settings of the server itself.
//!
//! A [`ServingConfig`] is built from one config and is immutable. [`ActiveConfig`] contains the one for new
//! connections and requests, which a reload replaces.

use std::sync::Arc;

use arc_swap::ArcSwap;
use tokio::sync::Notify;

use super::listener_rules::ListenerRulesByAddress;
use super::readiness::Readiness;
use crate::config::{ConnectionsConfig, DrainConfig};
use crate::pipeline::RequestPipeline;
use crate::telemetry::Telemetry;

/// The state that connections and requests need, built from one config.
#[derive(Clone)]
pub(crate) struct ServingConfig {
    pub(crate) pipeline: Arc<RequestPipeline>,
    pub(crate) listener_rules: ListenerRulesByAddress,
    /// The limits for new connections.
    pub(crate) connections: ConnectionsConfig,
    /// The drain settings while this config is in force.
    pub(crate) drain: DrainConfig,
}

/// The active config, and the gateway's readiness.
pub(crate) struct ActiveConfig {
    serving: ArcSwap<ServingConfig>,
    pub(crate) readiness: Arc<Readiness>,
    /// Notified once, to cut off all work that is still in progress.
    pub(crate) abort_signal: Notify,
}

impl ActiveConfig {
    pub(crate) fn new(serving: ServingConfig) -> Self {
        Self {
            serving: ArcSwap::from_pointee(serving),
            readiness: Arc::default(),
            abort_signal: Notify::new(),
        }
    }

    /// Returns the config for a new connection.
    pub(crate) fn serving(&self) -> Arc<ServingConfig> {
        self.serving.load_full()
    }

    /// Returns the pipeline for a new request.
    pub(crate) fn pipeline(&self) -> Arc<RequestPipeline> {
        Arc::clone(&self.serving.load().pipeline)
    }

    /// Replaces the config for new connections and requests. The new pipeline is started before the old one
    /// is dropped, so that scripts can take over its workers.
    pub(crate) fn replace(&self, serving: ServingConfig) {
        serving.pipeline.start();
        self.serving.store(Arc::new(serving));
    }

    /// Releases the scripts' leases once no write is in progress, so that the next gateway process can
    /// acquire them.
    pub(crate) async fn release_script_leases(&self) {
        if let Some(scripts) = &self.pipeline().scripts {
            scripts.drain_leases().await;
        }
    }

    /// Waits for the work that handlers continue after their responses, for at most `drain.timeout`.
    pub(crate) async fn finish_scripts(&self) {
        let serving = self.serving();
        let Some(scripts) = &serving.pipeline.scripts else { return };
        tokio::select! {
            () = scripts.drain() => {}
            () = tokio::time::sleep(serving.drain.timeout.0) => {
                tracing::warn!(runs = scripts.runs_in_flight(), "scripts are cut off");
            }
            () = self.abort_signal.notified() => {}
        }
    }

    /// Replaces the telemetry sinks. Called before the pipeline serves requests.
    pub(crate) fn update_telemetry(&self, change: impl FnOnce(&mut Telemetry)) {
        let serving = self.serving();
        let mut telemetry = (*serving.pipeline.telemetry).clone();
        change(&mut telemetry);
        let pipeline = RequestPipeline { telemetry: Arc::new(telemetry), ..(*serving.pipeline).clone() };
        self.serving.store(Arc::new(ServingConfig { pipeline: Arc::new(pipeline), ..(*serving).clone() }));
    }
}
