//! The gateway's own certificates and their selection: by the name that the client requests (SNI, RFC 6066,
//! section 3), and among several with that name by the signature schemes that the client supports.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use diagnostics::Diagnostic;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::{self, PemObject};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{Error, InconsistentKeys};

use super::read_certificates;
use crate::config::CertificateConfig;
use crate::http_semantics::peer_certificate::PeerCertificate;

/// Certificates with their keys.
#[derive(Debug)]
pub(super) struct CertificateStore {
    /// The certificates by host, including wildcards such as `*.shop.example`.
    by_host: HashMap<String, Vec<Arc<CertifiedKey>>>,
    /// All certificates in the order of the config. If no name matches, the first one that the client can
    /// verify is used.
    all: Vec<Arc<CertifiedKey>>,
}

impl CertificateStore {
    /// Reads all certificates.
    ///
    /// # Errors
    /// Returns an error for each certificate that can't be used.
    pub(super) fn load(
        config: &[CertificateConfig],
        provider: &CryptoProvider,
    ) -> Result<Self, Vec<Diagnostic>> {
        let mut keys = Self { by_host: HashMap::new(), all: Vec::new() };
        let mut problems = Vec::new();
        for (index, config) in config.iter().enumerate() {
            match load_one(config, provider) {
                Ok((key, certificate)) => keys.add(key, &certificate),
                Err(diagnostic) => problems.push(diagnostic.below(&format!("/certificates/{index}"))),
            }
        }
        if problems.is_empty() { Ok(keys) } else { Err(problems) }
    }

    fn add(&mut self, key: CertifiedKey, certificate: &PeerCertificate) {
        let key = Arc::new(key);
        self.all.push(Arc::clone(&key));
        for host in certificate.hosts() {
            self.by_host.entry(host.to_owned()).or_default().push(Arc::clone(&key));
        }
    }

    /// Returns the certificates for a host: by its name, or by a wildcard for its first label (RFC 9525,
    /// 6.3).
    fn for_host(&self, host: &str) -> Option<&Vec<Arc<CertifiedKey>>> {
        let host = host.to_ascii_lowercase();
        let wildcard = || Some(format!("*.{}", host.split_once('.')?.1));
        self.by_host.get(&host).or_else(|| self.by_host.get(&wildcard()?))
    }
}

impl ResolvesServerCert for CertificateStore {
    fn resolve(&self, client: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let fitting = client.server_name().and_then(|host| self.for_host(host)).unwrap_or(&self.all);
        let can_verify =
            |key: &&Arc<CertifiedKey>| key.key.choose_scheme(client.signature_schemes()).is_some();
        fitting.iter().find(can_verify).or_else(|| fitting.first()).cloned()
    }
}

/// Reads a certificate with its key. An expired one is used: its clients will complain, but the gateway's
/// other names keep working.
fn load_one(
    config: &CertificateConfig,
    provider: &CryptoProvider,
) -> Result<(CertifiedKey, PeerCertificate), Box<Diagnostic>> {
    let CertificateConfig { cert, key } = config;
    let wrong_cert = |what: String| {
        let hint = "it should contain the certificate in PEM, then the intermediate ones";
        Diagnostic::new("/cert", format!("{}: {what}", cert.display()), hint)
    };
    let chain = read_certificates(cert).map_err(|error| wrong_cert(error.to_string()))?;
    let read = chain.first().map(PeerCertificate::parse).transpose();
    let certificate = read.ok().flatten().ok_or_else(|| wrong_cert("the certificate is malformed".into()))?;
    if let Some(staleness) = certificate.staleness(SystemTime::now()) {
        tracing::warn!(file = %cert.display(), subject = certificate.subject, "the certificate {staleness}");
    }
    let private = private_key(key).map_err(|what| {
        Diagnostic::new(
            "/key",
            format!("{}: {what}", key.display()),
            "it should contain one private key in PEM",
        )
    })?;
    let certified = CertifiedKey::from_der(chain, private, provider).map_err(|error| match error {
        Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
            let message = format!("{} is not the key of {}", key.display(), cert.display());
            Diagnostic::new("/key", message, "renew certificate and key together")
        }
        error => {
            Diagnostic::new("/key", format!("{}: {error}", key.display()), "use an RSA, ECDSA or Ed25519 key")
        }
    })?;
    Ok((certified, certificate))
}

/// Reads a private key. Errors never contain its contents.
fn private_key(file: &Path) -> Result<PrivateKeyDer<'static>, String> {
    let bytes = fs::read(file).map_err(|error| error.to_string())?;
    PrivateKeyDer::from_pem_slice(&bytes).map_err(|error| match error {
        pem::Error::NoItemsFound => "it contains no private key".to_owned(),
        _ => "it is not PEM".to_owned(),
    })
}
