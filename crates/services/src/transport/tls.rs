//! TLS towards services: whom we trust, and which HTTP we offer.

use std::sync::{Arc, LazyLock};

use rustls::crypto::ring;
use rustls::{ClientConfig, RootCertStore};

use crate::body::Error;
use crate::config::Protocol;

/// The authorities that browsers trust, as Mozilla lists them.
static ROOTS: LazyLock<Arc<RootCertStore>> =
    LazyLock::new(|| Arc::new(RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() }));

/// TLS 1.2 and 1.3, trusting the public authorities.
///
/// # Errors
/// If the cryptography that TLS needs is missing from the build.
pub(crate) fn public(protocol: Protocol) -> Result<Arc<ClientConfig>, Error> {
    let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(Arc::clone(&ROOTS))
        .with_no_client_auth();
    config.alpn_protocols = offered(protocol);
    Ok(Arc::new(config))
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
