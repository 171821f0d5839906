//! Encoding of responses: deduplication (`dedup.rs`) followed by compression, each if the client accepts it
//! (RFC 9110, sections 8.4 and 12).
//!
//! Encoding runs after the filters and before the access log: filters see the handler's response, and the log
//! counts the bytes that leave. A response is left unchanged if it is already encoded, partial, digested, or
//! must not be transformed.
//!
//! A short text that is complete is compressed at once, with contexts that each thread reuses. Everything
//! else is compressed in chunks as it arrives (`compressed.rs`).

mod accept;
mod coding;
mod compressed;
pub(crate) mod config;
mod dedup;
mod head;
#[cfg(test)]
mod tests;

use futures_util::{FutureExt, StreamExt, stream};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use http_body::Body as _;
use http_body_util::{BodyExt, BodyStream, StreamBody};
use services::{StreamedServiceBody, body};

use coding::ContentCodingKind;
use compressed::CompressedBody;
use config::CompressConfig;
use dedup::AcceptedForms;
pub(crate) use dedup::DedupAccount;

use crate::client::ClientInfo;
use crate::config::RouteConfig;
use crate::unsent;

pub(crate) use head::vary;

/// The unsent bytes that an encoder counts for while its response is in flight: its window and its tables.
const ENCODER: u64 = 1 << 20;

/// The encoding settings of a route.
#[derive(Clone, Debug)]
pub(crate) struct EncodingConfigState {
    dedups: bool,
    compress: Option<CompressionSettings>,
}

/// The compression settings of a route.
#[derive(Clone, Debug)]
struct CompressionSettings {
    /// The minimum size. Shorter texts are not compressed.
    min: u64,
    /// The codings in order of preference.
    codings: Vec<ContentCodingKind>,
}

/// The parts of a request that determine the encoding of its response.
#[derive(Debug, Default)]
pub(crate) struct AcceptedEncodings {
    forms: Option<AcceptedForms>,
    coding: Option<ContentCodingKind>,
    is_head: bool,
    /// The entity tags of the client's cached responses.
    known: Option<HeaderValue>,
}

impl EncodingConfigState {
    /// Creates the settings of a route from its own config or else the global one. `is_ours` if the gateway
    /// generates the responses.
    pub(crate) fn new(route: &RouteConfig, all: Option<&CompressConfig>, is_ours: bool) -> Self {
        Self { dedups: route.dedup, ..Self::plain(route.compress.as_ref().or(all), is_ours) }
    }

    /// Creates the settings for responses without repetition, which are never deduplicated.
    pub(crate) fn plain(compress: Option<&CompressConfig>, is_ours: bool) -> Self {
        let options = match compress {
            Some(config) => config.options(),
            None => is_ours.then(Default::default),
        };
        let compress =
            options.map(|options| CompressionSettings { min: options.min.0, codings: options.codings });
        Self { dedups: false, compress }
    }

    /// Extracts the parts of a request that determine the encoding.
    pub(crate) fn asked<B>(&self, request: &Request<B>) -> AcceptedEncodings {
        let headers = request.headers();
        AcceptedEncodings {
            forms: if self.dedups { AcceptedForms::asked(headers) } else { None },
            coding: self.compress.as_ref().and_then(|compress| accept::coding(&compress.codings, headers)),
            is_head: request.method() == Method::HEAD,
            known: headers.get(header::IF_NONE_MATCH).cloned(),
        }
    }

    /// Encodes the response. `account` returns the quota to charge for long computations, and their deadline.
    pub(crate) async fn encode<'a>(
        &self,
        asked: AcceptedEncodings,
        account: impl FnOnce() -> DedupAccount<'a>,
        mut response: Response<StreamedServiceBody>,
        client: &ClientInfo,
    ) -> Response<StreamedServiceBody> {
        if response.status() == StatusCode::NOT_MODIFIED {
            let headers = response.headers_mut();
            asked.known.iter().for_each(|known| head::name_as_known(headers, known));
            self.vary(headers);
            return response;
        }
        if self.dedups {
            response = match asked.forms.filter(|_| !asked.is_head) {
                // Boxed, since all other requests would otherwise reserve its space.
                Some(forms) => Box::pin(dedup::apply(forms, account(), response, client)).await,
                None => dedup::offered(asked.is_head, response),
            };
        }
        let response = unsent::keep(response, client);
        match &self.compress {
            Some(compress) => compress.apply(&asked, response, client),
            None => response,
        }
    }

    /// Sets the `Vary` header of the 304 to that of the 200: a cache updates its stored response with it (RFC
    /// 9110, section 15.4.5).
    fn vary(&self, headers: &mut HeaderMap) {
        if self.dedups {
            head::vary(headers, "accept");
        }
        if self.compress.is_some() {
            head::vary(headers, "accept-encoding");
        }
    }
}

impl CompressionSettings {
    fn apply(
        &self,
        asked: &AcceptedEncodings,
        mut response: Response<StreamedServiceBody>,
        client: &ClientInfo,
    ) -> Response<StreamedServiceBody> {
        let size = size(&response, asked.is_head);
        if size.is_some_and(|size| size < self.min.max(1))
            || !head::is_open(&response)
            || !head::is_worth(response.headers())
        {
            return response;
        }
        head::vary(response.headers_mut(), "accept-encoding");
        match asked.coding {
            None => response,
            Some(coding) if asked.is_head => {
                head::encode(response.headers_mut(), coding);
                response.map(|_| body::empty())
            }
            Some(coding) => compressed(coding, size, response, client),
        }
    }
}

/// The length of the response body, if it is known.
fn size(response: &Response<StreamedServiceBody>, is_head: bool) -> Option<u64> {
    let said = || response.headers().get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok();
    if is_head { said() } else { response.body().size_hint().exact() }
}

/// Compresses the body: at once if it is complete and short, or else in chunks as it arrives, with yields in
/// between. It stays plain if the client already has too many unsent bytes.
fn compressed(
    coding: ContentCodingKind,
    size: Option<u64>,
    response: Response<StreamedServiceBody>,
    client: &ClientInfo,
) -> Response<StreamedServiceBody> {
    let (mut head, mut body) = response.into_parts();
    let is_short = size.is_some_and(|size| size <= coding.turn() as u64);
    let first = if is_short { body.frame().now_or_never().flatten() } else { None };
    if body.is_end_stream()
        && let Some(Ok(frame)) = &first
        && let Some(text) = frame.data_ref()
    {
        let Some(shorter) = coding.whole(text) else {
            return Response::from_parts(head, body::full(text.clone()));
        };
        head::encode(&mut head.headers, coding);
        return Response::from_parts(head, body::full(shorter));
    }
    let Ok(permit) = client.keep(ENCODER) else {
        let frames = stream::iter(first).chain(BodyStream::new(body));
        return Response::from_parts(head, StreamBody::new(frames).boxed_unsync());
    };
    head::encode(&mut head.headers, coding);
    Response::from_parts(head, CompressedBody::new(coding, size, first, body, permit).boxed_unsync())
}
