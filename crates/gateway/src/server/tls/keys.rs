//! The gateway's own certificates, and which of them a client gets: by the name that it asks for (SNI, RFC
//! 6066, section 3), and among several with that name by what it can verify.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use rustls::crypto::CryptoProvider;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::{self, PemObject};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{Error, InconsistentKeys};
use services::config::ConfigProblem;

use super::certificate::Certificate;
use super::{certificates, problem};
use crate::config::CertificateConfig;

/// Certificates with their keys.
#[derive(Debug)]
pub(super) struct Keys {
    /// By host, also `*.shop.example`.
    by_host: HashMap<String, Vec<Arc<CertifiedKey>>>,
    /// In the order of the config: whom no name helps gets the first that it can verify.
    all: Vec<Arc<CertifiedKey>>,
}

impl Keys {
    /// Reads all of them.
    ///
    /// # Errors
    /// What is wrong with each that can't be used.
    pub(super) fn load(
        config: &[CertificateConfig],
        provider: &CryptoProvider,
    ) -> Result<Self, Vec<ConfigProblem>> {
        let mut keys = Self { by_host: HashMap::new(), all: Vec::new() };
        let mut problems = Vec::new();
        for (index, config) in config.iter().enumerate() {
            match load_one(config, provider) {
                Ok((key, certificate)) => keys.add(key, &certificate),
                Err(found) => {
                    let pointer = format!("/certificates/{index}{}", found.pointer);
                    problems.push(ConfigProblem { pointer, ..found });
                }
            }
        }
        if problems.is_empty() { Ok(keys) } else { Err(problems) }
    }

    fn add(&mut self, key: CertifiedKey, certificate: &Certificate) {
        let key = Arc::new(key);
        self.all.push(Arc::clone(&key));
        for host in certificate.hosts() {
            self.by_host.entry(host.to_owned()).or_default().push(Arc::clone(&key));
        }
    }

    /// Those for a host: by its name, or by a wildcard in the place of its first label (RFC 9525, 6.3).
    fn for_host(&self, host: &str) -> Option<&Vec<Arc<CertifiedKey>>> {
        let host = host.to_ascii_lowercase();
        let wildcard = || Some(format!("*.{}", host.split_once('.')?.1));
        self.by_host.get(&host).or_else(|| self.by_host.get(&wildcard()?))
    }
}

impl ResolvesServerCert for Keys {
    fn resolve(&self, client: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let fitting = client.server_name().and_then(|host| self.for_host(host)).unwrap_or(&self.all);
        let can_verify =
            |key: &&Arc<CertifiedKey>| key.key.choose_scheme(client.signature_schemes()).is_some();
        fitting.iter().find(can_verify).or_else(|| fitting.first()).cloned()
    }
}

/// A certificate with its key. One that is past its time is used: clients will complain, but the gateway's
/// other names go on.
fn load_one(
    config: &CertificateConfig,
    provider: &CryptoProvider,
) -> Result<(CertifiedKey, Certificate), ConfigProblem> {
    let CertificateConfig { cert, key } = config;
    let wrong_cert = |what: String| {
        let hint = "it holds the certificate in PEM, then those between it and its root";
        problem("/cert", format!("{}: {what}", cert.display()), hint)
    };
    let chain = certificates(cert).map_err(|error| wrong_cert(error.to_string()))?;
    let read = chain.first().map(Certificate::read).transpose();
    let certificate = read.ok().flatten().ok_or_else(|| wrong_cert("the certificate is malformed".into()))?;
    if let Some(staleness) = certificate.staleness(SystemTime::now()) {
        tracing::warn!(file = %cert.display(), subject = certificate.subject, "the certificate {staleness}");
    }
    let private = private_key(key).map_err(|what| {
        problem("/key", format!("{}: {what}", key.display()), "it holds one private key in PEM")
    })?;
    let certified = CertifiedKey::from_der(chain, private, provider).map_err(|error| match error {
        Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
            let message = format!("{} is not the key of {}", key.display(), cert.display());
            problem("/key", message, "certificate and key are renewed together")
        }
        error => problem("/key", format!("{}: {error}", key.display()), "use an RSA, ECDSA or Ed25519 key"),
    })?;
    Ok((certified, certificate))
}

/// Why a key can't be read; never what is in it.
fn private_key(file: &Path) -> Result<PrivateKeyDer<'static>, String> {
    let bytes = fs::read(file).map_err(|error| error.to_string())?;
    PrivateKeyDer::from_pem_slice(&bytes).map_err(|error| match error {
        pem::Error::NoItemsFound => "there is no private key in it".to_owned(),
        _ => "it is not PEM".to_owned(),
    })
}
