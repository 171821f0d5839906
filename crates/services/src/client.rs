//! The client for upstream services: the path of one request.
//!
//! A program's request ([`ServiceSet::send`]) is checked, taken out of the budget, waits for a concurrency
//! permit, is sent to an endpoint (`client/exchange.rs`), and its response is received and counted. A proxied
//! request ([`ServiceSet::forward`]) streams both ways instead. An unsafe request that was sent is never sent
//! again, unless the service reports that it did not process it. Dropping a future cancels its exchange.
//!
//! `calls.rs` makes several calls of one request, `coalescing.rs` one call for several requests, which share
//! work by `in_flight.rs`. `fetch.rs` sends requests of the gateway itself.

pub mod calls;
mod clock;
mod coalescing;
mod exchange;
pub mod fetch;
pub mod in_flight;
mod leased_body;
mod message;
mod receive;

use std::collections::BTreeMap;
use std::future::Future;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;

use bytes::Bytes;
use diagnostics::Diagnostic;
use http::uri::{Authority, PathAndQuery};
use http::{HeaderMap, Method, StatusCode, Version};
use offload::OffloadPool;
use tokio::sync::SemaphorePermit;

use crate::body::StreamedServiceBody;
use crate::body::decompress::DecoderPool;
use crate::call::work::offload_call_error;
use crate::call::{DEADLINE_EXCEEDED, RequestBudget, RequestCall, UpstreamCallOutcome, quota_key};
use crate::config::ServiceConfig;
use crate::coop::timeout_at;
use crate::endpoints::{BackgroundDependencies, NameResolver, RequestVerdict, SystemResolver};
use crate::headers::{self, MAX_HOPS};
use crate::path::{PathError, split_url};
use crate::service::UpstreamService;
use crate::service::stats::ServiceStats;
use crate::transport::upgrade::{self, UpgradeOffer};
use crate::transport::{LiveTransport, ServiceTransport};
use clock::{ExchangeTimers, ExpiredTimeout};
use exchange::{CallExchange, LeasedResponse};
use message::{RequestMessage, RequestPayload};
use receive::{ReceiveError, receive};

pub use crate::call::{AwaitedEvent, CallError};

/// All services of a config. Clones share connections.
#[derive(Clone)]
pub struct ServiceSet {
    /// Services by name in lower case, since hosts of URLs are case-insensitive.
    by_name: Arc<BTreeMap<String, Arc<UpstreamService>>>,
    dependencies: Arc<BackgroundDependencies>,
}

/// A program's request to a service.
#[derive(Clone, Debug)]
pub struct ServiceRequest {
    /// The method.
    pub method: Method,
    /// Path and query, without authority.
    pub path_and_query: PathAndQuery,
    /// The program's own headers.
    pub headers: HeaderMap,
    /// The complete body.
    pub body: Bytes,
}

/// A service's response to a program's request.
#[derive(Clone, Debug)]
pub struct ProgramResponse {
    /// The status.
    pub status: StatusCode,
    /// The headers, without hop-by-hop headers.
    pub headers: HeaderMap,
    /// The complete body, after content decoding.
    pub body: Bytes,
}

impl ServiceSet {
    /// Creates the services of a config that refers to no files. Opens no connections.
    ///
    /// # Errors
    /// All mistakes in the config, not just the first.
    pub fn new(config: &BTreeMap<String, ServiceConfig>) -> Result<Self, Vec<Diagnostic>> {
        Self::load(config, Path::new(""))
    }

    /// Creates the services of a config, and reads the files that it refers to, relative to `folder`. Opens
    /// no connections.
    ///
    /// # Errors
    /// All mistakes in the config, not just the first.
    pub fn load(config: &BTreeMap<String, ServiceConfig>, folder: &Path) -> Result<Self, Vec<Diagnostic>> {
        let background_dependencies = BackgroundDependencies {
            transport: Arc::new(LiveTransport),
            resolver: Arc::new(SystemResolver),
            offload: None,
        };
        let by_name = build_services(config, folder, &BTreeMap::new())?;
        Ok(Self { by_name: Arc::new(by_name), dependencies: Arc::new(background_dependencies) })
    }

    /// Creates the services of a new config, which take over the state of these: connections, counts, and the
    /// health of every endpoint that remains. These services keep working for their remaining users and do
    /// not change before [`ServiceSet::start_health_checks`] is called.
    ///
    /// # Errors
    /// All mistakes in the config.
    pub fn reload(
        &self,
        config: &BTreeMap<String, ServiceConfig>,
        folder: &Path,
    ) -> Result<Self, Vec<Diagnostic>> {
        let by_name = build_services(config, folder, &self.by_name)?;
        Ok(Self { by_name: Arc::new(by_name), dependencies: Arc::clone(&self.dependencies) })
    }

    /// Starts the health checks, once these services are in force, and ends those of the previous config.
    /// Without this call, or outside of a runtime, the checks of a service start with its first request. They
    /// end when the last clone of these services is dropped.
    pub fn start_health_checks(&self) {
        if tokio::runtime::Handle::try_current().is_err() {
            return;
        }
        for service in self.by_name.values() {
            service.targets.start_background_tasks(&self.dependencies);
        }
    }

    /// Returns the statistics of all services, in alphabetical order.
    #[must_use]
    pub fn stats(&self) -> Vec<ServiceStats> {
        self.by_name.values().map(|service| service.stats()).collect()
    }

    /// Replaces the transport, for recordings and tests.
    #[must_use]
    pub fn with_transport(self, transport: Arc<dyn ServiceTransport>) -> Self {
        let background_dependencies =
            BackgroundDependencies { transport, ..BackgroundDependencies::clone(&self.dependencies) };
        Self { dependencies: Arc::new(background_dependencies), ..self }
    }

    /// Replaces the resolver.
    #[must_use]
    pub fn with_resolver(self, resolver: Arc<dyn NameResolver>) -> Self {
        let background_dependencies =
            BackgroundDependencies { resolver, ..BackgroundDependencies::clone(&self.dependencies) };
        Self { dependencies: Arc::new(background_dependencies), ..self }
    }

    /// Decodes responses to programs in this pool.
    #[must_use]
    pub fn with_offload(self, offload: OffloadPool) -> Self {
        let background_dependencies = BackgroundDependencies {
            offload: Some(offload),
            ..BackgroundDependencies::clone(&self.dependencies)
        };
        Self { dependencies: Arc::new(background_dependencies), ..self }
    }

    /// Returns the names of all services, in alphabetical order.
    pub fn names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.by_name.values().map(|service| service.name())
    }

    /// Returns the service with this name, ignoring case.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Arc<UpstreamService>> {
        if name.bytes().any(|byte| byte.is_ascii_uppercase()) {
            return self.by_name.get(&name.to_ascii_lowercase());
        }
        self.by_name.get(name)
    }

    /// Returns the service that has a target at this `host:port`. The default port is that of the target's
    /// scheme.
    #[must_use]
    pub fn find_by_authority(&self, authority: &str) -> Option<&Arc<UpstreamService>> {
        self.by_name.values().find(|service| service.has_authority(authority))
    }

    /// Returns the service and the path that a program's URL refers to.
    ///
    /// # Errors
    /// The errors of [`parse_target`](crate::parse_target), and [`PathError::UnknownService`].
    pub fn resolve(&self, url: &str) -> Result<(&Arc<UpstreamService>, PathAndQuery), PathError> {
        let (name, path) = split_url(url)?;
        let service = self.get(name).ok_or(PathError::UnknownService)?;
        Ok((service, path))
    }

    /// Sends a program's request: [`ServiceSet::start`], and awaits its response.
    pub fn send(
        &self,
        call: &RequestCall,
        service: &Arc<UpstreamService>,
        request: ServiceRequest,
    ) -> impl Future<Output = Result<ProgramResponse, CallError>> + Send + 'static + use<> {
        let (begun, budget) = (self.prepare_call(call, service, request), Arc::clone(&call.budget));
        // Boxed, since the future is large, and its callers would copy it from future to future.
        Box::pin(async move {
            let (exchange, message) = begun?;
            let result = exchange.run(&budget, message).await;
            budget.end_call(exchange.number);
            result
        })
    }

    /// Checks a program's request, takes it out of the budget, and returns a future that sends it.
    ///
    /// # Errors
    /// Errors that need no exchange: a forbidden path, method or header, or no calls left.
    pub fn start(
        &self,
        call: &RequestCall,
        service: &Arc<UpstreamService>,
        request: ServiceRequest,
    ) -> Result<impl Future<Output = Result<ProgramResponse, CallError>> + Send + 'static + use<>, CallError>
    {
        let (exchange, message) = self.prepare_call(call, service, request)?;
        let budget = Arc::clone(&call.budget);
        Ok(async move {
            let result = exchange.run(&budget, message).await;
            budget.end_call(exchange.number);
            result
        })
    }

    /// Like [`ServiceSet::start`], but streams the body of the response, without decoding and counting it.
    /// The service's timeout applies until the response begins.
    ///
    /// # Errors
    /// The errors of [`ServiceSet::start`].
    pub fn start_streamed(
        &self,
        call: &RequestCall,
        service: &Arc<UpstreamService>,
        request: ServiceRequest,
    ) -> Result<
        impl Future<Output = Result<http::Response<StreamedServiceBody>, CallError>> + Send + 'static + use<>,
        CallError,
    > {
        let (exchange, message) = self.prepare_call(call, service, request)?;
        let budget = Arc::clone(&call.budget);
        Ok(async move {
            let result = exchange.stream_exchange(&budget, message).await;
            match &result {
                Ok(response) => budget.cache_notes().record_response(response.headers()),
                Err(_) => budget.cache_notes().record_failure(),
            }
            budget.end_call(exchange.number);
            result
        })
    }

    /// Reads the response to [`ServiceSet::start_streamed`] to its end, counts it, and decodes it.
    ///
    /// # Errors
    /// The errors of an incomplete response, [`CallError::Limit`] and [`CallError::Unfinished`].
    pub async fn finish_response(
        &self,
        call: &RequestCall,
        service: &UpstreamService,
        response: http::Response<StreamedServiceBody>,
    ) -> Result<ProgramResponse, CallError> {
        let (head, body) = response.into_parts();
        let mut headers = head.headers;
        let wrong = |stopped| match stopped {
            ReceiveError::Refused(error) => offload_call_error(error),
            ReceiveError::Limit(error) => error,
            ReceiveError::Broken(source) => CallError::Broken { service: service.name().clone(), source },
        };
        let received = receive(&mut headers, body, &call.budget).await.map_err(wrong)?;
        let decoders = || {
            let (payer, deadline) = (call.quota_key(), call.budget.deadline);
            self.dependencies.offload.as_ref().map(|pool| DecoderPool { pool, payer, deadline })
        };
        let body = received.into_decoded(&call.budget, decoders).await.map_err(wrong)?;
        Ok(ProgramResponse { status: head.status, headers, body })
    }

    /// Checks a program's request, and takes it out of the budget.
    fn prepare_call(
        &self,
        call: &RequestCall,
        service: &Arc<UpstreamService>,
        request: ServiceRequest,
    ) -> Result<(CallExchange, RequestMessage), CallError> {
        call.check_rights(service.name(), &request.method)?;
        service.check_path(request.path_and_query.path())?;
        service.headers.check_headers(&request.headers)?;
        check_method(&request.method)?;
        let ServiceRequest { method, path_and_query: path, mut headers, body } = request;
        let client = call.headers.as_deref();
        service.headers.complete_headers(&mut headers, client.unwrap_or(&HeaderMap::new()));
        headers::check_head_size(&method, path.as_str(), &headers)?;
        let number = take_call(call, service, &method, &path)?;
        call.trace.inject_headers(&mut headers, number);
        let payload = RequestPayload::Buffered(body);
        let message = RequestMessage { method, path, host: None, headers, payload, upgrade: None };
        Ok((self.new_exchange(call, service, number), message))
    }

    /// Forwards a client's own request and streams the response back. Appends to `Via`, `Forwarded` and
    /// `CDN-Loop`, and sets the operator's headers for the service. `Host` is `authority`, or else the
    /// service's own name. The service's timeout applies until the response begins.
    pub fn forward(
        &self,
        call: &RequestCall,
        service: &Arc<UpstreamService>,
        request: http::Request<StreamedServiceBody>,
        authority: Option<Authority>,
    ) -> impl Future<Output = Result<http::Response<StreamedServiceBody>, CallError>> + Send + 'static + use<>
    {
        let started = self.start_forward(call, service, request, authority);
        let budget = Arc::clone(&call.budget);
        async move {
            let (exchange, message) = started?;
            let result = exchange.stream_exchange(&budget, message).await;
            budget.end_call(exchange.number);
            result
        }
    }

    fn start_forward(
        &self,
        call: &RequestCall,
        service: &Arc<UpstreamService>,
        request: http::Request<StreamedServiceBody>,
        authority: Option<Authority>,
    ) -> Result<(CallExchange, RequestMessage), CallError> {
        let (mut head, body) = request.into_parts();
        let path = head.uri.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
        call.check_rights(service.name(), &head.method)?;
        service.check_proxied_path(path.path())?;
        check_method(&head.method)?;
        let number = take_call(call, service, &head.method, &path)?;
        let payload = RequestPayload::from_body(body);
        let upgrade = UpgradeOffer::from_request(&head, !payload.is_empty(), &service.upgrades);
        headers::mark_forwarded(&mut head, call.connection_details);
        upgrade.iter().for_each(|offer| offer.add_headers(&mut head.headers));
        service.headers.apply_operator_headers(&mut head.headers);
        call.trace.inject_headers(&mut head.headers, number);
        let (method, headers) = (head.method, head.headers);
        Ok((
            self.new_exchange(call, service, number),
            RequestMessage { method, path, host: authority, headers, payload, upgrade },
        ))
    }

    fn new_exchange(
        &self,
        call: &RequestCall,
        service: &Arc<UpstreamService>,
        number: usize,
    ) -> CallExchange {
        let (background_dependencies, service) = (Arc::clone(&self.dependencies), Arc::clone(service));
        let client = call.connection_details.map(|arrival| arrival.client);
        CallExchange {
            dependencies: background_dependencies,
            service,
            number,
            caller: call.caller.clone(),
            client,
        }
    }
}

impl CallExchange {
    /// Runs the exchange of a program's request under a concurrency permit, to the last byte.
    async fn run(
        &self,
        budget: &Arc<RequestBudget>,
        message: RequestMessage,
    ) -> Result<ProgramResponse, CallError> {
        let _place = acquire_permit(budget).await?;
        let result = self.send_and_receive(budget, message).await;
        if result.is_err() {
            budget.cache_notes().record_failure();
        }
        match result {
            Err(CallError::Timeout { waited: AwaitedEvent::Deadline, .. }) => Err(DEADLINE_EXCEEDED),
            result => result,
        }
    }

    async fn send_and_receive(
        &self,
        budget: &Arc<RequestBudget>,
        mut message: RequestMessage,
    ) -> Result<ProgramResponse, CallError> {
        let mut clock = ExchangeTimers::new(&self.service, budget.deadline);
        let answer = self.send_with_retries(budget, &mut clock, &mut message).await?;
        let peer = Arc::clone(&answer.lease.peer);
        let (head, body) = self.with_leased_body(answer).into_parts();
        let mut headers = head.headers;
        let received =
            clock.within_total_timeout(pin!(receive(&mut headers, body, budget))).await.map_err(|timeout| {
                if matches!(timeout, ExpiredTimeout::Service(..)) {
                    peer.record_outcome(RequestVerdict::Failure, false);
                }
                self.timeout_error(timeout)
            });
        let wrong = |stopped| match stopped {
            ReceiveError::Refused(error) => offload_call_error(error),
            ReceiveError::Limit(error) => error,
            ReceiveError::Broken(source) => match leased_body::exceeded_idle_timeout(&*source) {
                Some(time) => self.timeout_error(ExpiredTimeout::Service(AwaitedEvent::Progress, time)),
                None => self.broken_error(source),
            },
        };
        let body = received?
            .map_err(wrong)?
            .into_decoded(budget, || self.decoder_pool(budget))
            .await
            .map_err(wrong)?;
        // Recorded only now: to the program, an incomplete response is an error.
        budget.set_outcome(self.number, UpstreamCallOutcome::Status(head.status.as_u16()));
        budget.cache_notes().record_response(&headers);
        Ok(ProgramResponse { status: head.status, headers, body })
    }

    /// Returns the pool that decodes large responses.
    fn decoder_pool(&self, budget: &RequestBudget) -> Option<DecoderPool<'_>> {
        let pool = self.dependencies.offload.as_ref()?;
        let payer = quota_key(&self.caller, self.client);
        let payer = if budget.is_shared() { payer.exempt() } else { payer };
        Some(DecoderPool { pool, payer, deadline: budget.deadline })
    }

    /// Runs the exchange of a client's own request up to the head of the response; the body streams.
    async fn stream_exchange(
        &self,
        budget: &RequestBudget,
        mut message: RequestMessage,
    ) -> Result<http::Response<StreamedServiceBody>, CallError> {
        let mut clock = ExchangeTimers::new(&self.service, budget.deadline);
        let answer = self.send_with_retries(budget, &mut clock, &mut message).await?;
        let mut response = match message.upgrade {
            Some(offer) if upgrade::is_protocol_switch(&answer.response) => {
                let LeasedResponse { mut response, lease, .. } = answer;
                lease.record_outcome(RequestVerdict::Success);
                if !offer.accept_switch(&mut response, lease, self.service.upgrade_idle_timeout) {
                    return Err(self.unexpected_switch_error());
                }
                response
            }
            _ => {
                let mut response = self.with_leased_body(answer);
                headers::strip_hop_by_hop(response.headers_mut());
                response
            }
        };
        budget.set_outcome(self.number, UpstreamCallOutcome::Status(response.status().as_u16()));
        let received = response.version();
        headers::append_via(response.headers_mut(), received);
        *response.version_mut() = Version::HTTP_11;
        Ok(response)
    }
}

/// Waits for a concurrency permit.
async fn acquire_permit(budget: &RequestBudget) -> Result<Option<SemaphorePermit<'_>>, CallError> {
    // The fast path needs no timer: usually a permit is free.
    let place = match budget.try_acquire_permit() {
        Some(place) => Some(place),
        None => Some(
            timeout_at(budget.deadline, pin!(budget.acquire_permit()))
                .await
                .flatten()
                .ok_or(DEADLINE_EXCEEDED)?,
        ),
    };
    // The permit may have been released by a call that ran into the deadline just now.
    if std::time::Instant::now() >= budget.deadline { Err(DEADLINE_EXCEEDED) } else { Ok(place) }
}

/// Takes a call out of the budget and records it. Returns its index among the calls of the request.
fn take_call(
    call: &RequestCall,
    service: &Arc<UpstreamService>,
    method: &Method,
    path: &PathAndQuery,
) -> Result<usize, CallError> {
    if call.hops >= MAX_HOPS {
        return Err(CallError::Loop(service.name().clone()));
    }
    let (name, method, path) = (service.name().clone(), method.clone(), path.as_str().to_owned());
    if !call.budget.take_call() {
        call.budget.refuse_call(name, method, path);
        return Err(CallError::Limit("limit-calls"));
    }
    Ok(call.budget.begin_call(name, method, path))
}

/// Creates services from their configs, with the state of the services `before`.
fn build_services(
    config: &BTreeMap<String, ServiceConfig>,
    folder: &Path,
    before: &BTreeMap<String, Arc<UpstreamService>>,
) -> Result<BTreeMap<String, Arc<UpstreamService>>, Vec<Diagnostic>> {
    let mut by_name: BTreeMap<String, Arc<UpstreamService>> = BTreeMap::new();
    let mut problems = Vec::new();
    for (name, config) in config {
        let key = name.to_ascii_lowercase();
        match UpstreamService::new(name, config, folder, before.get(&key).map(|before| &**before)) {
            Ok(service) => {
                if let Some(other) = by_name.insert(key, Arc::new(service)) {
                    problems.push(duplicate_name_problem(name, other.name()));
                }
            }
            Err(diagnostics) => problems.extend(diagnostics),
        }
    }
    if problems.is_empty() { Ok(by_name) } else { Err(problems) }
}

fn check_method(method: &Method) -> Result<(), CallError> {
    match *method {
        Method::CONNECT | Method::TRACE => Err(CallError::Method(method.clone())),
        _ => Ok(()),
    }
}

fn duplicate_name_problem(name: &str, other: &str) -> Diagnostic {
    let message = format!("`{name}` and `{other}` differ only in case");
    let hint = "The names are used as hosts in URLs, which ignore case: rename one.";
    Diagnostic::new(format!("/{name}"), message, hint)
}

#[cfg(test)]
mod tests;
