//! The response: what came of an operation, or why there is none, in the media type that the client likes best.

use http::header::{CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, HeaderValue, VARY};
use http::{Response, StatusCode};
use json::Tree;
use serde_json::Value;
use services::{Body, body};

use super::media::Media;

/// The response that says a tree, which goes along for who deduplicates.
pub(crate) fn response(tree: Tree, status: StatusCode, media: Media, is_head: bool) -> Response<Body> {
    let length = tree.len();
    let mut response = Response::new(match is_head {
        true => body::empty(),
        false => body::pieces(length, tree.clone().pieces()),
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

/// The response that says errors, and nothing was executed. The log is told the first one's code.
pub(crate) fn errors(errors: &[Value], status: StatusCode, media: Media, is_head: bool) -> Response<Body> {
    let text = serde_json::json!({ "errors": errors }).to_string();
    not_kept(response(Tree::Text(text.into()), status, media, is_head))
}

/// Keeps caches from a response with errors: a document may be known with the next request, and a service answer, which a response
/// without a word leaves to each cache's own judgement (RFC 9111, 4.2.2).
pub(crate) fn not_kept(mut response: Response<Body>) -> Response<Body> {
    response.headers_mut().insert(CACHE_CONTROL, const { HeaderValue::from_static("no-store") });
    response
}
