//! What every request has to be, whatever its route: its framing, its host, its target and its expectation
//! mean the same to everybody who reads it (RFC 9110, RFC 9112, RFC 9113).

use http::uri::Authority;
use http::{HeaderMap, HeaderValue, Request, Version, header};
use services::headers::Only;

use crate::refusal::Refusal;

/// The most fields of a head.
pub(crate) const MAX_FIELDS: usize = 100;

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

/// A target in absolute form names a host of the web, and nobody in it (RFC 9110, section 4.2.4).
fn target<B>(request: &Request<B>) -> Result<(), Refusal> {
    let uri = request.uri();
    let is_web = uri.scheme_str().is_none_or(|scheme| matches!(scheme, "http" | "https"));
    let is_plain = uri.authority().is_none_or(is_plain);
    if is_web && is_plain { Ok(()) } else { Err(Refusal::TargetInvalid) }
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

    proptest! {
        #[test]
        fn what_is_taken_for_a_common_host_is_a_plain_one(host in "[a-z0-9.:@/\\[\\]-]{0,12}") {
            if is_common(host.as_bytes()) {
                prop_assert!(Authority::try_from(host.as_bytes()).is_ok_and(|host| is_plain(&host)), "{host}");
            }
        }
    }
}
