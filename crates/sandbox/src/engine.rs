//! One engine per class: its settings, compiling, and loading what was compiled at build time.

use wasmtime::{Config, Enabled, Engine, InstanceAllocationStrategy, Module, PoolingAllocationConfig};

use crate::class::{Class, Pool, STACK_KEPT, TABLE_KEPT};
use crate::disk::Kept;
use crate::steps::in_steps;

/// Host functions run on the guest's stack: room for them beyond what the guest may use.
const HOST_STACK: usize = 256 << 10;
/// The most table slots of a guest: 255 of its own and the environment's.
const TABLE_ELEMENTS: usize = 10_000;

/// Used slots that wait for the next guest of the same module, before a slot of another module is taken:
/// few, so that a quiet gateway goes on using the same ones.
const WARM_SLOTS: u32 = 32;

/// An engine and its pool.
#[derive(Clone, Debug)]
pub struct Sandbox {
    engine: Engine,
    class: Class,
}

/// Why a module could not be made ready.
#[derive(Debug, thiserror::Error)]
#[error("{what}: {source:#}")]
pub struct Error {
    what: &'static str,
    source: wasmtime::Error,
}

impl Sandbox {
    /// Reserves the pool and makes the engine.
    ///
    /// # Errors
    /// When the system refuses the address space that the pool needs.
    pub fn new(class: Class, pool: Pool) -> Result<Self, Error> {
        let engine = Engine::new(&config(class, pool)).map_err(Error::because(NO_ENGINE))?;
        Ok(Self { engine, class })
    }

    /// An engine whose guests live long: each gets its memory from the system when it is made, and gives it
    /// back when it is gone. Nothing is reserved for others.
    ///
    /// # Errors
    /// When the machine is none that code can be compiled for.
    pub fn unpooled(class: Class) -> Result<Self, Error> {
        let engine = Engine::new(&settings(class)).map_err(Error::because(NO_ENGINE))?;
        Ok(Self { engine, class })
    }

    /// The class of its guests.
    #[must_use]
    pub fn class(&self) -> Class {
        self.class
    }

    /// The engine itself, for linkers and stores.
    #[must_use]
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Validates and compiles a module, whose bulk memory is done in steps. It takes milliseconds: call it off the request threads.
    ///
    /// # Errors
    /// When the module is not valid WebAssembly, or uses a feature that is switched off.
    pub fn compile(&self, wasm: &[u8]) -> Result<Module, Error> {
        Module::from_binary(&self.engine, &in_steps(wasm))
            .map_err(Error::because("the module does not compile"))
    }

    /// Loads a module that [`precompile`] made when this program was built; compiles it afresh where the
    /// machine is not the one that it was made for.
    ///
    /// # Errors
    /// When neither works: this program was built wrongly.
    pub fn load(&self, precompiled: &'static [u8], wasm: &'static [u8]) -> Result<Module, Error> {
        // SAFETY: `deserialize` runs the machine code that it is given. These bytes are `'static`: they
        // were made by `precompile` in the build script and are part of this very executable, so whoever
        // could change them could change the program itself. wasmtime checks version, settings and CPU
        // features, and refuses what does not fit.
        #[expect(unsafe_code, reason = "compiled code that is part of this executable")]
        let loaded = unsafe { Module::deserialize(&self.engine, precompiled) };
        loaded.or_else(|_| self.compile(wasm))
    }

    /// A module of another engine of the same class, in this one.
    #[must_use]
    pub fn again(&self, module: &Module) -> Option<Module> {
        let code = module.serialize().ok()?;
        // SAFETY: `deserialize` runs the machine code that it is given. This is the code of a module that this process
        // runs already, and nobody else has had these bytes. wasmtime checks version, settings and CPU features.
        #[expect(unsafe_code, reason = "compiled code that this process runs already")]
        let loaded = unsafe { Module::deserialize(&self.engine, &code) };
        loaded.ok()
    }

    /// Loads a module that a [`crate::Disk`] kept; `None` where it was made by another version, or for another
    /// machine.
    #[must_use]
    pub fn restore(&self, kept: &Kept) -> Option<Module> {
        // SAFETY: `deserialize` runs the machine code that it is given. A `Kept` comes from `Disk::read` alone,
        // which checks that a gateway with this one's secret wrote these very bytes, in a folder that belongs to
        // its user and to nobody else; and what `Disk::write` marks as code, `Module::serialize` made. wasmtime
        // checks version, settings and CPU features, and refuses what does not fit.
        #[expect(unsafe_code, reason = "compiled code that this gateway wrote itself, authenticated")]
        let loaded = unsafe { Module::deserialize(&self.engine, kept.code()?) };
        loaded.ok()
    }
}

/// Compiles a module for a class, to be embedded and given to [`Sandbox::load`].
///
/// # Errors
/// When the module does not compile.
pub fn precompile(class: Class, wasm: &[u8]) -> Result<Vec<u8>, Error> {
    let engine = Engine::new(&settings(class)).map_err(Error::because(NO_ENGINE))?;
    engine.precompile_module(&in_steps(wasm)).map_err(Error::because("the module does not compile"))
}

const NO_ENGINE: &str = "no engine";

impl Error {
    /// Whether the system refused what a pool needs: a smaller one may fit.
    #[must_use]
    pub fn is_refusal(&self) -> bool {
        self.what == NO_ENGINE
    }

    pub(crate) fn because(what: &'static str) -> impl FnOnce(wasmtime::Error) -> Self {
        move |source| Self { what, source }
    }
}

/// What compiled code depends on. Programs must run alike everywhere, or recordings could not be
/// replayed: NaNs are canonical, relaxed SIMD is off, and threads are not even compiled in.
fn settings(class: Class) -> Config {
    let mut config = Config::new();
    // Programs are compiled by a thread of low priority, and not by all of the machine's.
    config
        .parallel_compilation(false)
        .epoch_interruption(true)
        .cranelift_nan_canonicalization(true)
        .wasm_relaxed_simd(false)
        .wasm_memory64(false)
        .concurrency_support(false)
        .memory_init_cow(true)
        .max_wasm_stack(class.stack())
        .async_stack_size(class.stack() + HOST_STACK);
    config
}

fn config(class: Class, pool: Pool) -> Config {
    let mut config = settings(class);
    config.allocation_strategy(InstanceAllocationStrategy::Pooling(pooling(class, pool)));
    config
}

fn pooling(class: Class, pool: Pool) -> PoolingAllocationConfig {
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
        .table_keep_resident(TABLE_KEPT)
        .async_stack_keep_resident(STACK_KEPT)
        .pagemap_scan(Enabled::Auto);
    pooling
}
