//! Session tickets of listeners that request client certificates.
//!
//! A resumed session inherits the client certificate of the first handshake, and rustls does not verify it
//! again: with tickets that are renewed on each connection, a client could use its certificate indefinitely
//! after its expiry. A ticket whose certificate is not valid now is not accepted, so that the client has to
//! present a valid one in a full handshake.

use std::sync::Arc;
use std::time::SystemTime;

use rustls::pki_types::CertificateDer;
use rustls::server::ProducesTickets;

use crate::http_semantics::peer_certificate::PeerCertificate;

/// Tickets that are valid as long as the certificates in them.
#[derive(Debug)]
pub(super) struct CertificateTickets(pub(super) Arc<dyn ProducesTickets>);

impl ProducesTickets for CertificateTickets {
    fn enabled(&self) -> bool {
        self.0.enabled()
    }

    fn lifetime(&self) -> u32 {
        self.0.lifetime()
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        self.0.encrypt(plain)
    }

    fn decrypt(&self, cipher: &[u8]) -> Option<Vec<u8>> {
        let plain = self.0.decrypt(cipher)?;
        is_valid_session(&plain, SystemTime::now()).then_some(plain)
    }
}

/// Whether a session has no client certificate, or one that is valid at this time.
fn is_valid_session(session: &[u8], now: SystemTime) -> bool {
    match client_certificate(session) {
        Some(None) => true,
        Some(Some(der)) => {
            let certificate = PeerCertificate::parse(&CertificateDer::from(der));
            certificate.is_ok_and(|certificate| certificate.staleness(now).is_none())
        }
        // Another version of rustls may use another format: no session is resumed then, and a test fails.
        None => false,
    }
}

/// Returns the client certificate of a session in rustls's format (`ServerSessionValue`), or `None` for an
/// unknown format.
fn client_certificate(session: &[u8]) -> Option<Option<&[u8]>> {
    let mut rest = session;
    if take_bytes(&mut rest, 1)? == [1] {
        take_block(&mut rest, 1)?; // server name
    }
    take_bytes(&mut rest, 4)?; // version, cipher suite
    take_block(&mut rest, 1)?; // master secret
    take_bytes(&mut rest, 1)?; // extended master secret
    match take_bytes(&mut rest, 1)? {
        [0] => Some(None),
        [1] => {
            let mut chain = take_block(&mut rest, 3)?;
            take_block(&mut chain, 3).map(Some)
        }
        _ => None,
    }
}

fn take_bytes<'a>(rest: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (taken, behind) = rest.split_at_checked(length)?;
    *rest = behind;
    Some(taken)
}

/// Takes bytes that are prefixed with their length, a number of `width` bytes.
fn take_block<'a>(rest: &mut &'a [u8], width: usize) -> Option<&'a [u8]> {
    let length = take_bytes(rest, width)?.iter().fold(0, |length, byte| length << 8 | usize::from(*byte));
    take_bytes(rest, length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn does_not_resume_sessions_in_an_unknown_format() {
        let without = [0, 3, 4, 19, 1, 2, 7, 7, 1, 0, 0];
        assert!(is_valid_session(&without, SystemTime::now()));
        for length in 0..9 {
            assert!(!is_valid_session(&without[..length], SystemTime::now()), "{length}");
        }
        let odd = [&without[..9], &[2, 0]].concat();
        assert!(!is_valid_session(&odd, SystemTime::now()));
        let no_certificate = [&without[..9], &[1, 0, 0, 4, 0, 0, 1, 5]].concat();
        assert!(!is_valid_session(&no_certificate, SystemTime::now()));
    }
}
