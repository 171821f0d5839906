//! A third-party collector: Rotel, which prints every span that it receives.
//!
//! `scripts/setup test` installs it beside the build; `ORFA_OTLP_RECEIVER` overrides its path.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;

use testkit::with_timeout;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::watch;

use crate::support::orfa_binary;

/// A running collector, killed on drop.
pub(super) struct TraceReceiver {
    pub(super) url: String,
    lines: Arc<watch::Sender<Vec<String>>>,
    _child: Child,
}

/// A received span.
#[derive(Clone, Debug, Default)]
pub(super) struct ReceivedSpan {
    pub(super) trace_id: String,
    pub(super) parent_id: String,
    pub(super) id: String,
    pub(super) name: String,
    pub(super) kind: String,
    pub(super) status: String,
    attributes: BTreeMap<String, String>,
}

impl TraceReceiver {
    pub(super) async fn start() -> Self {
        // Rotel does not print its port, so it gets two ports that were free just before.
        let free =
            || TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).expect("a port");
        let (http, grpc) = (free(), free());
        let binary = rotel_path();
        let mut child = Command::new(&binary)
            .args([
                "start",
                "--exporter",
                "blackhole",
                "--debug-log",
                "traces",
                "--debug-log-verbosity",
                "detailed",
            ])
            .args(["--otlp-http-endpoint", &http.to_string(), "--otlp-grpc-endpoint", &grpc.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap_or_else(|error| panic!("{}: {error}; `scripts/setup test` fetches it", binary.display()));
        let lines = Arc::new(watch::Sender::new(Vec::new()));
        let (theirs, stdout) = (lines.clone(), child.stdout.take().expect("its output"));
        tokio::spawn(async move {
            let mut stdout = BufReader::new(stdout).lines();
            while let Ok(Some(line)) = stdout.next_line().await {
                theirs.send_modify(|lines: &mut Vec<String>| lines.push(line));
            }
        });
        let receiver = Self { url: format!("http://{http}"), lines, _child: child };
        receiver
            .wait_for_lines("the collector's start", |lines| {
                lines.iter().any(|line| line.contains("Starting"))
            })
            .await;
        receiver
    }

    /// Returns everything that it has printed.
    pub(super) fn printed_text(&self) -> String {
        self.lines.borrow().join("\n")
    }

    /// Waits for this many spans and returns all of them.
    pub(super) async fn spans(&self, count: usize) -> Vec<ReceivedSpan> {
        self.wait_for_lines("spans", |lines| parse_spans(lines).len() >= count).await;
        parse_spans(&self.lines.borrow())
    }

    async fn wait_for_lines(&self, what: &str, is_there: impl Fn(&Vec<String>) -> bool) {
        let mut lines = self.lines.subscribe();
        let _ = with_timeout(what, lines.wait_for(|lines| is_there(lines))).await;
    }
}

impl ReceivedSpan {
    /// Returns an attribute as printed, such as `Int(200)`.
    #[track_caller]
    pub(super) fn attribute(&self, name: &str) -> &str {
        self.attributes.get(name).unwrap_or_else(|| panic!("no {name} in {self:#?}"))
    }
}

/// Parses the spans that were printed completely.
fn parse_spans(lines: &[String]) -> Vec<ReceivedSpan> {
    let (mut spans, mut is_inside) = (Vec::<ReceivedSpan>::new(), false);
    for line in lines {
        let pair = line.split_once(':').map(|(name, value)| (name.trim(), value.trim()));
        if line.starts_with("Span #") {
            spans.push(ReceivedSpan::default());
            is_inside = true;
        } else if line.starts_with("Resource") || line.starts_with("Scope") {
            is_inside = false;
        }
        let (Some((name, value)), Some(span), true) = (pair, spans.last_mut(), is_inside) else { continue };
        match name {
            "Trace ID" => span.trace_id = value.to_owned(),
            "Parent ID" => span.parent_id = value.to_owned(),
            "ID" => span.id = value.to_owned(),
            "Name" => span.name = value.to_owned(),
            "Kind" => span.kind = value.to_owned(),
            "Status code" => span.status = value.to_owned(),
            name => drop(
                name.strip_prefix("-> ")
                    .and_then(|key| span.attributes.insert(key.to_owned(), value.to_owned())),
            ),
        }
    }
    spans.retain(|span| !span.attributes.is_empty() || span.kind == "SPAN_KIND_INTERNAL");
    spans
}

fn rotel_path() -> PathBuf {
    let beside = || orfa_binary().ancestors().nth(2).map(|target| target.join("tools/rotel/rotel-agent"));
    std::env::var_os("ORFA_OTLP_RECEIVER").map(PathBuf::from).or_else(beside).expect("a folder for builds")
}
