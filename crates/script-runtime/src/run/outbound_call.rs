//! External resource calls: to registered services by name, and to hosts that match the operator's patterns.
//! Redirects are followed for safe methods only, either to the origin of the redirect or to a host that
//! matches a pattern. Registered services are called only if the script names them: a response can come from
//! an untrusted host, whereas services receive the operator's and the client's credentials.

use std::sync::Arc;

use http::header::{CONTENT_TYPE, HeaderValue, LOCATION};
use http::uri::PathAndQuery;
use http::{HeaderMap, StatusCode};
use offload::OffloadPool;
use script::HandlerMethod;
use services::{
    CallError, CallErrorKind, PathError, PermittedHosts, RequestCall, ServiceRequest, ServiceSet, ToProblem,
    UpstreamService,
};

use crate::frame::{CallReply, FramePayload};
use crate::http_message::handler_reply::{HandlerReply, failed_reply, limit_body, reply_from_status};
use crate::http_message::location::RedirectTarget;
use crate::http_message::script_request;

/// The maximum number of redirects that are followed.
pub(crate) const REDIRECTS: usize = 5;

/// The services and hosts that a script may call.
pub(crate) struct ExternalCalls {
    pub(crate) services: ServiceSet,
    pub(crate) hosts: PermittedHosts,
}

/// An external call.
#[derive(Debug)]
pub(crate) struct OutboundCall {
    pub(crate) method: HandlerMethod,
    pub(crate) url: String,
    pub(crate) body: FramePayload,
}

/// The resolved target of a URL.
#[derive(Clone)]
struct CallTarget {
    service: Arc<UpstreamService>,
    /// Whether this is a registered service, which gets credentials, rather than a host that matches a
    /// pattern.
    is_registered: bool,
    /// Scheme and authority, the part before the path: `http://catalog`.
    base: String,
    path: PathAndQuery,
}

/// A parsed URL.
struct ParsedUrl<'u> {
    is_secure: bool,
    authority: &'u str,
    /// Scheme and authority.
    base: &'u str,
    /// The rest of the URL; may be empty.
    path: &'u str,
}

impl ExternalCalls {
    /// Makes a call and reads its response completely, a long one in the pool.
    pub(crate) async fn send(
        &self,
        pool: &OffloadPool,
        call: &RequestCall,
        errand: OutboundCall,
    ) -> (CallReply, FramePayload) {
        let OutboundCall { method, url, body } = errand;
        let mut target = match self.resolve(&url) {
            Ok(target) => target,
            Err(text) => return (CallReply::Refused(403, text), FramePayload::default()),
        };
        for _ in 0..=REDIRECTS {
            let request = build_request(method, &target, &body);
            let answer = match self.services.send(call, &target.service, request).await {
                Ok(answer) => answer,
                Err(error) => return error_reply(&error),
            };
            match self.next_redirect(method, answer.status, &answer.headers, &target) {
                Some(Ok(next)) => target = next,
                Some(Err(text)) => return (CallReply::Refused(403, text), FramePayload::default()),
                None => {
                    let outcome = reply_from_status(
                        format_args!("{} {}{}", method.as_str(), target.base, target.path),
                        answer.status,
                        &answer.headers,
                    );
                    let response = (method, answer.status);
                    return match script_request::parse_response_body(
                        pool,
                        call,
                        response,
                        &answer.headers,
                        answer.body,
                    )
                    .await
                    {
                        Ok(body) => (outcome, body),
                        Err(error) => error_reply(&error),
                    };
                }
            }
        }
        failed_reply(502, format!("stopped after {REDIRECTS} redirects"))
    }

    /// Makes a call and streams its response to the client, up to the limit.
    pub(crate) async fn stream(
        &self,
        call: &RequestCall,
        errand: OutboundCall,
        limit: u64,
    ) -> Result<HandlerReply, (CallReply, FramePayload)> {
        let OutboundCall { method, url, body } = errand;
        let refused = |text| (CallReply::Refused(403, text), FramePayload::default());
        let mut target = self.resolve(&url).map_err(refused)?;
        for _ in 0..=REDIRECTS {
            let request = build_request(method, &target, &body);
            let started = self.services.start_streamed(call, &target.service, request);
            let answer = match started {
                Ok(started) => started.await.map_err(|error| error_reply(&error))?,
                Err(error) => return Err(error_reply(&error)),
            };
            match self.next_redirect(method, answer.status(), answer.headers(), &target) {
                Some(next) => target = next.map_err(refused)?,
                None => return Ok(HandlerReply::pass_through(answer.map(|body| limit_body(body, limit)))),
            }
        }
        Err(failed_reply(502, format!("stopped after {REDIRECTS} redirects")))
    }

    /// Returns the target of a redirect response, if it is to be followed.
    fn next_redirect(
        &self,
        method: HandlerMethod,
        status: StatusCode,
        headers: &HeaderMap,
        from: &CallTarget,
    ) -> Option<Result<CallTarget, String>> {
        if !matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308) || !is_safe(method) {
            return None;
        }
        // With several `Location` headers, two readers could choose different targets.
        let mut all = headers.get_all(LOCATION).iter();
        let (Some(location), None) = (all.next(), all.next()) else { return None };
        let (scheme, _) = from.base.split_once(':')?;
        // A service's own paths include the base path of its URL.
        let path = format!("{}{}", from.service.base_path(), from.path);
        let url = match RedirectTarget::resolve(location, &path) {
            RedirectTarget::SameAuthority(path) => format!("{}{path}", from.base),
            RedirectTarget::OtherAuthority(other, rest) => {
                format!("{}:{rest}", other.as_deref().unwrap_or(scheme))
            }
        };
        Some(self.resolve_redirect(&url, from))
    }

    /// Resolves a redirect: to the service that sent it, or to a host that matches a pattern. Never to
    /// another service, under any name, even if a pattern covers its address.
    fn resolve_redirect(&self, url: &str, from: &CallTarget) -> Result<CallTarget, String> {
        let parts = ParsedUrl::parse(url)?;
        let base = parts.base.to_ascii_lowercase();
        // A service may refer to itself by its address.
        let is_own = from.base.eq_ignore_ascii_case(&base) || from.service.has_authority(parts.authority);
        if from.is_registered && is_own {
            let path = parts.path_and_query(url)?;
            let Some(path) = from.service.strip_base_path(path.as_str()) else {
                let text = "which is not below the base path of the service";
                return Err(format!("{}{} redirects to {path}, {text}", from.base, from.path));
            };
            return Ok(CallTarget { path: ParsedUrl { path, ..parts }.path_and_query(url)?, ..from.clone() });
        }
        let target = match self.services.find_by_authority(parts.authority) {
            Some(_) => Err(format!("`{}` is a service, to which no redirect leads", parts.authority)),
            None => self.resolve_host(url, &parts),
        };
        target.map_err(|text| format!("{}{} redirects on: {text}", from.base, from.path))
    }

    /// Resolves a URL to a host, if a pattern allows it.
    fn resolve_host(&self, url: &str, parts: &ParsedUrl<'_>) -> Result<CallTarget, String> {
        let service = self
            .hosts
            .find_service(parts.authority, parts.is_secure)
            .ok_or_else(|| format!("`{}` is not a host that the route's `hosts` allow", parts.authority))?;
        let path = parts.path_and_query(url)?;
        Ok(CallTarget { service, is_registered: false, base: parts.base.to_owned(), path })
    }

    /// Resolves a URL that the script calls.
    fn resolve(&self, url: &str) -> Result<CallTarget, String> {
        let parts = ParsedUrl::parse(url)?;
        let has = |any: &[u8]| parts.authority.bytes().any(|byte| any.contains(&byte));
        // No service has such a name, so the lookup is skipped.
        let is_host = (parts.is_secure || has(b":.")) && !has(b"@");
        let registered = |service: &Arc<UpstreamService>, path| CallTarget {
            service: Arc::clone(service),
            is_registered: true,
            base: parts.base.to_owned(),
            path,
        };
        if !is_host {
            let reason = match self.services.resolve(url) {
                Ok((service, path)) => return Ok(registered(service, path)),
                Err(reason) => reason,
            };
            // The service reports other problems of the path once it is found.
            let is_host =
                matches!(reason, PathError::UnknownService | PathError::Scheme | PathError::Invalid);
            if !is_host || has(b"@") {
                return Err(format!("{url}: {reason}"));
            }
        }
        // A script may refer to a service by its address.
        match self.services.find_by_authority(parts.authority) {
            Some(service) => Ok(registered(service, parts.path_and_query(url)?)),
            None => self.resolve_host(url, &parts).map_err(|_| {
                let authority = parts.authority;
                format!("`{authority}` is neither a service nor a host that the route's `hosts` allow")
            }),
        }
    }
}

/// Builds the request to a target.
fn build_request(method: HandlerMethod, target: &CallTarget, body: &FramePayload) -> ServiceRequest {
    let mut headers = HeaderMap::new();
    if let Some(media) = body.kind.content_type() {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(media));
    }
    let method = http::Method::from_bytes(method.as_str().as_bytes()).unwrap_or(http::Method::GET);
    ServiceRequest { method, path_and_query: target.path.clone(), headers, body: body.bytes.clone() }
}

impl<'u> ParsedUrl<'u> {
    fn parse(url: &'u str) -> Result<Self, String> {
        let (scheme, rest) = url
            .split_once(':')
            .and_then(|(scheme, rest)| Some((scheme, rest.strip_prefix("//")?)))
            .unwrap_or_default();
        let is_secure = scheme.eq_ignore_ascii_case("https");
        if !is_secure && !scheme.eq_ignore_ascii_case("http") {
            return Err(format!("`{url}` is neither a path nor a URL of the form `http://host/path`"));
        }
        let end = rest.bytes().position(|byte| matches!(byte, b'/' | b'?' | b'#' | b'\\'));
        let (authority, path) = rest.split_at(end.unwrap_or(rest.len()));
        let base = url.get(..url.len() - path.len()).unwrap_or(url);
        Ok(Self { is_secure, authority, base, path })
    }

    fn path_and_query(&self, url: &str) -> Result<PathAndQuery, String> {
        let path = self.path.split('#').next().unwrap_or_default();
        let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        PathAndQuery::try_from(path).map_err(|_| format!("`{url}` is not a valid URL"))
    }
}

/// Whether the method is safe, that is, changes nothing.
pub(crate) fn is_safe(method: HandlerMethod) -> bool {
    matches!(method, HandlerMethod::Get | HandlerMethod::Head | HandlerMethod::Options)
}

/// Converts the error of a call without a response to the outcome that the handler gets.
pub(crate) fn error_reply(error: &CallError) -> (CallReply, FramePayload) {
    let text = format!("{error} ({})", error.code());
    match error.kind() {
        CallErrorKind::Forbidden | CallErrorKind::Invalid | CallErrorKind::UnknownService => {
            (CallReply::Refused(403, text), FramePayload::default())
        }
        CallErrorKind::Timeout => failed_reply(504, text),
        CallErrorKind::Limit if error.code() == "limit-deadline" => failed_reply(504, text),
        CallErrorKind::Unreachable | CallErrorKind::Broken | CallErrorKind::Limit => failed_reply(502, text),
    }
}
