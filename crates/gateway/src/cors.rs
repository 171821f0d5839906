//! Which pages may ask: the origins of a request, and the headers that browsers want to see.
//!
//! A request without an `Origin` comes from no page, unless the browser says so in other fields. The gateway's own pages
//! are those whose origin names the host that the request was sent to. Over TLS, also where a trusted proxy ends it, their
//! scheme is `https`. In clear text it is `https` too, since a proxy that ends TLS need not be trusted. Everything else has to be allowed by `cors.origins`.
//!
//! A page whose own name was made to point to the gateway (DNS rebinding) asks that name, too, and is foreign all the
//! same: the gateway's names are those that its config mentions (`hosts.rs`).

pub(crate) mod config;

use std::sync::Arc;

use http::header::{self, HeaderName};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use services::headers::values;
use services::{Body, body};

use config::CorsConfig;

use crate::client::Client;
use crate::encode::vary;
use crate::hosts::OwnHosts;
use crate::refusal::Refusal;

/// Whose page a browser asks for, how, and what the answer becomes (W3C Fetch Metadata).
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const SEC_FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");
const SEC_FETCH_DEST: HeaderName = HeaderName::from_static("sec-fetch-dest");

/// What a page may send wherever its origin is allowed; beside it, everything that begins with `ORFA-`.
const ALLOWED_HEADERS: [&str; 6] =
    ["content-type", "authorization", "prefer", "orfa-input", "orfa-limit", "orfa-debug"];
/// What a page may read wherever its origin is allowed.
const EXPOSED_HEADERS: [&str; 4] = ["orfa-cache", "orfa-parts", "server-timing", "retry-after"];
/// What begins like this is the gateway's own.
const OURS: &str = "orfa-";

/// The origins that a route allows.
#[derive(Clone, Debug, Default)]
pub(crate) struct Origins(Arc<Allowed>);

#[derive(Debug, Default)]
struct Allowed {
    /// What is the gateway itself.
    own: Arc<OwnHosts>,
    everyone: bool,
    /// A page without an origin of its own: a sandboxed frame, a file.
    opaque: bool,
    exact: Vec<String>,
    /// Scheme and host of those whose port does not matter.
    any_port: Vec<String>,
    /// Listed origins may send cookies.
    credentials: bool,
    max_age: Option<HeaderValue>,
    /// Names of headers, with commas between.
    headers: String,
    exposed: Option<HeaderValue>,
}

/// Where a request comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum From {
    /// From no page.
    NoPage,
    /// From a page of the gateway itself.
    Own,
    /// From an origin that the config names, and whose credentials count.
    Listed,
    /// From an origin that may ask and read, but that nobody vouched for: without credentials.
    Anyone,
    /// From an origin that is not allowed.
    Foreign,
}

impl Origins {
    /// Those of the config, without one none, for a gateway that has these hosts.
    pub(crate) fn new(config: Option<&CorsConfig>, own: &Arc<OwnHosts>) -> Self {
        let mut allowed = Allowed { own: Arc::clone(own), ..Allowed::default() };
        let Some(config) = config else { return Self(Arc::new(allowed)) };
        allowed.credentials = config.credentials;
        allowed.max_age = config.max_age.map(|age| age.0.as_secs().into());
        allowed.headers = names(&ALLOWED_HEADERS, &config.headers);
        allowed.exposed = HeaderValue::try_from(names(&EXPOSED_HEADERS, &config.expose)).ok();
        for origin in &config.origins {
            match origin.strip_suffix(":*") {
                _ if origin == "*" => allowed.everyone = true,
                _ if origin == "null" => allowed.opaque = true,
                Some(host) => allowed.any_port.push(host.to_owned()),
                None => allowed.exact.push(without_default_port(origin).to_owned()),
            }
        }
        Self(Arc::new(allowed))
    }

    /// Whether any origin is allowed: only then does the gateway speak for the route.
    pub(crate) fn is_empty(&self) -> bool {
        let Allowed { everyone, opaque, exact, any_port, .. } = &*self.0;
        !everyone && !opaque && exact.is_empty() && any_port.is_empty()
    }

    /// Where the request comes from, in this route's eyes.
    pub(crate) fn judge<B>(&self, request: &Request<B>, client: &Client) -> From {
        let mut origins = request.headers().get_all(header::ORIGIN).iter();
        let Some(origin) = origins.next() else { return self.judge_unnamed(request, client) };
        let (Ok(origin), None) = (origin.to_str(), origins.next()) else { return From::Foreign };
        let Allowed { everyone, opaque, credentials, .. } = *self.0;
        let is_listed = self.lists(origin);
        let own = &self.0.own;
        let is_own = |host| is_same_host(origin, host, client.is_secure()) && own.contain(host, client);
        if host_of(request).is_some_and(is_own) {
            From::Own
        } else if is_listed && credentials {
            From::Listed
        } else if is_listed || everyone || (opaque && origin == "null") {
            From::Anyone
        } else {
            From::Foreign
        }
    }

    /// Where a request without `Origin` comes from: browsers leave it out where a page only embeds what it asks for, and
    /// say in `Sec-Fetch-Site` that it is another's. They also leave it out where a page reads from its own host, which
    /// is the gateway's only by a name that the config mentions.
    fn judge_unnamed<B>(&self, request: &Request<B>, client: &Client) -> From {
        let is_own = || host_of(request).is_some_and(|host| self.0.own.contain(host, client));
        match values(request.headers(), &SEC_FETCH_SITE).next().map(HeaderValue::as_bytes) {
            Some(b"cross-site" | b"same-site") => From::Foreign,
            Some(b"same-origin") if is_made_by_page(request.headers()) && !is_own() => From::Foreign,
            _ => From::NoPage,
        }
    }

    fn lists(&self, origin: &str) -> bool {
        let bare =
            origin.rsplit_once(':').filter(|(_, port)| port.bytes().all(|digit| digit.is_ascii_digit()));
        let bare = bare.map_or(origin, |(bare, _)| bare);
        let whole = without_default_port(origin);
        self.0.exact.iter().any(|allowed| allowed.eq_ignore_ascii_case(whole))
            || self.0.any_port.iter().any(|allowed| allowed.eq_ignore_ascii_case(bare))
    }

    /// The answer to a browser's preflight, on a route that serves these methods.
    pub(crate) fn preflight<B>(&self, request: &Request<B>, methods: &'static str) -> Response<Body> {
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

    /// The headers that a page may send: those that are always allowed, and what it asks for of ours.
    fn allowed_headers(&self, asked: &HeaderMap) -> String {
        let asked = asked.get_all(header::ACCESS_CONTROL_REQUEST_HEADERS).iter();
        let asked = asked.filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(','));
        let ours = asked.filter_map(|name| HeaderName::from_bytes(name.trim().as_bytes()).ok());
        let ours = ours.filter(|name| name.as_str().starts_with(OURS));
        ours.fold(self.0.headers.clone(), |all, name| format!("{all}, {name}"))
    }

    /// Lets the page read the answer, where it may. What a service said of origins goes: on a route with
    /// origins of its own the gateway alone speaks.
    pub(crate) fn mark(&self, from: From, origin: Option<&HeaderValue>, headers: &mut HeaderMap) {
        if self.is_empty() {
            return;
        }
        headers.remove(header::ACCESS_CONTROL_ALLOW_ORIGIN);
        headers.remove(header::ACCESS_CONTROL_ALLOW_CREDENTIALS);
        vary(headers, "origin");
        let (From::Listed | From::Anyone, Some(origin)) = (from, origin) else { return };
        let everyone = (from == From::Anyone && self.0.everyone).then(|| HeaderValue::from_static("*"));
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, everyone.unwrap_or_else(|| origin.clone()));
        if from == From::Listed {
            headers.insert(header::ACCESS_CONTROL_ALLOW_CREDENTIALS, HeaderValue::from_static("true"));
        }
        if let Some(exposed) = &self.0.exposed {
            headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, exposed.clone());
        }
    }
}

impl From {
    /// Whether cookies travel on: never for a page that nobody vouched for.
    pub(crate) fn keeps_cookies(self) -> bool {
        matches!(self, Self::NoPage | Self::Own | Self::Listed)
    }

    /// Why such a page may not use the route.
    pub(crate) fn refusal(headers: &HeaderMap) -> Refusal {
        let origin = headers.get(header::ORIGIN).map(HeaderValue::as_bytes).unwrap_or(b"of another site");
        Refusal::OriginForbidden { origin: String::from_utf8_lossy(origin).into_owned() }
    }
}

/// Whether a browser's request to a page's own host was made from within the page, whose scripts can read the answer. A
/// visit to another page is not, unless its answer becomes a part of the page.
fn is_made_by_page(headers: &HeaderMap) -> bool {
    let value = |name: &HeaderName| values(headers, name).next().map(HeaderValue::as_bytes);
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

/// Whether the request is a browser's question before the request proper.
pub(crate) fn is_preflight<B>(request: &Request<B>) -> bool {
    request.method() == Method::OPTIONS
        && request.headers().contains_key(header::ORIGIN)
        && request.headers().contains_key(header::ACCESS_CONTROL_REQUEST_METHOD)
}

/// The host that the request was sent to: that of its target, and only without one the Host field (RFC
/// 9110, section 7.2).
pub(crate) fn host_of<B>(request: &Request<B>) -> Option<&str> {
    let host = || request.headers().get(header::HOST).and_then(|host| host.to_str().ok());
    request.uri().authority().map(http::uri::Authority::as_str).or_else(host)
}

/// Whether a page of this origin comes from the host that it asks, port included. Over TLS only an `https` page does: one
/// that came in clear text may be anybody's on the way.
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

/// An origin as browsers write it: without the port that its scheme has anyway.
fn without_default_port(origin: &str) -> &str {
    let scheme = origin.split_once("://").map_or("", |(scheme, _)| scheme);
    origin.strip_suffix(default_port(scheme)).unwrap_or(origin)
}

fn default_port(scheme: &str) -> &'static str {
    if scheme.eq_ignore_ascii_case("https") { ":443" } else { ":80" }
}

/// Names of headers in a row, each once.
fn names(always: &[&str], more: &[String]) -> String {
    let mut names: Vec<String> = always.iter().map(|&name| name.to_owned()).collect();
    names.extend(more.iter().map(|name| name.to_ascii_lowercase()));
    let mut seen = std::collections::HashSet::new();
    names.retain(|name| seen.insert(name.clone()));
    names.join(", ")
}

#[cfg(test)]
mod tests;
