//! The aggregate handler, which turns a request into a response.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use diagnostics::Diagnostic;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use http::header::HeaderMap;
use http::{Method, Request, Response};
use json::JsonDocument;
use offload::OffloadPool;
use services::body::{ReadBodyError, read_limited};
use services::caching::{self, CacheNotes};
use services::{
    BodyDeadlineExceeded, CallerId, RequestBudget, RequestCall, RequestCalls, RequestReport, ServiceSet,
    StreamedServiceBody, ToProblem, timeout_at,
};

use crate::config::AggregateLimitsConfig;
use crate::declaration::AggregateDeclaration;
use crate::plan::{self, AggregatePlan};
use crate::problem::AggregateError;
use crate::response::{self, assemble};
use crate::run::AggregateRun;
use crate::value::AvailableValues;

/// An aggregate.
pub struct Aggregate {
    pub(crate) plan: AggregatePlan,
    pub(crate) declaration: AggregateDeclaration,
    services: ServiceSet,
    pub(crate) documents: OpenApiDocuments,
    pub(crate) path: Box<str>,
    /// The pool for long computations on responses.
    offload: OffloadPool,
}

/// The services' OpenAPI documents, by service name.
pub type OpenApiDocuments = BTreeMap<String, Arc<openapi::OpenApiDocument>>;

/// The environment of an aggregate's declaration.
#[derive(Clone, Copy)]
pub struct AggregateContext<'a> {
    /// The route's path: `/buyers/{id}`.
    pub path: &'a str,
    /// The services of the gateway.
    pub services: &'a ServiceSet,
    /// The services' OpenAPI documents.
    pub documents: &'a OpenApiDocuments,
    /// The pool for work that clients cause.
    pub offload: &'a OffloadPool,
}

impl Aggregate {
    /// Creates an aggregate, or returns every mistake in its declaration that the JSON schema can't express.
    ///
    /// # Errors
    /// See `docs/errors.md`, "Of an aggregate's declaration".
    pub fn new(
        declared: &AggregateDeclaration,
        limits: &AggregateLimitsConfig,
        ground: &AggregateContext<'_>,
    ) -> Result<Self, Vec<Diagnostic>> {
        let AggregateContext { path, services, documents, offload } = *ground;
        let plan = AggregatePlan::new(declared, &plan::PlanContext { path, services, limits })?;
        let (services, documents, offload) = (services.clone(), documents.clone(), offload.clone());
        Ok(Self { plan, declaration: declared.clone(), services, documents, path: path.into(), offload })
    }

    /// Returns the allowed methods.
    #[must_use]
    pub fn methods(&self) -> &'static str {
        match self.plan.method {
            Method::POST => "POST",
            Method::PUT => "PUT",
            Method::PATCH => "PATCH",
            Method::DELETE => "DELETE",
            _ => "GET, HEAD",
        }
    }

    /// Handles a request. `seen` has the caller, the headers to forward and the deadline. The rest of the
    /// budget follows from the aggregate's limits, and a [`RequestReport`] is left with the budget of the
    /// request. The extensions of the response contain its [`json::JsonTree`], unless it is streamed.
    ///
    /// # Errors
    /// Returns the errors of `problem.rs`.
    pub fn handle(
        self: &Arc<Self>,
        request: Request<StreamedServiceBody>,
        seen: RequestCall,
    ) -> BoxFuture<'static, Result<Response<StreamedServiceBody>, Box<dyn ToProblem>>> {
        let limits = &self.plan.limits;
        let (started, deadline) = (seen.budget.started, seen.budget.deadline);
        let time = limits.timeout.0.min(deadline.saturating_duration_since(started));
        let concurrency = limits.concurrency as usize;
        let budget = RequestBudget::new_at(started, time, limits.calls, limits.upstream_bytes.0, concurrency);
        let budget = Arc::new(budget.with_parent(&seen.budget));
        let request_budget = Arc::clone(&seen.budget);
        let call = RequestCall { budget: Arc::clone(&budget), ..seen };
        let caller = call.caller.clone();
        let this = Arc::clone(self);
        let payer = call.quota_key();
        let budget_used = Arc::clone(&budget);
        let answer = services::make_movable(&self.offload, "aggregate", payer, &budget, async move {
            let mut answer = this.respond(request, call).await;
            if let Ok(response) = &mut answer
                && this.plan.method == Method::GET
            {
                this.set_cache_headers(response.headers_mut(), budget_used.cache_notes(), &caller);
            }
            answer
        });
        async move {
            let answer = answer.await;
            request_budget.store_report(RequestReport::from_budget(&budget));
            answer?.map_err(Into::into)
        }
        .boxed()
    }

    /// Sets the caching headers of the response.
    fn set_cache_headers(&self, headers: &mut HeaderMap, notes: &CacheNotes, caller: &CallerId) {
        if headers.contains_key(&response::PARTS_HEADER) {
            // A part that timed out has left no note.
            notes.record_failure();
        }
        let forwarded = self.plan.parts.iter().flat_map(|part| part.service.forwarded_headers());
        notes.set_cache_control(headers, caller, forwarded);
        caching::add_vary(headers, self.plan.inputs.headers());
    }

    async fn respond(
        &self,
        request: Request<StreamedServiceBody>,
        call: RequestCall,
    ) -> Result<Response<StreamedServiceBody>, AggregateError> {
        let method = request.method();
        let is_head = *method == Method::HEAD;
        if *method != self.plan.method && !(is_head && self.plan.method == Method::GET) {
            return Err(AggregateError::Method { method: method.clone(), allow: self.methods() });
        }
        let (head, body) = request.into_parts();
        // A query may have a parameter for every two bytes.
        offload::move_if_long(3 * head.uri.query().map_or(0, str::len)).await;
        let inputs = self.plan.inputs.read_values(&head)?;
        let body = match self.plan.reads_body {
            true => Some(self.parse_body(self.read_body(body, call.budget.deadline).await?).await?),
            false => None,
        };
        let known = AvailableValues::new(&self.plan, inputs, body);
        let budget = Arc::clone(&call.budget);
        let calls = RequestCalls::new(self.services.clone(), call);
        let failures = AggregateRun { available_values: &known, calls, is_head }.run_parts().await?;
        offload::move_if_long(assemble::estimated_work(&known)).await;
        let left = known.memory.remaining();
        let (mut response, is_written) = match response::streamed_response(&known, &failures).await? {
            Some(response) => (response, false),
            None => {
                let (tree, failures) = response::response_tree(&known, failures)?;
                response::build_response(tree, &failures, &self.plan, is_head).await?
            }
        };
        // The texts that services sent, and the tree.
        let texts = self.plan.limits.upstream_bytes.0.saturating_sub(budget.received_left());
        let tree = left.saturating_sub(known.memory.remaining());
        let sources = texts.saturating_add(tree as u64);
        response::record_held_memory(&mut response, &self.plan, (!is_written).then_some(sources));
        Ok(response)
    }

    /// Parses the client's body as JSON, and rejects ambiguous JSON. Otherwise a service could read another
    /// value than the one that a preceding part was called with.
    async fn parse_body(&self, text: Bytes) -> Result<JsonDocument, AggregateError> {
        // The text is indexed, and the names of each object are compared.
        offload::move_if_long(3 * text.len()).await;
        let most = usize::try_from(self.plan.limits.memory.0).unwrap_or(usize::MAX);
        let document = JsonDocument::with_memory_limit(text, most).map_err(AggregateError::BodyJson)?;
        document.root().check_unambiguous().map_err(|found| AggregateError::BodyInvalid {
            place: format!("body{}", found.path()),
            must: found.requirement(),
        })?;
        Ok(document)
    }

    async fn read_body(&self, body: StreamedServiceBody, deadline: Instant) -> Result<Bytes, AggregateError> {
        let read = pin!(read_limited(body, self.plan.limits.request_body.0));
        timeout_at(deadline, read).await.ok_or(BodyDeadlineExceeded)?.map_err(|error| match error {
            ReadBodyError::TooLarge(limit) => AggregateError::BodySize(limit),
            ReadBodyError::Broken(_) => AggregateError::BodyBroken,
        })
    }
}
