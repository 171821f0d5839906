//! The gateway as an operator runs it: a process, a config, a port, a log.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, ChildStderr, Command};
use tokio::sync::watch;

use crate::with_timeout;

/// A running gateway. It is killed when dropped.
#[derive(Debug)]
pub struct GatewayProcess {
    /// The base URL: `http://127.0.0.1:PORT`.
    pub url: String,
    /// The address of the URL.
    pub address: SocketAddr,
    child: Child,
    log: Arc<watch::Sender<GatewayLog>>,
    directory: Arc<tempfile::TempDir>,
}

#[derive(Debug, Default)]
struct GatewayLog {
    lines: Vec<String>,
    is_closed: bool,
}

impl GatewayProcess {
    /// Starts `BINARY serve --config FILE` and waits until it listens. The config contains `listen:
    /// 127.0.0.1:0`.
    ///
    /// # Panics
    /// Panics with the log if the gateway ends before it listens.
    pub async fn start(binary: &Path, yaml: &str) -> Self {
        Self::start_with(binary, yaml, &[]).await
    }

    /// Like [`GatewayProcess::start`], with files next to the config, given as name and text.
    ///
    /// # Panics
    /// Panics with the log if the gateway ends before it listens.
    pub async fn start_with(binary: &Path, yaml: &str, files: &[(&str, &str)]) -> Self {
        let directory = tempfile::tempdir().unwrap_or_else(|error| panic!("no temporary folder: {error}"));
        let yaml = without_default_admin(yaml);
        for (name, text) in files.iter().chain(&[("orfa.yaml", &*yaml)]) {
            write_file(&directory.path().join(name), text);
        }
        Self::spawn(Command::new(binary), Arc::new(directory)).await
    }

    /// Starts another process on the same config while this one runs, as for an upgrade of the binary.
    /// Returns once the new one listens.
    ///
    /// # Panics
    /// Panics with the log if the gateway ends before it listens.
    pub async fn start_successor(&self, binary: &Path) -> Self {
        self.start_successor_with(Command::new(binary)).await
    }

    /// Like [`GatewayProcess::start_successor`], with another command that receives the arguments, such as
    /// one with another environment.
    ///
    /// # Panics
    /// Panics with the log if the gateway ends before it listens.
    pub async fn start_successor_with(&self, command: Command) -> Self {
        Self::spawn(command, Arc::clone(&self.directory)).await
    }

    /// Starts the gateway by another command that runs the binary with the arguments that it receives, such
    /// as a shell that sets limits first.
    ///
    /// # Panics
    /// Panics with the log if the gateway ends before it listens.
    pub async fn start_with_command(command: Command, yaml: &str) -> Self {
        let directory = tempfile::tempdir().unwrap_or_else(|error| panic!("no temporary folder: {error}"));
        write_file(&directory.path().join("orfa.yaml"), yaml);
        // The command may run the gateway as another user.
        let readable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(directory.path(), readable)
            .unwrap_or_else(|error| panic!("{}: {error}", directory.path().display()));
        Self::spawn(command, Arc::new(directory)).await
    }

    /// Starts the gateway by this command in a folder that contains `orfa.yaml`, such as one that another
    /// version has written.
    ///
    /// # Panics
    /// Panics with the log if the gateway ends before it listens.
    pub async fn start_in(command: Command, directory: tempfile::TempDir) -> Self {
        Self::spawn(command, Arc::new(directory)).await
    }

    async fn spawn(mut command: Command, directory: Arc<tempfile::TempDir>) -> Self {
        let mut child = command
            .args(["serve", "--config"])
            .arg(directory.path().join("orfa.yaml"))
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?} does not start: {error}"));
        let log = Arc::new(watch::Sender::new(GatewayLog::default()));
        if let Some(stderr) = child.stderr.take() {
            tokio::spawn(collect_log(stderr, log.clone()));
        }
        let address = wait_until_listening(&log).await;
        Self { url: format!("http://{address}"), address, child, log, directory }
    }

    /// The lines that it has logged so far.
    #[must_use]
    pub fn log_lines(&self) -> Vec<String> {
        self.log.borrow().lines.clone()
    }

    /// Waits for a line of the log and returns it, or `None` at the end of the log.
    pub async fn wait_for_log(&self, wanted: impl Fn(&str) -> bool) -> Option<String> {
        let line = find_log_line(&self.log, |line| wanted(line).then(|| line.to_owned()));
        with_timeout("a line of the gateway's log", line).await
    }

    /// The process ID, for tests that measure the process.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    /// The folder of its config.
    #[must_use]
    pub fn directory(&self) -> PathBuf {
        self.directory.path().to_owned()
    }

    /// Atomically replaces the config or a file next to it.
    ///
    /// # Panics
    /// Panics if the file can't be written.
    pub fn replace_file(&self, name: &str, text: &str) {
        let (file, aside) = (self.directory().join(name), self.directory().join(format!("{name}.new")));
        write_file(&aside, text);
        std::fs::rename(aside, file).unwrap_or_else(|error| panic!("{name}: {error}"));
    }

    /// Makes the gateway reload its config: SIGHUP.
    pub fn request_reload(&self) {
        self.signal(rustix::process::Signal::HUP);
    }

    /// Makes the gateway end, as a service manager does: SIGTERM.
    pub fn request_shutdown(&self) {
        self.signal(rustix::process::Signal::TERM);
    }

    /// Makes the gateway end, as Ctrl-C does: SIGINT.
    pub fn interrupt(&self) {
        self.signal(rustix::process::Signal::INT);
    }

    fn signal(&self, signal: rustix::process::Signal) {
        let pid =
            self.child.id().and_then(|pid| i32::try_from(pid).ok()).and_then(rustix::process::Pid::from_raw);
        if let Some(pid) = pid {
            // The process may have ended already.
            let _ = rustix::process::kill_process(pid, signal);
        }
    }

    /// Waits until the gateway has ended by itself.
    ///
    /// # Panics
    /// Panics if the process can't be waited for.
    pub async fn wait_for_exit(&mut self) -> ExitStatus {
        let ended = with_timeout("the end of the gateway", self.child.wait());
        ended.await.unwrap_or_else(|error| panic!("the gateway can't be waited for: {error}"))
    }

    /// Terminates the gateway and waits until it has ended.
    ///
    /// # Panics
    /// Panics if the process can't be waited for.
    pub async fn terminate(&mut self) -> ExitStatus {
        self.request_shutdown();
        self.wait_for_exit().await
    }
}

/// Disables the admin listener unless the config mentions it, even in a comment: its default address can only
/// be used once on a machine.
fn without_default_admin(yaml: &str) -> String {
    if yaml.lines().any(|line| line.trim_start_matches("# ").starts_with("admin:")) {
        return yaml.to_owned();
    }
    format!("{yaml}\nadmin: off\n")
}

fn write_file(path: &Path, text: &str) {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    }
    std::fs::write(path, text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}

#[expect(
    clippy::print_stderr,
    reason = "the next caller only sees a broken connection, and not the reason the gateway ended"
)]
async fn collect_log(stderr: ChildStderr, log: Arc<watch::Sender<GatewayLog>>) {
    let mut lines = BufReader::new(stderr).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        if line.contains("beyond ORFA_POLL_LIMIT_MS") {
            eprintln!("{line}");
        }
        log.send_modify(|log| log.lines.push(line));
    }
    log.send_modify(|log| log.is_closed = true);
}

async fn wait_until_listening(log: &watch::Sender<GatewayLog>) -> SocketAddr {
    match with_timeout("the gateway to log that it listens", find_log_line(log, parse_listening_address))
        .await
    {
        Some(address) => address,
        None => panic!("the gateway ended before it listened:\n{}", log.borrow().lines.join("\n")),
    }
}

/// Waits for the first line for which `make` returns a value. Returns `None` at the end of the log.
async fn find_log_line<T>(log: &watch::Sender<GatewayLog>, make: impl Fn(&str) -> Option<T>) -> Option<T> {
    let mut receiver = log.subscribe();
    let mut seen = 0;
    loop {
        {
            let log = receiver.borrow_and_update();
            if let Some(found) = log.lines.iter().skip(seen).find_map(|line| make(line)) {
                return Some(found);
            }
            seen = log.lines.len();
            if log.is_closed {
                return None;
            }
        }
        receiver.changed().await.ok()?;
    }
}

/// The address in `{"message":"listening","address":"127.0.0.1:8080"}`, in any order of fields.
fn parse_listening_address(line: &str) -> Option<SocketAddr> {
    let line: Value = serde_json::from_str(line).ok()?;
    let fields = line.get("fields").unwrap_or(&line);
    let is_listening = fields.get("message")?.as_str()? == "listening";
    is_listening.then(|| fields.get("address")?.as_str()?.parse().ok())?
}

#[cfg(test)]
mod tests;
