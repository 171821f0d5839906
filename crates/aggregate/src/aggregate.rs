//! The aggregate handler, which turns a request into a response.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use diagnostics::Diagnostic;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use handler::{HandlerRequest, HandlerResponse, HandlerResult};
use http::Method;
use http::header::HeaderMap;
use http::request::Parts;
use json::JsonDocument;
use offload::OffloadPool;
use services::caching::{self, CacheNotes};
use services::{
    CallerId, RequestCall, RequestCalls, RequestReport, ServiceSet, StreamedServiceBody, read_request_body,
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
        aggregate_declaration: &AggregateDeclaration,
        limits: &AggregateLimitsConfig,
        context: &AggregateContext<'_>,
    ) -> Result<Self, Vec<Diagnostic>> {
        let AggregateContext { path, services, documents, offload } = *context;
        let plan = AggregatePlan::new(aggregate_declaration, &plan::PlanContext { path, services, limits })?;
        let (services, documents, offload) = (services.clone(), documents.clone(), offload.clone());
        Ok(Self {
            plan,
            declaration: aggregate_declaration.clone(),
            services,
            documents,
            path: path.into(),
            offload,
        })
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

    /// Handles a request. Its call has the caller, the headers to forward and the deadline. The rest of the
    /// budget follows from the aggregate's limits, and a [`RequestReport`] is left with the budget of the
    /// request. The response has its tree, unless it is streamed.
    ///
    /// # Errors
    /// Returns the errors of `problem.rs`.
    pub fn handle(self: &Arc<Self>, request: HandlerRequest) -> BoxFuture<'static, HandlerResult> {
        let HandlerRequest { head, body, call, .. } = request;
        let request_budget = Arc::clone(&call.budget);
        let limits = self.plan.limits.call_limits();
        let call = call.with_limits(request_budget.started, request_budget.deadline, limits);
        let budget = Arc::clone(&call.budget);
        let caller = call.caller.clone();
        let this = Arc::clone(self);
        let payer = call.quota_key();
        let budget_used = Arc::clone(&budget);
        let answer = services::make_movable(&self.offload, "aggregate", payer, &budget, async move {
            let mut answer = this.respond(head, body, call).await;
            if let Ok(HandlerResponse { response, .. }) = &mut answer
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
        head: Parts,
        body: StreamedServiceBody,
        call: RequestCall,
    ) -> Result<HandlerResponse, AggregateError> {
        let is_head = head.method == Method::HEAD;
        if head.method != self.plan.method && !(is_head && self.plan.method == Method::GET) {
            return Err(AggregateError::Method { method: head.method, allow: self.methods() });
        }
        // A query may have a parameter for every two bytes.
        offload::move_if_long(3 * head.uri.query().map_or(0, str::len)).await;
        let inputs = self.plan.inputs.read_values(&head)?;
        let body = match self.plan.reads_body {
            true => {
                let limit = self.plan.limits.request_body.0;
                let text = read_request_body(body, limit, call.budget.deadline).await?;
                Some(self.parse_body(text).await?)
            }
            false => None,
        };
        let values = AvailableValues::new(&self.plan, inputs, body);
        let budget = Arc::clone(&call.budget);
        let calls = RequestCalls::new(self.services.clone(), call);
        let failures = AggregateRun { available_values: &values, calls, is_head }.run_parts().await?;
        offload::move_if_long(assemble::estimated_work(&values)).await;
        let left = values.memory.remaining();
        let (mut response, is_written) = match response::streamed_response(&values, &failures).await? {
            Some(response) => (response, false),
            None => {
                let (tree, failures) = response::response_tree(&values, failures)?;
                response::build_response(tree, &failures, &self.plan, is_head).await?
            }
        };
        // The texts that services sent, and the tree.
        let texts = self.plan.limits.upstream_bytes.0.saturating_sub(budget.received_left());
        let tree = left.saturating_sub(values.memory.remaining());
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
        document.root().check_unambiguous().map_err(|value| AggregateError::BodyInvalid {
            place: format!("body{}", value.path()),
            must: value.requirement(),
        })?;
        Ok(document)
    }
}
