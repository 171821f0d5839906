//! A filter of a route: a module with its configuration.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use services::{PermittedHosts, ServiceSet};

use super::callbacks::{EndRoot, OpenStream, PrepareRoot, StartTimer};
use super::entry::{CallbackFuture, CallbackTarget, EntryError, block_on};
use super::instance::NotReady;
use super::runtime::FilterRuntime;
use super::slot::InstanceSlot;
use super::stream::StreamGuard;
use super::{Vm, VmKey};
use crate::abi::FilterAction;
use crate::config::{self, FilterConfig, HostDialect};
use crate::context::PluginSpec;
use crate::error::FilterRefusalReason;
use crate::exchange::FilterExchange;

/// The next number for a filter that shares its instances with no other.
static NEXT_PRIVATE_NUMBER: AtomicU64 = AtomicU64::new(0);

/// A filter of a route. When it is dropped, its root contexts end.
pub(crate) struct FilterPlugin {
    pub(crate) spec: Arc<PluginSpec>,
    pub(crate) vm: Arc<Vm>,
}

impl FilterPlugin {
    /// Loads, starts and configures a filter. If the virtual machine already has instances, a separate one is
    /// used, since a bad configuration could take an existing instance down.
    ///
    /// # Errors
    /// The reason for which the filter can't be created.
    pub(crate) fn new(
        filters: &Arc<FilterRuntime>,
        config: &FilterConfig,
        folder: &Path,
        services: &ServiceSet,
    ) -> Result<Self, FilterRefusalReason> {
        static NEXT_PLUGIN_NUMBER: AtomicU64 = AtomicU64::new(0);
        let mut named = config.services.iter().flatten();
        if let Some(unknown) = named.find(|name| services.get(name).is_none()) {
            return Err(FilterRefusalReason::Service(unknown.clone()));
        }
        let hosts = PermittedHosts::new(&config.hosts)
            .map_err(|error| FilterRefusalReason::Host(error.to_string()))?;
        if config.dialect == HostDialect::Strict && !config.hosts.is_empty() {
            return Err(FilterRefusalReason::Host(
                "`dialect: strict` does not support `hosts`, as Envoy does not".to_owned(),
            ));
        }
        let module = filters.load_module(&folder.join(&config.wasm))?;
        let vm_config = config::configuration_bytes(&config.vm_config);
        let key = VmKey {
            module: module.key,
            vm_id: config.vm_id.clone(),
            vm_config: vm_config.clone(),
            memory: config.limits.memory.0,
            private_number: config.vm_id.is_empty().then(|| NEXT_PRIVATE_NUMBER.fetch_add(1, Relaxed)),
        };
        let spec = Arc::new(PluginSpec {
            number: NEXT_PLUGIN_NUMBER.fetch_add(1, Relaxed),
            name: config.name().into(),
            root_id: config.root_id.clone(),
            vm_id: config.vm_id.clone(),
            config: config::configuration_bytes(&config.config),
            vm_config,
            dialect: config.dialect,
            on_trap: config.on_trap,
            on_refusal: config.on_refusal,
            limits: config.limits,
            services: services.clone(),
            allowed_services: config.services.clone(),
            hosts,
            stats: filters.filter_stats(config.name()),
            is_started: AtomicBool::new(false),
            is_ended: AtomicBool::new(false),
        });
        let plugin = Self { spec, vm: filters.get_or_create_vm(key, &module) };
        plugin.check_startup()?;
        Ok(plugin)
    }

    fn check_startup(&self) -> Result<(), FilterRefusalReason> {
        let is_used = self.vm.slots.iter().any(|slot| slot.is_used());
        let slot = if is_used { InstanceSlot::new(&self.vm.core) } else { Arc::clone(self.vm.pick().0) };
        match block_on(slot.prepare_root(Arc::clone(&self.spec))) {
            Err(EntryError::NotReady(not_ready)) => Err(not_ready.into_reason()),
            Err(EntryError::InstanceLost | EntryError::QueueFull | EntryError::OverQuota(_)) => {
                Err(FilterRefusalReason::Start("it trapped just now".to_owned()))
            }
            Ok(()) => Ok(()),
        }
    }

    /// Starts background activity: an instance with the filter in it, and the filter's timers, including
    /// those in instances that requests have created before.
    pub(crate) fn start(&self) {
        self.spec.is_started.store(true, Relaxed);
        let used = self.vm.slots.iter().find(|slot| slot.is_used());
        if let Some(slot) = used.or(self.vm.slots.first()) {
            drop(slot.enter(CallbackTarget::WithRoot(Arc::clone(&self.spec)), PrepareRoot));
        }
        for slot in &self.vm.slots {
            drop(slot.enter(CallbackTarget::Current, StartTimer(Arc::clone(&self.spec))));
        }
    }

    /// Opens a stream context for an exchange in one of the instances, and returns it with the module's
    /// result for the request's head.
    pub(crate) fn open_stream(
        &self,
        exchange: &Arc<FilterExchange>,
        count: u32,
        is_end: bool,
    ) -> CallbackFuture<(StreamGuard, FilterAction)> {
        let (slot, state) = self.vm.pick();
        let (spec, exchange) = (Arc::clone(&self.spec), Arc::clone(exchange));
        let (target, open) =
            (CallbackTarget::WithRoot(Arc::clone(&spec)), OpenStream { spec, exchange, count, is_end });
        match state {
            Some(state) => CallbackFuture::begin(state, target, open),
            None => slot.enter(target, open),
        }
    }

    /// Logs the reason for a missing instance, unless it has been logged already.
    pub(crate) fn log_missing_instance(&self, error: EntryError) {
        if let EntryError::NotReady(not_ready @ (NotReady::Trapped(_) | NotReady::Refused(_))) = error {
            let reason = not_ready.into_reason();
            tracing::error!(target: "filter", filter = &*self.spec.name, code = reason.code(), "{reason}");
        }
    }
}

impl Drop for FilterPlugin {
    fn drop(&mut self) {
        self.spec.is_ended.store(true, Relaxed);
        for slot in self.vm.slots.iter().filter(|slot| slot.is_used()) {
            drop(slot.enter(CallbackTarget::Current, EndRoot(Arc::clone(&self.spec))));
        }
    }
}

impl std::fmt::Debug for FilterPlugin {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("FilterPlugin").field("name", &self.spec.name).finish_non_exhaustive()
    }
}
