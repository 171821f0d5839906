//! The compile cache of programs: in memory and, if the config names a folder, on disk.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use sandbox::{DiskCache, DiskEntryContent, DiskEntryLabel, DiskEntryName, ItemCache, Sandbox};

use super::compile::with_weight;
use super::compiled_program::{CompiledProgram, link_imports};
use super::engine_shards::EngineShards;
use crate::problem::QueryError;

/// The tags of the classes in the disk cache.
const C_TAG: u8 = 0;
const JAVASCRIPT_TAG: u8 = 1;
const PLAIN_TAG: u8 = 2;

/// A cached program.
pub(crate) struct CachedProgram {
    pub(crate) program: CompiledProgram,
    /// The size of the program as it was sent, in bytes.
    size: u32,
    /// Whether the program is in the disk cache, or being written to it.
    pub(super) is_persistent: AtomicBool,
}

/// The cache of compiled programs.
pub(super) struct ProgramCache {
    pub(super) memory: ItemCache<Arc<CachedProgram>>,
    disk: Option<DiskCache>,
}

impl CachedProgram {
    pub(super) fn new(program: CompiledProgram, size: u32) -> Arc<Self> {
        Arc::new(Self { program, size, is_persistent: AtomicBool::default() })
    }

    /// Checks the size against a route's limit, which may differ from that of the route that cached it.
    pub(crate) fn check_size(&self, limit: u64) -> Result<(), QueryError> {
        let size = self.size as usize;
        if size as u64 > limit { Err(QueryError::ProgramSize { size, limit }) } else { Ok(()) }
    }
}

impl ProgramCache {
    /// Creates a cache of at most `bytes` in memory.
    pub(super) fn new(bytes: u64, disk: Option<DiskCache>) -> Self {
        Self { memory: ItemCache::new(usize::try_from(bytes).unwrap_or(usize::MAX)), disk }
    }

    /// Whether programs are cached on disk, too.
    pub(super) fn has_disk(&self) -> bool {
        self.disk.is_some()
    }

    /// Writes a program to the disk cache. The label's tag is its class.
    pub(super) fn write_to_disk(&self, name: &DiskEntryName, program: &CachedProgram) {
        let Some(disk) = self.disk.as_ref().filter(|_| !program.is_persistent.swap(true, Relaxed)) else {
            return;
        };
        let content = match &program.program {
            CompiledProgram::Javascript(source) => DiskEntryContent::Text(source.as_bytes()),
            compiled => match compiled.module() {
                Some(module) => DiskEntryContent::Code(module),
                None => return,
            },
        };
        let label = DiskEntryLabel { tag: program.program.class_index(), size: program.size };
        disk.write(name, label, content, |key| self.memory.last_used(key));
    }

    /// Reads a program from the disk cache. Entries that can't be loaded, such as those of another engine
    /// version, are removed.
    pub(super) fn restore_from_disk(
        &self,
        shards: &EngineShards,
        name: &DiskEntryName,
        home: usize,
    ) -> Option<(Arc<CachedProgram>, usize)> {
        let disk = self.disk.as_ref()?;
        let disk_entry = disk.read(name)?;
        let shard = shards.shard(home);
        let module = |sandbox: &Sandbox| sandbox.restore(&disk_entry);
        let DiskEntryLabel { tag, size } = disk_entry.label();
        let program = match tag {
            C_TAG => module(&shard.c.sandbox)
                .and_then(|module| link_imports(&shard.c, module).ok())
                .map(|program| CompiledProgram::C(shards.wrap_compiled(home, program))),
            JAVASCRIPT_TAG => std::str::from_utf8(disk_entry.bytes())
                .ok()
                .map(|source| CompiledProgram::Javascript(source.into())),
            PLAIN_TAG => module(&shard.plain.0)
                .map(|module| CompiledProgram::Plain(shards.wrap_compiled(home, module))),
            _ => None,
        };
        if program.is_none() {
            disk.remove(name);
        }
        let (program, weight) = program.map(with_weight)?;
        let cached_program = CachedProgram::new(program, size);
        cached_program.is_persistent.store(true, Relaxed);
        Some((cached_program, weight))
    }
}
