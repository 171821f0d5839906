//! `/.well-known/api-catalog` (RFC 9727): where the query routes and the S services are, for whoever knows the host only.
//!
//! It is there as soon as the config has one of them, and no route of its own at that path. What a caller may not use
//! is not in it.

use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue, LINK};
use http::{Method, Request, Response};
use serde_json::{Value, json};
use services::{Body, Call};

use crate::cors;
use crate::refusal::Refusal;
use crate::routes::Route;
use crate::way::Way;

/// Where it is.
pub(crate) const PATH: &str = "/.well-known/api-catalog";
/// The methods that it takes.
pub(crate) const METHODS: &str = "GET, HEAD";

/// RFC 9264, with the profile of RFC 9727.
const LINKSET: &str = "application/linkset+json; profile=\"https://www.rfc-editor.org/info/rfc9727\"";
/// What it says of itself, to HEAD above all.
const ITSELF: &str = "</.well-known/api-catalog>; rel=\"api-catalog\"; type=\"application/linkset+json\"";
/// The protocol, for people.
const PROTOCOL: &str = "https://github.com/orfa-gateway/orfa/blob/main/docs/query.md";

/// The query routes and the S services of a gateway.
pub(crate) struct Catalogue {
    entries: Vec<Entry>,
}

struct Entry {
    /// The route's path as the config has it.
    route: Box<str>,
    what: What,
}

/// What is behind a route.
enum What {
    /// Programs are run: where the types of what they can call are.
    Query { types: String },
    /// An S service: the resources that are there from the start, by their whole paths, with their methods.
    Script(Vec<(String, String)>),
}

/// The routes that a caller may read of; it travels with the request.
#[derive(Clone)]
pub(crate) struct Readable(Vec<Box<str>>);

impl Catalogue {
    /// The catalogue of these routes, if there is anything in it.
    pub(crate) fn of(routes: &[Route]) -> Option<Self> {
        let entry = |route: &Route| {
            let what = match &route.way {
                Way::Query(query) => What::Query { types: query.types() },
                Way::Script(script) => What::Script(script.resources().collect()),
                Way::Proxy(_) | Way::Catalogue(_) => return None,
            };
            Some(Entry { route: (&*route.path).into(), what })
        };
        let entries: Vec<Entry> = routes.iter().filter_map(entry).collect();
        (!entries.is_empty()).then_some(Self { entries })
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
        let links: Vec<Value> =
            self.entries.iter().filter(is_readable).map(|entry| entry.links(&origin)).collect();
        let body = json!({ "linkset": links }).to_string();
        let mut response = Response::new(services::body::full(body));
        let headers = [(CONTENT_TYPE, LINKSET), (LINK, ITSELF), (CACHE_CONTROL, "no-cache")];
        let headers = headers.map(|(name, value): (HeaderName, _)| (name, HeaderValue::from_static(value)));
        response.headers_mut().extend(headers);
        Ok(response)
    }
}

impl Entry {
    fn links(&self, origin: &str) -> Value {
        let anchor = format!("{origin}{}", self.route.trim_end_matches('*'));
        match &self.what {
            What::Query { types } => json!({
                "anchor": anchor,
                "service-desc": [
                    { "href": anchor, "type": "application/json" },
                    { "href": format!("{origin}{types}"), "type": "text/typescript" },
                ],
                "service-doc": [{ "href": PROTOCOL, "type": "text/html" }],
            }),
            What::Script(resources) => {
                let item = |(path, methods): &(String, String)| {
                    // An attribute of one's own is a list of texts (RFC 9264, 4.2.4.3).
                    let methods: Vec<&str> = methods.split(", ").collect();
                    json!({ "href": format!("{origin}{path}"), "methods": methods })
                };
                json!({ "anchor": anchor, "item": resources.iter().map(item).collect::<Vec<_>>() })
            }
        }
    }
}
