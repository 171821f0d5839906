//! The contents of a certificate: its names and its validity.

use std::time::SystemTime;

use rustls::pki_types::CertificateDer;
use sha2::{Digest, Sha256};
use x509_cert::attr::AttributeTypeAndValue;
use x509_cert::der::asn1::{BmpString, Ia5String, PrintableString, TeletexString, Utf8StringRef};
use x509_cert::der::oid::ObjectIdentifier;
use x509_cert::der::{Decode, Tag, Tagged};
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;
use x509_cert::name::Name;

use crate::config::certificate_name::{CertificateName, is_common_name};

/// The attribute type of a common name (RFC 4519, 2.3).
const COMMON_NAME: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.3");

/// The parts of a certificate (RFC 5280) that the gateway uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PeerCertificate {
    /// The subject's distinguished name as text, for display: `CN=checkout,O=Shop` (RFC 4514).
    pub(crate) subject: String,
    /// The alternative names, then the common name.
    pub(crate) names: Vec<CertificateName>,
    valid_from: SystemTime,
    valid_until: SystemTime,
}

impl PeerCertificate {
    /// Parses a certificate without verifying it.
    ///
    /// # Errors
    /// Fails if it is not a valid certificate.
    pub(crate) fn parse(der: &CertificateDer<'_>) -> Result<Self, x509_cert::der::Error> {
        let certificate = x509_cert::Certificate::from_der(der)?.tbs_certificate;
        let alternative = certificate.get::<SubjectAltName>()?.map(|(_, SubjectAltName(names))| names);
        let common = common_name(&certificate.subject);
        let lone = common.clone().filter(|_| alternative.is_none()).map(CertificateName::LoneCommonName);
        let names = alternative.iter().flatten().filter_map(alternative_name);
        Ok(Self {
            subject: certificate.subject.to_string(),
            names: names.chain(common.map(CertificateName::CommonName)).chain(lone).collect(),
            valid_from: certificate.validity.not_before.to_system_time(),
            valid_until: certificate.validity.not_after.to_system_time(),
        })
    }

    /// Returns the facts about the certificate that filters may see.
    pub(crate) fn to_filter_certificate(&self, der: &CertificateDer<'_>) -> filter::CertificateInfo {
        let digest = Sha256::digest(der).iter().map(|byte| format!("{byte:02x}")).collect();
        let dns = self.names.iter().find_map(|name| match name {
            CertificateName::Dns(host) => Some(host.clone()),
            _ => None,
        });
        let uri = self.names.iter().find_map(|name| match name {
            CertificateName::Uri(uri) => Some(uri.clone()),
            _ => None,
        });
        filter::CertificateInfo { subject: self.subject.clone(), dns, uri, digest }
    }

    /// The hosts that it is valid for, in lower case.
    pub(crate) fn hosts(&self) -> impl Iterator<Item = &str> {
        self.names.iter().filter_map(|name| match name {
            CertificateName::Dns(host) => Some(host.as_str()),
            _ => None,
        })
    }

    /// The reason the certificate is not valid at this time, if it is not.
    pub(crate) fn staleness(&self, now: SystemTime) -> Option<&'static str> {
        match now {
            now if now > self.valid_until => Some("has expired"),
            now if now < self.valid_from => Some("is not valid yet"),
            _ => None,
        }
    }
}

fn alternative_name(name: &GeneralName) -> Option<CertificateName> {
    match name {
        GeneralName::DnsName(name) => CertificateName::dns(name.as_str()),
        GeneralName::UniformResourceIdentifier(uri) => CertificateName::uri(uri.as_str()),
        GeneralName::Rfc822Name(address) => CertificateName::email(address.as_str()),
        GeneralName::IpAddress(address) => CertificateName::ip(address.as_bytes()),
        _ => None,
    }
}

/// Returns the only common name of a subject, found by its structure, since the text of another attribute may
/// look like one. With several, it is unclear which one applies.
fn common_name(subject: &Name) -> Option<String> {
    let attributes = subject.0.iter().flat_map(|relative| relative.0.iter());
    let mut common = attributes.filter(|attribute| attribute.oid == COMMON_NAME);
    let (only, None) = (common.next()?, common.next()) else { return None };
    attribute_text(only).filter(|text| is_common_name(text))
}

/// The text of an attribute (`DirectoryString`, RFC 5280, section 4.1.2.4).
fn attribute_text(attribute: &AttributeTypeAndValue) -> Option<String> {
    let value = &attribute.value;
    match value.tag() {
        Tag::Utf8String => value.decode_as::<Utf8StringRef<'_>>().ok().map(|text| text.as_str().to_owned()),
        Tag::PrintableString => {
            value.decode_as::<PrintableString>().ok().map(|text| text.as_str().to_owned())
        }
        Tag::Ia5String => value.decode_as::<Ia5String>().ok().map(|text| text.as_str().to_owned()),
        Tag::TeletexString => value.decode_as::<TeletexString>().ok().map(|text| text.as_str().to_owned()),
        Tag::BmpString => value.decode_as::<BmpString>().ok().map(|text| text.to_string()),
        _ => None,
    }
}
