//! A script route: its configuration, and the processing of a client's request. `worker_queue.rs` sheds load.

mod worker_queue;

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;

use admission::Admission as _;
use diagnostics::Diagnostic;
use futures_util::future::BoxFuture;
use handler::{HandlerRequest, HandlerResult};
use http::header::HeaderName;
use http::request::Parts;
use http::{HeaderValue, Method};
use script::{HeaderReads, ScriptProgram};
use services::caching::add_vary;
use services::{
    CallError, GatewayOverloaded, PermittedHosts, RequestBodyError, RequestCall, RequestReport, ServiceSet,
    StreamedServiceBody, read_request_body, timeout_at,
};

use crate::config::ScriptOptions;
use crate::deployment::{
    self, DeploymentPlans, DeploymentProperties, ProgramGeneration, RoutingResult, ScriptDeployment,
    ScriptModule,
};
use crate::frame::FramePayload;
use crate::http_message::script_request::{self, InvalidBody, ScriptRequest};
use crate::problem::ScriptError;
use crate::run::outbound_call::ExternalCalls;
use crate::run::{self, RunCost, RunOrigin, RunRequest, RunResponse, RunSetup};
use crate::runtime::ScriptRuntime;
use crate::state::{HeldLocks, StateSettings};
use crate::workers::{self, PoolStats, WorkerPoolSize};
use worker_queue::{WorkerLoad, WorkerQueue};

/// Reports the version of the state that a handler read or wrote, if the operator enables it.
const VERSION: HeaderName = HeaderName::from_static("s-state-version");

/// Headers that identify a client.
const CREDENTIALS: [&str; 3] = ["authorization", "cookie", "proxy-authorization"];

/// A script route.
pub struct ScriptRoute {
    setup: Arc<RunSetup>,
    options: ScriptOptions,
    program: Arc<ScriptProgram>,
    /// The index of the route's service in the program.
    service: usize,
    text: String,
    /// The folder of the script.
    folder: PathBuf,
    /// The modules that the script imports.
    modules: Vec<ScriptModule>,
    /// The files next to the script, if the state is in the same folder.
    siblings: Vec<(PathBuf, u64)>,
    deployment: OnceLock<Arc<ScriptDeployment>>,
    queue: WorkerQueue,
}

/// The context in which a route is built, besides its own configuration.
#[derive(Clone, Copy)]
pub struct ScriptRouteContext<'a> {
    /// The route's path.
    pub path: &'a str,
    /// The services of the gateway.
    pub services: &'a ServiceSet,
    /// The context that all S services share.
    pub scripts: &'a Arc<ScriptRuntime>,
    /// The services that earlier routes of the same config deploy.
    pub deployed: &'a DeployedNames,
    /// The base of relative paths.
    pub folder: &'a Path,
}

/// The names of the services that a config deploys. Each may be deployed only once, since its name is the key
/// of its state.
#[derive(Debug, Default)]
pub struct DeployedNames(Mutex<BTreeSet<String>>);

impl ScriptRoute {
    /// Builds a route of a compiled script, or returns every problem of its config. The pointers are relative
    /// to the route's `script:`. The script is not active before [`ScriptRoute::activate`].
    ///
    /// # Errors
    /// Services that the script does not contain or that are deployed already, invalid patterns of hosts.
    pub fn build(
        program: ScriptProgram,
        text: String,
        options: ScriptOptions,
        context: &ScriptRouteContext<'_>,
    ) -> Result<Self, Vec<Diagnostic>> {
        let file = context.folder.join(&options.file);
        let mut problems = Vec::new();
        let service = select_service(&program, options.service.as_deref()).map_err(|message| {
            problems.push(Diagnostic::new("/service", message, "name one of the services of the file"));
        });
        if let Ok(service) = service
            && !context.deployed.claim(&program.services[service].name)
        {
            let name = &program.services[service].name;
            let message = format!("the service `{name}` is already deployed on another route");
            problems.push(Diagnostic::new(
                "/service",
                message,
                "deploy each service only once, since its name is the key of its state",
            ));
        }
        let hosts = PermittedHosts::new(&options.hosts).map_err(|error| {
            problems.push(Diagnostic::new(
                "/hosts",
                error.to_string(),
                "write `host:port`, `*.example.org` or `10.0.0.0/8`",
            ));
        });
        let folder = std::path::absolute(&file).ok().and_then(|file| Some(file.parent()?.to_path_buf()));
        let folder = folder.unwrap_or_default();
        let real = |folder: &Path| std::fs::canonicalize(folder).ok();
        if let Some(folder) =
            real(&folder).filter(|folder| real(&context.scripts.state_folder).as_ref() == Some(folder))
        {
            let message =
                format!("{} is the folder of the state, which workers could then read", folder.display());
            let hint = "move the script to another folder, or set `scripts.state_dir` to a separate one";
            problems.push(Diagnostic::new("/file", message, hint));
        }
        let (Ok(service), Ok(hosts), true) = (service, hosts, problems.is_empty()) else {
            return Err(problems);
        };
        let mount = context.path.trim_end_matches("/*").trim_end_matches('/').to_owned();
        let setup = RunSetup {
            scripts: Arc::clone(context.scripts),
            external_calls: ExternalCalls { services: context.services.clone(), hosts },
            limits: options.limits,
            mount,
            show_versions: options.show_versions,
        };
        let modules = deployment::imported_modules(&program, &folder);
        let beside = workers::siblings_of_state(&folder, &context.scripts.state_folder).unwrap_or_default();
        let is_other = |path: &PathBuf| path.file_name() != file.file_name();
        let numbered = |path: PathBuf| Some((std::fs::metadata(&path).ok()?.ino(), path));
        let beside =
            beside.into_iter().filter(is_other).filter_map(numbered).map(|(number, path)| (path, number));
        let beside = beside.collect::<BTreeSet<_>>().into_iter().collect();
        Ok(Self {
            setup: Arc::new(setup),
            program: Arc::new(program),
            service,
            text,
            folder,
            modules,
            siblings: beside,
            options,
            deployment: OnceLock::new(),
            queue: WorkerQueue::new(Instant::now()),
        })
    }

    /// Activates the script, once its config is active. Must be called inside a runtime. Takes over the state
    /// of an earlier deployment of the service, which continues to handle requests until a worker has loaded
    /// the new program.
    pub fn activate(&self) {
        let (scripts, name) = (&self.setup.scripts, self.name());
        scripts.start_maintenance();
        let deployment = self.deployment.get_or_init(|| scripts.get_or_create_deployment(name));
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let least = self.options.workers.min as usize;
        let size = WorkerPoolSize {
            min: least,
            max: self.options.workers.max.map_or(cores, |max| max as usize).max(least),
            cpu_limit: self.options.limits.cpu.0,
            run_timeout: self.options.limits.timeout.0,
            memory: scripts.memory,
        };
        let settings = StateSettings {
            instances: usize::try_from(self.options.resources.max).unwrap_or(usize::MAX),
            ttl: self.options.resources.ttl.map(|ttl| ttl.0),
            size: self.options.state.size.0,
            ..StateSettings::default()
        };
        let plans = DeploymentPlans {
            program: Arc::clone(&self.program),
            service: self.service,
            text: self.text.clone(),
            home: DeploymentProperties {
                folder: self.folder.clone(),
                size,
                modules: self.modules.clone(),
                siblings: self.siblings.clone(),
            },
            settings,
        };
        deployment.start_deployment(plans);
    }

    /// Waits until the activation has succeeded or failed.
    pub async fn wait_until_settled(&self) {
        if let Some(deployment) = self.deployment.get() {
            deployment.wait_until_settled().await;
        }
    }

    /// Returns the reason why no request can be handled yet.
    #[must_use]
    pub fn not_ready_reason(&self) -> Option<String> {
        let of_none = || Some("it is not activated yet".to_owned());
        self.deployment.get().map_or_else(of_none, |deployment| deployment.not_ready_reason())
    }

    /// Whether the script is ready to handle requests.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.deployment.get().is_some_and(|deployment| deployment.is_ready())
    }

    /// The service's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.program.services[self.service].name
    }

    /// The compiled script.
    #[must_use]
    pub fn program(&self) -> &Arc<ScriptProgram> {
        &self.program
    }

    /// Returns the resources with literal paths: each path, prefixed with the route's path, and the methods
    /// of the resource.
    pub fn resources(&self) -> impl Iterator<Item = (String, String)> {
        let resources = deployment::literal_resources(&self.program.services[self.service]);
        resources.map(|(path, methods)| (format!("{}{path}", self.setup.mount), methods))
    }

    /// The methods that this route accepts.
    #[must_use]
    pub fn methods(&self) -> &'static str {
        "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"
    }

    /// Returns the statistics of the worker pool.
    #[must_use]
    pub fn stats(&self) -> PoolStats {
        self.deployment.get().map(|deployment| deployment.stats()).unwrap_or_default()
    }

    /// Whether a request that arrives now would be handled in time.
    #[must_use]
    pub fn has_capacity(&self, now: Instant) -> bool {
        let Some(deployment) = self.deployment.get() else { return true };
        let (busy_runs, workers) = deployment.worker_load();
        self.queue.try_acquire(now, WorkerLoad { busy_runs, workers }).is_ok()
    }

    /// Handles a request. Its call contains the caller, the client's headers and the hops; the budget of each
    /// run is derived from the limits. The request's budget receives a [`RequestReport`].
    ///
    /// # Errors
    /// Everything in `problem.rs`.
    pub fn handle(&self, request: HandlerRequest) -> BoxFuture<'_, HandlerResult> {
        let HandlerRequest { head, body, call, .. } = request;
        Box::pin(self.handle_request(head, body, call))
    }

    async fn handle_request(
        &self,
        head: Parts,
        body: StreamedServiceBody,
        call: RequestCall,
    ) -> HandlerResult {
        let started = Instant::now();
        let is_head = head.method == Method::HEAD;
        let is_get = is_head || head.method == Method::GET;
        let (trace, budget, caller) = (call.trace.clone(), Arc::clone(&call.budget), call.caller.clone());
        let phase = trace.start_phase("run");
        let run_response = self.run_handler(head, body, call, started).await;
        drop(phase);
        let report = |RunCost { made, cpu }| {
            budget.store_report(RequestReport { call_records: made, started: Some(started), cpu })
        };
        let RunResponse { reply, version, header_reads, cost } =
            run_response.map_err(|run::RunFailure { error, cost }| {
                report(cost);
                error
            })?;
        report(cost);
        let mut response = reply.into_response(&self.setup.mount, is_head);
        if is_get {
            let services = &self.setup.external_calls.services;
            let forwarded = services.names().filter_map(|name| services.get(name));
            let forwarded = forwarded.flat_map(|service| service.forwarded_headers());
            if reads_credentials(&header_reads) {
                budget.cache_notes().record_private();
            }
            budget.cache_notes().set_cache_control(response.headers_mut(), &caller, forwarded);
            if let HeaderReads::Named(names) = &header_reads {
                let names: Vec<_> = names.iter().filter_map(|name| HeaderName::try_from(name).ok()).collect();
                add_vary(response.headers_mut(), names.iter());
            }
        }
        if let Some(version) = version.filter(|_| self.setup.show_versions) {
            response.headers_mut().insert(VERSION, HeaderValue::from(version));
        }
        Ok(response.into())
    }

    async fn run_handler(
        &self,
        head: Parts,
        body: StreamedServiceBody,
        request_call: RequestCall,
        started: Instant,
    ) -> Result<RunResponse, run::RunFailure> {
        let deadline = started + self.setup.limits.timeout.0;
        let route = &request_call.budget;
        let answer_by = (route.deadline, route.deadline.saturating_duration_since(route.started));
        let start_by = deadline.min(answer_by.0);
        let generation = timeout_at(start_by, pin!(self.current())).await;
        let generation = generation.unwrap_or(Err(ScriptError::NotReady))?;
        let script_request = self.read_request(&generation, head, body, start_by, &request_call).await?;
        // The operator's script makes the calls, so the caller's rights do not limit them.
        let call = Arc::new(RequestCall { rights: None, ..request_call });
        let origin =
            RunOrigin { call, held_locks: HeldLocks::empty(), deadline, response_deadline: Some(answer_by) };
        run::handle_run_request(RunRequest {
            setup: Arc::clone(&self.setup),
            generation,
            origin,
            request: script_request,
        })
        .await
    }

    async fn current(&self) -> Result<Arc<ProgramGeneration>, ScriptError> {
        match self.deployment.get() {
            Some(deployment) => deployment.current().await,
            None => Err(ScriptError::NotReady),
        }
    }

    /// Reads a client's request until the deadline. A request that no handler accepts is refused before its
    /// body is read.
    async fn read_request(
        &self,
        generation: &ProgramGeneration,
        head: Parts,
        body: StreamedServiceBody,
        deadline: Instant,
        call: &RequestCall,
    ) -> Result<ScriptRequest, ScriptError> {
        let path = script_request::path_below_mount(&self.setup.mount, &head.uri).to_owned();
        let Some(method) = script_request::parse_method(&head.method) else {
            let found = generation.table.route(generation.service(), &generation.edition, None, &path);
            let result =
                timeout_at(deadline, pin!(found)).await.ok_or(RequestBodyError::DeadlineExceeded)??;
            let RoutingResult::MethodNotAllowed(allow) = result else { return Err(ScriptError::NotFound) };
            return Err(ScriptError::Method { method: head.method.to_string(), allow });
        };
        let text = read_request_body(body, self.setup.limits.request_body.0, deadline).await?;
        let parsed = timeout_at(deadline, pin!(self.parse_request(&head, text, call))).await;
        let (body, query) = parsed.ok_or(RequestBodyError::DeadlineExceeded)??;
        Ok(ScriptRequest { method, path, query, headers: head.headers, body })
    }

    /// Parses the body and the query of a client's request.
    async fn parse_request(
        &self,
        head: &Parts,
        text: bytes::Bytes,
        call: &RequestCall,
    ) -> Result<(FramePayload, bytes::Bytes), ScriptError> {
        let pool = &self.setup.scripts.offload;
        let unread = |error: CallError| match error {
            CallError::Unfinished(_) => ScriptError::Overloaded(GatewayOverloaded),
            _ => ScriptError::NotReady,
        };
        let body =
            script_request::parse_request_body(pool, call, &head.headers, text).await.map_err(unread)?;
        let body = body.map_err(|error| match error {
            InvalidBody::Json(error) => ScriptError::BodyJson(error),
            InvalidBody::Text => ScriptError::BodyText,
        })?;
        let query = head.uri.query().unwrap_or_default();
        let query = script_request::query_to_json_pooled(pool, call, query).await.map_err(unread)?;
        Ok((body, query))
    }
}

impl DeployedNames {
    /// Claims a name; returns `false` if it is already in use.
    fn claim(&self, name: &str) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned())
    }
}

/// Whether a response may depend on the client's identity as given in its headers (RFC 9111, section 3).
fn reads_credentials(reads: &HeaderReads) -> bool {
    match reads {
        HeaderReads::Any => true,
        HeaderReads::Named(names) => {
            let is_credential = |name: &String| CREDENTIALS.iter().any(|it| name.eq_ignore_ascii_case(it));
            names.iter().any(is_credential)
        }
    }
}

/// Selects the service of a script.
fn select_service(program: &ScriptProgram, name: Option<&str>) -> Result<usize, String> {
    let names = || {
        program.services.iter().map(|service| format!("`{}`", service.name)).collect::<Vec<_>>().join(", ")
    };
    match (name, program.services.len()) {
        (_, 0) => Err(format!("{} has no service", program.name)),
        (None, 1) => Ok(0),
        (None, _) => Err(format!("{} has several services: {}", program.name, names())),
        (Some(name), _) => {
            let found = program.services.iter().position(|service| service.name == name);
            found.ok_or_else(|| format!("{} has no service `{name}`, but {}", program.name, names()))
        }
    }
}
