//! What a certificate says: whom it names, and until when.

use std::time::SystemTime;

use rustls::pki_types::CertificateDer;
use sha2::{Digest, Sha256};
use x509_cert::der::Decode;
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;

/// A certificate (RFC 5280), as far as the gateway has to know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Certificate {
    /// The subject's distinguished name: `CN=checkout,O=Shop` (RFC 4514).
    pub(crate) subject: String,
    /// The alternative names, each with its kind before it: `DNS:shop.example`, `URI:spiffe://shop/checkout`,
    /// `email:a@shop.example`.
    pub(crate) names: Vec<String>,
    from: SystemTime,
    until: SystemTime,
}

impl Certificate {
    /// Reads one. Whether it can be believed is another matter.
    ///
    /// # Errors
    /// Where it is no certificate.
    pub(crate) fn read(der: &CertificateDer<'_>) -> Result<Self, x509_cert::der::Error> {
        let certificate = x509_cert::Certificate::from_der(der)?.tbs_certificate;
        let alternative = certificate.get::<SubjectAltName>()?.map(|(_, SubjectAltName(names))| names);
        Ok(Self {
            subject: certificate.subject.to_string(),
            names: alternative.iter().flatten().filter_map(name).collect(),
            from: certificate.validity.not_before.to_system_time(),
            until: certificate.validity.not_after.to_system_time(),
        })
    }

    /// Its names without their kinds: the alternative ones, and where there are none the common name.
    pub(crate) fn bare_names(&self) -> impl Iterator<Item = &str> {
        let bare = |name: &'_ String| name.split_once(':').map_or(0, |(kind, _)| kind.len() + 1);
        let names = self.names.iter().map(move |name| &name[bare(name)..]);
        let common = || self.subject.split(',').find_map(|part| part.trim().strip_prefix("CN="));
        names.chain(if self.names.is_empty() { common() } else { None })
    }

    /// What filters may know of it, and of its bytes.
    pub(crate) fn shown(&self, der: &CertificateDer<'_>) -> filter::Certificate {
        let first = |kind| self.names.iter().find_map(|name| name.strip_prefix(kind)).map(str::to_owned);
        let digest = Sha256::digest(der).iter().map(|byte| format!("{byte:02x}")).collect();
        filter::Certificate { subject: self.subject.clone(), dns: first("DNS:"), uri: first("URI:"), digest }
    }

    /// The hosts that it speaks for, in lower case.
    pub(crate) fn hosts(&self) -> impl Iterator<Item = String> {
        self.names.iter().filter_map(|name| Some(name.strip_prefix("DNS:")?.to_ascii_lowercase()))
    }

    /// Why nobody would believe it at this time.
    pub(crate) fn staleness(&self, now: SystemTime) -> Option<&'static str> {
        match now {
            now if now > self.until => Some("has expired"),
            now if now < self.from => Some("is not valid yet"),
            _ => None,
        }
    }
}

fn name(name: &GeneralName) -> Option<String> {
    match name {
        GeneralName::DnsName(name) => Some(format!("DNS:{name}")),
        GeneralName::UniformResourceIdentifier(uri) => Some(format!("URI:{uri}")),
        GeneralName::Rfc822Name(address) => Some(format!("email:{address}")),
        _ => None,
    }
}
