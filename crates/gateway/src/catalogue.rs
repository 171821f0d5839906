//! `/.well-known/api-catalog` (RFC 9727): where the query routes are, for whoever knows the host only.
//!
//! It is there as soon as the config has a query route, and no route of its own at that path. What a caller may not use
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

/// The query routes of a gateway.
pub(crate) struct Catalogue {
    entries: Vec<Entry>,
}

struct Entry {
    /// The route's path as the config has it.
    route: Box<str>,
    types: String,
}

/// The routes that a caller may read of; it travels with the request.
#[derive(Clone)]
pub(crate) struct Readable(Vec<Box<str>>);

impl Catalogue {
    /// The catalogue of these routes, if there is anything in it.
    pub(crate) fn of(routes: &[Route]) -> Option<Self> {
        let entry = |route: &Route| match &route.way {
            Way::Query(query) => Some(Entry { route: (&*route.path).into(), types: query.types() }),
            Way::Proxy(_) | Way::Script(_) | Way::Catalogue(_) => None,
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
        json!({
            "anchor": anchor,
            "service-desc": [
                { "href": anchor, "type": "application/json" },
                { "href": format!("{origin}{}", self.types), "type": "text/typescript" },
            ],
            "service-doc": [{ "href": PROTOCOL, "type": "text/html" }],
        })
    }
}
