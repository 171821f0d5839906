//! A gateway on a free port in front of a service that echoes, and clients for both versions of HTTP.

use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::client::conn;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};
use services::{StreamedServiceBody, body};
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;

use crate::{CompletedRequest, DrainResult, Gateway, ShutdownMode, config};

pub(super) struct GatewayFixture {
    pub(super) address: SocketAddr,
    pub(super) upstream: EchoService,
    pub(super) upstream_address: SocketAddr,
    stop: Mutex<Option<oneshot::Sender<ShutdownMode>>>,
    server_task: JoinHandle<DrainResult>,
    pub(super) gateway: Gateway,
    log: LineSink,
}

pub(super) struct FixtureEnd {
    pub(super) drained: DrainResult,
    pub(super) log: String,
}

pub(super) struct FixtureResponse(Response<Bytes>);

/// A service that echoes requests; `/wait` waits until it is released; `/pieces` responds without a length;
/// `/large` adds 100 kB; `/any-origin` allows pages of every origin.
#[derive(Clone, Default)]
pub(super) struct EchoService {
    request_waiting: Arc<Notify>,
    release: Arc<Notify>,
    request_ended: Arc<Notify>,
    request_received: Arc<Notify>,
    /// The number of requests that were received to their end.
    pub(super) completed_requests: Arc<AtomicUsize>,
}

/// A request that waits. Its end, whether answered or cancelled, is signalled.
struct WaitingRequest(Arc<Notify>);

impl Drop for WaitingRequest {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

#[derive(Clone, Default)]
struct LineSink(Arc<Mutex<Vec<u8>>>);

impl Write for LineSink {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl GatewayFixture {
    pub(super) async fn new(text: &str) -> Self {
        Self::with_observer(text, |_| {}).await
    }

    pub(super) async fn with_observer(
        text: &str,
        watch: impl Fn(CompletedRequest) + Send + Sync + 'static,
    ) -> Self {
        Self::with_listener("127.0.0.1:0", text, watch).await
    }

    /// Like [`Self::new`], over TLS as `shop.example`. Returns its certificate as well.
    pub(super) async fn with_tls(text: &str) -> (Self, rustls::pki_types::CertificateDer<'static>) {
        // The files are read when the gateway is built.
        let folder = tempfile::tempdir().unwrap();
        let certified = rcgen::generate_simple_self_signed(["shop.example".to_owned()]).unwrap();
        std::fs::write(folder.path().join("a.crt"), certified.cert.pem()).unwrap();
        std::fs::write(folder.path().join("a.key"), certified.signing_key.serialize_pem()).unwrap();
        let files = format!("{{ cert: {0}/a.crt, key: {0}/a.key }}", folder.path().display());
        let listen = format!("{{ address: 127.0.0.1:0, tls: {{ certificates: [{files}] }} }}");
        (Self::with_listener(&listen, text, |_| {}).await, certified.cert.der().clone())
    }

    pub(super) async fn with_listener(
        listen: &str,
        text: &str,
        watch: impl Fn(CompletedRequest) + Send + Sync + 'static,
    ) -> Self {
        let upstream = EchoService::default();
        let upstream_address = upstream.start().await;
        let text = format!("listen: {listen}\n{}", text.replace("UPSTREAM", &upstream_address.to_string()));
        let config = config::read_text(&text, Path::new("orfa.yaml")).unwrap();
        let log = LineSink::default();
        let gateway =
            Gateway::build(config).unwrap().log_to(Box::new(log.clone())).unwrap().on_request(watch);
        let listeners = gateway.bind().unwrap();
        let address = listeners.addresses()[0];
        let (stop, stopped) = oneshot::channel();
        let served = tokio::spawn(
            gateway.clone().serve(listeners, async move { stopped.await.unwrap_or(ShutdownMode::Promptly) }),
        );
        Self {
            address,
            upstream,
            upstream_address,
            stop: Mutex::new(Some(stop)),
            server_task: served,
            gateway,
            log,
        }
    }

    pub(super) fn stop(&self) {
        self.stop.lock().unwrap().take();
    }

    /// Makes the gateway stop in this way, and waits until it has noticed.
    pub(super) async fn stop_and_wait(&self, stop: ShutdownMode) {
        let sender = self.stop.lock().unwrap().take().unwrap();
        sender.send(stop).unwrap();
        while self.gateway.readiness().is_ready() {
            tokio::task::yield_now().await;
        }
    }

    pub(super) async fn end(self) -> FixtureEnd {
        self.stop();
        let drained = self.server_task.await.unwrap();
        FixtureEnd { drained, log: String::from_utf8(self.log.0.lock().unwrap().clone()).unwrap() }
    }

    /// Waits until a service has received a request, another one for each call.
    pub(super) async fn wait_for_upstream_request(&self) {
        self.upstream.request_received.notified().await;
    }

    pub(super) async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    pub(super) async fn send_request(&self, request: Request<StreamedServiceBody>) -> FixtureResponse {
        self.send_detached(request).await
    }

    pub(super) fn send_detached(
        &self,
        request: Request<StreamedServiceBody>,
    ) -> impl Future<Output = FixtureResponse> + Send + use<> {
        let answer = self.try_send_detached(request);
        async move { answer.await.unwrap() }
    }

    /// Returns `None` if the connection ended without a response.
    pub(super) fn try_send_detached(
        &self,
        request: Request<StreamedServiceBody>,
    ) -> impl Future<Output = Option<FixtureResponse>> + Send + use<> {
        send_to(self.address, request)
    }

    /// Sends a request over HTTP/2 in clear text, with the scheme of the request's URL if it has one.
    pub(super) async fn send_http2(&self, mut request: Request<StreamedServiceBody>) -> FixtureResponse {
        let path = request.uri().path_and_query().unwrap();
        let scheme = request.uri().scheme_str().unwrap_or("http");
        *request.uri_mut() = format!("{scheme}://{}{path}", self.address).parse().unwrap();
        let io = TokioIo::new(self.connect().await);
        let (mut send, connection) = conn::http2::handshake(TokioExecutor::new(), io).await.unwrap();
        tokio::spawn(connection);
        FixtureResponse::from_response(send.send_request(request).await.unwrap()).await
    }
}

impl GatewayFixture {
    /// Whether a TLS handshake succeeds.
    pub(super) async fn can_handshake(&self, root: &rustls::pki_types::CertificateDer<'static>) -> bool {
        let name = "shop.example".try_into().unwrap();
        connector(root, "http/1.1").connect(name, self.connect().await).await.is_ok()
    }

    /// Sends a request over TLS, with the protocol to negotiate.
    pub(super) async fn send_tls(
        &self,
        root: &rustls::pki_types::CertificateDer<'static>,
        protocol: &str,
        mut request: Request<StreamedServiceBody>,
    ) -> FixtureResponse {
        let name = "shop.example".try_into().unwrap();
        let io = TokioIo::new(connector(root, protocol).connect(name, self.connect().await).await.unwrap());
        if protocol == "h2" {
            let path = request.uri().path_and_query().unwrap();
            *request.uri_mut() = format!("https://shop.example{path}").parse().unwrap();
            let (mut send, connection) = conn::http2::handshake(TokioExecutor::new(), io).await.unwrap();
            tokio::spawn(connection);
            FixtureResponse::from_response(send.send_request(request).await.unwrap()).await
        } else {
            request.headers_mut().insert("host", "shop.example".parse().unwrap());
            let (mut send, connection) = conn::http1::handshake(io).await.unwrap();
            tokio::spawn(connection);
            FixtureResponse::from_response(send.send_request(request).await.unwrap()).await
        }
    }
}

/// Returns a connector for a server with this certificate and this protocol.
fn connector(
    root: &rustls::pki_types::CertificateDer<'static>,
    protocol: &str,
) -> tokio_rustls::TlsConnector {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(root.clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
    tokio_rustls::TlsConnector::from(Arc::new(config))
}

impl FixtureResponse {
    pub(super) fn version(&self) -> http::Version {
        self.0.version()
    }

    async fn from_response(response: Response<Incoming>) -> Self {
        let (head, body) = response.into_parts();
        Self(Response::from_parts(head, body.collect().await.unwrap().to_bytes()))
    }

    pub(super) fn status(&self) -> StatusCode {
        self.0.status()
    }

    pub(super) fn header(&self, name: &str) -> &str {
        self.0.headers().get(name).map_or("", |value| value.to_str().unwrap())
    }

    /// All values of a header.
    pub(super) fn headers(&self, name: &str) -> Vec<&str> {
        self.0.headers().get_all(name).iter().map(|value| value.to_str().unwrap()).collect()
    }

    pub(super) fn json(&self) -> Value {
        serde_json::from_slice(self.0.body()).unwrap()
    }

    pub(super) fn text(&self) -> &str {
        std::str::from_utf8(self.0.body()).unwrap()
    }
}

impl EchoService {
    async fn start(&self) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let upstream = self.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let upstream = upstream.clone();
                let service = service_fn(move |request| upstream.clone().echo(request));
                tokio::spawn(
                    hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service),
                );
            }
        });
        address
    }

    async fn echo(self, request: Request<Incoming>) -> Result<Response<StreamedServiceBody>, hyper::Error> {
        let (head, body) = request.into_parts();
        self.request_received.notify_one();
        let body = body.collect().await?.to_bytes();
        self.completed_requests.fetch_add(1, Relaxed);
        if head.uri.path() == "/wait" {
            let _waiting = WaitingRequest(Arc::clone(&self.request_ended));
            self.request_waiting.notify_one();
            self.release.notified().await;
        }
        let large = "x".repeat(if head.uri.path() == "/large" { 100_000 } else { 0 });
        let text = String::from_utf8_lossy(&body) + large.as_str();
        let echo = json!({ "method": head.method.as_str(), "path": head.uri.to_string(), "body": text });
        let pieces = head.uri.path() == "/pieces";
        let echo = echo.to_string();
        let mut answer = Response::new(if pieces { chunked_body(&echo) } else { body::full(echo) });
        if let Some(seen) = head.headers.get("x-user") {
            answer.headers_mut().insert("seen-user", seen.clone());
        }
        if let Some(origin) = head.headers.get("origin").filter(|_| head.uri.path() == "/any-origin") {
            answer.headers_mut().insert("access-control-allow-origin", origin.clone());
            answer.headers_mut().insert("access-control-allow-credentials", "true".parse().unwrap());
        }
        Ok(answer)
    }

    pub(super) async fn wait_until_arrived(&self) {
        self.request_waiting.notified().await;
    }

    /// Waits until a waiting request is over, answered or cancelled.
    pub(super) async fn wait_until_ended(&self) {
        self.request_ended.notified().await;
    }

    pub(super) fn release(&self) {
        self.release.notify_one();
    }
}

/// Sends a request over HTTP/1.1 to this address. Returns `None` if the connection ended without a response.
pub(super) async fn send_to(
    address: SocketAddr,
    mut request: Request<StreamedServiceBody>,
) -> Option<FixtureResponse> {
    request.headers_mut().insert("host", address.to_string().parse().unwrap());
    let stream = TcpStream::connect(address).await.unwrap();
    let (mut send, connection) = conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    Some(FixtureResponse::from_response(send.send_request(request).await.ok()?).await)
}

pub(super) fn get(path: &str) -> Request<StreamedServiceBody> {
    Request::builder().uri(path).body(body::empty()).unwrap()
}

pub(super) fn post(path: &str, text: &str) -> Request<StreamedServiceBody> {
    Request::builder().method(Method::POST).uri(path).body(body::full(text.to_owned())).unwrap()
}

/// A body without an announced length.
pub(super) fn chunked_body(text: &str) -> StreamedServiceBody {
    let pieces: Vec<_> =
        text.as_bytes().chunks(100).map(Bytes::copy_from_slice).map(|piece| Ok(Frame::data(piece))).collect();
    StreamBody::new(futures_util::stream::iter(pieces)).boxed_unsync()
}

/// Waits until the gateway has closed the connection.
pub(super) async fn wait_until_closed(mut stream: TcpStream) {
    let read = stream.read(&mut [0; 16]).await;
    assert!(matches!(read, Ok(0) | Err(_)), "{read:?}");
}

/// The JSON of a body that is there already.
pub(super) fn read_json(body: StreamedServiceBody) -> Value {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    serde_json::from_slice(&runtime.block_on(body.collect()).unwrap().to_bytes()).unwrap()
}
