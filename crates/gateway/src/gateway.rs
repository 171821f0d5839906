//! The gateway: built from a config, and the life of a request as code.
//!
//! [`Life::live`] is the list of `lib.rs`, a line a phase. Around it: `server.rs` gives it requests,
//! `respond.rs` makes problems of errors, `access.rs` logs.

use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, Method, Request, Response, header};
use hyper::body::{Body as _, Incoming};
use services::headers::{ClientAddress, MAX_HOPS, hops};
use services::{Body, Budget, Call, Caller, Problem, Services};
use tokio::net::TcpListener;

use crate::access::{Audience, Entry, Log, Logged, Seen};
use crate::admin::Admin;
use crate::config::{Config, Mistake, RouteConfig, Source};
use crate::cors::{self, From as Comes, Origins};
use crate::proxy::Proxy;
use crate::refusal::Refusal;
use crate::respond;
use crate::routes::{Route, Routes};
use crate::server::{self, Client, Drained};
use crate::way::Way;

/// A gateway that is ready to serve.
pub struct Gateway {
    listen: String,
    admin: Option<String>,
    drain: Duration,
    routes: Routes,
    audience: Audience,
    runtime: Option<Arc<query::Runtime>>,
}

/// Why a gateway could not be built.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// The config has mistakes that show only when it is put to work.
    #[error("{}", lines(.0))]
    Config(Vec<Mistake>),
    /// The query runtime does not start.
    #[error("the query runtime does not start: {0}")]
    Runtime(#[from] query::StartError),
    /// The access log does not start.
    #[error("the access log does not start: {0}")]
    Log(#[from] io::Error),
}

/// What a request needs on its way.
pub(crate) struct Life {
    routes: Routes,
    audience: Arc<Audience>,
}

fn lines(mistakes: &[Mistake]) -> String {
    mistakes.iter().map(Mistake::to_string).collect::<Vec<_>>().join("\n")
}

impl Gateway {
    /// Makes ready objects of a config. Connects to nothing and binds nothing yet.
    ///
    /// # Errors
    /// What shows only now: programs' rules that don't fit their services, a runtime that can't start.
    pub fn build(config: Config) -> Result<Self, BuildError> {
        let builder = Builder::new(&config)?;
        let routes = builder.routes(&config)?;
        let runtime = builder.runtime;
        let mut gateway = Self {
            runtime,
            listen: config.listen,
            admin: config.admin,
            drain: config.drain.timeout.0,
            routes,
            audience: Audience::default(),
        };
        if config.log.access {
            gateway.audience.log = Some(Log::new(Box::new(io::stderr()))?);
        }
        Ok(gateway)
    }

    /// Writes the access log there and not to stderr.
    ///
    /// # Errors
    /// When its thread can't be started.
    pub fn log_to(mut self, sink: Box<dyn Write + Send>) -> Result<Self, BuildError> {
        self.audience.log = Some(Log::new(sink)?);
        Ok(self)
    }

    /// Calls this for every request, once the last byte of its answer is gone. It must not block.
    #[must_use]
    pub fn on_request(mut self, watch: impl Fn(Seen) + Send + Sync + 'static) -> Self {
        self.audience.watch = Some(Box::new(watch));
        self
    }

    /// Binds the address of the config.
    ///
    /// # Errors
    /// When the address is taken or not this machine's.
    pub async fn bind(&self) -> io::Result<TcpListener> {
        TcpListener::bind(&self.listen).await
    }

    /// Binds the admin address of the config, if it has one.
    ///
    /// # Errors
    /// When the address is taken or not this machine's.
    pub async fn admin(&self) -> io::Result<Option<Admin>> {
        match &self.admin {
            Some(address) => Admin::bind(address, self.runtime.clone()).await.map(Some),
            None => Ok(None),
        }
    }

    /// Serves until `shutdown` is ready, then drains. Returns when the access log is written.
    pub async fn serve(self, listener: TcpListener, shutdown: impl Future<Output = ()>) -> Drained {
        if let Ok(address) = listener.local_addr() {
            tracing::info!(%address, "listening");
        }
        let life = Arc::new(Life { routes: self.routes, audience: Arc::new(self.audience) });
        server::serve(life, listener, shutdown, self.drain).await
    }
}

struct Builder<'a> {
    services: Services,
    runtime: Option<Arc<query::Runtime>>,
    source: &'a Source,
}

impl<'a> Builder<'a> {
    fn new(config: &'a Config) -> Result<Self, BuildError> {
        let source = &config.source;
        let services = Services::new(&config.services)
            .map_err(|problems| BuildError::Config(mistakes(source, "/services", problems)))?;
        let needs_runtime = config.routes.iter().any(|route| route.query.is_some());
        let runtime = needs_runtime.then(|| query::Runtime::new(&config.runtime)).transpose()?;
        Ok(Self { services, runtime, source })
    }

    fn routes(&self, config: &Config) -> Result<Routes, BuildError> {
        let (mut routes, mut wrong) = (Vec::new(), Vec::new());
        for (index, route) in config.routes.iter().enumerate() {
            let origins = Origins::new(route.cors.as_ref().or(config.cors.as_ref()), &config.listen);
            match self.way(&format!("/routes/{index}"), route) {
                Ok(way) => routes.push(Route {
                    path: route.path.as_str().into(),
                    origins,
                    limits: route.limits.clone(),
                    way,
                }),
                Err(mistakes) => wrong.extend(mistakes),
            }
        }
        if !wrong.is_empty() {
            return Err(BuildError::Config(wrong));
        }
        Routes::new(routes).map_err(|(index, clash)| {
            let pointer = format!("/routes/{index}/path");
            BuildError::Config(vec![self.source.mistake(&pointer, clash.to_string(), None)])
        })
    }

    fn way(&self, pointer: &str, route: &RouteConfig) -> Result<Way, Vec<Mistake>> {
        if let (Some(config), Some(runtime)) = (&route.query, &self.runtime) {
            let query = query::Query::new(config, &self.services, runtime);
            let pointer = format!("{pointer}/query");
            return query.map(Way::Query).map_err(|problems| mistakes(self.source, &pointer, problems));
        }
        let proxy = route.proxy.as_ref().and_then(|config| Proxy::new(config, route, &self.services));
        let missing = || vec![self.source.mistake(pointer, "the route has no way of answering", None)];
        proxy.map(Way::Proxy).ok_or_else(missing)
    }
}

fn mistakes(source: &Source, base: &str, problems: Vec<services::config::ConfigProblem>) -> Vec<Mistake> {
    let mistake = |problem: services::config::ConfigProblem| {
        let hint = Some(problem.hint).filter(|hint| !hint.is_empty());
        source.mistake(&format!("{base}{}", problem.pointer), problem.message, hint)
    };
    problems.into_iter().map(mistake).collect()
}

impl Life {
    /// The life of a request, from its head to the answer's; the body logs when it ends.
    pub(crate) async fn live(
        self: Arc<Self>,
        request: Request<Incoming>,
        client: Client,
    ) -> Response<Logged> {
        let mut entry = Entry::begin(&self.audience, &request, client); // accept
        let route = self.route(&request).cloned(); // route
        let origin = request.headers().get(header::ORIGIN).cloned();
        let comes = route.as_ref().map_or(Comes::NoPage, |route| route.origins.judge(&request));
        let answer = match &route {
            Ok(route) => answer(route, comes, request, &mut entry).await, // handle
            Err(refusal) => Err(Box::from(refusal.clone())),
        };
        let mut response = answer.unwrap_or_else(|problem| respond::problem(&*problem)); // response filters
        if let Ok(route) = &route {
            route.origins.mark(comes, origin.as_ref(), response.headers_mut());
            route.way.complete(&entry, response.headers_mut());
        }
        entry.end(response) // log
    }

    fn route(&self, request: &Request<Incoming>) -> Result<&Arc<Route>, Refusal> {
        if matches!(*request.method(), Method::CONNECT | Method::TRACE) {
            return Err(Refusal::MethodNotAllowed { method: request.method().clone() });
        }
        let path = request.uri().path();
        self.routes.find(path).ok_or_else(|| Refusal::RouteNotFound { path: path.to_owned() })
    }
}

/// What a route answers: to a preflight itself, to everything else in its way.
async fn answer(
    route: &Route,
    comes: Comes,
    request: Request<Incoming>,
    entry: &mut Entry,
) -> Result<Response<Body>, Box<dyn Problem>> {
    entry.route = Some(Arc::clone(&route.path));
    let request = handed(request, route, entry);
    admit(route, comes, &request)?;
    if speaks_for(route) && cors::is_preflight(&request) {
        return Ok(route.origins.preflight());
    }
    let call = call(route, comes, request.headers(), entry);
    let answer = route.way.handle(request, call).await;
    match answer {
        Err(_) if entry.is_over() => Err(Refusal::BodyTooLarge { limit: route.limits.body.0 }.into()),
        answer => answer,
    }
}

/// Whether the gateway answers browsers' preflights here, and not the service behind it.
fn speaks_for(route: &Route) -> bool {
    route.way.refuses_foreign_pages() || !route.origins.is_empty()
}

/// Refuses what can be refused by the head alone.
fn admit(route: &Route, comes: Comes, request: &Request<Body>) -> Result<(), Refusal> {
    let is_asking = speaks_for(route) && cors::is_preflight(request);
    if comes == Comes::Foreign && (is_asking || route.way.refuses_foreign_pages()) {
        return Err(Comes::refusal(request.headers()));
    }
    let limit = route.limits.body.0;
    if request.body().size_hint().lower() > limit {
        return Err(Refusal::BodyTooLarge { limit });
    }
    match hops(request.headers()) {
        hops if hops > MAX_HOPS => Err(Refusal::LoopDetected { hops }),
        _ => Ok(()),
    }
}

/// The call that the request is.
fn call(route: &Route, comes: Comes, headers: &HeaderMap, entry: &mut Entry) -> Call {
    let mut headers = headers.clone();
    if !comes.keeps_cookies() {
        headers.remove(header::COOKIE);
    }
    let budget = Arc::new(Budget::new(route.limits.deadline.0, u32::MAX, u64::MAX, usize::MAX));
    entry.budget = Some(Arc::clone(&budget));
    Call { caller: Caller::Anonymous, hops: hops(&headers), headers: Arc::new(headers), budget }
}

/// The request as a way of answering gets it: body counted, client named.
fn handed(request: Request<Incoming>, route: &Route, entry: &Entry) -> Request<Body> {
    let mut request = request.map(|body| entry.metered(body, route.limits.body.0));
    request.extensions_mut().insert(ClientAddress(entry.client.address.ip()));
    request
}
