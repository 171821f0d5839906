//! Tests of TLS ports, with certificates generated here.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, SanType};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore};

use super::*;
use crate::config::certificate_name::CertificateName;

/// A certificate authority.
struct ListenerTestAuthority(CertifiedIssuer<'static, KeyPair>);

impl ListenerTestAuthority {
    fn new() -> Self {
        let mut params = CertificateParams::new([]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    /// Issues a certificate. Returns it and its key in PEM.
    fn issue_certificate(
        &self,
        hosts: &[&str],
        change: impl FnOnce(&mut CertificateParams),
    ) -> (String, String) {
        let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
        let mut params = CertificateParams::new(hosts).unwrap();
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        (params.signed_by(&key, &self.0).unwrap().pem(), key.serialize_pem())
    }

    fn roots(&self) -> Arc<RootCertStore> {
        let mut roots = RootCertStore::empty();
        roots.add(self.0.der().clone()).unwrap();
        Arc::new(roots)
    }
}

/// A folder with certificates, and a config that refers to them.
struct CertificateFolder {
    folder: tempfile::TempDir,
    authority: ListenerTestAuthority,
    config: TlsConfig,
}

impl CertificateFolder {
    /// Creates a certificate for each group of hosts.
    fn new(groups: &[&[&str]]) -> Self {
        let config = TlsConfig { certificates: Vec::new(), client: None };
        let mut files =
            Self { folder: tempfile::tempdir().unwrap(), authority: ListenerTestAuthority::new(), config };
        for (index, hosts) in groups.iter().enumerate() {
            files.write_certificate(index, hosts);
            let path = |kind: &str| PathBuf::from(format!("{index}.{kind}"));
            files.config.certificates.push(CertificateConfig { cert: path("crt"), key: path("key") });
        }
        files
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn write_certificate(&self, index: usize, hosts: &[&str]) {
        let (cert, key) = self.authority.issue_certificate(hosts, |_| {});
        fs::write(self.path().join(format!("{index}.crt")), cert).unwrap();
        fs::write(self.path().join(format!("{index}.key")), key).unwrap();
    }

    /// Requests certificates from clients.
    fn request_client_certificates(&mut self, required: bool) {
        fs::write(self.path().join("ca.crt"), self.authority.0.pem()).unwrap();
        self.config.client = Some(ClientCertificatesConfig { ca: "ca.crt".into(), required });
    }

    fn tls(&self) -> ListenerTls {
        ListenerTls::new(&self.config, self.path()).unwrap_or_else(|problems| panic!("{problems:?}"))
    }

    /// Returns the errors in the files: pointers and messages.
    fn problems(&self) -> Vec<(String, String)> {
        let problems = ListenerTls::new(&self.config, self.path()).err().unwrap_or_default();
        problems.into_iter().map(|problem| (problem.location.pointer().to_owned(), problem.message)).collect()
    }

    fn client(&self) -> ClientConfig {
        ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(self.authority.roots())
            .with_no_client_auth()
    }

    /// A client with this chain, and its key in PEM.
    fn client_with_chain(&self, chain: Vec<CertificateDer<'static>>, key: &str) -> ClientConfig {
        ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(self.authority.roots())
            .with_client_auth_cert(chain, PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap())
            .unwrap()
    }

    /// A client with a certificate of this authority.
    fn client_with_certificate(
        &self,
        authority: &ListenerTestAuthority,
        change: impl FnOnce(&mut CertificateParams),
    ) -> ClientConfig {
        self.client_with_versions(&[&rustls::version::TLS13, &rustls::version::TLS12], authority, change)
    }

    /// A client with a certificate that supports these versions of TLS.
    fn client_with_versions(
        &self,
        versions: &[&'static rustls::SupportedProtocolVersion],
        authority: &ListenerTestAuthority,
        change: impl FnOnce(&mut CertificateParams),
    ) -> ClientConfig {
        let (cert, key) = authority.issue_certificate(&["checkout.internal"], change);
        let cert = CertificateDer::from_pem_slice(cert.as_bytes()).unwrap();
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
        ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(versions)
            .unwrap()
            .with_root_certificates(self.authority.roots())
            .with_client_auth_cert(vec![cert], key)
            .unwrap()
    }
}

/// Performs a handshake in memory, to its end or to the error on either side.
fn handshake(
    tls: &ListenerTls,
    client: ClientConfig,
    host: &str,
) -> Result<(ClientConnection, ServerConnection), String> {
    handshake_with(tls.active_config.load_full(), client, host)
}

fn handshake_with(
    server: Arc<ServerConfig>,
    client: ClientConfig,
    host: &str,
) -> Result<(ClientConnection, ServerConnection), String> {
    let name = ServerName::try_from(host.to_owned()).unwrap();
    let mut client = ClientConnection::new(Arc::new(client), name).unwrap();
    let mut server = ServerConnection::new(server).unwrap();
    // One message a turn; a handshake of any version has fewer than these.
    for _ in 0..10 {
        let mut bytes = Vec::new();
        client.write_tls(&mut bytes).unwrap();
        // A long message is read in several parts.
        let mut unread = &bytes[..];
        while !unread.is_empty() {
            server.read_tls(&mut unread).unwrap();
            server.process_new_packets().map_err(|error| format!("server: {error}"))?;
        }
        bytes.clear();
        server.write_tls(&mut bytes).unwrap();
        client.read_tls(&mut &bytes[..]).unwrap();
        client.process_new_packets().map_err(|error| format!("client: {error}"))?;
    }
    Ok((client, server))
}

/// Returns the hosts of the certificate that a client receives that requests this one and accepts any.
fn presented_hosts(tls: &ListenerTls, files: &CertificateFolder, host: &str) -> Result<Vec<String>, String> {
    let (client, _) = handshake(tls, files.client(), host)?;
    Ok(PeerCertificate::parse(&client.peer_certificates().unwrap()[0])
        .unwrap()
        .hosts()
        .map(str::to_owned)
        .collect())
}

#[test]
fn selects_the_certificate_by_the_requested_name() {
    let files = CertificateFolder::new(&[&["shop.example"], &["api.example", "*.api.example"]]);
    let tls = files.tls();
    assert_eq!(presented_hosts(&tls, &files, "shop.example").unwrap(), ["shop.example"]);
    for host in ["api.example", "v1.api.example", "V1.API.example"] {
        assert_eq!(presented_hosts(&tls, &files, host).unwrap(), ["api.example", "*.api.example"], "{host}");
    }
    for host in ["elsewhere.example", "a.v1.api.example"] {
        let error = presented_hosts(&tls, &files, host).unwrap_err();
        assert!(error.contains("shop.example"), "the first one is for everybody else: {error}");
    }
}

#[test]
fn offers_both_versions_of_http_and_of_tls() {
    let files = CertificateFolder::new(&[&["shop.example"]]);
    let tls = files.tls();
    for (offered, is_h2) in [(vec!["h2", "http/1.1"], true), (vec!["http/1.1"], false), (vec![], false)] {
        let mut client = files.client();
        client.alpn_protocols = offered.iter().map(|name| name.as_bytes().to_vec()).collect();
        let (_, server) = handshake(&tls, client, "shop.example").unwrap();
        assert_eq!(is_http2(&server), is_h2, "{offered:?}");
    }
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let provider = Arc::new(ring::default_provider());
        let client = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[version])
            .unwrap()
            .with_root_certificates(files.authority.roots())
            .with_no_client_auth();
        let (_, server) = handshake(&tls, client, "shop.example").unwrap();
        assert_eq!(server.protocol_version(), Some(version.version));
    }
}

#[test]
fn resumes_sessions() {
    let files = CertificateFolder::new(&[&["shop.example"]]);
    let (tls, client) = (files.tls(), files.client());
    let kind = |_| handshake(&tls, client.clone(), "shop.example").unwrap().1.handshake_kind().unwrap();
    assert_eq!([0, 1].map(kind), [rustls::HandshakeKind::Full, rustls::HandshakeKind::Resumed]);
}

/// The clock of a server at a time when its certificates of 2001 are valid.
#[derive(Debug)]
struct YearOf2001;

impl rustls::time_provider::TimeProvider for YearOf2001 {
    fn current_time(&self) -> Option<rustls::pki_types::UnixTime> {
        Some(rustls::pki_types::UnixTime::since_unix_epoch(Duration::from_secs(991_400_000)))
    }
}

fn valid_in_2001(params: &mut CertificateParams) {
    params.not_before = rcgen::date_time_ymd(2001, 1, 1);
    params.not_after = rcgen::date_time_ymd(2002, 1, 1);
}

#[test]
fn a_session_is_resumed_only_while_its_client_certificate_is_valid() {
    let mut files = CertificateFolder::new(&[&["shop.example"]]);
    for (required, version) in [true, false].into_iter().flat_map(|required| {
        [&rustls::version::TLS12, &rustls::version::TLS13].map(|version| (required, version))
    }) {
        files.request_client_certificates(required);
        let tls = files.tls();
        let valid = files.client_with_versions(&[version], &files.authority, |_| {});
        let kind = |_| handshake(&tls, valid.clone(), "shop.example").unwrap().1.handshake_kind().unwrap();
        assert_eq!([0, 1].map(kind), [rustls::HandshakeKind::Full, rustls::HandshakeKind::Resumed]);
        // The first handshake of the other client was long ago; its ticket is encrypted with the same key.
        let expired = files.client_with_versions(&[version], &files.authority, valid_in_2001);
        let mut then = (*tls.active_config.load_full()).clone();
        then.time_provider = Arc::new(YearOf2001);
        let (_, server) = handshake_with(Arc::new(then), expired.clone(), "shop.example").unwrap();
        assert!(server.peer_certificates().is_some());
        let error = handshake(&tls, expired, "shop.example").unwrap_err();
        assert!(error.starts_with("server: invalid peer certificate"), "{:?}: {error}", version.version);
    }
}

#[test]
fn requires_client_certificates_if_configured() {
    let mut files = CertificateFolder::new(&[&["shop.example"]]);
    files.request_client_certificates(true);
    let tls = files.tls();
    let stranger = handshake(&tls, files.client(), "shop.example").unwrap_err();
    assert!(stranger.contains("peer sent no certificates"), "{stranger}");
    let forged = files.client_with_certificate(&ListenerTestAuthority::new(), |_| {});
    let error = handshake(&tls, forged, "shop.example").unwrap_err();
    assert!(error.starts_with("server: invalid peer certificate"), "{error}");
    let known = files.client_with_certificate(&files.authority, |params| {
        params.distinguished_name.push(rcgen::DnType::CommonName, "checkout");
        params.subject_alt_names.push(SanType::URI("spiffe://shop/checkout".try_into().unwrap()));
    });
    let (_, server) = handshake(&tls, known, "shop.example").unwrap();
    let TlsSession { certificate, tls: told } = tls_session(&server);
    let shown = told.certificate.as_ref().unwrap();
    assert!(told.is_mutual && shown.subject.contains("CN=checkout"), "{}", shown.subject);
    assert_eq!(shown.dns.as_deref(), Some("checkout.internal"));
    assert_eq!(shown.uri.as_deref(), Some("spiffe://shop/checkout"));
    assert_eq!(shown.digest.len(), 64);
    let certificate = certificate.unwrap();
    assert!(certificate.subject.contains("CN=checkout"), "{}", certificate.subject);
    let names = [
        CertificateName::Dns("checkout.internal".into()),
        CertificateName::Uri("spiffe://shop/checkout".into()),
        CertificateName::CommonName("checkout".into()),
    ];
    assert_eq!(certificate.names, names);
    files.request_client_certificates(false);
    let (_, server) = handshake(&files.tls(), files.client(), "shop.example").unwrap();
    let TlsSession { certificate, tls } = tls_session(&server);
    assert_eq!((certificate, tls.is_mutual), (None, false));
    assert_eq!((tls.version, tls.server_name.as_deref()), (Some("TLSv1.3"), Some("shop.example")));
}

#[test]
fn refuses_client_certificates_with_more_than_two_intermediate_ones() {
    let mut files = CertificateFolder::new(&[&["shop.example"]]);
    files.request_client_certificates(false);
    let tls = files.tls();
    let (cert, key) = files.authority.issue_certificate(&["checkout.internal"], |_| {});
    let cert = CertificateDer::from_pem_slice(cert.as_bytes()).unwrap();
    // The others aren't needed, so that webpki would accept any number of them.
    let shaken = |count: usize| {
        let client = files.client_with_chain(vec![cert.clone(); 1 + count], &key);
        handshake(&tls, client, "shop.example").map(drop)
    };
    assert_eq!(shaken(2), Ok(()));
    let error = shaken(3).unwrap_err();
    assert!(error.starts_with("server: invalid peer certificate"), "{error}");
}

#[test]
fn refuses_client_certificates_with_long_chains() {
    const LIMIT: usize = 16 << 10;
    let mut files = CertificateFolder::new(&[&["shop.example"]]);
    files.request_client_certificates(false);
    let tls = files.tls();
    let (cert, key) = files.authority.issue_certificate(&["checkout.internal"], |_| {});
    let cert = CertificateDer::from_pem_slice(cert.as_bytes()).unwrap();
    // The intermediate certificate isn't needed, so that webpki does not parse it.
    let shaken = |bytes: usize| {
        let chain = vec![cert.clone(), CertificateDer::from(vec![0_u8; bytes - cert.len()])];
        handshake(&tls, files.client_with_chain(chain, &key), "shop.example").map(drop)
    };
    assert_eq!(shaken(LIMIT), Ok(()));
    let error = shaken(LIMIT + 1).unwrap_err();
    assert!(error.starts_with("server: invalid peer certificate"), "{error}");
}

#[test]
fn reloads_changed_certificates_and_ignores_invalid_ones() {
    let files = CertificateFolder::new(&[&["old.example"]]);
    let tls = files.tls();
    let shown = |host: &str| presented_hosts(&tls, &files, host).is_ok();
    files.write_certificate(0, &["new.example"]);
    tls.refresh();
    assert!(shown("new.example") && !shown("old.example"));
    let (cert, _) = files.authority.issue_certificate(&["half.example"], |_| {});
    fs::write(files.path().join("0.crt"), cert).unwrap();
    tls.refresh();
    assert!(shown("new.example"), "a certificate without its key is not used");
    fs::remove_file(files.path().join("0.crt")).unwrap();
    tls.refresh();
    assert!(shown("new.example"), "a missing certificate is not used");
    files.write_certificate(0, &["whole.example"]);
    tls.refresh();
    assert!(shown("whole.example"));
}

#[test]
fn detects_a_swapped_symbolic_link() {
    let files = CertificateFolder::new(&[&["old.example"]]);
    // As Kubernetes mounts a secret: files behind `..data`, which is replaced as a whole.
    let (first, second, data) =
        (files.path().join("first"), files.path().join("second"), files.path().join("..data"));
    for (folder, hosts) in [(&first, "old.example"), (&second, "new.example")] {
        fs::create_dir(folder).unwrap();
        let (cert, key) = files.authority.issue_certificate(&[hosts], |_| {});
        fs::write(folder.join("tls.crt"), cert).unwrap();
        fs::write(folder.join("tls.key"), key).unwrap();
    }
    std::os::unix::fs::symlink(&first, &data).unwrap();
    let certificate_config =
        CertificateConfig { cert: "..data/tls.crt".into(), key: "..data/tls.key".into() };
    let config = TlsConfig { certificates: vec![certificate_config], client: None };
    let tls = ListenerTls::new(&config, files.path()).unwrap_or_else(|problems| panic!("{problems:?}"));
    assert!(presented_hosts(&tls, &files, "old.example").is_ok());
    std::os::unix::fs::symlink(&second, files.path().join("..new")).unwrap();
    fs::rename(files.path().join("..new"), &data).unwrap();
    tls.refresh();
    assert!(presented_hosts(&tls, &files, "new.example").is_ok());
}

#[test]
fn reports_all_errors_in_files_at_once() {
    let mut files = CertificateFolder::new(&[&["a.example"], &["b.example"], &["c.example"], &["d.example"]]);
    files.request_client_certificates(true);
    fs::rename(files.path().join("1.key"), files.path().join("0.key")).unwrap();
    fs::write(files.path().join("2.crt"), "no certificate").unwrap();
    fs::write(files.path().join("3.key"), "-----BEGIN NOTHING-----\nAA==\n-----END NOTHING-----\n").unwrap();
    fs::write(files.path().join("ca.crt"), "").unwrap();
    let problems = files.problems();
    let pointers: Vec<&str> = problems.iter().map(|(pointer, _)| pointer.as_str()).collect();
    let expected = ["0/key", "1/key", "2/cert", "3/key"].map(|end| format!("/certificates/{end}"));
    assert_eq!(pointers[..4], expected, "{problems:?}");
    assert_eq!(pointers[4], "/client/ca");
    assert!(problems[0].1.contains("is not the key of"), "{}", problems[0].1);
    assert!(!problems.iter().any(|(_, message)| message.contains("PRIVATE")), "{problems:?}");
}

#[test]
fn uses_expired_certificates_and_reports_their_staleness() {
    let files = CertificateFolder::new(&[]);
    let (cert, _) = files.authority.issue_certificate(&["old.example"], |params| {
        params.not_before = rcgen::date_time_ymd(2001, 1, 1);
        params.not_after = rcgen::date_time_ymd(2002, 1, 1);
    });
    let der = CertificateDer::from_pem_slice(cert.as_bytes()).unwrap();
    let certificate = PeerCertificate::parse(&der).unwrap();
    let at = |year: u64| std::time::UNIX_EPOCH + Duration::from_secs((year - 1970) * 31_556_952 + 86_400);
    let staleness = |year| certificate.staleness(at(year));
    assert_eq!([2000, 2001, 2020].map(staleness), [Some("is not valid yet"), None, Some("has expired")]);
}
