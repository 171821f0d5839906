//! Snapshots a module after its initialisation: runs the initialiser once, at build time, and writes the
//! resulting memory into the data section.
//!
//! Only memory is captured. That suffices for our environments, and is checked: a module whose initialiser
//! changes a mutable global is rejected, since the value would be lost.

use wasm_encoder::reencode::{Reencode, RoundtripReencoder};
use wasm_encoder::{ConstExpr, DataSection, MemorySection, Module, RawSection};
use wasmparser::{Parser, Payload};
use wasmtime::{Config, Engine, Instance, Linker, Store, Val};

use crate::engine::SandboxError;

/// The page size: pages that contain only zeros are left out.
const PAGE: usize = 4096;

/// Runs the export `init` of a module and returns the module with the resulting memory. Imports trap if the
/// initialiser calls them.
///
/// # Errors
/// If the module is invalid, or its initialiser calls an import, traps or changes a global.
pub fn snapshot(wasm: &[u8], init: &str) -> Result<Vec<u8>, SandboxError> {
    let memory = run_initializer(wasm, init).map_err(SandboxError::with_context("the initialiser failed"))?;
    rewrite_module(wasm, init, &memory).map_err(SandboxError::with_context("the module can't be rewritten"))
}

fn run_initializer(wasm: &[u8], init: &str) -> wasmtime::Result<Vec<u8>> {
    let engine = Engine::new(&Config::new())?;
    let module = wasmtime::Module::from_binary(&engine, wasm)?;
    let mut linker = Linker::new(&engine);
    linker.define_unknown_imports_as_traps(&module)?;
    let mut store = Store::new(&engine, ());
    let instance = linker.instantiate(&mut store, &module)?;
    let before = read_globals(&mut store, &instance);
    instance.get_typed_func::<(), ()>(&mut store, init)?.call(&mut store, ())?;
    let after = read_globals(&mut store, &instance);
    wasmtime::ensure!(before == after, "it changed a global: {before:?} became {after:?}");
    let memory = instance.get_memory(&mut store, "memory");
    let memory = memory.ok_or_else(|| wasmtime::format_err!("it exports no memory"))?;
    Ok(memory.data(&store).to_vec())
}

fn read_globals(store: &mut Store<()>, instance: &Instance) -> Vec<(String, Option<i32>)> {
    let all: Vec<_> = instance
        .exports(&mut *store)
        .map(|export| (export.name().to_owned(), export.into_global()))
        .collect();
    let values = all.into_iter().filter_map(|(name, global)| Some((name, global?.get(&mut *store))));
    values.map(|(name, value)| (name, if let Val::I32(value) = value { Some(value) } else { None })).collect()
}

fn rewrite_module(wasm: &[u8], init: &str, memory: &[u8]) -> wasmtime::Result<Vec<u8>> {
    let mut module = Module::new();
    for payload in Parser::new(0).parse_all(wasm) {
        let payload = payload?;
        match &payload {
            Payload::MemorySection(section) => {
                module.section(&encode_memories(section.clone(), memory.len())?);
            }
            Payload::ExportSection(section) => {
                module.section(&encode_exports(section.clone(), init)?);
            }
            Payload::DataSection(_) => {
                module.section(&encode_data(memory));
            }
            // The code uses no passive segments: the linker generates these only for shared memories.
            Payload::DataCountSection { .. } | Payload::StartSection { .. } | Payload::CustomSection(_) => {}
            other => {
                if let Some((id, range)) = other.as_section() {
                    module.section(&RawSection { id, data: &wasm[range] });
                }
            }
        }
    }
    Ok(module.finish())
}

fn encode_memories(
    section: wasmparser::MemorySectionReader<'_>,
    bytes: usize,
) -> wasmtime::Result<MemorySection> {
    let mut memories = MemorySection::new();
    for memory in section {
        let mut memory = RoundtripReencoder.memory_type(memory?)?;
        memory.minimum = (bytes / (64 << 10)) as u64;
        memories.memory(memory);
    }
    Ok(memories)
}

fn encode_exports(
    section: wasmparser::ExportSectionReader<'_>,
    init: &str,
) -> wasmtime::Result<wasm_encoder::ExportSection> {
    let mut exports = wasm_encoder::ExportSection::new();
    for export in section {
        let export = export?;
        if export.name != init {
            exports.export(export.name, RoundtripReencoder.export_kind(export.kind)?, export.index);
        }
    }
    Ok(exports)
}

fn encode_data(memory: &[u8]) -> DataSection {
    let mut section = DataSection::new();
    let used = |page: &[u8]| page.iter().any(|byte| *byte != 0);
    let pages: Vec<bool> = memory.chunks(PAGE).map(used).collect();
    let mut start = 0;
    while start < pages.len() {
        let end = (start..pages.len()).find(|page| !pages[*page]).unwrap_or(pages.len());
        if end > start {
            let offset = ConstExpr::i32_const((start * PAGE) as i32);
            section.active(0, &offset, memory[start * PAGE..end * PAGE].iter().copied());
        }
        start = end.max(start + 1);
    }
    section
}
