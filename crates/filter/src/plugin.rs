//! A filter of a route: a module with what it was configured with.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use bytes::Bytes;
use services::{Hosts, Services};

use crate::abi::{Action, Side};
use crate::config::{self, Dialect, FilterConfig, FilterLimits, OnTrap};
use crate::filters::Filters;
use crate::instance::NotReady;
use crate::messages::Exchange;
use crate::refused::Reason;
use crate::slot::{Gone, Slot};
use crate::stats::{Stats, count};
use crate::stream::Stream;
use crate::vm::{Vm, VmKey};

/// Numbers of filters that share their instances with none.
static NUMBERS: AtomicU64 = AtomicU64::new(0);

/// A filter of a route. When it is dropped, its root contexts end.
pub(crate) struct Plugin {
    pub(crate) spec: Arc<Spec>,
    vm: Arc<Vm>,
}

/// What was configured, and what of it the host needs at every turn.
pub(crate) struct Spec {
    /// Which plugin it is: no other of this process has the number.
    pub(crate) number: u64,
    pub(crate) name: Arc<str>,
    pub(crate) root_id: String,
    pub(crate) vm_id: String,
    pub(crate) config: Bytes,
    pub(crate) vm_config: Bytes,
    pub(crate) dialect: Dialect,
    pub(crate) on_trap: OnTrap,
    pub(crate) limits: FilterLimits,
    pub(crate) services: Services,
    /// The services that it may call; `None` for all.
    pub(crate) open: Option<Vec<String>>,
    /// What it may call beside them.
    pub(crate) hosts: Hosts,
    pub(crate) stats: Arc<Stats>,
    /// Whether what goes on beside requests may begin, and whether it has to end.
    pub(crate) started: AtomicBool,
    pub(crate) ended: AtomicBool,
}

impl Plugin {
    /// Loads, starts and configures. That is tried on an instance of its own if there are others already, which
    /// a bad configuration could take down.
    ///
    /// # Errors
    /// Why there can be none.
    pub(crate) fn new(
        filters: &Arc<Filters>,
        config: &FilterConfig,
        folder: &Path,
        services: &Services,
    ) -> Result<Self, Reason> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let mut named = config.services.iter().flatten();
        if let Some(unknown) = named.find(|name| services.get(name).is_none()) {
            return Err(Reason::Service(unknown.clone()));
        }
        let hosts = Hosts::new(&config.hosts).map_err(|error| Reason::Host(error.to_string()))?;
        if config.dialect == Dialect::Strict && !config.hosts.is_empty() {
            return Err(Reason::Host("`dialect: strict` knows no hosts, as Envoy knows none".to_owned()));
        }
        let module = filters.module(&folder.join(&config.wasm))?;
        let vm_config = config::bytes(&config.vm_config);
        let key = VmKey {
            module: module.key,
            vm_id: config.vm_id.clone(),
            vm_config: vm_config.clone(),
            memory: config.limits.memory.0,
            alone: config.vm_id.is_empty().then(|| NUMBERS.fetch_add(1, Relaxed)),
        };
        let spec = Arc::new(Spec {
            number: NEXT.fetch_add(1, Relaxed),
            name: config.name().into(),
            root_id: config.root_id.clone(),
            vm_id: config.vm_id.clone(),
            config: config::bytes(&config.config),
            vm_config,
            dialect: config.dialect,
            on_trap: config.on_trap,
            limits: config.limits,
            services: services.clone(),
            open: config.services.clone(),
            hosts,
            stats: filters.stats_of(config.name()),
            started: AtomicBool::new(false),
            ended: AtomicBool::new(false),
        });
        let plugin = Self { spec, vm: filters.vm(key, &module) };
        plugin.try_out()?;
        Ok(plugin)
    }

    fn try_out(&self) -> Result<(), Reason> {
        let result = if self.vm.slots.iter().any(|slot| slot.is_used()) {
            let aside = Slot::new(&self.vm.core);
            aside.prepare(aside.lock(), &self.spec).map(drop)
        } else {
            let (slot, state) = self.vm.pick();
            slot.prepare(state, &self.spec).map(drop)
        };
        result.map_err(NotReady::into_reason)
    }

    /// Begins what goes on beside requests: an instance with the filter in it, and its timers, also those in
    /// instances that requests have made before.
    pub(crate) fn start(&self) {
        self.spec.started.store(true, Relaxed);
        let used = self.vm.slots.iter().filter(|slot| slot.is_used());
        let slots: Vec<_> = used.chain(self.vm.slots.first()).take(1).collect();
        for slot in slots {
            drop(slot.prepare(slot.lock(), &self.spec));
        }
        for slot in &self.vm.slots {
            let state = slot.lock();
            if state.has_instance() {
                let _ = slot.run(state, |instance| {
                    instance.start_timer(&self.spec);
                    Ok(())
                });
            }
        }
    }

    /// A stream context for an exchange, in one of the instances, and what it says to the request's head: one
    /// turn at the instance for both.
    ///
    /// # Errors
    /// When there is no instance to be had, or it traps.
    pub(crate) fn open(
        &self,
        exchange: &Arc<Exchange>,
        number: u32,
        is_end: bool,
    ) -> Result<(Arc<Stream>, Action), Gone> {
        let (slot, state) = self.vm.pick();
        let state = slot.prepare(state, &self.spec).map_err(|not_ready| self.missing(not_ready))?;
        count(&self.spec.stats.requests);
        slot.run(state, |instance| {
            let stream = instance.open(&self.spec, exchange)?;
            let action = instance.on_headers(&stream, Side::Request, number, is_end)?;
            Ok((stream, action))
        })
    }
}

impl Plugin {
    /// Tells the log why there is no instance, unless it has heard of it.
    fn missing(&self, not_ready: NotReady) -> Gone {
        if !matches!(not_ready, NotReady::Later) {
            let reason = not_ready.into_reason();
            tracing::error!(target: "filter", filter = &*self.spec.name, code = reason.code(), "{reason}");
        }
        Gone
    }
}

impl Drop for Plugin {
    fn drop(&mut self) {
        self.spec.ended.store(true, Relaxed);
        for slot in self.vm.slots.iter().filter(|slot| slot.is_used()) {
            let state = slot.lock();
            if state.has_instance() {
                let _ = slot.run(state, |instance| instance.retire(&self.spec));
            }
        }
    }
}

impl std::fmt::Debug for Plugin {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Plugin").field("name", &self.spec.name).finish_non_exhaustive()
    }
}

impl Spec {
    /// Whether it may call this service.
    pub(crate) fn opens(&self, service: &str) -> bool {
        self.open.as_ref().is_none_or(|open| open.iter().any(|name| name.eq_ignore_ascii_case(service)))
    }
}
