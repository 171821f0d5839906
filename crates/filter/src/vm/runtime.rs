//! State that all filters of a process share: the engine, loaded modules, virtual machines, data, queues,
//! metrics.

use std::collections::HashMap;
use std::num::NonZero;
use std::path::Path;
use std::sync::{Arc, Mutex, Weak};
use std::thread::available_parallelism;
use std::time::Duration;

use offload::OffloadConfig;
use sandbox::{EpochTicker, GuestClass, HeavyGate, InstancePre, Linker, Sandbox};

use super::module::FilterModule;
use super::restarts::RestartQuota;
use super::{Vm, VmKey};
use crate::error::FilterRefusalReason;
use crate::host::{self, FilterHost, shim};
use crate::shared::{SharedData, SharedQueues};
use crate::sync::lock;
use crate::telemetry::{FilterCounters, FilterMetric, FilterMetrics, FilterObserver, FilterStats};

/// The runtime of all filters. There is one per process: a reload reuses it, with the data that modules
/// share.
pub struct FilterRuntime {
    sandbox: Sandbox,
    pub(crate) linker: Linker<FilterHost>,
    pub(crate) shim: InstancePre<FilterHost>,
    pub(crate) ticker: EpochTicker,
    pub(crate) gate: HeavyGate,
    pub(crate) restart_quota: RestartQuota,
    /// The maximum number of instances of a virtual machine.
    pub(crate) max_instances: NonZero<usize>,
    pub(crate) observer: Option<Arc<dyn FilterObserver>>,
    pub(crate) metrics: Arc<FilterMetrics>,
    modules: Mutex<HashMap<sandbox::CacheKey, Weak<FilterModule>>>,
    vms: Mutex<HashMap<VmKey, Weak<Vm>>>,
    shared: Mutex<HashMap<String, Arc<SharedData>>>,
    pub(crate) queues: Arc<SharedQueues>,
    stats: Mutex<HashMap<String, Arc<FilterCounters>>>,
}

/// The reasons for which filters are not available at all.
#[derive(Debug, thiserror::Error)]
pub enum FilterStartError {
    /// The engine does not start.
    #[error(transparent)]
    Sandbox(#[from] sandbox::SandboxError),
    /// The host functions can't be linked.
    #[error("the host functions can't be linked: {0}")]
    Link(String),
    /// The thread of the epoch ticker can't be started.
    #[error("the thread of the epoch ticker can't be started: {0}")]
    Thread(#[from] std::io::Error),
}

impl FilterRuntime {
    /// Creates an engine without modules. Long callbacks take turns at the gate, shared with other guests or
    /// their own. `restarts` is the CPU time for restarts that the traps of one client's requests may cause
    /// in ten seconds.
    ///
    /// # Errors
    /// Fails if the system refuses a thread.
    pub fn new(gate: Option<HeavyGate>, restarts: Duration) -> Result<Arc<Self>, FilterStartError> {
        let gate = gate.unwrap_or_else(|| HeavyGate::new(thread_count().get()));
        Self::build(None, gate, thread_count(), restarts)
    }

    /// Creates an engine with an observer of every callback and every host call.
    ///
    /// # Errors
    /// Fails if the system refuses a thread.
    pub fn with_observer(observer: Arc<dyn FilterObserver>) -> Result<Arc<Self>, FilterStartError> {
        Self::build(
            Some(observer),
            HeavyGate::new(thread_count().get()),
            thread_count(),
            OffloadConfig::default().quota,
        )
    }

    pub(crate) fn build(
        observer: Option<Arc<dyn FilterObserver>>,
        gate: HeavyGate,
        threads: NonZero<usize>,
        restarts: Duration,
    ) -> Result<Arc<Self>, FilterStartError> {
        let sandbox = Sandbox::unpooled(GuestClass::Filter)?;
        let engine = sandbox.engine();
        let cannot_link = |error| FilterStartError::Link(format!("{error:#}"));
        let mut linker = Linker::new(engine);
        host::add_host_functions(&mut linker).map_err(cannot_link)?;
        let shim = sandbox.compile(&shim::encode_shim(host::GIVING))?;
        let shim =
            host::halves(engine).and_then(|halves| halves.instantiate_pre(&shim)).map_err(cannot_link)?;
        let ticker = EpochTicker::start(&[engine])?;
        Ok(Arc::new(Self {
            sandbox,
            linker,
            shim,
            ticker,
            gate,
            restart_quota: RestartQuota::new(restarts),
            max_instances: threads,
            observer,
            metrics: Arc::default(),
            modules: Mutex::default(),
            vms: Mutex::default(),
            shared: Mutex::default(),
            queues: Arc::default(),
            stats: Mutex::default(),
        }))
    }

    /// The metrics that modules have defined, in alphabetical order.
    #[must_use]
    pub fn metrics(&self) -> Vec<FilterMetric> {
        self.metrics.snapshot()
    }

    /// The host's counters of each filter, in alphabetical order of their names.
    #[must_use]
    pub fn stats(&self) -> Vec<FilterStats> {
        let mut all: Vec<_> = lock(&self.stats).iter().map(|(name, stats)| stats.snapshot(name)).collect();
        all.sort_by(|a, b| a.filter.cmp(&b.filter));
        all
    }

    /// Returns the module in a file, compiled once per content while it is in use.
    pub(crate) fn load_module(&self, path: &Path) -> Result<Arc<FilterModule>, FilterRefusalReason> {
        let bytes =
            std::fs::read(path).map_err(|error| FilterRefusalReason::Unreadable(error.to_string()))?;
        let key = FilterModule::key(&bytes);
        if let Some(filter_module) = lock(&self.modules).get(&key).and_then(Weak::upgrade) {
            return Ok(filter_module);
        }
        let module = Arc::new(FilterModule::load(key, &bytes, &self.sandbox, &self.linker)?);
        let mut modules = lock(&self.modules);
        modules.retain(|_, module| module.strong_count() > 0);
        modules.insert(key, Arc::downgrade(&module));
        Ok(module)
    }

    /// Returns the virtual machine with this key, created from the module if there is none.
    pub(crate) fn get_or_create_vm(self: &Arc<Self>, key: VmKey, module: &Arc<FilterModule>) -> Arc<Vm> {
        let mut vms = lock(&self.vms);
        if let Some(known) = vms.get(&key).and_then(Weak::upgrade) {
            return known;
        }
        vms.retain(|_, vm| vm.strong_count() > 0);
        let vm = Vm::new(self, &key, module);
        vms.insert(key, Arc::downgrade(&vm));
        vm
    }

    /// The data that filters with this `vm_id` share.
    pub(crate) fn shared_data(&self, vm_id: &str) -> Arc<SharedData> {
        Arc::clone(lock(&self.shared).entry(vm_id.to_owned()).or_default())
    }

    /// The number of callbacks that wait for an instance.
    #[cfg(test)]
    pub(crate) fn waiting_callbacks(&self) -> usize {
        let vms = lock(&self.vms);
        vms.values()
            .filter_map(Weak::upgrade)
            .flat_map(|vm| vm.slots.clone())
            .map(|slot| slot.waiting_count())
            .sum()
    }

    /// The counters of the filters of this name, which outlive a reload.
    pub(crate) fn filter_stats(&self, name: &str) -> Arc<FilterCounters> {
        Arc::clone(lock(&self.stats).entry(name.to_owned()).or_default())
    }
}

impl std::fmt::Debug for FilterRuntime {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("FilterRuntime").finish_non_exhaustive()
    }
}

fn thread_count() -> NonZero<usize> {
    available_parallelism().unwrap_or(NonZero::<usize>::MIN)
}
