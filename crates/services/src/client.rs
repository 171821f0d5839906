//! The way of one request to a service.
//!
//! A program's request ([`Services::send`]): check → take from the allowance → wait for a place → send →
//! receive, counting. A proxied one ([`Services::forward`]) streams both ways instead. Nothing is ever
//! sent twice, but for what the pool had not begun to send when a kept connection turned out closed.
//! Dropping a future ends the exchange behind it.

use std::collections::BTreeMap;
use std::future::Future;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use http::uri::PathAndQuery;
use http::{HeaderMap, Method, StatusCode, Version};
use tokio::time::timeout_at;

use crate::body::{Body, full};
use crate::call::{Call, Outcome};
use crate::config::{ConfigProblem, Duration, ServiceConfig};
use crate::headers::{self, MAX_HOPS};
use crate::path::{PathError, parse_target};
use crate::receive::{Stopped, receive};
use crate::service::Service;
use crate::transport::{Endpoint, Live, Transport, TransportError};
use crate::upgrade::{self, Wish};

pub use crate::error::CallError;

/// All services of a config. Clones share connections.
#[derive(Clone)]
pub struct Services {
    /// By name in lower case, since the hosts of URLs know no other.
    by_name: Arc<BTreeMap<String, Arc<Service>>>,
    transport: Arc<dyn Transport>,
}

/// What a program asks of a service.
#[derive(Clone, Debug)]
pub struct Request {
    /// The method.
    pub method: Method,
    /// Path and query, without authority.
    pub path_and_query: PathAndQuery,
    /// The program's own headers.
    pub headers: HeaderMap,
    /// The body, all of it.
    pub body: Bytes,
}

/// What a service answered.
#[derive(Clone, Debug)]
pub struct Response {
    /// The status.
    pub status: StatusCode,
    /// The headers, without those of the connection.
    pub headers: HeaderMap,
    /// The body, all of it, after content decoding.
    pub body: Bytes,
}

impl Services {
    /// Makes ready objects out of a config that names no files. Connects to nothing yet.
    ///
    /// # Errors
    /// Every mistake in it, not just the first.
    pub fn new(config: &BTreeMap<String, ServiceConfig>) -> Result<Self, Vec<ConfigProblem>> {
        Self::read(config, Path::new(""))
    }

    /// Makes ready objects out of the config, and reads the files that it names: their paths start in the
    /// folder. Connects to nothing yet.
    ///
    /// # Errors
    /// Every mistake in it, not just the first.
    pub fn read(config: &BTreeMap<String, ServiceConfig>, folder: &Path) -> Result<Self, Vec<ConfigProblem>> {
        let mut by_name: BTreeMap<String, Arc<Service>> = BTreeMap::new();
        let mut problems = Vec::new();
        for (name, config) in config {
            match Service::new(name, config, folder) {
                Ok(service) => {
                    if let Some(other) = by_name.insert(name.to_ascii_lowercase(), Arc::new(service)) {
                        problems.push(same_name(name, other.name()));
                    }
                }
                Err(found) => problems.extend(found),
            }
        }
        if !problems.is_empty() {
            return Err(problems);
        }
        Ok(Self { by_name: Arc::new(by_name), transport: Arc::new(Live) })
    }

    /// The same services behind another transport: a recording, a test.
    #[must_use]
    pub fn with_transport(self, transport: Arc<dyn Transport>) -> Self {
        Self { transport, ..self }
    }

    /// The names of all services, in alphabetical order.
    pub fn names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.by_name.values().map(|service| service.name())
    }

    /// The service of this name, in whichever case it is spelt.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Arc<Service>> {
        if name.bytes().any(|byte| byte.is_ascii_uppercase()) {
            return self.by_name.get(&name.to_ascii_lowercase());
        }
        self.by_name.get(name)
    }

    /// The service and the path that a program's URL means.
    ///
    /// # Errors
    /// What [`parse_target`] refuses, and names of no service.
    pub fn resolve(&self, url: &str) -> Result<(&Arc<Service>, PathAndQuery), PathError> {
        let target = parse_target(url)?;
        let service = self.get(&target.service).ok_or(PathError::UnknownService)?;
        Ok((service, target.path_and_query))
    }

    /// Sends a program's request: [`Services::start`], and all that follows.
    pub fn send(
        &self,
        call: &Call,
        service: &Arc<Service>,
        request: Request,
    ) -> impl Future<Output = Result<Response, CallError>> + Send + 'static + use<> {
        let started = self.start(call, service, request);
        async move { started?.await }
    }

    /// Checks a program's request, takes it out of the allowance, and returns what sends it when polled.
    ///
    /// # Errors
    /// What can be said at once: a path, a method or a header that is refused, no calls left.
    pub fn start(
        &self,
        call: &Call,
        service: &Arc<Service>,
        request: Request,
    ) -> Result<impl Future<Output = Result<Response, CallError>> + Send + 'static + use<>, CallError> {
        call.check(service.name(), &request.method)?;
        service.check_path(request.path_and_query.path())?;
        service.headers.check(&request.headers)?;
        check_method(&request.method)?;
        let (number, endpoint) = begin(call, service, &request.method, &request.path_and_query)?;
        let mut headers = request.headers;
        service.headers.complete(&mut headers, &call.headers);
        let sent =
            self.message(endpoint, request.method, request.path_and_query, headers, full(request.body))?;
        let (call, exchange) = (call.clone(), Exchange { service: service.clone(), number });
        Ok(async move {
            let result = exchange.run(&call, sent).await;
            call.budget.end(number);
            result
        })
    }

    /// Sends a client's own request on and streams the answer back. `Via`, `Forwarded` and `CDN-Loop` are
    /// appended, the operator's headers for the service set. The service's timeout holds until the
    /// answer begins.
    pub fn forward(
        &self,
        call: &Call,
        service: &Arc<Service>,
        request: http::Request<Body>,
    ) -> impl Future<Output = Result<http::Response<Body>, CallError>> + Send + 'static + use<> {
        let started = self.start_forward(call, service, request);
        let call = call.clone();
        async move {
            let (exchange, sent, wish) = started?;
            let result = exchange.stream(&call, sent, wish).await;
            call.budget.end(exchange.number);
            result
        }
    }

    fn start_forward(
        &self,
        call: &Call,
        service: &Arc<Service>,
        request: http::Request<Body>,
    ) -> Result<(Exchange, Sent, Option<Wish>), CallError> {
        let (mut head, body) = request.into_parts();
        let path = head.uri.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
        call.check(service.name(), &head.method)?;
        service.check_proxied_path(path.path())?;
        check_method(&head.method)?;
        let (number, endpoint) = begin(call, service, &head.method, &path)?;
        let wish = Wish::of(&mut head);
        headers::mark_forwarded(&mut head);
        wish.iter().for_each(|wish| wish.say(&mut head.headers));
        service.headers.set_on(&mut head.headers);
        let sent = self.message(endpoint, head.method, path, head.headers, body)?;
        Ok((Exchange { service: service.clone(), number }, sent, wish))
    }

    /// The message as it goes to one target.
    fn message(
        &self,
        endpoint: Endpoint,
        method: Method,
        path: PathAndQuery,
        headers: HeaderMap,
        body: Body,
    ) -> Result<Sent, CallError> {
        let mut message = http::Request::new(body);
        *message.method_mut() = method;
        *message.uri_mut() = endpoint.origin.uri(path).map_err(|_| PathError::Invalid)?;
        *message.headers_mut() = headers;
        Ok(Sent { transport: self.transport.clone(), endpoint, message })
    }
}

/// A message that waits to be sent.
struct Sent {
    transport: Arc<dyn Transport>,
    endpoint: Endpoint,
    message: http::Request<Body>,
}

/// One exchange with a service: whom to name, and what ends it when.
struct Exchange {
    service: Arc<Service>,
    number: usize,
}

impl Exchange {
    /// A program's: within a place, to the last byte.
    async fn run(&self, call: &Call, sent: Sent) -> Result<Response, CallError> {
        let over = CallError::Limit("limit-deadline");
        let Ok(_place) = timeout_at(call.budget.deadline.into(), call.budget.place()).await else {
            return Err(over);
        };
        if Instant::now() >= call.budget.deadline {
            return Err(over); // The place came from a call that ran out of time just now.
        }
        let own = Instant::now() + self.service.timeout();
        let exchange = async {
            let response = self.head(call, sent).await?;
            if upgrade::is_switch(&response) {
                return Err(self.switched());
            }
            let (head, body) = response.into_parts();
            let response = self.body(call, head, body).await?;
            // Not before: an answer that breaks off is none to the program.
            call.budget.note(self.number, Outcome::Status(response.status.as_u16()));
            Ok(response)
        };
        match timeout_at(own.min(call.budget.deadline).into(), exchange).await {
            Ok(result) => result,
            Err(_) if call.budget.deadline <= own => Err(over),
            Err(_) => Err(self.timeout()),
        }
    }

    /// A client's: to the head of the answer, the rest streams.
    async fn stream(
        &self,
        call: &Call,
        sent: Sent,
        wish: Option<Wish>,
    ) -> Result<http::Response<Body>, CallError> {
        let end = (Instant::now() + self.service.timeout()).min(call.budget.deadline);
        let answer = timeout_at(end.into(), self.head(call, sent)).await;
        let mut response = answer.unwrap_or_else(|_| Err(self.timeout()))?;
        if !upgrade::is_switch(&response) {
            headers::strip_hop_by_hop(response.headers_mut());
        } else if !wish.is_some_and(|wish| wish.grant(&mut response)) {
            return Err(self.switched());
        }
        call.budget.note(self.number, Outcome::Status(response.status().as_u16()));
        let received = response.version();
        headers::mark_via(response.headers_mut(), received);
        *response.version_mut() = Version::HTTP_11;
        Ok(response)
    }

    async fn head(&self, call: &Call, sent: Sent) -> Result<http::Response<Body>, CallError> {
        call.budget.note(self.number, Outcome::NoAnswer);
        match sent.transport.send(&sent.endpoint, sent.message).await {
            Ok(response) => Ok(response),
            Err(TransportError::Unreachable(source)) => {
                call.budget.note(self.number, Outcome::NotSent);
                Err(CallError::Unreachable { service: self.service.name().clone(), source })
            }
            Err(TransportError::Timeout(_)) => Err(self.timeout()),
            Err(TransportError::Broken(source)) => Err(self.broken(source)),
        }
    }

    async fn body(
        &self,
        call: &Call,
        head: http::response::Parts,
        body: Body,
    ) -> Result<Response, CallError> {
        let mut headers = head.headers;
        match receive(&mut headers, body, &call.budget).await {
            Ok(body) => Ok(Response { status: head.status, headers, body }),
            Err(Stopped::Limit) => Err(CallError::Limit("limit-received")),
            Err(Stopped::Broken(source)) => Err(self.broken(source)),
        }
    }

    fn timeout(&self) -> CallError {
        CallError::Timeout { service: self.service.name().clone(), timeout: Duration(self.service.timeout()) }
    }

    fn switched(&self) -> CallError {
        self.broken("it switched protocols without being asked to".into())
    }

    fn broken(&self, source: crate::body::Error) -> CallError {
        CallError::Broken { service: self.service.name().clone(), source }
    }
}

/// Takes a call out of the allowance and notes it; says which target is to get it.
fn begin(
    call: &Call,
    service: &Arc<Service>,
    method: &Method,
    path: &PathAndQuery,
) -> Result<(usize, Endpoint), CallError> {
    if call.hops >= MAX_HOPS {
        return Err(CallError::Loop(service.name().clone()));
    }
    let (name, method, path) = (service.name().clone(), method.clone(), path.to_string());
    if !call.budget.take_call() {
        call.budget.refuse(name, method, path);
        return Err(CallError::Limit("limit-calls"));
    }
    let number = call.budget.begin(name, method, path);
    let none = || CallError::Unreachable { service: service.name().clone(), source: "no targets".into() };
    Ok((number, service.endpoint().ok_or_else(none)?))
}

fn check_method(method: &Method) -> Result<(), CallError> {
    match *method {
        Method::CONNECT | Method::TRACE => Err(CallError::Method(method.clone())),
        _ => Ok(()),
    }
}

fn same_name(name: &str, other: &str) -> ConfigProblem {
    ConfigProblem {
        pointer: format!("/{name}"),
        message: format!("`{name}` and `{other}` differ only in case"),
        hint: "The names stand as hosts in URLs, where case does not count: rename one.".to_owned(),
    }
}

#[cfg(test)]
mod tests;
