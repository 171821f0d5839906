//! Limits on certificate chains, checked before webpki builds paths from them.
//!
//! webpki tries the intermediate certificates in every order in which their names fit, verifies a signature
//! for each attempt, and parses all of them. The sender of the chain doesn't need a trusted certificate for
//! that.
//!
//! A path never contains two certificates with the same subject and key. So certificates that share a subject
//! must share the key, too: cross-signed ones, since servers send several, and repeated ones.

use std::error::Error as StdError;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, OtherError, RootCertStore,
    SignatureScheme,
};

/// The maximum size in bytes of a client's chain, which rustls keeps as long as the connection. Two
/// intermediate certificates and the client's own have 6 KiB with RSA keys of 4,096 bits.
const MAX_CLIENT_CHAIN: usize = 16 << 10;

/// A certificate verifier that refuses chains with many paths and leaves the others to the inner verifier.
#[derive(Debug)]
pub struct ChainLimitVerifier<V: ?Sized> {
    /// The verifier of the chains within the limit.
    pub inner: Arc<V>,
    /// The maximum number of intermediate certificates. From 2 of them webpki builds at most 3 paths, and
    /// from 4 at most 7. With different keys of one subject there would be 5 and 65.
    pub max_intermediates: usize,
}

impl<V: ?Sized> ChainLimitVerifier<V> {
    /// Checks the number of intermediate certificates, and that those with the same subject have the same
    /// key.
    fn check_chain(&self, intermediates: &[CertificateDer<'_>]) -> Result<(), Error> {
        let most = self.max_intermediates;
        if intermediates.len() > most {
            return Err(chain_error(format!("the chain has more than {most} intermediate certificates")));
        }
        // Parsed by webpki itself, which passes over certificates that it can't parse.
        let mut parsed = RootCertStore::empty();
        parsed.add_parsable_certificates(intermediates.iter().cloned());
        let is_ambiguous = parsed.roots.iter().any(|one| {
            parsed.roots.iter().any(|other| {
                one.subject == other.subject && one.subject_public_key_info != other.subject_public_key_info
            })
        });
        if is_ambiguous {
            let reason = "the chain has intermediate certificates with the same subject and different keys";
            return Err(chain_error(reason.to_owned()));
        }
        Ok(())
    }
}

/// Returns the error of a chain that is refused for this reason.
fn chain_error(reason: String) -> Error {
    let reason: Box<dyn StdError + Send + Sync> = reason.into();
    CertificateError::Other(OtherError(Arc::from(reason))).into()
}

impl ServerCertVerifier for ChainLimitVerifier<dyn ServerCertVerifier> {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.check_chain(intermediates)?;
        self.inner.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }

    fn requires_raw_public_keys(&self) -> bool {
        self.inner.requires_raw_public_keys()
    }

    fn root_hint_subjects(&self) -> Option<&[DistinguishedName]> {
        self.inner.root_hint_subjects()
    }
}

impl ClientCertVerifier for ChainLimitVerifier<dyn ClientCertVerifier> {
    fn offer_client_auth(&self) -> bool {
        self.inner.offer_client_auth()
    }

    fn client_auth_mandatory(&self) -> bool {
        self.inner.client_auth_mandatory()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.inner.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let bytes = intermediates.iter().map(|certificate| certificate.len()).sum::<usize>();
        if end_entity.len() + bytes > MAX_CLIENT_CHAIN {
            return Err(chain_error(format!("the chain has more than {MAX_CLIENT_CHAIN} bytes")));
        }
        self.check_chain(intermediates)?;
        self.inner.verify_client_cert(end_entity, intermediates, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }

    fn requires_raw_public_keys(&self) -> bool {
        self.inner.requires_raw_public_keys()
    }
}
