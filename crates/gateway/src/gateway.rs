//! The gateway: built from a config (`build.rs`), then bound, then served.

use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use crate::access::{Audience, Log, Seen};
use crate::admin::Admin;
use crate::build::{BuildError, Builder};
use crate::config::{Config, ListenConfig};
use crate::life::{Current, Life};
use crate::listen::{BindError, Listener, Listeners};
use crate::routes::Routes;
use crate::server::{self, Drained};

/// A gateway that is ready to serve.
pub struct Gateway {
    listen: ListenConfig,
    admin: Option<String>,
    drain: Duration,
    routes: Routes,
    audience: Audience,
    runtime: Option<Arc<query::Runtime>>,
}

impl Gateway {
    /// Makes ready objects of a config. Connects to nothing and binds nothing yet.
    ///
    /// # Errors
    /// What shows only now: programs' rules that don't fit their services, a runtime that can't start.
    pub fn build(config: Config) -> Result<Self, BuildError> {
        let builder = Builder::new(&config)?;
        let routes = builder.routes(&config)?;
        let runtime = builder.runtime;
        let mut gateway = Self {
            runtime,
            listen: config.listen,
            admin: config.admin,
            drain: config.drain.timeout.0,
            routes,
            audience: Audience::default(),
        };
        if config.log.access {
            gateway.audience.log = Some(Log::new(Box::new(io::stderr()))?);
        }
        Ok(gateway)
    }

    /// Writes the access log there and not to stderr.
    ///
    /// # Errors
    /// When its thread can't be started.
    pub fn log_to(mut self, sink: Box<dyn Write + Send>) -> Result<Self, BuildError> {
        self.audience.log = Some(Log::new(sink)?);
        Ok(self)
    }

    /// Calls this for every request, once the last byte of its answer is gone. It must not block.
    #[must_use]
    pub fn on_request(mut self, watch: impl Fn(Seen) + Send + Sync + 'static) -> Self {
        self.audience.watch = Some(Box::new(watch));
        self
    }

    /// Binds the addresses of the config.
    ///
    /// # Errors
    /// The first address that is taken or not this machine's.
    pub fn bind(&self) -> Result<Listeners, BindError> {
        self.adopt(Vec::new())
    }

    /// The same, with sockets that listen already, from another process or from the config before.
    ///
    /// # Errors
    /// The first address that is neither there nor to be had.
    pub fn adopt(&self, present: Vec<Listener>) -> Result<Listeners, BindError> {
        Listeners::adopt(self.listen.addresses(), present)
    }

    /// Binds the admin address of the config, if it has one.
    ///
    /// # Errors
    /// When the address is taken or not this machine's.
    pub async fn admin(&self) -> io::Result<Option<Admin>> {
        match &self.admin {
            Some(address) => Admin::bind(address, self.runtime.clone()).await.map(Some),
            None => Ok(None),
        }
    }

    /// Serves until `shutdown` is ready, then drains. Returns when the access log is written.
    pub async fn serve(self, listeners: Listeners, shutdown: impl Future<Output = ()>) -> Drained {
        for address in listeners.addresses() {
            tracing::info!(%address, "listening");
        }
        let life = Life { routes: self.routes, audience: Arc::new(self.audience) };
        server::serve(Arc::new(Current::new(life)), listeners, shutdown, self.drain).await
    }
}
