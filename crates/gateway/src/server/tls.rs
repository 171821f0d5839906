//! TLS on a listener: certificates by name, client certificates, and reloads when files change.
//!
//! The rustls config is built once and swapped as a whole. Files are checked every few seconds by their
//! metadata: that also detects Kubernetes' swap of a symbolic link, and if two files change half a second
//! apart, the load is simply repeated. Files that can't be used leave the current config active.

mod keys;
mod tickets;

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use diagnostics::Diagnostic;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, ServerConfig, WebPkiClientVerifier};
use rustls::{ProtocolVersion, RootCertStore, ServerConnection};
use services::ChainLimitVerifier;
use tokio_rustls::TlsAcceptor;

use crate::config::{CertificateConfig, ClientCertificatesConfig, TlsConfig};
use crate::http_semantics::client::TlsSession;
use crate::http_semantics::peer_certificate::PeerCertificate;
use keys::CertificateStore;
use tickets::CertificateTickets;

/// The interval between checks of the files: a renewed certificate is in use within two seconds.
pub(crate) const CHECK_INTERVAL: Duration = Duration::from_secs(2);

/// The maximum number of intermediate certificates of a client.
const MAX_INTERMEDIATES: usize = 2;

/// The protocols that clients may select, best first (RFC 7301).
const PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// The TLS settings and state of a listener.
pub(crate) struct ListenerTls {
    config: TlsConfig,
    active_config: ArcSwap<ServerConfig>,
    last_stamps: Mutex<Vec<Option<FileStamp>>>,
}

/// The metadata that identifies a version of a file.
#[derive(Clone, Copy, PartialEq, Eq)]
struct FileStamp {
    inode: u64,
    length: u64,
    modified: (i64, i64),
}

impl ListenerTls {
    /// Reads the files in the config. Relative paths start at `folder`.
    ///
    /// # Errors
    /// Returns all errors in them, with pointers below `tls`.
    pub(crate) fn new(config: &TlsConfig, folder: &Path) -> Result<Self, Vec<Diagnostic>> {
        let config = with_absolute_paths(config, folder);
        let stamps = Mutex::new(file_stamps(&config));
        let current = ArcSwap::new(Arc::new(load_server_config(&config)?));
        Ok(Self { config, active_config: current, last_stamps: stamps })
    }

    /// The acceptor for the next client.
    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(self.active_config.load_full())
    }

    /// Checks the files, and reloads them if any has changed since the last check.
    pub(crate) fn refresh(&self) {
        let now = file_stamps(&self.config);
        let mut seen = self.last_stamps.lock().unwrap_or_else(PoisonError::into_inner);
        if *seen == now {
            return;
        }
        *seen = now;
        match load_server_config(&self.config) {
            Ok(config) => {
                self.active_config.store(Arc::new(config));
                tracing::info!("the certificates have changed and were reloaded");
            }
            Err(problems) => problems.iter().for_each(|problem| {
                tracing::warn!(problem = %problem.message, "the changed certificates can't be used");
            }),
        }
    }
}

/// Whether the client selected HTTP/2.
pub(super) fn is_http2(connection: &ServerConnection) -> bool {
    connection.alpn_protocol() == Some(PROTOCOLS[0])
}

/// Returns the TLS facts of a connection after its handshake. Its client certificate has been verified.
pub(super) fn tls_session(connection: &ServerConnection) -> TlsSession {
    let certificate = connection.peer_certificates().and_then(<[_]>::first);
    let version = match connection.protocol_version() {
        Some(ProtocolVersion::TLSv1_2) => Some("TLSv1.2"),
        Some(ProtocolVersion::TLSv1_3) => Some("TLSv1.3"),
        _ => None,
    };
    let read = certificate.and_then(|certificate| PeerCertificate::parse(certificate).ok());
    let tls = filter::TlsInfo {
        version,
        server_name: connection.server_name().map(Into::into),
        is_mutual: certificate.is_some(),
        certificate: read.as_ref().zip(certificate).map(|(read, der)| read.to_filter_certificate(der)),
    };
    TlsSession { certificate: read, tls: Arc::new(tls) }
}

fn load_server_config(config: &TlsConfig) -> Result<ServerConfig, Vec<Diagnostic>> {
    let provider = Arc::new(ring::default_provider());
    let keys = CertificateStore::load(&config.certificates, &provider);
    let verifier = build_client_verifier(config.client.as_ref(), &provider).map_err(|problem| vec![*problem]);
    let (keys, verifier) = match (keys, verifier) {
        (Ok(keys), Ok(verifier)) => (keys, verifier),
        (keys, verifier) => {
            return Err([keys.err(), verifier.err()].into_iter().flatten().flatten().collect());
        }
    };
    let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder =
        builder.map_err(|error| vec![Diagnostic::new("", format!("TLS can't be set up: {error}"), "")])?;
    let mut tls = builder.with_client_cert_verifier(verifier).with_cert_resolver(Arc::new(keys));
    tls.alpn_protocols = PROTOCOLS.map(<[u8]>::to_vec).to_vec();
    // Tickets store sessions at the client. They are disabled if no random bytes are available for their key.
    let asks_clients = config.client.is_some();
    if let Ok(ticketer) = ring::Ticketer::new() {
        tls.ticketer = if asks_clients { Arc::new(CertificateTickets(ticketer)) } else { ticketer };
    }
    if asks_clients {
        // A session stored here would be resumed even after its certificate expired.
        tls.session_storage = Arc::new(NoServerSessionStorage {});
    }
    Ok(tls)
}

fn build_client_verifier(
    config: Option<&ClientCertificatesConfig>,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, Box<Diagnostic>> {
    let Some(config) = config else { return Ok(WebPkiClientVerifier::no_client_auth()) };
    let wrong =
        |message: String| Diagnostic::new("/client/ca", message, "it should contain certificates in PEM");
    let shown = config.ca.display();
    let mut roots = RootCertStore::empty();
    for certificate in read_certificates(&config.ca).map_err(|error| wrong(format!("{shown}: {error}")))? {
        roots.add(certificate).map_err(|error| wrong(format!("{shown} has a bad certificate: {error}")))?;
    }
    let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider));
    let builder = if config.required { builder } else { builder.allow_unauthenticated() };
    let verifier = builder.build().map_err(|error| wrong(format!("{shown} can't be used: {error}")))?;
    Ok(Arc::new(ChainLimitVerifier { inner: verifier, max_intermediates: MAX_INTERMEDIATES }))
}

/// Reads the certificates in a file, at least one.
fn read_certificates(file: &Path) -> io::Result<Vec<CertificateDer<'static>>> {
    let bytes = fs::read(file)?;
    let bad = |what: String| io::Error::new(io::ErrorKind::InvalidData, what);
    let all = CertificateDer::pem_slice_iter(&bytes).collect::<Result<Vec<_>, _>>();
    match all.map_err(|error| bad(format!("it is not PEM: {error}")))? {
        none if none.is_empty() => Err(bad("it contains no certificate".to_owned())),
        some => Ok(some),
    }
}

/// Returns the config with absolute paths.
fn with_absolute_paths(config: &TlsConfig, folder: &Path) -> TlsConfig {
    let mut config = config.clone();
    files_mut(&mut config).for_each(|file| *file = folder.join(&*file));
    config
}

fn files_mut(config: &mut TlsConfig) -> impl Iterator<Item = &mut PathBuf> {
    let certificates = config.certificates.iter_mut().flat_map(|CertificateConfig { cert, key }| [cert, key]);
    certificates.chain(config.client.as_mut().map(|client| &mut client.ca))
}

fn file_stamps(config: &TlsConfig) -> Vec<Option<FileStamp>> {
    let files = config.certificates.iter().flat_map(|CertificateConfig { cert, key }| [cert, key]);
    let files = files.chain(config.client.as_ref().map(|client| &client.ca));
    files.map(|file| fs::metadata(file).ok().map(|metadata| FileStamp::from_metadata(&metadata))).collect()
}

impl FileStamp {
    fn from_metadata(metadata: &fs::Metadata) -> Self {
        Self {
            inode: metadata.ino(),
            length: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
        }
    }
}

#[cfg(test)]
mod tests;
