//! WebAssembly for the rest of the house: the only crate whose Cargo.toml names wasmtime.
//!
//! It knows engines, pools, limits and time, and no ABI. A [`Sandbox`] is one engine for one [`Class`]
//! of guests with its own pool, because what a C query and a JavaScript query keep resident differs by
//! a factor of four. [`Metered`] charges a guest for the CPU time of its polls; the [`Ticker`] only makes
//! it yield, and where that is late the alarm of its thread does ([`with_alarm`]). Before guests run they stand in a
//! [`Line`]. Compiled code is kept in a [`Cache`] and on [`Disk`]. [`snapshot()`] and [`precompile`] are what
//! `environments/build.rs` does at build time.
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod alarm;
mod cache;
mod class;
mod discard;
mod disk;
mod engine;
mod line;
mod meter;
mod room;
mod snapshot;
mod steps;
mod ticker;

pub use alarm::with_alarm;
pub use cache::{Cache, CacheStats, Key, OwnerId};
pub use class::{Class, Pool};
pub use discard::discard_memory;
pub use disk::{Content, Disk, DiskError, Kept, Label, Name, secret_in};
pub use engine::{Error, Sandbox, precompile};
pub use line::{Line, Place, TooLong};
pub use meter::{Gate, Metered, OverCpu, TurnPermit};
pub use offload::CpuClock;
pub use room::{has_address_space, memory_limit};
pub use snapshot::snapshot;
pub use ticker::{Running, Ticker};

/// The parts of wasmtime that the level above builds on.
pub use wasmtime::{
    AsContext, AsContextMut, Caller, Engine, Error as Trapped, ExportType, Extern, ExternType, Func,
    ImportType, Instance, InstancePre, Linker, Memory, Module, ModuleExport, Ref, ResourceLimiter,
    Result as GuestResult, Store, StoreContextMut, Table, Trap, TypedFunc, UpdateDeadline, ValType,
    WasmParams, WasmResults,
};
