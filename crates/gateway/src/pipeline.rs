//! The request pipeline: [`RequestPipeline::handle_request`] implements the phases that `lib.rs` lists, in
//! order.
//!
//! A [`RequestPipeline`] is built from one config and is immutable. A reload replaces the one for new
//! requests (`server/active_config.rs`), and requests in flight finish with the one they started with.

pub(crate) mod routes;

use std::sync::Arc;

use admission::Admission as _;
use futures_util::FutureExt;
use http::{HeaderMap, Method, Request, Response, header};
use http_body::Body as _;
use offload::OffloadPool;
use offload::polls::{PollSite, attribute_polls};
use services::headers::{ConnectionDetails, MAX_HOPS, count_hops};
use services::{
    CallerId, GatewayOverloaded, RequestBudget, RequestCall, ServiceSet, ServiceTunnel, StreamedServiceBody,
    ToProblem, quota_key,
};

use crate::auth::authn::{IdentityProviders, Principal};
use crate::auth::authz::{AuthorizationTable, AuthzError, RequestGrant};
use crate::handlers::RouteHandler;
use crate::http_semantics::client::ClientInfo;
use crate::http_semantics::cors::{self, OriginKind};
use crate::http_semantics::encode::DedupAccount;
use crate::http_semantics::request_refusal::RequestRefusal;
use crate::http_semantics::trusted_proxies::TrustedProxies;
use crate::http_semantics::{problem_details, request_validation, unsent_bytes};
use crate::limits::load_shedder::LoadShedder;
use crate::telemetry::Telemetry;
use crate::telemetry::context::{BodyFault, LoggedBody, RequestContext};
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

impl RequestPipeline {
    /// Starts the background work: health checks, timers of filters, workers of scripts.
    pub(crate) fn start(&self) {
        self.services.start_health_checks();
        self.routes.start();
    }

    /// Handles a request, from its head to the response's head. The response body writes the log entry when
    /// it ends.
    pub(crate) async fn handle_request(
        self: Arc<Self>,
        mut request: Request<StreamedServiceBody>,
        client: ClientInfo,
    ) -> Response<LoggedBody> {
        request_validation::normalise_target(&mut request);
        let client = client.apply_proxies(&self.trusted_proxies, &mut request);
        let mut entry = RequestContext::begin(&self.telemetry, &request, client); // accept
        let route = self.find_route(&request, &entry.client); // route
        route.iter().for_each(|route| entry.set_route(&route.metrics));
        let origin = request.headers().get(header::ORIGIN).cloned();
        let asked = route.as_ref().ok().map(|route| route.encoding.accepted_encodings(&request));
        let origins = route.as_ref().map_or(self.routes.default_origins(), |route| &route.origins);
        let comes = origins.classify(&request, &entry.client);
        let has_room = || {
            !entry.client.exceeds_request_limit()
                && route.as_ref().map_or(true, |route| route.handler.has_room(entry.started_at))
        };
        let answer = match (self.load_shedder.try_acquire(entry.started_at, has_room), &route) {
            (Err(GatewayOverloaded), _) => Ok(problem_details::overloaded_response()), // admit
            (Ok(taken), route) => {
                entry.in_flight_guard = Some(taken);
                match route {
                    Ok(route) => self.handle_on_route(route, comes, request, &mut entry).await, // handle
                    Err(refusal) => Err(Box::from(refusal.clone())),
                }
            }
        };
        let mut response = answer.unwrap_or_else(|problem| {
            if problem.code() == GatewayOverloaded.code() {
                self.load_shedder.note_refused(entry.age());
            }
            problem_details::problem_response(&*problem)
        });
        origins.set_response_headers(comes, origin.as_ref(), response.headers_mut());
        if let Ok(route) = &route {
            route.handler.add_timing_header(entry.age(), response.headers_mut());
            let account = || DedupAccount {
                pool: &self.offload,
                quota_key: quota_key(&entry.caller, Some(entry.client.address.ip())).for_responses(),
                deadline: entry.budget.as_ref().map(|budget| budget.deadline),
            };
            let encoded = route.encoding.encode(asked.unwrap_or_default(), account, response, &entry.client);
            response = attribute_polls(PollSite::Encode, encoded).await; // encode
        } else {
            response = unsent_bytes::count_unsent(response, &entry.client);
        }
        if let Some(tunnel) = response.extensions().get::<ServiceTunnel>() {
            // A tunnel keeps its concurrency permits for as long as the connection is in use.
            tunnel.hold_guard((entry.in_flight_guard.take(), entry.concurrency_permit.take()));
        }
        entry.begin_response(response) // log
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

    /// Answers a request on a route. Preflights, which carry no credentials, are answered here; other
    /// requests go to the route's handler.
    async fn handle_on_route(
        &self,
        route: &RouteEntry,
        comes: OriginKind,
        request: Request<StreamedServiceBody>,
        entry: &mut RequestContext,
    ) -> Result<Response<StreamedServiceBody>, Box<dyn ToProblem>> {
        let limits = (&route.limits, route.max_held_body());
        let mut request =
            request.map(|body| entry.meter_body(body, limits, self.trusted_proxies.custom_header()));
        let hops = validate_head(route, comes, &request)?;
        if answers_preflights(route) && cors::is_preflight(&request) {
            return Ok(route.origins.preflight(&request, route.handler.methods()));
        }
        let who = {
            let _identifies = entry.trace().start_phase("identify");
            let certified =
                self.identity.identify_by_certificate(entry.client.certificate(), entry.start_time)?;
            self.identity.identify(request.headers(), certified).await? // identify
        };
        entry.caller = who.caller.clone();
        let permit = match &route.handler {
            RouteHandler::Catalogue(catalogue) => {
                let readable = catalogue.visible_entries(self.rights.route_access(&who));
                request.extensions_mut().insert(readable);
                self.rights.charge_request(&who, entry.client.address.ip(), entry.started_at)?
            }
            _ => self.authorize_request(&who, route, entry)?, // rights
        };
        entry.concurrency_permit = permit.concurrency_permit;
        if let Some(limits) = permit.limits {
            request.extensions_mut().insert(limits);
        }
        let call = create_call(route, hops, entry);
        let mut call =
            RequestCall { caller: who.caller.clone(), rights: permit.rights, payer: permit.payer, ..call };
        let credentials =
            self.identity.strip_credentials(request.headers_mut(), route.handler.forwarded_headers());
        entry.service = route.filters.as_ref().and_then(|_| route.handler.service().cloned());
        let answer = match &route.filters {
            None => {
                attach_forwardable_headers(&route.handler, comes, &credentials, &mut request, &mut call);
                attribute_polls(route.handler.poll_site(), route.handler.handle(request, call)).await
            }
            // Boxed, since otherwise requests without filters would reserve space for its state too.
            Some(chain) => {
                let passing = handle_with_filters((route, chain), comes, (request, credentials), call, entry);
                Box::pin(attribute_polls(PollSite::Filters, passing)).await.map_err(Into::into) // request and response filters
            }
        };
        answer.map_err(|problem| replace_body_fault(problem, route, entry))
    }

    fn authorize_request(
        &self,
        who: &Principal,
        route: &RouteEntry,
        entry: &RequestContext,
    ) -> Result<RequestGrant, Box<dyn ToProblem>> {
        let permit = self.rights.authorize(who, &route.path, entry.client.address.ip(), entry.started_at);
        permit.map_err(|not| match not {
            AuthzError::Unauthenticated => self.identity.missing_credentials().into(),
            AuthzError::Forbidden(denied) => denied.into(),
        })
    }
}

/// Replaces a problem if the client's request body caused it.
fn replace_body_fault(
    problem: Box<dyn ToProblem>,
    route: &RouteEntry,
    entry: &RequestContext,
) -> Box<dyn ToProblem> {
    match entry.body_fault() {
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
    comes: OriginKind,
    (request, credentials): (Request<StreamedServiceBody>, HeaderMap),
    mut call: RequestCall,
    entry: &'a RequestContext,
) -> impl Future<Output = Result<Response<StreamedServiceBody>, filter::FilterFailure>> + use<'a> {
    let facts =
        entry.client.filter_facts(&route.path, route.handler.service(), (entry.started_at, entry.start_time));
    if route.handler.makes_calls() {
        call.headers = Some(forwardable_headers(request.headers(), comes, &credentials));
    }
    let theirs = call.clone();
    // Filters must not see credentials.
    let handle = move |mut request: Request<StreamedServiceBody>| {
        attach_forwardable_headers(&route.handler, comes, &credentials, &mut request, &mut call);
        let answer = attribute_polls(route.handler.poll_site(), route.handler.handle(request, call));
        answer.map(|answer| {
            let answer = answer.unwrap_or_else(|problem| {
                problem_details::problem_response(&*replace_body_fault(problem, route, entry))
            });
            // The tree would not include the changes that filters make to the body.
            without_tree(answer)
        })
    };
    chain.run_exchange(request, theirs, facts, handle)
}

fn without_tree(mut answer: Response<StreamedServiceBody>) -> Response<StreamedServiceBody> {
    answer.extensions_mut().remove::<json::JsonTree>();
    answer
}

/// Whether the gateway, and not the upstream service, answers browsers' preflights here.
fn answers_preflights(route: &RouteEntry) -> bool {
    route.handler.refuses_foreign_pages(&Method::GET) || !route.origins.is_empty()
}

/// Refuses a request that its head alone makes invalid. Returns the number of gateways that the request has
/// passed.
fn validate_head(
    route: &RouteEntry,
    comes: OriginKind,
    request: &Request<StreamedServiceBody>,
) -> Result<u8, RequestRefusal> {
    let is_asking = answers_preflights(route) && cors::is_preflight(request);
    if comes == OriginKind::Disallowed && (is_asking || route.handler.refuses_foreign_pages(request.method()))
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
fn create_call(route: &RouteEntry, hops: u8, entry: &mut RequestContext) -> RequestCall {
    let timeout = route.limits.timeout.0;
    let budget = RequestBudget::new_at(entry.started_at, timeout, u32::MAX, u64::MAX, usize::MAX);
    let budget = Arc::new(entry.client.charge(budget));
    entry.budget = Some(Arc::clone(&budget));
    let trace = entry.trace().clone();
    let client = &entry.client;
    let arrival = Some(ConnectionDetails {
        peer: client.peer,
        client: client.address.ip(),
        is_secure: client.is_secure(),
    });
    RequestCall {
        caller: CallerId::Anonymous,
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
    way: &RouteHandler,
    comes: OriginKind,
    credentials: &HeaderMap,
    request: &mut Request<StreamedServiceBody>,
    call: &mut RequestCall,
) {
    match way {
        RouteHandler::Query(_) => restore_credentials(request.headers_mut(), comes, credentials),
        way if way.makes_calls() => {
            call.headers = Some(forwardable_headers(request.headers(), comes, credentials))
        }
        _ => {}
    }
}

/// Returns the client's headers, for calls on its behalf.
fn forwardable_headers(headers: &HeaderMap, comes: OriginKind, credentials: &HeaderMap) -> Arc<HeaderMap> {
    let mut headers = headers.clone();
    restore_credentials(&mut headers, comes, credentials);
    Arc::new(headers)
}

/// Restores the credentials that were removed, and removes cookies if the page is from an untrusted origin.
fn restore_credentials(headers: &mut HeaderMap, comes: OriginKind, credentials: &HeaderMap) {
    for (name, value) in credentials {
        headers.entry(name).or_insert_with(|| value.clone());
    }
    if !comes.allows_cookies() {
        headers.remove(header::COOKIE);
    }
}
