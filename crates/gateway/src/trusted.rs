//! Who the client is where proxies stand before the gateway: what they say of it is believed as far as the
//! operator believes them, and not a step further (RFC 7239, section 8.1).

use std::net::{IpAddr, SocketAddr};

use http::{HeaderMap, HeaderName, header};
use ipnet::IpNet;

/// The older word for the addresses of `Forwarded`.
const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// The proxies that are believed.
#[derive(Clone, Debug, Default)]
pub(crate) struct TrustedProxies(Vec<IpNet>);

/// A network as the config has it: `10.0.0.0/8`, or one address.
pub(crate) fn network(text: &str) -> Option<IpNet> {
    text.parse().ok().or_else(|| Some(IpNet::from(text.parse::<IpAddr>().ok()?)))
}

impl TrustedProxies {
    /// Those of the config, which was checked.
    pub(crate) fn new(networks: &[String]) -> Self {
        Self(networks.iter().filter_map(|text| network(text)).collect())
    }

    /// Whether what this address says of others is believed.
    pub(crate) fn believe(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.0.iter().any(|network| network.contains(&address))
    }

    /// The client behind whoever is connected: the last in the chain that nobody vouches for.
    pub(crate) fn client(&self, peer: IpAddr, headers: &HeaderMap) -> IpAddr {
        let mut client = peer.to_canonical();
        if !self.believe(client) {
            return client;
        }
        let mut chain = chain(headers);
        while self.believe(client) {
            match chain.pop() {
                Some(Some(before)) => client = before.to_canonical(),
                _ => break,
            }
        }
        client
    }
}

/// The addresses that proxies have seen, the nearest last; `None` where one would not say.
fn chain(headers: &HeaderMap) -> Vec<Option<IpAddr>> {
    let values = |name| headers.get_all(name).iter().map(|value| value.to_str().unwrap_or_default());
    if headers.contains_key(header::FORWARDED) {
        return values(header::FORWARDED).flat_map(|value| split(value, ',')).map(forwarded_for).collect();
    }
    values(X_FORWARDED_FOR).flat_map(|value| value.split(',')).map(|node| address(node.trim())).collect()
}

/// The `for` of one element of `Forwarded`: `for="[2001:db8::1]:4711";proto=https` (RFC 7239, section 4).
fn forwarded_for(element: &str) -> Option<IpAddr> {
    let pair = split(element, ';').find_map(|pair| {
        let (name, value) = pair.trim().split_once('=')?;
        name.eq_ignore_ascii_case("for").then_some(value)
    })?;
    address(pair.trim_matches('"'))
}

/// An address, with or without a port.
fn address(node: &str) -> Option<IpAddr> {
    let bare = || node.strip_prefix('[')?.strip_suffix(']')?.parse().ok();
    let with_port = || Some(node.parse::<SocketAddr>().ok()?.ip());
    node.parse().ok().or_else(with_port).or_else(bare)
}

/// The parts between separators that stand outside of quotes.
fn split(text: &str, separator: char) -> impl Iterator<Item = &str> {
    let mut is_quoted = false;
    text.split(move |letter| {
        is_quoted ^= letter == '"';
        letter == separator && !is_quoted
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(peer: &str, name: &str, value: &str) -> String {
        let trusted = TrustedProxies::new(&["10.0.0.0/8".to_owned(), "2001:db8::1".to_owned()]);
        let mut headers = HeaderMap::new();
        headers.insert(HeaderName::try_from(name).unwrap(), value.parse().unwrap());
        trusted.client(peer.parse().unwrap(), &headers).to_string()
    }

    #[test]
    fn a_stranger_is_who_it_is() {
        for name in ["forwarded", "x-forwarded-for"] {
            assert_eq!(client("192.0.2.1", name, "for=198.51.100.7"), "192.0.2.1");
        }
    }

    #[test]
    fn a_trusted_proxy_says_who_the_client_is() {
        for (name, value, expected) in [
            ("x-forwarded-for", "198.51.100.7", "198.51.100.7"),
            ("x-forwarded-for", "6.6.6.6, 198.51.100.7, 10.9.9.9", "198.51.100.7"),
            ("x-forwarded-for", "198.51.100.7:4711", "198.51.100.7"),
            ("x-forwarded-for", "6.6.6.6, unknown", "10.0.0.1"),
            ("x-forwarded-for", "10.1.1.1", "10.1.1.1"),
            ("forwarded", "for=6.6.6.6, For=\"198.51.100.7:80\";proto=https", "198.51.100.7"),
            ("forwarded", "for=\"[2001:db8::2]:4711\"", "2001:db8::2"),
            ("forwarded", "for=198.51.100.7, for=\"[2001:db8::1]\"", "198.51.100.7"),
            ("forwarded", "by=\"a,for=6.6.6.6\"", "10.0.0.1"),
            ("forwarded", "for=_hidden", "10.0.0.1"),
        ] {
            assert_eq!(client("10.0.0.1", name, value), expected, "{name}: {value}");
        }
        assert_eq!(client("::ffff:10.0.0.1", "x-forwarded-for", "198.51.100.7"), "198.51.100.7");
    }
}
