//! Instantiates programs. An instance has an entry point, and a way to allocate memory for a run's input.

use bytes::Bytes;
use query_abi::{ALLOC, CONSTRUCTORS, ENTRY, MEMORY};
use sandbox::{Extern, Func, GuestResult, Instance, Linker, Module, ModuleExport, Store, Trapped, TypedFunc};

use super::compiled_program::{CProgram, CompiledProgram, ImportExterns, ImportOrigin};
use super::engine_shards::EngineShards;
use super::environment::{CEnvironment, JavascriptEnvironment, LinkedEnvironment};
use crate::host::{COPY_PART_BYTES, QueryGuest};
use crate::limits::LimitKind;
use crate::problem::QueryError;

/// The functions of an instance that start another run.
pub(crate) struct EntryPoints {
    run: TypedFunc<(u32, u32), ()>,
    alloc: InputAllocator,
}

/// The ways to allocate memory for an input.
enum InputAllocator {
    Function(TypedFunc<u32, u32>),
    /// For a plain module without an allocator: its memory grows.
    GrowMemory,
}

/// Creates an instance of a program in a shard and runs its constructors.
pub(crate) async fn instantiate(
    shards: &EngineShards,
    at: usize,
    program: &CompiledProgram,
    store: &mut Store<QueryGuest>,
) -> GuestResult<EntryPoints> {
    let (shard, elsewhere) =
        (shards.shard(at), || gateway_error("the program is not compiled for its shard"));
    match program {
        CompiledProgram::C(program) => {
            instantiate_c(&shard.c, program.code_in_shard(at).ok_or_else(elsewhere)?, store).await
        }
        CompiledProgram::Javascript(source) => instantiate_javascript(&shard.javascript, source, store).await,
        CompiledProgram::Plain(module) => {
            instantiate_plain(&shard.plain.1, module.code_in_shard(at).ok_or_else(elsewhere)?, store).await
        }
    }
}

async fn instantiate_c(
    environment: &CEnvironment,
    program: &CProgram,
    store: &mut Store<QueryGuest>,
) -> GuestResult<EntryPoints> {
    let base = instantiate_environment(&environment.base, store).await?;
    let imports = resolve_imports(&environment.base, base, program, store)?;
    let query = Instance::new_async(&mut *store, &program.module, &imports).await?;
    if let Some(constructors) = &program.constructors {
        let constructors =
            exported_function(&query, store, constructors, CONSTRUCTORS)?.typed::<(), ()>(&*store)?;
        constructors.call_async(&mut *store, ()).await?;
    }
    let alloc = InputAllocator::from_environment(&environment.base, &base, store)?;
    let run = exported_function(&query, store, &program.entry, ENTRY)?.typed::<(u32, u32), ()>(&*store)?;
    Ok(EntryPoints { run, alloc })
}

async fn instantiate_javascript(
    environment: &JavascriptEnvironment,
    source: &str,
    store: &mut Store<QueryGuest>,
) -> GuestResult<EntryPoints> {
    let instance = instantiate_environment(&environment.base, store).await?;
    let access = store.data().access.clone();
    let alloc = InputAllocator::from_environment(&environment.base, &instance, store)?;
    // Both texts in one allocation, each terminated by NUL: copying is cheaper than a second call into the
    // guest.
    let both = [source.as_bytes(), b"\0", access.service_names.as_bytes()].concat();
    let (place, len) = alloc.copy_input(store, &both).await?;
    let source_len = u32::try_from(source.len()).unwrap_or(len);
    let names = source_len + 1;
    let load = exported_function(&instance, store, &environment.load, "orfa_javascript_load")?;
    let load = load.typed::<(u32, u32, u32, u32), ()>(&*store)?;
    load.call_async(&mut *store, (place, source_len, place + names, len - names)).await?;
    let run = exported_function(&instance, store, &environment.run, "orfa_javascript_run")?.typed(&*store)?;
    Ok(EntryPoints { run, alloc })
}

async fn instantiate_plain(
    linker: &Linker<QueryGuest>,
    module: &Module,
    store: &mut Store<QueryGuest>,
) -> GuestResult<EntryPoints> {
    let instance = linker.instantiate_async(&mut *store, module).await?;
    store.data_mut().memory = instance.get_memory(&mut *store, MEMORY);
    store.data_mut().initial_memory = store.data().linear_memory();
    for constructors in ["_initialize", CONSTRUCTORS] {
        if let Ok(constructors) = instance.get_typed_func::<(), ()>(&mut *store, constructors) {
            constructors.call_async(&mut *store, ()).await?;
        }
    }
    let alloc = match instance.get_func(&mut *store, ALLOC) {
        Some(alloc) => InputAllocator::Function(alloc.typed(&*store)?),
        None => InputAllocator::GrowMemory,
    };
    let run = instance.get_typed_func::<(u32, u32), ()>(&mut *store, ENTRY)?;
    Ok(EntryPoints { run, alloc })
}

/// Creates an instance of an environment and makes its memory available to the host functions.
async fn instantiate_environment(
    environment: &LinkedEnvironment,
    store: &mut Store<QueryGuest>,
) -> GuestResult<Instance> {
    let instance = environment.instance.instantiate_async(&mut *store).await?;
    let memory = instance.get_module_export(&mut *store, &environment.memory);
    store.data_mut().memory = memory.and_then(Extern::into_memory);
    store.data_mut().initial_memory = store.data().linear_memory();
    Ok(instance)
}

fn resolve_imports(
    base: &LinkedEnvironment,
    instance: Instance,
    program: &CProgram,
    store: &mut Store<QueryGuest>,
) -> GuestResult<ImportExterns> {
    let find = |import: &ImportOrigin| match import {
        ImportOrigin::Environment(export) => instance.get_module_export(&mut *store, export),
        ImportOrigin::Host(name) => base.linker.get(&mut *store, query_abi::HOST_MODULE, name).ok(),
    };
    let found: Option<ImportExterns> = program.imports.iter().map(find).collect();
    found.ok_or_else(|| gateway_error("an import of the program is missing"))
}

impl EntryPoints {
    /// Runs the program with an input.
    pub(crate) async fn call(&self, store: &mut Store<QueryGuest>, input: &Bytes) -> GuestResult<()> {
        let input = self.alloc.copy_input(store, input).await?;
        self.run.call_async(&mut *store, input).await
    }
}

impl InputAllocator {
    /// The environment's allocator.
    fn from_environment(
        environment: &LinkedEnvironment,
        instance: &Instance,
        store: &mut Store<QueryGuest>,
    ) -> GuestResult<Self> {
        Ok(Self::Function(exported_function(instance, store, &environment.alloc, ALLOC)?.typed(&*store)?))
    }

    /// Copies bytes into memory allocated by the guest.
    async fn copy_input(&self, store: &mut Store<QueryGuest>, bytes: &[u8]) -> GuestResult<(u32, u32)> {
        let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        if len == 0 {
            return Ok((0, 0));
        }
        let address = match self {
            Self::Function(alloc) => alloc.call_async(&mut *store, len).await?,
            Self::GrowMemory => grow_memory(store, bytes.len()).await?,
        };
        write_memory(store, address, bytes).await?;
        Ok((address, len))
    }
}

/// Grows a plain module's memory by at least `bytes` and returns the address of the new part.
async fn grow_memory(store: &mut Store<QueryGuest>, bytes: usize) -> GuestResult<u32> {
    let memory = store.data().memory.ok_or_else(|| gateway_error("the module has no memory"))?;
    let pages = bytes.div_ceil(64 << 10) as u64;
    let over =
        |guest: &QueryGuest| Trapped::new(QueryError::from(guest.limits.exceeded_error(LimitKind::Memory)));
    let grown = memory.grow_async(&mut *store, pages).await;
    let at = grown.map_err(|_| over(store.data()))? << 16;
    u32::try_from(at).map_err(|_| over(store.data()))
}

/// Copies bytes to an address of the guest. Yields between parts of long ones.
async fn write_memory(store: &mut Store<QueryGuest>, address: u32, bytes: &[u8]) -> GuestResult<()> {
    let memory = store.data().memory.ok_or_else(|| gateway_error("the module has no memory"))?;
    let mut at = address as usize;
    for part in bytes.chunks(COPY_PART_BYTES) {
        if at > address as usize {
            store.data_mut().on_epoch_tick();
            tokio::task::yield_now().await;
        }
        let over = QueryError::from(store.data().limits.exceeded_error(LimitKind::Memory));
        let place = memory.data_mut(&mut *store).get_mut(at..at + part.len()).filter(|_| address != 0);
        place.ok_or_else(|| Trapped::new(over))?.copy_from_slice(part);
        at += part.len();
    }
    Ok(())
}

fn exported_function(
    instance: &Instance,
    store: &mut Store<QueryGuest>,
    export: &ModuleExport,
    name: &str,
) -> GuestResult<Func> {
    let found = instance.get_module_export(&mut *store, export).and_then(Extern::into_func);
    found.ok_or_else(|| gateway_error(&format!("`{name}` is missing")))
}

fn gateway_error(what: &str) -> Trapped {
    Trapped::new(QueryError::Gateway(what.to_owned()))
}

#[cfg(test)]
impl EntryPoints {
    /// Returns the entry of a plain module without an allocator.
    pub(crate) fn new_plain(run: TypedFunc<(u32, u32), ()>) -> Self {
        Self { run, alloc: InputAllocator::GrowMemory }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::pin::pin;

    use sandbox::{GuestClass, Sandbox};

    use super::*;

    #[tokio::test]
    async fn yields_between_the_parts_of_a_long_input() {
        let sandbox = Sandbox::unpooled(GuestClass::Plain).unwrap();
        let wasm = wat::parse_str(r#"(module (memory (export "memory") 40))"#).unwrap();
        let module = sandbox.compile(&wasm).unwrap();
        let mut store = Store::new(sandbox.engine(), QueryGuest::new_isolated());
        let linker = Linker::new(sandbox.engine());
        let instance = linker.instantiate_async(&mut store, &module).await.unwrap();
        store.data_mut().memory = instance.get_memory(&mut store, MEMORY);
        for (bytes, expected) in [(COPY_PART_BYTES, 1), (3 * COPY_PART_BYTES + 1, 4)] {
            let (input, mut polls) = (vec![7; bytes], 0);
            let mut writing = pin!(write_memory(&mut store, 65536, &input));
            let written = poll_fn(|context| {
                polls += 1;
                writing.as_mut().poll(context)
            });
            written.await.unwrap();
            assert_eq!(polls, expected);
        }
        let memory = store.data().memory.unwrap();
        let end = 65536 + 3 * COPY_PART_BYTES + 1;
        assert_eq!(memory.data(&store)[end - 1..=end], [7, 0]);
        assert!(write_memory(&mut store, 65536, &vec![7; 40 << 16]).await.is_err());
    }
}
