//! A page with its own origin, opened in headless Chromium.
//!
//! The page's server serves a script and the client library, and the script posts its results back. A script
//! that has to wait for an event of the test requests `/until`.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue, SET_COOKIE};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use testkit::with_timeout;
use tokio::net::TcpListener;
use tokio::process::{Child, Command};
use tokio::sync::{mpsc, watch};

/// Flags that isolate Chromium from the machine: its windows, network and settings.
const FLAGS: &[&str] = &[
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--no-proxy-server",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
];
/// The names of the binary on different systems.
const BINARY_NAMES: &[&str] = &["chromium", "chromium-browser", "google-chrome"];

/// The client library, imported by pages as `/client.js`, and its own import.
const CLIENT: &str = include_str!("../../../../sdk/javascript/client.js");
const DEDUP: &str = include_str!("../../../../sdk/javascript/dedup.js");

/// The HTML in front of the script.
const OPENING: &str = r#"<!doctype html><meta charset=utf-8><title>A page</title>
<script>onerror = (failed) => { fetch("/report", { method: "POST", body: JSON.stringify({ failed }) }); }</script>
<script type=module>
"#;

/// A page that has not been opened yet.
pub(super) struct BrowserPage {
    listener: TcpListener,
    address: SocketAddr,
}

/// The state of the page's server.
#[derive(Clone)]
struct PageServerState {
    script: &'static str,
    reports: mpsc::Sender<Value>,
    until: watch::Receiver<bool>,
}

impl BrowserPage {
    pub(super) async fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        Self { listener, address }
    }

    /// Returns the page's origin. The gateway is addressed as `localhost` too, so it is the same site and
    /// receives the page's cookies.
    pub(super) fn origin(&self) -> String {
        format!("http://localhost:{}", self.address.port())
    }

    /// Opens the page with this script, and returns the script's report about this gateway.
    pub(super) async fn open(self, script: &'static str, gateway: SocketAddr) -> Value {
        self.open_until(script, gateway, std::future::ready(())).await
    }

    /// Like `open`. `/until` is answered as soon as `until` completes.
    pub(super) async fn open_until(
        self,
        script: &'static str,
        gateway: SocketAddr,
        until: impl Future<Output = ()>,
    ) -> Value {
        let url = format!("{}/?gateway=http://localhost:{}", self.origin(), gateway.port());
        let (reports, mut reported) = mpsc::channel(1);
        let (came, until_came) = watch::channel(false);
        let server =
            tokio::spawn(serve(self.listener, PageServerState { script, reports, until: until_came }));
        let folder = tempfile::tempdir().expect("a folder");
        let mut chromium = start_chromium(&url, folder.path(), &[]);
        let until = async {
            until.await;
            came.send_replace(true);
            std::future::pending().await
        };
        let report = with_timeout("the page's report", async {
            tokio::select! {
                report = reported.recv() => report.expect("a report"),
                ended = chromium.wait() => panic!("Chromium ended before the page did: {ended:?}"),
                () = until => unreachable!("it never ends"),
            }
        });
        let report = report.await;
        server.abort();
        let _ = chromium.kill().await;
        report
    }
}

/// Starts Chromium with this address and further flags.
pub(super) fn start_chromium(url: &str, folder: &Path, flags: &[&str]) -> Child {
    let mut command = Command::new(chromium_path());
    command
        .args(FLAGS)
        .args(flags)
        .arg(format!("--user-data-dir={}", folder.join("profile").display()))
        .arg(url);
    command.env("HOME", folder).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.kill_on_drop(true).spawn().expect("Chromium starts")
}

fn chromium_path() -> PathBuf {
    if let Some(named) = std::env::var_os("ORFA_CHROMIUM") {
        return named.into();
    }
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let found = BINARY_NAMES.iter().find_map(|name| {
        std::env::split_paths(&folders).map(|folder| folder.join(name)).find(|path| path.is_file())
    });
    found.expect(
        "Chromium is missing: run `scripts/setup test` for instructions, or set ORFA_CHROMIUM to its path",
    )
}

async fn serve(listener: TcpListener, site: PageServerState) {
    // The connections end with this task, which owns the set.
    let mut connections = tokio::task::JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let site = site.clone();
        let service = service_fn(move |request| handle_request(request, site.clone()));
        connections.spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
    }
}

async fn handle_request(
    request: Request<Incoming>,
    mut site: PageServerState,
) -> Result<Response<Full<Bytes>>, hyper::Error> {
    match request.uri().path() {
        "/report" => {
            let report = request.into_body().collect().await?.to_bytes();
            let _ = site.reports.send(serde_json::from_slice(&report).unwrap_or_default()).await;
            Ok(Response::default())
        }
        "/until" => {
            let _ = site.until.wait_for(|came| *came).await;
            Ok(Response::default())
        }
        "/client.js" => Ok(typed_response("text/javascript", CLIENT)),
        "/dedup.js" => Ok(typed_response("text/javascript", DEDUP)),
        _ => Ok(page_response(site.script)),
    }
}

/// Returns the page, with a cookie for its visitor. A failing script reports its error.
fn page_response(script: &str) -> Response<Full<Bytes>> {
    let mut response = typed_response("text/html", format!("{OPENING}{script}</script>"));
    let cookie = HeaderValue::from_static("visitor=seven; Path=/; SameSite=Lax; HttpOnly");
    response.headers_mut().insert(SET_COOKIE, cookie);
    response
}

fn typed_response(content_type: &'static str, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(body.into()));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}
