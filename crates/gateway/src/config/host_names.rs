//! Patterns for host names in the config: those of the hosts that a listener serves.

use std::net::IpAddr;

/// A set of host patterns: `shop.example`, `*.shop.example`, `shop.example:8443`, `[2001:db8::1]`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct HostNames(Vec<HostPattern>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct HostPattern {
    host: NormalizedHost,
    /// The port, if only one matches.
    port: Option<u16>,
}

/// A host without its port, in normal form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NormalizedHost {
    /// In lower case, without a trailing dot.
    Name(String),
    /// All subdomains: names that end with this suffix, which begins with a dot.
    Subdomains(String),
    Address(IpAddr),
}

impl HostNames {
    /// Creates the set from the patterns of a config, which have been checked.
    pub(crate) fn new<'a>(patterns: impl IntoIterator<Item = &'a String>) -> Self {
        Self(patterns.into_iter().filter_map(|text| HostPattern::parse(text).ok()).collect())
    }

    /// Whether the set is empty, which means that every host is served.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the set contains a request's host, with an optional port. The default is the scheme's port.
    pub(crate) fn contains(&self, host: &str, is_secure: bool) -> bool {
        let Some((host, port)) = NormalizedHost::parse(host) else { return false };
        let port = port.unwrap_or(if is_secure { 443 } else { 80 });
        self.0
            .iter()
            .any(|pattern| pattern.host.covers(&host) && pattern.port.is_none_or(|only| only == port))
    }
}

impl HostPattern {
    fn parse(text: &str) -> Result<Self, &'static str> {
        let (below, rest) = match text.strip_prefix("*.") {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let (host, port) =
            NormalizedHost::parse(rest).ok_or("it is neither a name nor an address with an optional port")?;
        let host = match host {
            NormalizedHost::Name(name) if below => NormalizedHost::Subdomains(format!(".{name}")),
            NormalizedHost::Address(_) if below => return Err("a `*` has to precede a name"),
            host => host,
        };
        Ok(Self { host, port })
    }
}

/// Checks a pattern under `hosts` of a listener.
///
/// # Errors
/// The reason why it is invalid.
pub(crate) fn check_pattern(text: &str) -> Result<(), &'static str> {
    HostPattern::parse(text).map(drop)
}

impl NormalizedHost {
    /// Parses a host and its port; `None` if it is neither a name nor an address.
    pub(crate) fn parse(text: &str) -> Option<(Self, Option<u16>)> {
        let (host, port) = match text.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
            _ => (text, None),
        };
        let is_number = |port: &str| !port.is_empty() && port.bytes().all(|digit| digit.is_ascii_digit());
        let port = match port {
            None => None,
            Some("") => None,
            Some(port) => Some(port.parse().ok().filter(|number| is_number(port) && *number != 0)?),
        };
        if let Some(address) = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
            let address: std::net::Ipv6Addr = address.parse().ok()?;
            return Some((Self::Address(address.to_canonical()), port));
        }
        if let Ok(address) = host.parse::<std::net::Ipv4Addr>() {
            return Some((Self::Address(address.into()), port));
        }
        let name = host.strip_suffix('.').unwrap_or(host);
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        let is_label = |label: &str| !label.is_empty() && label.bytes().all(is_plain);
        name.split('.').all(is_label).then(|| (Self::Name(name.to_ascii_lowercase()), port))
    }

    fn covers(&self, host: &Self) -> bool {
        match (self, host) {
            (Self::Subdomains(below), Self::Name(name)) => {
                name.ends_with(below.as_str()) && name.len() > below.len()
            }
            (own, host) => own == host,
        }
    }

    /// Whether it is a name of the local machine, which can't belong to another host.
    pub(crate) fn is_local(&self) -> bool {
        match self {
            Self::Name(name) => name == "localhost" || name.ends_with(".localhost"),
            Self::Address(address) => address.is_loopback(),
            Self::Subdomains(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host_names(patterns: &[&str]) -> HostNames {
        let patterns: Vec<String> = patterns.iter().map(|text| (*text).to_owned()).collect();
        assert!(patterns.iter().all(|text| check_pattern(text).is_ok()), "{patterns:?}");
        HostNames::new(&patterns)
    }

    #[test]
    fn listener_serves_only_its_names() {
        for (pattern, known, unknown) in [
            (
                "shop.example",
                &["shop.example", "SHOP.example", "shop.example.", "shop.example:8080", "shop.example.:1"][..],
                &[
                    "",
                    "a.shop.example",
                    "shop.example.evil.net",
                    "evil.example",
                    "shop.example:x",
                    "xshop.example",
                ][..],
            ),
            ("Shop.Example.", &["shop.example"], &["shop.example.."]),
            (
                "shop.example:8443",
                &["shop.example:8443"],
                &["shop.example", "shop.example:80", "shop.example:443"],
            ),
            ("shop.example:80", &["shop.example", "shop.example:80"], &["shop.example:443"]),
            (
                "*.shop.example",
                &["a.shop.example", "a.b.SHOP.example.:7"],
                &["shop.example", ".shop.example", "ashop.example", "*.shop.example"],
            ),
            ("10.0.0.5", &["10.0.0.5", "10.0.0.5:8080"], &["10.0.0.50", "[::ffff:10.0.0.6]"]),
            ("[2001:DB8::1]", &["[2001:db8::1]", "[2001:db8:0::1]:80"], &["2001:db8::1", "[2001:db8::2]"]),
            ("[2001:db8::1]:443", &["[2001:db8::1]:443"], &["[2001:db8::1]"]),
        ] {
            let names = host_names(&[pattern]);
            known.iter().for_each(|host| assert!(names.contains(host, false), "{pattern} knows {host}"));
            unknown
                .iter()
                .for_each(|host| assert!(!names.contains(host, false), "{pattern} does not know {host}"));
        }
        assert!(host_names(&["shop.example:443"]).contains("shop.example", true));
    }

    #[test]
    fn rejects_invalid_host_patterns() {
        for text in [
            "",
            "*",
            "*.",
            "*.10.0.0.1",
            "a.*",
            "http://a",
            "a/b",
            "a b",
            "a:0",
            "a:70000",
            "[::1",
            "*a.example",
            "a..b",
        ] {
            assert!(check_pattern(text).is_err(), "{text:?}");
        }
    }
}
