//! HTTP responses with a result or with errors, in the negotiated media type.

use handler::HandlerResponse;
use http::header::{CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, HeaderValue, VARY};
use http::{Response, StatusCode};
use json::JsonTree;
use serde_json::Value;
use services::body;

use super::media_type::ResponseMediaType;

/// Creates the response for a tree, with the tree itself for deduplication.
pub(crate) fn build_response(
    tree: JsonTree,
    status: StatusCode,
    media: ResponseMediaType,
    is_head: bool,
) -> HandlerResponse {
    let length = tree.len();
    let mut response = Response::new(match is_head {
        true => body::empty(),
        false => body::from_pieces(length, tree.clone().pieces()),
    });
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, media.content_type());
    headers.insert(CONTENT_LENGTH, length.into());
    headers.insert(VARY, const { HeaderValue::from_static("accept") });
    HandlerResponse { json_tree: (!is_head).then_some(tree), ..response.into() }
}

/// Creates the response for errors without execution.
pub(crate) fn error_response(
    errors: &[Value],
    status: StatusCode,
    media: ResponseMediaType,
    is_head: bool,
) -> HandlerResponse {
    let text = serde_json::json!({ "errors": errors }).to_string();
    with_no_store(build_response(JsonTree::Text(text.into()), status, media, is_head))
}

/// Marks a response with errors as `no-store`. The next request may succeed, and without the header each
/// cache would apply its own heuristics (RFC 9111, 4.2.2).
pub(crate) fn with_no_store(mut answer: HandlerResponse) -> HandlerResponse {
    answer.response.headers_mut().insert(CACHE_CONTROL, const { HeaderValue::from_static("no-store") });
    answer
}
