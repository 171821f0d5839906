//! Values of the settings about proxies in front of the gateway: `trusted_proxies`, `client_ip_header` and
//! `proxy_headers`.

use std::net::IpAddr;

use http::header::{self, HeaderName};
use ipnet::IpNet;
use services::headers::forwarded::is_forwardable_claim;

/// Parses a network in the config: `10.0.0.0/8`, or a single address.
pub(crate) fn parse_network(text: &str) -> Option<IpNet> {
    text.parse().ok().or_else(|| Some(IpNet::from(text.parse::<IpAddr>().ok()?)))
}

/// Whether a header may contain the client's address. Hop-by-hop headers and credentials may not.
pub(crate) fn is_address_header(text: &str) -> bool {
    const OTHERS: [HeaderName; 9] = [
        header::AUTHORIZATION,
        header::CONNECTION,
        header::CONTENT_LENGTH,
        header::COOKIE,
        header::HOST,
        header::TE,
        header::TRANSFER_ENCODING,
        header::UPGRADE,
        header::VIA,
    ];
    HeaderName::from_bytes(text.as_bytes()).is_ok_and(|name| !OTHERS.contains(&name))
}

/// Whether headers with this name from trusted proxies may be passed on unchanged.
pub(crate) fn is_proxy_header(text: &str) -> bool {
    HeaderName::from_bytes(text.as_bytes()).is_ok_and(|name| is_forwardable_claim(name.as_str()))
}
