//! GraphQL as a way of answering: a route, and how it comes to its schema. `answer.rs` is the way of a request.

mod answer;
mod planning;

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use http::{Method, Request, Response};
use offload::OffloadPool;
use services::{Body, Budget, Call, Flights, Problem, Report, Services};

use crate::config::{GraphqlConfig, GraphqlLimits, Introspection};
use crate::error::GraphqlError;
use crate::execute::Answer;
use crate::mistake::{Finding, Mistake};
use crate::plan::explain::Explanation;
use crate::recipe::{self, Documents, From, Ready, Recipe, RemoteServices};
use crate::schema::Links;
use crate::schemas::{Remote, Schemas};
use crate::serve::{DocumentFile, Listed, METHODS, Persisted};
use crate::sources::{SourceLimits, Sources};

/// A GraphQL route.
pub struct Graphql(Arc<Inner>);

/// An answer that several requests get, with what was noted while it was made.
type SharedAnswer = Arc<(Answer, Arc<Budget>)>;

struct Inner {
    recipe: Recipe,
    ready: ArcSwapOption<Ready>,
    /// Why there is no schema yet, for who asks.
    why: Mutex<String>,
    schemas: Arc<Schemas>,
    services: Services,
    sources: Arc<Sources>,
    /// Queries that are under way, where equal ones share an answer.
    flights: Option<Arc<Flights<SharedAnswer>>>,
    listed: Listed,
    persisted: Option<Persisted>,
    documents_only: bool,
    introspection: Introspection,
    has_page: bool,
    limits: GraphqlLimits,
    offload: OffloadPool,
}

/// What a route is made of beside its config.
pub struct Ground<'a> {
    /// The services of the gateway.
    pub services: &'a Services,
    /// What the REST ones say of themselves.
    pub documents: &'a Documents,
    /// Those that speak GraphQL.
    pub remotes: &'a RemoteServices,
    /// What the file of links says.
    pub links: Option<Links>,
    /// The name and the text of the supergraph, where there is one.
    pub supergraph: Option<(Box<str>, Arc<str>)>,
    /// The operator's documents.
    pub listed: Vec<DocumentFile>,
    /// What services said of themselves before.
    pub schemas: &'a Arc<Schemas>,
    /// Where work goes that clients cause.
    pub offload: &'a OffloadPool,
}

impl Graphql {
    /// A route, or every mistake in what it is made of. Services that have to be asked for their schemas are asked by
    /// [`Graphql::start`] or [`Graphql::settle`].
    ///
    /// # Errors
    /// See `docs/errors.md`, "Of GraphQL".
    pub fn new(config: &GraphqlConfig, ground: Ground<'_>) -> Result<Self, Vec<Mistake>> {
        let Ground { services, documents, remotes, links, supergraph, listed, schemas, offload } = ground;
        let from = match supergraph {
            Some((file, text)) => From::Supergraph(file, text, remotes.clone()),
            None => From::Services(recipe::origins(&config.services, services, documents, remotes)?),
        };
        let limits = config.limits;
        let known = Listed::new(&listed);
        let (links, mutations) = (links.unwrap_or_default(), config.mutations);
        let recipe = Recipe { from, links, listed, limits, mutations };
        let ready = recipe.make(schemas)?;
        let source_limits = SourceLimits {
            calls: limits.calls as usize,
            parallel: limits.parallel as usize,
            received: limits.received.0,
        };
        Ok(Self(Arc::new(Inner {
            recipe,
            ready: ArcSwapOption::from_pointee(ready),
            why: Mutex::new("services are being asked for their schemas".to_owned()),
            schemas: Arc::clone(schemas),
            services: services.clone(),
            sources: Sources::new(services.clone(), source_limits, config.coalesce.calls),
            flights: config.coalesce.operations.then(Arc::default),
            listed: known,
            persisted: config.persisted.then(Persisted::default),
            documents_only: config.documents_only(),
            introspection: config.introspection.clone(),
            has_page: config.graphiql,
            limits,
            offload: offload.clone(),
        })))
    }

    /// The methods that it takes.
    #[must_use]
    pub fn methods(&self) -> &'static str {
        METHODS
    }

    /// Why it can't answer yet, if it can't.
    #[must_use]
    pub fn waits(&self) -> Option<String> {
        self.0.ready.load().is_none().then(|| self.0.why())
    }

    /// The schema, as clients see it; nothing while there is none.
    #[must_use]
    pub fn schema(&self) -> Option<String> {
        self.0.ready.load().as_ref().map(|ready| ready.planner.schema().to_string())
    }

    /// What of the services' documents could not be mapped.
    #[must_use]
    pub fn findings(&self) -> Vec<Finding> {
        self.0.ready.load().as_ref().map(|ready| ready.findings.clone()).unwrap_or_default()
    }

    /// What a document will do, told before it does it; nothing while there is no schema.
    ///
    /// # Errors
    /// What is wrong with the document.
    pub fn explain(
        &self,
        document: &str,
        operation: Option<&str>,
    ) -> Option<Result<Explanation, Vec<GraphqlError>>> {
        let ready = self.0.ready.load_full()?;
        Some(ready.planner.plan(document, operation).map(|plan| plan.explain()))
    }

    /// Asks the services that have to be asked, once: for who has no gateway to serve.
    ///
    /// # Errors
    /// All that is wrong, and the first service that does not answer, in words.
    pub async fn settle(&self) -> Result<(), Unsettled> {
        for remote in self.0.recipe.remotes() {
            let asked = self.0.schemas.ask(&self.0.services, remote).await;
            asked.map_err(|why| Unsettled::Service(remote.service.to_string(), why))?;
        }
        match self.0.recipe.make(&self.0.schemas) {
            Ok(ready) => {
                self.0.ready.store(ready.map(Arc::new));
                Ok(())
            }
            Err(mistakes) => Err(Unsettled::Mistakes(mistakes)),
        }
    }

    /// Begins to ask the services that have to be asked, and goes on until each has said its schema.
    pub fn start(&self) {
        if self.0.recipe.remotes().next().is_some() {
            tokio::spawn(asking(Arc::downgrade(&self.0)));
        }
    }

    /// Answers a request. `seen` is the caller, the headers that services get some of, and how much time there is; the
    /// rest of the allowance is made here, of the limits, and a [`Report`] left with that of the request. The response
    /// carries its [`json::Tree`] in its extensions.
    ///
    /// # Errors
    /// What is no GraphQL over HTTP; all else is told in GraphQL's own form.
    pub fn handle(
        &self,
        request: Request<Body>,
        seen: Call,
    ) -> BoxFuture<'_, Result<Response<Body>, Box<dyn Problem>>> {
        let limits = &self.0.limits;
        let (started, deadline) = (seen.budget.started, seen.budget.deadline);
        let time = limits.deadline.0.min(deadline.saturating_duration_since(started));
        let parallel = limits.parallel as usize;
        let budget = Budget::since(started, time, limits.calls, limits.received.0, parallel);
        let budget = Arc::new(budget.part_of(&seen.budget));
        let request_budget = Arc::clone(&seen.budget);
        let call = Call { budget: Arc::clone(&budget), ..seen };
        let (is_get, caller) = (matches!(*request.method(), Method::GET | Method::HEAD), call.caller.clone());
        let inner = Arc::clone(&self.0);
        let payer = call.quota_key();
        let answer = async move { inner.answer(request, call).await };
        let answer = services::movable(&self.0.offload, "graphql-answer", payer, &budget, answer);
        async move {
            let mut answer: Result<_, Box<dyn Problem>> = match answer.await {
                Ok(answer) => answer.map_err(Into::into),
                Err(problem) => Err(problem),
            };
            request_budget.report(Report::of(&budget));
            if let (true, Ok(response)) = (is_get, &mut answer) {
                let services = self.0.recipe.services().filter_map(|name| self.0.services.get(name));
                let forwarded = services.flat_map(|service| service.forwarded());
                budget.cache().mark(response.headers_mut(), &caller, forwarded);
            }
            answer
        }
        .boxed()
    }
}

/// Why there is no schema.
#[derive(Debug)]
pub enum Unsettled {
    /// What it is made of is wrong.
    Mistakes(Vec<Mistake>),
    /// A service does not say its own: its name, and why.
    Service(String, String),
}

impl Inner {
    fn why(&self) -> String {
        self.why.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Asks a service, and makes the schema if all is there.
    async fn ask(&self, remote: &Remote) -> Result<(), String> {
        let is_new = self.schemas.ask(&self.services, remote).await;
        let is_new = is_new
            .map_err(|why| format!("the service `{}` does not say its schema: {why}", remote.service))?;
        if !is_new && self.ready.load().is_some() {
            return Ok(());
        }
        match self.recipe.make(&self.schemas) {
            Ok(Some(ready)) => self.ready.store(Some(Arc::new(ready))),
            Ok(None) => {}
            Err(mistakes) => {
                return Err(mistakes.iter().map(Mistake::to_string).collect::<Vec<_>>().join("; "));
            }
        }
        Ok(())
    }
}

/// Asks until all services have said their schemas; nobody is asked once the route is gone.
async fn asking(route: Weak<Inner>) {
    const LONGEST: Duration = Duration::from_secs(30);
    let Some(mut left) = route.upgrade().map(|route| route.recipe.remotes().cloned().collect::<Vec<_>>())
    else {
        return;
    };
    let mut wait = Duration::from_millis(250);
    loop {
        let mut failed = Vec::new();
        for remote in left {
            let Some(route) = route.upgrade() else { return };
            if let Err(why) = route.ask(&remote).await {
                tracing::warn!(target: "graphql", service = &*remote.service, "{why}");
                *route.why.lock().unwrap_or_else(PoisonError::into_inner) = why;
                failed.push(remote);
            }
        }
        if failed.is_empty() {
            return;
        }
        left = failed;
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(LONGEST);
    }
}

#[cfg(test)]
mod tests;
