//! A page with an origin of its own, and the browser that opens it: a Chromium without a window.
//!
//! The page's server hands out a script and the client library, and the script sends back what it could
//! read: nothing has to reach into the browser. A script that has to wait for something of the test's asks its
//! server for `/until`.

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
use testkit::patiently;
use tokio::net::TcpListener;
use tokio::process::{Child, Command};
use tokio::sync::{mpsc, watch};

/// Keeps Chromium from everything that is not this test: windows, the network, the machine's settings.
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
/// Its names on the systems that have it.
const NAMES: &[&str] = &["chromium", "chromium-browser", "google-chrome"];

/// What pages import as `/client.js`, and what that imports.
const CLIENT: &str = include_str!("../../sdk/javascript/client.js");
const DEDUP: &str = include_str!("../../sdk/javascript/dedup.js");

/// The page up to its script.
const OPENING: &str = r#"<!doctype html><meta charset=utf-8><title>A page</title>
<script>onerror = (failed) => { fetch("/report", { method: "POST", body: JSON.stringify({ failed }) }); }</script>
<script type=module>
"#;

/// A page that is still to be opened.
pub(super) struct Page {
    listener: TcpListener,
    address: SocketAddr,
}

/// What the page's server needs for its answers.
#[derive(Clone)]
struct Site {
    script: &'static str,
    reports: mpsc::Sender<Value>,
    until: watch::Receiver<bool>,
}

impl Page {
    pub(super) async fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        Self { listener, address }
    }

    /// A site is scheme and host: the gateway is called `localhost` too, and gets the page's cookies.
    pub(super) fn origin(&self) -> String {
        format!("http://localhost:{}", self.address.port())
    }

    /// Opens it with this script, and waits for what it reports of this gateway.
    pub(super) async fn open(self, script: &'static str, gateway: SocketAddr) -> Value {
        self.open_until(script, gateway, std::future::ready(())).await
    }

    /// The same; `/until` is answered as soon as `until` has come.
    pub(super) async fn open_until(
        self,
        script: &'static str,
        gateway: SocketAddr,
        until: impl Future<Output = ()>,
    ) -> Value {
        let url = format!("{}/?gateway=http://localhost:{}", self.origin(), gateway.port());
        let (reports, mut reported) = mpsc::channel(1);
        let (came, until_came) = watch::channel(false);
        let server = tokio::spawn(serve(self.listener, Site { script, reports, until: until_came }));
        let folder = tempfile::tempdir().expect("a folder");
        let mut chromium = chromium(&url, folder.path(), &[]);
        let until = async {
            until.await;
            came.send_replace(true);
            std::future::pending().await
        };
        let report = patiently("the page's report", async {
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

/// A Chromium that opens this address, with flags beside those that it always has.
pub(super) fn chromium(url: &str, folder: &Path, flags: &[&str]) -> Child {
    let mut command = Command::new(binary());
    command
        .args(FLAGS)
        .args(flags)
        .arg(format!("--user-data-dir={}", folder.join("profile").display()))
        .arg(url);
    command.env("HOME", folder).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.kill_on_drop(true).spawn().expect("Chromium starts")
}

fn binary() -> PathBuf {
    if let Some(named) = std::env::var_os("ORFA_CHROMIUM") {
        return named.into();
    }
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let found = NAMES.iter().find_map(|name| {
        std::env::split_paths(&folders).map(|folder| folder.join(name)).find(|path| path.is_file())
    });
    found.expect("Chromium is missing: `scripts/setup test` says what to do, ORFA_CHROMIUM names another")
}

async fn serve(listener: TcpListener, site: Site) {
    // Connections end with the set, which ends with this task.
    let mut connections = tokio::task::JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let site = site.clone();
        let service = service_fn(move |request| answer(request, site.clone()));
        connections.spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
    }
}

async fn answer(request: Request<Incoming>, mut site: Site) -> Result<Response<Full<Bytes>>, hyper::Error> {
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
        "/client.js" => Ok(typed("text/javascript", CLIENT)),
        "/dedup.js" => Ok(typed("text/javascript", DEDUP)),
        _ => Ok(page(site.script)),
    }
}

/// The page, with a cookie for its visitor. A script that fails reports so.
fn page(script: &str) -> Response<Full<Bytes>> {
    let mut response = typed("text/html", format!("{OPENING}{script}</script>"));
    let cookie = HeaderValue::from_static("visitor=seven; Path=/; SameSite=Lax; HttpOnly");
    response.headers_mut().insert(SET_COOKIE, cookie);
    response
}

fn typed(content_type: &'static str, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(body.into()));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}
