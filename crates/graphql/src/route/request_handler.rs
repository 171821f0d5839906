//! Request handling: reads the operation, checks whether it is allowed, and writes the response in the
//! client's media type.

use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use handler::{HandlerResponse, HandlerResult, LoggedProblem};
use http::request::Parts;
use http::{Method, StatusCode};
use offload::polls::PollSite;
use services::{
    CallerId, RequestBudget, RequestCall, StreamedServiceBody, ToProblem, WorkFingerprint, composition_error,
    timeout_at,
};
use tokio::time::Instant;

use super::planning::{MAX_ATTEMPTS, PlanError};
use super::schema_inputs::ReadySchema;
use super::{CoalescingError, GraphqlRouteInner, SharedOutcome};
use crate::config::IntrospectionAccess;
use crate::error::GraphqlError;
use crate::execute::{self, AnswerRules, CoercedVariables, ExecutionResponse};
use crate::fetch::call_context::RouteServices;
use crate::plan::{QueryPlan, check_size};
use crate::serve::{
    DocumentHash, DocumentOwner, GraphqlRefusal, GraphqlRequest, HttpError, RequestParseError,
    ResponseMediaType, accepts_page, build_response, error_response, graphiql_page, hash_document,
    invalid_document_status, with_no_store,
};
use crate::subgraph::OperationKind;

/// An operation that is ready for execution.
#[derive(Clone)]
struct ReadyOperation {
    ready_schema: Arc<ReadySchema>,
    plan: Arc<QueryPlan>,
    variables: Arc<CoercedVariables>,
    /// The text of the variables as received.
    variables_text: Bytes,
    rules: AnswerRules,
}

impl ReadyOperation {
    async fn execute(&self, sources: &RouteServices, call: RequestCall) -> ExecutionResponse {
        let context = sources.call_context(call);
        let schema = self.ready_schema.planner.schema();
        execute::run(&self.plan, schema, Arc::clone(&self.variables), &context, &self.rules).await
    }
}

impl GraphqlRouteInner {
    pub(super) async fn handle_request(
        &self,
        head: Parts,
        body: StreamedServiceBody,
        call: RequestCall,
    ) -> HandlerResult {
        let mut used = None;
        let answer = self.handle_with_plan(head, body, call, &mut used).await;
        self.discard_plan(used);
        answer
    }

    /// Handles a request, and returns the plan that it uses in `used`.
    async fn handle_with_plan(
        &self,
        head: Parts,
        body: StreamedServiceBody,
        call: RequestCall,
        used: &mut Option<Arc<QueryPlan>>,
    ) -> HandlerResult {
        let is_get = matches!(head.method, Method::GET | Method::HEAD);
        if !is_get && head.method != Method::POST {
            return Err(HttpError::Method(head.method).into());
        }
        if self.has_page && is_get && head.uri.query().is_none() && accepts_page(&head.headers) {
            return Ok(graphiql_page(&head.headers).await.into());
        }
        let media = ResponseMediaType::negotiate(&head.headers).ok_or(HttpError::NotAcceptable)?;
        let to = ResponseForm { media, is_head: head.method == Method::HEAD };
        let request = {
            let limit = self.limits.request_body.0;
            GraphqlRequest::from_http(&head, body, limit, call.budget.deadline).await
        };
        let graphql_request = match request {
            Ok(asked) => asked,
            Err(RequestParseError::Http(error)) => return Err(error.into()),
            Err(RequestParseError::Graphql(refusal)) => return Ok(to.refusal_response(&refusal)),
        };
        if let Err(error) = graphql_request.query.as_deref().map_or(Ok(()), check_size) {
            return Ok(to.error_response(vec![*error], true));
        }
        let ready =
            self.ready_schema.load_full().ok_or_else(|| HttpError::NotReady(self.unavailable_reason()))?;
        let owner = DocumentOwner::for_call(&call);
        let (document, left) = match self.resolve_document(&graphql_request, &owner) {
            Ok(document) => document,
            Err(refusal) => return Ok(to.refusal_response(&refusal)),
        };
        let tells_schema = self.may_see_schema(&call.caller);
        let plan = match self
            .plan_document(&ready, &document, graphql_request.operation_name.as_deref(), &call)
            .await
        {
            Ok(plan) => plan,
            Err(PlanError::Document(errors)) => return Ok(to.error_response(errors.to_vec(), tells_schema)),
            Err(PlanError::Work(error)) => return Err(HttpError::from(error).into()),
        };
        *used = Some(Arc::clone(&plan));
        if plan.has_introspection && !tells_schema {
            return Ok(to.refusal_response(&GraphqlRefusal::Introspection));
        }
        if is_get && plan.kind == OperationKind::Mutation {
            return Err(HttpError::MutationByGet.into());
        }
        if let (Some(hash), Some(persisted)) = (left, &self.persisted_documents) {
            persisted.insert(owner, hash, &document);
        }
        let given = graphql_request.variables.unwrap_or(const { Bytes::from_static(b"{}") });
        offload::move_if_long(CoercedVariables::coercion_work(&plan, &given)).await;
        let variables = match CoercedVariables::coerce(&plan, given.clone()) {
            Ok(variables) => Arc::new(variables),
            Err(errors) => return Ok(to.error_response(errors, tells_schema)),
        };
        let most = usize::try_from(self.limits.response_body.0).unwrap_or(usize::MAX);
        let introspected = match plan.has_introspection {
            true => self.introspection_values(&ready, &plan, &variables, most, &call).await?,
            false => Some(Vec::new()),
        };
        let answer = match introspected {
            Some(introspected) => {
                let rules = AnswerRules {
                    max_bytes: most,
                    exposes_schema: tells_schema,
                    introspection_values: introspected,
                };
                self.run_operation(
                    ReadyOperation { ready_schema: ready, plan, variables, variables_text: given, rules },
                    call,
                )
                .await?
            }
            None => ExecutionResponse::too_large(most),
        };
        let response = build_response(answer.tree, StatusCode::OK, media, to.is_head);
        Ok(if answer.has_errors { with_no_store(response) } else { response })
    }

    /// Executes an operation, or waits until the request's deadline for an equal one that is in flight. If
    /// the pool refuses the work of the request that started it, or its caller has no quota left, the next
    /// one starts again; a request that has waited for several such ones, or has no time for another one,
    /// runs alone. A caller whose quota is used up waits for quota alone.
    async fn run_operation(
        &self,
        operation: ReadyOperation,
        call: RequestCall,
    ) -> Result<ExecutionResponse, Box<dyn ToProblem>> {
        let is_query = operation.plan.kind == OperationKind::Query;
        let Some(flights) = self.in_flight.as_ref().filter(|_| is_query && !self.lacks_quota(&call)) else {
            return Ok(operation.execute(&self.route_services, call).await);
        };
        // Hashing takes less time per byte than parsing.
        offload::move_if_long(operation.variables_text.len() / 4).await;
        let key = self.coalescing_key(&operation, &call);
        let deadline = Instant::from(call.budget.deadline);
        for _ in 0..MAX_ATTEMPTS {
            let mut request_budget = None;
            let flight = flights.join(&key, PollSite::Graphql, || {
                let budget = request_budget.insert(self.shared_budget(&call.budget));
                self.run_shared(operation.clone(), RequestCall { budget: Arc::clone(budget), ..call.clone() })
            });
            let shared = timeout_at(call.budget.deadline, pin!(flight)).await.flatten();
            let begun = shared.as_ref().map(|shared| shared.started_at);
            let result = match shared.map(|shared| shared.result) {
                Some(Err(CoalescingError::OverQuota(rest))) if request_budget.is_some() => {
                    let future = rest.lock().unwrap_or_else(PoisonError::into_inner).take();
                    let Some(movable_future) = future else { break };
                    let result = timeout_at(call.budget.deadline, pin!(movable_future)).await;
                    result.map(|result| result.map_err(CoalescingError::Refused))
                }
                result => result,
            };
            if let Some(own) = &request_budget {
                call.budget.append_call_records(own);
            }
            match result {
                // This client's account may have room.
                Some(Ok(shared)) if request_budget.is_none() && shared.1.has_reached_client_limit() => {}
                Some(Ok(shared)) => {
                    let (answer, budget) = &*shared;
                    call.budget.cache_notes().record_all(budget.cache_notes());
                    return Ok(answer.clone());
                }
                Some(Err(CoalescingError::Refused(error))) if request_budget.is_some() => {
                    return Err(composition_error(error, &call.budget));
                }
                Some(Err(_)) => {}
                // The deadline has passed, and the response has an error for each call; or the work panicked.
                None => break,
            }
            // This request must have time left to run alone.
            let left = deadline.saturating_duration_since(Instant::now());
            if begun.is_some_and(|begun| left < begun.elapsed() * 2) {
                break;
            }
        }
        Ok(operation.execute(&self.route_services, call).await)
    }

    /// Creates the budget of an operation that several requests share. Its deadline depends on none of them,
    /// and it waits for the quota of none of them. Responses count in the account of the client that starts
    /// it.
    fn shared_budget(&self, starter: &Arc<RequestBudget>) -> Arc<RequestBudget> {
        let budget = self.limits.call_limits().new_budget(std::time::Instant::now());
        Arc::new(budget.into_shared().with_starter(starter))
    }

    /// Executes an operation in a task of its own, which is moved and charged as the request would be. It
    /// ends when the caller's quota is used up, so that no other caller waits for it.
    fn run_shared(
        &self,
        operation: ReadyOperation,
        call: RequestCall,
    ) -> impl Future<Output = SharedOutcome> + Send + 'static + use<> {
        let (sources, budget, payer) =
            (Arc::clone(&self.route_services), Arc::clone(&call.budget), call.quota_key().for_responses());
        let deadline = budget.deadline;
        let answer = async move { Arc::new((operation.execute(&sources, call).await, budget)) };
        let answer = self.offload.make_movable("graphql-answer", payer, deadline, answer);
        async move {
            let begun = Instant::now();
            let result = match answer.run_within_quota().await {
                Ok(result) => result.map_err(CoalescingError::Refused),
                Err(future) => Err(CoalescingError::OverQuota(Arc::new(Mutex::new(Some(future))))),
            };
            SharedOutcome { result, started_at: begun }
        }
    }

    /// Returns the coalescing key: everything that the response of an operation depends on.
    fn coalescing_key(&self, operation: &ReadyOperation, call: &RequestCall) -> WorkFingerprint {
        let mut key = WorkFingerprint::default();
        let (kind, name) = match &call.caller {
            CallerId::Anonymous => (0, ""),
            CallerId::Named(name) => (1, &**name),
            CallerId::Subject(name) => (2, &**name),
        };
        key.add(&[kind, call.hops]);
        key.add(name.as_bytes());
        // The caller's groups, which may differ between tokens, affect only its rights. The operation in
        // flight keeps the rights alive, so that no others can have the same address.
        key.add(&call.rights.as_ref().map_or(0, |rights| Arc::as_ptr(rights).addr()).to_ne_bytes());
        // The operation in flight keeps its plan alive, so that no other plan can have the same address.
        key.add(&Arc::as_ptr(&operation.plan).addr().to_ne_bytes());
        key.add(&operation.variables_text);
        let services = self.schema_inputs.services().filter_map(|name| self.services.get(name));
        for name in services.flat_map(|service| service.forwarded_headers()) {
            for value in call.headers.iter().flat_map(|headers| headers.get_all(name)) {
                key.add(name.as_str().as_bytes());
                key.add(value.as_bytes());
            }
        }
        key
    }

    /// Returns the requested document, and its hash if the document is to be stored.
    fn resolve_document(
        &self,
        request: &GraphqlRequest,
        owner: &DocumentOwner,
    ) -> Result<(Arc<str>, Option<DocumentHash>), GraphqlRefusal> {
        if let Some(name) = &request.document_id {
            let document = self.stored_documents.by_name(name);
            return Ok((
                Arc::clone(document.ok_or_else(|| GraphqlRefusal::UnknownDocument(name.clone()))?),
                None,
            ));
        }
        let Some(text) = &request.query else {
            let hash = request.hash.ok_or(GraphqlRefusal::MissingQuery)?;
            if let Some(document) = self.stored_documents.by_hash(&hash) {
                return Ok((Arc::clone(document), None));
            }
            if self.documents_only {
                return Err(GraphqlRefusal::NotListed);
            }
            let persisted = self.persisted_documents.as_ref().ok_or(GraphqlRefusal::NotSupported)?;
            return Ok((persisted.find(owner, &hash).ok_or(GraphqlRefusal::NotFound)?, None));
        };
        let own = (request.hash.is_some() || self.documents_only).then(|| hash_document(text));
        if request.hash.is_some() && request.hash != own {
            return Err(GraphqlRefusal::Mismatch);
        }
        let is_listed = own.as_ref().is_some_and(|own| self.stored_documents.by_hash(own).is_some());
        if self.documents_only && !is_listed {
            return Err(GraphqlRefusal::NotListed);
        }
        Ok((text.as_str().into(), request.hash.filter(|_| !is_listed)))
    }

    /// Whether a caller may see the schema.
    fn may_see_schema(&self, caller: &CallerId) -> bool {
        match &self.introspection {
            IntrospectionAccess::On => true,
            IntrospectionAccess::Off => false,
            IntrospectionAccess::Callers(callers) => {
                matches!(caller, CallerId::Named(name) if callers.callers.iter().any(|known| **known == **name))
            }
        }
    }
}

/// The form of the response.
#[derive(Clone, Copy)]
struct ResponseForm {
    media: ResponseMediaType,
    is_head: bool,
}

impl ResponseForm {
    fn refusal_response(self, refusal: &GraphqlRefusal) -> HandlerResponse {
        let response =
            error_response(&[refusal.to_json()], refusal.status(self.media), self.media, self.is_head);
        HandlerResponse { problem: Some(LoggedProblem::new(refusal.code())), ..response }
    }

    /// Returns the response for an invalid document. Schema names are omitted for callers without access to
    /// the schema.
    fn error_response(self, errors: Vec<GraphqlError>, tells_schema: bool) -> HandlerResponse {
        let first = errors.first().map(|error| error.code);
        let told = |error: GraphqlError| if tells_schema { error } else { error.without_schema() }.to_json();
        let entries: Vec<_> = errors.into_iter().map(told).collect();
        let response =
            error_response(&entries, invalid_document_status(self.media), self.media, self.is_head);
        HandlerResponse { problem: first.map(LoggedProblem::new), ..response }
    }
}
