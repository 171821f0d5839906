//! A test setup with everything that a service needs, in a folder of its own.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::TryFutureExt;
use handler::HandlerRequest;
use http::{Request, Response};
use http_body_util::BodyExt;
use offload::{OffloadConfig, OffloadPool};
use script::{
    AccessGroup, CellScope, CommitPoint, CompileOptions, ConcurrencyClass, HandlerMethod, HeaderReads,
    NumberedSite, RequestReads, ResourceHandler, ResourcePath, ScriptCell, ScriptProgram, ScriptResource,
    ScriptService, TextPosition, compile,
};
use serde_json::Value;
use services::{RequestCall, ServiceConfig, ServiceSet, StreamedServiceBody, ToProblem, body};
use tempfile::TempDir;
use testkit::with_timeout;
use tokio::task::JoinHandle;

use crate::config::{ScriptConfig, ScriptLimitsConfig, ScriptOptions, ScriptsConfig};
use crate::{DeployedNames, ScriptRoute, ScriptRouteContext, ScriptRuntime};

/// A service and its environment.
pub(crate) struct ScriptFixture {
    pub(crate) script: Arc<ScriptRoute>,
    pub(crate) scripts: Arc<ScriptRuntime>,
    services: ServiceSet,
    folder: Arc<TempDir>,
}

/// The settings of a test, with defaults.
pub(crate) struct FixtureSettings {
    pub(crate) options: ScriptOptions,
    pub(crate) scripts: ScriptsConfig,
    pub(crate) path: &'static str,
    pub(crate) services: BTreeMap<String, ServiceConfig>,
}

/// The builder of a hand-written service.
pub(crate) struct HandwrittenService {
    service: ScriptService,
    handlers: Vec<String>,
    head: String,
}

pub(crate) fn default_settings() -> FixtureSettings {
    let mut options = ScriptConfig::File("test.sjs".into()).options();
    options.workers.max = Some(1);
    options.limits = ScriptLimitsConfig { cpu: services::DurationConfig::from_millis(300), ..options.limits };
    let scripts = ScriptsConfig { memory: services::BytesConfig(64 << 20), ..ScriptsConfig::default() };
    FixtureSettings { options, scripts, path: "/*", services: BTreeMap::new() }
}

pub(crate) fn offload_pool() -> OffloadPool {
    OffloadPool::start(OffloadConfig::default()).expect("threads")
}

pub(crate) fn handwritten_service() -> HandwrittenService {
    let service = ScriptService { name: "test".into(), ..ScriptService::default() };
    HandwrittenService { service, handlers: Vec::new(), head: String::new() }
}

impl HandwrittenService {
    /// Adds a resource at a path; the following handlers belong to it.
    pub(crate) fn resource(mut self, path: &str) -> Self {
        self.service.resources.push(ScriptResource {
            key: path.into(),
            path: ResourcePath::Literal(path.into()),
            parent: None,
            captures: Vec::new(),
            methods: Vec::new(),
            cells: Vec::new(),
            position: TextPosition::default(),
        });
        self
    }

    /// Adds a resource that a handler of `parent` declares.
    pub(crate) fn nested_resource(self, parent: usize, key: &str) -> Self {
        let mut nested = self.resource(key);
        let resource = nested.service.resources.last_mut().expect("one");
        (resource.path, resource.parent) = (ResourcePath::Computed, Some(parent));
        nested
    }

    /// Adds a cell of the service, or of the last resource.
    pub(crate) fn cell(mut self, name: &str, is_shared: bool, initial: Option<&str>) -> Self {
        let (index, group) = (self.service.cells.len(), self.service.groups.len());
        let resource = self.service.resources.len().saturating_sub(1);
        let scope = if is_shared { CellScope::Service } else { CellScope::Resource(resource) };
        let key =
            if is_shared { name.into() } else { format!("{} {name}", self.service.resources[resource].key) };
        self.service.groups.push(AccessGroup { shared: is_shared, cells: vec![index] });
        if !is_shared {
            self.service.resources[resource].cells.push(index);
        }
        if let Some(initial) = initial {
            self.handlers.push(format!("$s.initial({index}, {initial});"));
        }
        let cell = ScriptCell {
            name: name.into(),
            view: name.into(),
            key,
            scope,
            group,
            eager: initial.is_some(),
            position: TextPosition::default(),
        };
        self.service.cells.push(cell);
        self
    }

    /// Adds a handler that does not use state.
    pub(crate) fn stateless(self, method: HandlerMethod, code: &str) -> Self {
        self.handler(method, ConcurrencyClass::Stateless, None, code)
    }

    pub(crate) fn reader(self, method: HandlerMethod, cell: usize, code: &str) -> Self {
        self.handler(method, ConcurrencyClass::Reader, Some(cell), code)
    }

    pub(crate) fn writer(self, method: HandlerMethod, cell: usize, code: &str) -> Self {
        self.handler(method, ConcurrencyClass::Writer, Some(cell), code)
    }

    /// Sets the code before the service.
    pub(crate) fn head(mut self, code: &str) -> Self {
        self.head = code.into();
        self
    }

    fn handler(
        mut self,
        method: HandlerMethod,
        class: ConcurrencyClass,
        cell: Option<usize>,
        code: &str,
    ) -> Self {
        let (number, resource) = (self.service.handlers.len(), self.service.resources.len() - 1);
        self.handlers.push(format!("$s.handler({number}, {code});"));
        self.service.resources[resource].methods.push((method, number));
        self.service.handlers.push(ResourceHandler {
            method,
            resource,
            class,
            group: cell.map(|cell| self.service.cells[cell].group),
            cells: cell.into_iter().collect(),
            commit: CommitPoint::End,
            reads: RequestReads::default(),
            header_reads: HeaderReads::default(),
            calls: true,
            recipe: None,
            position: TextPosition { line: u32::try_from(number + 1).expect("few"), column: 1 },
        });
        self
    }

    pub(crate) fn program(self) -> (ScriptProgram, String) {
        let code = format!(
            "(async ($s) => {{\"use strict\"; {}\n$s.service(\"test\", () => {{\n{}\n}}); }})",
            self.head,
            self.handlers.join("\n")
        );
        let sites = (1..=8)
            .map(|line| NumberedSite { position: TextPosition { line, column: 9 }, text: "a.get".into() });
        let program = ScriptProgram {
            name: "test.sjs".into(),
            code: code.clone(),
            services: vec![self.service],
            sites: sites.collect(),
            ..ScriptProgram::default()
        };
        (program, code)
    }

    pub(crate) async fn start(self) -> ScriptFixture {
        self.start_with(default_settings()).await
    }

    pub(crate) async fn start_with(self, wish: FixtureSettings) -> ScriptFixture {
        self.start_in(Arc::new(tempfile::tempdir().expect("a folder")), wish).await
    }

    /// Starts on the state that another setup left behind.
    pub(crate) async fn start_in(self, folder: Arc<TempDir>, wish: FixtureSettings) -> ScriptFixture {
        let scripts = ScriptRuntime::new(&wish.scripts, folder.path(), None, offload_pool())
            .expect("a store, and Node.js");
        let services = ServiceSet::new(&wish.services).expect("services");
        let (program, text) = self.program();
        let script = build_route(program, text, wish.options, wish.path, &scripts, &services, &folder);
        script.activate();
        ScriptFixture { script, scripts, services, folder }
    }
}

fn build_route(
    program: ScriptProgram,
    text: String,
    options: ScriptOptions,
    path: &str,
    scripts: &Arc<ScriptRuntime>,
    services: &ServiceSet,
    folder: &TempDir,
) -> Arc<ScriptRoute> {
    let names = DeployedNames::default();
    let context = ScriptRouteContext { path, services, scripts, deployed: &names, folder: folder.path() };
    Arc::new(
        ScriptRoute::build(program, text, options, &context)
            .unwrap_or_else(|problems| panic!("{problems:?}")),
    )
}

impl ScriptFixture {
    /// Starts a script from its source.
    pub(crate) async fn from_source(text: &str, wish: FixtureSettings) -> Self {
        let program = compile(text, "test.sjs", &CompileOptions::default()).expect("a script");
        Self::from_program(program, text.to_owned(), wish).await
    }

    /// Starts a compiled script.
    pub(crate) async fn from_program(program: ScriptProgram, text: String, wish: FixtureSettings) -> Self {
        let folder = Arc::new(tempfile::tempdir().expect("a folder"));
        let scripts = ScriptRuntime::new(&wish.scripts, folder.path(), None, offload_pool())
            .expect("a store, and Node.js");
        let services = ServiceSet::new(&wish.services).expect("services");
        let script = build_route(program, text, wish.options, wish.path, &scripts, &services, &folder);
        script.activate();
        Self { script, scripts, services, folder }
    }

    /// Returns the working directory of the workers.
    pub(crate) fn folder(&self) -> &std::path::Path {
        self.folder.path()
    }

    /// Waits until no run is in flight.
    pub(crate) async fn wait_idle(&self) {
        with_timeout("the end of all runs", self.scripts.wait_idle()).await;
    }

    /// Replaces the script, as a changed config does.
    pub(crate) fn replace(&mut self, service: HandwrittenService) {
        self.replace_with(service, default_settings().options);
    }

    pub(crate) fn replace_with(&mut self, service: HandwrittenService, options: ScriptOptions) {
        let (program, text) = service.program();
        let script = build_route(program, text, options, "/*", &self.scripts, &self.services, &self.folder);
        script.activate();
        self.script = script;
    }

    /// Shuts down, and returns the folder with the state.
    pub(crate) async fn shut_down(self) -> Arc<TempDir> {
        let Self { script, scripts, folder, .. } = self;
        with_timeout("the end of all runs", scripts.drain()).await;
        drop((script, scripts));
        folder
    }

    pub(crate) fn send(
        &self,
        request: Request<StreamedServiceBody>,
    ) -> impl Future<Output = Result<Response<StreamedServiceBody>, Box<dyn ToProblem>>> + use<'_> {
        let answer = self.script.handle(HandlerRequest::new(request, RequestCall::unlimited()));
        with_timeout("an answer", answer.map_ok(|answer| answer.response))
    }

    /// Returns the text of a response, requested in a task of its own that holds a reference to the script,
    /// like a client's connection.
    pub(crate) fn handle(&self, path: &str) -> JoinHandle<String> {
        let (script, path) = (Arc::clone(&self.script), path.to_owned());
        tokio::spawn(async move {
            let request = Request::get(path).body(body::empty()).expect("a request");
            let answer = script
                .handle(HandlerRequest::new(request, RequestCall::unlimited()))
                .await
                .unwrap_or_else(|problem| panic!("{problem}"));
            let body = answer.response.into_body().collect().await.expect("a body").to_bytes();
            String::from_utf8_lossy(&body).into_owned()
        })
    }

    /// Returns any response as its status and text; for a problem, its status and code.
    pub(crate) async fn request(&self, method: &str, path: &str) -> (u16, String) {
        self.request_with_json(method, path, "").await
    }

    pub(crate) async fn request_with_json(&self, method: &str, path: &str, json: &str) -> (u16, String) {
        let mut request = Request::builder().method(method).uri(path);
        if !json.is_empty() {
            request = request.header("content-type", "application/json");
        }
        let request = request.body(body::full(Bytes::from(json.to_owned()))).expect("a request");
        match self.send(request).await {
            Ok(response) => {
                let (head, body) = response.into_parts();
                let body = body.collect().await.expect("a body").to_bytes();
                (head.status.as_u16(), String::from_utf8_lossy(&body).into_owned())
            }
            Err(problem) => (problem.status().as_u16(), problem.code().to_owned()),
        }
    }

    /// Waits until requests are handled; for tests with a time limit, which would otherwise include the
    /// start.
    pub(crate) async fn wait_ready(&self) {
        self.wait_until_settled().await;
        assert!(self.script.is_ready());
    }

    /// Waits until the last activation has succeeded or failed.
    pub(crate) async fn wait_until_settled(&self) {
        with_timeout("the deployment", self.script.wait_until_settled()).await;
    }

    /// Waits for the deployment, and checks the response.
    pub(crate) async fn expect_after_deployment(&self, path: &str, wanted: &str) {
        self.wait_until_settled().await;
        assert_eq!(self.get(path).await, wanted);
    }

    pub(crate) async fn get(&self, path: &str) -> String {
        let (status, text) = self.request("GET", path).await;
        assert_eq!(status, 200, "{path}: {text}");
        text
    }

    pub(crate) async fn json(&self, path: &str) -> Value {
        serde_json::from_str(&self.get(path).await).expect("JSON")
    }
}
