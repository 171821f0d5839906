//! The filters of a route, in order.

use std::future::Future;
use std::path::Path;
use std::sync::Arc;

use http::{Request, Response};
use services::{Body, Call, Services};

use crate::config::FilterConfig;
use crate::exchange;
use crate::facts::Facts;
use crate::filters::Filters;
use crate::plugin::Plugin;
use crate::problem::Failed;
use crate::refused::Refused;

/// The filters of a route. Dropping the last handle, its requests' included, ends what its modules do.
#[derive(Debug)]
pub struct Chain {
    plugins: Vec<Arc<Plugin>>,
}

impl Chain {
    /// The filters of a config, by priority and then as they stand there. Each module is loaded, started and
    /// configured once, on the side: one that refuses touches no request, whichever config is in force.
    /// `folder` is where the modules' paths begin. It takes milliseconds for each module that is new.
    ///
    /// # Errors
    /// Every filter that can't be had, with the reason.
    pub fn new(
        filters: &Arc<Filters>,
        config: &[FilterConfig],
        folder: &Path,
        services: &Services,
    ) -> Result<Self, Vec<Refused>> {
        let mut plugins = Vec::with_capacity(config.len());
        let mut refused = Vec::new();
        for (index, entry) in config.iter().enumerate() {
            match Plugin::new(filters, entry, folder, services) {
                Ok(plugin) => plugins.push((entry.priority, Arc::new(plugin))),
                Err(reason) => {
                    refused.push(Refused { pointer: format!("/{index}{}", reason.field()), reason });
                }
            }
        }
        if !refused.is_empty() {
            return Err(refused);
        }
        plugins.sort_by_key(|(priority, _)| std::cmp::Reverse(*priority));
        Ok(Self { plugins: plugins.into_iter().map(|(_, plugin)| plugin).collect() })
    }

    /// Begins what goes on beside requests, once the chain is in force: timers, queues. To be called within a
    /// runtime.
    pub fn start(&self) {
        self.plugins.iter().for_each(|plugin| plugin.start());
    }

    /// Whether there is nothing to do.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.plugins.is_empty()
    }

    /// What the exchange has to go through: the filters.
    pub(crate) fn plugins(&self) -> &[Arc<Plugin>] {
        &self.plugins
    }

    /// A request's whole way: through the filters, to `handle`, and back through them. `handle` is not called
    /// when a filter answers itself, and is dropped when one answers while it is under way. What it answers,
    /// errors included, is what the filters see: problems become responses inside of it.
    ///
    /// The filters' end (`proxy_on_done`, `proxy_on_log`, `proxy_on_delete`) comes when the answer's body is
    /// read to its end or dropped, or when this future is.
    ///
    /// # Errors
    /// When a filter fails that is `on_trap: closed`, holds back too much or for too long, or ends the
    /// exchange. Only before the answer begins; later its body breaks off.
    pub fn around<H, F>(
        self: &Arc<Self>,
        request: Request<Body>,
        call: Call,
        facts: Facts,
        handle: H,
    ) -> impl Future<Output = Result<Response<Body>, Failed>> + use<H, F>
    where
        H: FnOnce(Request<Body>) -> F,
        F: Future<Output = Response<Body>>,
    {
        exchange::run(self, request, call, facts, handle)
    }
}
