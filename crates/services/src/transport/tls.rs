//! TLS towards services: whom we trust, who we say we are, and which HTTP we offer.
//!
//! The files are read when the config is, so that a bad one keeps the config from being used. What they held
//! is compared with what they held before, so that connections outlive a reload that changes nothing of theirs.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::{Arc, LazyLock};

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

use crate::config::{Protocol, ServiceTlsConfig};

/// No file of certificates is larger than this, in bytes.
const LARGEST: u64 = 1 << 20;

/// What to do about a key.
const KEY: &str = "Write the private key of `cert`, in PEM and not encrypted.";

/// The authorities that browsers trust, as Mozilla lists them.
static ROOTS: LazyLock<Arc<RootCertStore>> =
    LazyLock::new(|| Arc::new(RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() }));

/// TLS towards the targets of a service. Two are equal if their files held the same.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    pub(crate) config: Arc<ClientConfig>,
    made_of: Arc<MadeOf>,
}

/// What tells one [`Client`] from another. Keys need no comparing: a certificate has only one.
#[derive(Debug, PartialEq)]
struct MadeOf {
    protocol: Protocol,
    authorities: Option<Chain>,
    identity: Option<Chain>,
}

type Chain = Vec<CertificateDer<'static>>;

impl PartialEq for Client {
    fn eq(&self, other: &Self) -> bool {
        self.made_of == other.made_of
    }
}

/// What is wrong with the config of TLS: below which field, what, and what to do.
#[derive(Debug)]
pub(crate) struct Mistake {
    pub(crate) below: &'static str,
    pub(crate) message: String,
    pub(crate) hint: &'static str,
}

/// TLS 1.2 and 1.3, as the config says it; its files start in the folder.
pub(crate) fn client(
    config: &ServiceTlsConfig,
    protocol: Protocol,
    folder: &Path,
) -> Result<Client, Mistake> {
    let authorities = authorities(config, folder)?;
    let identity = identity(config, folder)?;
    let roots = authorities.as_ref().map_or_else(|| Arc::clone(&ROOTS), |(_, roots)| Arc::clone(roots));
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| mistake("", "TLS", &error.to_string(), "Use another build of the gateway."))?
        .with_root_certificates(roots);
    let made_of = MadeOf {
        protocol,
        authorities: authorities.map(|(chain, _)| chain),
        identity: identity.as_ref().map(|(chain, _)| chain.clone()),
    };
    let mut client = match identity {
        Some((chain, key)) => builder.with_client_auth_cert(chain, key).map_err(|error| {
            mistake("/key", config.key.as_deref().unwrap_or_default(), &error.to_string(), KEY)
        })?,
        None => builder.with_no_client_auth(),
    };
    client.alpn_protocols = offered(protocol);
    Ok(Client { config: Arc::new(client), made_of: Arc::new(made_of) })
}

/// Whom the config trusts; `None` for those whom browsers do.
fn authorities(
    config: &ServiceTlsConfig,
    folder: &Path,
) -> Result<Option<(Chain, Arc<RootCertStore>)>, Mistake> {
    let Some(file) = &config.ca else { return Ok(None) };
    let wrong = |reason: String| mistake("/ca", file, &reason, "Write certificates of authorities, in PEM.");
    let chain = certificates(&folder.join(file)).map_err(wrong)?;
    let mut roots = RootCertStore::empty();
    for certificate in &chain {
        roots.add(certificate.clone()).map_err(|error| wrong(error.to_string()))?;
    }
    Ok(Some((chain, Arc::new(roots))))
}

/// Who the gateway says it is; `None` for nobody.
fn identity(
    config: &ServiceTlsConfig,
    folder: &Path,
) -> Result<Option<(Chain, PrivateKeyDer<'static>)>, Mistake> {
    match (&config.cert, &config.key) {
        (Some(cert), Some(key)) => {
            let hint = "Write a certificate, then its chain, in PEM.";
            let chain =
                certificates(&folder.join(cert)).map_err(|reason| mistake("/cert", cert, &reason, hint))?;
            let private =
                private_key(&folder.join(key)).map_err(|reason| mistake("/key", key, &reason, KEY))?;
            Ok(Some((chain, private)))
        }
        (None, None) => Ok(None),
        (cert, _) => {
            let (below, other) = if cert.is_some() { ("/cert", "key") } else { ("/key", "cert") };
            let message = format!("it is of no use without `{other}`");
            Err(Mistake { below, message, hint: "Write both, or neither." })
        }
    }
}

fn mistake(below: &'static str, what: &str, reason: &str, hint: &'static str) -> Mistake {
    Mistake { below, message: format!("`{what}` can't be used: {reason}"), hint }
}

/// The protocols that we offer, the best one first (RFC 7301).
fn offered(protocol: Protocol) -> Vec<Vec<u8>> {
    let names: &[&[u8]] = match protocol {
        Protocol::Auto => &[b"h2", b"http/1.1"],
        Protocol::Http1 => &[b"http/1.1"],
        Protocol::Http2 => &[b"h2"],
    };
    names.iter().map(|name| name.to_vec()).collect()
}

fn certificates(file: &Path) -> Result<Chain, String> {
    let pem = read(file).map_err(|error| error.to_string())?;
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    match certificates {
        Ok(none) if none.is_empty() => Err("it holds no certificate".to_owned()),
        Ok(certificates) => Ok(certificates),
        Err(error) => Err(error.to_string()),
    }
}

fn private_key(file: &Path) -> Result<PrivateKeyDer<'static>, String> {
    let pem = read(file).map_err(|error| error.to_string())?;
    // What the parser would say of it may hold a part of the file.
    PrivateKeyDer::from_pem_slice(&pem).map_err(|_| "it holds no private key".to_owned())
}

fn read(file: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let size = File::open(file)?.take(LARGEST + 1).read_to_end(&mut bytes)?;
    if size as u64 > LARGEST {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "it is larger than 1 MiB"));
    }
    Ok(bytes)
}
