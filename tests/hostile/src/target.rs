//! The gateway under attack: one route of every kind, on a plaintext and a TLS port, in front of a
//! misbehaving service.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use benches::open_loop::raise_priority;
use bytes::Bytes;
use rcgen::{CertificateParams, KeyPair};
use serde_json::{Value, json};
use testkit::http::{self, TestResponse};
use testkit::misbehaving_upstream::{self, MisbehavingUpstream};
use testkit::{GatewayProcess, with_timeout};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};
use tokio_rustls::{TlsConnector, client::TlsStream};

use crate::ending::AttackEnding;
use crate::wire;

/// A running gateway and the services behind it.
#[derive(Debug)]
pub struct AttackTarget {
    /// The gateway.
    pub gateway: GatewayProcess,
    /// The service `up`.
    pub upstream: MisbehavingUpstream,
    /// The neighbour's service.
    _calm: CalmService,
    /// The URL of the admin listener: `http://127.0.0.1:PORT`.
    pub admin_url: String,
    /// The address of the TLS port.
    pub tls_address: SocketAddr,
    certificate: CertificateDer<'static>,
    /// The time at which the next connection may be opened: see [`Self::pace`].
    next_connection: Mutex<Instant>,
}

/// The neighbour's credentials; attacks must not affect its requests.
pub(crate) const NEIGHBOUR: (&str, &str) = ("x-api-key", "neighbour-of-the-suite");
/// The least time between connections, nine tenths of the default rate of new connections of an address, and
/// the time whose connections may be opened at once after a pause.
const CONNECTION_INTERVAL: Duration = Duration::from_micros(555);
const CONNECTION_BURST: Duration = Duration::from_secs(1);
/// The config and its files.
const CONFIG: &str = include_str!("../world/orfa.yaml");
const FILES: [(&str, &str); 9] = [
    ("up.yaml", include_str!("../world/up.yaml")),
    ("supergraph.graphql", include_str!("../world/supergraph.graphql")),
    ("items.yaml", include_str!("../world/items.yaml")),
    ("shop.sjs", include_str!("../world/shop.sjs")),
    ("busy.wat", include_str!("../world/busy.wat")),
    ("texts.yaml", include_str!("../world/texts.yaml")),
    ("reads.wat", include_str!("../world/reads.wat")),
    ("joined.yaml", include_str!("../world/joined.yaml")),
    ("posted.yaml", include_str!("../world/posted.yaml")),
];

/// A service that is not attacked, on a thread with priority over the attackers. It stops on drop.
#[derive(Debug)]
struct CalmService {
    url: String,
    _end: oneshot::Sender<()>,
}

impl CalmService {
    fn start() -> Result<Self> {
        let (end, ended) = oneshot::channel::<()>();
        let (tell, told) = std::sync::mpsc::channel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        std::thread::spawn(move || {
            raise_priority();
            runtime.block_on(async move {
                let service = misbehaving_upstream::start().await;
                let _ = tell.send(service.url());
                let _ = ended.await;
            });
        });
        Ok(Self { url: told.recv().context("the neighbour's service does not start")?, _end: end })
    }
}

/// The config of debug builds, which take ten to fifty times as long: they would shed the suite's own load,
/// and one client's programs would use up the time to compile.
const DEBUG_CONFIG: &str = "shed: { delay: 5s }\nruntime: { compile_time: 5s }\n";

impl AttackTarget {
    /// Starts the services and a gateway in front of them.
    ///
    /// # Errors
    /// When the certificate or the filter cannot be created, or the gateway does not log its addresses.
    pub async fn start(binary: &Path) -> Result<Self> {
        let upstream = misbehaving_upstream::start().await;
        let key = KeyPair::generate()?;
        let certificate = CertificateParams::new(["localhost".to_owned()])?.self_signed(&key)?;
        let folder = std::env::temp_dir().join(format!("orfa-hostile-{}", std::process::id()));
        std::fs::create_dir_all(&folder)?;
        let (filter, reads) = (folder.join("busy.wasm"), folder.join("reads.wasm"));
        std::fs::write(&filter, wat::parse_str(FILES[4].1)?)?;
        std::fs::write(&reads, wat::parse_str(FILES[6].1)?)?;
        let calm = CalmService::start()?;
        let config = CONFIG
            .replace("{service}", &upstream.url())
            .replace("{calm}", &calm.url)
            .replace("{filter}", &filter.display().to_string())
            .replace("{reads}", &reads.display().to_string())
            + if cfg!(debug_assertions) { DEBUG_CONFIG } else { "" };
        let (pem, key_pem) = (certificate.pem(), key.serialize_pem());
        let files: Vec<(&str, &str)> =
            FILES.into_iter().chain([("tls.crt", &*pem), ("tls.key", &*key_pem)]).collect();
        let gateway = GatewayProcess::start_with(binary, &config, &files).await;
        // The gateway has read the filters and does not read them again.
        std::fs::remove_dir_all(&folder)?;
        let admin = logged_address(&gateway, |line| line.contains("admin listening")).await?;
        let clear = gateway.address.to_string();
        let secure =
            logged_address(&gateway, |line| line.contains("\"listening\"") && !line.contains(&clear)).await?;
        let target = Self {
            admin_url: format!("http://{admin}"),
            tls_address: secure,
            certificate: certificate.der().clone(),
            gateway,
            upstream,
            _calm: calm,
            next_connection: Mutex::new(Instant::now()),
        };
        let url = format!("{}/readyz", target.admin_url);
        with_timeout("a gateway that is ready", async {
            while http::request("GET", &url, &[], "").await.is_ok_and(|answer| answer.status != 200) {}
        })
        .await;
        Ok(target)
    }

    /// Waits until an attack may open another connection. Above the rate of new connections of an address,
    /// the gateway closes them, so that attacks would not get to what they are about, nor the neighbour
    /// through.
    async fn pace(&self) {
        let due = {
            let mut next = self.next_connection.lock().unwrap_or_else(PoisonError::into_inner);
            let due =
                Instant::now().checked_sub(CONNECTION_BURST).map_or(*next, |earliest| earliest.max(*next));
            *next = due + CONNECTION_INTERVAL;
            due
        };
        tokio::time::sleep_until(due.into()).await;
    }

    /// Connects to the plaintext port.
    ///
    /// # Errors
    /// When the gateway does not accept the connection.
    pub async fn connect(&self) -> Result<TcpStream> {
        self.pace().await;
        let stream = TcpStream::connect(self.gateway.address).await?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    /// Connects to the TLS port without a handshake.
    ///
    /// # Errors
    /// When the gateway does not accept the connection.
    pub async fn connect_tls_port(&self) -> Result<TcpStream> {
        self.pace().await;
        Ok(TcpStream::connect(self.tls_address).await?)
    }

    /// Opens a TLS connection that offers these protocols by ALPN.
    ///
    /// # Errors
    /// When the handshake fails.
    pub async fn connect_tls(&self, protocols: &[&[u8]]) -> Result<TlsStream<TcpStream>> {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.clone())?;
        let mut config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        let stream = self.connect_tls_port().await?;
        let name = ServerName::try_from("localhost").context("a name")?;
        Ok(TlsConnector::from(Arc::new(config)).connect(name, stream).await?)
    }

    /// Sends a request on a new connection.
    ///
    /// # Errors
    /// When no answer arrives.
    pub async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Result<TestResponse> {
        self.pace().await;
        let url = format!("{}{path}", self.gateway.url);
        http::request(method, &url, headers, body).await.map_err(|error| anyhow!("{method} {path}: {error}"))
    }

    /// Sends a request and returns how the gateway ends it.
    ///
    /// # Errors
    /// When the exchange is impossible.
    pub async fn request_ending(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Result<AttackEnding> {
        Ok(match self.send(method, path, headers, body).await {
            Ok(answer) => AttackEnding::from_response(&answer),
            Err(_) => AttackEnding::Closed,
        })
    }

    /// Sends a GraphQL document and returns how the gateway ends the request.
    ///
    /// # Errors
    /// When the exchange is impossible.
    pub async fn graphql(&self, path: &str, document: &str, variables: Value) -> Result<AttackEnding> {
        let body = json!({ "query": document, "variables": variables }).to_string();
        self.request_ending("POST", path, &[("content-type", "application/json")], body).await
    }

    /// Sends a JavaScript program and returns how the gateway ends it.
    ///
    /// # Errors
    /// When the exchange is impossible.
    pub async fn program(&self, source: &str) -> Result<AttackEnding> {
        self.request_ending("POST", "/query", &[("content-type", "text/javascript")], source.to_owned()).await
    }

    /// Sends a WebAssembly program and returns how the gateway ends it.
    ///
    /// # Errors
    /// When the exchange is impossible.
    pub async fn module(&self, module: Vec<u8>) -> Result<AttackEnding> {
        self.module_at("/query", module).await
    }

    /// Like `module`, for another route.
    ///
    /// # Errors
    /// When the exchange is impossible.
    pub async fn module_at(&self, path: &str, module: Vec<u8>) -> Result<AttackEnding> {
        self.request_ending("POST", path, &[("content-type", "application/wasm")], module).await
    }

    /// Sends raw bytes over HTTP/1.1. Returns the ending of the first answer, and all bytes received.
    ///
    /// # Errors
    /// When the connection fails.
    pub async fn send_raw(&self, bytes: &[u8]) -> Result<(AttackEnding, String)> {
        let mut stream = self.connect().await?;
        // A gateway that refuses early may close the connection during the write.
        let _ = stream.write_all(bytes).await;
        let text = wire::read_all(&mut stream).await;
        Ok((wire::response_ending(&text), text))
    }

    /// Checks that every kind of route still answers the neighbour correctly.
    ///
    /// # Errors
    /// When a route does not.
    pub async fn check_serving(&self) -> Result<()> {
        let key = NEIGHBOUR;
        let json = ("content-type", "application/json");
        for (method, path, headers, body) in [
            ("GET", "/up/json?n=1", vec![key], String::new()),
            ("GET", "/calm/json?n=1", vec![key], String::new()),
            ("GET", "/filtered/json?n=1", vec![key], String::new()),
            ("GET", "/items?n=1", vec![key], String::new()),
            ("GET", "/s/words", vec![key], String::new()),
            ("POST", "/graphql", vec![key, json], json!({ "query": "{ items(n: 1) { id } }" }).to_string()),
            (
                "POST",
                "/query",
                vec![key, ("content-type", "text/javascript")],
                "export default () => 1".to_owned(),
            ),
        ] {
            let answer = self.send(method, path, &headers, body).await?;
            let ending = AttackEnding::from_response(&answer);
            anyhow::ensure!(
                ending == AttackEnding::Answer(200),
                "{method} {path} ends with {ending}: {}",
                answer.text()
            );
        }
        Ok(())
    }
}

/// Returns the address in the first log line that matches.
async fn logged_address(gateway: &GatewayProcess, wanted: impl Fn(&str) -> bool) -> Result<SocketAddr> {
    let line = gateway.wait_for_log(wanted).await.context("the log ended")?;
    let line: Value = serde_json::from_str(&line)?;
    let fields = line.get("fields").unwrap_or(&line);
    fields["address"].as_str().and_then(|text| text.parse().ok()).context("no address in the log")
}
