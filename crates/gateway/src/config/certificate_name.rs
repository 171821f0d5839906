//! The names in client certificates that identify callers.
//!
//! A name only matches together with its kind: an authority that verifies the host names it certifies may let
//! clients choose their common name, or a URI that looks like a host. So the config includes the kind,
//! `dns:shop.example`, and names of other kinds never match.

use std::net::IpAddr;

/// A name in a certificate, or in the config (RFC 5280, section 4.2.1.6).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum CertificateName {
    /// A host, in lower case and without a trailing dot.
    Dns(String),
    /// A URI such as a SPIFFE ID, compared exactly.
    Uri(String),
    /// An email address, with the host in lower case.
    Email(String),
    Ip(IpAddr),
    /// The subject's only common name.
    CommonName(String),
    /// The common name of a certificate without alternative names. A name without a kind in old configs
    /// matches this as well as a host.
    LoneCommonName(String),
}

impl CertificateName {
    pub(crate) fn dns(text: &str) -> Option<Self> {
        let text = text.strip_suffix('.').unwrap_or(text);
        is_graphic_text(text).then(|| Self::Dns(text.to_ascii_lowercase()))
    }

    pub(crate) fn uri(text: &str) -> Option<Self> {
        is_graphic_text(text).then(|| Self::Uri(text.to_owned()))
    }

    pub(crate) fn email(text: &str) -> Option<Self> {
        let (mailbox, host) = text.rsplit_once('@').filter(|_| is_graphic_text(text))?;
        let is_whole = !mailbox.is_empty() && !host.is_empty();
        is_whole.then(|| Self::Email(format!("{mailbox}@{}", host.to_ascii_lowercase())))
    }

    /// Reads an address as a certificate encodes it, in 4 or 16 bytes.
    pub(crate) fn ip(bytes: &[u8]) -> Option<Self> {
        let v4 = || <[u8; 4]>::try_from(bytes).ok().map(IpAddr::from);
        let v6 = || <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from);
        v4().or_else(v6).map(|address| Self::Ip(address.to_canonical()))
    }

    /// Returns the names that a caller's text in the config matches: one of the kind given by its prefix,
    /// `dns:`, `uri:`, `email:`, `ip:` or `cn:`. Without a prefix, the kind is inferred from the text.
    ///
    /// # Errors
    /// Returns the reason if no certificate can contain the name.
    pub(crate) fn parse_config_names(text: &str) -> Result<Vec<Self>, &'static str> {
        let ip = |text: &str| text.parse::<IpAddr>().ok().map(|address| Self::Ip(address.to_canonical()));
        let common = |text: &str| is_common_name(text).then(|| text.to_owned());
        let dns = |text: &str| Self::dns(text).ok_or("it is not a host name");
        let name = match split_kind(text) {
            Some(("dns", name)) => dns(name),
            Some(("uri", name)) => Self::uri(name).filter(|_| name.contains(':')).ok_or("it is not a URI"),
            Some(("email", name)) => Self::email(name).ok_or("it is not an email address"),
            Some(("ip", name)) => ip(name).ok_or("it is not an IP address"),
            Some((_, name)) => {
                common(name).map(Self::CommonName).ok_or("it has characters that names can't have")
            }
            None if text.contains("://") => Self::uri(text).ok_or("it is not a URI"),
            None if text.contains('@') => Self::email(text).ok_or("it is not an email address"),
            None if ip(text).is_some() => ip(text).ok_or(""),
            None => {
                let lone = common(text)
                    .map(Self::LoneCommonName)
                    .ok_or("it has characters that names can't have")?;
                return Ok(Self::dns(text).into_iter().chain([lone]).collect());
            }
        }?;
        match &name {
            Self::Dns(host) if host.contains('*') => Err("a wildcard names no single client"),
            _ => Ok(vec![name]),
        }
    }

    /// Whether the name identifies a single client, and is not a wildcard.
    pub(crate) fn is_exact(&self) -> bool {
        !matches!(self, Self::Dns(host) if host.contains('*'))
    }
}

/// Splits a text from the config into the kind and the name, if it has a kind.
pub(crate) fn split_kind(text: &str) -> Option<(&str, &str)> {
    text.split_once(':').filter(|(kind, _)| matches!(*kind, "dns" | "uri" | "email" | "ip" | "cn"))
}

/// Whether a text can be a machine's name. A NUL is refused because C code would truncate the name there.
fn is_graphic_text(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic())
}

/// Whether a text can be a common name.
pub(crate) fn is_common_name(text: &str) -> bool {
    !text.is_empty() && !text.chars().any(char::is_control)
}
