//! The ways of answering. Each comes from a crate of its own that knows nothing of the others; here
//! they meet as one handler: a request and its call go in, an answer or a problem comes out.

use http::{Request, Response};
use services::{Body, Call, Problem};

use crate::proxy::Proxy;

/// How a route answers.
pub(crate) enum Way {
    /// By running the program in the request.
    Query(query::Query),
    /// By passing the request on.
    Proxy(Proxy),
}

impl Way {
    /// Answers.
    pub(crate) async fn handle(
        &self,
        request: Request<Body>,
        call: Call,
    ) -> Result<Response<Body>, Box<dyn Problem>> {
        match self {
            Self::Query(query) => query.handle(request, call).await,
            Self::Proxy(proxy) => Ok(proxy.handle(request, &call).await?),
        }
    }

    /// Whether a page of a foreign origin must not get this far: a program would run as its visitor.
    /// A proxied service sees the `Origin` itself.
    pub(crate) fn refuses_foreign_pages(&self) -> bool {
        matches!(self, Self::Query(_))
    }
}
