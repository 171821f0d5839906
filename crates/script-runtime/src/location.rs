//! Where a `Location` leads, by RFC 3986, 5.2: relative to where the answer came from.
//!
//! What is no character of a URL is encoded, as browsers do it; `%2e` is a dot, as the RFC's normalisation has it.

use http::HeaderValue;

/// The parts of a reference that count; what is behind a `#` is the reader's own.
#[derive(Debug, Default, PartialEq, Eq)]
struct Reference<'r> {
    scheme: Option<&'r str>,
    authority: Option<&'r str>,
    path: &'r str,
    query: Option<&'r str>,
}

/// What a redirect leads to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Destination {
    /// A path and perhaps a query of the same authority.
    Here(String),
    /// A whole URL; without a scheme if it is that of where it comes from.
    Elsewhere(Option<String>, String),
}

impl Destination {
    /// Of a `Location` in an answer from this path, and perhaps query.
    pub(crate) fn of(location: &HeaderValue, base: &str) -> Self {
        let location = encoded(location.as_bytes());
        let reference = Reference::of(&location);
        let query = reference.query.map(|query| format!("?{query}")).unwrap_or_default();
        if let Some(authority) = reference.authority {
            let path = without_dots(reference.path);
            return Self::Elsewhere(
                reference.scheme.map(str::to_owned),
                format!("//{authority}{path}{query}"),
            );
        }
        if let Some(scheme) = reference.scheme {
            return Self::Elsewhere(Some(scheme.to_owned()), format!("{}{query}", reference.path));
        }
        let base = Reference { scheme: None, authority: None, ..Reference::path_of(base) };
        let path = match reference.path {
            "" if reference.query.is_none() => return Self::Here(join(base.path, base.query)),
            "" => base.path.to_owned(),
            path if path.starts_with('/') => without_dots(path),
            path => {
                let folder = base.path.rsplit_once('/').map_or("", |(folder, _)| folder);
                without_dots(&format!("{folder}/{path}"))
            }
        };
        Self::Here(format!("{path}{query}"))
    }
}

impl<'r> Reference<'r> {
    fn of(text: &'r str) -> Self {
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
        let Some(rest) = rest.strip_prefix("//") else { return Self { scheme, ..Self::path_of(rest) } };
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, rest) = rest.split_at(end);
        Self { scheme, authority: Some(authority), ..Self::path_of(rest) }
    }

    fn path_of(text: &'r str) -> Self {
        let (path, query) = match text.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (text, None),
        };
        Self { path, query, ..Self::default() }
    }
}

fn join(path: &str, query: Option<&str>) -> String {
    query.map_or_else(|| path.to_owned(), |query| format!("{path}?{query}"))
}

/// RFC 3986, 5.2.4.
fn without_dots(path: &str) -> String {
    let mut kept: Vec<&str> = Vec::new();
    let mut segments = path.split('/').peekable();
    while let Some(segment) = segments.next() {
        let dots = segment.replace("%2e", ".").replace("%2E", ".");
        match &*dots {
            "." => {}
            // Not above the root, which is the empty segment at the beginning.
            ".." if kept.len() > 1 => drop(kept.pop()),
            ".." => {}
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

/// The text of a header's value. Bytes that no URL has are percent-encoded.
pub(crate) fn encoded(bytes: &[u8]) -> String {
    use std::fmt::Write;

    let mut text = String::with_capacity(bytes.len());
    for byte in bytes.trim_ascii() {
        match byte {
            b'!' | b'#'..=b';' | b'=' | b'?'..=b'[' | b']' | b'_' | b'a'..=b'z' | b'~' => {
                text.push(char::from(*byte))
            }
            byte => {
                let _ = write!(text, "%{byte:02X}"); // Writing into memory does not fail.
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(base: &str, location: &str) -> String {
        match Destination::of(&HeaderValue::from_bytes(location.as_bytes()).expect("a value"), base) {
            Destination::Here(path) => path,
            Destination::Elsewhere(scheme, rest) => match scheme {
                Some(scheme) => format!("{scheme}:{rest}"),
                None => rest,
            },
        }
    }

    #[test]
    fn rfc_3986_5_4_the_examples_of_the_standard() {
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
            assert_eq!(from(base, location), expected, "{location}");
        }
    }

    #[test]
    fn what_no_url_has_is_encoded_and_encoded_dots_are_dots() {
        assert_eq!(from("/a/b", "/ä b\\c"), "/%C3%A4%20b%5Cc");
        assert_eq!(from("/a/b", "%2e%2E/x"), "/x");
        assert_eq!(from("/a/b", "https://host/x/../y?z#w"), "https://host/y?z");
        assert_eq!(from("/a/b", "//host?z"), "//host?z");
        assert_eq!(from("/", "x:y"), "x:y");
        assert_eq!(from("/", "?a=b://c"), "/?a=b://c", "a query is no scheme");
    }
}
