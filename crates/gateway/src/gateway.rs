//! The gateway: built from a config (`build.rs`), then bound, then served, and given another config while it serves.
//!
//! Another config is built off the request threads, then put in force at once. Requests under way end with the config
//! that they began with; what both configs have in common (the query runtime, services) goes from one [`Life`] to the
//! next. A config that can't be built changes nothing.

use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use crate::access::{Audience, Log, Seen};
use crate::build::BuildError;
use crate::config::{AdminConfig, Config, ListenConfig};
use crate::drain::{Drained, Stop};
use crate::hosts::HostNames;
use crate::life::{Current, Life};
use crate::listen::{BindError, Listener, Listeners};
use crate::readiness::{Readiness, State};
use crate::reload::Reloads;
use crate::server;
use crate::trace::Tracer;

/// A gateway that is ready to serve. Clones are handles of the same one.
#[derive(Clone)]
pub struct Gateway {
    pub(crate) current: Arc<Current>,
    pub(crate) reloads: Arc<Reloads>,
    pub(crate) fixed: Arc<Fixed>,
    /// One reload at a time.
    pub(crate) reloading: Arc<Mutex<()>>,
}

/// What of a config stays as it was at the start, whatever later ones say.
pub(crate) struct Fixed {
    listen: ListenConfig,
    admin: Option<AdminConfig>,
    takeover: Option<PathBuf>,
    runtime: query::RuntimeConfig,
    scripts: script_runtime::ScriptsConfig,
}

impl Gateway {
    /// Makes ready objects of a config. Connects to nothing and binds nothing yet.
    ///
    /// # Errors
    /// What shows only now: programs' rules that don't fit their services, a runtime that can't start.
    pub fn build(config: Config) -> Result<Self, BuildError> {
        let life = Life::build(&config, None)?;
        Ok(Self {
            current: Arc::new(Current::new(life)),
            reloads: Arc::new(Reloads::new(config.source.digest().to_owned())),
            fixed: Arc::new(Fixed::new(config)),
            reloading: Arc::default(),
        })
    }

    /// Writes the access log there and not to stderr.
    ///
    /// # Errors
    /// When its thread can't be started.
    pub fn log_to(self, sink: Box<dyn Write + Send>) -> Result<Self, BuildError> {
        let log = Arc::new(Log::new(sink)?);
        self.current.put_audience(|audience| audience.log = Some(log));
        Ok(self)
    }

    /// Calls this for every request, once the last byte of its answer is gone. It must not block.
    #[must_use]
    pub fn on_request(self, watch: impl Fn(Seen) + Send + Sync + 'static) -> Self {
        self.current.put_audience(|audience| audience.watch = Some(Arc::new(watch)));
        self
    }

    /// Whether it wants requests.
    #[must_use]
    pub fn readiness(&self) -> &Arc<Readiness> {
        &self.current.readiness
    }

    /// Why `/readyz` says no, if it does: in a word, and in more. Scripts have to have been put in force once, and
    /// GraphQL services to have said their schemas; a worker that is lost later is replaced, and keeps nobody away.
    pub(crate) fn unready(&self) -> Option<(&'static str, String)> {
        match self.readiness().state() {
            State::Starting => Some(("starting", "it does not listen yet".to_owned())),
            State::Draining => Some(("draining", "it is about to end".to_owned())),
            State::Ready => {
                let life = self.current.life();
                let mut waiting =
                    life.routes.scripts().filter_map(|(_, script)| Some((script.name(), script.waits()?)));
                let waiting = waiting.next().map(|(name, why)| format!("the S service `{name}`: {why}"));
                let schema = || {
                    let mut waiting =
                        life.routes.graphqls().filter_map(|(path, graphql)| Some((path, graphql.waits()?)));
                    waiting.next().map(|(path, why)| format!("the GraphQL route `{path}`: {why}"))
                };
                waiting.or_else(schema).map(|why| ("starting", why))
            }
        }
    }

    /// What became of the configs so far.
    #[must_use]
    pub fn reloads(&self) -> &Arc<Reloads> {
        &self.reloads
    }

    /// Binds the addresses of the config.
    ///
    /// # Errors
    /// The first address that is taken or not this machine's.
    pub fn bind(&self) -> Result<Listeners, BindError> {
        self.adopt(&mut Vec::new())
    }

    /// The same, with sockets that listen already, from another process: those that the config names are
    /// taken out.
    ///
    /// # Errors
    /// The first address that is neither there nor to be had.
    pub fn adopt(&self, present: &mut Vec<Listener>) -> Result<Listeners, BindError> {
        Listeners::adopt(self.fixed.listen.addresses(), present)
    }

    /// Binds the admin address, or takes the socket that listens there; none where the config switches it off.
    /// Where it names none and the default is taken, by another gateway perhaps, this one goes without.
    ///
    /// # Errors
    /// When the address that the config names is taken or not this machine's.
    pub fn adopt_admin(&self, present: &mut Vec<Listener>) -> Result<Option<Listener>, BindError> {
        let named = self.fixed.admin.as_ref().map(AdminConfig::address);
        let address =
            Some(named.unwrap_or(Config::DEFAULT_ADMIN)).filter(|named| *named != Config::ADMIN_OFF);
        match Listeners::adopt(address, present) {
            Ok(adopted) => Ok(adopted.into_vec().pop()),
            Err(error) if named.is_none() => {
                tracing::warn!(%error, "no admin listener: name an address under `admin`, or say `off`");
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// The names that the config has for the gateway, and so for its admin listener.
    pub(crate) fn admin_hosts(&self) -> HostNames {
        let own = self.fixed.admin.as_ref().map_or(&[][..], AdminConfig::hosts);
        HostNames::new(own.iter().chain(self.fixed.listen.hosts()))
    }

    /// Puts another config in force; the names of the fields in it that wait for a restart. It takes as
    /// long as building does: call it off the request threads, but within the runtime.
    ///
    /// # Errors
    /// What [`Gateway::build`] says; the config before it stays in force.
    pub fn reload(&self, config: &Config) -> Result<Vec<&'static str>, BuildError> {
        let _turn = self.reloading.lock().unwrap_or_else(PoisonError::into_inner);
        let life = Life::build(config, Some(&self.current.life())).inspect_err(|_| self.reloads.fail())?;
        self.current.put(life);
        self.reloads.succeed(config.source.digest());
        Ok(self.fixed.changed(config))
    }

    /// Notes that a config could not even be read.
    pub fn not_reloaded(&self) {
        self.reloads.fail();
    }

    /// Ends it at once if it is draining, and else as soon as it does: requests under way are cut off.
    pub fn cut_off(&self) {
        self.current.cut.notify_one();
    }

    /// Serves until it is to stop, then drains. Returns when the access log is written.
    pub async fn serve(self, listeners: Listeners, stop: impl Future<Output = Stop>) -> Drained {
        self.readiness().advance(State::Ready);
        for address in listeners.addresses() {
            tracing::info!(%address, "listening");
        }
        self.current.life().start();
        tokio::spawn(self.current.life().shed.watch());
        let drained = server::serve(Arc::clone(&self.current), listeners, stop).await;
        self.current.finish_scripts().await;
        self.current.life().audience.finish().await;
        drained
    }
}

impl Fixed {
    fn new(config: Config) -> Self {
        let Config { listen, admin, takeover, runtime, scripts, .. } = config;
        Self { listen, admin, takeover, runtime, scripts }
    }

    /// The fields in which a config says something else.
    pub(crate) fn changed(&self, config: &Config) -> Vec<&'static str> {
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

/// Where a life's requests are told of: the access log is kept while a config wants it.
impl Audience {
    pub(crate) fn of(config: &Config, previous: Option<&Life>) -> io::Result<Self> {
        let mut audience = previous.map(|life| (*life.audience).clone()).unwrap_or_default();
        if !config.log.access {
            audience.log = None;
        } else if audience.log.is_none() {
            audience.log = Some(Arc::new(Log::new(Box::new(io::stderr()))?));
        }
        let kept = audience.tracer.take();
        audience.tracer = config.traces.as_ref().and_then(|traces| {
            let kept = kept.filter(|tracer| tracer.is_of(traces));
            kept.or_else(|| Tracer::new(traces, Arc::clone(&audience.metrics.spans)).map(Arc::new))
        });
        Ok(audience)
    }
}
