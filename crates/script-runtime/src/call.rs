//! Resource calls that leave the gateway: to registered services by name, and to hosts that the operator's patterns
//! open. A redirect is followed for safe methods, and each hop is checked like the first.

use std::sync::Arc;

use http::header::{CONTENT_TYPE, HeaderValue, LOCATION};
use http::uri::PathAndQuery;
use http::{HeaderMap, StatusCode};
use script::Method;
use services::{Call, CallError, Hosts, Kind, PathError, Problem, Request, Service, Services};

use crate::answer::{Reply, failed, limited, outcome};
use crate::ask;
use crate::frame::{Outcome, Payload};
use crate::location::Destination;

/// As many redirects are followed.
pub(crate) const REDIRECTS: usize = 5;

/// Whom a script may call.
pub(crate) struct Outside {
    pub(crate) services: Services,
    pub(crate) hosts: Hosts,
}

/// A call that leaves the gateway.
#[derive(Debug)]
pub(crate) struct Errand {
    pub(crate) method: Method,
    pub(crate) url: String,
    pub(crate) body: Payload,
}

/// Where a URL leads.
struct Target<'u> {
    service: Arc<Service>,
    /// What stands before the path: `http://catalog`.
    base: &'u str,
    path: PathAndQuery,
}

impl Outside {
    /// Makes a call, to the last byte of its answer.
    pub(crate) async fn send(&self, call: &Call, errand: Errand) -> (Outcome, Payload) {
        let Errand { method, mut url, body } = errand;
        for _ in 0..=REDIRECTS {
            let (target, request) = match self.request(method, &url, &body) {
                Ok(ready) => ready,
                Err(refused) => return refused,
            };
            let answer = match self.services.send(call, &target.service, request).await {
                Ok(answer) => answer,
                Err(error) => return told(&error),
            };
            match next(method, answer.status, &answer.headers, &target) {
                Some(next) => url = next,
                None => {
                    let what = format_args!("{} {url}", method.word());
                    let outcome = outcome(what, answer.status, &answer.headers);
                    return (outcome, ask::answered(&answer.headers, answer.body));
                }
            }
        }
        failed(502, format!("{REDIRECTS} redirects led on to another one"))
    }

    /// Makes a call whose answer is for the client: it streams, and no more of it than the limit.
    pub(crate) async fn stream(
        &self,
        call: &Call,
        errand: Errand,
        limit: u64,
    ) -> Result<Reply, (Outcome, Payload)> {
        let Errand { method, mut url, body } = errand;
        for _ in 0..=REDIRECTS {
            let (target, request) = self.request(method, &url, &body)?;
            let started = self.services.start_streamed(call, &target.service, request);
            let answer = match started {
                Ok(started) => started.await.map_err(|error| told(&error))?,
                Err(error) => return Err(told(&error)),
            };
            match next(method, answer.status(), answer.headers(), &target) {
                Some(next) => url = next,
                None => return Ok(Reply::passed(answer.map(|body| limited(body, limit)))),
            }
        }
        Err(failed(502, format!("{REDIRECTS} redirects led on to another one")))
    }

    /// Where the URL leads, and what is sent there.
    fn request<'u>(
        &self,
        method: Method,
        url: &'u str,
        body: &Payload,
    ) -> Result<(Target<'u>, Request), (Outcome, Payload)> {
        let target = self.resolve(url).map_err(|text| (Outcome::Refused(403, text), Payload::default()))?;
        let mut headers = HeaderMap::new();
        if let Some(media) = body.kind.content_type() {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(media));
        }
        let method = http::Method::from_bytes(method.word().as_bytes()).unwrap_or(http::Method::GET);
        let path_and_query = target.path.clone();
        Ok((target, Request { method, path_and_query, headers, body: body.bytes.clone() }))
    }

    fn resolve<'u>(&self, url: &'u str) -> Result<Target<'u>, String> {
        let (scheme, rest) = split(url).unwrap_or_default();
        let is_secure = scheme.eq_ignore_ascii_case("https");
        if !is_secure && !scheme.eq_ignore_ascii_case("http") {
            return Err(format!("`{url}` is no URL of the form `http://host/path` and no path"));
        }
        let end = rest.bytes().position(|byte| matches!(byte, b'/' | b'?' | b'#' | b'\\'));
        let (authority, path) = rest.split_at(end.unwrap_or(rest.len()));
        let base = url.get(..url.len() - path.len()).unwrap_or(url);
        let has = |any: &[u8]| authority.bytes().any(|byte| any.contains(&byte));
        // No service is called so: its name is looked for in vain.
        let is_host = (is_secure || has(b":.")) && !has(b"@");
        if !is_host {
            let reason = match self.services.resolve(url) {
                Ok((service, path)) => return Ok(Target { service: Arc::clone(service), base, path }),
                Err(reason) => reason,
            };
            // What else is wrong with the path is said by the service, once there is one.
            let is_host =
                matches!(reason, PathError::UnknownService | PathError::Scheme | PathError::Invalid);
            if !is_host || has(b"@") {
                return Err(format!("{url}: {reason}"));
            }
        }
        // A service may name itself by its address, where it redirects.
        let service =
            self.services.at(authority).cloned().or_else(|| self.hosts.service(authority, is_secure));
        let service = service.ok_or_else(|| {
            format!("`{authority}` is neither a service nor a host that the route's `hosts` open")
        })?;
        let path = path.split('#').next().unwrap_or_default();
        let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        let path = PathAndQuery::try_from(path).map_err(|_| format!("`{url}` is no URL"))?;
        Ok(Target { service, base, path })
    }
}

/// A URL's scheme, and what follows `://`.
fn split(url: &str) -> Option<(&str, &str)> {
    let (scheme, rest) = url.split_once(':')?;
    Some((scheme, rest.strip_prefix("//")?))
}

/// Where an answer sends its reader, if that is to be followed.
fn next(method: Method, status: StatusCode, headers: &HeaderMap, from: &Target<'_>) -> Option<String> {
    if !matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308) || !is_safe(method) {
        return None;
    }
    let (scheme, _) = split(from.base)?;
    Some(match Destination::of(headers.get(LOCATION)?, from.path.as_str()) {
        Destination::Here(path) => format!("{}{path}", from.base),
        Destination::Elsewhere(other, rest) => format!("{}:{rest}", other.as_deref().unwrap_or(scheme)),
    })
}

/// Whether it changes nothing.
pub(crate) fn is_safe(method: Method) -> bool {
    matches!(method, Method::Get | Method::Head | Method::Options)
}

/// What a handler is told of a call without an answer.
fn told(error: &CallError) -> (Outcome, Payload) {
    let text = format!("{error} ({})", error.code());
    match error.kind() {
        Kind::Forbidden | Kind::Invalid | Kind::UnknownService => {
            (Outcome::Refused(403, text), Payload::default())
        }
        Kind::Timeout => failed(504, text),
        Kind::Limit if error.code() == "limit-deadline" => failed(504, text),
        Kind::Unreachable | Kind::Broken | Kind::Limit => failed(502, text),
    }
}
