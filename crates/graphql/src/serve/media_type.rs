//! Negotiation of the response's media type: the client's preferred one of the two supported types.
//!
//! A client that names `application/graphql-response+json` understands statuses. A client that accepts
//! anything may predate that type and receives `application/json`, for which the status is 200 whatever the
//! document.

use http::header::ACCEPT;
use http::{HeaderMap, HeaderValue};
use services::accept::{self, AcceptItem};

/// The media type of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResponseMediaType {
    /// `application/graphql-response+json`
    Response,
    /// `application/json`
    Json,
}

/// The types that request [`ResponseMediaType::Response`]. The second is its deduplicated form, into which it
/// is converted later.
const RESPONSE_TYPES: [&str; 2] = ["application/graphql-response+json", "application/graphql-dedup+json"];
/// The types that request [`ResponseMediaType::Json`].
const JSON_TYPES: [&str; 2] = ["application/json", "application/vnd.orfa.dedup+json"];
/// The ranges that leave the choice to the gateway, the more specific first.
const WILDCARD_TYPES: [&str; 2] = ["application/*", "*/*"];

impl ResponseMediaType {
    /// Returns the client's preferred media type; `None` if it accepts neither.
    pub(crate) fn negotiate(headers: &HeaderMap) -> Option<Self> {
        if !headers.contains_key(ACCEPT) {
            return Some(Self::Json);
        }
        let any = WILDCARD_TYPES.iter().find_map(|name| highest_weight(headers, &[name])).unwrap_or(0);
        let (response, json) =
            (highest_weight(headers, &RESPONSE_TYPES), highest_weight(headers, &JSON_TYPES));
        match (response.unwrap_or(0), json.unwrap_or(any)) {
            (0, 0) => (response.is_none() && any > 0).then_some(Self::Response),
            (response, json) if response >= json => Some(Self::Response),
            _ => Some(Self::Json),
        }
    }

    /// Returns the value of `Content-Type`.
    pub(crate) fn content_type(self) -> HeaderValue {
        HeaderValue::from_static(match self {
            Self::Response => "application/graphql-response+json; charset=utf-8",
            Self::Json => "application/json; charset=utf-8",
        })
    }
}

/// Whether a browser requests a page.
pub(crate) fn accepts_page(headers: &HeaderMap) -> bool {
    let weight = |names: &[&str]| accept::item_weight(headers, ACCEPT, names).unwrap_or(0);
    let page = weight(&["text/html", "application/xhtml+xml"]);
    page > 0 && page >= weight(&RESPONSE_TYPES).max(weight(&JSON_TYPES))
}

/// Returns the highest weight of any of the names, with a charset of UTF-8 or none.
fn highest_weight(headers: &HeaderMap, names: &[&str]) -> Option<u16> {
    let is_it = |item: &AcceptItem<'_>| names.iter().any(|name| item.name.eq_ignore_ascii_case(name));
    let is_utf8 = |item: &AcceptItem<'_>| {
        accept::find_parameter(item.parameters, "charset")
            .is_none_or(|charset| charset.eq_ignore_ascii_case("utf-8"))
    };
    accept::weighted_items(headers, ACCEPT).filter(is_it).filter(is_utf8).map(|item| item.weight).max()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(accept: &str) -> HeaderMap {
        HeaderMap::from_iter([(ACCEPT, HeaderValue::from_str(accept).unwrap())])
    }

    #[test]
    fn selects_the_graphql_type_only_if_named_and_json_by_default() {
        for (accept, expected) in [
            ("application/graphql-response+json", Some(ResponseMediaType::Response)),
            ("application/json", Some(ResponseMediaType::Json)),
            ("application/graphql-response+json, application/json;q=0.9", Some(ResponseMediaType::Response)),
            ("application/graphql-response+json;q=0.8, application/json", Some(ResponseMediaType::Json)),
            ("application/json, application/graphql-response+json", Some(ResponseMediaType::Response)),
            ("APPLICATION/GraphQL-Response+JSON; charset=UTF-8", Some(ResponseMediaType::Response)),
            (
                "application/graphql-dedup+json;v=1, application/graphql-response+json;q=0.9",
                Some(ResponseMediaType::Response),
            ),
            ("*/*", Some(ResponseMediaType::Json)),
            ("application/*", Some(ResponseMediaType::Json)),
            ("text/html, */*;q=0.1", Some(ResponseMediaType::Json)),
            ("application/json;q=0, */*", Some(ResponseMediaType::Response)),
            ("application/graphql-response+json;q=0, */*", Some(ResponseMediaType::Json)),
            ("application/*;q=0, */*", None),
            ("application/json;charset=utf-16", None),
            ("text/html", None),
            ("multipart/mixed", None),
            ("application/json;q=0", None),
        ] {
            assert_eq!(ResponseMediaType::negotiate(&headers(accept)), expected, "{accept}");
        }
        assert_eq!(ResponseMediaType::negotiate(&HeaderMap::new()), Some(ResponseMediaType::Json));
    }

    #[test]
    fn recognises_browsers_that_request_a_page() {
        for (accept, expected) in [
            ("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", true),
            ("text/html, application/json", true),
            ("application/json, text/html;q=0.5", false),
            ("*/*", false),
        ] {
            assert_eq!(accepts_page(&headers(accept)), expected, "{accept}");
        }
        assert!(!accepts_page(&HeaderMap::new()));
    }
}
