//! Discovery for clients that know only the host. `/.well-known/api-catalog` (RFC 9727) lists the query
//! routes, the S services and GraphQL. `/openapi.json` is the OpenAPI document of the aggregates, and the
//! catalogue links to it.
//!
//! Each document exists if it has entries and the config has no route of its own at that path. Routes that a
//! caller may not use are left out.

use std::sync::Arc;

use bytes::Bytes;
use handler::{HandlerRequest, HandlerResult};
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue, LINK};
use http::{Method, Response};
use serde_json::{Value, json};

use super::RouteHandler;
use crate::http_semantics::cors;
use crate::http_semantics::request_refusal::RequestRefusal;

/// The path of the catalogue.
const CATALOG: &str = "/.well-known/api-catalog";
/// The path of the OpenAPI document.
const OPENAPI: &str = "/openapi.json";
/// The methods that the catalogue serves.
pub(crate) const METHODS: &str = "GET, HEAD";

/// The media type of RFC 9264, with the profile of RFC 9727.
const LINKSET: &str = "application/linkset+json; profile=\"https://www.rfc-editor.org/info/rfc9727\"";
/// The `Link` header that describes the catalogue itself, mainly for HEAD requests.
const SELF_LINK: &str = "</.well-known/api-catalog>; rel=\"api-catalog\"; type=\"application/linkset+json\"";
/// The link to the protocol's documentation.
const PROTOCOL: &str = "https://github.com/orfa-gateway/orfa/blob/main/docs/query.md";

/// A character that stands for the gateway's origin in the texts of entries. It is for private use.
const ORIGIN: char = '\u{e000}';

/// The self-describing routes of a gateway, rendered as one of the two documents.
pub(crate) struct ApiCatalogue {
    entries: Arc<[CatalogueEntry]>,
    is_openapi: bool,
}

/// A route in a document. Its text is written once, since a document may be long and is requested often.
struct CatalogueEntry {
    /// The route's path as written in the config.
    route: Box<str>,
    text: EntryText,
}

/// The part of a document that describes a route.
enum EntryText {
    /// A link context of the catalogue, with [`ORIGIN`] for the origin, as a JSON text.
    Links(Box<str>),
    /// An item of the OpenAPI document's `paths`, as an element of a JSON object after others: `,"/path":{}`.
    Operation(Bytes),
}

impl ApiCatalogue {
    /// Returns the documents that have entries for these routes, each a path and its handler.
    pub(crate) fn for_routes<'a>(routes: impl Iterator<Item = (&'a str, &'a RouteHandler)>) -> Vec<Self> {
        let entries = routes.filter_map(|(path, handler)| CatalogueEntry::from_route(path, handler));
        let entries: Arc<[CatalogueEntry]> = entries.collect();
        let catalogue = |is_openapi| Self { entries: Arc::clone(&entries), is_openapi };
        let has_aggregates = entries.iter().any(|entry| matches!(entry.text, EntryText::Operation(_)));
        let catalog = (!entries.is_empty()).then(|| catalogue(false));
        catalog.into_iter().chain(has_aggregates.then(|| catalogue(true))).collect()
    }

    /// The path of this document.
    pub(crate) fn path(&self) -> &'static str {
        if self.is_openapi { OPENAPI } else { CATALOG }
    }

    /// Returns for each entry whether `fits` accepts its route.
    pub(crate) fn visible_entries(&self, fits: impl Fn(&str) -> bool) -> Arc<[bool]> {
        self.entries.iter().map(|entry| fits(&entry.route)).collect()
    }

    /// Answers with the entries that the caller may see.
    ///
    /// # Errors
    /// For a method other than GET and HEAD.
    pub(crate) fn handle(&self, request: &HandlerRequest) -> HandlerResult {
        let HandlerRequest { head, call, visible_entries, .. } = request;
        if !matches!(head.method, Method::GET | Method::HEAD) {
            let (method, allowed) = (head.method.clone(), METHODS);
            return Err(RequestRefusal::MethodNotAllowed { method, allowed }.into());
        }
        let is_secure = call.connection_details.as_ref().is_some_and(|arrival| arrival.is_secure);
        let scheme = if is_secure { "https" } else { "http" };
        let origin =
            format!("{scheme}://{}", cors::target_host(&head.uri, &head.headers).unwrap_or("localhost"));
        let entries = visible_entries.iter().flat_map(|visible| self.entries.iter().zip(&**visible));
        let texts = entries.filter_map(|(entry, is_readable)| is_readable.then_some(&entry.text));
        let (kind, pieces) = match self.is_openapi {
            true => ("application/json", openapi(texts, &origin)),
            false => (LINKSET, vec![linkset(texts, &origin).into()]),
        };
        let length = pieces.iter().map(Bytes::len).sum();
        let mut response = Response::new(services::body::from_pieces(length, pieces.into_iter()));
        let headers = [(CONTENT_TYPE, kind), (CACHE_CONTROL, "no-cache")];
        let itself = (!self.is_openapi).then_some((LINK, SELF_LINK));
        let headers = headers.into_iter().chain(itself);
        let headers = headers.map(|(name, value): (HeaderName, _)| (name, HeaderValue::from_static(value)));
        response.headers_mut().extend(headers);
        Ok(response.into())
    }
}

impl CatalogueEntry {
    fn from_route(path: &str, handler: &RouteHandler) -> Option<Self> {
        let anchor = format!("{ORIGIN}{}", path.trim_end_matches('*'));
        let text = match handler {
            RouteHandler::Query(query) => EntryText::from_link_context(&json!({
                "anchor": anchor,
                "service-desc": [
                    { "href": anchor, "type": "application/json" },
                    { "href": format!("{ORIGIN}{}", query.types_path()), "type": "text/typescript" },
                ],
                "service-doc": [{ "href": PROTOCOL, "type": "text/html" }],
            })),
            RouteHandler::Script(script) => {
                let item = |(path, methods): (String, String)| {
                    // Extension attributes are lists of strings (RFC 9264, section 4.2.4.3).
                    let methods: Vec<&str> = methods.split(", ").collect();
                    json!({ "href": format!("{ORIGIN}{path}"), "methods": methods })
                };
                let items: Vec<Value> = script.resources().map(item).collect();
                EntryText::from_link_context(&json!({ "anchor": anchor, "item": items }))
            }
            // The endpoint serves its own schema by introspection.
            RouteHandler::Graphql(_) => EntryText::from_link_context(&json!({
                "anchor": anchor,
                "service-desc": [{ "href": anchor, "type": "application/graphql-response+json" }],
                "service-doc": [{ "href": anchor, "type": "text/html" }],
            })),
            RouteHandler::Aggregate(aggregate) => {
                let method = aggregate.methods().split(',').next().unwrap_or_default().to_ascii_lowercase();
                let item = json!({ method: aggregate.operation() });
                EntryText::Operation(format!(",{}:{item}", Value::from(path)).into())
            }
            RouteHandler::Proxy(_) | RouteHandler::Catalogue(_) => return None,
        };
        Some(Self { route: path.into(), text })
    }
}

impl EntryText {
    fn from_link_context(context: &Value) -> Self {
        Self::Links(context.to_string().into())
    }
}

/// Returns the catalogue. The aggregates share a link context.
fn linkset<'a>(texts: impl Iterator<Item = &'a EntryText>, origin: &str) -> String {
    let (mut links, mut has_aggregates) = (Vec::new(), false);
    for text in texts {
        match text {
            EntryText::Links(text) => links.push(&**text),
            EntryText::Operation(_) => has_aggregates = true,
        }
    }
    let description = json!({ "href": format!("{ORIGIN}{OPENAPI}"), "type": "application/json" });
    let aggregates = json!({ "anchor": format!("{ORIGIN}/"), "service-desc": [description] }).to_string();
    links.extend(has_aggregates.then_some(&*aggregates));
    let document = format!("{{\"linkset\":[{}]}}", links.join(","));
    document.replace(ORIGIN, &escape_json(origin))
}

/// Returns the OpenAPI document of the aggregates, in pieces. Those of the entries are not copied.
fn openapi<'a>(texts: impl Iterator<Item = &'a EntryText>, origin: &str) -> Vec<Bytes> {
    let head = format!(
        "{{\"openapi\":\"3.1.0\",\"info\":{{\"title\":\"The aggregates of this gateway\",\"version\":\"1\"}},\
         \"servers\":[{{\"url\":\"{}\"}}],\"paths\":{{",
        escape_json(origin)
    );
    let mut pieces = vec![Bytes::from(head)];
    for text in texts {
        if let EntryText::Operation(text) = text {
            let comma = usize::from(pieces.len() == 1);
            pieces.push(text.slice(comma..));
        }
    }
    pieces.push(Bytes::from_static(b"}}"));
    pieces
}

/// Returns a text as the content of a JSON string.
fn escape_json(text: &str) -> String {
    let quoted = Value::from(text).to_string();
    quoted.get(1..quoted.len() - 1).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ORIGINS: [&str; 2] = ["https://a.example", "http://b\"\\"];

    fn parse_json(text: &[u8]) -> Value {
        serde_json::from_slice(text).unwrap()
    }

    #[test]
    fn writes_the_origin_into_the_links() {
        let links =
            EntryText::from_link_context(&json!({ "anchor": format!("{ORIGIN}/query"), "item": [ORIGIN] }));
        let operation = EntryText::Operation(Bytes::from_static(b",\"/a\":{}"));
        for origin in ORIGINS {
            let anchor = |path: &str| format!("{origin}{path}");
            let description = json!({ "href": anchor("/openapi.json"), "type": "application/json" });
            let value = json!({ "anchor": anchor("/query"), "item": [origin] });
            let aggregates = json!({ "anchor": anchor("/"), "service-desc": [description] });
            let both = linkset([&links, &operation].into_iter(), origin);
            assert_eq!(parse_json(both.as_bytes()), json!({ "linkset": [value, aggregates] }));
            let one = linkset([&links].into_iter(), origin);
            assert_eq!(parse_json(one.as_bytes()), json!({ "linkset": [value] }));
        }
        assert_eq!(linkset(std::iter::empty(), "http://a"), "{\"linkset\":[]}");
    }

    #[test]
    fn the_openapi_document_shares_the_texts_of_the_operations() {
        let texts = ["/a", "/b"].map(|path| Bytes::from(format!(",\"{path}\":{{\"get\":{{}}}}")));
        let entries = texts.clone().map(EntryText::Operation);
        for origin in ORIGINS {
            let pieces = openapi(entries.iter(), origin);
            let document = parse_json(&pieces.concat());
            assert_eq!(document["servers"][0]["url"], origin);
            assert_eq!(document["paths"], json!({ "/a": { "get": {} }, "/b": { "get": {} } }));
            let shared = pieces.iter().filter(|piece| texts.iter().any(|text| is_part(piece, text)));
            assert_eq!(shared.count(), 2, "the operations are not written again");
        }
        assert_eq!(parse_json(&openapi(std::iter::empty(), "http://a").concat())["paths"], json!({}));
    }

    fn is_part(piece: &[u8], text: &[u8]) -> bool {
        text.as_ptr_range().contains(&piece.as_ptr())
    }
}
