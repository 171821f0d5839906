//! What all query routes share, and a query route itself.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use http::{Method, Request, Response};
use sandbox::{Cache, CacheStats, Engine, Gate, Line, Linker, Sandbox, Ticker};
use services::{Body, Call, ConfigProblem, Problem, Report, Services, Trace};
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::answer::{self, Times};
use crate::ask::{Ask, Language};
use crate::config::{CallerLimits, QueryConfig, RuntimeConfig};
use crate::environment::{CEnvironment, JavascriptEnvironment};
use crate::guest::{Access, Guest};
use crate::host;
use crate::limits::{Limit, Limits};
use crate::pools::{self, Pools};
use crate::problem::{Failed, QueryError};
use crate::program::{self, Program, check};
use crate::run::{self, Ended, run};

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
    memory: u64,
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

/// Why the runtime can't start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The pool can't be reserved, or an environment does not load.
    #[error(transparent)]
    Sandbox(#[from] sandbox::Error),
    /// The environment and the host functions do not fit together.
    #[error("the environment {environment} can't be linked: {reason}")]
    Link {
        /// Which.
        environment: &'static str,
        /// What the engine says.
        reason: String,
    },
    /// The environment lacks something.
    #[error("the environment {environment} does not export `{name}`")]
    Export {
        /// Which.
        environment: &'static str,
        /// What it lacks.
        name: &'static str,
    },
    /// No thread for the clock.
    #[error("no thread for the clock: {0}")]
    Thread(#[from] std::io::Error),
}

/// A query route.
pub struct Query {
    config: QueryConfig,
    access: Arc<Access>,
    services: Services,
    runtime: Arc<Runtime>,
}

impl StartError {
    pub(crate) fn link(environment: &'static str) -> impl FnOnce(sandbox::Trapped) -> Self {
        move |error| Self::Link { environment, reason: format!("{error:#}") }
    }
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
    async fn program(self: &Arc<Self>, ask: &Ask) -> Result<(Program, Option<Duration>), QueryError> {
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

impl Query {
    /// A route, or every mistake in its config that a schema can't see. The pointers are those below the
    /// route's `query:`.
    ///
    /// # Errors
    /// Services that do not exist, methods that are none, a memory cap above the pool's.
    pub fn new(
        config: &QueryConfig,
        services: &Services,
        runtime: &Arc<Runtime>,
    ) -> Result<Self, Vec<ConfigProblem>> {
        let mut problems = Vec::new();
        let access = access(config, services, &mut problems);
        if config.limits.memory.0 > runtime.memory {
            let message = "this is more than `runtime.memory`, the largest memory of any program";
            problems.push(problem("/limits/memory", message.into(), "raise `runtime.memory`, or grant less"));
        }
        if !problems.is_empty() {
            return Err(problems);
        }
        let (config, services, runtime) = (config.clone(), services.clone(), runtime.clone());
        Ok(Self { config, access: Arc::new(access), services, runtime })
    }

    /// Whether a program that came now would run in good time.
    #[must_use]
    pub fn has_room(&self, now: Instant) -> bool {
        self.runtime.line.has_room(now)
    }

    /// Answers a request; a caller's own [`CallerLimits`] stand among its extensions. `seen` is the caller, the client's headers and the hops; the allowance is made
    /// here, of the limits. The response carries a [`Report`] in its extensions.
    ///
    /// # Errors
    /// Everything in `problem.rs`.
    pub fn handle(
        &self,
        request: Request<Body>,
        seen: Call,
    ) -> BoxFuture<'_, Result<Response<Body>, Box<dyn Problem>>> {
        Box::pin(self.answer(request, seen))
    }

    async fn answer(&self, request: Request<Body>, seen: Call) -> Result<Response<Body>, Box<dyn Problem>> {
        let started = Instant::now();
        let (ask, program, compiled) = self.prepare(request, &seen.trace).await?;
        let call = Call { budget: Arc::new(run::budget(&ask.limits)), ..seen };
        let budget = call.budget.clone();
        let guest = Guest::new(self.access.clone(), self.services.clone(), call, ask.limits, ask.safe_only);
        let ended = run(&self.runtime, &program, guest, &ask.input).await;
        let report = Report { made: budget.made(), since: Some(budget.started), cpu: ended.cpu };
        let times = Times { started, compiled, cpu: ended.cpu, list_calls: ask.list_calls };
        self.finish(ended, &times, report)
    }

    /// Reads the request and gets its program ready.
    async fn prepare(
        &self,
        request: Request<Body>,
        trace: &Trace,
    ) -> Result<(Ask, Program, Option<Duration>), QueryError> {
        let reads = trace.phase("read");
        let config = match request.extensions().get::<Arc<CallerLimits>>() {
            Some(caller) => self.config.limits.and(caller),
            None => self.config.limits,
        };
        let caps = Limits::caps(&config);
        let reading = Ask::read(request, &config);
        let read = tokio::time::timeout(caps.millis(Limit::Deadline), reading).await;
        let ask = read.unwrap_or_else(|_| Err(caps.exceeded(Limit::Deadline)))?;
        drop(reads);
        let _compiles = trace.phase("compile");
        let (program, compiled) = self.runtime.program(&ask).await?;
        Ok((ask, program, compiled))
    }

    fn finish(
        &self,
        ended: Ended,
        times: &Times,
        report: Report,
    ) -> Result<Response<Body>, Box<dyn Problem>> {
        let timing = answer::timing(times, &report);
        if let Err(error) = ended.result {
            return Err(Failed { error, timing, console: ended.console.into_text(), report }.into());
        }
        let vary = answer::vary(&self.access, &report.made);
        let mut response = answer::respond(ended.answer, &timing, vary);
        response.extensions_mut().insert(report);
        Ok(response)
    }
}

fn access(config: &QueryConfig, services: &Services, problems: &mut Vec<ConfigProblem>) -> Access {
    let mut known = HashMap::new();
    for (index, name) in config.services.iter().enumerate() {
        match services.get(name) {
            Some(service) => drop(known.insert(name.to_ascii_lowercase(), service.clone())),
            None => {
                let message = format!("there is no service `{name}`");
                problems.push(problem(
                    &format!("/services/{index}"),
                    message,
                    "name it under `services:` first",
                ));
            }
        }
    }
    let sorted: BTreeMap<_, _> = known.iter().collect();
    let names = sorted.values().map(|service| &**service.name()).collect::<Vec<_>>().join(",");
    Access { methods: methods(config, problems), services: known, names }
}

fn methods(config: &QueryConfig, problems: &mut Vec<ConfigProblem>) -> Vec<Method> {
    let mut methods = Vec::new();
    for (index, name) in config.methods.iter().enumerate() {
        let method = Method::from_bytes(name.as_bytes()).ok();
        let upper = name.bytes().all(|byte| byte.is_ascii_uppercase());
        match method.filter(|method| upper && *method != Method::CONNECT && *method != Method::TRACE) {
            Some(method) => methods.push(method),
            None => {
                let message = format!("`{name}` is not a method that a program may use");
                problems.push(problem(&format!("/methods/{index}"), message, "write GET, POST and so on"));
            }
        }
    }
    methods
}

fn problem(pointer: &str, message: String, hint: &str) -> ConfigProblem {
    ConfigProblem { pointer: pointer.to_owned(), message, hint: hint.to_owned() }
}
