//! Builds the runtime objects of a config: services, the query runtime, routes.
//!
//! A reload builds them too, and passes in the active `ServingConfig`. Objects that the new config still
//! needs are taken over from it, with the state that they have accumulated. The submodules read the files
//! that the handlers of routes need besides the config.

pub mod aggregate_routes;
pub mod graphql_routes;
pub mod openapi_documents;
pub mod script_routes;

use std::io;
use std::sync::Arc;

use diagnostics::{Diagnostic, Diagnostics};
use offload::OffloadPool;
use services::ServiceSet;

use crate::auth::authn::IdentityProviders;
use crate::auth::authz::AuthorizationTable;
use crate::config::{FieldPositions, GatewayConfig, RouteConfig, RouteLimitsConfig};
use crate::handlers::RouteHandler;
use crate::handlers::catalogue::ApiCatalogue;
use crate::handlers::proxy::ProxyHandler;
use crate::http_semantics::cors::AllowedOrigins;
use crate::http_semantics::encode::EncodingConfigState;
use crate::http_semantics::own_hosts::OwnHosts;
use crate::http_semantics::trusted_proxies::TrustedProxies;
use crate::limits::load_shedder::LoadShedder;
use crate::pipeline::RequestPipeline;
use crate::pipeline::routes::{RouteEntry, RouteTable};
use crate::server::active_config::ServingConfig;
use crate::server::listener_rules::ListenerRulesByAddress;
use crate::telemetry::Telemetry;
use crate::telemetry::metrics::GatewayMetrics;
use aggregate_routes::ParsedDeclaration;
use script_routes::CompiledScript;

/// The reason why a gateway could not be built.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// Mistakes in the config that show only when it is activated.
    #[error("{}", lines(.0))]
    Config(Vec<Diagnostic>),
    /// The threads of the offload pool can't be started.
    #[error("the threads for compiling and planning can't be started: {0}")]
    Offload(io::Error),
    /// The query runtime can't be started.
    #[error("the query runtime can't be started: {0}")]
    Runtime(#[from] query::RuntimeStartError),
    /// The script runtime can't be started.
    #[error("the script runtime can't be started: {0}")]
    Scripts(#[from] script_runtime::ScriptStartError),
    /// The filter runtime can't be started.
    #[error("the filter runtime can't be started: {0}")]
    Filters(#[from] filter::FilterStartError),
    /// The access log can't be started.
    #[error("the access log can't be started: {0}")]
    Log(#[from] io::Error),
}

struct GatewayBuilder<'a> {
    services: ServiceSet,
    offload: OffloadPool,
    runtime: Option<Arc<query::QueryRuntime>>,
    filters: Option<Arc<filter::FilterRuntime>>,
    scripts: Option<Arc<script_runtime::ScriptRuntime>>,
    compiled_scripts: Vec<CompiledScript>,
    declarations: Vec<ParsedDeclaration>,
    graphql_inputs: graphql_routes::GraphqlInputs,
    schemas: Arc<graphql::RemoteSchemas>,
    deployed_scripts: script_runtime::DeployedNames,
    trusted_keys: Arc<query::SigningKeys>,
    blocked_programs: Arc<query::BlockedPrograms>,
    documents: query::RouteDocuments,
    source: &'a FieldPositions,
}

impl ServingConfig {
    /// Builds the runtime objects of a config, reusing those of `previous` where possible.
    ///
    /// # Errors
    /// Mistakes and failures that show only now.
    pub(crate) fn build(config: &GatewayConfig, previous: Option<&Self>) -> Result<Self, BuildError> {
        let pipeline = RequestPipeline::build(config, previous.map(|serving| &*serving.pipeline))?;
        Ok(Self {
            pipeline: Arc::new(pipeline),
            listener_rules: build_listener_rules(config, previous.map(|serving| &serving.listener_rules))?,
            connections: config.connections,
            drain: config.drain.clone(),
        })
    }
}

impl RequestPipeline {
    fn build(config: &GatewayConfig, previous: Option<&Self>) -> Result<Self, BuildError> {
        let builder = GatewayBuilder::new(config, previous)?;
        let telemetry = Telemetry::from_config(config, previous.map(|pipeline| &*pipeline.telemetry))?;
        let load = previous.map(|pipeline| &*pipeline.load_shedder);
        Ok(Self {
            routes: Arc::new(builder.build_routes(config, &telemetry.metrics)?),
            telemetry: Arc::new(telemetry),
            load_shedder: Arc::new(LoadShedder::new(&config.shed, load)),
            identity: Arc::new(build_identity(config, previous)?),
            rights: Arc::new(AuthorizationTable::new(config, previous.map(|pipeline| &*pipeline.rights))),
            trusted_proxies: TrustedProxies::new(&config.trusted_proxies, &config.client_ip_header)
                .with_passed_headers(&config.proxy_headers),
            services: builder.services,
            offload: builder.offload,
            runtime: builder.runtime,
            filters: builder.filters,
            scripts: builder.scripts,
            schemas: builder.schemas,
        })
    }
}

impl<'a> GatewayBuilder<'a> {
    fn new(config: &'a GatewayConfig, previous: Option<&RequestPipeline>) -> Result<Self, BuildError> {
        let source = &config.source;
        let folder = source.folder();
        let services = match previous {
            Some(pipeline) => pipeline.services.reload(&config.services, folder),
            None => ServiceSet::load(&config.services, folder),
        };
        let services =
            services.map_err(|problems| BuildError::Config(source.resolve("/services", problems)))?;
        let documents = openapi_documents::read_documents(config).map_err(BuildError::Config)?;
        openapi_documents::log_findings(&documents);
        let compiled = script_routes::read_scripts(config).map_err(BuildError::Config)?;
        script_routes::log_warnings(&compiled);
        let parsed_declarations = aggregate_routes::read_declarations(config).map_err(BuildError::Config)?;
        let graphqls = graphql_routes::read_inputs(config).map_err(BuildError::Config)?;
        let offload = match previous {
            Some(pipeline) => pipeline.offload.clone(),
            None => OffloadPool::start(config.runtime.offload_config()).map_err(BuildError::Offload)?,
        };
        let services = services.with_offload(offload.clone());
        let runtime =
            build_query_runtime(config, &offload, previous.and_then(|pipeline| pipeline.runtime.as_ref()))?;
        let gate = runtime.as_ref().map(|runtime| runtime.gate().clone());
        let filters =
            build_filter_runtime(config, gate, previous.and_then(|pipeline| pipeline.filters.as_ref()))?;
        let scripts =
            build_script_runtime(config, &offload, previous.and_then(|pipeline| pipeline.scripts.as_ref()))?;
        let trusted = query::SigningKeys::new(&config.trust);
        let trusted = trusted.map_err(|problems| BuildError::Config(source.resolve("/trust", problems)))?;
        let blocked = query::BlockedPrograms::new(&config.programs);
        let blocked =
            blocked.map_err(|problems| BuildError::Config(source.resolve("/programs", problems)))?;
        Ok(Self {
            services,
            offload,
            runtime,
            filters,
            scripts,
            compiled_scripts: compiled,
            declarations: parsed_declarations,
            graphql_inputs: graphqls,
            schemas: previous.map(|pipeline| Arc::clone(&pipeline.schemas)).unwrap_or_default(),
            deployed_scripts: script_runtime::DeployedNames::default(),
            trusted_keys: Arc::new(trusted),
            blocked_programs: Arc::new(blocked),
            documents,
            source,
        })
    }

    fn build_routes(
        &self,
        config: &GatewayConfig,
        metrics: &GatewayMetrics,
    ) -> Result<RouteTable, BuildError> {
        let (mut routes, mut diagnostics) = (Vec::new(), Diagnostics::default());
        let hosts = Arc::new(OwnHosts::new(&config.listen));
        for (index, route) in config.routes.iter().enumerate() {
            let origins = AllowedOrigins::new(route.cors.as_ref().or(config.cors.as_ref()), &hosts);
            let pointer = format!("/routes/{index}");
            match self
                .build_handler(index, &pointer, route)
                .and_then(|route_handler| Ok((route_handler, self.build_filter_chain(&pointer, route)?)))
            {
                Ok((way, filters)) => routes.push(RouteEntry {
                    metrics: metrics.route(&route.path, way.name()),
                    path: route.path.as_str().into(),
                    origins,
                    limits: route.limits.clone(),
                    encoding: EncodingConfigState::new(
                        route,
                        config.compress.as_ref(),
                        !matches!(way, RouteHandler::Proxy(_)),
                    ),
                    filters,
                    handler: way,
                }),
                Err(mistakes) => diagnostics.extend_unique(mistakes),
            }
        }
        if !diagnostics.is_empty() {
            return Err(BuildError::Config(diagnostics.into_vec()));
        }
        let allowed_origins = AllowedOrigins::new(config.cors.as_ref(), &hosts);
        let catalogues = ApiCatalogue::for_routes(routes.iter().map(|route| (&*route.path, &route.handler)))
            .into_iter()
            .map(|catalogue| RouteEntry {
                metrics: metrics.route(catalogue.path(), RouteHandler::CATALOGUE),
                path: catalogue.path().into(),
                origins: allowed_origins.clone(),
                limits: RouteLimitsConfig::default(),
                encoding: EncodingConfigState::without_dedup(config.compress.as_ref(), true),
                filters: None,
                handler: RouteHandler::Catalogue(catalogue),
            });
        RouteTable::new(routes, catalogues.collect(), allowed_origins).map_err(|(index, clash)| {
            let pointer = format!("/routes/{index}/path");
            BuildError::Config(vec![self.source.mistake(&pointer, clash.to_string(), None)])
        })
    }

    fn build_handler(
        &self,
        index: usize,
        pointer: &str,
        route: &RouteConfig,
    ) -> Result<RouteHandler, Vec<Diagnostic>> {
        if let (Some(config), Some(scripts)) = (&route.script, &self.scripts)
            && let Some(compiled_script) =
                self.compiled_scripts.iter().find(|compiled| compiled.route == index)
        {
            let (services, names, folder) = (&self.services, &self.deployed_scripts, self.source.folder());
            let path = &route.normal_path();
            let context =
                script_runtime::ScriptRouteContext { path, services, scripts, deployed: names, folder };
            let (program, text) = (compiled_script.program.clone(), compiled_script.text.clone());
            let script = script_runtime::ScriptRoute::build(program, text, config.options(), &context);
            let pointer = format!("{pointer}/script");
            return script
                .map(Box::new)
                .map(RouteHandler::Script)
                .map_err(|problems| self.source.resolve(&pointer, problems));
        }
        if let (Some(config), Some(runtime)) = (&route.query, &self.runtime) {
            let query =
                query::QueryRoute::new(config, &self.query_build_context(&route.normal_path(), runtime));
            let pointer = format!("{pointer}/query");
            return query
                .map(Box::new)
                .map(RouteHandler::Query)
                .map_err(|problems| self.source.resolve(&pointer, problems));
        }
        if let Some(config) = &route.aggregate
            && let Some(declaration) =
                self.declarations.iter().find(|parsed_declaration| parsed_declaration.route == index)
        {
            let (services, documents, offload) = (&self.services, &self.documents, &self.offload);
            let aggregate_context =
                aggregate::AggregateContext { path: &route.path, services, documents, offload };
            return declaration
                .build_aggregate(config, &aggregate_context)
                .map(Arc::new)
                .map(RouteHandler::Aggregate);
        }
        if let Some(config) = &route.graphql {
            let shared = graphql_routes::SharedGraphqlState {
                source: self.source,
                services: &self.services,
                documents: &self.documents,
                schemas: &self.schemas,
                offload: &self.offload,
            };
            let graphql = self.graphql_inputs.build_route(index, config, &shared);
            return graphql
                .inspect(|graphql| graphql_routes::log_findings(&route.path, graphql))
                .map(Box::new)
                .map(RouteHandler::Graphql);
        }
        let proxy = route.proxy.as_ref().and_then(|config| ProxyHandler::new(config, route, &self.services));
        let missing = || vec![self.source.mistake(pointer, "the route has no handler", None)];
        proxy.map(RouteHandler::Proxy).ok_or_else(missing)
    }

    fn query_build_context<'b>(
        &'b self,
        path: &'b str,
        runtime: &'b Arc<query::QueryRuntime>,
    ) -> query::QueryRouteContext<'b> {
        query::QueryRouteContext {
            path,
            services: &self.services,
            documents: &self.documents,
            runtime,
            trusted: &self.trusted_keys,
            blocked: &self.blocked_programs,
            folder: self.source.folder(),
        }
    }

    /// Builds the filter chain of a route.
    fn build_filter_chain(
        &self,
        pointer: &str,
        route: &RouteConfig,
    ) -> Result<Option<Arc<filter::FilterChain>>, Vec<Diagnostic>> {
        let Some(filters) = self.filters.as_ref().filter(|_| !route.filters.is_empty()) else {
            return Ok(None);
        };
        let chain = filter::FilterChain::new(filters, &route.filters, self.source.folder(), &self.services);
        chain.map(|chain| Some(Arc::new(chain))).map_err(|refused| {
            self.source.resolve(&format!("{pointer}/filters"), refused.into_iter().map(Into::into))
        })
    }
}

/// The filter runtime, with the state that its modules share. It lives as long as the process.
fn build_filter_runtime(
    config: &GatewayConfig,
    gate: Option<query::HeavyGate>,
    previous: Option<&Arc<filter::FilterRuntime>>,
) -> Result<Option<Arc<filter::FilterRuntime>>, BuildError> {
    if let Some(previous) = previous {
        return Ok(Some(Arc::clone(previous)));
    }
    let is_needed = config.routes.iter().any(|route| !route.filters.is_empty());
    Ok(is_needed
        .then(|| filter::FilterRuntime::new(gate, config.runtime.offload_config().quota))
        .transpose()?)
}

/// The state that scripts share, and their runs in flight. It lives as long as the process.
fn build_script_runtime(
    config: &GatewayConfig,
    offload: &OffloadPool,
    previous: Option<&Arc<script_runtime::ScriptRuntime>>,
) -> Result<Option<Arc<script_runtime::ScriptRuntime>>, BuildError> {
    if let Some(previous) = previous {
        return Ok(Some(Arc::clone(previous)));
    }
    let is_needed = config.routes.iter().any(|route| route.script.is_some());
    let make = || {
        let (folder, launcher) = (config.source.folder(), config.launcher.clone());
        script_runtime::ScriptRuntime::new(&config.scripts, folder, launcher, offload.clone())
    };
    Ok(is_needed.then(make).transpose()?)
}

/// Builds the authentication of callers.
fn build_identity(
    config: &GatewayConfig,
    previous: Option<&RequestPipeline>,
) -> Result<IdentityProviders, BuildError> {
    IdentityProviders::new(config, previous.map(|pipeline| &*pipeline.identity)).map_err(
        |(pointer, message)| BuildError::Config(vec![config.source.mistake(&pointer, message, None)]),
    )
}

/// The query runtime, with its compiled programs. It lives as long as the process.
fn build_query_runtime(
    config: &GatewayConfig,
    offload: &OffloadPool,
    previous: Option<&Arc<query::QueryRuntime>>,
) -> Result<Option<Arc<query::QueryRuntime>>, BuildError> {
    let is_needed = config.routes.iter().any(|route| route.query.is_some());
    let delay = config.shed.automatic.then_some(config.shed.delay.0);
    if let Some(previous) = previous {
        previous.set_queue_target(delay);
        return Ok(Some(Arc::clone(previous)));
    }
    let mut settings = config.runtime.clone();
    settings.cache_dir = settings.cache_dir.map(|folder| config.source.folder().join(folder));
    let runtime = is_needed.then(|| query::QueryRuntime::new(&settings, offload.clone())).transpose()?;
    runtime.iter().for_each(|runtime| runtime.set_queue_target(delay));
    if let Some((instances, wanted)) = runtime.as_deref().map(query::QueryRuntime::instances)
        && instances < wanted
    {
        tracing::warn!(instances, wanted, "the system refuses address space: the instance pools are smaller");
    }
    Ok(runtime)
}

fn build_listener_rules(
    config: &GatewayConfig,
    previous: Option<&ListenerRulesByAddress>,
) -> Result<ListenerRulesByAddress, BuildError> {
    ListenerRulesByAddress::new(&config.listen, config.source.folder(), previous)
        .map_err(|problems| BuildError::Config(config.source.resolve("", problems)))
}

/// Starts an offload pool for objects that are built without a gateway.
///
/// # Errors
/// If the system refuses the threads.
fn start_offload_pool(config: &GatewayConfig) -> Result<OffloadPool, Vec<Diagnostic>> {
    OffloadPool::start(config.runtime.offload_config())
        .map_err(|error| vec![config.source.mistake("", BuildError::Offload(error).to_string(), None)])
}

fn lines(mistakes: &[Diagnostic]) -> String {
    mistakes.iter().map(Diagnostic::to_string).collect::<Vec<_>>().join("\n")
}
