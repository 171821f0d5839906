//! A page with an origin of its own, and the browser that opens it: a Chromium without a window.
//!
//! The page's server hands out a script, and the script sends back what it could read: nothing has to
//! reach into the browser.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use testkit::patiently;
use tokio::net::TcpListener;
use tokio::process::{Child, Command};
use tokio::sync::mpsc;

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

/// A page that is still to be opened.
pub(super) struct Page {
    listener: TcpListener,
    address: SocketAddr,
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

    /// Opens it, and waits for what it reports of this gateway.
    pub(super) async fn open(self, gateway: SocketAddr) -> Value {
        let url = format!("{}/?gateway=http://localhost:{}", self.origin(), gateway.port());
        let (send, mut reports) = mpsc::channel(1);
        let server = tokio::spawn(serve(self.listener, send));
        let folder = tempfile::tempdir().expect("a folder");
        let mut chromium = chromium(&url, folder.path());
        let report = patiently("the page's report", async {
            tokio::select! {
                report = reports.recv() => report.expect("a report"),
                ended = chromium.wait() => panic!("Chromium ended before the page did: {ended:?}"),
            }
        });
        let report = report.await;
        server.abort();
        let _ = chromium.kill().await;
        report
    }
}

fn chromium(url: &str, folder: &Path) -> Child {
    let mut command = Command::new(binary());
    command.args(FLAGS).arg(format!("--user-data-dir={}", folder.join("profile").display())).arg(url);
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

async fn serve(listener: TcpListener, reports: mpsc::Sender<Value>) {
    // Connections end with the set, which ends with this task.
    let mut connections = tokio::task::JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let reports = reports.clone();
        let service = service_fn(move |request| answer(request, reports.clone()));
        connections.spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
    }
}

/// The page, with a cookie for its visitor; and what takes its report.
async fn answer(
    request: Request<Incoming>,
    reports: mpsc::Sender<Value>,
) -> Result<Response<Full<Bytes>>, hyper::Error> {
    if request.method() == Method::POST {
        let report = request.into_body().collect().await?.to_bytes();
        let report = serde_json::from_slice(&report).unwrap_or_default();
        let _ = reports.send(report).await;
        return Ok(Response::default());
    }
    let page = concat!(
        "<!doctype html><meta charset=utf-8><title>A page</title><script type=module>\n",
        include_str!("page.js"),
        "</script>"
    );
    let response = Response::builder().header("content-type", "text/html");
    let response = response.header("set-cookie", "visitor=seven; Path=/; SameSite=Lax; HttpOnly");
    Ok(response.body(Full::from(page)).expect("these headers are fine"))
}
