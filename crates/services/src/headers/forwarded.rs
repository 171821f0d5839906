//! Fields by which proxies report a client's address and the URL that it requested.
//!
//! Two families of fields carry the same information: `Forwarded` (RFC 7239), and the older `X-Forwarded-*`
//! with `X-Real-IP`. Services trust the ones that they support. All such fields that leave the gateway are
//! therefore written from one value, [`ForwardedOrigin`], and incoming ones are dropped by [`strip_claims`].
//! If the peer is a trusted proxy, the gateway first reads the field that the operator chose
//! (`gateway/src/http_semantics/trusted_proxies.rs`).
//!
//! Fields set by a filter are written before the gateway's and remain as they are: the gateway adds only
//! missing fields.

use std::borrow::Cow;
use std::io::Write;
use std::net::IpAddr;

use http::header::{FORWARDED, HeaderMap, HeaderName, HeaderValue};

use super::{canonical_name, is_same_field, write_address};

/// The addresses that a request passed: the client's first, the nearest proxy's last.
pub const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
/// The scheme that the client used.
pub const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
/// The host that the client requested.
pub const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
/// The port that the client connected to.
pub const X_FORWARDED_PORT: HeaderName = HeaderName::from_static("x-forwarded-port");
/// The client's address alone.
const X_REAL_IP: HeaderName = HeaderName::from_static("x-real-ip");

/// The common prefix of most claims.
const X_FORWARDED_PREFIX: &str = "x-forwarded";

/// Suffixes of fields with the client's address or the requested URL. Products put their own names in front
/// (`incap-client-ip`, `x-vercel-forwarded-for`).
const CLIENT_ENDINGS: [&str; 12] = [
    "client-ip",
    "clientip",
    "connecting-ip",
    "connecting-ipv6",
    "connection-ip",
    "forwarded-for",
    "forwarded-host",
    "forwarded-proto",
    "real-ip",
    "remote-addr",
    "remote-ip",
    "user-ip",
];

/// Other fields with the client's address, or the scheme, host or port that it used.
const CLIENT_FIELDS: [&str; 27] = [
    "cdn-src-ip",
    "cf-pseudo-ipv4",
    "cf-visitor",
    "cloudfront-viewer-address",
    "fastly-ssl",
    "front-end-https",
    "wl-proxy-ssl",
    "x-arr-ssl",
    "x-azure-socketip",
    "x-envoy-external-address",
    "x-envoy-original-host",
    "x-forward-for",
    "x-forwarded",
    "x-forwarded-by",
    "x-forwarded-for-original",
    "x-forwarded-port",
    "x-forwarded-protocol",
    "x-forwarded-scheme",
    "x-forwarded-server",
    "x-forwarded-ssl",
    "x-host",
    "x-http-host-override",
    "x-original-host",
    "x-originating-ip",
    "x-scheme",
    "x-ssl",
    "x-url-scheme",
];

/// Prefixes of fields by which TLS-terminating proxies forward the client's certificate and its properties:
/// `Client-Cert` and `Client-Cert-Chain` (RFC 9440), `SSL-Client-Verify`, `X-SSL-Client-S-DN`.
const CERTIFICATE_PREFIXES: [&str; 10] = [
    "cf-client-cert",
    "client-cert",
    "ssl-client-",
    "tls-client-",
    "wl-proxy-client-",
    "x-amzn-mtls-",
    "x-arr-clientcert",
    "x-client-cert",
    "x-ssl-",
    "x-tls-client-",
];

/// Other fields with certificate properties.
const CERTIFICATE_FIELDS: [&str; 2] = ["x-client-dn", "x-client-verify"];

/// Fields that override the method, the path or the proxy that the gateway has checked.
const OVERRIDES: [&str; 13] = [
    "proxy",
    "x-envoy-original-method",
    "x-envoy-original-path",
    "x-forwarded-method",
    "x-forwarded-path",
    "x-forwarded-uri",
    "x-http-method",
    "x-http-method-override",
    "x-method-override",
    "x-original-method",
    "x-original-uri",
    "x-original-url",
    "x-rewrite-url",
];

/// Fields of message framing and of the connection whose names may be spelt with another character for `-`;
/// in addition to `proxy-*`.
const CONNECTION_FIELDS: [&str; 4] = ["content-length", "http2-settings", "keep-alive", "transfer-encoding"];

/// The origin of a request, as reported to services.
#[derive(Clone, Copy, Debug)]
pub struct ForwardedOrigin<'a> {
    /// The client's address, followed by those of the proxies, the nearest last.
    pub addresses: &'a [IpAddr],
    /// Whether the client uses TLS.
    pub is_secure: bool,
    /// The requested host, with or without a port.
    pub host: Option<&'a str>,
    /// The requested port, if it was reported separately from the host.
    pub port: Option<u16>,
}

impl ForwardedOrigin<'_> {
    /// Writes `Forwarded` if it is missing.
    pub fn write_forwarded(&self, headers: &mut HeaderMap) {
        if headers.keys().any(|name| *name == FORWARDED) {
            return;
        }
        let mut text = Vec::with_capacity(128);
        for (index, address) in self.addresses.iter().enumerate() {
            text.extend_from_slice(if index == 0 { b"for=" } else { b", for=" });
            match address.to_canonical() {
                IpAddr::V6(address) => drop(write!(text, "\"[{address}]\"")),
                address => write_address(&mut text, address),
            }
            // Host and scheme are reported for the first hop only: later ones could only contradict it.
            if index == 0 {
                self.append_origin(&mut text);
            }
        }
        if self.addresses.is_empty() {
            text.extend_from_slice(b"for=unknown");
            self.append_origin(&mut text);
        }
        headers.extend(HeaderValue::from_bytes(&text).ok().map(|value| (FORWARDED, value)));
    }

    /// Writes the missing fields of both families.
    pub fn write_all_fields(&self, headers: &mut HeaderMap) {
        self.write_forwarded(headers);
        let mut chain = Vec::with_capacity(16 * self.addresses.len());
        for (index, address) in self.addresses.iter().enumerate() {
            chain.extend_from_slice(if index == 0 { b"" } else { b", " });
            write_address(&mut chain, address.to_canonical());
        }
        let client = chain.split(|byte| *byte == b',').next().unwrap_or_default();
        let scheme = if self.is_secure { "https" } else { "http" };
        let host = self.host.map(|host| host.as_bytes());
        let port = self.port.map(|port| port.to_string());
        let fields = [
            (X_FORWARDED_FOR, Some(chain.as_slice())),
            (X_FORWARDED_PROTO, Some(scheme.as_bytes())),
            (X_FORWARDED_HOST, host),
            (X_FORWARDED_PORT, port.as_ref().map(|port| port.as_bytes())),
            (X_REAL_IP, Some(client)),
        ];
        for (name, value) in fields {
            let value = value.filter(|value| !value.is_empty());
            if let Some(value) = value.and_then(|value| HeaderValue::from_bytes(value).ok()) {
                headers.entry(name).or_insert(value);
            }
        }
    }

    fn append_origin(&self, text: &mut Vec<u8>) {
        if let Some(host) = self.host.filter(|host| !host.contains(['"', '\\'])) {
            for part in [";host=\"", host, "\""] {
                text.extend_from_slice(part.as_bytes());
            }
        }
        text.extend_from_slice(if self.is_secure { b";proto=https" } else { b";proto=http" });
    }
}

/// Whether a field is a claim, which services trust only from a proxy: the identity of the client, or a
/// replacement for the URL or method. Framing fields spelt with another character for `-` are claims too: the
/// gateway ignores them, but a service might not.
#[must_use]
pub fn is_claim(name: &str) -> bool {
    // A quick check of the first and last letters, since this runs for every field of every request.
    let bytes = name.as_bytes();
    let begins = matches!(
        bytes,
        [b'c' | b'f' | b'k' | b'p' | b't' | b'w' | b'x', ..] | [b'h', b't', ..] | [b's', b's', ..]
    );
    // The endings of `CLIENT_ENDINGS`.
    let ends = || {
        matches!(bytes, [.., b'i', b'p'] | [.., b'v', b'6'] | [.., b'o' | b'd', b'r'] | [.., b't', b'o'])
            || matches!(bytes, [.., dash, b'h', b'o', b's', b't'] if !dash.is_ascii_alphanumeric())
    };
    if !begins && !ends() || matches!(name, "content-type" | "content-length" | "cookie" | "traceparent") {
        return false;
    }
    let dashed = canonical_name(name);
    let name = &*dashed;
    (matches!(dashed, Cow::Owned(_)) && is_connection_field(name))
        || name.starts_with(X_FORWARDED_PREFIX)
        || is_client_field(name)
        || is_certificate_field(name)
        || OVERRIDES.contains(&name)
}

/// Whether a field reports the client's address or the requested URL.
fn is_client_field(name: &str) -> bool {
    name.starts_with("forwarded")
        || CLIENT_ENDINGS.iter().any(|ending| name.ends_with(ending))
        || CLIENT_FIELDS.contains(&name)
}

/// Whether a field reports the client's certificate.
fn is_certificate_field(name: &str) -> bool {
    CERTIFICATE_PREFIXES.iter().any(|prefix| name.starts_with(prefix)) || CERTIFICATE_FIELDS.contains(&name)
}

/// Whether a field concerns message framing or a single connection.
fn is_connection_field(name: &str) -> bool {
    CONNECTION_FIELDS.contains(&name) || name.starts_with("proxy-")
}

/// Whether a trusted proxy may have its own claim forwarded: one that the gateway does not write itself, and
/// that overrides no method or path that the gateway has checked.
#[must_use]
pub fn is_forwardable_claim(name: &str) -> bool {
    let name = &*canonical_name(name);
    (name.starts_with(X_FORWARDED_PREFIX) || is_certificate_field(name))
        && !is_client_field(name)
        && !OVERRIDES.contains(&name)
}

/// Removes claims, except for those in `passed`, compared by exact spelling.
pub fn strip_claims(headers: &mut HeaderMap, passed: &[HeaderName]) {
    strip_matching(headers, |name| is_claim(name.as_str()) && !passed.contains(name));
}

/// Removes a field, and those that a server may treat as the same.
pub fn strip_field(headers: &mut HeaderMap, field: &HeaderName) {
    strip_matching(headers, |name| is_same_field(field, name));
}

/// Removes all fields whose names match.
pub(super) fn strip_matching(headers: &mut HeaderMap, is_one: impl Fn(&HeaderName) -> bool) {
    let removed: Vec<HeaderName> = headers.keys().filter(|name| is_one(name)).cloned().collect();
    for name in removed {
        headers.remove(name);
    }
}
