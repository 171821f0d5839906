//! What all query routes share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use sandbox::{Cache, CacheStats, Engine, Gate, Line, Linker, Sandbox, Ticker};
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::ask::{Ask, Language};
use crate::config::RuntimeConfig;
use crate::environment::{CEnvironment, JavascriptEnvironment};
use crate::guest::Guest;
use crate::host;
use crate::pools::{self, Pools};
use crate::problem::QueryError;
use crate::program::{self, Program, check};
use crate::start::StartError;

/// Where programs run: the environments, the cache of compiled programs, the clock.
pub struct Runtime {
    pub(crate) c: CEnvironment,
    pub(crate) javascript: JavascriptEnvironment,
    pub(crate) plain: (Sandbox, Linker<Guest>),
    pub(crate) ticker: Ticker,
    pub(crate) gate: Gate,
    pub(crate) line: Line,
    places: [Semaphore; 3],
    cache: Cache<Program>,
    compiling: Semaphore,
    compiling_nanos: AtomicU64,
    pub(crate) memory: u64,
    instances: (u32, u32),
}

/// The instances of one class of program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instances {
    /// `c`, `javascript`, or `plain` for modules with their own memory.
    pub class: &'static str,
    /// Those that run a program.
    pub used: usize,
    /// As many as there may be at once.
    pub all: usize,
}

impl Runtime {
    /// Reserves the pools and loads the environments.
    ///
    /// # Errors
    /// When the system refuses memory or a thread.
    pub fn new(config: &RuntimeConfig) -> Result<Arc<Self>, StartError> {
        let memory = usize::try_from(config.memory.0).unwrap_or(usize::MAX);
        let wanted = config.instances.unwrap_or_else(|| pools::usual_instances(sandbox::memory_limit()));
        let Pools { c, javascript, plain, instances } = Pools::reserve(wanted, memory)?;
        let mut linker = Linker::new(plain.engine());
        host::add(&mut linker).map_err(StartError::link("of plain modules"))?;
        let ticker = Ticker::start(&[c.sandbox.engine(), javascript.base.sandbox.engine(), plain.engine()])?;
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        Ok(Arc::new(Self {
            c,
            javascript,
            plain: (plain, linker),
            ticker,
            gate: Gate::new(threads),
            line: Line::new(threads),
            places: [(); 3].map(|()| Semaphore::new(instances as usize)),
            cache: Cache::new(usize::try_from(config.cache.0).unwrap_or(usize::MAX)),
            compiling: Semaphore::new(config.compile_threads.max(1) as usize),
            compiling_nanos: AtomicU64::new(0),
            memory: config.memory.0,
            instances: (instances, wanted),
        }))
    }

    /// How many programs of a kind can run at once: as it is, and as it was wanted. The system may have
    /// refused the address space for more.
    #[must_use]
    pub fn instances(&self) -> (u32, u32) {
        self.instances
    }

    /// What the cache of compiled programs holds and did.
    #[must_use]
    pub fn cache(&self) -> CacheStats {
        self.cache.stats()
    }

    /// The time that compiling has taken so far.
    #[must_use]
    pub fn compiling_time(&self) -> Duration {
        Duration::from_nanos(self.compiling_nanos.load(Relaxed))
    }

    /// How many instances of each class are in use.
    #[must_use]
    pub fn used(&self) -> [Instances; 3] {
        let all = self.instances.0 as usize;
        let classes = [("c", 0), ("javascript", 1), ("plain", 2)];
        classes.map(|(class, index)| {
            let used = all.saturating_sub(self.places[index].available_permits());
            Instances { class, used, all }
        })
    }

    /// How long programs may wait for a thread; `None` for as long as it takes.
    pub fn keep_to(&self, delay: Option<Duration>) {
        self.line.keep_to(delay);
    }

    pub(crate) fn engine(&self, program: &Program) -> &Engine {
        match program {
            Program::C(_) => self.c.sandbox.engine(),
            Program::Javascript(_) => self.javascript.base.sandbox.engine(),
            Program::Plain(_) => self.plain.0.engine(),
        }
    }

    /// Waits for one of the pool's instances.
    pub(crate) async fn place(&self, program: &Program) -> Option<SemaphorePermit<'_>> {
        let class = match program {
            Program::C(_) => 0,
            Program::Javascript(_) => 1,
            Program::Plain(_) => 2,
        };
        self.places[class].acquire().await.ok()
    }

    /// The program of a request, compiled once per content hash; the time that it took if it was done now.
    pub(crate) async fn program(
        self: &Arc<Self>,
        ask: &Ask,
    ) -> Result<(Program, Option<Duration>), QueryError> {
        let started = Instant::now();
        let mut made = false;
        let make = || {
            made = true;
            self.clone().make(ask.language, ask.program.clone())
        };
        let program = self.cache.get_or_make(program::key(ask), make).await?;
        Ok((program, made.then(|| started.elapsed())))
    }

    /// Checks and compiles a program on a thread of its own, so that requests go on meanwhile.
    async fn make(
        self: Arc<Self>,
        language: Language,
        bytes: bytes::Bytes,
    ) -> Result<(Program, usize), QueryError> {
        let runtime = self.clone();
        let _turn = self.compiling.acquire().await.map_err(|error| QueryError::Gateway(error.to_string()))?;
        let started = Instant::now();
        let made = tokio::task::spawn_blocking(move || runtime.compile(language, &bytes)).await;
        let took = u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.compiling_nanos.fetch_add(took, Relaxed);
        made.unwrap_or_else(|error| Err(QueryError::Gateway(error.to_string())))
    }

    fn compile(&self, language: Language, bytes: &[u8]) -> Result<(Program, usize), QueryError> {
        /// What an item weighs beyond its code.
        const OVERHEAD: usize = 1024;
        if language != Language::Wasm {
            let source = program::javascript(language, bytes)?;
            let weight = source.len() + OVERHEAD;
            return Ok((Program::Javascript(source), weight));
        }
        let facts = check::check(bytes, &|name| self.c.export(name).is_some())?;
        let (program, image) = if facts.environment {
            let program = program::link(&self.c, &facts, bytes)?;
            let image = program.module.image_range();
            (Program::C(Arc::new(program)), image)
        } else {
            let module =
                self.plain.0.compile(bytes).map_err(|error| check::Refusal::Malformed(error.to_string()))?;
            let image = module.image_range();
            (Program::Plain(Arc::new(module)), image)
        };
        Ok((program, image.end as usize - image.start as usize + OVERHEAD))
    }
}
