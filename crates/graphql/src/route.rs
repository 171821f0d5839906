//! The GraphQL route handler, and how a route obtains its schema. `request_handler.rs` handles the
//! requests.
//!
//! `schema_inputs.rs` builds the schema from what the config names, once `remote_schemas.rs` has fetched the
//! missing parts by introspection. `planning.rs` plans a document off the serving thread.

mod planning;
pub(crate) mod remote_schemas;
mod request_handler;
pub(crate) mod schema_inputs;

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use diagnostics::Diagnostic;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use handler::{HandlerRequest, HandlerResponse, HandlerResult};
use http::Method;
use offload::polls::{PollSite, watch_polls};
use offload::{MovableFuture, OffloadError, OffloadPool, QuotaKey};
use services::{InFlightMap, RequestBudget, RequestReport, ServiceSet};

use crate::config::{GraphqlConfig, GraphqlLimits, IntrospectionAccess};
use crate::error::GraphqlError;
use crate::execute::ExecutionResponse;
use crate::fetch::call_context::{RouteServices, SourceLimits};
use crate::plan::explain::PlanExplanation;
use crate::schema::SchemaDeclarations;

use crate::serve::{DocumentFile, METHODS, PersistedDocuments, StoredDocuments};
use remote_schemas::{IntrospectedService, RemoteSchemas};
use schema_inputs::{ReadySchema, RemoteServices, SchemaInputs, ServiceDocuments, TypesOrigin};

/// The time limit for fetching the schema of a service and composing it with the others.
const SCHEMA_TIMEOUT: Duration = Duration::from_secs(60);

/// A GraphQL route.
pub struct GraphqlRoute(Arc<GraphqlRouteInner>);

/// A response that several requests share, with the budget that was used for it.
type SharedAnswer = Arc<(ExecutionResponse, Arc<RequestBudget>)>;

/// The reason why an operation in flight has no response for all requests that wait for it.
#[derive(Clone)]
enum CoalescingError {
    /// The pool did not compose the response.
    Refused(OffloadError),
    /// The quota of the caller that started the operation is used up. That caller continues it alone.
    OverQuota(Arc<Mutex<Option<MovableFuture<SharedAnswer>>>>),
}

/// The end of an operation in flight, for all requests that wait for it.
#[derive(Clone)]
struct SharedOutcome {
    result: Result<SharedAnswer, CoalescingError>,
    /// The start of the operation.
    started_at: tokio::time::Instant,
}

struct GraphqlRouteInner {
    schema_inputs: SchemaInputs,
    ready_schema: ArcSwapOption<ReadySchema>,
    /// The reason why there is no schema yet, for error responses.
    unavailable_reason: Mutex<String>,
    schemas: Arc<RemoteSchemas>,
    services: ServiceSet,
    route_services: Arc<RouteServices>,
    /// The queries in flight; equal ones share a response. `None` if coalescing is off.
    in_flight: Option<Arc<InFlightMap<SharedOutcome>>>,
    stored_documents: StoredDocuments,
    persisted_documents: Option<PersistedDocuments>,
    documents_only: bool,
    introspection: IntrospectionAccess,
    has_page: bool,
    limits: GraphqlLimits,
    offload: OffloadPool,
}

/// The dependencies of a route besides its config.
pub struct GraphqlRouteContext<'a> {
    /// The services of the gateway.
    pub services: &'a ServiceSet,
    /// The OpenAPI documents of the REST services.
    pub documents: &'a ServiceDocuments,
    /// The GraphQL services.
    pub remotes: &'a RemoteServices,
    /// The content of the links file.
    pub links: Option<SchemaDeclarations>,
    /// The file name and the text of the supergraph, if there is one.
    pub supergraph: Option<(Box<str>, Arc<str>)>,
    /// The operator's documents.
    pub document_files: Vec<DocumentFile>,
    /// The schemas that services have reported before.
    pub schemas: &'a Arc<RemoteSchemas>,
    /// The thread pool for work that clients cause.
    pub offload: &'a OffloadPool,
}

impl GraphqlRoute {
    /// Creates a route, or returns every mistake in its inputs. Services that have to be introspected are
    /// introspected by [`GraphqlRoute::start_introspection`] or [`GraphqlRoute::fetch_schemas`].
    ///
    /// # Errors
    /// See `docs/errors.md`, "Of GraphQL".
    pub fn new(config: &GraphqlConfig, context: GraphqlRouteContext<'_>) -> Result<Self, Vec<Diagnostic>> {
        let GraphqlRouteContext {
            services,
            documents,
            remotes,
            links,
            supergraph,
            document_files: listed,
            schemas,
            offload,
        } = context;
        let from = match supergraph {
            Some((file, text)) => TypesOrigin::Supergraph(file, text, remotes.clone()),
            None => TypesOrigin::Services(schema_inputs::schema_origins(
                &config.services,
                services,
                documents,
                remotes,
            )?),
        };
        let limits = config.limits;
        let known = StoredDocuments::new(&listed);
        let (links, mutations) = (links.unwrap_or_default(), config.mutations);
        let recipe = SchemaInputs { types_origin: from, links, document_files: listed, limits, mutations };
        let ready = recipe.build_schema(schemas)?;
        let source_limits = SourceLimits {
            calls: limits.calls as usize,
            concurrency: limits.concurrency as usize,
            upstream_bytes: limits.upstream_bytes.0,
        };
        Ok(Self(Arc::new(GraphqlRouteInner {
            schema_inputs: recipe,
            ready_schema: ArcSwapOption::from_pointee(ready),
            unavailable_reason: Mutex::new("services are being asked for their schemas".to_owned()),
            schemas: Arc::clone(schemas),
            services: services.clone(),
            route_services: RouteServices::new(services.clone(), source_limits, config.coalesce.calls),
            in_flight: config.coalesce.operations.then(Arc::default),
            stored_documents: known,
            persisted_documents: config.apq.then(PersistedDocuments::default),
            documents_only: config.documents_only(),
            introspection: config.introspection.clone(),
            has_page: config.graphiql,
            limits,
            offload: offload.clone(),
        })))
    }

    /// Returns the allowed methods.
    #[must_use]
    pub fn methods(&self) -> &'static str {
        METHODS
    }

    /// Returns the reason why the route is not ready, or `None` if it is ready.
    #[must_use]
    pub fn unavailable_reason(&self) -> Option<String> {
        self.0.ready_schema.load().is_none().then(|| self.0.unavailable_reason())
    }

    /// Returns the schema that is visible to clients, or `None` while there is none.
    #[must_use]
    pub fn schema(&self) -> Option<String> {
        self.0.ready_schema.load().as_ref().map(|ready| ready.planner.schema().to_string())
    }

    /// Returns warnings for the parts of the services' documents that could not be mapped.
    #[must_use]
    pub fn warnings(&self) -> Vec<Diagnostic> {
        self.0.ready_schema.load().as_ref().map(|ready| ready.warnings.clone()).unwrap_or_default()
    }

    /// Explains the execution of a document without executing it; `None` while there is no schema.
    ///
    /// # Errors
    /// The validation errors of the document.
    pub fn explain(
        &self,
        document: &str,
        operation: Option<&str>,
    ) -> Option<Result<PlanExplanation, Vec<GraphqlError>>> {
        let ready = self.0.ready_schema.load_full()?;
        Some(ready.planner.plan(document, operation).map(|plan| plan.explain()))
    }

    /// Introspects all services that require it, once. Callers without a running gateway use this.
    ///
    /// # Errors
    /// All mistakes in the schema, or the first service that failed to respond.
    pub async fn fetch_schemas(&self) -> Result<(), SchemaUnavailable> {
        for remote in self.0.schema_inputs.introspected_services() {
            let asked = self.0.schemas.fetch_schema(&self.0.services, remote).await;
            asked.map_err(|why| SchemaUnavailable::Service(remote.service.to_string(), why))?;
        }
        match self.0.schema_inputs.build_schema(&self.0.schemas) {
            Ok(ready) => {
                self.0.ready_schema.store(ready.map(Arc::new));
                Ok(())
            }
            Err(mistakes) => Err(SchemaUnavailable::Mistakes(mistakes)),
        }
    }

    /// Starts introspection in the background. It is repeated until each service has returned its schema.
    pub fn start_introspection(&self) {
        if self.0.schema_inputs.introspected_services().next().is_some() {
            tokio::spawn(watch_polls(PollSite::Graphql, introspect_until_ready(Arc::downgrade(&self.0))));
        }
    }

    /// Handles a request. Its call contains the caller, the headers from which services receive some, and the
    /// remaining time. The other limits of the budget come from this route's config, and a [`RequestReport`]
    /// is added to the request's budget. The response has its tree.
    ///
    /// # Errors
    /// If the request is not valid GraphQL over HTTP. All other errors are reported in GraphQL's own format.
    pub fn handle(&self, request: HandlerRequest) -> BoxFuture<'_, HandlerResult> {
        let HandlerRequest { head, body, call, .. } = request;
        let request_budget = Arc::clone(&call.budget);
        let limits = self.0.limits.call_limits();
        let call = call.with_limits(request_budget.started, request_budget.deadline, limits);
        let budget = Arc::clone(&call.budget);
        let (is_get, caller) = (matches!(head.method, Method::GET | Method::HEAD), call.caller.clone());
        let inner = Arc::clone(&self.0);
        let payer = call.quota_key();
        let answer = async move { inner.handle_request(head, body, call).await };
        let answer = services::make_movable(&self.0.offload, "graphql-answer", payer, &budget, answer);
        async move {
            let mut answer = answer.await.unwrap_or_else(Err);
            request_budget.store_report(RequestReport::from_budget(&budget));
            if let (true, Ok(HandlerResponse { response, .. })) = (is_get, &mut answer) {
                let services = self.0.schema_inputs.services().filter_map(|name| self.0.services.get(name));
                let forwarded = services.flat_map(|service| service.forwarded_headers());
                budget.cache_notes().set_cache_control(response.headers_mut(), &caller, forwarded);
            }
            answer
        }
        .boxed()
    }
}

/// The reason why a route has no schema.
#[derive(Debug)]
pub enum SchemaUnavailable {
    /// The mistakes in its inputs.
    Mistakes(Vec<Diagnostic>),
    /// The name of a service that did not return its schema, and the reason.
    Service(String, String),
}

impl GraphqlRouteInner {
    fn unavailable_reason(&self) -> String {
        self.unavailable_reason.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Introspects a service, and builds the schema if everything is available: in the pool, at the
    /// operator's expense.
    async fn introspect_service(self: &Arc<Self>, remote: &IntrospectedService) -> Result<(), String> {
        let (route, remote) = (Arc::clone(self), remote.clone());
        let (kind, payer) = ("graphql-schema", QuotaKey::new(&"graphql-schema").exempt());
        let deadline = Instant::now() + SCHEMA_TIMEOUT;
        let future = self
            .offload
            .make_movable(kind, payer, deadline, async move { route.introspect_and_build(&remote).await });
        future.await.unwrap_or_else(|error| Err(error.to_string()))
    }

    async fn introspect_and_build(&self, remote: &IntrospectedService) -> Result<(), String> {
        let is_new = self.schemas.fetch_schema(&self.services, remote).await;
        let is_new = is_new
            .map_err(|why| format!("the service `{}` does not return its schema: {why}", remote.service))?;
        if !is_new && self.ready_schema.load().is_some() {
            return Ok(());
        }
        offload::move_to_pool().await;
        match self.schema_inputs.build_schema(&self.schemas) {
            Ok(Some(ready)) => self.ready_schema.store(Some(Arc::new(ready))),
            Ok(None) => {}
            Err(mistakes) => {
                return Err(mistakes.iter().map(|it| format!("{it:#}")).collect::<Vec<_>>().join("; "));
            }
        }
        Ok(())
    }
}

/// Introspects until all services have returned their schemas. Stops once the route has been dropped.
async fn introspect_until_ready(route: Weak<GraphqlRouteInner>) {
    const MAX_DELAY: Duration = Duration::from_secs(30);
    let Some(mut left) =
        route.upgrade().map(|route| route.schema_inputs.introspected_services().cloned().collect::<Vec<_>>())
    else {
        return;
    };
    let mut wait = Duration::from_millis(250);
    loop {
        let mut failed = Vec::new();
        for remote in left {
            let Some(route) = route.upgrade() else { return };
            if let Err(why) = route.introspect_service(&remote).await {
                tracing::warn!(target: "graphql", service = &*remote.service, "{why}");
                *route.unavailable_reason.lock().unwrap_or_else(PoisonError::into_inner) = why;
                failed.push(remote);
            }
        }
        if failed.is_empty() {
            return;
        }
        left = failed;
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(MAX_DELAY);
    }
}

#[cfg(test)]
mod tests;
