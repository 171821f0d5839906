//! A query route's description, for GET requests: the services and operations that the caller may use, with
//! the limits. Also available as TypeScript types, for programs.
//!
//! Pages are built once for each set of rights and cached for the lifetime of the route, so that repeated
//! requests do not process large OpenAPI documents again.

#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http::header::{
    ACCEPT, CACHE_CONTROL, CONTENT_TYPE, ETAG, HOST, HeaderName, HeaderValue, IF_NONE_MATCH, VARY,
};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body::Body as _;
use openapi::{Document, Open, Operation};
use serde_json::{Map, Value, json};
use services::{Body, Call, Rights, Service};
use sha2::{Digest, Sha256};

use super::{METHODS, Query};
use crate::ask::{FORM, Language};
use crate::config::{CallerLimits, LimitsConfig, Programs};
use crate::limits::{Limit, Limits};
use crate::stored::hex;

/// The path of the types, relative to the route's path.
pub(crate) const TYPES: &str = "types.d.ts";
const TYPESCRIPT: &str = "text/typescript; charset=utf-8";

/// `Accept-Query` (RFC 10008).
const ACCEPT_QUERY: HeaderName = HeaderName::from_static("accept-query");
const NOSNIFF: (HeaderName, HeaderValue) =
    (http::header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));

/// The cached pages, by rights and limits.
#[derive(Default)]
pub(super) struct Pages(Mutex<Vec<(Row, Arc<Page>)>>);

/// The key of a page. Its parts are rows of the config, so there are few different keys.
type Row = (Option<Arc<Rights>>, Option<Arc<CallerLimits>>);

/// A description without the example, which depends on the request's host.
struct Page {
    about: Map<String, Value>,
    program: Option<String>,
    types: Bytes,
    /// The hash of the description and the types.
    hash: [u8; 32],
}

/// A service, with the methods and operations that a caller may use.
struct Visible<'a> {
    service: &'a Service,
    methods: Vec<&'a Method>,
    document: Option<&'a Document>,
    operations: Vec<&'a Operation>,
}

impl Query {
    /// Returns the description, if the request asks for it.
    pub(super) fn describe(&self, request: &Request<Body>, seen: &Call) -> Option<Response<Body>> {
        let is_reading = matches!(*request.method(), Method::GET | Method::HEAD);
        if !is_reading || !is_bodiless(request.body()) {
            return None;
        }
        let below = self.stored_name(request.uri().path());
        let wants_types = match below {
            Some(name) => (name == TYPES && !self.stored.has(name)).then_some(true)?,
            None => prefers_types(request.headers()),
        };
        let page = self.page(request.extensions().get(), seen);
        let (body, content_type) = match wants_types {
            true => (page.types.clone(), TYPESCRIPT),
            false => (self.whole(&page, request, seen), "application/json"),
        };
        let tag = tag(&page, &body, wants_types);
        let mut response = match is_known(request.headers(), &tag) {
            true => not_modified(),
            false => Response::new(services::body::full(body)),
        };
        let headers = response.headers_mut();
        headers.extend(HeaderValue::from_str(&tag).map(|tag| (ETAG, tag)));
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        headers.insert(VARY, HeaderValue::from_static("accept"));
        headers.extend([NOSNIFF]);
        headers.extend(HeaderValue::from_str(&media_types().join(", ")).map(|types| (ACCEPT_QUERY, types)));
        Some(response)
    }

    fn page(&self, limits: Option<&Arc<CallerLimits>>, seen: &Call) -> Arc<Page> {
        let is_same = |(rights, theirs): &Row| {
            same(rights.as_ref(), seen.rights.as_ref()) && same(theirs.as_ref(), limits)
        };
        let mut pages = self.pages.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, page)) = pages.iter().find(|(row, _)| is_same(row)) {
            return Arc::clone(page);
        }
        let page = Arc::new(self.make(limits.map(|limits| &**limits), seen));
        pages.push(((seen.rights.clone(), limits.cloned()), Arc::clone(&page)));
        page
    }

    fn make(&self, limits: Option<&CallerLimits>, seen: &Call) -> Page {
        let visible = self.visible(seen);
        let open: Vec<Open<'_>> = visible.iter().map(Visible::open).collect();
        let limits = limits.map_or(self.config.limits, |caller| self.config.limits.and(caller));
        let about = self.about(&visible, &limits);
        let types = openapi::types(&open);
        let mut hash = Sha256::new();
        hash.update(Value::Object(about.clone()).to_string());
        hash.update(&types);
        Page { about, program: example(&visible), types: types.into(), hash: hash.finalize().into() }
    }

    /// Returns the services that a caller may use on this route, sorted by name.
    fn visible(&self, seen: &Call) -> Vec<Visible<'_>> {
        let mut services: Vec<&Service> = self.access.services.values().map(|service| &**service).collect();
        services.sort_by_key(|service| service.name());
        let visible = services.into_iter().map(|service| {
            let methods = self.access.methods.iter();
            let methods: Vec<_> =
                methods.filter(|method| seen.check(service.name(), method).is_ok()).collect();
            let document = self.documents.get(&**service.name()).map(|document| &**document);
            let is_open = |operation: &&Operation| {
                methods.iter().any(|method| method.as_str() == operation.method)
                    && service.check_path(&operation.called()).is_ok()
            };
            let operations = document.into_iter().flat_map(|document| &document.operations).filter(is_open);
            let operations = operations.collect();
            Visible { service, methods, document, operations }
        });
        visible.filter(|visible| !visible.methods.is_empty()).collect()
    }

    fn about(&self, visible: &[Visible<'_>], limits: &LimitsConfig) -> Map<String, Value> {
        let caps = Limits::caps(limits);
        let caps = Limit::ALL.map(|limit| (limit.word(), caps.value(limit)));
        let header = caps.map(|(word, value)| format!("{word}={value}")).join(", ");
        let mut sizes: Map<String, Value> =
            caps.into_iter().map(|(word, value)| (word.to_owned(), value.into())).collect();
        sizes.insert("program".to_owned(), limits.program.0.into());
        sizes.insert("body".to_owned(), limits.body.0.into());
        let modes: Vec<&str> = self.config.modes.iter().map(|mode| mode.word()).collect();
        let stored = self.stored.listed();
        let stored: Vec<Value> =
            stored.map(|(name, hash)| json!({ "name": name, "hash": hex(hash) })).collect();
        let services = visible.iter().map(|visible| (visible.service.name().to_string(), visible.about()));
        let about = [
            ("path", json!(self.path)),
            ("methods", json!(METHODS.split(", ").collect::<Vec<_>>())),
            ("programs", json!(self.config.programs.word())),
            ("media_types", json!(media_types())),
            ("environments", json!([environments::C.name, environments::JAVASCRIPT.name])),
            ("modes", json!(modes)),
            ("limits", sizes.into()),
            ("orfa_limit", header.into()),
            ("stored", stored.into()),
            ("services", services.collect::<Map<_, _>>().into()),
            ("types", json!(format!("{}/{TYPES}", self.path))),
        ];
        about.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }

    /// Returns the description with an example that can be copied into a shell.
    fn whole(&self, page: &Page, request: &Request<Body>, seen: &Call) -> Bytes {
        let url = format!("{}{}", origin(request, seen), self.path);
        let mut about = page.about.clone();
        let stored = self.stored.listed().map(|(name, _)| name).min();
        let example = match (self.config.programs, stored, &page.program) {
            (Programs::Stored, Some(name), _) => Some(json!({ "curl": format!("curl '{url}/{name}'") })),
            (Programs::Any, _, Some(program)) => Some(json!({
                "program": program,
                "curl": format!("curl '{url}' -H 'content-type: text/javascript' --data-binary '{program}'"),
                "orfa": format!("echo '{program}' > query.js && orfa call query.js --url '{url}'"),
            })),
            (Programs::Signed, _, Some(program)) => Some(json!({
                "program": program,
                "orfa": "orfa query sign --help",
            })),
            _ => None,
        };
        about.extend(example.map(|example| ("example".to_owned(), example)));
        Value::Object(about).to_string().into()
    }
}

impl Visible<'_> {
    fn open(&self) -> Open<'_> {
        Open { name: self.service.name(), document: self.document, operations: self.operations.clone() }
    }

    fn about(&self) -> Value {
        let methods: Vec<&str> = self.methods.iter().map(|method| method.as_str()).collect();
        let mut about = json!({ "methods": methods });
        if let (Some(document), Value::Object(about)) = (self.document, &mut about) {
            let operations: Vec<Value> = self.operations.iter().map(|operation| told(operation)).collect();
            about.insert("title".to_owned(), document.title.as_str().into());
            about.insert("operations".to_owned(), operations.into());
        }
        about
    }
}

fn told(operation: &Operation) -> Value {
    let parameters = operation.parameters.iter().map(|parameter| {
        let mut told = json!({ "name": parameter.name, "in": parameter.place.name() });
        if parameter.is_required {
            told["required"] = true.into();
        }
        if !parameter.description.is_empty() {
            told["description"] = parameter.description.as_str().into();
        }
        told
    });
    let parameters: Vec<Value> = parameters.collect();
    let mut told =
        json!({ "method": operation.method, "path": operation.path, "summary": operation.summary });
    if operation.is_deprecated {
        told["deprecated"] = true.into();
    }
    told["parameters"] = parameters.into();
    told
}

/// Returns a program that calls the first operation without required parameters. Safe within a shell's single
/// quotes.
fn example(visible: &[Visible<'_>]) -> Option<String> {
    let asks_nothing = |operation: &&&Operation| {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'/' | b'-' | b'_' | b'.');
        operation.method == "GET"
            && operation.path.bytes().all(plain)
            && !operation.parameters.iter().any(|parameter| parameter.is_required)
    };
    let found = visible.iter().find_map(|visible| {
        let operation = visible.operations.iter().find(asks_nothing)?;
        Some((visible.service.name(), &*operation.path))
    });
    let gets = |visible: &&Visible<'_>| visible.methods.contains(&&Method::GET);
    let any = || visible.iter().find(gets).map(|visible| (visible.service.name(), "/"));
    let (name, path) = found.or_else(any)?;
    Some(format!("export default (input, services) => services[\"{name}\"].get(\"{path}\")"))
}

/// Returns the media types of programs.
fn media_types() -> [&'static str; 4] {
    let [wasm, javascript, typescript] =
        [Language::Wasm, Language::Javascript, Language::Typescript].map(Language::media_type);
    [wasm, javascript, typescript, FORM]
}

/// Returns the origin as the client sees it, or a placeholder if its host is not safe within shell quotes.
fn origin(request: &Request<Body>, seen: &Call) -> String {
    let host = || request.headers().get(HOST).and_then(|host| host.to_str().ok());
    let host = request.uri().authority().map(http::uri::Authority::as_str).or_else(host);
    let plain =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_' | b':' | b'[' | b']');
    let host = host.filter(|host| host.bytes().all(plain)).unwrap_or("localhost");
    let is_secure = seen.arrival.as_ref().is_some_and(|arrival| arrival.is_secure);
    format!("{}://{host}", if is_secure { "https" } else { "http" })
}

fn is_bodiless(body: &Body) -> bool {
    body.is_end_stream() || body.size_hint().upper() == Some(0)
}

fn prefers_types(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    accepted.flat_map(|value| value.split(',')).any(|media| {
        let media = media.split(';').next().unwrap_or_default().trim();
        matches!(media, "text/typescript" | "application/typescript")
    })
}

fn same<T>(one: Option<&Arc<T>>, other: Option<&Arc<T>>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => Arc::ptr_eq(one, other),
        (None, None) => true,
        _ => false,
    }
}

/// Returns the entity tag of a page. The types do not depend on the host.
fn tag(page: &Page, body: &Bytes, is_types: bool) -> String {
    let mut hash = Sha256::new();
    hash.update(page.hash);
    hash.update(if is_types { &b"types"[..] } else { body });
    let digest: [u8; 32] = hash.finalize().into();
    format!("\"{}\"", &hex(&digest)[..32])
}

/// Whether the client has this version (RFC 9110, section 13.1.2).
fn is_known(headers: &HeaderMap, tag: &str) -> bool {
    let known = headers.get_all(IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
    known
        .flat_map(|value| value.split(','))
        .map(str::trim)
        .any(|known| known == "*" || known.strip_prefix("W/").unwrap_or(known) == tag)
}

fn not_modified() -> Response<Body> {
    let mut response = Response::new(services::body::empty());
    *response.status_mut() = StatusCode::NOT_MODIFIED;
    response
}
