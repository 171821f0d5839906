//! GraphiQL for browsers that open the route's address: one page from the binary, without external resources.
//!
//! `scripts/graphiql` builds it from npm packages. The content security policy admits the script by its hash
//! and lets it connect only to the gateway, and no site may embed the page in a frame.

use std::io::Read;
use std::sync::LazyLock;

use bytes::Bytes;
use flate2::read::GzDecoder;
use http::header::{
    ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG,
    HeaderName, IF_NONE_MATCH, REFERRER_POLICY, VARY, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use services::{StreamedServiceBody, accept, body};

/// The page with gzip encoding, which most browsers accept.
const COMPRESSED_PAGE: &[u8] = include_bytes!("../../assets/graphiql/graphiql.html.gz");
/// The hash of its script in Base64.
const SCRIPT_HASH: &str = include_str!("../../assets/graphiql/script.sha256");

/// The headers of the page. Inline styles are allowed, because GraphiQL creates some at run time.
static PAGE_HEADERS: LazyLock<HeaderMap> = LazyLock::new(|| {
    let policy = format!(
        "default-src 'none'; script-src 'sha256-{SCRIPT_HASH}'; style-src 'unsafe-inline'; img-src data:; \
         connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    );
    let tag = format!("\"{}\"", SCRIPT_HASH.trim_end_matches('='));
    let headers: [(HeaderName, &str); 7] = [
        (CONTENT_TYPE, "text/html; charset=utf-8"),
        (CONTENT_SECURITY_POLICY, &policy),
        (ETAG, &tag),
        (CACHE_CONTROL, "no-cache"),
        (VARY, "accept, accept-encoding"),
        (REFERRER_POLICY, "no-referrer"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    headers.into_iter().filter_map(|(name, value)| Some((name, HeaderValue::from_str(value).ok()?))).collect()
});

/// Returns the page for a request with these headers.
pub(crate) async fn graphiql_page(request: &HeaderMap) -> Response<StreamedServiceBody> {
    let mut response = Response::new(body::empty());
    response.headers_mut().clone_from(&PAGE_HEADERS);
    if request.get(IF_NONE_MATCH).is_some_and(|known| Some(known) == PAGE_HEADERS.get(ETAG)) {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
    } else if accept::item_weight(request, ACCEPT_ENCODING, &["gzip", "x-gzip"])
        .is_some_and(|weight| weight > 0)
    {
        response.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        *response.body_mut() = body::full(COMPRESSED_PAGE);
    } else {
        // Decoded for each request, which takes some milliseconds.
        offload::move_to_pool().await;
        *response.body_mut() = body::full(decompressed_page());
    }
    response
}

/// The page without encoding, for clients that do not accept gzip.
#[cfg_attr(not(test), expect(clippy::disallowed_methods, reason = "the page is embedded in the gateway"))]
fn decompressed_page() -> Bytes {
    let mut page = Vec::new();
    let read = GzDecoder::new(COMPRESSED_PAGE).read_to_end(&mut page);
    debug_assert!(read.is_ok(), "the embedded page is valid gzip");
    page.into()
}

#[cfg(test)]
mod tests {
    use base64::Engine;
    use base64::prelude::BASE64_STANDARD;
    use sha2::{Digest, Sha256};

    use super::*;
    use crate::fetch::shop_fixture::count_moves;

    #[tokio::test]
    async fn decodes_the_page_in_the_pool() {
        let is_encoded = |headers: HeaderMap| async move {
            graphiql_page(&headers).await.headers().contains_key(CONTENT_ENCODING)
        };
        assert_eq!(count_moves(is_encoded(HeaderMap::new())).await, (false, 1));
        let gzip = HeaderMap::from_iter([(ACCEPT_ENCODING, HeaderValue::from_static("gzip"))]);
        assert_eq!(count_moves(is_encoded(gzip)).await, (true, 0));
    }

    #[test]
    fn policy_matches_the_script_hash_and_the_page_loads_nothing_external() {
        let page = decompressed_page();
        let page = std::str::from_utf8(&page).unwrap();
        let (_, script) = page.split_once("<script>").unwrap();
        let (script, rest) = script.split_once("</script>").unwrap();
        assert_eq!(BASE64_STANDARD.encode(Sha256::digest(script)), SCRIPT_HASH);
        assert_eq!(rest.trim(), "</html>", "one script");
        for outside in ["src=\"http", "href=\"http", "url(http", "@import", "@font-face"] {
            let head = page.split("<script>").next().unwrap();
            assert!(!head.contains(outside), "{outside}");
        }
    }

    #[tokio::test]
    async fn answers_not_modified_to_a_browser_with_a_current_page() {
        let first = graphiql_page(&HeaderMap::new()).await;
        assert_eq!((first.status(), first.headers().get(CONTENT_ENCODING)), (StatusCode::OK, None));
        let tag = first.headers()[ETAG].clone();
        let again = graphiql_page(&HeaderMap::from_iter([(IF_NONE_MATCH, tag)])).await;
        assert_eq!(again.status(), StatusCode::NOT_MODIFIED);
        let gzip = HeaderMap::from_iter([(ACCEPT_ENCODING, HeaderValue::from_static("gzip, br"))]);
        assert_eq!(graphiql_page(&gzip).await.headers()[CONTENT_ENCODING], "gzip");
    }
}
