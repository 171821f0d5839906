//! The handler that forwards a request to a service and streams the response back.

use std::future::ready;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use handler::{HandlerRequest, HandlerResult};
use http::uri::{PathAndQuery, Uri};
use http::{HeaderName, Request, Response};
use services::{CallError, ServiceSet, StreamedServiceBody, path};

use crate::config::{ProxyConfig, RouteConfig};
use crate::http_semantics::request_refusal::RequestRefusal;

/// A route's service, and the part of the path that is removed.
pub(crate) struct ProxyHandler {
    services: ServiceSet,
    service: Arc<services::UpstreamService>,
    /// The prefix that is removed from paths: `/catalog` of `/catalog/*`.
    prefix: String,
}

impl ProxyHandler {
    /// Creates the proxy. Returns `None` if the service does not exist, which config validation rules out.
    pub(crate) fn new(config: &ProxyConfig, route: &RouteConfig, services: &ServiceSet) -> Option<Self> {
        let service = Arc::clone(services.get(config.service())?);
        let path = route.normal_path();
        let before = path.strip_suffix("/*").filter(|_| !config.keep_prefix());
        Some(Self { services: services.clone(), service, prefix: before.unwrap_or_default().to_owned() })
    }

    /// The name of the service that requests are forwarded to.
    pub(crate) fn service(&self) -> &Arc<str> {
        self.service.name()
    }

    /// The headers in the service's `forward`.
    pub(crate) fn forwarded_headers(&self) -> &[HeaderName] {
        self.service.forwarded_headers()
    }

    /// Forwards the request.
    ///
    /// # Errors
    /// Fails if the remaining path is refused or the call fails.
    pub(crate) fn handle(&self, request: HandlerRequest) -> BoxFuture<'static, HandlerResult> {
        match self.forward(request) {
            Ok(forwarded) => forwarded.map(|response| Ok(response?.into())).boxed(),
            Err(refusal) => Box::pin(ready(Err(refusal.into()))),
        }
    }

    /// Starts to forward the request.
    fn forward(
        &self,
        request: HandlerRequest,
    ) -> Result<
        impl Future<Output = Result<Response<StreamedServiceBody>, CallError>> + Send + use<>,
        RequestRefusal,
    > {
        let HandlerRequest { mut head, body, call, authority, .. } = request;
        if let Some(uri) = self.without_prefix(&head.uri) {
            head.uri = uri;
        }
        path::check_start(head.uri.path())?;
        Ok(self.services.forward(&call, &self.service, Request::from_parts(head, body), authority))
    }

    /// Returns the URI without the route's prefix. `None` if a filter has removed the prefix already.
    fn without_prefix(&self, uri: &Uri) -> Option<Uri> {
        let whole = uri.path_and_query().filter(|_| !self.prefix.is_empty())?;
        let below =
            whole.as_str().strip_prefix(&self.prefix).filter(|below| below.starts_with(['/', '?']))?;
        let below = PathAndQuery::try_from(below).ok()?;
        let mut parts = uri.clone().into_parts();
        parts.path_and_query = Some(below);
        Uri::from_parts(parts).ok()
    }
}
