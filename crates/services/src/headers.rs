//! Rules for the headers of requests to services.
//!
//! There are two kinds of requests to a service. A *program* sets its headers itself, so
//! [`check_program_headers`] refuses those that only the gateway may set. A *proxied* request carries its
//! client's headers. [`sanitize_headers`] cleans them when the request arrives, before filters run: it
//! removes headers of the client's connection, and claims that the client may not make. [`mark_forwarded`]
//! completes them when the request is sent on: it removes hop-by-hop headers that a filter added (RFC 9110,
//! section 7.6.1), and adds those that an intermediary must send: `Via`, `Forwarded` (`headers/forwarded.rs`)
//! and `CDN-Loop` (RFC 8586).
//!
//! The weighted lists of content negotiation are in `headers/accept.rs`.

pub mod accept;
pub mod forwarded;

use std::borrow::Cow;
use std::io::Write;
use std::net::{IpAddr, Ipv6Addr};

use http::header::{
    CONNECTION, CONTENT_LENGTH, COOKIE, EXPECT, HOST, HeaderMap, HeaderName, HeaderValue, PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION, TE, TRAILER, TRANSFER_ENCODING, UPGRADE, USER_AGENT, VIA,
};
use http::{Method, Version, request};

use crate::problem::{CallErrorKind, FaultParty, ToProblem};
use forwarded::{ForwardedOrigin, is_claim};

/// `CDN-Loop`: every gateway that a request passes appends its name.
pub const CDN_LOOP: HeaderName = HeaderName::from_static("cdn-loop");
/// The number of ORFA gateways that a request may pass before it is considered a loop.
pub const MAX_HOPS: u8 = 8;
/// The number of members of a list field that are read. A head has room for 60,000, and a request reads some
/// of its lists several times. If further members would matter, the message is refused: see
/// [`is_within_member_limit`].
pub const MAX_MEMBERS: usize = 256;
/// The maximum size in bytes of a call's request line and headers. Headers of the connection, the trace and
/// the hops are added on top.
pub const MAX_CALL_HEAD: usize = 64 << 10;
/// The gateway's name in `Via` and `CDN-Loop`.
const GATEWAY_NAME: HeaderValue = HeaderValue::from_static("orfa");
/// The default `User-Agent` of programs' requests.
pub(crate) const DEFAULT_USER_AGENT: &str = concat!("orfa/", env!("CARGO_PKG_VERSION"));

/// Hop-by-hop headers, in addition to those listed in `Connection`.
pub(crate) static HOP_BY_HOP: [HeaderName; 10] = [
    CONNECTION,
    HeaderName::from_static("http2-settings"),
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
];

/// Fields that a client cannot remove by listing them in `Connection`: the gateway has yet to check them, or
/// they are intermediaries' fields, which end loops.
static PROTECTED_FIELDS: [HeaderName; 8] =
    [CDN_LOOP, CONTENT_LENGTH, EXPECT, HOST, TE, TRANSFER_ENCODING, UPGRADE, VIA];

/// Headers that a program may not send, in addition to claims ([`is_claim`]) and names with one of
/// [`FORBIDDEN_PREFIXES`].
const FORBIDDEN_NAMES: [&str; 13] = [
    "connection",
    "http2-settings",
    "keep-alive",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "host",
    "content-length",
    "expect",
    "via",
    "cdn-loop",
    "traceparent",
    "tracestate",
];

const FORBIDDEN_PREFIXES: [&str; 2] = ["proxy-", "orfa-"];

/// Fields that may not be trailers (RFC 9110, section 6.5.1), in addition to claims and [`FORBIDDEN_NAMES`]:
/// credentials, conditions, and fields that affect routing or the response.
const HEAD_ONLY: [&str; 16] = [
    "authorization",
    "cache-control",
    "cookie",
    "date",
    "early-data",
    "from",
    "max-forwards",
    "origin",
    "pragma",
    "prefer",
    "priority",
    "range",
    "referer",
    "set-cookie",
    "te",
    "user-agent",
];

const HEAD_ONLY_PREFIXES: [&str; 5] = ["accept", "access-control-", "content-", "if-", "sec-"];

/// Digests of the content, which are meant for trailers (RFC 9530), although their names look like content
/// metadata.
const CONTENT_DIGESTS: [&str; 2] = ["content-digest", "content-md5"];

/// The connection details of a client's request; part of its [`RequestCall`](crate::RequestCall).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionDetails {
    /// The address of the connection's peer: the client, or a proxy in front of the gateway.
    pub peer: IpAddr,
    /// The address of the client, as reported by trusted proxies.
    pub client: IpAddr,
    /// Whether the client uses TLS, to the gateway or to those proxies.
    pub is_secure: bool,
}

/// Returns the network of an address that is assumed to have a single owner: an IPv4 address itself, the /64
/// prefix of an IPv6 address.
#[must_use]
pub fn client_network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => {
            let [a, b, c, d, ..] = v6.segments();
            IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
        v4 => v4,
    }
}

/// A header that a program may not send.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// The header is reserved for the gateway.
    #[error("a program may not send the header `{0}`")]
    Forbidden(HeaderName),
    /// The operator's config sets the header for this service.
    #[error("the header `{0}` is set by the operator for this service")]
    Reserved(HeaderName),
    /// The request line and the headers exceed [`MAX_CALL_HEAD`].
    #[error("the request line and the headers of a call are larger than {} KiB together", MAX_CALL_HEAD >> 10)]
    TooLarge,
}

/// The header rules in the config of one service.
#[derive(Clone, Debug, Default)]
pub(crate) struct HeaderRules {
    /// The client headers that are forwarded.
    pub(crate) forward: Vec<HeaderName>,
    /// The headers that the gateway adds to every call.
    pub(crate) operator_headers: Vec<(HeaderName, HeaderValue)>,
}

/// Checks that a program may send these headers to services.
///
/// # Errors
/// The first forbidden header.
pub fn check_program_headers(headers: &HeaderMap) -> Result<(), HeaderError> {
    match headers.iter().find(|(name, value)| is_forbidden(name, value)) {
        Some((name, _)) => Err(HeaderError::Forbidden(name.clone())),
        None => Ok(()),
    }
}

/// Checks the size of a call's head. Each line counts as its shortest form in HTTP/1.1, so that every head
/// that the gateway accepted from a client can be sent on.
///
/// # Errors
/// [`HeaderError::TooLarge`].
pub(crate) fn check_head_size(method: &Method, path: &str, headers: &HeaderMap) -> Result<(), HeaderError> {
    let line = method.as_str().len() + path.len() + "  HTTP/1.1\r\n".len();
    let fields = headers.iter().map(|(name, value)| name.as_str().len() + value.len() + ":\r\n".len());
    if line + fields.sum::<usize>() > MAX_CALL_HEAD { Err(HeaderError::TooLarge) } else { Ok(()) }
}

fn is_forbidden(name: &HeaderName, value: &HeaderValue) -> bool {
    if is_claim(name.as_str()) {
        return true;
    }
    let name = canonical_name(name.as_str());
    match name.as_ref() {
        "te" => !value.as_bytes().eq_ignore_ascii_case(b"trailers"),
        name => {
            FORBIDDEN_NAMES.contains(&name)
                || FORBIDDEN_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
        }
    }
}

/// Converts all characters except letters and digits to `-`: servers behind CGI-like interfaces convert all
/// of them, or some, to `_`.
#[must_use]
pub fn canonical_name(name: &str) -> Cow<'_, str> {
    let is_canonical = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    match name.bytes().all(is_canonical) {
        true => name.into(),
        false => name.replace(|letter: char| !letter.is_ascii_alphanumeric(), "-").into(),
    }
}

/// Whether a server behind a CGI-like interface may treat two field names as the same: see
/// [`canonical_name`].
#[must_use]
pub fn is_same_field(one: &HeaderName, other: &HeaderName) -> bool {
    let (one, other) = (one.as_str(), other.as_str());
    let dashed = |byte: u8| if byte.is_ascii_alphanumeric() { byte } else { b'-' };
    one.len() == other.len() && one.bytes().map(dashed).eq(other.bytes().map(dashed))
}

impl HeaderRules {
    /// Refuses headers that a program may not send to this service.
    pub(crate) fn check_headers(&self, headers: &HeaderMap) -> Result<(), HeaderError> {
        check_program_headers(headers)?;
        match headers.keys().find(|name| self.sets_header(name)) {
            Some(name) => Err(HeaderError::Reserved(name.clone())),
            None => Ok(()),
        }
    }

    /// Completes a program's headers with forwarded client headers, the operator's headers, and the gateway's
    /// own.
    pub(crate) fn complete_headers(&self, headers: &mut HeaderMap, client: &HeaderMap) {
        for name in &self.forward {
            if !headers.contains_key(name) {
                append_all(headers, name, client);
            }
        }
        join_cookies(headers);
        self.apply_operator_headers(headers);
        headers.entry(USER_AGENT).or_insert(const { HeaderValue::from_static(DEFAULT_USER_AGENT) });
        append_all(headers, &CDN_LOOP, client);
        headers.append(CDN_LOOP, GATEWAY_NAME);
    }

    /// Whether the operator sets this header, or one that a server may treat as the same.
    fn sets_header(&self, name: &HeaderName) -> bool {
        self.operator_headers.iter().any(|(set, _)| is_same_field(set, name))
    }

    /// Sets the operator's headers, and removes headers that a server may treat as the same.
    pub(crate) fn apply_operator_headers(&self, headers: &mut HeaderMap) {
        let guesses: Vec<_> = headers.keys().filter(|name| self.sets_header(name)).cloned().collect();
        for name in guesses {
            headers.remove(name);
        }
        for (name, value) in &self.operator_headers {
            headers.insert(name, value.clone());
        }
    }
}

fn append_all(headers: &mut HeaderMap, name: &HeaderName, from: &HeaderMap) {
    for value in from.get_all(name) {
        headers.append(name, value.clone());
    }
}

/// Returns the values of a field, from all its lines. Most messages have a few fields and not this one:
/// comparing names is cheaper than hashing the name, above all without a constant in `http`.
pub fn field_values<'a>(
    headers: &'a HeaderMap,
    name: &HeaderName,
) -> impl Iterator<Item = &'a HeaderValue> + use<'a> {
    let is_there = headers.keys().any(|known| known == name);
    is_there.then(|| headers.get_all(name)).into_iter().flatten()
}

/// A field that may occur only once, for reading several fields in one pass.
#[derive(Clone, Copy, Debug, Default)]
pub struct SingletonField<'a> {
    value: Option<&'a HeaderValue>,
    is_repeated: bool,
}

/// The error for a field that occurs more than once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RepeatedFieldError;

impl<'a> SingletonField<'a> {
    /// Adds an occurrence of the field.
    #[inline]
    pub fn add(&mut self, value: &'a HeaderValue) {
        self.is_repeated = self.value.replace(value).is_some();
    }

    /// Returns the value, if the field is present.
    ///
    /// # Errors
    /// [`RepeatedFieldError`] if the field occurs more than once.
    #[inline]
    pub fn value(self) -> Result<Option<&'a HeaderValue>, RepeatedFieldError> {
        if self.is_repeated { Err(RepeatedFieldError) } else { Ok(self.value) }
    }
}

/// Returns the first [`MAX_MEMBERS`] members of a list field (RFC 9110, section 5.6.1), from all its lines.
pub fn list_members<'a>(
    headers: &'a HeaderMap,
    name: &HeaderName,
) -> impl Iterator<Item = &'a [u8]> + use<'a> {
    all_list_members(headers, name).take(MAX_MEMBERS)
}

fn all_list_members<'a>(
    headers: &'a HeaderMap,
    name: &HeaderName,
) -> impl Iterator<Item = &'a [u8]> + use<'a> {
    let lines = field_values(headers, name).map(HeaderValue::as_bytes);
    lines.flat_map(|line| line.split(|byte| *byte == b',')).map(<[u8]>::trim_ascii)
}

/// Whether a list field has at most [`MAX_MEMBERS`] members, so that all of them are read.
#[must_use]
pub fn is_within_member_limit(headers: &HeaderMap, name: &HeaderName) -> bool {
    all_list_members(headers, name).nth(MAX_MEMBERS).is_none()
}

/// Whether a list field contains this token.
#[must_use]
pub fn list_contains(headers: &HeaderMap, name: &HeaderName, member: &[u8]) -> bool {
    list_members(headers, name).any(|found| found.eq_ignore_ascii_case(member))
}

/// Returns the number of ORFA gateways that a request has passed, from its `CDN-Loop`. For
/// [`crate::RequestCall::hops`]. A list of more than [`MAX_MEMBERS`] members counts as a loop.
#[must_use]
pub fn count_hops(headers: &HeaderMap) -> u8 {
    let mut infos = all_list_members(headers, &CDN_LOOP);
    let ours = infos.by_ref().take(MAX_MEMBERS).filter(|info| {
        let name = info.split(|byte| *byte == b';').next().unwrap_or_default();
        name.trim_ascii().eq_ignore_ascii_case(GATEWAY_NAME.as_bytes())
    });
    let count = ours.count();
    if infos.next().is_some() { u8::MAX } else { u8::try_from(count).unwrap_or(u8::MAX) }
}

/// Removes hop-by-hop headers, including those listed in `Connection`. `Trailer` remains, since the trailers
/// that it announces remain too.
pub fn strip_hop_by_hop(headers: &mut HeaderMap) {
    // Most messages have none, and checking is cheaper than removing.
    if !headers.keys().any(|name| HOP_BY_HOP.contains(name)) {
        return;
    }
    let named = connection_options(headers);
    for name in named.iter().chain(HOP_BY_HOP.iter().filter(|name| *name != TRAILER)) {
        headers.remove(name);
    }
}

/// Returns the options of `Connection` that are field names. All of them are read: a field whose name was cut
/// off would be sent on. Messages from a connection have at most [`MAX_MEMBERS`] options, since longer lists
/// are refused.
fn connection_options(headers: &HeaderMap) -> Vec<HeaderName> {
    all_list_members(headers, &CONNECTION).filter_map(|name| HeaderName::from_bytes(name).ok()).collect()
}

/// Cleans the fields of a request that has just arrived for all further readers: removes the fields that
/// `Connection` lists (RFC 9110, section 7.6.1), joins cookies that HTTP/2 split (RFC 9113, section 8.2.3),
/// and, unless `keeps_claims` is set, drops claims of a client in the name of a proxy.
pub fn sanitize_headers(headers: &mut HeaderMap, keeps_claims: bool) {
    let (mut has_options, mut has_claims, mut cookies) = (false, false, 0);
    // One pass, since most requests have none of these fields.
    for (name, _) in headers.iter() {
        match name.as_str() {
            "connection" => has_options = true,
            "cookie" => cookies += 1,
            name => has_claims |= !keeps_claims && is_claim(name),
        }
    }
    if has_options {
        sanitize_connection(headers);
    }
    if cookies > 1 {
        join_cookies(headers);
    }
    if has_claims {
        forwarded::strip_claims(headers, &[]);
    }
}

/// Removes from the trailers of a client's request the fields that are not allowed there (RFC 9110, section
/// 6.5.1), those that a client may not send in the head, and the operator's own field for the client's
/// address: some services merge trailers into the head.
pub fn sanitize_trailers(trailers: &mut HeaderMap, address_field: Option<&HeaderName>) {
    forwarded::strip_matching(trailers, |name| {
        is_head_only(name.as_str()) || address_field.is_some_and(|field| is_same_field(field, name))
    });
}

fn is_head_only(name: &str) -> bool {
    let canonical = &*canonical_name(name);
    let begins = |prefixes: &[&str]| prefixes.iter().any(|prefix| canonical.starts_with(prefix));
    is_claim(name)
        || FORBIDDEN_NAMES.contains(&canonical)
        || HEAD_ONLY.contains(&canonical)
        || begins(&FORBIDDEN_PREFIXES)
        || (begins(&HEAD_ONLY_PREFIXES) && !CONTENT_DIGESTS.contains(&canonical))
}

/// Removes trailers that a server may treat as a field of the head, so that a server which merges the two
/// adds no value to a field that the operator or a filter has set.
pub(crate) fn strip_head_duplicates(trailers: &mut HeaderMap, head: &[HeaderName]) {
    forwarded::strip_matching(trailers, |name| head.iter().any(|field| is_same_field(field, name)));
}

/// Removes the fields listed in `Connection`, and keeps only the option that belongs to `Upgrade`. If the
/// list were still in effect when the request is sent on, a client could remove fields that the gateway or a
/// filter has set.
fn sanitize_connection(headers: &mut HeaderMap) {
    let upgrades = list_contains(headers, &CONNECTION, UPGRADE.as_str().as_bytes());
    let named = connection_options(headers);
    for name in named.iter().filter(|name| !PROTECTED_FIELDS.contains(name)) {
        headers.remove(name);
    }
    match upgrades {
        true => drop(headers.insert(CONNECTION, const { HeaderValue::from_static("upgrade") })),
        false => drop(headers.remove(CONNECTION)),
    }
}

/// Turns the head of a client's request into one from the gateway: removes hop-by-hop headers, and appends to
/// the fields of intermediaries.
pub fn mark_forwarded(head: &mut request::Parts, arrival: Option<ConnectionDetails>) {
    let takes_trailers = accepts_trailers(&head.headers);
    strip_hop_by_hop(&mut head.headers);
    if takes_trailers {
        head.headers.insert(TE, const { HeaderValue::from_static("trailers") });
    }
    add_forwarded(head, arrival);
    // `Host` and `Expect` belong to the client's connection; the content length follows from the body.
    for name in [HOST, CONTENT_LENGTH, EXPECT] {
        head.headers.remove(name);
    }
    join_cookies(&mut head.headers);
    append_via(&mut head.headers, head.version);
    head.headers.append(CDN_LOOP, GATEWAY_NAME);
}

/// Adds the origin of the request, unless a trusted proxy or a filter has set it.
fn add_forwarded(head: &mut request::Parts, arrival: Option<ConnectionDetails>) {
    let addresses = arrival.map(|arrival| arrival.client);
    let authority = head.uri.authority().map(|authority| authority.as_str());
    let host = head.headers.get(HOST).filter(|_| authority.is_none()).cloned();
    let forwarded = ForwardedOrigin {
        addresses: addresses.as_slice(),
        is_secure: arrival.is_some_and(|arrival| arrival.is_secure),
        host: authority.or_else(|| host.as_ref()?.to_str().ok()),
        port: None,
    };
    forwarded.write_forwarded(&mut head.headers);
}

/// Whether the sender accepts trailers (RFC 9110, section 10.1.4); the gateway forwards them.
pub fn accepts_trailers(headers: &HeaderMap) -> bool {
    list_contains(headers, &TE, b"trailers")
}

/// Appends the gateway's `Via`, for a message that was received in this version of HTTP.
pub fn append_via(headers: &mut HeaderMap, received: Version) {
    headers.append(
        VIA,
        match received {
            Version::HTTP_2 => const { HeaderValue::from_static("2 orfa") },
            Version::HTTP_10 => const { HeaderValue::from_static("1.0 orfa") },
            _ => const { HeaderValue::from_static("1.1 orfa") },
        },
    );
}

/// Joins cookie fields: HTTP/2 may split them, HTTP/1.1 may not (RFC 9113, section 8.2.3).
fn join_cookies(headers: &mut HeaderMap) {
    let cookies: Vec<&[u8]> = headers.get_all(COOKIE).iter().map(HeaderValue::as_bytes).collect();
    if cookies.len() > 1
        && let Ok(joined) = HeaderValue::from_bytes(&cookies.join(&b"; "[..]))
    {
        headers.insert(COOKIE, joined);
    }
}

/// Appends an address as text. Optimized for IPv4, since every request needs it several times.
pub fn write_address(text: &mut Vec<u8>, address: IpAddr) {
    let IpAddr::V4(address) = address else { return drop(write!(text, "{address}")) };
    let mut digits = itoa::Buffer::new();
    for (index, octet) in address.octets().into_iter().enumerate() {
        if index > 0 {
            text.push(b'.');
        }
        text.extend_from_slice(digits.format(octet).as_bytes());
    }
}

impl HeaderError {
    /// The category of the error, for programs.
    #[must_use]
    pub fn kind(&self) -> CallErrorKind {
        match self {
            Self::Forbidden(_) | Self::Reserved(_) => CallErrorKind::Forbidden,
            Self::TooLarge => CallErrorKind::Invalid,
        }
    }
}

impl ToProblem for HeaderError {
    fn code(&self) -> &'static str {
        match self {
            Self::Forbidden(_) => "header-forbidden",
            Self::Reserved(_) => "header-reserved",
            Self::TooLarge => "call-head-too-large",
        }
    }

    fn status(&self) -> http::StatusCode {
        http::StatusCode::UNPROCESSABLE_ENTITY
    }

    fn fault(&self) -> FaultParty {
        FaultParty::Program
    }

    fn hint(&self) -> String {
        let hint = match self {
            Self::Forbidden(_) | Self::Reserved(_) => {
                "Leave the header out; the gateway sets it where it is needed."
            }
            Self::TooLarge => "Send long data in the body.",
        };
        hint.to_owned()
    }
}

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;
