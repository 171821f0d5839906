//! A virtual machine: instances of one module with their life cycle, entry and callbacks.
//!
//! There are as many slots for instances as threads, and most stay empty: another instance is created only
//! when all existing ones are busy. A context belongs to its slot, so a later callback waits for that slot's
//! lock, in a queue.
//!
//! The modules of this folder are one unit. The runtime finds virtual machines, and a virtual machine refers
//! to its runtime. A slot owns its instance, whose streams refer to the slot, and a callback that enters the
//! slot may create the instance first. What needs no instance is below: `host` and `context`.

mod callbacks;
mod entry;
mod exports;
mod instance;
mod module;
mod plugin;
mod restarts;
mod runtime;
mod slot;
mod stream;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use bytes::Bytes;

use self::module::FilterModule;
use self::slot::{InstanceSlot, StateGuard};
use crate::host::HostResources;

pub(crate) use self::callbacks::{BodyCallback, HeadersCallback, TrailersCallback};
pub(crate) use self::entry::{CallbackFuture, EntryError};
#[cfg(test)]
pub(crate) use self::instance::MAX_LINGERING;
pub(crate) use self::instance::NotReady;
pub(crate) use self::plugin::FilterPlugin;
pub use self::runtime::{FilterRuntime, FilterStartError};
pub(crate) use self::slot::BackOff;
#[cfg(test)]
pub(crate) use self::slot::MAX_WAITING;
pub(crate) use self::stream::{StreamGuard, StreamHandle};

/// The key of filters that share instances.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct VmKey {
    pub(crate) module: sandbox::CacheKey,
    pub(crate) vm_id: String,
    pub(crate) vm_config: Bytes,
    pub(crate) memory: u64,
    /// A unique number if the filter has no `vm_id`, so that its traps end no other filter's requests.
    pub(crate) private_number: Option<u64>,
}

/// A virtual machine.
pub(crate) struct Vm {
    pub(crate) core: Arc<VmCore>,
    pub(crate) slots: Vec<Arc<InstanceSlot>>,
}

/// The part of a virtual machine that its instances need.
pub(crate) struct VmCore {
    pub(crate) filters: Arc<FilterRuntime>,
    pub(crate) module: Arc<FilterModule>,
    pub(crate) resources: Arc<HostResources>,
}

impl Vm {
    pub(crate) fn new(filters: &Arc<FilterRuntime>, key: &VmKey, module: &Arc<FilterModule>) -> Arc<Self> {
        let resources = Arc::new(HostResources {
            abi: module.abi,
            gate: filters.gate.clone(),
            observer: filters.observer.clone(),
            metrics: Arc::clone(&filters.metrics),
            queues: Arc::clone(&filters.queues),
            shared: filters.shared_data(&key.vm_id),
            memory: key.memory,
        });
        let core = Arc::new(VmCore { filters: Arc::clone(filters), module: Arc::clone(module), resources });
        let slots = (0..filters.max_instances.get()).map(|_| InstanceSlot::new(&core)).collect();
        Arc::new(Self { core, slots })
    }

    /// Picks a slot for a new request, with its state if it is free: this thread's own or another one that
    /// has an instance, or else an unused one. If none is free, the one with the shortest queue is picked. A
    /// slot in back-off is picked only if no other is in use, since a module that traps everywhere must not
    /// do so in more and more slots.
    pub(crate) fn pick(&self) -> (&Arc<InstanceSlot>, Option<StateGuard>) {
        let own = thread_number() % self.slots.len().max(1);
        if let Some(slot) = self.slots.get(own).filter(|slot| slot.is_used())
            && let Some(state) = slot.try_lock_state()
            && state.is_ready()
        {
            return (slot, Some(state));
        }
        let order = || self.slots.iter().cycle().skip(own).take(self.slots.len());
        let (mut waiting, mut is_busy) = (None, false);
        for slot in order().filter(|slot| slot.is_used()) {
            match slot.try_lock_state() {
                Some(state) if state.is_ready() => return (slot, Some(state)),
                Some(state) => waiting = waiting.or(Some((slot, state))),
                None => is_busy = true,
            }
        }
        if !is_busy && let Some((slot, state)) = waiting {
            return (slot, Some(state));
        }
        let unused =
            order().filter(|slot| !slot.is_used()).find_map(|slot| Some((slot, slot.try_lock_state()?)));
        if let Some((slot, state)) = unused {
            return (slot, Some(state));
        }
        // There is at least one slot: the number of threads is not zero.
        let shortest = order().min_by_key(|slot| slot.waiting_count());
        (shortest.unwrap_or(&self.slots[0]), None)
    }
}

/// A small number that is unique to this thread.
fn thread_number() -> usize {
    static NEXT_THREAD_NUMBER: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static NUMBER: usize = NEXT_THREAD_NUMBER.fetch_add(1, Relaxed);
    }
    NUMBER.with(|number| *number)
}
