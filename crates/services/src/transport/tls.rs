//! TLS to services: the trusted authorities, the gateway's client certificate, and the offered HTTP versions.
//!
//! The files are read together with the config, so that an invalid file makes the config invalid. Their
//! contents are compared with the previous ones, so that connections survive a reload that does not change
//! them.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::{Arc, LazyLock};

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

use super::ChainLimitVerifier;
use crate::config::{ServiceProtocol, ServiceTlsConfig};

/// The maximum size of a certificate file in bytes.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// The maximum number of intermediate certificates of a service.
const MAX_INTERMEDIATES: usize = 4;

/// The hint for an invalid key.
const KEY_HINT: &str = "Write the private key of `cert`, in PEM and not encrypted.";

/// The authorities that browsers trust, according to Mozilla's list.
static PUBLIC_ROOTS: LazyLock<Arc<RootCertStore>> =
    LazyLock::new(|| Arc::new(RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() }));

/// The TLS settings for the targets of a service. Two are equal if the contents of their files are.
#[derive(Clone, Debug)]
pub(crate) struct ClientTls {
    pub(crate) config: Arc<ClientConfig>,
    sources: Arc<ClientTlsIdentity>,
}

/// The identity of a [`ClientTls`]. Keys are not compared, since a certificate has only one key.
#[derive(Debug, PartialEq)]
struct ClientTlsIdentity {
    protocol: ServiceProtocol,
    authorities: Option<CertificateChain>,
    identity: Option<CertificateChain>,
}

type CertificateChain = Vec<CertificateDer<'static>>;

impl PartialEq for ClientTls {
    fn eq(&self, other: &Self) -> bool {
        self.sources == other.sources
    }
}

/// A mistake in the TLS config: the field, the message and the hint.
#[derive(Debug)]
pub(crate) struct TlsConfigError {
    pub(crate) pointer_suffix: &'static str,
    pub(crate) message: String,
    pub(crate) hint: &'static str,
}

/// Creates the settings for TLS 1.2 and 1.3 from the config, with files relative to `folder`.
pub(crate) fn client_tls(
    config: &ServiceTlsConfig,
    protocol: ServiceProtocol,
    folder: &Path,
) -> Result<ClientTls, TlsConfigError> {
    let authorities = read_authorities(config, folder)?;
    let identity = read_identity(config, folder)?;
    let roots =
        authorities.as_ref().map_or_else(|| Arc::clone(&PUBLIC_ROOTS), |(_, roots)| Arc::clone(roots));
    let unusable = |error: String| file_error("", "TLS", &error, "Use another build of the gateway.");
    let provider = Arc::new(ring::default_provider());
    let verifier = WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(&provider));
    let verifier: Arc<dyn ServerCertVerifier> =
        verifier.build().map_err(|error| unusable(error.to_string()))?;
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| unusable(error.to_string()))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(ChainLimitVerifier {
            inner: verifier,
            max_intermediates: MAX_INTERMEDIATES,
        }));
    let made_of = ClientTlsIdentity {
        protocol,
        authorities: authorities.map(|(chain, _)| chain),
        identity: identity.as_ref().map(|(chain, _)| chain.clone()),
    };
    let mut client = match identity {
        Some((chain, key)) => builder.with_client_auth_cert(chain, key).map_err(|error| {
            file_error("/key", config.key.as_deref().unwrap_or_default(), &error.to_string(), KEY_HINT)
        })?,
        None => builder.with_no_client_auth(),
    };
    client.alpn_protocols = alpn_protocols(protocol);
    Ok(ClientTls { config: Arc::new(client), sources: Arc::new(made_of) })
}

/// Returns the configured authorities; `None` for those that browsers trust.
fn read_authorities(
    config: &ServiceTlsConfig,
    folder: &Path,
) -> Result<Option<(CertificateChain, Arc<RootCertStore>)>, TlsConfigError> {
    let Some(file) = &config.ca else { return Ok(None) };
    let wrong =
        |reason: String| file_error("/ca", file, &reason, "Write certificates of authorities, in PEM.");
    let chain = read_certificates(&folder.join(file)).map_err(wrong)?;
    let mut roots = RootCertStore::empty();
    for certificate in &chain {
        roots.add(certificate.clone()).map_err(|error| wrong(error.to_string()))?;
    }
    Ok(Some((chain, Arc::new(roots))))
}

/// Returns the gateway's client certificate and key; `None` if there is none.
fn read_identity(
    config: &ServiceTlsConfig,
    folder: &Path,
) -> Result<Option<(CertificateChain, PrivateKeyDer<'static>)>, TlsConfigError> {
    match (&config.cert, &config.key) {
        (Some(cert), Some(key)) => {
            let hint = "Write a certificate, then its chain, in PEM.";
            let chain = read_certificates(&folder.join(cert))
                .map_err(|reason| file_error("/cert", cert, &reason, hint))?;
            let private = read_private_key(&folder.join(key))
                .map_err(|reason| file_error("/key", key, &reason, KEY_HINT))?;
            Ok(Some((chain, private)))
        }
        (None, None) => Ok(None),
        (cert, _) => {
            let (below, other) = if cert.is_some() { ("/cert", "key") } else { ("/key", "cert") };
            let message = format!("it has no effect without `{other}`");
            Err(TlsConfigError { pointer_suffix: below, message, hint: "Write both, or neither." })
        }
    }
}

fn file_error(below: &'static str, what: &str, reason: &str, hint: &'static str) -> TlsConfigError {
    TlsConfigError { pointer_suffix: below, message: format!("`{what}` can't be used: {reason}"), hint }
}

/// Returns the ALPN protocols to offer, the preferred one first (RFC 7301).
fn alpn_protocols(protocol: ServiceProtocol) -> Vec<Vec<u8>> {
    let names: &[&[u8]] = match protocol {
        ServiceProtocol::Auto => &[b"h2", b"http/1.1"],
        ServiceProtocol::Http1 => &[b"http/1.1"],
        ServiceProtocol::Http2 => &[b"h2"],
    };
    names.iter().map(|name| name.to_vec()).collect()
}

fn read_certificates(file: &Path) -> Result<CertificateChain, String> {
    let pem = read_file(file).map_err(|error| error.to_string())?;
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    match certificates {
        Ok(none) if none.is_empty() => Err("it contains no certificate".to_owned()),
        Ok(certificates) => Ok(certificates),
        Err(error) => Err(error.to_string()),
    }
}

fn read_private_key(file: &Path) -> Result<PrivateKeyDer<'static>, String> {
    let pem = read_file(file).map_err(|error| error.to_string())?;
    // The parser's error may contain a part of the file.
    PrivateKeyDer::from_pem_slice(&pem).map_err(|_| "it contains no private key".to_owned())
}

#[cfg_attr(not(test), expect(clippy::disallowed_methods, reason = "at most `LARGEST` + 1 bytes"))]
fn read_file(file: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let size = File::open(file)?.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes)?;
    if size as u64 > MAX_FILE_BYTES {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "it is larger than 1 MiB"));
    }
    Ok(bytes)
}
