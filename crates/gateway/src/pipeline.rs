//! The request pipeline: [`RequestPipeline::handle_request`] calls the phases of a request in order
//! ([`RequestPhase`]; ARCHITECTURE.md, "The life of a request"). Each has a [`RequestContext`].
//!
//! A [`RequestPipeline`] is built from one config and is immutable. A reload replaces the one for new
//! requests (`server/active_config.rs`), and requests in flight finish with the one they started with.

pub(crate) mod context;
pub(crate) mod routes;

use std::sync::Arc;

use admission::Admission as _;
use futures_util::future::{Either, ready};
use futures_util::{FutureExt, TryFutureExt};
use handler::{HandlerRequest, HandlerResponse, HandlerResult, LoggedProblem};
use http::{HeaderMap, HeaderValue, Method, Request, Response, header};
use http_body::Body as _;
use offload::OffloadPool;
use offload::polls::{PollSite, attribute_polls};
use services::headers::{ConnectionDetails, MAX_HOPS, count_hops};
use services::{
    GatewayOverloaded, RequestBudget, RequestCall, ServiceSet, ServiceTunnel, StreamedServiceBody, ToProblem,
    quota_key,
};

use crate::auth::authn::{IdentityProviders, Principal};
use crate::auth::authz::{AuthorizationTable, AuthzError, RequestGrant};
use crate::handlers::RouteHandler;
use crate::http_semantics::client::ClientInfo;
use crate::http_semantics::cors::{self, AllowedOrigins, OriginKind};
use crate::http_semantics::encode::{AcceptedEncodings, DedupAccount};
use crate::http_semantics::request_refusal::RequestRefusal;
use crate::http_semantics::trusted_proxies::TrustedProxies;
use crate::http_semantics::{problem_details, request_validation, unsent_bytes};
use crate::limits::load_shedder::LoadShedder;
use crate::telemetry::Telemetry;
use crate::telemetry::phase::RequestPhase;
use context::{BodyFault, LoggedBody, RequestContext};
use routes::{RouteEntry, RouteTable};

/// The methods that some route may serve.
const ALLOWED_METHODS: &str = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS, QUERY";

/// The state that requests need, built from one config.
#[derive(Clone)]
pub(crate) struct RequestPipeline {
    pub(crate) routes: Arc<RouteTable>,
    pub(crate) telemetry: Arc<Telemetry>,
    pub(crate) load_shedder: Arc<LoadShedder>,
    pub(crate) identity: Arc<IdentityProviders>,
    pub(crate) rights: Arc<AuthorizationTable>,
    pub(crate) trusted_proxies: TrustedProxies,
    // The next config takes these over if it still uses them: see `build.rs`.
    pub(crate) services: ServiceSet,
    pub(crate) offload: OffloadPool,
    pub(crate) runtime: Option<Arc<query::QueryRuntime>>,
    pub(crate) filters: Option<Arc<filter::FilterRuntime>>,
    pub(crate) scripts: Option<Arc<script_runtime::ScriptRuntime>>,
    pub(crate) schemas: Arc<graphql::RemoteSchemas>,
}

/// The route of a request, and the facts of its head that its response depends on.
struct RouteMatch<'a> {
    entry: Result<&'a RouteEntry, RequestRefusal>,
    /// The cross-origin rule of the route, or of paths without a route.
    origins: &'a AllowedOrigins,
    origin: Option<HeaderValue>,
    origin_kind: OriginKind,
    /// `None` without a route.
    accepted_encodings: Option<AcceptedEncodings>,
}

/// A request whose head fits its route.
struct ValidRequest<'a> {
    route: &'a RouteEntry,
    origin_kind: OriginKind,
    /// Its body is metered.
    request: Request<StreamedServiceBody>,
    /// The number of gateways that the request has passed.
    hops: u8,
}

/// The response to a request that ends before its handler, or whose handler fails.
enum EarlyResponse {
    Overloaded,
    /// Boxed, since few requests have one.
    Answer(Box<HandlerResponse>),
    Problem(Box<dyn ToProblem>),
}

impl<P: Into<Box<dyn ToProblem>>> From<P> for EarlyResponse {
    fn from(problem: P) -> Self {
        Self::Problem(problem.into())
    }
}

impl RequestPipeline {
    /// Starts the background work: health checks, timers of filters, workers of scripts.
    pub(crate) fn start(&self) {
        self.services.start_health_checks();
        self.routes.start();
    }

    /// Handles a request, from its head to the response's head: one call for each phase, in order. The phases
    /// up to the handler may end the request early. The response body writes the log entry when it ends.
    pub(crate) async fn handle_request(
        self: Arc<Self>,
        mut request: Request<StreamedServiceBody>,
        client: ClientInfo,
    ) -> Response<LoggedBody> {
        let mut context = self.accept(&mut request, client);
        let mut route = self.route(&request, &mut context);
        let result = async {
            let entry = self.admit(&route, &mut context)?;
            let valid = self.validate(entry, route.origin_kind, request, &mut context)?;
            let caller = self.identify(valid.request.headers(), &mut context).await?;
            let grant = self.authorise(entry, &caller, &mut context)?;
            Ok(self.filter_and_handle(valid, grant, &mut context).await?)
        };
        let answer = result.await.unwrap_or_else(|early| self.answer_early(early, &context));
        let mut answer = route.set_cors_headers(answer, &context);
        let problem = answer.problem.take();
        let response = self.encode(&mut route, answer, &context).await;
        log(response, problem, context)
    }

    /// Begins the context of a request.
    fn accept(&self, request: &mut Request<StreamedServiceBody>, client: ClientInfo) -> Box<RequestContext> {
        request_validation::normalise_target(request);
        let client = client.apply_proxies(&self.trusted_proxies, request);
        let context = RequestContext::begin(&self.telemetry, request, client);
        context.enter(RequestPhase::Accept);
        context
    }

    /// Finds the route of a request, and the facts of its head that its response depends on.
    fn route(&self, request: &Request<StreamedServiceBody>, context: &mut RequestContext) -> RouteMatch<'_> {
        context.enter(RequestPhase::Route);
        let entry = self.find_route(request, &context.client);
        if let Ok(entry) = &entry {
            context.set_route(&entry.metrics);
        }
        let origins = entry.as_ref().map_or(self.routes.default_origins(), |entry| &entry.origins);
        RouteMatch {
            origin: request.headers().get(header::ORIGIN).cloned(),
            origin_kind: origins.classify(request, &context.client),
            origins,
            accepted_encodings: entry.as_ref().ok().map(|entry| entry.encoding.accepted_encodings(request)),
            entry: entry.map(|entry| &**entry),
        }
    }

    fn find_route(
        &self,
        request: &Request<StreamedServiceBody>,
        client: &ClientInfo,
    ) -> Result<&Arc<RouteEntry>, RequestRefusal> {
        if client.has_ambiguous_framing {
            return Err(RequestRefusal::AmbiguousFraming);
        }
        if matches!(*request.method(), Method::CONNECT | Method::TRACE) {
            return Err(RequestRefusal::MethodNotAllowed {
                method: request.method().clone(),
                allowed: ALLOWED_METHODS,
            });
        }
        request_validation::validate_request(request)?;
        if !client.accepts_scheme(request.uri().scheme()) {
            return Err(RequestRefusal::SchemeMisdirected);
        }
        if !client.serves_host(cors::host_of(request)) {
            return Err(RequestRefusal::HostMisdirected);
        }
        let path = request.uri().path();
        self.routes
            .find_unambiguous(path)?
            .ok_or_else(|| RequestRefusal::RouteNotFound { path: path.to_owned() })
    }

    /// Admits a request that the gateway can handle in good time. Returns its route.
    fn admit<'a>(
        &self,
        route: &RouteMatch<'a>,
        context: &mut RequestContext,
    ) -> Result<&'a RouteEntry, EarlyResponse> {
        context.enter(RequestPhase::Admit);
        let has_room = || {
            !context.client.exceeds_request_limit()
                && route.entry.as_ref().map_or(true, |entry| entry.handler.has_room(context.started_at))
        };
        match self.load_shedder.try_acquire(context.started_at, has_room) {
            Ok(guard) => context.in_flight_guard = Some(guard),
            Err(GatewayOverloaded) => return Err(EarlyResponse::Overloaded),
        }
        Ok(*route.entry.as_ref().map_err(RequestRefusal::clone)?)
    }

    /// Refuses a request that its head alone makes invalid, and bounds its body. Answers preflights, which
    /// carry no credentials.
    fn validate<'a>(
        &self,
        route: &'a RouteEntry,
        origin_kind: OriginKind,
        request: Request<StreamedServiceBody>,
        context: &mut RequestContext,
    ) -> Result<ValidRequest<'a>, EarlyResponse> {
        context.enter(RequestPhase::Validate);
        let limits = (&route.limits, route.max_held_body());
        let request =
            request.map(|body| context.meter_body(body, limits, self.trusted_proxies.custom_header()));
        let hops = validate_head(route, origin_kind, &request)?;
        if answers_preflights(route) && cors::is_preflight(&request) {
            let answer = route.origins.preflight(&request, route.handler.methods());
            return Err(EarlyResponse::Answer(Box::new(answer.into())));
        }
        Ok(ValidRequest { route, origin_kind, request, hops })
    }

    /// Identifies the caller.
    async fn identify(
        &self,
        headers: &HeaderMap,
        context: &mut RequestContext,
    ) -> Result<Arc<Principal>, EarlyResponse> {
        context.enter(RequestPhase::Identify);
        let principal = {
            let _identifies = context.trace().start_phase("identify");
            let certified =
                self.identity.identify_by_certificate(context.client.certificate(), context.start_time)?;
            self.identity.identify(headers, certified).await?
        };
        context.caller = principal.caller.clone();
        Ok(principal)
    }

    /// Authorises the caller for the route, and charges it for the request.
    fn authorise(
        &self,
        route: &RouteEntry,
        principal: &Principal,
        context: &mut RequestContext,
    ) -> Result<RequestGrant, EarlyResponse> {
        context.enter(RequestPhase::Authorise);
        let (address, now) = (context.client.address.ip(), context.started_at);
        let mut grant = match &route.handler {
            RouteHandler::Catalogue(catalogue) => RequestGrant {
                visible_entries: Some(catalogue.visible_entries(self.rights.route_access(principal))),
                ..self.rights.charge_request(principal, address, now)?
            },
            _ => self.rights.authorize(principal, &route.path, address, now).map_err(
                |error| -> Box<dyn ToProblem> {
                    match error {
                        AuthzError::Unauthenticated => self.identity.missing_credentials().into(),
                        AuthzError::Forbidden(denied) => denied.into(),
                    }
                },
            )?,
        };
        context.concurrency_permit = grant.concurrency_permit.take();
        Ok(grant)
    }

    /// Passes the request through the route's filters to its handler, and the response back through the
    /// filters. Not an async function, which would store its arguments twice.
    fn filter_and_handle<'a>(
        &self,
        valid: ValidRequest<'a>,
        grant: RequestGrant,
        context: &'a mut RequestContext,
    ) -> impl Future<Output = HandlerResult> + use<'a> {
        let ValidRequest { route, origin_kind, mut request, hops } = valid;
        let credentials =
            self.identity.strip_credentials(request.headers_mut(), route.handler.forwarded_headers());
        context.service = route.filters.as_ref().and_then(|_| route.handler.service().cloned());
        let call = create_call(route, hops, context);
        let call = RequestCall { rights: grant.rights, payer: grant.payer, ..call };
        let mut request = HandlerRequest {
            caller_limits: grant.limits,
            visible_entries: grant.visible_entries,
            ..HandlerRequest::new(request, call)
        };
        let context: &RequestContext = context;
        let answer = match &route.filters {
            None => {
                attach_forwardable_headers(&route.handler, origin_kind, &credentials, &mut request);
                Either::Left(handle(route, request, context))
            }
            // Boxed, since otherwise requests without filters would reserve space for its state too.
            Some(chain) => {
                let passing =
                    handle_with_filters((route, chain), origin_kind, (request, credentials), context);
                let passing = attribute_polls(PollSite::Filters, passing).map_err(Box::from);
                Either::Right(passing.boxed())
            }
        };
        answer.map_err(|problem| replace_body_fault(problem, route, context))
    }

    /// Returns the response of a request that ended before its handler answered, or with an error.
    fn answer_early(&self, early: EarlyResponse, context: &RequestContext) -> HandlerResponse {
        let problem = match early {
            EarlyResponse::Overloaded => return problem_details::overloaded_response(),
            EarlyResponse::Answer(answer) => return *answer,
            EarlyResponse::Problem(problem) => problem,
        };
        if problem.code() == GatewayOverloaded.code() {
            self.load_shedder.note_refused(context.age());
        }
        problem_details::problem_response(&*problem)
    }

    /// Deduplicates and compresses the response.
    fn encode<'a>(
        &'a self,
        route: &'a mut RouteMatch<'_>,
        mut answer: HandlerResponse,
        context: &'a RequestContext,
    ) -> impl Future<Output = Response<StreamedServiceBody>> + use<'a> {
        context.enter(RequestPhase::Encode);
        let Ok(entry) = route.entry.as_ref() else {
            return Either::Left(ready(unsent_bytes::count_unsent(answer, &context.client)));
        };
        entry.handler.add_timing_header(context.started_at, answer.response.headers_mut());
        let account = || DedupAccount {
            pool: &self.offload,
            quota_key: quota_key(&context.caller, Some(context.client.address.ip())).for_responses(),
            deadline: context.budget.as_ref().map(|budget| budget.deadline),
        };
        let accepted = route.accepted_encodings.take().unwrap_or_default();
        let encoded = entry.encoding.encode(accepted, account, answer, &context.client);
        Either::Right(attribute_polls(PollSite::Encode, encoded))
    }
}

/// Begins the response. The context moves into its body, and records the request at the body's end.
fn log(
    response: Response<StreamedServiceBody>,
    problem: Option<LoggedProblem>,
    mut context: Box<RequestContext>,
) -> Response<LoggedBody> {
    context.enter(RequestPhase::Log);
    if let Some(tunnel) = response.extensions().get::<ServiceTunnel>() {
        // A tunnel keeps its concurrency permits for as long as the connection is in use.
        tunnel.hold_guard((context.in_flight_guard.take(), context.concurrency_permit.take()));
    }
    context.begin_response(response, problem)
}

impl RouteMatch<'_> {
    /// Sets the cross-origin headers of the response, by the rule of the route or of paths without a route.
    fn set_cors_headers(&self, mut answer: HandlerResponse, context: &RequestContext) -> HandlerResponse {
        context.enter(RequestPhase::Cors);
        let headers = answer.response.headers_mut();
        self.origins.set_response_headers(self.origin_kind, self.origin.as_ref(), headers);
        answer
    }
}

/// Calls the handler.
fn handle<'a>(
    route: &'a RouteEntry,
    request: HandlerRequest,
    context: &RequestContext,
) -> impl Future<Output = HandlerResult> + use<'a> {
    context.enter(RequestPhase::Handle);
    attribute_polls(route.handler.poll_site(), route.handler.handle(request))
}

/// Replaces a problem if the client's request body caused it.
fn replace_body_fault(
    problem: Box<dyn ToProblem>,
    route: &RouteEntry,
    context: &RequestContext,
) -> Box<dyn ToProblem> {
    match context.body_fault() {
        None => problem,
        Some(BodyFault::TooSlow) => RequestRefusal::BodyTooSlow.into(),
        Some(BodyFault::MemoryLimit) => GatewayOverloaded.into(),
        Some(BodyFault::TooLarge) => {
            RequestRefusal::BodyTooLarge { limit: route.limits.request_body.0 }.into()
        }
        Some(BodyFault::Malformed(wrong)) => RequestRefusal::BodyMalformed(wrong).into(),
        Some(BodyFault::Incomplete) => RequestRefusal::BodyIncomplete.into(),
    }
}

/// Handles a request on a route with filters. The filters see problems as responses.
fn handle_with_filters<'a>(
    (route, chain): (&'a RouteEntry, &Arc<filter::FilterChain>),
    origin_kind: OriginKind,
    (mut request, credentials): (HandlerRequest, HeaderMap),
    context: &'a RequestContext,
) -> impl Future<Output = Result<HandlerResponse, filter::FilterFailure>> + use<'a> {
    context.enter(RequestPhase::Filter);
    let times = (context.started_at, context.start_time);
    let facts = context.client.filter_facts(&route.path, route.handler.service(), times);
    if route.handler.makes_calls() {
        request.call.headers = Some(forwardable_headers(&request.head.headers, origin_kind, &credentials));
    }
    // Filters must not see credentials.
    let handle = move |mut request: HandlerRequest| {
        attach_forwardable_headers(&route.handler, origin_kind, &credentials, &mut request);
        handle(route, request, context).map(|answer| {
            answer.unwrap_or_else(|problem| {
                problem_details::problem_response(&*replace_body_fault(problem, route, context))
            })
        })
    };
    chain.run_exchange(request, facts, handle)
}

/// Whether the gateway, and not the upstream service, answers browsers' preflights here.
fn answers_preflights(route: &RouteEntry) -> bool {
    route.handler.refuses_foreign_pages(&Method::GET) || !route.origins.is_empty()
}

/// Refuses a request that its head alone makes invalid. Returns the number of gateways that the request has
/// passed.
fn validate_head(
    route: &RouteEntry,
    origin_kind: OriginKind,
    request: &Request<StreamedServiceBody>,
) -> Result<u8, RequestRefusal> {
    let is_asking = answers_preflights(route) && cors::is_preflight(request);
    if origin_kind == OriginKind::Disallowed
        && (is_asking || route.handler.refuses_foreign_pages(request.method()))
    {
        return Err(OriginKind::refusal(request.headers()));
    }
    let limit = route.limits.request_body.0;
    if request.body().size_hint().lower() > limit {
        return Err(RequestRefusal::BodyTooLarge { limit });
    }
    match count_hops(request.headers()) {
        hops if hops > MAX_HOPS => Err(RequestRefusal::LoopDetected { hops }),
        hops => Ok(hops),
    }
}

/// Creates the call context of a request, without headers.
fn create_call(route: &RouteEntry, hops: u8, context: &mut RequestContext) -> RequestCall {
    let timeout = route.limits.timeout.0;
    let budget = RequestBudget::new_at(context.started_at, timeout, u32::MAX, u64::MAX, usize::MAX);
    let budget = Arc::new(context.client.charge(budget));
    context.budget = Some(Arc::clone(&budget));
    let trace = context.trace().clone();
    let client = &context.client;
    let arrival = Some(ConnectionDetails {
        peer: client.peer,
        client: client.address.ip(),
        is_secure: client.is_secure(),
    });
    RequestCall {
        caller: context.caller.clone(),
        rights: None,
        payer: None,
        headers: None,
        connection_details: arrival,
        hops,
        trace,
        budget,
    }
}

/// Gives a handler that makes calls the client's headers. A query reads them from its request, since its
/// program only sees the body; a script sees its request, so they are only in the call.
fn attach_forwardable_headers(
    handler: &RouteHandler,
    origin_kind: OriginKind,
    credentials: &HeaderMap,
    request: &mut HandlerRequest,
) {
    let headers = &mut request.head.headers;
    match handler {
        RouteHandler::Query(_) => restore_credentials(headers, origin_kind, credentials),
        handler if handler.makes_calls() => {
            request.call.headers = Some(forwardable_headers(headers, origin_kind, credentials));
        }
        _ => {}
    }
}

/// Returns the client's headers, for calls on its behalf.
fn forwardable_headers(
    headers: &HeaderMap,
    origin_kind: OriginKind,
    credentials: &HeaderMap,
) -> Arc<HeaderMap> {
    let mut headers = headers.clone();
    restore_credentials(&mut headers, origin_kind, credentials);
    Arc::new(headers)
}

/// Restores the credentials that were removed, and removes cookies if the page is from an untrusted origin.
fn restore_credentials(headers: &mut HeaderMap, origin_kind: OriginKind, credentials: &HeaderMap) {
    for (name, value) in credentials {
        headers.entry(name).or_insert_with(|| value.clone());
    }
    if !origin_kind.allows_cookies() {
        headers.remove(header::COOKIE);
    }
}
