//! Encoding of responses: deduplication (`dedup.rs`) followed by compression, each if the client accepts it
//! (RFC 9110, sections 8.4 and 12).
//!
//! Encoding runs after the filters and before the access log: filters see the handler's response, and the log
//! counts the bytes that leave. A response is left unchanged if it is already encoded, partial, digested, or
//! must not be transformed.
//!
//! A short text that is complete is compressed at once, with contexts that each thread reuses. Everything
//! else is compressed in chunks as it arrives (`compressed_body.rs`).

mod accept;
mod coding;
mod compressed_body;
mod dedup;
mod head;
#[cfg(test)]
mod tests;

use futures_util::{FutureExt, StreamExt, stream};
use handler::HandlerResponse;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use http_body::Body as _;
use http_body_util::{BodyExt, BodyStream, StreamBody};
use services::{StreamedServiceBody, body};

use compressed_body::CompressedBody;
use dedup::AcceptedForms;
pub(crate) use dedup::DedupAccount;

use super::client::ClientInfo;
use super::unsent_bytes;
use crate::config::{CompressConfig, ContentCodingKind, RouteConfig};

pub(crate) use head::add_vary;

/// The unsent bytes that an encoder counts for while its response is in flight: its window and its tables.
const ENCODER_MEMORY: u64 = 1 << 20;

/// The encoding settings of a route.
#[derive(Clone, Debug)]
pub(crate) struct EncodingConfigState {
    dedup_enabled: bool,
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
    if_none_match: Option<HeaderValue>,
}

impl EncodingConfigState {
    /// Creates the settings of a route from its own config or else the global one. `is_ours` if the gateway
    /// generates the responses.
    pub(crate) fn new(route: &RouteConfig, all: Option<&CompressConfig>, is_ours: bool) -> Self {
        Self { dedup_enabled: route.dedup, ..Self::without_dedup(route.compress.as_ref().or(all), is_ours) }
    }

    /// Creates the settings for responses without repetition, which are never deduplicated.
    pub(crate) fn without_dedup(compress: Option<&CompressConfig>, is_ours: bool) -> Self {
        let options = match compress {
            Some(config) => config.options(),
            None => is_ours.then(Default::default),
        };
        let compress =
            options.map(|options| CompressionSettings { min: options.min.0, codings: options.codings });
        Self { dedup_enabled: false, compress }
    }

    /// Extracts the parts of a request that determine the encoding.
    pub(crate) fn accepted_encodings<B>(&self, request: &Request<B>) -> AcceptedEncodings {
        let headers = request.headers();
        AcceptedEncodings {
            forms: if self.dedup_enabled { AcceptedForms::from_accept(headers) } else { None },
            coding: self
                .compress
                .as_ref()
                .and_then(|compress| accept::select_coding(&compress.codings, headers)),
            is_head: request.method() == Method::HEAD,
            if_none_match: headers.get(header::IF_NONE_MATCH).cloned(),
        }
    }

    /// Encodes the response. `account` returns the quota to charge for long computations, and their deadline.
    pub(crate) async fn encode<'a>(
        &self,
        encodings: AcceptedEncodings,
        account: impl FnOnce() -> DedupAccount<'a>,
        mut answer: HandlerResponse,
        client: &ClientInfo,
    ) -> Response<StreamedServiceBody> {
        if answer.response.status() == StatusCode::NOT_MODIFIED {
            let headers = answer.response.headers_mut();
            encodings.if_none_match.iter().for_each(|known| head::restore_weak_etag(headers, known));
            self.set_vary(headers);
            return answer.response;
        }
        if self.dedup_enabled {
            dedup::vary_if_dedupable(encodings.is_head, &mut answer.response);
            if let Some(forms) = encodings.forms.filter(|_| !encodings.is_head) {
                // Boxed, since all other requests would otherwise reserve its space.
                answer = Box::pin(dedup::dedup_response(forms, account(), answer, client)).await;
            }
        }
        let response = unsent_bytes::count_unsent(answer, client);
        match &self.compress {
            Some(compress) => compress.compress_response(&encodings, response, client),
            None => response,
        }
    }

    /// Sets the `Vary` header of the 304 to that of the 200: a cache updates its stored response with it (RFC
    /// 9110, section 15.4.5).
    fn set_vary(&self, headers: &mut HeaderMap) {
        if self.dedup_enabled {
            head::add_vary(headers, "accept");
        }
        if self.compress.is_some() {
            head::add_vary(headers, "accept-encoding");
        }
    }
}

impl CompressionSettings {
    fn compress_response(
        &self,
        encodings: &AcceptedEncodings,
        mut response: Response<StreamedServiceBody>,
        client: &ClientInfo,
    ) -> Response<StreamedServiceBody> {
        let size = body_size(&response, encodings.is_head);
        if size.is_some_and(|size| size < self.min.max(1))
            || !head::is_transformable(&response)
            || !head::is_compressible(response.headers())
        {
            return response;
        }
        head::add_vary(response.headers_mut(), "accept-encoding");
        match encodings.coding {
            None => response,
            Some(coding) if encodings.is_head => {
                head::mark_encoded(response.headers_mut(), coding);
                response.map(|_| body::empty())
            }
            Some(coding) => compress_body(coding, size, response, client),
        }
    }
}

/// The length of the response body, if it is known.
fn body_size(response: &Response<StreamedServiceBody>, is_head: bool) -> Option<u64> {
    let said = || response.headers().get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok();
    if is_head { said() } else { response.body().size_hint().exact() }
}

/// Compresses the body: at once if it is complete and short, or else in chunks as it arrives, with yields in
/// between. It stays plain if the client already has too many unsent bytes.
fn compress_body(
    coding: ContentCodingKind,
    size: Option<u64>,
    response: Response<StreamedServiceBody>,
    client: &ClientInfo,
) -> Response<StreamedServiceBody> {
    let (mut head, mut body) = response.into_parts();
    let is_short = size.is_some_and(|size| size <= coding.yield_interval() as u64);
    let first = if is_short { body.frame().now_or_never().flatten() } else { None };
    if body.is_end_stream()
        && let Some(Ok(frame)) = &first
        && let Some(text) = frame.data_ref()
    {
        let Some(shorter) = coding.encode_whole(text) else {
            return Response::from_parts(head, body::full(text.clone()));
        };
        head::mark_encoded(&mut head.headers, coding);
        return Response::from_parts(head, body::full(shorter));
    }
    let Ok(permit) = client.reserve_unsent(ENCODER_MEMORY) else {
        let frames = stream::iter(first).chain(BodyStream::new(body));
        return Response::from_parts(head, StreamBody::new(frames).boxed_unsync());
    };
    head::mark_encoded(&mut head.headers, coding);
    Response::from_parts(head, CompressedBody::new(coding, size, first, body, permit).boxed_unsync())
}
