//! A query route's description, for GET requests: the services and operations that the caller may use, with
//! the limits. Also available as TypeScript types, for programs.
//!
//! Pages are built once for each set of rights, in the pool, and cached for the lifetime of the route, so
//! that repeated requests do not process large OpenAPI documents again.

#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use handler::CallerLimits;
use http::header::{
    ACCEPT, CACHE_CONTROL, CONTENT_TYPE, ETAG, HOST, HeaderName, HeaderValue, IF_NONE_MATCH, VARY,
};
use http::request::Parts;
use http::{HeaderMap, Method, Response, StatusCode};
use http_body::Body as _;
use offload::{JobContext, JobRequest};
use openapi::{CallableService, OpenApiDocument, OpenApiOperation};
use serde_json::{Map, Value, json};
use services::headers::list_members;
use services::{CallRights, RequestCall, StreamedServiceBody, ToProblem, UpstreamService};
use sha2::{Digest, Sha256};

use super::stored::StoredPrograms;
use super::{METHODS, QueryRoute, RouteDocuments, within_deadline};
use crate::config::{AllowedPrograms, QueryConfig, QueryLimitsConfig};
use crate::limits::{LimitKind, RunLimits};
use crate::program::{CallPermissions, ProgramHash, ProgramLanguage, to_hex};
use crate::protocol::FORM_MEDIA_TYPE;

/// The path of the types, relative to the route's path.
pub(crate) const TYPES: &str = "types.d.ts";
const TYPESCRIPT: &str = "text/typescript; charset=utf-8";

/// `Accept-Query` (RFC 10008).
const ACCEPT_QUERY: HeaderName = HeaderName::from_static("accept-query");
const NOSNIFF: (HeaderName, HeaderValue) =
    (http::header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));

/// The pages of a route, by rights and limits.
pub(super) struct DescriptionPages {
    route: Arc<DescribedRoute>,
    cache: Mutex<Vec<(PageKey, Arc<DescriptionPage>)>>,
}

/// The parts of a route that its pages are made of.
struct DescribedRoute {
    path: Box<str>,
    config: QueryConfig,
    access: Arc<CallPermissions>,
    documents: RouteDocuments,
    /// The names and hashes of the stored programs, sorted by name.
    stored: Vec<(String, ProgramHash)>,
}

/// The key of a page. Its parts are rows of the config, so there are few different keys.
type PageKey = (Option<Arc<CallRights>>, Option<Arc<CallerLimits>>);

/// A description without the example, which depends on the request's host.
struct DescriptionPage {
    /// A JSON object.
    about: String,
    program: Option<String>,
    types: Bytes,
    /// The hash of the description and the types.
    hash: [u8; 32],
}

/// A service, with the methods and operations that a caller may use.
struct VisibleService<'a> {
    service: &'a UpstreamService,
    methods: Vec<&'a Method>,
    document: Option<&'a OpenApiDocument>,
    operations: Vec<&'a OpenApiOperation>,
}

impl DescriptionPages {
    pub(super) fn new(
        path: Box<str>,
        config: &QueryConfig,
        access: &Arc<CallPermissions>,
        documents: &RouteDocuments,
        stored: &StoredPrograms,
    ) -> Self {
        let stored = stored.all_versions().map(|(name, hash)| (name.to_owned(), *hash)).collect();
        let (config, access, documents) = (config.clone(), Arc::clone(access), documents.clone());
        let route = Arc::new(DescribedRoute { path, config, access, documents, stored });
        Self { route, cache: Mutex::default() }
    }

    fn get(&self, row: &PageKey) -> Option<Arc<DescriptionPage>> {
        let made = self.lock_cache();
        made.iter().find(|(known, _)| is_same_row(known, row)).map(|(_, page)| Arc::clone(page))
    }

    fn insert(&self, row: PageKey, page: &Arc<DescriptionPage>) {
        let mut made = self.lock_cache();
        // Concurrent requests may have made the same page.
        if !made.iter().any(|(known, _)| is_same_row(known, &row)) {
            made.push((row, Arc::clone(page)));
        }
    }

    fn lock_cache(&self) -> MutexGuard<'_, Vec<(PageKey, Arc<DescriptionPage>)>> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_same_row((rights, limits): &PageKey, (other_rights, other_limits): &PageKey) -> bool {
    is_same_arc(rights.as_ref(), other_rights.as_ref()) && is_same_arc(limits.as_ref(), other_limits.as_ref())
}

impl QueryRoute {
    /// Whether a request asks for the description, and if so, whether for the types.
    pub(super) fn wants_description(&self, head: &Parts, body: &StreamedServiceBody) -> Option<bool> {
        let is_reading = matches!(head.method, Method::GET | Method::HEAD);
        if !is_reading || !is_bodiless(body) {
            return None;
        }
        match self.stored_name(head.uri.path()) {
            Some(name) => (name == TYPES && !self.stored.contains(name)).then_some(true),
            None => Some(prefers_types(&head.headers)),
        }
    }

    /// Returns the description or the types.
    pub(super) async fn describe(
        &self,
        head: &Parts,
        wants_types: bool,
        caller_limits: Option<Arc<CallerLimits>>,
        call: &RequestCall,
    ) -> Result<Response<StreamedServiceBody>, Box<dyn ToProblem>> {
        let page = self.get_page((call.rights.clone(), caller_limits), call).await?;
        let (body, content_type) = match wants_types {
            true => (page.types.clone(), TYPESCRIPT),
            false => (self.full_description(&page, head, call), "application/json"),
        };
        // The types do not depend on the host.
        let differs = match wants_types {
            true => &b"types"[..],
            false => body.get(page.about.len()..).unwrap_or_default(),
        };
        let tag = entity_tag(&page, differs);
        let mut response = match matches_etag(&head.headers, &tag) {
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
        Ok(response)
    }

    /// Returns the page of a row. The first request of each row has it made in the pool.
    async fn get_page(
        &self,
        row: PageKey,
        call: &RequestCall,
    ) -> Result<Arc<DescriptionPage>, Box<dyn ToProblem>> {
        if let Some(page) = self.pages.get(&row) {
            return Ok(page);
        }
        let caps = RunLimits::from_config(&self.config.limits);
        let request = JobRequest {
            kind: "describe",
            payer: call.quota_key(),
            estimate: Duration::ZERO,
            deadline: call.budget.started + caps.millis(LimitKind::Deadline),
        };
        let (route, limits, request_call) = (Arc::clone(&self.pages.route), row.1.clone(), call.clone());
        let make = move |_: &JobContext| Arc::new(route.build_page(limits.as_deref(), &request_call));
        let description_page = self.runtime.offload().run_paced(request, make).await;
        let page = within_deadline(Some(description_page.map_err(Into::into)), &caps)?;
        self.pages.insert(row, &page);
        Ok(page)
    }

    /// Returns the description with an example that can be copied into a shell.
    fn full_description(&self, page: &DescriptionPage, head: &Parts, call: &RequestCall) -> Bytes {
        let route = &*self.pages.route;
        let url = format!("{}{}", client_origin(head, call), route.path);
        let stored = route.stored.first().map(|(name, _)| name);
        let example = match (route.config.programs, stored, &page.program) {
            (AllowedPrograms::Stored, Some(name), _) => json!({ "curl": format!("curl '{url}/{name}'") }),
            (AllowedPrograms::Any, _, Some(program)) => json!({
                "program": program,
                "curl": format!("curl '{url}' -H 'content-type: text/javascript' --data-binary '{program}'"),
                "orfa": format!("echo '{program}' > query.js && orfa call query.js --url '{url}'"),
            }),
            (AllowedPrograms::Signed, _, Some(program)) => json!({
                "program": program,
                "orfa": "orfa query sign --help",
            }),
            _ => return page.about.clone().into(),
        };
        let about = page.about.strip_suffix('}').unwrap_or(&page.about);
        format!("{about},\"example\":{example}}}").into()
    }
}

impl DescribedRoute {
    fn build_page(&self, limits: Option<&CallerLimits>, call: &RequestCall) -> DescriptionPage {
        let visible = self.visible_services(call);
        let services: Vec<CallableService<'_>> = visible.iter().map(VisibleService::to_openapi).collect();
        let limits =
            limits.map_or(self.config.limits, |caller| self.config.limits.with_caller_limits(caller));
        let about = Value::Object(self.build_about(&visible, &limits)).to_string();
        let types = openapi::generate_types(&services);
        let hash = Sha256::new().chain_update(&about).chain_update(&types).finalize().into();
        DescriptionPage { about, program: example_program(&visible), types: types.into(), hash }
    }

    /// Returns the services that a caller may use on this route, sorted by name.
    fn visible_services(&self, call: &RequestCall) -> Vec<VisibleService<'_>> {
        let mut services: Vec<&UpstreamService> =
            self.access.services.values().map(|service| &**service).collect();
        services.sort_by_key(|service| service.name());
        let visible = services.into_iter().map(|service| {
            let methods = self.access.methods.iter();
            let methods: Vec<_> =
                methods.filter(|method| call.check_rights(service.name(), method).is_ok()).collect();
            let document = self.documents.get(&**service.name()).map(|document| &**document);
            let is_open = |operation: &&OpenApiOperation| {
                methods.iter().any(|method| method.as_str() == operation.method)
                    && service.check_path(&operation.sample_path()).is_ok()
            };
            let operations = document.into_iter().flat_map(|document| &document.operations).filter(is_open);
            let operations = operations.collect();
            VisibleService { service, methods, document, operations }
        });
        visible.filter(|visible| !visible.methods.is_empty()).collect()
    }

    fn build_about(&self, visible: &[VisibleService<'_>], limits: &QueryLimitsConfig) -> Map<String, Value> {
        let caps = RunLimits::from_config(limits);
        let caps = LimitKind::ALL.map(|limit| (limit.word(), caps.value(limit)));
        let header = caps.map(|(word, value)| format!("{word}={value}")).join(", ");
        let mut sizes: Map<String, Value> =
            caps.into_iter().map(|(word, value)| (word.to_owned(), value.into())).collect();
        sizes.insert("program".to_owned(), limits.program_bytes.0.into());
        sizes.insert("body".to_owned(), limits.request_body.0.into());
        let modes: Vec<&str> = self.config.modes.iter().map(|mode| mode.word()).collect();
        let stored = self.stored.iter();
        let stored: Vec<Value> =
            stored.map(|(name, hash)| json!({ "name": name, "hash": to_hex(hash) })).collect();
        let services =
            visible.iter().map(|visible| (visible.service.name().to_string(), visible.build_about()));
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
}

impl VisibleService<'_> {
    fn to_openapi(&self) -> CallableService<'_> {
        CallableService {
            name: self.service.name(),
            document: self.document,
            operations: self.operations.clone(),
        }
    }

    fn build_about(&self) -> Value {
        let methods: Vec<&str> = self.methods.iter().map(|method| method.as_str()).collect();
        let mut about = json!({ "methods": methods });
        if let (Some(document), Value::Object(about)) = (self.document, &mut about) {
            let operations: Vec<Value> =
                self.operations.iter().map(|operation| operation_to_json(operation)).collect();
            about.insert("title".to_owned(), document.title.as_str().into());
            about.insert("operations".to_owned(), operations.into());
        }
        about
    }
}

fn operation_to_json(operation: &OpenApiOperation) -> Value {
    let parameters = operation.parameters.iter().map(|parameter| {
        let mut value = json!({ "name": parameter.name, "in": parameter.place.name() });
        if parameter.is_required {
            value["required"] = true.into();
        }
        if !parameter.description.is_empty() {
            value["description"] = parameter.description.as_str().into();
        }
        value
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
fn example_program(visible: &[VisibleService<'_>]) -> Option<String> {
    let asks_nothing = |operation: &&&OpenApiOperation| {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'/' | b'-' | b'_' | b'.');
        operation.method == "GET"
            && operation.path.bytes().all(plain)
            && !operation.parameters.iter().any(|parameter| parameter.is_required)
    };
    let found = visible.iter().find_map(|visible| {
        let operation = visible.operations.iter().find(asks_nothing)?;
        Some((visible.service.name(), &*operation.path))
    });
    let gets = |visible: &&VisibleService<'_>| visible.methods.contains(&&Method::GET);
    let any = || visible.iter().find(gets).map(|visible| (visible.service.name(), "/"));
    let (name, path) = found.or_else(any)?;
    Some(format!("export default (input, services) => services[\"{name}\"].get(\"{path}\")"))
}

/// Returns the media types of programs.
fn media_types() -> [&'static str; 4] {
    let [wasm, javascript, typescript] =
        [ProgramLanguage::Wasm, ProgramLanguage::Javascript, ProgramLanguage::Typescript]
            .map(ProgramLanguage::media_type);
    [wasm, javascript, typescript, FORM_MEDIA_TYPE]
}

/// Returns the origin as the client sees it, or a placeholder if its host is not safe within shell quotes.
fn client_origin(head: &Parts, call: &RequestCall) -> String {
    let host = || head.headers.get(HOST).and_then(|host| host.to_str().ok());
    let host = head.uri.authority().map(http::uri::Authority::as_str).or_else(host);
    let plain =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_' | b':' | b'[' | b']');
    let host = host.filter(|host| host.bytes().all(plain)).unwrap_or("localhost");
    let is_secure = call.connection_details.as_ref().is_some_and(|arrival| arrival.is_secure);
    format!("{}://{host}", if is_secure { "https" } else { "http" })
}

fn is_bodiless(body: &StreamedServiceBody) -> bool {
    body.is_end_stream() || body.size_hint().upper() == Some(0)
}

fn prefers_types(headers: &HeaderMap) -> bool {
    list_members(headers, &ACCEPT).any(|media| {
        let media = media.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
        matches!(media, b"text/typescript" | b"application/typescript")
    })
}

fn is_same_arc<T>(one: Option<&Arc<T>>, other: Option<&Arc<T>>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => Arc::ptr_eq(one, other),
        (None, None) => true,
        _ => false,
    }
}

/// Returns the entity tag of a page with the parts that differ between its responses.
fn entity_tag(page: &DescriptionPage, differs: &[u8]) -> String {
    let digest = Sha256::new().chain_update(page.hash).chain_update(differs).finalize().into();
    format!("\"{}\"", &to_hex(&digest)[..32])
}

/// Whether the client has this version (RFC 9110, section 13.1.2).
fn matches_etag(headers: &HeaderMap, tag: &str) -> bool {
    let is_it = |known: &[u8]| known == b"*" || known.strip_prefix(b"W/").unwrap_or(known) == tag.as_bytes();
    list_members(headers, &IF_NONE_MATCH).any(is_it)
}

fn not_modified() -> Response<StreamedServiceBody> {
    let mut response = Response::new(services::body::empty());
    *response.status_mut() = StatusCode::NOT_MODIFIED;
    response
}
