//! Which pages may ask: the origins of a request, and the headers that browsers want to see.
//!
//! A request without an `Origin` comes from no page. The gateway's own pages are those whose origin
//! names the host that the request was sent to; the scheme is left out of it, since the gateway may
//! stand behind something that ends TLS. Everything else has to be allowed by `cors.origins`.
//!
//! A gateway on the loopback address, as in `orfa dev`, has no other names than the local ones: a page
//! whose own name was made to point there (DNS rebinding) is foreign all the same.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use http::header::{self, HeaderName};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use services::{Body, body};

use crate::config::CorsConfig;
use crate::refusal::Refusal;

const ALLOWED_HEADERS: HeaderValue = HeaderValue::from_static(
    "content-type, authorization, orfa-input, orfa-limit, orfa-debug, orfa-cache, orfa-trust",
);
const EXPOSED_HEADERS: HeaderValue = HeaderValue::from_static("server-timing, orfa-cache");
const METHODS: HeaderValue = HeaderValue::from_static("GET, HEAD, POST, PUT, PATCH, DELETE, QUERY");

/// The origins that a route allows.
#[derive(Clone, Debug, Default)]
pub(crate) struct Origins(Arc<Allowed>);

#[derive(Debug, Default)]
struct Allowed {
    /// The gateway listens on the loopback address.
    local: bool,
    everyone: bool,
    exact: Vec<String>,
    /// Scheme and host of those whose port does not matter.
    any_port: Vec<String>,
    max_age: Option<HeaderValue>,
}

/// Where a request comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum From {
    /// From no page.
    NoPage,
    /// From a page of the gateway itself.
    Own,
    /// From an origin that the config names.
    Listed,
    /// From some origin, where `*` allows them all.
    Anyone,
    /// From an origin that is not allowed.
    Foreign,
}

/// Whether this can stand under `cors.origins`.
pub(crate) fn is_pattern(text: &str) -> bool {
    let Some((scheme, host)) = text.split_once("://") else { return text == "*" };
    let host = host.strip_suffix(":*").unwrap_or(host);
    let name = |text: &str| !text.is_empty() && !text.contains(['/', '*', '?', '#', '@', ' ']);
    name(scheme) && name(host)
}

impl Origins {
    /// Those of the config, without one none, for a gateway that listens there.
    pub(crate) fn new(config: Option<&CorsConfig>, listen: &str) -> Self {
        let local = listen.parse::<SocketAddr>().is_ok_and(|address| address.ip().is_loopback());
        let mut allowed = Allowed { local, ..Allowed::default() };
        let Some(config) = config else { return Self(Arc::new(allowed)) };
        allowed.max_age = config.max_age.map(|age| age.0.as_secs().into());
        for origin in &config.origins {
            let origin = origin.to_ascii_lowercase();
            match origin.strip_suffix(":*") {
                _ if origin == "*" => allowed.everyone = true,
                Some(host) => allowed.any_port.push(host.to_owned()),
                None => allowed.exact.push(origin),
            }
        }
        Self(Arc::new(allowed))
    }

    /// Whether any origin is allowed: only then does the gateway speak for the route.
    pub(crate) fn is_empty(&self) -> bool {
        let Allowed { everyone, exact, any_port, .. } = &*self.0;
        !everyone && exact.is_empty() && any_port.is_empty()
    }

    /// Where the request comes from, in this route's eyes.
    pub(crate) fn judge<B>(&self, request: &Request<B>) -> From {
        let mut origins = request.headers().get_all(header::ORIGIN).iter();
        let Some(origin) = origins.next() else { return From::NoPage };
        let (Ok(origin), None) = (origin.to_str(), origins.next()) else { return From::Foreign };
        let origin = origin.to_ascii_lowercase();
        if host_of(request).is_some_and(|host| is_same_host(&origin, host) && self.is_own(host)) {
            From::Own
        } else if self.lists(&origin) {
            From::Listed
        } else if self.0.everyone {
            From::Anyone
        } else {
            From::Foreign
        }
    }

    /// Whether a host can be this gateway.
    fn is_own(&self, host: &str) -> bool {
        !self.0.local || is_local(host)
    }

    fn lists(&self, origin: &str) -> bool {
        let bare =
            origin.rsplit_once(':').filter(|(_, port)| port.bytes().all(|digit| digit.is_ascii_digit()));
        let bare = bare.map_or(origin, |(bare, _)| bare);
        self.0.exact.iter().any(|allowed| allowed == origin)
            || self.0.any_port.iter().any(|allowed| allowed == bare)
    }

    /// The answer to a browser's preflight.
    pub(crate) fn preflight(&self) -> Response<Body> {
        let mut response = Response::new(body::empty());
        *response.status_mut() = StatusCode::NO_CONTENT;
        let headers = response.headers_mut();
        headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, METHODS);
        headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, ALLOWED_HEADERS);
        if let Some(age) = &self.0.max_age {
            headers.insert(header::ACCESS_CONTROL_MAX_AGE, age.clone());
        }
        response
    }

    /// Lets the page read the answer, where it may.
    pub(crate) fn mark(&self, from: From, origin: Option<&HeaderValue>, headers: &mut HeaderMap) {
        if self.is_empty() {
            return;
        }
        add_vary(headers);
        let (From::Listed | From::Anyone, Some(origin)) = (from, origin) else { return };
        headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED_HEADERS);
        if from == From::Listed {
            headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
            headers.insert(header::ACCESS_CONTROL_ALLOW_CREDENTIALS, HeaderValue::from_static("true"));
        } else {
            headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
            headers.remove(header::ACCESS_CONTROL_ALLOW_CREDENTIALS);
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
        let origin = headers.get(header::ORIGIN).map(HeaderValue::as_bytes).unwrap_or_default();
        Refusal::OriginForbidden { origin: String::from_utf8_lossy(origin).into_owned() }
    }
}

/// Whether the request is a browser's question before the request proper.
pub(crate) fn is_preflight<B>(request: &Request<B>) -> bool {
    request.method() == Method::OPTIONS
        && request.headers().contains_key(header::ORIGIN)
        && request.headers().contains_key(header::ACCESS_CONTROL_REQUEST_METHOD)
}

fn add_vary(headers: &mut HeaderMap) {
    let named = |name: &HeaderName| {
        let mut values = headers.get_all(header::VARY).iter().filter_map(|value| value.to_str().ok());
        values.any(|value| value.split(',').any(|word| word.trim().eq_ignore_ascii_case(name.as_str())))
    };
    if !named(&header::ORIGIN) {
        headers.append(header::VARY, HeaderValue::from_static("origin"));
    }
}

/// The host that the request was sent to: that of its target, and only without one the Host field (RFC
/// 9110, section 7.2).
fn host_of<B>(request: &Request<B>) -> Option<&str> {
    let host = || request.headers().get(header::HOST).and_then(|host| host.to_str().ok());
    request.uri().authority().map(http::uri::Authority::as_str).or_else(host)
}

/// Whether a host with its port is a name of this machine for itself.
fn is_local(host: &str) -> bool {
    let numeric = |text: &str| text.bytes().all(|digit| digit.is_ascii_digit());
    let bare = host.rsplit_once(':').filter(|(_, port)| numeric(port)).map_or(host, |(bare, _)| bare);
    let bare = bare.trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase();
    bare == "localhost"
        || bare.ends_with(".localhost")
        || bare.parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
}

fn is_same_host(origin: &str, host: &str) -> bool {
    let Some((scheme, origin)) = origin.split_once("://") else { return false };
    let default = if scheme == "https" { ":443" } else { ":80" };
    let bare = |text: &str| text.strip_suffix(default).unwrap_or(text).to_ascii_lowercase();
    bare(origin) == bare(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(listen: &str, host: &str, origins: &[&str]) -> From {
        let mut request = Request::post("/query").header(header::HOST, host);
        for origin in origins {
            request = request.header(header::ORIGIN, *origin);
        }
        Origins::new(None, listen).judge(&request.body(()).unwrap())
    }

    #[test]
    fn a_page_that_was_rebound_to_this_machine_is_foreign() {
        let local = "127.0.0.1:8080";
        assert_eq!(judged(local, "evil.example:8080", &["http://evil.example:8080"]), From::Foreign);
        for host in ["localhost:8080", "127.0.0.1:8080", "[::1]:8080", "app.localhost"] {
            assert_eq!(judged(local, host, &[&format!("http://{host}")]), From::Own, "{host}");
        }
        assert_eq!(judged("0.0.0.0:80", "shop.example", &["https://shop.example"]), From::Own);
    }

    #[test]
    fn two_origins_are_nobodys() {
        let origins = ["http://localhost:8080", "http://evil.example"];
        assert_eq!(judged("127.0.0.1:8080", "localhost:8080", &origins), From::Foreign);
    }
}
