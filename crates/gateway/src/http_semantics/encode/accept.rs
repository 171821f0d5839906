//! Negotiation of the content coding.

use http::HeaderMap;
use http::header::ACCEPT_ENCODING;
use services::accept;

use crate::config::ContentCodingKind;

/// Returns the coding to use: the first of those with the highest weight.
pub(super) fn select_coding(codings: &[ContentCodingKind], headers: &HeaderMap) -> Option<ContentCodingKind> {
    if !headers.contains_key(ACCEPT_ENCODING) {
        return None;
    }
    let weight = |names: &[&str]| accept::item_weight(headers, ACCEPT_ENCODING, names);
    let others = weight(&["*"]).unwrap_or(0);
    let mut best = (weight(&["identity"]).unwrap_or(0).max(1), None);
    for &coding in codings {
        let said = match coding {
            ContentCodingKind::Gzip => weight(&["gzip", "x-gzip"]),
            coding => weight(&[coding.name()]),
        };
        let weight = said.unwrap_or(others);
        // On equal weight with the identity coding, the server may choose.
        if weight > best.0 || (weight == best.0 && best.1.is_none()) {
            best = (weight, Some(coding));
        }
    }
    best.1
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn selected_coding(accept: &str) -> Option<&'static str> {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_str(accept).unwrap());
        select_coding(
            &[ContentCodingKind::Zstd, ContentCodingKind::Brotli, ContentCodingKind::Gzip],
            &headers,
        )
        .map(ContentCodingKind::name)
    }

    #[test]
    fn client_weights_precede_the_servers_order() {
        for (accept, expected) in [
            ("gzip, deflate, br, zstd", Some("zstd")),
            ("gzip, deflate, br", Some("br")),
            ("gzip;q=1.0, br;q=0.9, zstd;q=0", Some("gzip")),
            ("GZIP", Some("gzip")),
            ("x-gzip", Some("gzip")),
            ("gzip ; Q = 0.001", Some("gzip")),
            ("*", Some("zstd")),
            ("*;q=0.5, br;q=0.4", Some("zstd")),
            ("identity;q=0, *;q=0.1", Some("zstd")),
            ("gzip, identity", Some("gzip")),
            ("identity, gzip;q=0.5", None),
            ("identity", None),
            ("deflate, compress", None),
            ("gzip;q=0", None),
            ("gzip;q=0.000, *;q=0", None),
            ("gzip;q=2", None),
            ("gzip;q=0.0001", None),
            ("gzip;q=-1, br;q=x", None),
            ("", None),
        ] {
            assert_eq!(selected_coding(accept), expected, "{accept}");
        }
    }

    #[test]
    fn no_accept_encoding_selects_no_coding() {
        assert_eq!(select_coding(&[ContentCodingKind::Gzip], &HeaderMap::new()), None);
    }
}
