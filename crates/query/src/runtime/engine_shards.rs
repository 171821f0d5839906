//! Engine shards: an engine and an instance pool for each kind of program, replicated per thread.
//!
//! Threads that share an engine contend on its reference counts and locks a dozen times per instance: on two
//! threads, a fresh query took up to 1.5 times as long (docs/performance.md). A program therefore runs in the
//! shard of the thread that received its request. A guest stays in its shard, even if another thread resumes
//! it. Each shard has slots for as many guests as may run in total, so that none waits while there is room.
//! Compiled code starts in one shard, and is replicated to others after a few uses there.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use sandbox::{Engine, GuestClass, Linker, PoolSize, Sandbox};

use super::compiled_program::CompiledProgram;
use super::environment::{CEnvironment, JavascriptEnvironment};
use super::start_error::RuntimeStartError;
use crate::host;
use crate::host::QueryGuest;

/// The default number of slots, if nothing else is configured and memory is not limited.
const DEFAULT_INSTANCES: u32 = 256;
/// The maximum number of shards. More threads share them.
const MAX_SHARDS: usize = 8;
/// The number of uses from other shards after which a program is replicated.
const USES_BEFORE_REPLICATION: u32 = 16;

/// A shard: an engine and a pool for each kind of program.
pub(crate) struct EngineShard {
    pub(crate) c: CEnvironment,
    pub(crate) javascript: JavascriptEnvironment,
    pub(crate) plain: (Sandbox, Linker<QueryGuest>),
}

/// All shards, with the number of slots for each kind of program in each.
pub(crate) struct EngineShards {
    shards: Vec<EngineShard>,
    pub(crate) instances: u32,
}

impl EngineShards {
    /// Reserves shards and slots, or fewer if the address space is too small: first one shard instead of
    /// several, then half of the slots until they fit.
    ///
    /// # Errors
    /// If there is not room for a single slot, or an environment does not load.
    pub(crate) fn reserve(shards: usize, instances: u32, memory: usize) -> Result<Self, RuntimeStartError> {
        let (mut shards, mut instances) = (shards.max(1), instances.max(1));
        loop {
            let engine_shards: Result<Vec<EngineShard>, _> =
                (0..shards).map(|_| EngineShard::reserve(PoolSize { instances, memory })).collect();
            let is_least = (shards, instances) == (1, 1);
            match engine_shards {
                Ok(shards) if is_least || sandbox::has_address_space() => {
                    return Ok(Self { shards, instances });
                }
                Err(RuntimeStartError::Sandbox(error)) if !is_least && error.is_out_of_resources() => {}
                Ok(_) => {}
                Err(error) => return Err(error),
            }
            (shards, instances) = if shards > 1 { (1, instances) } else { (1, instances / 2) };
        }
    }

    /// Returns the index of the current thread's shard.
    pub(crate) fn local_shard(&self) -> usize {
        static THREADS: AtomicUsize = AtomicUsize::new(0);
        thread_local!(static THREAD: Cell<Option<usize>> = const { Cell::new(None) });
        let thread = THREAD.get().unwrap_or_else(|| {
            let thread = THREADS.fetch_add(1, Relaxed);
            THREAD.set(Some(thread));
            thread
        });
        thread % self.shards.len()
    }

    /// Returns a shard. Panics if the index is out of range.
    pub(crate) fn shard(&self, shard: usize) -> &EngineShard {
        &self.shards[shard]
    }

    /// Returns the engines of all shards.
    pub(crate) fn engines(&self) -> Vec<&Engine> {
        self.shards.iter().flat_map(EngineShard::engines).collect()
    }

    /// Wraps code that was compiled for a shard.
    pub(crate) fn wrap_compiled<T>(&self, home: usize, made: T) -> Arc<ShardedCode<T>> {
        Arc::new(ShardedCode::new(made, home, self.shards.len()))
    }
}

impl EngineShard {
    /// Returns the engine that runs a program.
    pub(crate) fn engine(&self, program: &CompiledProgram) -> &Engine {
        match program {
            CompiledProgram::C(_) => self.c.sandbox.engine(),
            CompiledProgram::Javascript(_) => self.javascript.base.sandbox.engine(),
            CompiledProgram::Plain(_) => self.plain.0.engine(),
        }
    }

    fn engines(&self) -> [&Engine; 3] {
        [self.c.sandbox.engine(), self.javascript.base.sandbox.engine(), self.plain.0.engine()]
    }

    fn reserve(pool: PoolSize) -> Result<Self, RuntimeStartError> {
        let plain = Sandbox::new(GuestClass::Plain, pool)?;
        let mut linker = Linker::new(plain.engine());
        host::add_host_functions(&mut linker).map_err(RuntimeStartError::link_error("of plain modules"))?;
        Ok(Self {
            c: CEnvironment::load(pool)?,
            javascript: JavascriptEnvironment::load(pool)?,
            plain: (plain, linker),
        })
    }
}

/// Compiled code, by shard.
pub(crate) struct ShardedCode<T> {
    home_shard: usize,
    code_by_shard: Box<[OnceLock<T>]>,
    /// The number of uses from shards that lack the code.
    uses: AtomicU32,
}

impl<T> ShardedCode<T> {
    /// Creates an entry for one of `count` shards.
    fn new(made: T, home_shard: usize, count: usize) -> Self {
        let code_by_shard: Box<[OnceLock<T>]> = (0..count).map(|_| OnceLock::new()).collect();
        let _ = code_by_shard[home_shard].set(made);
        Self { home_shard, code_by_shard, uses: AtomicU32::new(0) }
    }

    /// Returns the shard to run in, and whether to replicate the code to the thread's own shard now.
    pub(crate) fn shard_to_run(&self, own: usize) -> (usize, bool) {
        if self.code_by_shard[own].get().is_some() {
            return (own, false);
        }
        (
            self.home_shard,
            self.uses.fetch_add(1, Relaxed) % USES_BEFORE_REPLICATION == USES_BEFORE_REPLICATION - 1,
        )
    }

    /// Returns the code in a shard, if it is there.
    pub(crate) fn code_in_shard(&self, shard: usize) -> Option<&T> {
        self.code_by_shard[shard].get()
    }

    /// Returns the code in the shard that it was compiled for.
    pub(crate) fn home_code(&self) -> Option<&T> {
        self.code_in_shard(self.home_shard)
    }

    /// Sets the code of another shard. Returns `false` if it was already set.
    pub(crate) fn replicate_to(&self, shard: usize, made: T) -> bool {
        self.code_by_shard[shard].set(made).is_ok()
    }
}

/// Returns the default number of slots: the memory that they retain between programs fits into half of the
/// process's memory limit.
pub(crate) fn default_instances(memory: Option<u64>) -> u32 {
    let fitting = memory.map_or(u64::MAX, |memory| memory / 2 / retained_bytes());
    u32::try_from(fitting).unwrap_or(DEFAULT_INSTANCES).clamp(1, DEFAULT_INSTANCES)
}

/// Returns the number of shards for these threads and slots: the memory that all slots retain fits into half
/// of the limit, too.
pub(crate) fn default_shard_count(threads: usize, instances: u32, memory: Option<u64>) -> usize {
    let shard = retained_bytes().saturating_mul(instances.max(1).into());
    let fitting = memory.map_or(u64::MAX, |memory| memory / 2 / shard);
    let most = threads.min(MAX_SHARDS).min(instances as usize);
    usize::try_from(fitting).unwrap_or(MAX_SHARDS).min(most).max(1)
}

/// Returns the bytes that a slot of each kind retains, in total.
fn retained_bytes() -> u64 {
    [GuestClass::C, GuestClass::Javascript, GuestClass::Plain]
        .map(GuestClass::max_resident_bytes)
        .iter()
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retained_memory_fits_into_half_of_the_limit() {
        assert_eq!(default_instances(None), 256);
        assert_eq!(default_instances(Some(64 << 30)), 256);
        let few = default_instances(Some(512 << 20));
        assert!((32..100).contains(&few), "{few}");
        assert_eq!(default_instances(Some(1 << 20)), 1);
    }

    #[test]
    fn gives_each_thread_a_shard_if_memory_allows() {
        assert_eq!(default_shard_count(2, 256, None), 2);
        assert_eq!(default_shard_count(64, 256, None), MAX_SHARDS);
        assert_eq!(default_shard_count(4, 256, Some(64 << 30)), 4);
        assert_eq!(default_shard_count(4, 256, Some(5 << 30)), 2);
        assert_eq!(default_shard_count(4, 256, Some(512 << 20)), 1);
        assert_eq!(default_shard_count(4, 1, None), 1, "a single slot needs one shard");
    }

    #[test]
    fn requests_replication_after_some_uses_from_other_shards() {
        let code = ShardedCode::new('a', 1, 2);
        assert_eq!(code.shard_to_run(1), (1, false));
        let wanted: Vec<u32> = (1..=3 * USES_BEFORE_REPLICATION).filter(|_| code.shard_to_run(0).1).collect();
        assert_eq!(wanted.len(), 3, "and again if replication failed");
        assert_eq!((code.shard_to_run(0).0, code.code_in_shard(0)), (1, None));
        assert!(code.replicate_to(0, 'b'));
        assert!(!code.replicate_to(0, 'c'));
        assert_eq!((code.shard_to_run(0), code.code_in_shard(0)), ((0, false), Some(&'b')));
    }
}
