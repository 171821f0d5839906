//! The way of answering that passes a request on, and streams the answer back.

use std::sync::Arc;

use http::uri::{PathAndQuery, Uri};
use http::{HeaderName, Request, Response};
use services::{Body, Call, Problem, Services, path};

use crate::config::{ProxyConfig, RouteConfig};
use crate::refusal::Refusal;

/// A route's service, and what of the path it gets.
pub(crate) struct Proxy {
    services: Services,
    service: Arc<services::Service>,
    /// What of the path stays here: `/catalog` of `/catalog/*`.
    prefix: String,
}

impl Proxy {
    /// `None` where there is no such service, which the config's check has seen before.
    pub(crate) fn new(config: &ProxyConfig, route: &RouteConfig, services: &Services) -> Option<Self> {
        let service = Arc::clone(services.get(config.service())?);
        let path = route.normal_path();
        let before = path.strip_suffix("/*").filter(|_| !config.keep_prefix());
        Some(Self { services: services.clone(), service, prefix: before.unwrap_or_default().to_owned() })
    }

    /// The service that gets the request.
    pub(crate) fn service(&self) -> &Arc<str> {
        self.service.name()
    }

    /// The headers that the service's `forward` names.
    pub(crate) fn forwarded(&self) -> &[HeaderName] {
        self.service.forwarded()
    }

    /// Passes the request on.
    ///
    /// # Errors
    /// What is left of the path is refused, or the call has no answer.
    pub(crate) async fn handle(
        &self,
        mut request: Request<Body>,
        call: &Call,
    ) -> Result<Response<Body>, Box<dyn Problem>> {
        if let Some(uri) = self.below(request.uri()) {
            *request.uri_mut() = uri;
        }
        path::check_start(request.uri().path()).map_err(Refusal::from)?;
        Ok(self.services.forward(call, &self.service, request).await?)
    }

    /// The URI without the route's own part of the path, unless a filter has taken that away.
    fn below(&self, uri: &Uri) -> Option<Uri> {
        let whole = uri.path_and_query().filter(|_| !self.prefix.is_empty())?;
        let below =
            whole.as_str().strip_prefix(&self.prefix).filter(|below| below.starts_with(['/', '?']))?;
        let below = PathAndQuery::try_from(below).ok()?;
        let mut parts = uri.clone().into_parts();
        parts.path_and_query = Some(below);
        Uri::from_parts(parts).ok()
    }
}
