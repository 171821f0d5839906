//! The engine of each class: its settings, its instance pool, compilation, and loading of precompiled code.

use wasmtime::{Config, Enabled, Engine, InstanceAllocationStrategy, Module, PoolingAllocationConfig};

use crate::class::{GuestClass, PoolSize, STACK_KEEP_RESIDENT, TABLE_KEEP_RESIDENT};
use crate::disk::DiskEntry;
use crate::instrumentation::{add_yield_checks, split_bulk_operations};

/// Stack for host functions, which run on the guest's stack, beyond the guest's own limit.
const HOST_STACK: usize = 256 << 10;
/// The maximum number of table slots of a guest: 255 of its own, and the environment's.
const TABLE_ELEMENTS: usize = 10_000;

/// The number of warm slots that are reserved for further guests of the same module, before a slot of another
/// module is reused. Small, so that an idle gateway keeps using the same slots.
const WARM_SLOTS: u32 = 32;

/// An engine and its pool, for one class of guests.
#[derive(Clone, Debug)]
pub struct Sandbox {
    engine: Engine,
    class: GuestClass,
}

/// The reason why an engine or a module could not be created.
#[derive(Debug, thiserror::Error)]
#[error("{what}: {source:#}")]
pub struct SandboxError {
    what: &'static str,
    source: wasmtime::Error,
}

impl Sandbox {
    /// Reserves the pool and creates the engine.
    ///
    /// # Errors
    /// If the system refuses the address space that the pool needs.
    pub fn new(class: GuestClass, pool: PoolSize) -> Result<Self, SandboxError> {
        let engine =
            Engine::new(&pooled_config(class, pool)).map_err(SandboxError::with_context(NO_ENGINE))?;
        Ok(Self { engine, class })
    }

    /// Creates an engine for long-lived guests, without a pool: each guest allocates its memory from the
    /// system and frees it when it is dropped.
    ///
    /// # Errors
    /// If the engine can't generate code for this machine.
    pub fn unpooled(class: GuestClass) -> Result<Self, SandboxError> {
        let engine = Engine::new(&codegen_config(class)).map_err(SandboxError::with_context(NO_ENGINE))?;
        Ok(Self { engine, class })
    }

    /// Returns the class of its guests.
    #[must_use]
    pub fn class(&self) -> GuestClass {
        self.class
    }

    /// Returns the engine, for linkers and stores.
    #[must_use]
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Validates and compiles a module. Bulk memory operations are compiled in steps. Takes milliseconds, so
    /// call it outside of request threads.
    ///
    /// # Errors
    /// If the module is not valid WebAssembly, or uses a disabled feature.
    pub fn compile(&self, wasm: &[u8]) -> Result<Module, SandboxError> {
        let module = Module::from_binary(&self.engine, &split_bulk_operations(wasm));
        module.and_then(initialize_image).map_err(SandboxError::with_context(NOT_COMPILED))
    }

    /// Like [`Sandbox::compile`], for a client's module, which also yields before each call of the host and
    /// within long code without loops. `environment` is the name by which it imports functions of another
    /// module; all other imports are the host's.
    ///
    /// # Errors
    /// As for [`Sandbox::compile`].
    pub fn compile_untrusted(&self, wasm: &[u8], environment: Option<&str>) -> Result<Module, SandboxError> {
        let module = add_yield_checks(wasm, environment).map_err(wasmtime::Error::new);
        let module = module.and_then(|wasm| Module::from_binary(&self.engine, &wasm));
        module.and_then(initialize_image).map_err(SandboxError::with_context(NOT_COMPILED))
    }

    /// Loads a module that [`precompile`] produced when this program was built. Compiles it again if this
    /// machine does not match.
    ///
    /// # Errors
    /// If neither works, which means that this program was built incorrectly.
    pub fn load(&self, precompiled: &'static [u8], wasm: &'static [u8]) -> Result<Module, SandboxError> {
        // SAFETY: `deserialize` runs the machine code that it is given. These bytes are `'static`:
        // `precompile` produced them in the build script, and they are part of this executable, so an
        // attacker that could change them could change the program itself. wasmtime checks version, settings
        // and CPU features, and rejects code that does not match.
        #[expect(unsafe_code, reason = "compiled code that is part of this executable")]
        let loaded = unsafe { Module::deserialize(&self.engine, precompiled) };
        loaded.or_else(|_| self.compile(wasm))
    }

    /// Copies a module from another engine of the same class to this engine.
    #[must_use]
    pub fn copy_module(&self, module: &Module) -> Option<Module> {
        let code = module.serialize().ok()?;
        // SAFETY: `deserialize` runs the machine code that it is given. This is the code of a module that
        // this process runs already, and the bytes never left this function. wasmtime checks version,
        // settings and CPU features.
        #[expect(unsafe_code, reason = "compiled code that this process runs already")]
        let loaded = unsafe { Module::deserialize(&self.engine, &code) };
        loaded.and_then(initialize_image).ok()
    }

    /// Loads a module from a [`crate::DiskCache`]. Returns `None` if it was compiled by another version or
    /// for another machine.
    #[must_use]
    pub fn restore(&self, disk_entry: &DiskEntry) -> Option<Module> {
        // SAFETY: `deserialize` runs the machine code that it is given. Only `DiskCache::read` creates a
        // `DiskEntry`, after checking that a gateway with this gateway's secret wrote exactly these bytes, in
        // a folder that belongs to its user and is closed to all others. `DiskCache::write` marks as code
        // only the output of `Module::serialize`. wasmtime checks version, settings and CPU features, and
        // rejects code that does not match.
        #[expect(unsafe_code, reason = "compiled code that this gateway wrote itself, authenticated")]
        let loaded = unsafe { Module::deserialize(&self.engine, disk_entry.code()?) };
        loaded.and_then(initialize_image).ok()
    }
}

/// Compiles a module for a class, to be embedded and loaded with [`Sandbox::load`].
///
/// # Errors
/// If the module does not compile.
pub fn precompile(class: GuestClass, wasm: &[u8]) -> Result<Vec<u8>, SandboxError> {
    let engine = Engine::new(&codegen_config(class)).map_err(SandboxError::with_context(NO_ENGINE))?;
    engine.precompile_module(&split_bulk_operations(wasm)).map_err(SandboxError::with_context(NOT_COMPILED))
}

const NO_ENGINE: &str = "the engine can't be created";
const NOT_COMPILED: &str = "the module does not compile";

/// Makes the image of a module's initial memory, which may have 16 MiB. Otherwise its first instance would do
/// it, on a request thread.
fn initialize_image(module: Module) -> wasmtime::Result<Module> {
    module.initialize_copy_on_write_image()?;
    Ok(module)
}

impl SandboxError {
    /// Whether the system refused the resources of a pool, so that a smaller one may fit.
    #[must_use]
    pub fn is_out_of_resources(&self) -> bool {
        self.what == NO_ENGINE
    }

    pub(crate) fn with_context(what: &'static str) -> impl FnOnce(wasmtime::Error) -> Self {
        move |source| Self { what, source }
    }
}

/// Returns the settings that affect compiled code. Programs must behave the same on all machines, or
/// recordings could not be replayed: NaNs are canonicalised, relaxed SIMD is disabled, and threads are not
/// compiled in.
fn codegen_config(class: GuestClass) -> Config {
    let mut config = Config::new();
    // Compilation uses only the calling low-priority thread, and not all cores.
    config
        .parallel_compilation(false)
        .epoch_interruption(true)
        .cranelift_nan_canonicalization(true)
        .wasm_relaxed_simd(false)
        .wasm_memory64(false)
        .concurrency_support(false)
        .memory_init_cow(true)
        .max_wasm_stack(class.stack_size())
        .async_stack_size(class.stack_size() + HOST_STACK);
    config
}

fn pooled_config(class: GuestClass, pool: PoolSize) -> Config {
    let mut config = codegen_config(class);
    config.allocation_strategy(InstanceAllocationStrategy::Pooling(pooling_config(class, pool)));
    config
}

fn pooling_config(class: GuestClass, pool: PoolSize) -> PoolingAllocationConfig {
    let mut pooling = PoolingAllocationConfig::new();
    pooling
        .total_core_instances(pool.instances * class.instances_per_guest())
        .total_memories(pool.instances)
        .total_tables(pool.instances)
        .total_stacks(pool.instances)
        .max_memory_size(pool.memory)
        .table_elements(TABLE_ELEMENTS)
        .max_unused_warm_slots(WARM_SLOTS)
        .linear_memory_keep_resident(class.keep_resident())
        .table_keep_resident(TABLE_KEEP_RESIDENT)
        .async_stack_keep_resident(STACK_KEEP_RESIDENT)
        .pagemap_scan(Enabled::Auto);
    pooling
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use super::*;

    /// Returns the number of this process's memory images of a size.
    fn count_images(bytes: u64) -> usize {
        let files = std::fs::read_dir("/proc/self/fd").unwrap().filter_map(Result::ok);
        let is_image = |file: &std::fs::DirEntry| {
            let name = std::fs::read_link(file.path()).unwrap_or_default();
            let size = std::fs::metadata(file.path()).map_or(0, |data| data.len());
            name.to_string_lossy().contains("memory-image") && size == bytes
        };
        files.filter(is_image).count()
    }

    #[test]
    fn makes_the_memory_image_of_a_module_when_it_is_compiled() {
        let text = r#"(module (memory 100) (func) (data (i32.const 0) "a") (data (i32.const 3014655) "b"))"#;
        let wasm = wat::parse_str(text).unwrap();
        let sandbox = Sandbox::unpooled(GuestClass::Plain).unwrap();
        let bytes = 3_014_656;
        assert_eq!(count_images(bytes), 0);
        let module = sandbox.compile(&wasm).unwrap();
        let untrusted = sandbox.compile_untrusted(&wasm, None).unwrap();
        assert_eq!(count_images(bytes), 2);
        let again = sandbox.copy_module(&module).unwrap();
        assert_eq!(count_images(bytes), 3);
        drop((module, untrusted, again));
    }
}
