//! WebAssembly support for all other crates: the only crate that depends on wasmtime.
//!
//! This crate contains engines, pools, limits and CPU metering, and no ABI. A [`Sandbox`] is one engine for
//! one [`GuestClass`] of guests with its own pool, since the resident memory of a C query and of a JavaScript
//! query differs by a factor of four. [`MeteredFuture`] charges a guest for the CPU time of its polls; the
//! [`EpochTicker`] only makes it yield, and if the ticker is late, the thread's alarm does ([`with_alarm`]).
//! A [`RunQueue`] is the run queue of guests. Compiled code is cached in an [`ItemCache`] and on
//! [`DiskCache`]. [`snapshot()`] and [`precompile`] are used by `environments/build.rs` at build time.
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod alarm;
mod cache;
mod class;
mod discard;
mod disk;
mod engine;
mod instrumentation;
mod meter;
mod resource_limits;
mod run_queue;
mod snapshot;
mod ticker;

pub use alarm::with_alarm;
pub use cache::{CacheKey, CacheStats, ItemCache, OwnerId};
pub use class::{GuestClass, PoolSize};
pub use discard::discard_memory;
pub use disk::{DiskCache, DiskEntry, DiskEntryContent, DiskEntryLabel, DiskEntryName, DiskError, secret_in};
pub use engine::{Sandbox, SandboxError, precompile};
pub use meter::{HeavyGate, MeteredFuture, OverCpu, TurnPermit};
pub use offload::CpuClock;
pub use resource_limits::{has_address_space, memory_limit};
pub use run_queue::{RunPermit, RunQueue, RunQueueFull, RunTicket};
pub use snapshot::snapshot;
pub use ticker::{EpochTicker, RunningGuest};

/// The parts of wasmtime that dependent crates use.
pub use wasmtime::{
    AsContext, AsContextMut, Caller, Engine, Error as Trapped, ExportType, Extern, ExternType, Func,
    ImportType, Instance, InstancePre, Linker, Memory, Module, ModuleExport, Ref, ResourceLimiter,
    Result as GuestResult, Store, StoreContextMut, Table, Trap, TypedFunc, UpdateDeadline, ValType,
    WasmParams, WasmResults,
};
