//! Clients behind trusted proxies. The statements of a proxy are only used to the extent that the operator
//! trusts it (RFC 7239, section 8.1).
//!
//! The client's address is read from a single header that the operator chooses (`client_ip_header`): a proxy
//! writes the header that it was configured for, and passes on others as its client sent them. Addresses are
//! taken from the right, the nearest, as long as the previous one is trusted. Limits, logs and owners all use
//! the result, and it is written to all headers with this meaning before filters and services see them.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use http::uri::Authority;
use http::{HeaderMap, HeaderName, HeaderValue, Request, header};
use ipnet::IpNet;
use services::headers::forwarded::{
    ForwardedOrigin, X_FORWARDED_FOR, X_FORWARDED_HOST, X_FORWARDED_PORT, X_FORWARDED_PROTO, is_claim,
    strip_claims, strip_field,
};

use super::cors::host_of;
use super::request_validation;
use crate::config::trusted_proxies::parse_network;

/// The maximum number of proxies in a row.
const MAX_PROXIES: usize = 32;
/// The maximum number of elements of a line of `Forwarded`, and of pairs of an element.
const MAX_PARTS: usize = 64;

/// The trusted proxies, and the header in which they report the client's address.
#[derive(Clone, Debug)]
pub(crate) struct TrustedProxies {
    networks: Vec<IpNet>,
    header: HeaderName,
    /// Whether the header is an unusual one, which is not among the known forwarding headers.
    is_custom_header: bool,
    /// The other headers of the proxies that are passed on unchanged.
    passed_headers: Vec<HeaderName>,
}

/// The client as trusted proxies report it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProxiedClient {
    /// The client, followed by the proxies on the way, each of which vouches for the address before it. The
    /// peer is the last. Never empty.
    addresses: Vec<IpAddr>,
    /// Whether the client used TLS.
    pub(crate) is_secure: bool,
    host: Option<String>,
    port: Option<u16>,
}

/// An element of `Forwarded`, written by one proxy.
#[derive(Debug, Default)]
struct ForwardedElement<'a> {
    node: Option<Cow<'a, str>>,
    proto: Option<Cow<'a, str>>,
    host: Option<Cow<'a, str>>,
}

impl TrustedProxies {
    /// Creates the rules from the config, which has been validated.
    pub(crate) fn new(networks: &[String], header: &str) -> Self {
        let header = HeaderName::from_bytes(header.as_bytes()).unwrap_or(X_FORWARDED_FOR);
        let networks: Vec<IpNet> = networks.iter().filter_map(|text| parse_network(text)).collect();
        let is_custom_header = !networks.is_empty() && !is_claim(header.as_str());
        Self { networks, header, is_custom_header, passed_headers: Vec::new() }
    }

    /// Adds the headers to pass on, which have been validated.
    pub(crate) fn with_passed_headers(self, headers: &[String]) -> Self {
        let names = headers.iter().filter_map(|name| HeaderName::from_bytes(name.as_bytes()).ok());
        Self { passed_headers: names.collect(), ..self }
    }

    /// Removes the operator's header from a request of an untrusted peer, unless it is one that is removed
    /// anyway.
    pub(crate) fn strip_custom_header(&self, headers: &mut HeaderMap) {
        if self.is_custom_header {
            strip_field(headers, &self.header);
        }
    }

    /// The operator's header, unless it is one that only proxies may send anyway.
    pub(crate) fn custom_header(&self) -> Option<&HeaderName> {
        self.is_custom_header.then_some(&self.header)
    }

    /// Whether the statements of this address are trusted.
    pub(crate) fn is_trusted(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.networks.iter().any(|network| network.contains(&address))
    }

    /// Returns the client that a trusted peer reports, or `None` if the peer is not trusted. `is_secure`, the
    /// state of the peer's own connection, applies if it reports nothing about TLS.
    pub(crate) fn proxied_client(
        &self,
        peer: IpAddr,
        is_secure: bool,
        headers: &HeaderMap,
    ) -> Option<ProxiedClient> {
        self.is_trusted(peer).then(|| self.read_forwarded(peer, is_secure, headers))
    }

    /// Writes the client's data to all headers with this meaning, in place of the received ones. Other
    /// forwarding headers are removed unless the operator lists them, since proxies pass them on as clients
    /// wrote them.
    pub(crate) fn write_forwarded<B>(&self, client: &ProxiedClient, request: &mut Request<B>) {
        strip_claims(request.headers_mut(), &self.passed_headers);
        strip_field(request.headers_mut(), &self.header);
        let own = host_of(request).map(str::to_owned);
        let forwarded = ForwardedOrigin {
            addresses: &client.addresses,
            is_secure: client.is_secure,
            host: client.host.as_deref().or(own.as_deref()),
            port: client.port,
        };
        let headers = request.headers_mut();
        forwarded.write_all_fields(headers);
        if let Ok(address) = HeaderValue::try_from(client.address().to_string()) {
            headers.entry(&self.header).or_insert(address);
        }
    }

    fn read_forwarded(&self, peer: IpAddr, is_secure: bool, headers: &HeaderMap) -> ProxiedClient {
        if self.header == header::FORWARDED {
            let elements = forwarded_elements(headers);
            let nodes = elements.iter().rev().map(|element| element.node.as_deref().and_then(parse_address));
            let chain = self.trusted_chain(peer, nodes);
            // The element with the client's address also contains the host and scheme that the client used.
            let last = elements.len().checked_sub(chain.len() - 1).and_then(|index| elements.get(index));
            let forwarded_element = last.filter(|_| chain.len() > 1).or(elements.last());
            let host = forwarded_element.and_then(|element| parse_host(element.host.as_deref()?));
            let proto = forwarded_element.and_then(|element| parse_scheme(element.proto.as_deref()?));
            return ProxiedClient::new(chain, proto.unwrap_or(is_secure), host, None);
        }
        let chain = self.trusted_chain(peer, list_members(headers, &self.header).rev().map(parse_address));
        let place = (chain.len() - 1, list_members(headers, &self.header).count());
        let said = |name: HeaderName| member_of(headers, &name, place);
        let is_secure = said(X_FORWARDED_PROTO).and_then(parse_scheme).unwrap_or(is_secure);
        let port = said(X_FORWARDED_PORT).and_then(|port| port.parse().ok().filter(|port| *port != 0));
        let host = said(X_FORWARDED_HOST).and_then(parse_host);
        ProxiedClient::new(chain, is_secure, host, port)
    }

    /// The addresses from the peer on, where each vouches for the next.
    fn trusted_chain(&self, peer: IpAddr, before: impl Iterator<Item = Option<IpAddr>>) -> Vec<IpAddr> {
        let mut last = peer.to_canonical();
        let mut chain = vec![last];
        for address in before.take(MAX_PROXIES) {
            let Some(address) = address.filter(|_| self.is_trusted(last)) else { break };
            last = address.to_canonical();
            chain.push(last);
        }
        chain
    }
}

impl ProxiedClient {
    /// Creates a client from a chain that begins with the peer.
    fn new(mut chain: Vec<IpAddr>, is_secure: bool, host: Option<String>, port: Option<u16>) -> Self {
        chain.reverse();
        // A port in the host makes another one unnecessary, which could only contradict it.
        let has_port = host
            .as_deref()
            .is_some_and(|host| Authority::try_from(host).is_ok_and(|host| host.port().is_some()));
        Self { addresses: chain, is_secure, host, port: port.filter(|_| !has_port) }
    }

    /// The client's address.
    pub(crate) fn address(&self) -> IpAddr {
        self.addresses.first().copied().unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED))
    }
}

/// The members of a list, across all its lines. A line that is not text yields a member that matches nothing.
fn list_members<'a>(
    headers: &'a HeaderMap,
    name: &HeaderName,
) -> impl DoubleEndedIterator<Item = &'a str> + use<'a> {
    let lines = headers.get_all(name).iter().map(|line| line.to_str().unwrap_or("?"));
    lines.flat_map(|line| line.split(',')).map(str::trim).filter(|member| !member.is_empty())
}

/// Returns the value for the client at this distance from the nearest proxy: the field's only member, or the
/// one at that distance if there are as many members as addresses. With any other number it is unclear which
/// proxy wrote which.
fn member_of<'a>(
    headers: &'a HeaderMap,
    name: &HeaderName,
    (distance, addresses): (usize, usize),
) -> Option<&'a str> {
    let mut all = list_members(headers, name).rev();
    match list_members(headers, name).count() {
        1 => all.next(),
        count if count == addresses => all.nth(distance.checked_sub(1)?),
        _ => None,
    }
}

fn parse_scheme(text: &str) -> Option<bool> {
    match text {
        text if text.eq_ignore_ascii_case("https") => Some(true),
        text if text.eq_ignore_ascii_case("http") => Some(false),
        _ => None,
    }
}

/// Returns a text that is a host with an optional port and nothing else.
fn parse_host(text: &str) -> Option<String> {
    let authority = Authority::try_from(text).ok()?;
    request_validation::is_plain_authority(&authority).then(|| text.to_owned())
}

/// Parses an address with an optional port, which may be obfuscated (RFC 7239, section 6.3).
fn parse_address(node: &str) -> Option<IpAddr> {
    if let Ok(address) = node.parse() {
        return Some(address);
    }
    let (address, port) = match node.strip_prefix('[') {
        Some(rest) => {
            let (address, port) = rest.split_once(']')?;
            (IpAddr::V6(address.parse::<Ipv6Addr>().ok()?), port)
        }
        None => {
            let (address, _) = node.rsplit_once(':')?;
            (IpAddr::V4(address.parse::<Ipv4Addr>().ok()?), node.get(address.len()..)?)
        }
    };
    let is_obfuscated = |port: &str| {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        port.strip_prefix('_').is_some_and(|rest| !rest.is_empty() && rest.bytes().all(is_plain))
    };
    let is_number =
        |port: &str| port.bytes().all(|digit| digit.is_ascii_digit()) && port.parse::<u16>().is_ok();
    match port.strip_prefix(':') {
        Some(port) if is_number(port) || is_obfuscated(port) => Some(address),
        None if port.is_empty() => Some(address),
        _ => None,
    }
}

/// The last elements of `Forwarded`, across its lines: more than there can be proxies, or all of them. A
/// malformed line yields one empty element.
fn forwarded_elements(headers: &HeaderMap) -> Vec<ForwardedElement<'_>> {
    let mut last = Vec::new();
    for line in headers.get_all(header::FORWARDED).iter().rev() {
        match line.to_str().ok().and_then(line_elements) {
            Some(elements) => last.extend(elements.into_iter().rev()),
            None => last.push(ForwardedElement::default()),
        }
        if last.len() > MAX_PROXIES {
            break;
        }
    }
    last.reverse();
    last
}

/// Parses `for="[2001:db8::1]:4711";proto=https, for=192.0.2.1` (RFC 7239, section 4).
fn line_elements(line: &str) -> Option<Vec<ForwardedElement<'_>>> {
    let mut elements = Vec::new();
    for element in split_outside_quotes(line, ',')? {
        let mut read = ForwardedElement::default();
        let mut is_empty = true;
        for pair in split_outside_quotes(element, ';')? {
            let pair = pair.trim();
            if pair.is_empty() {
                continue;
            }
            is_empty = false;
            let (name, value) = pair.split_once('=')?;
            let value = unquote(value)?;
            let place = match name {
                name if name.eq_ignore_ascii_case("for") => &mut read.node,
                name if name.eq_ignore_ascii_case("proto") => &mut read.proto,
                name if name.eq_ignore_ascii_case("host") => &mut read.host,
                _ => continue,
            };
            // A duplicate would be ambiguous.
            if place.replace(value).is_some() {
                return None;
            }
        }
        if !is_empty {
            elements.push(read);
        }
    }
    Some(elements)
}

/// Returns a token, or the content of a quoted string.
fn unquote(value: &str) -> Option<Cow<'_, str>> {
    let Some(rest) = value.strip_prefix('"') else {
        return (!value.is_empty() && !value.contains('"')).then_some(Cow::Borrowed(value));
    };
    let inner = rest.strip_suffix('"')?;
    if !inner.contains(['\\', '"']) {
        return Some(Cow::Borrowed(inner));
    }
    let mut text = String::with_capacity(inner.len());
    let mut letters = inner.chars();
    while let Some(letter) = letters.next() {
        text.push(match letter {
            '\\' => letters.next()?,
            '"' => return None,
            letter => letter,
        });
    }
    Some(Cow::Owned(text))
}

/// Splits a text at separators outside of quotes. Returns `None` if a quote is not closed, or if there are
/// more than [`MAX_PARTS`] parts.
fn split_outside_quotes(text: &str, separator: char) -> Option<Vec<&str>> {
    let (mut is_quoted, mut is_escaped, mut begin, mut parts) = (false, false, 0, Vec::new());
    for (index, letter) in text.char_indices() {
        match letter {
            _ if is_escaped => is_escaped = false,
            '\\' if is_quoted => is_escaped = true,
            '"' => is_quoted = !is_quoted,
            letter if letter == separator && !is_quoted => {
                if parts.len() + 1 == MAX_PARTS {
                    return None;
                }
                parts.push(text.get(begin..index)?);
                begin = index + separator.len_utf8();
            }
            _ => {}
        }
    }
    parts.push(text.get(begin..)?);
    (!is_quoted).then_some(parts)
}

#[cfg(test)]
mod tests;
