//! Validation of every request, independent of its route: framing, host, target and expectation must be
//! unambiguous for every recipient (RFC 9110, RFC 9112, RFC 9113).

use http::uri::{Authority, PathAndQuery};
use http::{HeaderMap, HeaderValue, Request, Uri, Version, header};
use services::headers::SingletonField;
use services::path;

use crate::http_semantics::request_refusal::RequestRefusal;

/// The maximum size of a request's head: four times that of common servers, to allow for large cookies.
pub(crate) const MAX_HEAD: usize = 64 << 10;
/// The maximum number of fields of a head.
pub(crate) const MAX_FIELDS: usize = 100;
/// The maximum number of bytes of a path. A request reads its path several times.
pub(crate) const MAX_PATH: usize = 16 << 10;
/// The maximum number of bytes of a host: a name of 255 bytes (RFC 1035, section 2.3.4) and a port.
const MAX_HOST: usize = 255 + ":65535".len();

/// Normalises the path and query of a request before anything compares them, so that routes, filters,
/// handlers and the log all use the same text. A target that would become too long is left unchanged, and
/// [`validate_request`] rejects it.
pub(crate) fn normalise_target<B>(request: &mut Request<B>) {
    let uri = request.uri();
    let Some(target) = uri.path_and_query().map(PathAndQuery::as_str) else { return };
    // An empty path is `/` (RFC 9110, section 4.2.3).
    let rooted = if target.starts_with('?') { Some(format!("/{target}")) } else { None };
    let normal = path::normalize_target(rooted.as_deref().unwrap_or(target)).or(rooted);
    let Some(target) = normal.and_then(|normal| PathAndQuery::try_from(normal).ok()) else { return };
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(target);
    if let Ok(uri) = Uri::from_parts(parts) {
        *request.uri_mut() = uri;
    }
}

/// Validates a request.
///
/// # Errors
/// The first violation.
pub(crate) fn validate_request<B>(request: &Request<B>) -> Result<(), RequestRefusal> {
    let headers = ValidatedHeaders::from_request(request);
    if headers.fields > MAX_FIELDS {
        return Err(RequestRefusal::HeadTooLarge);
    }
    validate_framing(&headers)?;
    validate_target(request)?;
    validate_host(request, &headers)?;
    if headers.has_unknown_expectation { Err(RequestRefusal::ExpectationFailed) } else { Ok(()) }
}

/// The fields that are validated, found in one pass over the head of every request.
#[derive(Default)]
struct ValidatedHeaders<'a> {
    host: SingletonField<'a>,
    coding: SingletonField<'a>,
    /// Whether there is an expectation other than `100-continue`.
    has_unknown_expectation: bool,
    /// The number of fields. The fragments of a cookie (RFC 9113, section 8.2.3) count as one.
    fields: usize,
}

impl<'a> ValidatedHeaders<'a> {
    fn from_request<B>(request: &'a Request<B>) -> Self {
        let mut headers = Self::default();
        for (name, value) in request.headers() {
            headers.fields += usize::from(*name != header::COOKIE);
            if *name == header::HOST {
                headers.host.add(value);
            } else if *name == header::TRANSFER_ENCODING {
                headers.coding.add(value);
            } else if *name == header::EXPECT {
                headers.has_unknown_expectation |= !equals_ignoring_case(value, b"100-continue");
            }
        }
        headers
    }
}

/// Whether some value begins or ends with whitespace, which is malformed in HTTP/2 (RFC 9113, section 8.2.1).
/// Over HTTP/1.1 it would be stripped, so that a filter and the service behind it would compare different
/// values.
pub(crate) fn has_padded_value(fields: &HeaderMap) -> bool {
    fields.values().any(|value| matches!(value.as_bytes(), [b' ' | b'\t', ..] | [.., b' ' | b'\t']))
}

/// Accepts only `chunked`, the coding that every recipient supports (RFC 9112, section 6.1). The connection
/// checks the remaining framing, which isn't visible any more.
fn validate_framing(headers: &ValidatedHeaders<'_>) -> Result<(), RequestRefusal> {
    match headers.coding.value() {
        Ok(None) => Ok(()),
        Ok(Some(coding)) if equals_ignoring_case(coding, b"chunked") => Ok(()),
        _ => Err(RequestRefusal::AmbiguousFraming),
    }
}

/// Validates the target: its path is not too long, it is ASCII (RFC 3986, section 2), and in absolute form it
/// has an http or https URL without user information (RFC 9110, section 4.2.4).
fn validate_target<B>(request: &Request<B>) -> Result<(), RequestRefusal> {
    let uri = request.uri();
    if uri.path().len() > MAX_PATH {
        return Err(RequestRefusal::PathTooLong);
    }
    let is_web = uri.scheme_str().is_none_or(|scheme| matches!(scheme, "http" | "https"));
    let is_plain = uri.authority().is_none_or(is_plain_authority);
    let is_ascii = uri.path_and_query().is_none_or(|target| target.as_str().is_ascii());
    if is_web && is_plain && is_ascii { Ok(()) } else { Err(RequestRefusal::TargetInvalid) }
}

/// Validates the host: it is not too long, there is at most one, and over HTTP/2 it matches the authority
/// (RFC 9112, section 3.2; RFC 9113, section 8.3.1). Over HTTP/1.1 a target in absolute form replaces it (RFC
/// 9112, section 3.2.2).
fn validate_host<B>(request: &Request<B>, headers: &ValidatedHeaders<'_>) -> Result<(), RequestRefusal> {
    if request.uri().authority().is_some_and(|authority| authority.as_str().len() > MAX_HOST) {
        return Err(RequestRefusal::HostInvalid);
    }
    let Some(host) = headers.host.value().map_err(|_| RequestRefusal::HostInvalid)? else {
        let has_one = request.version() != Version::HTTP_11 || request.uri().authority().is_some();
        return if has_one { Ok(()) } else { Err(RequestRefusal::HostInvalid) };
    };
    if host.len() > MAX_HOST {
        return Err(RequestRefusal::HostInvalid);
    }
    if request.uri().authority().is_none() && is_common_host(host.as_bytes()) {
        return Ok(());
    }
    let host = Authority::try_from(host.as_bytes())
        .ok()
        .filter(is_plain_authority)
        .ok_or(RequestRefusal::HostInvalid)?;
    match request.uri().authority() {
        Some(authority) if request.version() == Version::HTTP_2 && *authority != host => {
            Err(RequestRefusal::HostInvalid)
        }
        _ => Ok(()),
    }
}

/// A fast path for the form of nearly all hosts, a name and an optional port, which avoids parsing.
fn is_common_host(host: &[u8]) -> bool {
    let is_of_name = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-');
    let (name, port) = host.split_at(host.iter().take_while(|byte| is_of_name(byte)).count());
    let is_port = |port: &[u8]| {
        let is_small = port.len() < 5 || (port.len() == 5 && port <= &b"65535"[..]);
        !port.is_empty() && is_small && port.iter().all(u8::is_ascii_digit)
    };
    !name.is_empty() && (port.is_empty() || port.strip_prefix(b":").is_some_and(is_port))
}

/// Whether the authority is only a host with an optional port.
pub(crate) fn is_plain_authority(authority: &Authority) -> bool {
    let port = authority.as_str().strip_prefix(authority.host());
    let is_port = |port: &str| port.is_empty() || port == ":" || authority.port_u16().is_some();
    !authority.host().is_empty() && port.is_some_and(is_port)
}

fn equals_ignoring_case(value: &HeaderValue, expected: &[u8]) -> bool {
    value.as_bytes().eq_ignore_ascii_case(expected)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A request with a normalised target.
    fn normalised_request(target: &str) -> Request<()> {
        let mut request = Request::get(target).header(header::HOST, "shop.example").body(()).unwrap();
        normalise_target(&mut request);
        request
    }

    #[test]
    fn encodes_non_ascii_targets() {
        for (target, expected) in [
            ("/caf\u{e9}?q=\u{9b}\u{202e}", "/caf%C3%A9?q=%C2%9B%E2%80%AE"),
            ("http://shop.example/%61\u{85}", "http://shop.example/a%C2%85"),
            ("http://shop.example?q=%61", "http://shop.example/?q=%61"),
            ("/%2e%2e/x", "/../x"),
            ("/plain?a=%61", "/plain?a=%61"),
            ("*", "*"),
        ] {
            let request = normalised_request(target);
            assert_eq!(request.uri().to_string(), expected, "{target}");
            assert!(validate_request(&request).is_ok(), "{target}");
        }
    }

    #[test]
    fn rejects_targets_that_are_too_long_after_encoding() {
        let request = normalised_request(&format!("/?{}", "\u{e9}".repeat(20_000)));
        assert!(matches!(validate_request(&request), Err(RequestRefusal::TargetInvalid)));
    }

    #[test]
    fn rejects_paths_that_are_too_long() {
        let of = |length: usize| {
            normalised_request(&format!("/{}?{}", "a".repeat(length - 1), "b".repeat(30_000)))
        };
        assert!(validate_request(&of(MAX_PATH)).is_ok());
        assert!(matches!(validate_request(&of(MAX_PATH + 1)), Err(RequestRefusal::PathTooLong)));
    }

    #[test]
    fn rejects_hosts_that_are_too_long() {
        for (length, is_valid) in [(MAX_HOST, true), (MAX_HOST + 1, false)] {
            let host = "a".repeat(length);
            for target in ["/".to_owned(), format!("http://{host}/")] {
                let request = Request::get(&target).header(header::HOST, &host).body(()).unwrap();
                assert_eq!(validate_request(&request).is_ok(), is_valid, "{length} {target}");
            }
            let request = Request::get(format!("http://{host}/")).body(()).unwrap();
            assert_eq!(validate_request(&request).is_ok(), is_valid, "{length}, no field");
        }
    }

    proptest! {
        #[test]
        fn common_hosts_are_plain(host in "[a-z0-9.:@/\\[\\]-]{0,12}") {
            if is_common_host(host.as_bytes()) {
                prop_assert!(Authority::try_from(host.as_bytes()).is_ok_and(|host| is_plain_authority(&host)), "{host}");
            }
        }
    }
}
