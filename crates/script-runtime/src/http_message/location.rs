//! Resolution of `Location` headers relative to the responding resource (RFC 3986, section 5.2).
//!
//! Characters that are not allowed in a URL are encoded, as in browsers; `%2e` is a dot, as in the RFC's
//! normalisation.

use http::HeaderValue;

/// The relevant parts of a URL reference. The fragment is dropped, since only clients use it.
#[derive(Debug, Default, PartialEq, Eq)]
struct UrlReference<'r> {
    scheme: Option<&'r str>,
    authority: Option<&'r str>,
    path: &'r str,
    query: Option<&'r str>,
}

/// The target of a redirect.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum RedirectTarget {
    /// A path, optionally with a query, at the same authority.
    SameAuthority(String),
    /// A complete URL; without a scheme if it has the scheme of the base.
    OtherAuthority(Option<String>, String),
}

impl RedirectTarget {
    /// Resolves the `Location` of a response from `base`, a path with an optional query.
    pub(crate) fn resolve(location: &HeaderValue, base: &str) -> Self {
        let location = encode_url(location.as_bytes());
        let reference = UrlReference::parse(&location);
        let query = reference.query.map(|query| format!("?{query}")).unwrap_or_default();
        if let Some(authority) = reference.authority {
            let path = remove_dot_segments(reference.path);
            return Self::OtherAuthority(
                reference.scheme.map(str::to_owned),
                format!("//{authority}{path}{query}"),
            );
        }
        if let Some(scheme) = reference.scheme {
            return Self::OtherAuthority(Some(scheme.to_owned()), format!("{}{query}", reference.path));
        }
        let base = UrlReference { scheme: None, authority: None, ..UrlReference::parse_path(base) };
        let path = match reference.path {
            "" if reference.query.is_none() => return Self::SameAuthority(join_query(base.path, base.query)),
            "" => base.path.to_owned(),
            path if path.starts_with('/') => remove_dot_segments(path),
            path => {
                let folder = base.path.rsplit_once('/').map_or("", |(folder, _)| folder);
                remove_dot_segments(&format!("{folder}/{path}"))
            }
        };
        Self::SameAuthority(format!("{path}{query}"))
    }
}

impl<'r> UrlReference<'r> {
    fn parse(text: &'r str) -> Self {
        let text = text.split('#').next().unwrap_or_default();
        let is_scheme = |scheme: &str| {
            let mut letters = scheme.bytes();
            letters.next().is_some_and(|first| first.is_ascii_alphabetic())
                && letters.all(|it| it.is_ascii_alphanumeric() || b"+-.".contains(&it))
        };
        let (scheme, rest) = match text.split_once(':').filter(|(scheme, _)| is_scheme(scheme)) {
            Some((scheme, rest)) => (Some(scheme), rest),
            None => (None, text),
        };
        let Some(rest) = rest.strip_prefix("//") else { return Self { scheme, ..Self::parse_path(rest) } };
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, rest) = rest.split_at(end);
        Self { scheme, authority: Some(authority), ..Self::parse_path(rest) }
    }

    fn parse_path(text: &'r str) -> Self {
        let (path, query) = match text.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (text, None),
        };
        Self { path, query, ..Self::default() }
    }
}

fn join_query(path: &str, query: Option<&str>) -> String {
    query.map_or_else(|| path.to_owned(), |query| format!("{path}?{query}"))
}

/// Removes dot segments (RFC 3986, section 5.2.4).
fn remove_dot_segments(path: &str) -> String {
    let mut kept: Vec<&str> = Vec::new();
    let mut segments = path.split('/').peekable();
    while let Some(segment) = segments.next() {
        match count_dots(segment) {
            Some(1) => {}
            // Stops at the root, which is the empty segment at the beginning.
            Some(2) if kept.len() > 1 => drop(kept.pop()),
            Some(2) => {}
            _ => {
                kept.push(segment);
                continue;
            }
        }
        if segments.peek().is_none() {
            kept.push("");
        }
    }
    kept.join("/")
}

/// Returns the number of dots, if a segment consists of nothing else.
fn count_dots(mut segment: &str) -> Option<usize> {
    let mut dots = 0;
    while let Some(rest) = [".", "%2e", "%2E"].iter().find_map(|dot| segment.strip_prefix(dot)) {
        (segment, dots) = (rest, dots + 1);
    }
    segment.is_empty().then_some(dots)
}

/// Converts a header value to a string. Bytes that are not allowed in a URL are percent-encoded.
pub(crate) fn encode_url(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for byte in bytes.trim_ascii() {
        match byte {
            b'!' | b'#'..=b';' | b'=' | b'?'..=b'[' | b']' | b'_' | b'a'..=b'z' | b'~' => {
                text.push(char::from(*byte))
            }
            byte => percent_encode(*byte, &mut text),
        }
    }
    text
}

/// Appends a byte, percent-encoded.
pub(crate) fn percent_encode(byte: u8, text: &mut String) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    text.push('%');
    text.extend([byte >> 4, byte & 15].map(|digit| char::from(HEX[usize::from(digit)])));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolve_from(base: &str, location: &str) -> String {
        match RedirectTarget::resolve(&HeaderValue::from_bytes(location.as_bytes()).expect("a value"), base) {
            RedirectTarget::SameAuthority(path) => path,
            RedirectTarget::OtherAuthority(scheme, rest) => match scheme {
                Some(scheme) => format!("{scheme}:{rest}"),
                None => rest,
            },
        }
    }

    #[test]
    fn resolves_the_examples_of_rfc_3986_section_5_4() {
        let base = "/b/c/d;p?q";
        let normal = [
            ("g:h", "g:h"),
            ("g", "/b/c/g"),
            ("./g", "/b/c/g"),
            ("g/", "/b/c/g/"),
            ("/g", "/g"),
            ("//g", "//g"),
            ("?y", "/b/c/d;p?y"),
            ("g?y", "/b/c/g?y"),
            ("#s", "/b/c/d;p?q"),
            ("g#s", "/b/c/g"),
            ("g?y#s", "/b/c/g?y"),
            (";x", "/b/c/;x"),
            ("g;x?y#s", "/b/c/g;x?y"),
            ("", "/b/c/d;p?q"),
            (".", "/b/c/"),
            ("./", "/b/c/"),
            ("..", "/b/"),
            ("../", "/b/"),
            ("../g", "/b/g"),
            ("../..", "/"),
            ("../../", "/"),
            ("../../g", "/g"),
            ("../../../g", "/g"),
            ("../../../../g", "/g"),
            ("/./g", "/g"),
            ("/../g", "/g"),
            ("g.", "/b/c/g."),
            (".g", "/b/c/.g"),
            ("g..", "/b/c/g.."),
            ("..g", "/b/c/..g"),
            ("./../g", "/b/g"),
            ("./g/.", "/b/c/g/"),
            ("g/./h", "/b/c/g/h"),
            ("g/../h", "/b/c/h"),
            ("g;x=1/./y", "/b/c/g;x=1/y"),
            ("g;x=1/../y", "/b/c/y"),
            ("g?y/./x", "/b/c/g?y/./x"),
            ("g?y/../x", "/b/c/g?y/../x"),
        ];
        for (location, expected) in normal {
            assert_eq!(resolve_from(base, location), expected, "{location}");
        }
    }

    #[test]
    fn encodes_invalid_characters_and_treats_encoded_dots_as_dots() {
        assert_eq!(resolve_from("/a/b", "/ä b\\c"), "/%C3%A4%20b%5Cc");
        assert_eq!(resolve_from("/a/b", "%2e%2E/x"), "/x");
        assert_eq!(resolve_from("/a/b", "https://host/x/../y?z#w"), "https://host/y?z");
        assert_eq!(resolve_from("/a/b", "//host?z"), "//host?z");
        assert_eq!(resolve_from("/", "x:y"), "x:y");
        assert_eq!(resolve_from("/", "?a=b://c"), "/?a=b://c", "the colon is in the query");
    }
}
