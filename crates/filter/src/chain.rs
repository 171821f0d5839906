//! The filters of a route, in order, and the path of exchanges through them.

mod body;
mod exchange_run;

use std::future::Future;
use std::path::Path;
use std::sync::Arc;

use handler::{HandlerRequest, HandlerResponse};
use services::ServiceSet;

use crate::abi::MessageSide;
use crate::config::FilterConfig;
use crate::error::{FilterFailure, RefusedFilter};
use crate::exchange::ExchangeInfo;
use crate::vm::{FilterPlugin, FilterRuntime};

/// The filters of a route. Dropping the last handle, including those of requests in flight, ends the modules'
/// background activity.
#[derive(Debug)]
pub struct FilterChain {
    plugins: Vec<Arc<FilterPlugin>>,
}

impl FilterChain {
    /// Creates the filters of a config, ordered by priority and then by position. Each module is loaded,
    /// started and configured once, before the chain is in use: a module that refuses its configuration
    /// affects no request of any config. The modules' paths are relative to `folder`. Each new module takes
    /// milliseconds.
    ///
    /// # Errors
    /// Every filter that can't be created, with the reason.
    pub fn new(
        filters: &Arc<FilterRuntime>,
        config: &[FilterConfig],
        folder: &Path,
        services: &ServiceSet,
    ) -> Result<Self, Vec<RefusedFilter>> {
        let mut plugins = Vec::with_capacity(config.len());
        let mut refused = Vec::new();
        for (index, filter_config) in config.iter().enumerate() {
            match FilterPlugin::new(filters, filter_config, folder, services) {
                Ok(plugin) => plugins.push((filter_config.priority, Arc::new(plugin))),
                Err(reason) => {
                    refused.push(RefusedFilter {
                        pointer: format!("/{index}{}", reason.config_pointer()),
                        reason,
                    });
                }
            }
        }
        if !refused.is_empty() {
            return Err(refused);
        }
        plugins.sort_by_key(|(priority, _)| std::cmp::Reverse(*priority));
        Ok(Self { plugins: plugins.into_iter().map(|(_, plugin)| plugin).collect() })
    }

    /// Starts background activity (timers, queues) once the chain is in force. Must be called within a
    /// runtime.
    pub fn start(&self) {
        self.plugins.iter().for_each(|plugin| plugin.start());
    }

    /// Whether the route has no filters.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.plugins.is_empty()
    }

    /// The number of bytes of a request's body that the filters may hold back together. Those without a
    /// callback for it hold none.
    #[must_use]
    pub fn request_buffer(&self) -> u64 {
        let reading = self
            .plugins
            .iter()
            .filter(|plugin| plugin.vm.core.module.features.reads_body(MessageSide::Request));
        let buffers = reading.map(|plugin| plugin.spec.limits.buffer.0);
        buffers.fold(0, u64::saturating_add)
    }

    /// The filters, in order.
    pub(crate) fn plugins(&self) -> &[Arc<FilterPlugin>] {
        &self.plugins
    }

    /// Passes a request through the filters to `handle`, and the response back through them. `handle` is not
    /// called when a filter answers the request itself, and is dropped when one answers while it is in
    /// flight. Filters see every response of `handle`, including errors: problems become responses inside of
    /// it. They call services with the request's own call context.
    ///
    /// The end of the streams (`proxy_on_done`, `proxy_on_log`, `proxy_on_delete`) comes when the response
    /// body is read to its end or dropped, or when this future is dropped.
    ///
    /// # Errors
    /// Returns the problem if a filter with `on_trap: closed` fails, or a filter holds back too much or for
    /// too long, or ends the exchange. Errors are returned only before the response begins; later its body
    /// breaks off.
    pub fn run_exchange<H, F>(
        self: &Arc<Self>,
        request: HandlerRequest,
        facts: ExchangeInfo,
        handle: H,
    ) -> impl Future<Output = Result<HandlerResponse, FilterFailure>> + use<H, F>
    where
        H: FnOnce(HandlerRequest) -> F,
        F: Future<Output = HandlerResponse>,
    {
        exchange_run::run(self, request, facts, handle)
    }
}
