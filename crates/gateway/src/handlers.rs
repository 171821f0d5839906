//! The handlers of routes. Each is implemented by a crate that is independent of the others; [`RouteHandler`]
//! dispatches to them. All take a [`HandlerRequest`] and return a [`handler::HandlerResponse`] or a problem.

pub(crate) mod catalogue;
pub(crate) mod proxy;

use std::future::ready;
use std::sync::Arc;
use std::time::Instant;

use futures_util::future::BoxFuture;
use handler::{HandlerRequest, HandlerResult};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use offload::polls::PollSite;

use catalogue::ApiCatalogue;
use proxy::ProxyHandler;

/// `Server-Timing`, of the W3C.
const SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");

/// The handler of a route.
pub(crate) enum RouteHandler {
    /// Runs the program in the request.
    Query(Box<query::QueryRoute>),
    /// Runs a handler of a service in S.
    Script(Box<script_runtime::ScriptRoute>),
    /// Composes responses of several services as a file declares.
    Aggregate(Arc<aggregate::Aggregate>),
    /// Executes a GraphQL operation on services.
    Graphql(Box<graphql::GraphqlRoute>),
    /// Forwards the request to a service.
    Proxy(ProxyHandler),
    /// Lists the available routes and operations.
    Catalogue(ApiCatalogue),
}

impl RouteHandler {
    /// The name of the handler that no config contains.
    pub(crate) const CATALOGUE: &str = "api-catalog";

    /// Handles a request.
    pub(crate) fn handle(&self, request: HandlerRequest) -> BoxFuture<'_, HandlerResult> {
        match self {
            Self::Query(query) => query.handle(request),
            Self::Script(script) => script.handle(request),
            Self::Aggregate(aggregate) => aggregate.handle(request),
            Self::Graphql(graphql) => graphql.handle(request),
            Self::Proxy(proxy) => proxy.handle(request),
            Self::Catalogue(catalogue) => Box::pin(ready(catalogue.handle(&request))),
        }
    }

    /// The site that long polls of this handler are counted under.
    pub(crate) fn poll_site(&self) -> PollSite {
        match self {
            Self::Query(_) => PollSite::Query,
            Self::Script(_) => PollSite::Script,
            Self::Aggregate(_) => PollSite::Aggregate,
            Self::Graphql(_) => PollSite::Graphql,
            Self::Proxy(_) => PollSite::Proxy,
            Self::Catalogue(_) => PollSite::Request,
        }
    }

    /// Starts background work.
    pub(crate) fn start(&self) {
        match self {
            Self::Script(script) => script.activate(),
            Self::Graphql(graphql) => graphql.start_introspection(),
            _ => {}
        }
    }

    /// Whether it could answer a request that arrived just now in good time.
    pub(crate) fn has_room(&self, now: Instant) -> bool {
        match self {
            Self::Query(query) => query.can_start_in_time(now),
            Self::Script(script) => script.has_capacity(now),
            Self::Aggregate(_) | Self::Graphql(_) | Self::Proxy(_) | Self::Catalogue(_) => true,
        }
    }

    /// Adds headers that every response of this handler has, including refusals: for a query, the time
    /// since the request began.
    pub(crate) fn add_timing_header(&self, started_at: Instant, headers: &mut HeaderMap) {
        if matches!(self, Self::Query(_)) && !headers.keys().any(|name| *name == SERVER_TIMING) {
            let total = format!("total;dur={:.2}", started_at.elapsed().as_secs_f64() * 1000.0);
            headers.extend(HeaderValue::from_str(&total).ok().map(|total| (SERVER_TIMING, total)));
        }
    }

    /// The handler's name, as in the config.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Query(_) => "query",
            Self::Script(_) => "script",
            Self::Aggregate(_) => "aggregate",
            Self::Graphql(_) => "graphql",
            Self::Proxy(_) => "proxy",
            Self::Catalogue(_) => Self::CATALOGUE,
        }
    }

    /// The service that is called, if it is always the same.
    pub(crate) fn service(&self) -> Option<&Arc<str>> {
        match self {
            Self::Query(_) | Self::Script(_) | Self::Aggregate(_) | Self::Graphql(_) | Self::Catalogue(_) => {
                None
            }
            Self::Proxy(proxy) => Some(proxy.service()),
        }
    }

    /// The methods that pages can use on this route, for preflights.
    pub(crate) fn methods(&self) -> &'static str {
        match self {
            Self::Query(query) => query.methods(),
            Self::Script(script) => script.methods(),
            Self::Aggregate(aggregate) => aggregate.methods(),
            Self::Graphql(graphql) => graphql.methods(),
            Self::Proxy(_) => "GET, HEAD, POST, PUT, PATCH, DELETE, QUERY",
            Self::Catalogue(_) => catalogue::METHODS,
        }
    }

    /// Whether the handler makes calls of its own, which receive some of the client's headers.
    pub(crate) fn makes_calls(&self) -> bool {
        matches!(self, Self::Query(_) | Self::Script(_) | Self::Aggregate(_) | Self::Graphql(_))
    }

    /// The client's headers that its service receives, credentials included.
    pub(crate) fn forwarded_headers(&self) -> &[HeaderName] {
        match self {
            Self::Query(_) | Self::Script(_) | Self::Aggregate(_) | Self::Graphql(_) | Self::Catalogue(_) => {
                &[]
            }
            Self::Proxy(proxy) => proxy.forwarded_headers(),
        }
    }

    /// Whether pages of a foreign origin must not use this handler with this method: a program would run, and
    /// an aggregate or a GraphQL operation would make calls, on behalf of the page's visitor. A script
    /// answers reads of such pages, which can't see the response unless the script permits it, but refuses
    /// writes. A proxied service checks `Origin` itself.
    pub(crate) fn refuses_foreign_pages(&self, method: &Method) -> bool {
        match self {
            Self::Query(_) | Self::Aggregate(_) | Self::Graphql(_) => true,
            Self::Script(_) => !method.is_safe(),
            Self::Proxy(_) | Self::Catalogue(_) => false,
        }
    }
}
