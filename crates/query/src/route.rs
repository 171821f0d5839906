//! The handler of query routes: the services and programs of a route, and the steps of a request.

mod describe;
mod stored;

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use diagnostics::Diagnostic;
use futures_util::future::BoxFuture;
use handler::{CallerLimits, HandlerRequest, HandlerResponse, HandlerResult};
use http::request::Parts;
use http::{HeaderMap, Response};
use offload::{JobContext, JobRequest, QuotaKey};
use services::{
    CallerId, DecoderPool, FaultParty, RequestCall, RequestReport, ServiceSet, StreamedServiceBody,
    ToProblem, UnfinishedResponse, UpstreamCallRecord, timeout_at,
};

use crate::config::{AllowedPrograms, CacheMode, QueryConfig};
use crate::exec::{ExecutionSlot, RunResult, run};
use crate::host::{AnswerBuilder, QueryGuest};
use crate::limits::{LimitKind, RunLimits};
use crate::problem::{QueryError, failed_run_problem};
use crate::program::{
    BlockedPrograms, CallPermissions, ProgramResolver, ProgramSource, ResolvedProgram, SigningKeys,
};
use crate::protocol::{
    CACHE_HEADER, CacheModeResult, METHODS, PhaseTimes, QueryRequest, build_response, cache_response_header,
    make_private, server_timing, vary_header,
};
use crate::record::{HostCallMode, ProgramFacts, RunRecorder};
use crate::runtime::{CachedProgram, CompiledProgram, QueryRuntime};
use describe::DescriptionPages;
use stored::StoredPrograms;

pub use stored::matching_files;

/// The services' OpenAPI documents, by service name.
pub type RouteDocuments = BTreeMap<String, Arc<openapi::OpenApiDocument>>;

/// The maximum time to complete a recording, and the estimated CPU time per byte.
const RECORDING_TIME: Duration = Duration::from_secs(10);
const RECORDING_BYTE: Duration = Duration::from_nanos(10);

/// A query route.
pub struct QueryRoute {
    /// The route's path. The names of stored programs follow it.
    path: Box<str>,
    config: QueryConfig,
    access: Arc<CallPermissions>,
    /// Access of the programs signed by each key.
    access_by_key: HashMap<Arc<str>, Arc<CallPermissions>>,
    trusted: Arc<SigningKeys>,
    blocked: Arc<BlockedPrograms>,
    stored: StoredPrograms,
    pages: DescriptionPages,
    runtime: Arc<QueryRuntime>,
}

/// The context that a route is built from, in addition to its own config.
#[derive(Clone, Copy)]
pub struct QueryRouteContext<'a> {
    /// The route's path.
    pub path: &'a str,
    /// The services of the gateway.
    pub services: &'a ServiceSet,
    /// The OpenAPI documents of the services.
    pub documents: &'a RouteDocuments,
    /// The runtime that runs the programs.
    pub runtime: &'a Arc<QueryRuntime>,
    /// The developers' signing keys.
    pub trusted: &'a Arc<SigningKeys>,
    /// The programs that must not run.
    pub blocked: &'a Arc<BlockedPrograms>,
    /// The folder that relative paths start from.
    pub folder: &'a Path,
}

/// A program that is ready to run, with its parameters.
struct ReadyProgram<'a> {
    client: QuotaKey,
    program: Arc<CachedProgram>,
    request: QueryRequest,
    limits: RunLimits,
    access: &'a Arc<CallPermissions>,
    /// The client's headers.
    headers: HeaderMap,
    resolved_program: Option<ResolvedProgram>,
    compile_time: Option<Duration>,
}

impl QueryRoute {
    /// Creates a route, or returns every mistake in its config that the schema can't find. The pointers are
    /// relative to the route's `query:`.
    ///
    /// # Errors
    /// Unknown services, invalid methods, a memory limit above the pool's, invalid stored programs.
    pub fn new(config: &QueryConfig, context: &QueryRouteContext<'_>) -> Result<Self, Vec<Diagnostic>> {
        let QueryRouteContext { path, services, documents, runtime, trusted, blocked, .. } = *context;
        let mut problems = Vec::new();
        let access = CallPermissions::from_config(config, services, &mut problems);
        if config.limits.memory.0 > runtime.memory {
            let message = "this is more than `runtime.memory`, the largest memory of any program";
            problems.push(Diagnostic::new(
                "/limits/memory",
                message,
                "raise `runtime.memory`, or grant less",
            ));
        }
        if config.programs == AllowedPrograms::Stored && config.stored.is_empty() {
            let message = "only stored programs run here, and there are none";
            problems.push(Diagnostic::new("/programs", message, "list files under `stored`"));
        }
        let stored = StoredPrograms::new(&config.stored, context, config.limits.program_bytes.0);
        let stored = stored.map_err(|diagnostics| {
            problems.extend(diagnostics.into_iter().map(|problem| problem.below("/stored")));
        });
        let (Ok(stored), true) = (stored, problems.is_empty()) else { return Err(problems) };
        let by_key = trusted
            .all_keys()
            .map(|key| (Arc::clone(&key.name), Arc::new(access.restricted_to(&key.config))));
        let by_key = by_key.collect();
        let path: Box<str> = path.trim_end_matches("/*").into();
        let access = Arc::new(access);
        let pages = DescriptionPages::new(Box::clone(&path), config, &access, documents, &stored);
        Ok(Self {
            path,
            access_by_key: by_key,
            access,
            trusted: Arc::clone(trusted),
            blocked: Arc::clone(blocked),
            stored,
            config: config.clone(),
            pages,
            runtime: Arc::clone(runtime),
        })
    }

    /// Whether the route has stored programs.
    #[must_use]
    pub fn has_stored(&self) -> bool {
        !self.stored.is_empty()
    }

    /// Returns the path of the TypeScript types of its services.
    #[must_use]
    pub fn types_path(&self) -> String {
        format!("{}/{}", self.path.trim_end_matches('/'), describe::TYPES)
    }

    /// Returns the methods that the route accepts.
    #[must_use]
    pub fn methods(&self) -> &'static str {
        METHODS
    }

    /// Whether a program that arrives now would start to run in time.
    #[must_use]
    pub fn can_start_in_time(&self, now: Instant) -> bool {
        self.runtime.run_queue.has_capacity(now)
    }

    /// Handles a request. Its headers are those that may be forwarded to services. Its call contributes the
    /// caller and the hop count; the run's own budget is made here from the limits. A [`RequestReport`] of
    /// the run is added to the request's budget.
    ///
    /// # Errors
    /// Any error in `problem.rs`.
    pub fn handle(&self, request: HandlerRequest) -> BoxFuture<'_, HandlerResult> {
        let HandlerRequest { mut head, body, call: seen, caller_limits, .. } = request;
        if let Some(wants_types) = self.wants_description(&head, &body) {
            return Box::pin(async move {
                let description = self.describe(&head, wants_types, caller_limits, &seen).await?;
                Ok(HandlerResponse::from(description))
            });
        }
        // A block instead of an async function, which would store its arguments twice in the boxed future.
        Box::pin(async move {
            let caller_limits = caller_limits.as_deref();
            let mut ready = self.prepare_program(&mut head, body, caller_limits, &seen).await?;
            Ok(self.run_program(&mut ready, &seen).await?.into())
        })
    }

    /// Runs a program.
    async fn run_program(
        &self,
        ready: &mut ReadyProgram<'_>,
        request_call: &RequestCall,
    ) -> Result<Response<StreamedServiceBody>, Box<dyn ToProblem>> {
        let started = request_call.budget.started;
        let ReadyProgram {
            client,
            program,
            request: ask,
            limits,
            access,
            headers,
            resolved_program: claim,
            compile_time: compiled,
        } = ready;
        let program = &program.program;
        let is_named = request_call.caller != CallerId::Anonymous;
        let budget = Arc::new(limits.call_limits().new_budget(started));
        // A replay would lack the state that an instance keeps from earlier runs.
        let may_live =
            |claim: &&ResolvedProgram| claim.mode == Some(CacheMode::Instance) && !ask.wants_recording;
        let session = claim.as_ref().filter(may_live);
        let slot = {
            let call = request_call.with_budget(Arc::clone(&budget), std::mem::take(headers));
            let tape = self.new_tape(ask, claim.as_ref(), program, access, limits);
            let mut guest = QueryGuest::new(
                Arc::clone(access),
                call,
                self.runtime.offload().clone(),
                *limits,
                ask.safe_only,
            );
            guest.tape = tape;
            let key = claim.as_ref().map(|claim| claim.key);
            ExecutionSlot::new(&self.runtime, program, guest, key, session.map(|claim| claim.session))
        };
        let mut result = run(&self.runtime, program, *client, slot, &ask.input, session.is_some()).await;
        let now = Instant::now();
        if let (Some(claim), Some(live)) = (session, result.warm_instance.take()) {
            self.runtime.warm_instances.put(claim.session, claim.key, live, now);
        }
        let is_reused = result.is_reused;
        let (records, total) = (budget.take_call_records(), now.saturating_duration_since(started));
        let times =
            PhaseTimes { total, compile_time: *compiled, cpu: result.cpu, list_calls: ask.list_calls };
        if let Some(recorder) = std::mem::take(&mut result.tape).into_recorder().await {
            result = Box::pin(self.replace_by_recording(*recorder, result, request_call)).await;
        }
        let answer = finish_response(result, access, &times, &records);
        request_call.budget.store_report(RequestReport {
            call_records: records,
            started: Some(started),
            cpu: times.cpu,
        });
        let mut response = answer?;
        if is_named || is_reused {
            make_private(response.headers_mut());
        }
        if let Some(claim) = claim {
            let mode_result = match compiled {
                _ if is_reused => CacheModeResult::Reused,
                Some(_) => CacheModeResult::Compiled,
                None => CacheModeResult::Found,
            };
            let token = claim.new_token(&self.runtime.sealer)?;
            let gateway = claim.is_program_sent.then(|| self.runtime.sealer.gateway());
            let told = claim
                .mode
                .and_then(|mode| cache_response_header(mode, mode_result, token.as_deref(), gateway));
            response.headers_mut().extend(told.map(|told| (CACHE_HEADER, told)));
        }
        Ok(response)
    }

    /// Replaces the answer by the recording, which the pool completes. Failures of the gateway or of the
    /// recording itself are not replaced.
    async fn replace_by_recording(
        &self,
        recorder: RunRecorder,
        mut ended: RunResult,
        call: &RequestCall,
    ) -> RunResult {
        let size = matches!(ended.result, Err(QueryError::RecordingSize(_)));
        if size || ended.result.as_ref().is_err_and(|error| error.fault() == FaultParty::Gateway) {
            return ended;
        }
        let failed = ended.result.as_ref().err().map(|error| recorder.failed_end(error));
        let answer = std::mem::take(&mut ended.answer);
        let bytes = recorder.document_size() + answer.body.as_ref().map_or(0, Bytes::len);
        let request = JobRequest {
            kind: "recording",
            payer: call.quota_key().for_responses(),
            estimate: RECORDING_BYTE.saturating_mul(u32::try_from(bytes).unwrap_or(u32::MAX)),
            deadline: Instant::now() + RECORDING_TIME,
        };
        let finish = move |_: &JobContext| recorder.finish(failed.unwrap_or_else(|| answer.to_run_end()));
        let document = self.runtime.offload().run_paced(request, finish).await;
        match document.unwrap_or(Err(UnfinishedResponse.into())) {
            Ok(document) => {
                RunResult { result: Ok(()), answer: AnswerBuilder::from_recording(document), ..ended }
            }
            Err(error) => RunResult { result: Err(error), ..ended },
        }
    }

    /// Reads the request and resolves its program.
    async fn prepare_program<'a>(
        &'a self,
        head: &mut Parts,
        body: StreamedServiceBody,
        caller_limits: Option<&CallerLimits>,
        call: &RequestCall,
    ) -> Result<ReadyProgram<'a>, QueryError> {
        let started = call.budget.started;
        let phase = call.trace.start_phase("read");
        let config = match caller_limits {
            Some(caller) => self.config.limits.with_caller_limits(caller),
            None => self.config.limits,
        };
        let caps = RunLimits::from_config(&config);
        let time = started + caps.millis(LimitKind::Deadline);
        let (client, pool) = (call.quota_key(), self.runtime.offload());
        let pool = Some(DecoderPool { pool, payer: client, deadline: time });
        if let Some(name) = self.stored_name(head.uri.path()) {
            let program = self.stored.find_program(name)?;
            let read =
                timeout_at(time, pin!(QueryRequest::read_input(head, body, &config, pool, time))).await;
            let ask = within_deadline(read, &caps)?;
            self.check_recording_allowed(&ask, None, &call.caller)?;
            let (program, access) = (Arc::clone(program), &self.access);
            let limits = effective_limits(caps, &ask)?;
            let headers = std::mem::take(&mut head.headers);
            return Ok(ReadyProgram {
                client,
                program,
                request: ask,
                limits,
                access,
                headers,
                resolved_program: None,
                compile_time: None,
            });
        }
        let read =
            timeout_at(time, pin!(QueryRequest::read_program_request(head, body, &config, pool, time))).await;
        let (source, ask) = within_deadline(read, &caps)?;
        drop(phase);
        let claim = self.resolve_program(&source, call)?;
        self.check_recording_allowed(&ask, Some(&claim), &call.caller)?;
        let _compiles = call.trace.start_phase("compile");
        let found =
            timeout_at(time, pin!(self.runtime.load_or_compile(&claim, source.program, started, time))).await;
        let (cached_program, compiled) = within_deadline(found, &caps)?;
        cached_program.check_size(config.program_bytes.0)?;
        let (access, caps) = match &claim.signer {
            Some(key) => {
                let access = self.access_by_key.get(&key.name).unwrap_or(&self.access);
                (access, RunLimits::from_config(&config.with_caller_limits(&key.config.limits)))
            }
            None => (&self.access, caps),
        };
        let limits = effective_limits(caps, &ask)?;
        let headers = std::mem::take(&mut head.headers);
        Ok(ReadyProgram {
            client,
            program: cached_program,
            request: ask,
            limits,
            access,
            headers,
            resolved_program: Some(claim),
            compile_time: compiled,
        })
    }

    /// Resolves and authorises the program. Checking a signature costs more than sending a wrong one, so
    /// senders of many wrong signatures are rate limited.
    fn resolve_program(
        &self,
        source: &ProgramSource,
        call: &RequestCall,
    ) -> Result<ResolvedProgram, QueryError> {
        if source.signature.is_none() {
            return self.program_resolver().resolve(source, call);
        }
        let (sender, signatures) = (call.quota_key(), &self.runtime.signatures);
        if let Some(wait) = signatures.retry_after(sender, Instant::now()) {
            return Err(QueryError::SignatureRate { wait });
        }
        let program = self.program_resolver().resolve(source, call);
        if matches!(program, Err(QueryError::SignatureWrong(_))) {
            signatures.charge(sender, Duration::ZERO, Instant::now());
        }
        program
    }

    /// Checks that the operator allows the run to be recorded, if the client asks for a recording. Stored
    /// programs have no claim, since they do not belong to the caller, and are not recorded.
    fn check_recording_allowed(
        &self,
        request: &QueryRequest,
        program: Option<&ResolvedProgram>,
        caller: &CallerId,
    ) -> Result<(), QueryError> {
        if !request.wants_recording {
            return Ok(());
        }
        let recordings = self.config.recordings.as_ref().ok_or(QueryError::RecordingOff)?;
        let key = program.map(|resolved_program| resolved_program.signer.as_ref().map(|key| &*key.name));
        let key = key.ok_or(QueryError::RecordingProgram)?;
        match (recordings.allows_caller(caller), recordings.allows_key(key)) {
            (true, true) => Ok(()),
            (true, false) => Err(QueryError::RecordingProgram),
            (false, _) => Err(QueryError::RecordingCaller),
        }
    }

    /// Returns the mode of a run's host calls: with a recorder if the run is recorded.
    fn new_tape(
        &self,
        request: &QueryRequest,
        resolved_program: Option<&ResolvedProgram>,
        program: &CompiledProgram,
        access: &CallPermissions,
        limits: &RunLimits,
    ) -> HostCallMode {
        match (resolved_program, self.config.recordings.as_ref().filter(|_| request.wants_recording)) {
            (Some(claim), Some(recordings)) => {
                let facts = ProgramFacts::from_program(claim, program.environment());
                HostCallMode::Recording(Box::new(RunRecorder::new(
                    facts,
                    (&request.input, request.safe_only),
                    access,
                    limits,
                    recordings.size.0,
                )))
            }
            _ => HostCallMode::Off,
        }
    }

    /// Returns the stored program's name: the part of the path after the route's own.
    fn stored_name<'p>(&self, path: &'p str) -> Option<&'p str> {
        path.strip_prefix(&*self.path)?.strip_prefix('/').filter(|name| !name.is_empty())
    }

    fn program_resolver(&self) -> ProgramResolver<'_> {
        let (blocked, trusted, sealer) = (&*self.blocked, &*self.trusted, &self.runtime.sealer);
        ProgramResolver {
            blocked,
            trusted,
            sealer,
            programs: self.config.programs,
            modes: &self.config.modes,
        }
    }
}

/// Returns the result, or the deadline's error if it was not ready in time.
fn within_deadline<T>(done: Option<Result<T, QueryError>>, caps: &RunLimits) -> Result<T, QueryError> {
    match done {
        None | Some(Err(QueryError::DeadlineExceeded)) => {
            Err(caps.exceeded_error(LimitKind::Deadline).into())
        }
        Some(result) => result,
    }
}

/// Returns the effective limits: the operator's, lowered to the client's.
fn effective_limits(caps: RunLimits, request: &QueryRequest) -> Result<RunLimits, QueryError> {
    request.client_limits.as_ref().map_or(Ok(caps), |text| Ok(caps.with_client_limits(text)?))
}

fn finish_response(
    result: RunResult,
    access: &CallPermissions,
    times: &PhaseTimes,
    records: &[UpstreamCallRecord],
) -> Result<Response<StreamedServiceBody>, Box<dyn ToProblem>> {
    let timing = server_timing(times, records);
    if let Err(error) = result.result {
        return Err(failed_run_problem(error, &timing, result.console.into_text(), records).into());
    }
    let vary = vary_header(access, records);
    Ok(build_response(result.answer, timing, vary))
}

#[cfg(test)]
mod tests {
    use offload::OffloadError;

    use super::*;
    use crate::config::QueryLimitsConfig;

    #[test]
    fn reports_pool_timeouts_as_deadline_and_other_pool_errors_as_themselves() {
        let caps = RunLimits::from_config(&QueryLimitsConfig::default());
        let told = |offload_error: Option<OffloadError>| {
            let error =
                within_deadline::<()>(offload_error.map(|error| Err(error.into())), &caps).unwrap_err();
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
