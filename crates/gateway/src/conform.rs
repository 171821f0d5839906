//! What every request has to be, whatever its route: its framing, its host, its target and its expectation
//! mean the same to everybody who reads it (RFC 9110, RFC 9112, RFC 9113).

use http::uri::{Authority, PathAndQuery};
use http::{HeaderMap, HeaderValue, Request, Uri, Version, header};
use services::headers::Only;
use services::path;

use crate::refusal::Refusal;

/// The most fields of a head.
pub(crate) const MAX_FIELDS: usize = 100;

/// Puts the path and query of a request into normal form, before anything compares them: routes, filters, handlers and
/// the log then see the same text. One that would become too long stays as it is, and [`check`] refuses it.
pub(crate) fn normalise_target<B>(request: &mut Request<B>) {
    let uri = request.uri();
    let normal = uri.path_and_query().and_then(|target| path::normal_form(target.as_str()));
    let Some(target) = normal.and_then(|normal| PathAndQuery::try_from(normal).ok()) else { return };
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(target);
    if let Ok(uri) = Uri::from_parts(parts) {
        *request.uri_mut() = uri;
    }
}

/// Whether a request is one.
///
/// # Errors
/// The first reason why it is none.
pub(crate) fn check<B>(request: &Request<B>) -> Result<(), Refusal> {
    let said = Said::of(request);
    if said.fields > MAX_FIELDS {
        return Err(Refusal::HeadTooLarge);
    }
    framing(&said)?;
    target(request)?;
    host(request, &said)?;
    if said.expects_else { Err(Refusal::ExpectationFailed) } else { Ok(()) }
}

/// The fields that count here, found in one pass: every request is asked for all of them, and most have one.
#[derive(Default)]
struct Said<'a> {
    host: Only<'a>,
    coding: Only<'a>,
    /// Something else than to be told to go on.
    expects_else: bool,
    /// How many there are; the crumbs of a cookie (RFC 9113, 8.2.3) are one.
    fields: usize,
}

impl<'a> Said<'a> {
    fn of<B>(request: &'a Request<B>) -> Self {
        let mut said = Self::default();
        for (name, value) in request.headers() {
            said.fields += usize::from(*name != header::COOKIE);
            if *name == header::HOST {
                said.host.add(value);
            } else if *name == header::TRANSFER_ENCODING {
                said.coding.add(value);
            } else if *name == header::EXPECT {
                said.expects_else |= !is(value, b"100-continue");
            }
        }
        said
    }
}

/// Whether some value begins or ends with a blank, which is malformed in HTTP/2 (RFC 9113, 8.2.1). Over HTTP/1.1 a value
/// loses it, so that a filter and the service behind it would compare different values.
pub(crate) fn has_padded_value(fields: &HeaderMap) -> bool {
    fields.values().any(|value| matches!(value.as_bytes(), [b' ' | b'\t', ..] | [.., b' ' | b'\t']))
}

/// The one coding that every recipient knows (RFC 9112, section 6.1). The connection has looked for the
/// rest of it, which can't be seen any longer.
fn framing(said: &Said<'_>) -> Result<(), Refusal> {
    match said.coding.value() {
        Ok(None) => Ok(()),
        Ok(Some(coding)) if is(coding, b"chunked") => Ok(()),
        _ => Err(Refusal::FramingDoubtful),
    }
}

/// A target is ASCII (RFC 3986, section 2); in absolute form it names a host of the web, and no user in it (RFC 9110,
/// section 4.2.4).
fn target<B>(request: &Request<B>) -> Result<(), Refusal> {
    let uri = request.uri();
    let is_web = uri.scheme_str().is_none_or(|scheme| matches!(scheme, "http" | "https"));
    let is_plain = uri.authority().is_none_or(is_plain);
    let is_ascii = uri.path_and_query().is_none_or(|target| target.as_str().is_ascii());
    if is_web && is_plain && is_ascii { Ok(()) } else { Err(Refusal::TargetInvalid) }
}

/// One host, said once, and over HTTP/2 the same twice (RFC 9112, 3.2; RFC 9113, 8.3.1). Over HTTP/1.1 a
/// target in absolute form replaces it (RFC 9112, 3.2.2).
fn host<B>(request: &Request<B>, said: &Said<'_>) -> Result<(), Refusal> {
    let Some(host) = said.host.value().map_err(|_| Refusal::HostInvalid)? else {
        let has_one = request.version() != Version::HTTP_11 || request.uri().authority().is_some();
        return if has_one { Ok(()) } else { Err(Refusal::HostInvalid) };
    };
    if request.uri().authority().is_none() && is_common(host.as_bytes()) {
        return Ok(());
    }
    let host = Authority::try_from(host.as_bytes()).ok().filter(is_plain).ok_or(Refusal::HostInvalid)?;
    match request.uri().authority() {
        Some(authority) if request.version() == Version::HTTP_2 && *authority != host => {
            Err(Refusal::HostInvalid)
        }
        _ => Ok(()),
    }
}

/// Whether it is what nearly every host is, which need not be taken apart: a name and perhaps a port.
fn is_common(host: &[u8]) -> bool {
    let is_of_name = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-');
    let (name, port) = host.split_at(host.iter().take_while(|byte| is_of_name(byte)).count());
    let is_port = |port: &[u8]| {
        let is_small = port.len() < 5 || (port.len() == 5 && port <= &b"65535"[..]);
        !port.is_empty() && is_small && port.iter().all(u8::is_ascii_digit)
    };
    !name.is_empty() && (port.is_empty() || port.strip_prefix(b":").is_some_and(is_port))
}

/// A host and perhaps a port, and nothing else.
pub(crate) fn is_plain(authority: &Authority) -> bool {
    let port = authority.as_str().strip_prefix(authority.host());
    let is_port = |port: &str| port.is_empty() || port == ":" || authority.port_u16().is_some();
    !authority.host().is_empty() && port.is_some_and(is_port)
}

fn is(value: &HeaderValue, expected: &[u8]) -> bool {
    value.as_bytes().eq_ignore_ascii_case(expected)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The target that a request is looked at with.
    fn normalised(target: &str) -> Request<()> {
        let mut request = Request::get(target).header(header::HOST, "shop.example").body(()).unwrap();
        normalise_target(&mut request);
        request
    }

    #[test]
    fn a_target_outside_of_ascii_is_encoded_in_every_form() {
        for (target, expected) in [
            ("/caf\u{e9}?q=\u{9b}\u{202e}", "/caf%C3%A9?q=%C2%9B%E2%80%AE"),
            ("http://shop.example/%61\u{85}", "http://shop.example/a%C2%85"),
            ("/%2e%2e/x", "/../x"),
            ("/plain?a=%61", "/plain?a=%61"),
            ("*", "*"),
        ] {
            let request = normalised(target);
            assert_eq!(request.uri().to_string(), expected, "{target}");
            assert!(check(&request).is_ok(), "{target}");
        }
    }

    #[test]
    fn a_target_that_is_too_long_once_it_is_encoded_is_refused() {
        let request = normalised(&format!("/{}", "\u{e9}".repeat(20_000)));
        assert!(matches!(check(&request), Err(Refusal::TargetInvalid)));
    }

    proptest! {
        #[test]
        fn what_is_taken_for_a_common_host_is_a_plain_one(host in "[a-z0-9.:@/\\[\\]-]{0,12}") {
            if is_common(host.as_bytes()) {
                prop_assert!(Authority::try_from(host.as_bytes()).is_ok_and(|host| is_plain(&host)), "{host}");
            }
        }
    }
}
