//! The media type that an answer leaves in: what the client likes best of the two that there are.
//!
//! A client that names `application/graphql-response+json` understands statuses; one that takes anything may be older than
//! it, and gets `application/json`, where whatever the document is, the status is 200.

use http::header::ACCEPT;
use http::{HeaderMap, HeaderValue};
use services::accept::{self, Item};

/// The media type of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Media {
    /// `application/graphql-response+json`
    Response,
    /// `application/json`
    Json,
}

/// What asks for [`Media::Response`] by name; the other is its deduplicated form, which is made of it later.
const RESPONSE: [&str; 2] = ["application/graphql-response+json", "application/graphql-dedup+json"];
/// What asks for [`Media::Json`] by name.
const JSON: [&str; 2] = ["application/json", "application/vnd.orfa.dedup+json"];
/// What leaves it to us, the more exact first.
const ANY: [&str; 2] = ["application/*", "*/*"];

impl Media {
    /// The one that the client likes best; `None` if it takes neither.
    pub(crate) fn asked(headers: &HeaderMap) -> Option<Self> {
        if !headers.contains_key(ACCEPT) {
            return Some(Self::Json);
        }
        let any = ANY.iter().find_map(|name| weight(headers, &[name])).unwrap_or(0);
        let (response, json) = (weight(headers, &RESPONSE), weight(headers, &JSON));
        match (response.unwrap_or(0), json.unwrap_or(any)) {
            (0, 0) => (response.is_none() && any > 0).then_some(Self::Response),
            (response, json) if response >= json => Some(Self::Response),
            _ => Some(Self::Json),
        }
    }

    /// What stands in `Content-Type`.
    pub(crate) fn name(self) -> HeaderValue {
        HeaderValue::from_static(match self {
            Self::Response => "application/graphql-response+json; charset=utf-8",
            Self::Json => "application/json; charset=utf-8",
        })
    }
}

/// Whether a browser asks for a page.
pub(crate) fn asks_for_page(headers: &HeaderMap) -> bool {
    let weight = |names: &[&str]| accept::weight(headers, ACCEPT, names).unwrap_or(0);
    let page = weight(&["text/html", "application/xhtml+xml"]);
    page > 0 && page >= weight(&RESPONSE).max(weight(&JSON))
}

/// The most that is said of something by any of its names, in a charset that there is.
fn weight(headers: &HeaderMap, names: &[&str]) -> Option<u16> {
    let is_it = |item: &Item<'_>| names.iter().any(|name| item.name.eq_ignore_ascii_case(name));
    let is_utf8 = |item: &Item<'_>| {
        accept::parameter(item.parameters, "charset")
            .is_none_or(|charset| charset.eq_ignore_ascii_case("utf-8"))
    };
    accept::items(headers, ACCEPT).filter(is_it).filter(is_utf8).map(|item| item.weight).max()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(accept: &str) -> HeaderMap {
        HeaderMap::from_iter([(ACCEPT, HeaderValue::from_str(accept).unwrap())])
    }

    #[test]
    fn who_names_the_type_of_graphql_gets_it_and_who_takes_anything_gets_json() {
        for (accept, expected) in [
            ("application/graphql-response+json", Some(Media::Response)),
            ("application/json", Some(Media::Json)),
            ("application/graphql-response+json, application/json;q=0.9", Some(Media::Response)),
            ("application/graphql-response+json;q=0.8, application/json", Some(Media::Json)),
            ("application/json, application/graphql-response+json", Some(Media::Response)),
            ("APPLICATION/GraphQL-Response+JSON; charset=UTF-8", Some(Media::Response)),
            (
                "application/graphql-dedup+json;v=1, application/graphql-response+json;q=0.9",
                Some(Media::Response),
            ),
            ("*/*", Some(Media::Json)),
            ("application/*", Some(Media::Json)),
            ("text/html, */*;q=0.1", Some(Media::Json)),
            ("application/json;q=0, */*", Some(Media::Response)),
            ("application/graphql-response+json;q=0, */*", Some(Media::Json)),
            ("application/*;q=0, */*", None),
            ("application/json;charset=utf-16", None),
            ("text/html", None),
            ("multipart/mixed", None),
            ("application/json;q=0", None),
        ] {
            assert_eq!(Media::asked(&headers(accept)), expected, "{accept}");
        }
        assert_eq!(Media::asked(&HeaderMap::new()), Some(Media::Json));
    }

    #[test]
    fn a_browser_that_opens_the_address_asks_for_a_page_and_a_program_does_not() {
        for (accept, expected) in [
            ("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", true),
            ("text/html, application/json", true),
            ("application/json, text/html;q=0.5", false),
            ("*/*", false),
        ] {
            assert_eq!(asks_for_page(&headers(accept)), expected, "{accept}");
        }
        assert!(!asks_for_page(&HeaderMap::new()));
    }
}
