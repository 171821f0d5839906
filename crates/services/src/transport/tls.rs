//! TLS towards services: whom we trust, who we say we are, and which HTTP we offer.
//!
//! The files are read when the config is, so that a bad one keeps the config from being used.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::{Arc, LazyLock, OnceLock};

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

use crate::config::{Protocol, ServiceTlsConfig};

/// No file of certificates is larger than this, in bytes.
const LARGEST: u64 = 1 << 20;

/// The authorities that browsers trust, as Mozilla lists them.
static ROOTS: LazyLock<Arc<RootCertStore>> =
    LazyLock::new(|| Arc::new(RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() }));

/// What is wrong with the config of TLS: below which field, what, and what to do.
#[derive(Debug)]
pub(crate) struct Mistake {
    pub(crate) below: &'static str,
    pub(crate) message: String,
    pub(crate) hint: &'static str,
}

/// TLS 1.2 and 1.3, as the config says it; its files start in the folder. Where it names no files it is made
/// once, so that a target is seen to be the same after a reload, and keeps its connections.
pub(crate) fn client(
    config: &ServiceTlsConfig,
    protocol: Protocol,
    folder: &Path,
) -> Result<Arc<ClientConfig>, Mistake> {
    static USUAL: [OnceLock<Arc<ClientConfig>>; 3] = [const { OnceLock::new() }; 3];
    match USUAL.get(protocol as usize) {
        Some(usual) if config.files().next().is_none() => match usual.get() {
            Some(usual) => Ok(Arc::clone(usual)),
            None => made(config, protocol, folder).map(|made| Arc::clone(usual.get_or_init(|| made))),
        },
        _ => made(config, protocol, folder),
    }
}

fn made(config: &ServiceTlsConfig, protocol: Protocol, folder: &Path) -> Result<Arc<ClientConfig>, Mistake> {
    let roots = match &config.ca {
        Some(file) => authorities(&folder.join(file))
            .map_err(|reason| mistake("/ca", file, &reason, "Write certificates of authorities, in PEM."))?,
        None => Arc::clone(&ROOTS),
    };
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| mistake("", "TLS", &error.to_string(), "Use another build of the gateway."))?
        .with_root_certificates(roots);
    let mut client = match (&config.cert, &config.key) {
        (Some(cert), Some(key)) => {
            let hint = "Write a certificate, then its chain, in PEM.";
            let chain =
                certificates(&folder.join(cert)).map_err(|reason| mistake("/cert", cert, &reason, hint))?;
            let hint = "Write the private key of `cert`, in PEM and not encrypted.";
            let private =
                private_key(&folder.join(key)).map_err(|reason| mistake("/key", key, &reason, hint))?;
            let identified = builder.with_client_auth_cert(chain, private);
            identified.map_err(|error| mistake("/key", key, &error.to_string(), hint))?
        }
        (None, None) => builder.with_no_client_auth(),
        (cert, _) => {
            let (below, other) = if cert.is_some() { ("/cert", "key") } else { ("/key", "cert") };
            let message = format!("it is of no use without `{other}`");
            return Err(Mistake { below, message, hint: "Write both, or neither." });
        }
    };
    client.alpn_protocols = offered(protocol);
    Ok(Arc::new(client))
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

fn authorities(file: &Path) -> Result<Arc<RootCertStore>, String> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(file)? {
        roots.add(certificate).map_err(|error| error.to_string())?;
    }
    Ok(Arc::new(roots))
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
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
