//! The ways of answering. Each comes from a crate of its own that knows nothing of the others; here
//! they meet as one handler: a request and its call go in, an answer or a problem comes out.

use std::future::ready;
use std::sync::Arc;
use std::time::Instant;

use futures_util::future::BoxFuture;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response};
use offload::polls::PollSite;
use services::{Body, Call, Problem};

use crate::access::Entry;
use crate::catalogue::{self, Catalogue};
use crate::proxy::Proxy;

/// `Server-Timing`, of the W3C.
const SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");

/// How a route answers.
pub(crate) enum Way {
    /// By running the program in the request.
    Query(Box<query::Query>),
    /// By running a handler of a service in S.
    Script(Box<script_runtime::Script>),
    /// By putting together what several services say, as a file declares.
    Aggregate(Arc<aggregate::Aggregate>),
    /// By asking services what a document in GraphQL asks.
    Graphql(Box<graphql::Graphql>),
    /// By passing the request on.
    Proxy(Proxy),
    /// By telling what there is to ask.
    Catalogue(Catalogue),
}

impl Way {
    /// The name of the one that no config has.
    pub(crate) const CATALOGUE: &str = "catalogue";

    /// Answers.
    pub(crate) fn handle(
        &self,
        request: Request<Body>,
        call: Call,
    ) -> BoxFuture<'_, Result<Response<Body>, Box<dyn Problem>>> {
        match self {
            Self::Query(query) => query.handle(request, call),
            Self::Script(script) => script.handle(request, call),
            Self::Aggregate(aggregate) => aggregate.handle(request, call),
            Self::Graphql(graphql) => graphql.handle(request, call),
            Self::Proxy(proxy) => Box::pin(async move { proxy.handle(request, &call).await }),
            Self::Catalogue(catalogue) => {
                Box::pin(ready(catalogue.handle(&request, &call).map_err(Into::into)))
            }
        }
    }

    /// Where a thread is that answers so, for the count of long polls.
    pub(crate) fn site(&self) -> PollSite {
        match self {
            Self::Query(_) => PollSite::Query,
            Self::Script(_) => PollSite::Script,
            Self::Aggregate(_) => PollSite::Aggregate,
            Self::Graphql(_) => PollSite::Graphql,
            Self::Proxy(_) => PollSite::Proxy,
            Self::Catalogue(_) => PollSite::Request,
        }
    }

    /// Begins what goes on beside requests.
    pub(crate) fn start(&self) {
        match self {
            Self::Script(script) => script.activate(),
            Self::Graphql(graphql) => graphql.start(),
            _ => {}
        }
    }

    /// Whether it could answer in good time what came just now.
    pub(crate) fn has_room(&self, now: Instant) -> bool {
        match self {
            Self::Query(query) => query.has_room(now),
            Self::Script(script) => script.has_room(now),
            Self::Aggregate(_) | Self::Graphql(_) | Self::Proxy(_) | Self::Catalogue(_) => true,
        }
    }

    /// Adds what every answer of this way carries, whoever made it: to a query's refusal, its time.
    pub(crate) fn complete(&self, entry: &Entry, headers: &mut HeaderMap) {
        if matches!(self, Self::Query(_)) && !headers.keys().any(|name| *name == SERVER_TIMING) {
            let total = format!("total;dur={:.2}", entry.age().as_secs_f64() * 1000.0);
            headers.extend(HeaderValue::from_str(&total).ok().map(|total| (SERVER_TIMING, total)));
        }
    }

    /// Its name, as the config has it.
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

    /// The one service that is asked, where it is always the same.
    pub(crate) fn service(&self) -> Option<&Arc<str>> {
        match self {
            Self::Query(_) | Self::Script(_) | Self::Aggregate(_) | Self::Graphql(_) | Self::Catalogue(_) => {
                None
            }
            Self::Proxy(proxy) => Some(proxy.service()),
        }
    }

    /// The methods that pages can use here, for browsers that ask first.
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

    /// Whether it makes requests of its own, which get some of the client's headers.
    pub(crate) fn makes_calls(&self) -> bool {
        matches!(self, Self::Query(_) | Self::Script(_) | Self::Aggregate(_) | Self::Graphql(_))
    }

    /// Which of a client's headers its service gets, credentials included.
    pub(crate) fn forwarded(&self) -> &[HeaderName] {
        match self {
            Self::Query(_) | Self::Script(_) | Self::Aggregate(_) | Self::Graphql(_) | Self::Catalogue(_) => {
                &[]
            }
            Self::Proxy(proxy) => proxy.forwarded(),
        }
    }

    /// Whether a page of a foreign origin must not get this far with this method: a program would run, and an aggregate or a
    /// GraphQL operation call, as its visitor. A script answers such pages' reads, which they can't read unless it lets
    /// them, but they write nothing. A proxied service sees the `Origin` itself.
    pub(crate) fn refuses_foreign_pages(&self, method: &Method) -> bool {
        match self {
            Self::Query(_) | Self::Aggregate(_) | Self::Graphql(_) => true,
            Self::Script(_) => !method.is_safe(),
            Self::Proxy(_) | Self::Catalogue(_) => false,
        }
    }
}
