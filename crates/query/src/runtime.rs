//! The runtime that all query routes share: it compiles programs, caches them and keeps instances for them.
//!
//! `engine_shards.rs` reserves the engines and instance pools, and `environment.rs` loads the environments
//! into them. `compile.rs` compiles programs into the form of `compiled_program.rs`, and `program_cache.rs`
//! caches them. `instantiate.rs` creates their instances, and `warm_instances.rs` keeps instances between
//! requests. `start_error.rs` defines the errors of the runtime's start.

mod compile;
mod compiled_program;
mod engine_shards;
mod environment;
mod instantiate;
mod program_cache;
mod start_error;
mod warm_instances;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use bytes::Bytes;
use offload::polls::{PollSite, watch_polls};
use offload::{
    CpuClock, FairPermit, FairSemaphore, JobContext, JobRequest, OffloadPool, QuotaBook, QuotaKey,
};
use sandbox::{CacheKey, CacheStats, DiskCache, DiskEntryName, EpochTicker, HeavyGate, RunQueue};
use sha2::{Digest, Sha256};

use crate::config::RuntimeConfig;
use crate::problem::QueryError;
use crate::program::{ProgramLanguage, ResolvedProgram, TokenSealer};
use compile::{code_size, compile, estimate_cost};
use compiled_program::link_imports;
use engine_shards::EngineShards;
use program_cache::ProgramCache;
use warm_instances::WarmInstancePool;

pub(crate) use compiled_program::{CompiledProgram, to_javascript};
pub(crate) use instantiate::{EntryPoints, instantiate};
pub(crate) use program_cache::CachedProgram;
pub use start_error::RuntimeStartError;
pub(crate) use warm_instances::{WarmInstance, WarmInstanceState, has_outgrown};

/// The longest module whose compile time is estimated inline, in bytes. A local that is set takes two of
/// them, and up to a tenth of a microsecond for each loop around it.
const SHORT_MODULE: usize = 16 << 10;
/// The deadline for compiling a program for another shard.
const REPLICATION_TIME: Duration = Duration::from_secs(60);

/// Runs programs: engine shards, instance pools, the program cache and the epoch ticker.
pub struct QueryRuntime {
    pub(crate) shards: EngineShards,
    pub(crate) ticker: EpochTicker,
    pub(crate) gate: HeavyGate,
    pub(crate) run_queue: RunQueue,
    instance_slots: [FairSemaphore; 3],
    pub(crate) warm_instances: WarmInstancePool,
    pub(crate) sealer: TokenSealer,
    cache: ProgramCache,
    offload: OffloadPool,
    /// The quota for invalid signatures.
    pub(crate) signatures: QuotaBook,
    compile_nanos: AtomicU64,
    pub(crate) memory: u64,
    instances: (u32, u32),
}

/// Usage of the instance pool of one class of programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolUsage {
    /// `c`, `javascript`, or `plain` for modules with their own memory.
    pub class: &'static str,
    /// The number of instances in use.
    pub in_use: usize,
    /// The number of instances that may be in use at once.
    pub capacity: usize,
}

impl QueryRuntime {
    /// Reserves the instance pools and loads the environments. `offload` compiles the programs.
    ///
    /// # Errors
    /// If the system refuses memory or a thread.
    pub fn new(config: &RuntimeConfig, offload: OffloadPool) -> Result<Arc<Self>, RuntimeStartError> {
        let memory = usize::try_from(config.memory.0).unwrap_or(usize::MAX);
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let limit = sandbox::memory_limit();
        let wanted = config.instances.unwrap_or_else(|| engine_shards::default_instances(limit));
        let shards = EngineShards::reserve(
            engine_shards::default_shard_count(threads, wanted, limit),
            wanted,
            memory,
        )?;
        let instances = shards.instances;
        let ticker = EpochTicker::start(&shards.engines())?;
        let secret = load_secret(config)?;
        let folder = config.cache_dir.as_ref();
        let disk =
            folder.map(|folder| DiskCache::open(folder, &secret, config.cache_dir_size.0)).transpose()?;
        Ok(Arc::new(Self {
            shards,
            ticker,
            gate: HeavyGate::new(threads),
            run_queue: RunQueue::new(threads),
            instance_slots: [(); 3].map(|()| FairSemaphore::with_reserve(instances as usize)),
            warm_instances: WarmInstancePool::new(instances),
            sealer: TokenSealer::new(&secret),
            cache: ProgramCache::new(config.cache.0, disk),
            offload,
            signatures: QuotaBook::new(config.compile_time.0),
            compile_nanos: AtomicU64::new(0),
            memory: config.memory.0,
            instances: (instances, wanted),
        }))
    }

    /// Returns the pool for work that would block a serving thread.
    pub(crate) fn offload(&self) -> &OffloadPool {
        &self.offload
    }

    /// Returns the gate that limits concurrent heavy guests.
    #[must_use]
    pub fn gate(&self) -> &HeavyGate {
        &self.gate
    }

    /// Returns the number of instances of each class, and the requested number. The former is smaller if the
    /// address space was too small.
    #[must_use]
    pub fn instances(&self) -> (u32, u32) {
        self.instances
    }

    /// Returns statistics of the cache of compiled programs.
    #[must_use]
    pub fn cache_stats(&self) -> CacheStats {
        self.cache.memory.stats()
    }

    /// Returns the number of warm instances.
    #[must_use]
    pub fn warm_instance_count(&self) -> usize {
        self.warm_instances.count()
    }

    /// Returns the total CPU time of compilation.
    #[must_use]
    pub fn compile_time(&self) -> Duration {
        Duration::from_nanos(self.compile_nanos.load(Relaxed))
    }

    /// Returns the instances in use, by class.
    #[must_use]
    pub fn pool_usage(&self) -> [PoolUsage; 3] {
        let all = self.instances.0 as usize;
        let classes = [("c", 0), ("javascript", 1), ("plain", 2)];
        classes.map(|(class, index)| {
            let used = all.saturating_sub(self.instance_slots[index].available_permits());
            PoolUsage { class, in_use: used, capacity: all }
        })
    }

    /// Sets the target for the time that programs queue for a thread. `None` means no limit.
    pub fn set_queue_target(&self, delay: Option<Duration>) {
        self.run_queue.set_target(delay);
    }

    /// Picks the shard to run a program in, preferring the thread's own. May start the replication to that
    /// shard; the copy's size is added to the cache entry under `key`.
    pub(crate) fn pick_shard(self: &Arc<Self>, program: &CompiledProgram, key: Option<CacheKey>) -> usize {
        let own = self.shards.local_shard();
        let (shard, is_wanted) = program.shard_to_run(own);
        if is_wanted {
            let (runtime, program) = (Arc::clone(self), program.clone());
            let replicating = async move {
                let job = {
                    let runtime = Arc::clone(&runtime);
                    move |_: &JobContext| runtime.replicate_to(own, &program, key)
                };
                let request = JobRequest {
                    kind: "replicate",
                    payer: QuotaKey::new(&"replicate").exempt(),
                    estimate: Duration::ZERO,
                    deadline: Instant::now() + REPLICATION_TIME,
                };
                // A program that can't be replicated now keeps running in its shard, and replication is
                // retried later.
                let _ = runtime.offload.run_long(request, job).await;
            };
            tokio::spawn(watch_polls(PollSite::Query, replicating));
        }
        shard
    }

    /// Replicates a program to another shard.
    fn replicate_to(&self, at: usize, program: &CompiledProgram, key: Option<CacheKey>) {
        let shard = self.shards.shard(at);
        let Some(module) = program.module() else { return };
        let is_taken = match program {
            CompiledProgram::C(compiled) => {
                let again = shard.c.sandbox.copy_module(module);
                let linked = again.and_then(|module| link_imports(&shard.c, module).ok());
                linked.is_some_and(|program| compiled.replicate_to(at, program))
            }
            CompiledProgram::Plain(compiled) => {
                shard.plain.0.copy_module(module).is_some_and(|module| compiled.replicate_to(at, module))
            }
            CompiledProgram::Javascript(_) => false,
        };
        if let Some(key) = key.filter(|_| is_taken) {
            self.cache.memory.add_weight(key, code_size(module));
        }
    }

    /// Waits until the client may have another instance of the pool.
    pub(crate) async fn acquire_instance_slot(
        &self,
        program: &CompiledProgram,
        client: QuotaKey,
    ) -> Option<FairPermit> {
        self.instance_slots[usize::from(program.class_index())].acquire(client).await
    }

    /// Returns the program of a request, from the cache or compiled now, and the time that compiling took.
    ///
    /// # Errors
    /// Named programs that are not cached, invalid programs, and an exhausted compile quota.
    pub(crate) async fn load_or_compile(
        self: &Arc<Self>,
        program: &ResolvedProgram,
        sent: Option<Bytes>,
        now: Instant,
        deadline: Instant,
    ) -> Result<(Arc<CachedProgram>, Option<Duration>), QueryError> {
        if let Some(cached_program) = self.cache.memory.get(program.key, now) {
            self.persist_if_requested(program, &cached_program).await;
            return Ok((cached_program, None));
        }
        let started = Instant::now();
        let owner_key = program.owner.quota_key();
        let order = ProgramLoad {
            name: program.disk_name(),
            payer: if program.signer.is_none() { owner_key } else { owner_key.exempt() },
            deadline,
            shard: self.shards.local_shard(),
            language: program.language,
            is_kept: program.mode.is_some(),
            sent_bytes: sent,
        };
        let (known, compiled) = self.fetch_program(order).await?;
        self.persist_if_requested(program, &known).await;
        Ok((known, compiled.then(|| started.elapsed())))
    }

    /// Returns the program, and whether it was compiled now.
    async fn fetch_program(
        self: &Arc<Self>,
        order: ProgramLoad,
    ) -> Result<(Arc<CachedProgram>, bool), QueryError> {
        let (name, payer) = (order.name, order.payer);
        let mut compiled = false;
        let make = || async {
            if let Some(wait) = self.offload.quota().retry_after(payer, Instant::now()) {
                return Err(QueryError::CompileRate { wait });
            }
            if let Some(restored) = self.restore_in_pool(&order).await {
                return Ok(restored);
            }
            if order.sent_bytes.is_none() {
                self.offload.quota().charge(payer, Duration::ZERO, Instant::now());
                return Err(QueryError::ProgramUnknown(self.sealer.gateway().into()));
            }
            compiled = true;
            self.compile_in_pool(order).await
        };
        let program = self.cache.memory.get_or_make(name.key, name.owner, make).await?;
        Ok((program, compiled))
    }

    /// Loads a program that was compiled by an earlier process from the disk cache.
    async fn restore_in_pool(self: &Arc<Self>, order: &ProgramLoad) -> Option<(Arc<CachedProgram>, usize)> {
        if !self.cache.has_disk() {
            return None;
        }
        let (runtime, name, shard) = (Arc::clone(self), order.name, order.shard);
        let request = order.job_request("restore", order.payer.exempt(), Duration::ZERO);
        let restore = move |_: &JobContext| {
            let restored = runtime.cache.restore_from_disk(&runtime.shards, &name, shard);
            runtime.cache.memory.make_room(name.owner, restored.as_ref().map_or(0, |(_, weight)| *weight));
            restored
        };
        self.offload.run_long(request, restore).await.ok()?
    }

    /// Writes a program to the disk cache if this request asks for caching and the one that compiled it did
    /// not.
    async fn persist_if_requested(
        self: &Arc<Self>,
        program: &ResolvedProgram,
        cached_program: &Arc<CachedProgram>,
    ) {
        if program.mode.is_some() && self.cache.has_disk() && !cached_program.is_persistent.load(Relaxed) {
            let (runtime, known, name) = (Arc::clone(self), Arc::clone(cached_program), program.disk_name());
            // A failed write only means that the program is not cached on disk.
            let _ = tokio::task::spawn_blocking(move || runtime.cache.write_to_disk(&name, &known)).await;
        }
    }

    /// Checks and compiles a program in the pool, charged to its owner. Once started, compilation is finished
    /// and the result cached even if the client has gone: it can't be interrupted, and the client may send
    /// the program again.
    async fn compile_in_pool(
        self: &Arc<Self>,
        order: ProgramLoad,
    ) -> Result<(Arc<CachedProgram>, usize), QueryError> {
        let runtime = Arc::clone(self);
        let estimate = self.estimate_compile_time(&order).await.inspect_err(|_| {
            self.offload.quota().charge(order.payer, Duration::ZERO, Instant::now());
        })?;
        let request = order.job_request("compile", order.payer, estimate);
        let job = move |job: &JobContext| {
            let ProgramLoad { name, shard, language, is_kept, sent_bytes: sent, .. } = order;
            let bytes = sent.unwrap_or_default();
            let clock = CpuClock::now();
            let mut elsewhere = Duration::ZERO;
            let made = compile(&runtime.shards, shard, language, &bytes, |took| elsewhere = took);
            job.add_cpu(elsewhere);
            let took = clock.elapsed() + elsewhere;
            runtime.compile_nanos.fetch_add(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX), Relaxed);
            let made =
                made.map(|(program, weight)| (CachedProgram::new(program, program_size(&bytes)), weight));
            if let (Ok((known, _)), true) = (&made, is_kept) {
                runtime.cache.write_to_disk(&name, known);
            }
            runtime.cache.memory.make_room(name.owner, made.as_ref().map_or(0, |(_, weight)| *weight));
            if let (Ok((known, weight)), true) = (&made, job.is_cancelled()) {
                runtime.cache.memory.put(name.key, name.owner, Arc::clone(known), *weight);
            }
            made
        };
        self.offload.run_long(request, job).await?
    }

    /// Estimates the CPU time to compile a program, that of a long module in the pool.
    async fn estimate_compile_time(&self, order: &ProgramLoad) -> Result<Duration, QueryError> {
        let (language, sent) = (order.language, order.sent_bytes.clone().unwrap_or_default());
        if language != ProgramLanguage::Wasm || sent.len() <= SHORT_MODULE {
            return Ok(estimate_cost(language, &sent)?);
        }
        let request = order.job_request("estimate", order.payer, Duration::ZERO);
        Ok(self.offload.run(request, move |_| estimate_cost(language, &sent)).await??)
    }

    /// Compiles a stored program of the operator, without the pool.
    pub(crate) fn compile_stored(
        &self,
        language: ProgramLanguage,
        bytes: &[u8],
    ) -> Result<Arc<CachedProgram>, QueryError> {
        let started = Instant::now();
        // Shards are assigned to request threads, and this thread is not one of them.
        let made = compile(&self.shards, 0, language, bytes, drop);
        let took = u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.compile_nanos.fetch_add(took, Relaxed);
        made.map(|(program, _)| CachedProgram::new(program, program_size(bytes)))
    }
}

/// A request for a program that has to be loaded or compiled.
struct ProgramLoad {
    name: DiskEntryName,
    /// The quota that compilation is charged to.
    payer: QuotaKey,
    /// The request's deadline.
    deadline: Instant,
    /// The shard to compile for: that of the thread that serves the request.
    shard: usize,
    language: ProgramLanguage,
    /// Whether to write the program to the disk cache.
    is_kept: bool,
    /// `None` if the program is named and not sent.
    sent_bytes: Option<Bytes>,
}

impl ProgramLoad {
    fn job_request(&self, kind: &'static str, payer: QuotaKey, estimate: Duration) -> JobRequest {
        JobRequest { kind, payer, estimate, deadline: self.deadline }
    }
}

/// Returns the size of the program as it was sent.
fn program_size(bytes: &[u8]) -> u32 {
    u32::try_from(bytes.len()).unwrap_or(u32::MAX)
}

/// Returns the secret that seals tokens and signs files in the disk cache: from the config, from the folder,
/// or random for this process.
fn load_secret(config: &RuntimeConfig) -> Result<[u8; 32], RuntimeStartError> {
    match (&config.secret, &config.cache_dir) {
        (Some(secret), _) => Ok(Sha256::digest(secret).into()),
        (None, Some(folder)) => Ok(sandbox::secret_in(folder)?),
        (None, None) => {
            let mut secret = [0; 32];
            getrandom::fill(&mut secret).map_err(|error| std::io::Error::other(error.to_string()))?;
            Ok(secret)
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use offload::OffloadConfig;

    use super::*;

    const PLAIN_PROGRAM: &str =
        r#"(module (memory (export "memory") 1) (func (export "orfa") (param i32 i32)))"#;

    #[tokio::test]
    async fn replicates_a_program_to_every_shard() {
        let runtime = QueryRuntime::new(
            &RuntimeConfig::default(),
            OffloadPool::start(OffloadConfig::default()).unwrap(),
        )
        .unwrap();
        let bytes = wat::parse_str(PLAIN_PROGRAM).unwrap();
        let make = || async {
            let made = compile(&runtime.shards, 0, ProgramLanguage::Wasm, &bytes, drop);
            made.map(|(program, weight)| (CachedProgram::new(program, 0), weight))
        };
        let program = &runtime.cache.memory.get_or_make([1; 32], 0, make).await.unwrap().program;
        for shard in 1..runtime.shards.engines().len() / 3 {
            assert_eq!(program.shard_to_run(shard).0, 0);
            let before = runtime.cache_stats().bytes;
            runtime.replicate_to(shard, program, Some([1; 32]));
            assert_eq!(program.shard_to_run(shard).0, shard);
            assert!(runtime.cache_stats().bytes > before, "the copy counts towards the cache size");
        }
    }

    #[tokio::test]
    async fn a_client_leaves_instances_to_others() {
        let config = RuntimeConfig { instances: Some(4), ..RuntimeConfig::default() };
        let runtime =
            QueryRuntime::new(&config, OffloadPool::start(OffloadConfig::default()).unwrap()).unwrap();
        let program = CompiledProgram::Javascript("".into());
        let place = |client: &'static str| {
            runtime.acquire_instance_slot(&program, QuotaKey::new(&client)).now_or_never()
        };
        let permits = [(); 2].map(|()| place("attacker").expect("half of the instances"));
        assert!(place("attacker").is_none());
        assert!(place("neighbour").is_some());
        drop(permits);
        assert!(place("attacker").is_some());
    }

    #[test]
    #[ignore = "measures"]
    fn measures_compile_time() {
        use crate::program::check::hostile;
        let config = RuntimeConfig { instances: Some(1), ..RuntimeConfig::default() };
        let runtime =
            QueryRuntime::new(&config, OffloadPool::start(OffloadConfig::default()).unwrap()).unwrap();
        let only = std::env::var("ONLY").unwrap_or_default();
        let measure = |name: &str, bytes: Vec<u8>| {
            let clock = CpuClock::now();
            let made = compile(&runtime.shards, 0, ProgramLanguage::Wasm, &bytes, drop);
            let took = clock.elapsed();
            let said = made.err().map(|error| error.to_string().chars().take(100).collect::<String>());
            println!("{:8.1} ms {:6} bytes  {name} {said:?}", took.as_secs_f64() * 1e3, bytes.len());
        };
        measure("1000 locals of 200 functions", hostile::with_locals(200, 1000));
        measure("50000 locals of 10 functions", hostile::with_locals(10, 50_000));
        for attack in hostile::ATTACKS.iter().filter(|attack| attack.0.contains(&only)) {
            measure(attack.0, hostile::largest_module(attack));
        }
    }
}
