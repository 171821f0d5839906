//! Cross-origin rules: the origin of a request, and the response headers for browsers.
//!
//! A request without an `Origin` doesn't come from a page, unless the browser reports one in other fields.
//! The gateway's own pages are those whose origin names the host that the request was sent to. Over TLS,
//! including TLS that a trusted proxy terminates, their scheme is `https`. In clear text `https` is accepted
//! too, since a proxy that terminates TLS need not be trusted. All other origins have to be allowed by
//! `cors.origins`.
//!
//! A page whose own name was made to resolve to the gateway (DNS rebinding) sends requests to that name too,
//! but counts as cross-origin: the gateway's names are those in its config (`own_hosts.rs`).

use std::sync::Arc;

use http::header::{self, HeaderName};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri};
use services::headers::{field_values, list_members};
use services::{StreamedServiceBody, body};

use super::client::ClientInfo;
use super::encode::add_vary;
use super::own_hosts::OwnHosts;
use super::request_refusal::RequestRefusal;
use crate::config::CorsConfig;

/// Fetch metadata headers (W3C): the relation to the requesting page, the mode and the destination.
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const SEC_FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");
const SEC_FETCH_DEST: HeaderName = HeaderName::from_static("sec-fetch-dest");

/// The headers that pages of allowed origins may send, besides all that begin with `ORFA-`.
const ALLOWED_HEADERS: [&str; 6] =
    ["content-type", "authorization", "prefer", "orfa-input", "orfa-limit", "orfa-debug"];
/// The headers that pages of allowed origins may read.
const EXPOSED_HEADERS: [&str; 4] = ["orfa-cache", "orfa-parts", "server-timing", "retry-after"];
/// The prefix of the gateway's own headers.
const GATEWAY_HEADER_PREFIX: &str = "orfa-";

/// The origins that a route allows.
#[derive(Clone, Debug, Default)]
pub(crate) struct AllowedOrigins(Arc<CorsPolicy>);

#[derive(Debug, Default)]
struct CorsPolicy {
    /// The hosts of the gateway itself.
    own_hosts: Arc<OwnHosts>,
    allows_any: bool,
    /// Whether pages without an origin of their own (`null`) are allowed: sandboxed frames, local files.
    allows_opaque: bool,
    exact: Vec<String>,
    /// Scheme and host of the origins that are allowed with every port.
    any_port: Vec<String>,
    /// Whether listed origins may send credentials.
    credentials: bool,
    max_age: Option<HeaderValue>,
    /// Header names, separated by commas.
    headers: String,
    exposed_headers: Option<HeaderValue>,
}

/// The kind of a request's origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OriginKind {
    /// Not from a page.
    NoOrigin,
    /// From a page of the gateway itself.
    SameOrigin,
    /// From an origin that the config lists, with credentials.
    Listed,
    /// From an origin that only `*` or `null` allows, without credentials.
    Wildcard,
    /// From an origin that is not allowed.
    Disallowed,
}

impl AllowedOrigins {
    /// Creates the rules of a config for a gateway with these hosts. Without a config no other origin is
    /// allowed.
    pub(crate) fn new(config: Option<&CorsConfig>, hosts: &Arc<OwnHosts>) -> Self {
        let mut allowed = CorsPolicy { own_hosts: Arc::clone(hosts), ..CorsPolicy::default() };
        let Some(config) = config else { return Self(Arc::new(allowed)) };
        allowed.credentials = config.credentials;
        allowed.max_age = config.max_age.map(|age| age.0.as_secs().into());
        allowed.headers = join_header_names(&ALLOWED_HEADERS, &config.headers);
        allowed.exposed_headers =
            HeaderValue::try_from(join_header_names(&EXPOSED_HEADERS, &config.expose)).ok();
        for origin in &config.origins {
            match origin.strip_suffix(":*") {
                _ if origin == "*" => allowed.allows_any = true,
                _ if origin == "null" => allowed.allows_opaque = true,
                Some(host) => allowed.any_port.push(host.to_owned()),
                None => allowed.exact.push(without_default_port(origin).to_owned()),
            }
        }
        Self(Arc::new(allowed))
    }

    /// Whether no origin is allowed. Only otherwise does the gateway set cross-origin headers itself.
    pub(crate) fn is_empty(&self) -> bool {
        let CorsPolicy { allows_any: everyone, allows_opaque: opaque, exact, any_port, .. } = &*self.0;
        !everyone && !opaque && exact.is_empty() && any_port.is_empty()
    }

    /// Classifies the request's origin by the rules of this route.
    pub(crate) fn classify<B>(&self, request: &Request<B>, client: &ClientInfo) -> OriginKind {
        let mut origins = request.headers().get_all(header::ORIGIN).iter();
        let Some(origin) = origins.next() else { return self.classify_without_origin(request, client) };
        let (Ok(origin), None) = (origin.to_str(), origins.next()) else { return OriginKind::Disallowed };
        let CorsPolicy { allows_any: everyone, allows_opaque: opaque, credentials, .. } = *self.0;
        let is_listed = self.is_listed(origin);
        let hosts = &self.0.own_hosts;
        let is_own = |host| is_same_host(origin, host, client.is_secure()) && hosts.contains(host, client);
        if host_of(request).is_some_and(is_own) {
            OriginKind::SameOrigin
        } else if is_listed && credentials {
            OriginKind::Listed
        } else if is_listed || everyone || (opaque && origin == "null") {
            OriginKind::Wildcard
        } else {
            OriginKind::Disallowed
        }
    }

    /// Classifies a request without `Origin`. Browsers omit it if a page only embeds the resource, and report
    /// the page's relation in `Sec-Fetch-Site`. They also omit it if a page reads from its own host, which is
    /// the gateway only by a name in its config.
    fn classify_without_origin<B>(&self, request: &Request<B>, client: &ClientInfo) -> OriginKind {
        let is_own = || host_of(request).is_some_and(|host| self.0.own_hosts.contains(host, client));
        match field_values(request.headers(), &SEC_FETCH_SITE).next().map(HeaderValue::as_bytes) {
            Some(b"cross-site" | b"same-site") => OriginKind::Disallowed,
            Some(b"same-origin") if is_made_by_page(request.headers()) && !is_own() => OriginKind::Disallowed,
            _ => OriginKind::NoOrigin,
        }
    }

    fn is_listed(&self, origin: &str) -> bool {
        let bare =
            origin.rsplit_once(':').filter(|(_, port)| port.bytes().all(|digit| digit.is_ascii_digit()));
        let bare = bare.map_or(origin, |(bare, _)| bare);
        let whole = without_default_port(origin);
        self.0.exact.iter().any(|allowed| allowed.eq_ignore_ascii_case(whole))
            || self.0.any_port.iter().any(|allowed| allowed.eq_ignore_ascii_case(bare))
    }

    /// Answers a browser's preflight on a route that serves these methods.
    pub(crate) fn preflight<B>(
        &self,
        request: &Request<B>,
        methods: &'static str,
    ) -> Response<StreamedServiceBody> {
        let mut response = Response::new(body::empty());
        *response.status_mut() = StatusCode::NO_CONTENT;
        let headers = response.headers_mut();
        headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static(methods));
        if let Ok(allowed) = HeaderValue::try_from(self.allowed_headers(request.headers())) {
            headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, allowed);
        }
        if let Some(age) = &self.0.max_age {
            headers.insert(header::ACCESS_CONTROL_MAX_AGE, age.clone());
        }
        response
    }

    /// The headers that a page may send: those that are always allowed, and the gateway's own among the first
    /// requested ones.
    fn allowed_headers(&self, asked: &HeaderMap) -> String {
        let asked = list_members(asked, &header::ACCESS_CONTROL_REQUEST_HEADERS);
        let asked = asked.filter_map(|name| HeaderName::from_bytes(name).ok());
        let ours =
            asked.map(|name| name.as_str().to_owned()).filter(|name| name.starts_with(GATEWAY_HEADER_PREFIX));
        let always: Vec<&str> = self.0.headers.split(", ").collect();
        join_header_names(&always, &ours.collect::<Vec<_>>())
    }

    /// Sets the headers that let the page read the response, if it may. The service's own cross-origin
    /// headers are replaced on a route with rules.
    pub(crate) fn set_response_headers(
        &self,
        from: OriginKind,
        origin: Option<&HeaderValue>,
        headers: &mut HeaderMap,
    ) {
        if self.is_empty() {
            return;
        }
        headers.remove(header::ACCESS_CONTROL_ALLOW_ORIGIN);
        headers.remove(header::ACCESS_CONTROL_ALLOW_CREDENTIALS);
        add_vary(headers, "origin");
        let (OriginKind::Listed | OriginKind::Wildcard, Some(origin)) = (from, origin) else { return };
        let everyone =
            (from == OriginKind::Wildcard && self.0.allows_any).then(|| HeaderValue::from_static("*"));
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, everyone.unwrap_or_else(|| origin.clone()));
        if from == OriginKind::Listed {
            headers.insert(header::ACCESS_CONTROL_ALLOW_CREDENTIALS, HeaderValue::from_static("true"));
        }
        if let Some(exposed) = &self.0.exposed_headers {
            headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, exposed.clone());
        }
    }
}

impl OriginKind {
    /// Whether cookies are forwarded: only from origins that may send credentials.
    pub(crate) fn allows_cookies(self) -> bool {
        matches!(self, Self::NoOrigin | Self::SameOrigin | Self::Listed)
    }

    /// Returns the error for a page that may not use the route.
    pub(crate) fn refusal(headers: &HeaderMap) -> RequestRefusal {
        let origin = headers.get(header::ORIGIN).map(HeaderValue::as_bytes).unwrap_or(b"of another site");
        RequestRefusal::OriginForbidden { origin: String::from_utf8_lossy(origin).into_owned() }
    }
}

/// Whether a browser's request to a page's own host was made by the page, whose scripts can read the
/// response. A navigation to another page is not, unless its response is embedded in the page.
fn is_made_by_page(headers: &HeaderMap) -> bool {
    let value = |name: &HeaderName| field_values(headers, name).next().map(HeaderValue::as_bytes);
    match value(&SEC_FETCH_MODE) {
        None => false,
        Some(b"navigate") => {
            matches!(
                value(&SEC_FETCH_DEST),
                Some(b"embed" | b"fencedframe" | b"frame" | b"iframe" | b"object")
            )
        }
        Some(_) => true,
    }
}

/// Whether the request is a CORS preflight.
pub(crate) fn is_preflight<B>(request: &Request<B>) -> bool {
    request.method() == Method::OPTIONS
        && request.headers().contains_key(header::ORIGIN)
        && request.headers().contains_key(header::ACCESS_CONTROL_REQUEST_METHOD)
}

/// The host that the request was sent to: the target's host, or else the Host field (RFC 9110, section 7.2).
pub(crate) fn host_of<B>(request: &Request<B>) -> Option<&str> {
    target_host(request.uri(), request.headers())
}

/// Returns [`host_of`] a request with this target and these headers.
pub(crate) fn target_host<'a>(uri: &'a Uri, headers: &'a HeaderMap) -> Option<&'a str> {
    let host = || headers.get(header::HOST).and_then(|host| host.to_str().ok());
    uri.authority().map(http::uri::Authority::as_str).or_else(host)
}

/// Whether a page of this origin is from the host of the request, including the port. Over TLS only `https`
/// pages are, since a page in clear text may have been altered in transit.
fn is_same_host(origin: &str, host: &str, is_secure: bool) -> bool {
    let Some((scheme, origin)) = origin.split_once("://") else { return false };
    let is_https = scheme.eq_ignore_ascii_case("https");
    if !is_https && (is_secure || !scheme.eq_ignore_ascii_case("http")) {
        return false;
    }
    let default = default_port(scheme);
    let bare = |text: &'_ str| text.strip_suffix(default).unwrap_or(text).len();
    origin[..bare(origin)].eq_ignore_ascii_case(&host[..bare(host)])
}

/// Removes the default port of the scheme from an origin, as browsers do.
fn without_default_port(origin: &str) -> &str {
    let scheme = origin.split_once("://").map_or("", |(scheme, _)| scheme);
    origin.strip_suffix(default_port(scheme)).unwrap_or(origin)
}

fn default_port(scheme: &str) -> &'static str {
    if scheme.eq_ignore_ascii_case("https") { ":443" } else { ":80" }
}

/// Joins header names, without duplicates.
fn join_header_names(always: &[&str], more: &[String]) -> String {
    let mut names: Vec<String> = always.iter().map(|&name| name.to_owned()).collect();
    names.extend(more.iter().map(|name| name.to_ascii_lowercase()));
    let mut seen = std::collections::HashSet::new();
    names.retain(|name| seen.insert(name.clone()));
    names.join(", ")
}

#[cfg(test)]
mod tests;
