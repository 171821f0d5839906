//! Discovery for clients that know only the host. `/.well-known/api-catalog` (RFC 9727) lists the query routes,
//! the S services and GraphQL. `/openapi.json` is the OpenAPI document of the aggregates, and the catalogue
//! links to it.
//!
//! Each document exists if it has entries and the config has no route of its own at that path. Routes that a
//! caller may not use are left out.

use std::sync::Arc;

use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue, LINK};
use http::{Method, Request, Response};
use serde_json::{Map, Value, json};
use services::{Body, Call};

use crate::cors;
use crate::refusal::Refusal;
use crate::routes::Route;
use crate::way::Way;

/// The path of the catalogue.
const CATALOG: &str = "/.well-known/api-catalog";
/// The path of the OpenAPI document.
const OPENAPI: &str = "/openapi.json";
/// The methods that the catalogue serves.
pub(crate) const METHODS: &str = "GET, HEAD";

/// The media type of RFC 9264, with the profile of RFC 9727.
const LINKSET: &str = "application/linkset+json; profile=\"https://www.rfc-editor.org/info/rfc9727\"";
/// The `Link` header that describes the catalogue itself, mainly for HEAD requests.
const ITSELF: &str = "</.well-known/api-catalog>; rel=\"api-catalog\"; type=\"application/linkset+json\"";
/// The link to the protocol's documentation.
const PROTOCOL: &str = "https://github.com/orfa-gateway/orfa/blob/main/docs/query.md";

/// The self-describing routes of a gateway, rendered as one of the two documents.
pub(crate) struct Catalogue {
    entries: Arc<[Entry]>,
    is_openapi: bool,
}

struct Entry {
    /// The route's path as written in the config.
    route: Box<str>,
    what: What,
}

/// The kind of a route's handler, and its description.
enum What {
    /// A query route, and the path of the type declarations for its programs.
    Query { types: String },
    /// An S service: its initial resources as full paths, each with its methods.
    Script(Vec<(String, String)>),
    /// A GraphQL route.
    Graphql,
    /// An aggregate: its method and its OpenAPI operation.
    Aggregate { method: String, operation: Value },
}

/// The routes that a caller may see, as an extension of the request.
#[derive(Clone)]
pub(crate) struct Readable(Vec<Box<str>>);

impl Catalogue {
    /// Returns the documents that have entries for these routes.
    pub(crate) fn all(routes: &[Route]) -> Vec<Self> {
        let entries: Arc<[Entry]> = routes.iter().filter_map(Entry::of).collect();
        let catalogue = |is_openapi| Self { entries: Arc::clone(&entries), is_openapi };
        let has_aggregates = entries.iter().any(|entry| matches!(entry.what, What::Aggregate { .. }));
        let catalog = (!entries.is_empty()).then(|| catalogue(false));
        catalog.into_iter().chain(has_aggregates.then(|| catalogue(true))).collect()
    }

    /// The path of this document.
    pub(crate) fn path(&self) -> &'static str {
        if self.is_openapi { OPENAPI } else { CATALOG }
    }

    /// Returns the routes that `fits` accepts.
    pub(crate) fn readable(&self, fits: impl Fn(&str) -> bool) -> Readable {
        let routes = self.entries.iter().map(|entry| &entry.route);
        Readable(routes.filter(|route| fits(route)).cloned().collect())
    }

    /// Answers with the routes in the request's [`Readable`] extension.
    ///
    /// # Errors
    /// For a method other than GET and HEAD.
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

    /// Returns the entry's link context in the catalogue. Aggregates share one.
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
                    // Extension attributes are lists of strings (RFC 9264, section 4.2.4.3).
                    let methods: Vec<&str> = methods.split(", ").collect();
                    json!({ "href": format!("{origin}{path}"), "methods": methods })
                };
                Some(json!({ "anchor": anchor, "item": resources.iter().map(item).collect::<Vec<_>>() }))
            }
            // The endpoint serves its own schema by introspection.
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

/// Returns the OpenAPI document of the aggregates.
fn openapi(entries: &[&Entry], origin: &str) -> Value {
    let mut paths = Map::new();
    for entry in entries {
        if let What::Aggregate { method, operation } = &entry.what {
            paths.insert(entry.route.to_string(), json!({ method: operation }));
        }
    }
    json!({
        "openapi": "3.1.0",
        "info": { "title": "The aggregates of this gateway", "version": "1" },
        "servers": [{ "url": origin }],
        "paths": paths,
    })
}
