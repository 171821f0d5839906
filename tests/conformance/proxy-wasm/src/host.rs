//! A host of filters: starting it with all cases, and reading its output.

mod envoy;
mod orfa;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::pin::Pin;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::watch;

use crate::case::ConformanceCase;
use crate::host_kind::HostKind;
use crate::log::{LoggedLine, WAIT_TIMEOUT};

/// The time limit for a host's start, which compiles every module.
const START_TIMEOUT: Duration = Duration::from_secs(120);

/// The result of a start: the running host, or its output if it refused to start.
pub(crate) type StartResult = Result<ListeningHost, String>;
type StartingHost<'a> = Pin<Box<dyn Future<Output = anyhow::Result<StartResult>> + 'a>>;

pub(crate) trait DynHost {
    /// Returns the kind of the host, which selects the known differences in the table.
    fn kind(&self) -> HostKind;
    /// Starts the host with a filter and a service for each case, and waits until it listens.
    fn start<'a>(&'a self, cases: &'a [Arc<ConformanceCase>]) -> StartingHost<'a>;
}

/// Returns the host of this kind, with the path of its binary.
pub(crate) fn create_host(kind: HostKind, binary: &Path, verbose: bool) -> anyhow::Result<Box<dyn DynHost>> {
    let binary = std::path::absolute(binary)?;
    Ok(match kind {
        HostKind::Envoy => Box::new(envoy::EnvoyHost { binary, verbose }),
        HostKind::Orfa => Box::new(orfa::OrfaHost { binary, verbose }),
    })
}

/// A listening host, killed on drop.
pub(crate) struct ListeningHost {
    /// The address for each case, by its id.
    addresses: BTreeMap<String, SocketAddr>,
    /// The address and the path of the metrics.
    metrics: (SocketAddr, &'static str),
    _process: HostProcess,
}

impl ListeningHost {
    pub(crate) fn address(&self, case: &ConformanceCase) -> SocketAddr {
        self.addresses[&case.id]
    }

    /// Waits until a metric has this value. Returns the last values as an error if it does not.
    pub(crate) async fn wait_for_metric(&self, name: &str, value: i64) -> Result<(), String> {
        let mut shown = String::new();
        let until = async {
            loop {
                shown = fetch_body(self.metrics.0, self.metrics.1).await.unwrap_or_default();
                if shown.lines().any(|line| has_metric(line, name, value)) {
                    return;
                }
                // Hosts aggregate the metrics of their workers periodically, so poll until the value appears.
                tokio::task::yield_now().await;
            }
        };
        let found = tokio::time::timeout(WAIT_TIMEOUT, until).await;
        found.map_err(|_| shown.lines().filter(|line| line.contains(name)).collect::<Vec<_>>().join("; "))
    }
}

/// Whether a line of metrics contains a name with this ending and has this value last.
fn has_metric(line: &str, name: &str, value: i64) -> bool {
    let is_of_a_name = |letter: char| letter.is_alphanumeric() || letter == '_';
    line.rsplit([' ', ':']).next() == Some(&value.to_string())
        && line.split(|letter| !is_of_a_name(letter)).any(|word| word.ends_with(name))
}

/// A host's process. Its output is parsed and distributed to the cases.
pub(crate) struct HostProcess {
    child: Child,
    output: Arc<watch::Sender<Vec<String>>>,
}

impl HostProcess {
    /// Starts the process. `read` parses a line into a case's id and the line that its module logged.
    fn start(
        command: &mut Command,
        cases: &[Arc<ConformanceCase>],
        verbose: bool,
        read: fn(&str) -> Option<(String, LoggedLine)>,
    ) -> anyhow::Result<Self> {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().with_context(|| format!("{command:?} does not start"))?;
        let stderr = child.stderr.take().context("no standard error")?;
        let by_id: BTreeMap<String, Arc<ConformanceCase>> =
            cases.iter().map(|case| (case.id.clone(), Arc::clone(case))).collect();
        let said = Arc::new(watch::Sender::new(Vec::new()));
        let keep = Arc::clone(&said);
        tokio::spawn(async move {
            let mut lines = BufReader::new(stderr).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                if verbose {
                    anstream::eprintln!("{line}");
                }
                if let Some((id, line)) = read(&line)
                    && let Some(case) = by_id.get(&id)
                {
                    case.log.add(line);
                }
                keep.send_modify(|said| said.push(line));
            }
        });
        Ok(Self { child, output: said })
    }

    /// Waits for a line from which `make` returns a value. If the process ends before, returns its output as
    /// an error.
    async fn wait_for_line<T>(&mut self, make: impl Fn(&str) -> Option<T>) -> Result<T, String> {
        let mut receiver = self.output.subscribe();
        let child = &mut self.child;
        let said = async {
            loop {
                if let Some(made) = receiver.borrow_and_update().iter().find_map(|line| make(line)) {
                    return Some(made);
                }
                tokio::select! {
                    changed = receiver.changed() => if changed.is_err() { return None },
                    _ = child.wait() => return None,
                }
            }
        };
        let made = tokio::time::timeout(START_TIMEOUT, said).await.ok().flatten();
        made.ok_or_else(|| self.output.borrow().join("\n"))
    }
}

/// Fetches a body over a new connection.
async fn fetch_body(address: SocketAddr, path: &str) -> anyhow::Result<String> {
    use http_body_util::{BodyExt, Empty};
    let stream = tokio::net::TcpStream::connect(address).await?;
    let io = hyper_util::rt::TokioIo::new(stream);
    let (mut client, connection) = hyper::client::conn::http1::handshake(io).await?;
    tokio::spawn(connection);
    let request = http::Request::get(path).header("host", address.to_string());
    let answer = client.send_request(request.body(Empty::<bytes::Bytes>::new())?).await?;
    Ok(String::from_utf8(answer.into_body().collect().await?.to_bytes().to_vec())?)
}

#[cfg(test)]
mod tests {
    use super::has_metric;

    #[test]
    fn finds_metrics_in_both_notations() {
        assert!(has_metric("wasmcustom.a_count: 3", "a_count", 3));
        assert!(has_metric("orfa_filter_a_count{route=\"/a/*\"} 3", "a_count", 3));
        assert!(has_metric("orfa_filter_metric{name=\"a_count\"} 3", "a_count", 3));
        assert!(!has_metric("wasmcustom.a_count: 13", "a_count", 3));
        assert!(!has_metric("wasmcustom.a_counter: 3", "a_count", 3));
    }
}
