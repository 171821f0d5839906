//! A query route: what it may call, and the way of a request through the other files.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use http::{Method, Request, Response};
use services::{Body, Call, ConfigProblem, Problem, Report, Services, Trace};

use crate::answer::{self, Times};
use crate::ask::Ask;
use crate::config::{CallerLimits, QueryConfig};
use crate::guest::{Access, Guest};
use crate::limits::{Limit, Limits};
use crate::problem::{Failed, QueryError};
use crate::program::Program;
use crate::run::{self, Ended, run};
use crate::runtime::Runtime;

/// A query route.
pub struct Query {
    config: QueryConfig,
    access: Arc<Access>,
    services: Services,
    runtime: Arc<Runtime>,
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
