//! The gateway: built from a config (`build.rs`), bound, served, and reconfigured while it serves.
//!
//! A new config is built off the request threads and then activated at once. Requests in flight end with the
//! config that they began with. Objects that both configs share (the query runtime, services) move from one
//! [`ServingConfig`] to the next. A config that can't be built changes nothing.

pub(crate) mod reload;

use std::io::Write;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use crate::build::BuildError;
use crate::config::host_names::HostNames;
use crate::config::{AdminConfig, GatewayConfig, ListenConfig};
use crate::server;
use crate::server::active_config::{ActiveConfig, ServingConfig};
use crate::server::drain::{DrainResult, ShutdownMode};
use crate::server::listeners::{BindError, Listener, ListenerSet};
use crate::server::readiness::{LifecycleState, Readiness};
use crate::telemetry::access_log::LogWriter;
use crate::telemetry::request_record::CompletedRequest;
use reload::ReloadShared;

/// A gateway that is ready to serve. Clones are handles of the same gateway.
#[derive(Clone)]
pub struct Gateway {
    pub(crate) active_config: Arc<ActiveConfig>,
    pub(crate) reloads: Arc<ReloadShared>,
    pub(crate) startup_config: Arc<StartupConfig>,
    /// Serialises reloads.
    pub(crate) reload_lock: Arc<Mutex<()>>,
}

/// The parts of the initial config that later ones can't change.
pub(crate) struct StartupConfig {
    listen: ListenConfig,
    admin: Option<AdminConfig>,
    takeover: Option<PathBuf>,
    runtime: query::RuntimeConfig,
    scripts: script_runtime::ScriptsConfig,
}

impl Gateway {
    /// Builds the runtime objects of a config, without connecting to or binding anything.
    ///
    /// # Errors
    /// Mistakes that show only now, such as rules for programs that don't fit their services, or a runtime
    /// that can't be started.
    pub fn build(config: GatewayConfig) -> Result<Self, BuildError> {
        let serving = ServingConfig::build(&config, None)?;
        Ok(Self {
            active_config: Arc::new(ActiveConfig::new(serving)),
            reloads: Arc::new(ReloadShared::new(config.source.digest().to_owned())),
            startup_config: Arc::new(StartupConfig::new(config)),
            reload_lock: Arc::default(),
        })
    }

    /// Writes the access log to `sink` instead of stderr.
    ///
    /// # Errors
    /// If its thread can't be started.
    pub fn log_to(self, sink: Box<dyn Write + Send>) -> Result<Self, BuildError> {
        let log = Arc::new(LogWriter::new(sink)?);
        self.active_config.update_telemetry(|telemetry| telemetry.log = Some(log));
        Ok(self)
    }

    /// Calls `watch` for every request, after the last byte of its response. It must not block.
    #[must_use]
    pub fn on_request(self, watch: impl Fn(CompletedRequest) + Send + Sync + 'static) -> Self {
        self.active_config.update_telemetry(|telemetry| telemetry.observer = Some(Arc::new(watch)));
        self
    }

    /// The readiness state.
    #[must_use]
    pub fn readiness(&self) -> &Arc<Readiness> {
        &self.active_config.readiness
    }

    /// The reason why `/readyz` reports that the gateway isn't ready: a keyword and details. Scripts have to
    /// have been activated once, and GraphQL services have to have delivered their schemas. A worker that is
    /// lost later is replaced and doesn't affect readiness.
    pub(crate) fn unready_reason(&self) -> Option<(&'static str, String)> {
        match self.readiness().state() {
            LifecycleState::Starting => Some(("starting", "the gateway does not listen yet".to_owned())),
            LifecycleState::Draining => Some(("draining", "the gateway is shutting down".to_owned())),
            LifecycleState::Ready => {
                let pipeline = self.active_config.pipeline();
                let mut waiting = pipeline
                    .routes
                    .scripts()
                    .filter_map(|(_, script)| Some((script.name(), script.not_ready_reason()?)));
                let waiting = waiting.next().map(|(name, why)| format!("the S service `{name}`: {why}"));
                let schema = || {
                    let mut waiting = pipeline
                        .routes
                        .graphqls()
                        .filter_map(|(path, graphql)| Some((path, graphql.unavailable_reason()?)));
                    waiting.next().map(|(path, why)| format!("the GraphQL route `{path}`: {why}"))
                };
                waiting.or_else(schema).map(|why| ("starting", why))
            }
        }
    }

    /// The results of reloads.
    #[must_use]
    pub fn reloads(&self) -> &Arc<ReloadShared> {
        &self.reloads
    }

    /// Binds the addresses of the config.
    ///
    /// # Errors
    /// For the first address that is in use or not local.
    pub fn bind(&self) -> Result<ListenerSet, BindError> {
        self.adopt(&mut Vec::new())
    }

    /// Like [`bind`](Self::bind), with listening sockets of another process: those for addresses in the
    /// config are removed from `present`.
    ///
    /// # Errors
    /// For the first address that is neither among them nor available.
    pub fn adopt(&self, present: &mut Vec<Listener>) -> Result<ListenerSet, BindError> {
        ListenerSet::adopt(self.startup_config.listen.addresses(), present)
    }

    /// Binds the admin address, or adopts its listening socket. Returns `None` if the config disables it, or
    /// if it names no address and the default one is in use.
    ///
    /// # Errors
    /// If the address in the config is in use or not local.
    pub fn adopt_admin(&self, present: &mut Vec<Listener>) -> Result<Option<Listener>, BindError> {
        let named = self.startup_config.admin.as_ref().map(AdminConfig::address);
        let address = Some(named.unwrap_or(GatewayConfig::DEFAULT_ADMIN))
            .filter(|named| *named != GatewayConfig::ADMIN_OFF);
        match ListenerSet::adopt(address, present) {
            Ok(adopted) => Ok(adopted.into_vec().pop()),
            Err(error) if named.is_none() => {
                tracing::warn!(%error, "no admin listener: set an address under `admin`, or `off`");
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// The configured host names of the gateway, which the admin listener serves too.
    pub(crate) fn admin_hosts(&self) -> HostNames {
        let own = self.startup_config.admin.as_ref().map_or(&[][..], AdminConfig::hosts);
        HostNames::new(own.iter().chain(self.startup_config.listen.hosts()))
    }

    /// Activates another config, and returns the names of changed fields that need a restart. It takes as
    /// long as building does: call it off the request threads, but within the runtime.
    ///
    /// # Errors
    /// Like [`Gateway::build`]; the previous config then stays active.
    pub fn reload(&self, config: &GatewayConfig) -> Result<Vec<&'static str>, BuildError> {
        let _turn = self.reload_lock.lock().unwrap_or_else(PoisonError::into_inner);
        let serving = ServingConfig::build(config, Some(&self.active_config.serving()))
            .inspect_err(|_| self.reloads.record_failure())?;
        self.active_config.replace(serving);
        self.reloads.record_success(config.source.digest());
        Ok(self.startup_config.changed_fields(config))
    }

    /// Records that a config could not be read.
    pub fn note_reload_failed(&self) {
        self.reloads.record_failure();
    }

    /// Cuts off requests in flight: at once if the gateway is draining, or else when it begins to.
    pub fn abort_requests(&self) {
        self.active_config.abort_signal.notify_one();
    }

    /// Serves until `stop` completes, then drains. Returns when the access log is written.
    pub async fn serve(
        self,
        listeners: ListenerSet,
        stop: impl Future<Output = ShutdownMode>,
    ) -> DrainResult {
        self.readiness().advance(LifecycleState::Ready);
        for address in listeners.addresses() {
            tracing::info!(%address, "listening");
        }
        self.active_config.pipeline().start();
        tokio::spawn(self.active_config.pipeline().load_shedder.run_probe());
        let drained = server::serve(Arc::clone(&self.active_config), listeners, stop).await;
        self.active_config.finish_scripts().await;
        self.active_config.pipeline().telemetry.finish().await;
        drained
    }
}

impl StartupConfig {
    fn new(config: GatewayConfig) -> Self {
        let GatewayConfig { listen, admin, takeover, runtime, scripts, .. } = config;
        Self { listen, admin, takeover, runtime, scripts }
    }

    /// The fields that differ in a config.
    pub(crate) fn changed_fields(&self, config: &GatewayConfig) -> Vec<&'static str> {
        let fields = [
            ("listen", self.listen.addresses().ne(config.listen.addresses())),
            ("admin", self.admin != config.admin),
            ("takeover", self.takeover != config.takeover),
            ("runtime", self.runtime != config.runtime),
            ("scripts", self.scripts != config.scripts),
        ];
        fields.into_iter().filter_map(|(name, is_changed)| is_changed.then_some(name)).collect()
    }
}
