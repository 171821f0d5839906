//! HTTP responses with a result or with errors, in the negotiated media type.

use http::header::{CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, HeaderValue, VARY};
use http::{Response, StatusCode};
use json::JsonTree;
use serde_json::Value;
use services::{StreamedServiceBody, body};

use super::media::ResponseMediaType;

/// Creates the response for a tree. The tree is also attached as an extension, for deduplication.
pub(crate) fn response(
    tree: JsonTree,
    status: StatusCode,
    media: ResponseMediaType,
    is_head: bool,
) -> Response<StreamedServiceBody> {
    let length = tree.len();
    let mut response = Response::new(match is_head {
        true => body::empty(),
        false => body::from_pieces(length, tree.clone().pieces()),
    });
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, media.name());
    headers.insert(CONTENT_LENGTH, length.into());
    headers.insert(VARY, const { HeaderValue::from_static("accept") });
    if !is_head {
        response.extensions_mut().insert(tree);
    }
    response
}

/// Creates the response for errors without execution.
pub(crate) fn errors(
    errors: &[Value],
    status: StatusCode,
    media: ResponseMediaType,
    is_head: bool,
) -> Response<StreamedServiceBody> {
    let text = serde_json::json!({ "errors": errors }).to_string();
    not_kept(response(JsonTree::Text(text.into()), status, media, is_head))
}

/// Marks a response with errors as `no-store`. The next request may succeed, and without the header each
/// cache would apply its own heuristics (RFC 9111, 4.2.2).
pub(crate) fn not_kept(mut response: Response<StreamedServiceBody>) -> Response<StreamedServiceBody> {
    response.headers_mut().insert(CACHE_CONTROL, const { HeaderValue::from_static("no-store") });
    response
}
