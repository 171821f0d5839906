//! The names by which client certificates stand for callers.
//!
//! A name counts only with its kind: an authority that checks the host names that it certifies may let its clients choose
//! their common name, or a URI that looks like a host. So the config says the kind, `dns:shop.example`, and names of
//! other kinds are other names.

use std::net::IpAddr;

/// A name in a certificate, or in the config (RFC 5280, section 4.2.1.6).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum CertificateName {
    /// A host, in lower case and without a dot at its end.
    Dns(String),
    /// A URI such as a SPIFFE ID, to the letter.
    Uri(String),
    /// A mailbox, the host in lower case.
    Email(String),
    Ip(IpAddr),
    /// The subject's only common name.
    CommonName(String),
    /// The common name of a certificate that has no alternative names: what a name without a kind meant in old configs,
    /// beside a host.
    LoneCommonName(String),
}

impl CertificateName {
    pub(crate) fn dns(text: &str) -> Option<Self> {
        let text = text.strip_suffix('.').unwrap_or(text);
        is_plain(text).then(|| Self::Dns(text.to_ascii_lowercase()))
    }

    pub(crate) fn uri(text: &str) -> Option<Self> {
        is_plain(text).then(|| Self::Uri(text.to_owned()))
    }

    pub(crate) fn email(text: &str) -> Option<Self> {
        let (mailbox, host) = text.rsplit_once('@').filter(|_| is_plain(text))?;
        let is_whole = !mailbox.is_empty() && !host.is_empty();
        is_whole.then(|| Self::Email(format!("{mailbox}@{}", host.to_ascii_lowercase())))
    }

    /// An address as a certificate has it: 4 or 16 bytes.
    pub(crate) fn ip(bytes: &[u8]) -> Option<Self> {
        let v4 = || <[u8; 4]>::try_from(bytes).ok().map(IpAddr::from);
        let v6 = || <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from);
        v4().or_else(v6).map(|address| Self::Ip(address.to_canonical()))
    }

    /// The names that a caller's text in the config stands for: one of the kind that it begins with, `dns:`, `uri:`,
    /// `email:`, `ip:` or `cn:`; without a kind the one that it looks like.
    ///
    /// # Errors
    /// Why no certificate can bear it.
    pub(crate) fn of_config(text: &str) -> Result<Vec<Self>, &'static str> {
        let ip = |text: &str| text.parse::<IpAddr>().ok().map(|address| Self::Ip(address.to_canonical()));
        let common = |text: &str| is_text(text).then(|| text.to_owned());
        let dns = |text: &str| Self::dns(text).ok_or("it is no host name");
        let name = match kind(text) {
            Some(("dns", name)) => dns(name),
            Some(("uri", name)) => Self::uri(name).filter(|_| name.contains(':')).ok_or("it is no URI"),
            Some(("email", name)) => Self::email(name).ok_or("it is no address of a mailbox"),
            Some(("ip", name)) => ip(name).ok_or("it is no IP address"),
            Some((_, name)) => common(name).map(Self::CommonName).ok_or("it has characters that no name has"),
            None if text.contains("://") => Self::uri(text).ok_or("it is no URI"),
            None if text.contains('@') => Self::email(text).ok_or("it is no address of a mailbox"),
            None if ip(text).is_some() => ip(text).ok_or(""),
            None => {
                let lone =
                    common(text).map(Self::LoneCommonName).ok_or("it has characters that no name has")?;
                return Ok(Self::dns(text).into_iter().chain([lone]).collect());
            }
        }?;
        match &name {
            Self::Dns(host) if host.contains('*') => Err("a wildcard names no single client"),
            _ => Ok(vec![name]),
        }
    }

    /// Whether it names one client, and not whichever fits.
    pub(crate) fn is_exact(&self) -> bool {
        !matches!(self, Self::Dns(host) if host.contains('*'))
    }
}

/// Whether a text of the config says of which kind its name is.
pub(crate) fn kind(text: &str) -> Option<(&str, &str)> {
    text.split_once(':').filter(|(kind, _)| matches!(*kind, "dns" | "uri" | "email" | "ip" | "cn"))
}

/// Whether a text can be a name of a machine: readers of C strings would cut it at a NUL.
fn is_plain(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic())
}

/// Whether a text can be a common name.
pub(crate) fn is_text(text: &str) -> bool {
    !text.is_empty() && !text.chars().any(char::is_control)
}
