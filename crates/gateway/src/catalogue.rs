//! What there is to ask, for whoever knows the host only: `/.well-known/api-catalog` (RFC 9727) says where the query routes,
//! the S services and GraphQL are, and `/openapi.json` is the OpenAPI document of the aggregates, to which the catalogue leads.
//!
//! Each is there as soon as the config has anything to put in it, and no route of its own at that path. What a caller may
//! not use is not in it.

use std::sync::Arc;

use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue, LINK};
use http::{Method, Request, Response};
use serde_json::{Map, Value, json};
use services::{Body, Call};

use crate::cors;
use crate::refusal::Refusal;
use crate::routes::Route;
use crate::way::Way;

/// Where the catalogue is.
const CATALOG: &str = "/.well-known/api-catalog";
/// Where the OpenAPI document is.
const OPENAPI: &str = "/openapi.json";
/// The methods that it takes.
pub(crate) const METHODS: &str = "GET, HEAD";

/// RFC 9264, with the profile of RFC 9727.
const LINKSET: &str = "application/linkset+json; profile=\"https://www.rfc-editor.org/info/rfc9727\"";
/// What it says of itself, to HEAD above all.
const ITSELF: &str = "</.well-known/api-catalog>; rel=\"api-catalog\"; type=\"application/linkset+json\"";
/// The protocol, for people.
const PROTOCOL: &str = "https://github.com/orfa-gateway/orfa/blob/main/docs/query.md";

/// The routes of a gateway that describe themselves, told in one of two ways.
pub(crate) struct Catalogue {
    entries: Arc<[Entry]>,
    is_openapi: bool,
}

struct Entry {
    /// The route's path as the config has it.
    route: Box<str>,
    what: What,
}

/// What answers there.
enum What {
    /// Programs are run: where the types of what they can call are.
    Query { types: String },
    /// An S service: the resources that are there from the start, by their whole paths, with their methods.
    Script(Vec<(String, String)>),
    /// GraphQL.
    Graphql,
    /// An aggregate: its method and its operation.
    Aggregate { method: String, operation: Value },
}

/// The routes that a caller may read of; it travels with the request.
#[derive(Clone)]
pub(crate) struct Readable(Vec<Box<str>>);

impl Catalogue {
    /// Those of these routes that have anything in them.
    pub(crate) fn all(routes: &[Route]) -> Vec<Self> {
        let entries: Arc<[Entry]> = routes.iter().filter_map(Entry::of).collect();
        let catalogue = |is_openapi| Self { entries: Arc::clone(&entries), is_openapi };
        let has_aggregates = entries.iter().any(|entry| matches!(entry.what, What::Aggregate { .. }));
        let catalog = (!entries.is_empty()).then(|| catalogue(false));
        catalog.into_iter().chain(has_aggregates.then(|| catalogue(true))).collect()
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &'static str {
        if self.is_openapi { OPENAPI } else { CATALOG }
    }

    /// Those that fit.
    pub(crate) fn readable(&self, fits: impl Fn(&str) -> bool) -> Readable {
        let routes = self.entries.iter().map(|entry| &entry.route);
        Readable(routes.filter(|route| fits(route)).cloned().collect())
    }

    /// Answers with the routes that are [`Readable`].
    ///
    /// # Errors
    /// Another method than GET and HEAD.
    pub(crate) fn handle(&self, request: &Request<Body>, call: &Call) -> Result<Response<Body>, Refusal> {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            return Err(Refusal::MethodNotAllowed { method: request.method().clone(), allowed: METHODS });
        }
        let is_secure = call.arrival.as_ref().is_some_and(|arrival| arrival.is_secure);
        let scheme = if is_secure { "https" } else { "http" };
        let origin = format!("{scheme}://{}", cors::host_of(request).unwrap_or("localhost"));
        let readable = request.extensions().get::<Readable>();
        let is_readable =
            |entry: &&Entry| readable.is_some_and(|Readable(routes)| routes.contains(&entry.route));
        let entries: Vec<&Entry> = self.entries.iter().filter(is_readable).collect();
        let (kind, text) = match self.is_openapi {
            true => ("application/json", openapi(&entries, &origin)),
            false => (LINKSET, linkset(&entries, &origin)),
        };
        let mut response = Response::new(services::body::full(text.to_string()));
        let headers = [(CONTENT_TYPE, kind), (CACHE_CONTROL, "no-cache")];
        let itself = (!self.is_openapi).then_some((LINK, ITSELF));
        let headers = headers.into_iter().chain(itself);
        let headers = headers.map(|(name, value): (HeaderName, _)| (name, HeaderValue::from_static(value)));
        response.headers_mut().extend(headers);
        Ok(response)
    }
}

impl Entry {
    fn of(route: &Route) -> Option<Self> {
        let what = match &route.way {
            Way::Query(query) => What::Query { types: query.types() },
            Way::Script(script) => What::Script(script.resources().collect()),
            Way::Aggregate(aggregate) => {
                let method = aggregate.methods().split(',').next().unwrap_or_default();
                What::Aggregate { method: method.to_ascii_lowercase(), operation: aggregate.operation() }
            }
            Way::Graphql(_) => What::Graphql,
            Way::Proxy(_) | Way::Catalogue(_) => return None,
        };
        Some(Self { route: (&*route.path).into(), what })
    }

    /// Its context in the catalogue; aggregates have one together.
    fn links(&self, origin: &str) -> Option<Value> {
        let anchor = format!("{origin}{}", self.route.trim_end_matches('*'));
        match &self.what {
            What::Query { types } => Some(json!({
                "anchor": anchor,
                "service-desc": [
                    { "href": anchor, "type": "application/json" },
                    { "href": format!("{origin}{types}"), "type": "text/typescript" },
                ],
                "service-doc": [{ "href": PROTOCOL, "type": "text/html" }],
            })),
            What::Script(resources) => {
                let item = |(path, methods): &(String, String)| {
                    // An attribute of one's own is a list of texts (RFC 9264, 4.2.4.3).
                    let methods: Vec<&str> = methods.split(", ").collect();
                    json!({ "href": format!("{origin}{path}"), "methods": methods })
                };
                Some(json!({ "anchor": anchor, "item": resources.iter().map(item).collect::<Vec<_>>() }))
            }
            // A client asks it for its schema itself.
            What::Graphql => Some(json!({
                "anchor": anchor,
                "service-desc": [{ "href": anchor, "type": "application/graphql-response+json" }],
                "service-doc": [{ "href": anchor, "type": "text/html" }],
            })),
            What::Aggregate { .. } => None,
        }
    }
}

fn linkset(entries: &[&Entry], origin: &str) -> Value {
    let mut links: Vec<Value> = entries.iter().filter_map(|entry| entry.links(origin)).collect();
    if links.len() < entries.len() {
        let description = json!({ "href": format!("{origin}{OPENAPI}"), "type": "application/json" });
        links.push(json!({ "anchor": format!("{origin}/"), "service-desc": [description] }));
    }
    json!({ "linkset": links })
}

/// The aggregates as an OpenAPI document.
fn openapi(entries: &[&Entry], origin: &str) -> Value {
    let mut paths = Map::new();
    for entry in entries {
        if let What::Aggregate { method, operation } = &entry.what {
            paths.insert(entry.route.to_string(), json!({ method: operation }));
        }
    }
    json!({
        "openapi": "3.1.0",
        "info": { "title": "What this gateway puts together", "version": "1" },
        "servers": [{ "url": origin }],
        "paths": paths,
    })
}
