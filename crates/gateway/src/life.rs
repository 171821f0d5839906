//! The request pipeline: [`RequestPipeline::live`] implements the phases that `lib.rs` lists, in order.
//!
//! A [`RequestPipeline`] is built from one config and is immutable. [`ActiveConfig`] contains the one for new
//! requests; a reload replaces it, and requests in flight finish with the one they started with.

use std::sync::Arc;

use arc_swap::ArcSwap;
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
use tokio::sync::Notify;

use crate::access::{BodyFault, LoggedBody, RequestContext, Telemetry};
use crate::client::ClientInfo;
use crate::config::{ConnectionsConfig, DrainConfig};
use crate::conform;
use crate::cors::{self, OriginKind};
use crate::encode::DedupAccount;
use crate::identity::{IdentityProviders, Principal};
use crate::readiness::Readiness;
use crate::refusal::RequestRefusal;
use crate::respond;
use crate::rights::{AuthorizationTable, AuthzError, RequestGrant};
use crate::routes::{RouteEntry, RouteTable};
use crate::server::ListenerRulesByAddress;
use crate::shed::LoadShedder;
use crate::trusted::TrustedProxies;
use crate::unsent;
use crate::way::RouteHandler;

/// The methods that some route may serve.
const METHODS: &str = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS, QUERY";

/// The state that requests need, built from one config.
#[derive(Clone)]
pub(crate) struct RequestPipeline {
    pub(crate) routes: Arc<RouteTable>,
    pub(crate) audience: Arc<Telemetry>,
    pub(crate) shed: Arc<LoadShedder>,
    pub(crate) identity: Arc<IdentityProviders>,
    pub(crate) rights: Arc<AuthorizationTable>,
    pub(crate) ports: ListenerRulesByAddress,
    pub(crate) trusted: TrustedProxies,
    /// The limits for new connections.
    pub(crate) connections: ConnectionsConfig,
    /// The drain settings while this config is in force.
    pub(crate) drain: DrainConfig,
    // The next config takes these over if it still uses them: see `build.rs`.
    pub(crate) services: ServiceSet,
    pub(crate) offload: OffloadPool,
    pub(crate) runtime: Option<Arc<query::QueryRuntime>>,
    pub(crate) filters: Option<Arc<filter::FilterRuntime>>,
    pub(crate) scripts: Option<Arc<script_runtime::ScriptRuntime>>,
    pub(crate) schemas: Arc<graphql::RemoteSchemas>,
}

/// The active config's pipeline, and the gateway's readiness.
pub(crate) struct ActiveConfig {
    life: ArcSwap<RequestPipeline>,
    pub(crate) readiness: Arc<Readiness>,
    /// Notified once, to cut off all work that is still in progress.
    pub(crate) cut: Notify,
}

impl ActiveConfig {
    pub(crate) fn new(life: RequestPipeline) -> Self {
        Self { life: ArcSwap::from_pointee(life), readiness: Arc::default(), cut: Notify::new() }
    }

    /// Returns the pipeline for a new request.
    pub(crate) fn life(&self) -> Arc<RequestPipeline> {
        self.life.load_full()
    }

    /// Replaces the pipeline for new requests. The new one is started before the old one is dropped, so that
    /// scripts can take over its workers.
    pub(crate) fn put(&self, life: RequestPipeline) {
        life.start();
        self.life.store(Arc::new(life));
    }

    /// Releases the scripts' leases once no write is in progress, so that the next gateway process can
    /// acquire them.
    pub(crate) async fn leave_scripts(&self) {
        if let Some(scripts) = &self.life().scripts {
            scripts.drain_leases().await;
        }
    }

    /// Waits for the work that handlers continue after their responses, for at most `drain.timeout`.
    pub(crate) async fn finish_scripts(&self) {
        let life = self.life();
        let Some(scripts) = &life.scripts else { return };
        tokio::select! {
            () = scripts.drain() => {}
            () = tokio::time::sleep(life.drain.timeout.0) => {
                tracing::warn!(runs = scripts.runs_in_flight(), "scripts are cut off");
            }
            () = self.cut.notified() => {}
        }
    }

    /// Replaces the telemetry sinks. Called before the pipeline serves requests.
    pub(crate) fn put_audience(&self, change: impl FnOnce(&mut Telemetry)) {
        let life = self.life();
        let mut audience = (*life.audience).clone();
        change(&mut audience);
        self.life.store(Arc::new(RequestPipeline { audience: Arc::new(audience), ..(*life).clone() }));
    }
}

impl RequestPipeline {
    /// Starts the background work: health checks, timers of filters, workers of scripts.
    pub(crate) fn start(&self) {
        self.services.start_health_checks();
        self.routes.start();
    }

    /// Handles a request, from its head to the response's head. The response body writes the log entry when
    /// it ends.
    pub(crate) async fn live(
        self: Arc<Self>,
        mut request: Request<StreamedServiceBody>,
        client: ClientInfo,
    ) -> Response<LoggedBody> {
        conform::normalise_target(&mut request);
        let client = client.behind(&self.trusted, &mut request);
        let mut entry = RequestContext::begin(&self.audience, &request, client); // accept
        let route = self.route(&request, &entry.client); // route
        route.iter().for_each(|route| entry.enter(&route.metrics));
        let origin = request.headers().get(header::ORIGIN).cloned();
        let asked = route.as_ref().ok().map(|route| route.encoding.asked(&request));
        let origins = route.as_ref().map_or(self.routes.elsewhere(), |route| &route.origins);
        let comes = origins.judge(&request, &entry.client);
        let has_room = || {
            !entry.client.is_crowded() && route.as_ref().map_or(true, |route| route.way.has_room(entry.began))
        };
        let answer = match (self.shed.admit(entry.began, has_room), &route) {
            (Err(GatewayOverloaded), _) => Ok(respond::overloaded()), // admit
            (Ok(taken), route) => {
                entry.taken = Some(taken);
                match route {
                    Ok(route) => self.answer(route, comes, request, &mut entry).await, // handle
                    Err(refusal) => Err(Box::from(refusal.clone())),
                }
            }
        };
        let mut response = answer.unwrap_or_else(|problem| {
            if problem.code() == GatewayOverloaded.code() {
                self.shed.note_refused(entry.age());
            }
            respond::problem(&*problem)
        });
        origins.mark(comes, origin.as_ref(), response.headers_mut());
        if let Ok(route) = &route {
            route.way.complete(&entry, response.headers_mut());
            let account = || DedupAccount {
                pool: &self.offload,
                payer: quota_key(&entry.caller, Some(entry.client.address.ip())).for_responses(),
                until: entry.budget.as_ref().map(|budget| budget.deadline),
            };
            let encoded = route.encoding.encode(asked.unwrap_or_default(), account, response, &entry.client);
            response = attribute_polls(PollSite::Encode, encoded).await; // encode
        } else {
            response = unsent::keep(response, &entry.client);
        }
        if let Some(tunnel) = response.extensions().get::<ServiceTunnel>() {
            // A tunnel keeps its concurrency permits for as long as the connection is in use.
            tunnel.hold_guard((entry.taken.take(), entry.held.take()));
        }
        entry.end(response) // log
    }

    fn route(
        &self,
        request: &Request<StreamedServiceBody>,
        client: &ClientInfo,
    ) -> Result<&Arc<RouteEntry>, RequestRefusal> {
        if client.is_doubtful {
            return Err(RequestRefusal::FramingDoubtful);
        }
        if matches!(*request.method(), Method::CONNECT | Method::TRACE) {
            return Err(RequestRefusal::MethodNotAllowed {
                method: request.method().clone(),
                allowed: METHODS,
            });
        }
        conform::check(request)?;
        if !client.may_ask(request.uri().scheme()) {
            return Err(RequestRefusal::SchemeMisdirected);
        }
        if !client.answers_for(cors::host_of(request)) {
            return Err(RequestRefusal::HostMisdirected);
        }
        let path = request.uri().path();
        self.routes.find_surely(path)?.ok_or_else(|| RequestRefusal::RouteNotFound { path: path.to_owned() })
    }

    /// Answers a request on a route. Preflights, which carry no credentials, are answered here; other
    /// requests go to the route's handler.
    async fn answer(
        &self,
        route: &RouteEntry,
        comes: OriginKind,
        request: Request<StreamedServiceBody>,
        entry: &mut RequestContext,
    ) -> Result<Response<StreamedServiceBody>, Box<dyn ToProblem>> {
        let limits = (&route.limits, route.held_body());
        let mut request = request.map(|body| entry.metered(body, limits, self.trusted.own_header()));
        let hops = admit(route, comes, &request)?;
        if speaks_for(route) && cors::is_preflight(&request) {
            return Ok(route.origins.preflight(&request, route.way.methods()));
        }
        let who = {
            let _identifies = entry.trace().start_phase("identify");
            let certified = self.identity.by_certificate(entry.client.certificate(), entry.at)?;
            self.identity.identify(request.headers(), certified).await? // identify
        };
        entry.caller = who.caller.clone();
        let permit = match &route.way {
            RouteHandler::Catalogue(catalogue) => {
                let readable = catalogue.readable(self.rights.opens(&who));
                request.extensions_mut().insert(readable);
                self.rights.charge(&who, entry.client.address.ip(), entry.began)?
            }
            _ => self.permit(&who, route, entry)?, // rights
        };
        entry.held = permit.held;
        if let Some(limits) = permit.limits {
            request.extensions_mut().insert(limits);
        }
        let call = call(route, hops, entry);
        let mut call =
            RequestCall { caller: who.caller.clone(), rights: permit.rights, payer: permit.payer, ..call };
        let credentials = self.identity.strip(request.headers_mut(), route.way.forwarded());
        entry.service = route.filters.as_ref().and_then(|_| route.way.service().cloned());
        let answer = match &route.filters {
            None => {
                lend(&route.way, comes, &credentials, &mut request, &mut call);
                attribute_polls(route.way.site(), route.way.handle(request, call)).await
            }
            // Boxed, since otherwise requests without filters would reserve space for its state too.
            Some(chain) => {
                let passing = filtered((route, chain), comes, (request, credentials), call, entry);
                Box::pin(attribute_polls(PollSite::Filters, passing)).await.map_err(Into::into) // request and response filters
            }
        };
        answer.map_err(|problem| blamed(problem, route, entry))
    }

    fn permit(
        &self,
        who: &Principal,
        route: &RouteEntry,
        entry: &RequestContext,
    ) -> Result<RequestGrant, Box<dyn ToProblem>> {
        let permit = self.rights.permit(who, &route.path, entry.client.address.ip(), entry.began);
        permit.map_err(|not| match not {
            AuthzError::Identified => self.identity.missing().into(),
            AuthzError::Permitted(denied) => denied.into(),
        })
    }
}

/// Replaces a problem if the client's request body caused it.
fn blamed(problem: Box<dyn ToProblem>, route: &RouteEntry, entry: &RequestContext) -> Box<dyn ToProblem> {
    match entry.body_fault() {
        None => problem,
        Some(BodyFault::TooSlow) => RequestRefusal::BodyTooSlow.into(),
        Some(BodyFault::NoRoom) => GatewayOverloaded.into(),
        Some(BodyFault::TooLarge) => {
            RequestRefusal::BodyTooLarge { limit: route.limits.request_body.0 }.into()
        }
        Some(BodyFault::Malformed(wrong)) => RequestRefusal::BodyMalformed(wrong).into(),
        Some(BodyFault::BrokenOff) => RequestRefusal::BodyBroken.into(),
    }
}

/// Handles a request on a route with filters. The filters see problems as responses.
fn filtered<'a>(
    (route, chain): (&'a RouteEntry, &Arc<filter::FilterChain>),
    comes: OriginKind,
    (request, credentials): (Request<StreamedServiceBody>, HeaderMap),
    mut call: RequestCall,
    entry: &'a RequestContext,
) -> impl Future<Output = Result<Response<StreamedServiceBody>, filter::FilterFailure>> + use<'a> {
    let facts = entry.client.facts(&route.path, route.way.service(), (entry.began, entry.at));
    if route.way.makes_calls() {
        call.headers = Some(lent(request.headers(), comes, &credentials));
    }
    let theirs = call.clone();
    // Filters must not see credentials.
    let handle = move |mut request: Request<StreamedServiceBody>| {
        lend(&route.way, comes, &credentials, &mut request, &mut call);
        let answer = attribute_polls(route.way.site(), route.way.handle(request, call));
        answer.map(|answer| {
            let answer = answer.unwrap_or_else(|problem| respond::problem(&*blamed(problem, route, entry)));
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
fn speaks_for(route: &RouteEntry) -> bool {
    route.way.refuses_foreign_pages(&Method::GET) || !route.origins.is_empty()
}

/// Refuses a request that its head alone makes invalid. Returns the number of gateways that the request has
/// passed.
fn admit(
    route: &RouteEntry,
    comes: OriginKind,
    request: &Request<StreamedServiceBody>,
) -> Result<u8, RequestRefusal> {
    let is_asking = speaks_for(route) && cors::is_preflight(request);
    if comes == OriginKind::Foreign && (is_asking || route.way.refuses_foreign_pages(request.method())) {
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
fn call(route: &RouteEntry, hops: u8, entry: &mut RequestContext) -> RequestCall {
    let timeout = route.limits.timeout.0;
    let budget = RequestBudget::new_at(entry.began, timeout, u32::MAX, u64::MAX, usize::MAX);
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
fn lend(
    way: &RouteHandler,
    comes: OriginKind,
    credentials: &HeaderMap,
    request: &mut Request<StreamedServiceBody>,
    call: &mut RequestCall,
) {
    match way {
        RouteHandler::Query(_) => complete(request.headers_mut(), comes, credentials),
        way if way.makes_calls() => call.headers = Some(lent(request.headers(), comes, credentials)),
        _ => {}
    }
}

/// Returns the client's headers, for calls on its behalf.
fn lent(headers: &HeaderMap, comes: OriginKind, credentials: &HeaderMap) -> Arc<HeaderMap> {
    let mut headers = headers.clone();
    complete(&mut headers, comes, credentials);
    Arc::new(headers)
}

/// Restores the credentials that were removed, and removes cookies if the page is from an untrusted origin.
fn complete(headers: &mut HeaderMap, comes: OriginKind, credentials: &HeaderMap) {
    for (name, value) in credentials {
        headers.entry(name).or_insert_with(|| value.clone());
    }
    if !comes.keeps_cookies() {
        headers.remove(header::COOKIE);
    }
}
