//! TLS to targets: trusted authorities and client certificates.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use http::Response;
use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, date_time_ymd};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tempfile::TempDir;
use tokio::io::AsyncReadExt;
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;

use super::target::{TargetServer, serve};
use super::*;
use crate::body::full;

/// A certificate authority, with the folder of a config that refers to its files.
struct TargetTestAuthority {
    issuer: Issuer<'static, KeyPair>,
    certificate: CertificateDer<'static>,
    pem: String,
    folder: TempDir,
}

/// A certificate and its key.
struct TargetTestIdentity(rcgen::Certificate, KeyPair);

impl TargetTestAuthority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let pem = certificate.pem();
        std::fs::write(folder.path().join("ca.pem"), &pem).unwrap();
        Self { certificate: certificate.der().clone(), issuer: Issuer::new(params, key), pem, folder }
    }

    fn identity(&self, name: &str, change: impl FnOnce(&mut CertificateParams)) -> TargetTestIdentity {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        TargetTestIdentity(params.signed_by(&key, &self.issuer).unwrap(), key)
    }

    fn roots(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.clone()).unwrap();
        roots
    }

    fn write_files(&self, identity: &TargetTestIdentity) {
        std::fs::write(self.folder.path().join("cert.pem"), identity.0.pem()).unwrap();
        std::fs::write(self.folder.path().join("key.pem"), identity.1.serialize_pem()).unwrap();
    }

    fn shop(&self, url: String, change: impl FnOnce(&mut ServiceTlsConfig)) -> ShopClient {
        let mut tls = ServiceTlsConfig { ca: Some("ca.pem".to_owned()), ..ServiceTlsConfig::default() };
        change(&mut tls);
        ShopClient::with_folder(config_with_tls(url, tls), self.folder.path()).unwrap()
    }
}

/// Returns the settings of a TLS server. It requests client certificates of an authority if one is given.
fn server(
    identity: &TargetTestIdentity,
    clients: Option<&TargetTestAuthority>,
    protocols: &[&str],
) -> ServerConfig {
    server_with_chain(vec![identity.0.der().clone()], identity, clients, protocols)
}

/// Returns the settings of a TLS server that presents this chain.
fn server_with_chain(
    chain: Vec<CertificateDer<'static>>,
    identity: &TargetTestIdentity,
    clients: Option<&TargetTestAuthority>,
    protocols: &[&str],
) -> ServerConfig {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder =
        ServerConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions().unwrap();
    let builder = match clients {
        Some(authority) => {
            let roots = Arc::new(authority.roots());
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider).build();
            builder.with_client_cert_verifier(verifier.unwrap())
        }
        None => builder.with_no_client_auth(),
    };
    let key = PrivateKeyDer::try_from(identity.1.serialize_der()).unwrap();
    let mut config = builder.with_single_cert(chain, key).unwrap();
    config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
    config
}

/// Starts a target that responds with the HTTP version and the host of the request.
async fn start_target(config: ServerConfig) -> (TargetServer, String) {
    let target = TargetServer::start_server(Some(config), |request| async move {
        let host = request.uri().authority().map(|authority| authority.host().to_owned());
        let host = host.or_else(|| Some(request.headers().get("host")?.to_str().ok()?.to_owned()));
        Response::new(full(format!("{:?} {}", request.version(), host.unwrap_or_default())))
    })
    .await;
    let url = format!("https://localhost:{}", target.address.port());
    (target, url)
}

/// Starts a target that counts connections.
async fn start_counting_target(config: ServerConfig) -> (TargetServer, Arc<AtomicUsize>) {
    let (opened, acceptor) = (Arc::<AtomicUsize>::default(), TlsAcceptor::from(Arc::new(config)));
    let counting = Arc::clone(&opened);
    let target = TargetServer::start_acceptor(move |socket| {
        let (acceptor, opened) = (acceptor.clone(), Arc::clone(&counting));
        async move {
            if let Ok(stream) = acceptor.accept(socket).await {
                opened.fetch_add(1, SeqCst);
                serve(stream, |_| async { Response::new(full("ok")) }).await;
            }
        }
    })
    .await;
    (target, opened)
}

#[tokio::test]
async fn trusts_valid_certificates_and_prefers_http_2() {
    let authority = TargetTestAuthority::new();
    let good = authority.identity("localhost", |_| ());
    for (protocols, spoken) in [(&["h2", "http/1.1"][..], "HTTP/2.0 localhost"), (&["http/1.1"], "HTTP/1.1")]
    {
        let (_target, url) = start_target(server(&good, None, protocols)).await;
        let shop = authority.shop(url, |_| ());
        for _ in 0..2 {
            let said = shop.get("/").await.unwrap();
            assert!(said.starts_with(spoken.as_bytes()), "{said:?}");
        }
    }
    // The config may require a version.
    let (_target, url) = start_target(server(&good, None, &["h2", "http/1.1"])).await;
    let tls = ServiceTlsConfig { ca: Some("ca.pem".into()), ..ServiceTlsConfig::default() };
    let config = ServiceConfig { protocol: ServiceProtocol::Http1, ..config_with_tls(url, tls) };
    let shop = ShopClient::with_folder(config, authority.folder.path()).unwrap();
    assert!(shop.get("/").await.unwrap().starts_with(b"HTTP/1.1"));
}

#[tokio::test]
async fn resets_the_connection_of_a_cancelled_handshake() {
    let (tell, mut told) = mpsc::channel(1);
    let target = TargetServer::start_acceptor(move |mut socket| {
        let tell = tell.clone();
        async move {
            let mut hello = [0; 4096];
            assert!(socket.read(&mut hello).await.unwrap() > 0);
            tell.send(None).await.unwrap();
            let end = loop {
                match socket.read(&mut hello).await {
                    Ok(1..) => {}
                    Ok(0) => break None,
                    Err(error) => break Some(error.kind()),
                }
            };
            tell.send(end).await.unwrap();
        }
    })
    .await;
    let shop =
        TargetTestAuthority::new().shop(format!("https://localhost:{}", target.address.port()), |_| ());
    tokio::select! {
        _ = shop.start_get("/") => panic!("the target sends nothing"),
        // The hello has arrived, and is never answered.
        _ = told.recv() => {}
    }
    assert_eq!(told.recv().await, Some(Some(std::io::ErrorKind::ConnectionReset)));
}

#[tokio::test]
async fn uses_the_configured_server_name() {
    let authority = TargetTestAuthority::new();
    let (_target, url) =
        start_target(server(&authority.identity("shop.internal", |_| ()), None, &["h2"])).await;
    assert_eq!(authority.shop(url.clone(), |_| ()).get_error_code("/").await, "upstream-unreachable");
    let shop = authority.shop(url, |tls| tls.server_name = Some("shop.internal".into()));
    assert_eq!(shop.get("/").await.unwrap(), "HTTP/2.0 localhost");
}

#[tokio::test]
async fn refuses_invalid_certificates_before_sending() {
    let authority = TargetTestAuthority::new();
    let expired = authority.identity("localhost", |params| {
        params.not_before = date_time_ymd(2001, 1, 1);
        params.not_after = date_time_ymd(2002, 1, 1);
    });
    let of_another = TargetTestAuthority::new().identity("localhost", |_| ());
    let of_no_server = authority.identity("localhost", |params| {
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    });
    for identity in [expired, of_another, of_no_server] {
        let (_target, url) = start_target(server(&identity, None, &["h2"])).await;
        assert_eq!(authority.shop(url, |_| ()).get_error_code("/").await, "upstream-unreachable");
    }
    // A private authority is not trusted unless it is configured.
    let (_target, url) = start_target(server(&authority.identity("localhost", |_| ()), None, &["h2"])).await;
    assert_eq!(authority.shop(url, |tls| tls.ca = None).get_error_code("/").await, "upstream-unreachable");
}

#[tokio::test]
async fn refuses_chains_of_more_than_four_intermediate_certificates() {
    let authority = TargetTestAuthority::new();
    let identity = authority.identity("localhost", |_| ());
    // The others aren't needed, so that webpki would accept any number of them.
    for (count, is_accepted) in [(4, true), (5, false)] {
        let chain = vec![identity.0.der().clone(); 1 + count];
        let (_target, url) = start_target(server_with_chain(chain, &identity, None, &["h2"])).await;
        assert_eq!(authority.shop(url, |_| ()).get("/").await.is_ok(), is_accepted, "{count}");
    }
}

#[tokio::test]
async fn refuses_intermediate_certificates_with_the_same_subject_and_different_keys() {
    let (authority, other) = (TargetTestAuthority::new(), TargetTestAuthority::new());
    // All of these have the default subject of `rcgen`.
    let [identity, first, second] = [(); 3].map(|()| authority.identity("localhost", |_| ()));
    let renamed = authority.identity("localhost", |params| {
        params.distinguished_name.push(DnType::CommonName, "another");
    });
    let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let cross_signed = params.signed_by(&first.1, &other.issuer).unwrap();
    let certificate = first.0.der();
    // None of these is needed, so that webpki would accept all of them.
    for (others, is_accepted) in [
        ([certificate, certificate], true),
        ([certificate, cross_signed.der()], true),
        ([certificate, renamed.0.der()], true),
        ([certificate, second.0.der()], false),
    ] {
        let chain = [identity.0.der()].into_iter().chain(others).cloned().collect();
        let (_target, url) = start_target(server_with_chain(chain, &identity, None, &["h2"])).await;
        let result = authority.shop(url, |_| ()).get("/").await;
        assert_eq!(result.is_ok(), is_accepted, "{result:?}");
        if let Err(error) = result {
            let error = format!("{error:?}");
            assert!(error.contains("the same subject and different keys"), "{error}");
        }
    }
}

#[tokio::test]
async fn presents_a_client_certificate() {
    let authority = TargetTestAuthority::new();
    let (_target, url) =
        start_target(server(&authority.identity("localhost", |_| ()), Some(&authority), &["http/1.1"])).await;
    let nobody = authority.shop(url.clone(), |_| ());
    assert!(nobody.get("/").await.is_err());
    authority.write_files(&authority.identity("orfa", |params| {
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    }));
    let client = authority.shop(url, |tls| {
        tls.cert = Some("cert.pem".into());
        tls.key = Some("key.pem".into());
    });
    assert!(client.get("/").await.unwrap().starts_with(b"HTTP/1.1"));
}

#[tokio::test]
async fn connections_survive_a_reload_unless_a_file_changes() {
    let authority = TargetTestAuthority::new();
    let good = server(&authority.identity("localhost", |_| ()), Some(&authority), &["h2"]);
    let (target, opened) = start_counting_target(good).await;
    let url = format!("https://localhost:{}", target.address.port());
    let [ca, cert, key] = ["ca.pem", "cert.pem", "key.pem"].map(|file| Some(file.to_owned()));
    let config = config_with_tls(url, ServiceTlsConfig { ca, cert, key, server_name: None });
    let config = BTreeMap::from([("shop".to_owned(), config)]);
    let client = |params: &mut CertificateParams| {
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    };
    authority.write_files(&authority.identity("orfa", client));
    let mut shop = ShopClient(ServiceSet::load(&config, authority.folder.path()).unwrap());
    let mut reload = async || {
        shop = ShopClient(shop.0.reload(&config, authority.folder.path()).unwrap());
        assert_eq!(shop.get("/").await.unwrap(), "ok");
        opened.load(SeqCst)
    };
    assert_eq!((reload().await, reload().await), (1, 1));
    authority.write_files(&authority.identity("orfa", client));
    assert_eq!((reload().await, reload().await), (2, 2));
    let more = [&authority, &TargetTestAuthority::new()].map(|authority| authority.pem.as_str()).concat();
    std::fs::write(authority.folder.path().join("ca.pem"), more).unwrap();
    assert_eq!((reload().await, reload().await), (3, 3));
}

#[test]
fn reports_the_location_of_every_mistake() {
    let authority = TargetTestAuthority::new();
    authority.write_files(&authority.identity("orfa", |_| ()));
    std::fs::write(authority.folder.path().join("other.pem"), KeyPair::generate().unwrap().serialize_pem())
        .unwrap();
    let wrong = |url: &str, ca: Option<&str>, cert: Option<&str>, key: Option<&str>, name: Option<&str>| {
        let [ca, cert, key, server_name] = [ca, cert, key, name].map(|text| text.map(str::to_owned));
        let config = config_with_tls(url.to_owned(), ServiceTlsConfig { ca, cert, key, server_name });
        let problems = ShopClient::with_folder(config, authority.folder.path()).err().unwrap_or_default();
        problems.into_iter().map(|problem| problem.location.pointer().to_owned()).collect::<Vec<_>>()
    };
    let url = "https://shop";
    let (cert, key) = (Some("cert.pem"), Some("key.pem"));
    assert_eq!(wrong(url, Some("ca.pem"), cert, key, Some("shop.internal")), Vec::<String>::new());
    assert_eq!(wrong(url, Some("missing.pem"), None, None, None), ["/shop/tls/ca"]);
    assert_eq!(wrong(url, Some("key.pem"), None, None, None), ["/shop/tls/ca"], "a key is not a certificate");
    assert_eq!(wrong(url, None, cert, None, None), ["/shop/tls/cert"]);
    assert_eq!(wrong(url, None, None, key, None), ["/shop/tls/key"]);
    assert_eq!(wrong(url, None, cert, cert, None), ["/shop/tls/key"], "a certificate is not a key");
    assert_eq!(wrong(url, None, cert, Some("other.pem"), None), ["/shop/tls/key"], "a foreign key");
    assert_eq!(wrong(url, None, None, None, Some("no name")), ["/shop/tls/server_name"]);
    assert_eq!(wrong("http://shop", Some("ca.pem"), None, None, None), ["/shop/tls"]);
}
