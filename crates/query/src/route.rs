//! A query route: what it may call, and the way of a request through the other files.

mod describe;

use std::collections::{BTreeMap, HashMap};
use std::future::ready;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use http::request::Parts;
use http::{HeaderMap, Method, Request, Response};
use services::{Body, Call, Caller, ConfigProblem, DecoderPool, Fault, Made, Problem, Report, Services, by};

use crate::answer::{self, Times};
use crate::ask::{Ask, METHODS, Which};
use crate::blocked::BlockedPrograms;
use crate::cached::{self, Done, Mode};
use crate::claim::{Claim, Judge};
use crate::config::{CallerLimits, LimitsConfig, Programs, QueryConfig};
use crate::guest::{Access, Answer, Guest};
use crate::limits::{Limit, Limits};
use crate::problem::{QueryError, failed};
use crate::program::Program;
use crate::record::{ProgramFacts, Recorder, Tape};
use crate::run::{self, Ended, Stage, run};
use crate::runtime::{Known, Runtime};
use crate::stored::Stored;
use crate::trust::Trusted;
use describe::Pages;

/// The services' OpenAPI documents, by their names.
pub type Documents = BTreeMap<String, Arc<openapi::Document>>;

/// A query route.
pub struct Query {
    /// The route's path; what is below it names a stored program.
    path: Box<str>,
    config: QueryConfig,
    access: Arc<Access>,
    /// What the programs may reach that a key has signed.
    by_key: HashMap<Arc<str>, Arc<Access>>,
    trusted: Arc<Trusted>,
    blocked: Arc<BlockedPrograms>,
    stored: Stored,
    documents: Documents,
    pages: Pages,
    runtime: Arc<Runtime>,
}

/// What a route is made of beside its own config.
#[derive(Clone, Copy)]
pub struct Ground<'a> {
    /// The route's path.
    pub path: &'a str,
    /// The services of the gateway.
    pub services: &'a Services,
    /// What they say of themselves.
    pub documents: &'a Documents,
    /// Where programs run.
    pub runtime: &'a Arc<Runtime>,
    /// The developers' keys.
    pub trusted: &'a Arc<Trusted>,
    /// The programs that must not run.
    pub blocked: &'a Arc<BlockedPrograms>,
    /// Where relative paths begin.
    pub folder: &'a Path,
}

/// A program that may run: how, and what is told of it.
struct Ready<'a> {
    program: Arc<Known>,
    ask: Ask,
    limits: Limits,
    access: &'a Arc<Access>,
    /// The client's own.
    headers: HeaderMap,
    claim: Option<Claim>,
    compiled: Option<Duration>,
}

impl Query {
    /// A route, or every mistake in its config that a schema can't see. The pointers are those below the
    /// route's `query:`.
    ///
    /// # Errors
    /// Services that do not exist, methods that are none, a memory cap above the pool's, stored programs that
    /// are none.
    pub fn new(config: &QueryConfig, ground: &Ground<'_>) -> Result<Self, Vec<ConfigProblem>> {
        let Ground { path, services, documents, runtime, trusted, blocked, .. } = *ground;
        let mut problems = Vec::new();
        let access = access(config, services, &mut problems);
        if config.limits.memory.0 > runtime.memory {
            let message = "this is more than `runtime.memory`, the largest memory of any program";
            problems.push(problem("/limits/memory", message.into(), "raise `runtime.memory`, or grant less"));
        }
        if config.programs == Programs::Stored && config.stored.is_empty() {
            let message = "only stored programs run here, and there are none";
            problems.push(problem("/programs", message.into(), "list files under `stored`"));
        }
        let stored = Stored::new(&config.stored, ground, config.limits.program.0);
        let stored = stored.map_err(|wrong| {
            let place = |problem: ConfigProblem| ConfigProblem {
                pointer: format!("/stored{}", problem.pointer),
                ..problem
            };
            problems.extend(wrong.into_iter().map(place));
        });
        let (Ok(stored), true) = (stored, problems.is_empty()) else { return Err(problems) };
        let by_key = trusted.all().map(|key| (Arc::clone(&key.name), Arc::new(access.narrowed(&key.config))));
        Ok(Self {
            path: path.trim_end_matches("/*").into(),
            by_key: by_key.collect(),
            access: Arc::new(access),
            trusted: Arc::clone(trusted),
            blocked: Arc::clone(blocked),
            stored,
            config: config.clone(),
            documents: documents.clone(),
            pages: Pages::default(),
            runtime: Arc::clone(runtime),
        })
    }

    /// Whether there are programs below the route's path.
    #[must_use]
    pub fn has_stored(&self) -> bool {
        !self.stored.is_empty()
    }

    /// Where the types of its services are.
    #[must_use]
    pub fn types(&self) -> String {
        format!("{}/{}", self.path.trim_end_matches('/'), describe::TYPES)
    }

    /// The methods that this route takes.
    #[must_use]
    pub fn methods(&self) -> &'static str {
        METHODS
    }

    /// Whether a program that came now would run in good time.
    #[must_use]
    pub fn has_room(&self, now: Instant) -> bool {
        self.runtime.line.has_room(now)
    }

    /// Answers a request; a caller's own [`CallerLimits`] stand among its extensions, and its headers are those of which
    /// services get some. `seen` is the caller and the hops; the allowance is made here, of the limits. A [`Report`] is
    /// left with that of the request.
    ///
    /// # Errors
    /// Everything in `problem.rs`.
    pub fn handle(
        &self,
        request: Request<Body>,
        seen: Call,
    ) -> BoxFuture<'_, Result<Response<Body>, Box<dyn Problem>>> {
        if let Some(description) = self.describe(&request, &seen) {
            return Box::pin(ready(Ok(description)));
        }
        let (mut head, body) = request.into_parts();
        // A block and not a function, which would have room for what it is given twice: the box is copied into.
        Box::pin(async move {
            let mut ready = self.prepare(&mut head, body, &seen).await?;
            self.answer(&mut ready, &seen).await
        })
    }

    /// Runs a program.
    async fn answer(&self, ready: &mut Ready<'_>, seen: &Call) -> Result<Response<Body>, Box<dyn Problem>> {
        let started = seen.budget.started;
        let Ready { program, ask, limits, access, headers, claim, compiled } = ready;
        let program = &program.program;
        let is_named = seen.caller != Caller::Anonymous;
        let budget = Arc::new(run::budget(limits, started));
        // What an instance remembers of other runs would be missing in a replay.
        let may_live = |claim: &&Claim| claim.mode == Some(Mode::Instance) && !ask.records;
        let session = claim.as_ref().filter(may_live);
        let stage = {
            let call = seen.within(Arc::clone(&budget), std::mem::take(headers));
            let tape = self.tape(ask, claim.as_ref(), program, access, limits);
            let mut guest =
                Guest::new(Arc::clone(access), call, self.runtime.offload().clone(), *limits, ask.safe_only);
            guest.tape = tape;
            let key = claim.as_ref().map(|claim| claim.key);
            Stage::new(&self.runtime, program, guest, key, session.map(|claim| claim.session))
        };
        let owner = session.map(|claim| claim.holder_id());
        let mut ended = run(&self.runtime, program, stage, &ask.input, owner).await;
        let now = Instant::now();
        if let (Some(claim), Some(live)) = (session, ended.live.take()) {
            self.runtime.lives.put(claim.session, claim.key, live, now);
        }
        let is_reused = ended.is_reused;
        let (made, total) = (budget.take_made(), now.saturating_duration_since(started));
        let times = Times { total, compiled: *compiled, cpu: ended.cpu, list_calls: ask.list_calls };
        let answer = finish(ended, access, &times, &made);
        seen.budget.report(Report { made, since: Some(started), cpu: times.cpu });
        let mut response = answer?;
        if is_named || is_reused {
            answer::close(response.headers_mut());
        }
        if let Some(claim) = claim {
            let done = match compiled {
                _ if is_reused => Done::Reused,
                Some(_) => Done::Compiled,
                None => Done::Found,
            };
            let token = claim.token(&self.runtime.sealer)?;
            let gateway = claim.is_sent.then(|| self.runtime.sealer.gateway());
            let told = claim.mode.and_then(|mode| cached::told(mode, done, token.as_deref(), gateway));
            response.headers_mut().extend(told.map(|told| (cached::CACHE, told)));
        }
        Ok(response)
    }

    /// Reads the request and gets its program ready.
    async fn prepare<'a>(
        &'a self,
        head: &mut Parts,
        body: Body,
        seen: &Call,
    ) -> Result<Ready<'a>, QueryError> {
        let started = seen.budget.started;
        let reads = seen.trace.phase("read");
        let config = match head.extensions.get::<Arc<CallerLimits>>() {
            Some(caller) => self.config.limits.and(caller),
            None => self.config.limits,
        };
        let caps = Limits::caps(&config);
        let time = started + caps.millis(Limit::Deadline);
        let pool = self.runtime.offload();
        let pool = Some(DecoderPool { pool, payer: seen.quota_key(), deadline: time });
        if let Some(name) = self.stored_name(head.uri.path()) {
            let program = self.stored.find(name)?;
            let ask = in_time(by(time, pin!(Ask::read_input(head, body, &config, pool))).await, &caps)?;
            self.may_record(&ask, None, &seen.caller)?;
            let (program, access) = (Arc::clone(program), &self.access);
            let limits = granted(&config, &ask)?;
            let headers = std::mem::take(&mut head.headers);
            return Ok(Ready { program, ask, limits, access, headers, claim: None, compiled: None });
        }
        let (which, ask) = in_time(by(time, pin!(Ask::read(head, body, &config, pool))).await, &caps)?;
        drop(reads);
        let claim = self.claim(&which, seen)?;
        self.may_record(&ask, Some(&claim), &seen.caller)?;
        let _compiles = seen.trace.phase("compile");
        let found = by(time, pin!(self.runtime.program(&claim, which.program, started, time))).await;
        let (known, compiled) = in_time(found, &caps)?;
        known.check_size(config.program.0)?;
        let (access, config) = match &claim.trusted {
            Some(key) => (self.by_key.get(&key.name).unwrap_or(&self.access), config.and(&key.config.limits)),
            None => (&self.access, config),
        };
        let limits = granted(&config, &ask)?;
        let headers = std::mem::take(&mut head.headers);
        Ok(Ready { program: known, ask, limits, access, headers, claim: Some(claim), compiled })
    }

    /// Whose program it is, and by what right. To check a signature costs more than to send a wrong one: who sends many
    /// waits.
    fn claim(&self, which: &Which, seen: &Call) -> Result<Claim, QueryError> {
        if which.trust.is_none() {
            return self.judge().claim(which, seen);
        }
        let (sender, signatures) = (seen.quota_key(), &self.runtime.signatures);
        if let Some(wait) = signatures.retry_after(sender, Instant::now()) {
            return Err(QueryError::SignatureRate { wait });
        }
        let claim = self.judge().claim(which, seen);
        if matches!(claim, Err(QueryError::SignatureWrong(_))) {
            signatures.charge(sender, Duration::ZERO, Instant::now());
        }
        claim
    }

    /// Whether the operator lets this run be recorded, if it is asked for. A stored program has no claim: it is not the
    /// caller's.
    fn may_record(&self, ask: &Ask, claim: Option<&Claim>, caller: &Caller) -> Result<(), QueryError> {
        if !ask.records {
            return Ok(());
        }
        let recordings = self.config.recordings.as_ref().ok_or(QueryError::RecordingOff)?;
        let key = claim.map(|claim| claim.trusted.as_ref().map(|key| &*key.name));
        recordings.allow(caller, key.ok_or(QueryError::RecordingProgram)?)
    }

    /// What becomes of the run's host calls.
    fn tape(
        &self,
        ask: &Ask,
        claim: Option<&Claim>,
        program: &Program,
        access: &Access,
        limits: &Limits,
    ) -> Tape {
        match (claim, self.config.recordings.as_ref().filter(|_| ask.records)) {
            (Some(claim), Some(recordings)) => {
                let facts = ProgramFacts::of(claim, program);
                Tape::Records(Box::new(Recorder::new(facts, ask, access, limits, recordings.size.0)))
            }
            _ => Tape::Off,
        }
    }

    /// The name that a path has below the route's own.
    fn stored_name<'p>(&self, path: &'p str) -> Option<&'p str> {
        path.strip_prefix(&*self.path)?.strip_prefix('/').filter(|name| !name.is_empty())
    }

    fn judge(&self) -> Judge<'_> {
        let (blocked, trusted, sealer) = (&*self.blocked, &*self.trusted, &self.runtime.sealer);
        Judge { blocked, trusted, sealer, programs: self.config.programs, modes: &self.config.modes }
    }
}

/// What was done by the request's deadline.
fn in_time<T>(done: Option<Result<T, QueryError>>, caps: &Limits) -> Result<T, QueryError> {
    match done {
        None | Some(Err(QueryError::Late)) => Err(caps.exceeded(Limit::Deadline)),
        Some(result) => result,
    }
}

/// The limits that hold: the client's, where it grants less than the config.
fn granted(config: &LimitsConfig, ask: &Ask) -> Result<Limits, QueryError> {
    let caps = Limits::caps(config);
    ask.granted.as_ref().map_or(Ok(caps), |text| caps.granted(text))
}

fn finish(
    mut ended: Ended,
    access: &Access,
    times: &Times,
    made: &[Made],
) -> Result<Response<Body>, Box<dyn Problem>> {
    let timing = answer::timing(times, made);
    if let Tape::Records(recorder) = std::mem::take(&mut ended.tape) {
        ended = recorded(*recorder, ended);
    }
    if let Err(error) = ended.result {
        return Err(failed(error, &timing, ended.console.into_text(), made).into());
    }
    let vary = answer::vary(access, made);
    Ok(answer::respond(ended.answer, timing, vary))
}

/// The same end with the recording as its answer. What was not the program's doing is no run to be looked at.
fn recorded(recorder: Recorder, ended: Ended) -> Ended {
    let size = matches!(ended.result, Err(QueryError::RecordingSize(_)));
    if size || ended.result.as_ref().is_err_and(|error| error.fault() == Fault::Gateway) {
        return ended;
    }
    match recorder.finish(ended.result.as_ref().map(drop), &ended.answer) {
        Ok(document) => Ended { result: Ok(()), answer: Answer::recording(document), ..ended },
        Err(error) => Ended { result: Err(error), ..ended },
    }
}

pub(crate) fn access(config: &QueryConfig, services: &Services, problems: &mut Vec<ConfigProblem>) -> Access {
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
    Access::new(known, services.clone(), methods(config, problems))
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

#[cfg(test)]
mod tests {
    use offload::OffloadError;

    use super::*;

    #[test]
    fn what_the_pool_has_not_done_in_time_is_told_as_the_deadline_and_what_it_refuses_as_what_it_is() {
        let caps = Limits::caps(&LimitsConfig::default());
        let told = |done: Option<OffloadError>| {
            let error = in_time::<()>(done.map(|error| Err(error.into())), &caps).unwrap_err();
            (error.code(), error.status().as_u16(), error.to_string())
        };
        let late = told(None);
        assert_eq!((late.0, late.1), ("limit-deadline", 422));
        assert_eq!(told(Some(OffloadError::DeadlineExceeded)), late);
        let full = told(Some(OffloadError::QueueFull));
        assert_eq!((full.0, full.1), ("gateway-overloaded", 503));
        let quota = told(Some(OffloadError::QuotaExceeded { retry_after: Duration::from_secs(1) }));
        assert_eq!((quota.0, quota.1), ("compile-rate", 429));
        assert_eq!(told(Some(OffloadError::Panicked)).1, 500);
    }
}
