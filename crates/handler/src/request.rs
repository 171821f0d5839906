//! The request that a handler receives.

use std::sync::Arc;

use http::uri::Authority;
use http::{Request, request};
use services::{RequestCall, StreamedServiceBody};

use crate::CallerLimits;

/// A client's request for a handler.
#[derive(Debug)]
pub struct HandlerRequest {
    /// The method, the URI and the headers, after the route's filters. Its extensions are empty.
    pub head: request::Parts,
    /// The body, still arriving.
    pub body: StreamedServiceBody,
    /// The context of the calls that are made for the request: the caller, the headers that may be forwarded
    /// to services, the remaining time.
    pub call: RequestCall,
    /// The limits of the caller's programs, in addition to the route's; `None` for no further limits.
    pub caller_limits: Option<Arc<CallerLimits>>,
    /// For each entry of the gateway's catalogue, whether the caller may see it; `None` for other handlers.
    pub visible_entries: Option<Arc<[bool]>>,
    /// The `Host` that a filter has chosen for the service; `None` for the service's own name. It never comes
    /// from the client's headers.
    pub authority: Option<Authority>,
}

impl HandlerRequest {
    /// Creates a request without further arguments.
    #[must_use]
    pub fn new(request: Request<StreamedServiceBody>, call: RequestCall) -> Self {
        let (head, body) = request.into_parts();
        Self { head, body, call, caller_limits: None, visible_entries: None, authority: None }
    }
}
