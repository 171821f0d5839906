//! The gateway as an operator runs it: a process, a config, a port, a log.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, ChildStderr, Command};
use tokio::sync::watch;

use crate::patiently;

/// A running gateway. It is killed when dropped.
#[derive(Debug)]
pub struct Gateway {
    /// Where it answers: `http://127.0.0.1:PORT`.
    pub url: String,
    /// The same as an address.
    pub address: SocketAddr,
    child: Child,
    log: Arc<watch::Sender<Log>>,
    directory: Arc<tempfile::TempDir>,
}

#[derive(Debug, Default)]
struct Log {
    lines: Vec<String>,
    ended: bool,
}

impl Gateway {
    /// Starts `BINARY serve --config FILE` and waits until it listens. The config says
    /// `listen: 127.0.0.1:0`.
    ///
    /// # Panics
    /// If it ends before it listens, with all that it said.
    pub async fn start(binary: &Path, yaml: &str) -> Self {
        Self::start_with(binary, yaml, &[]).await
    }

    /// The same, with files beside the config: name and text.
    ///
    /// # Panics
    /// If it ends before it listens, with all that it said.
    pub async fn start_with(binary: &Path, yaml: &str, files: &[(&str, &str)]) -> Self {
        let directory = tempfile::tempdir().unwrap_or_else(|error| panic!("no temporary folder: {error}"));
        let yaml = without_default_admin(yaml);
        for (name, text) in files.iter().chain(&[("orfa.yaml", &*yaml)]) {
            write(&directory.path().join(name), text);
        }
        Self::spawn(Command::new(binary), Arc::new(directory)).await
    }

    /// Starts another process on the same config, while this one runs: the next binary. Returns once the
    /// next one listens.
    ///
    /// # Panics
    /// If it ends before it listens, with all that it said.
    pub async fn successor(&self, binary: &Path) -> Self {
        self.successor_by(Command::new(binary)).await
    }

    /// The same by another command, which gets the arguments: one with another environment.
    ///
    /// # Panics
    /// If it ends before it listens, with all that it said.
    pub async fn successor_by(&self, command: Command) -> Self {
        Self::spawn(command, Arc::clone(&self.directory)).await
    }

    /// Starts it by another command that runs the binary with the arguments that it gets: a shell that
    /// sets limits first.
    ///
    /// # Panics
    /// If it ends before it listens, with all that it said.
    pub async fn start_by(command: Command, yaml: &str) -> Self {
        let directory = tempfile::tempdir().unwrap_or_else(|error| panic!("no temporary folder: {error}"));
        write(&directory.path().join("orfa.yaml"), yaml);
        // The command may run it as another user.
        let readable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(directory.path(), readable)
            .unwrap_or_else(|error| panic!("{}: {error}", directory.path().display()));
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
        let log = Arc::new(watch::Sender::new(Log::default()));
        if let Some(stderr) = child.stderr.take() {
            tokio::spawn(collect(stderr, log.clone()));
        }
        let address = listening(&log).await;
        Self { url: format!("http://{address}"), address, child, log, directory }
    }

    /// The lines that it has logged so far.
    #[must_use]
    pub fn log(&self) -> Vec<String> {
        self.log.borrow().lines.clone()
    }

    /// Waits for a line of the log, or for its end; the line.
    pub async fn logged(&self, wanted: impl Fn(&str) -> bool) -> Option<String> {
        let line = find(&self.log, |line| wanted(line).then(|| line.to_owned()));
        patiently("a line of the gateway's log", line).await
    }

    /// Its process, for tests that measure it.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    /// The folder of its config.
    #[must_use]
    pub fn directory(&self) -> PathBuf {
        self.directory.path().to_owned()
    }

    /// Puts another text in place of its config, or of a file beside it, at once.
    ///
    /// # Panics
    /// If the file can't be written.
    pub fn rewrite(&self, name: &str, text: &str) {
        let (file, aside) = (self.directory().join(name), self.directory().join(format!("{name}.new")));
        write(&aside, text);
        std::fs::rename(aside, file).unwrap_or_else(|error| panic!("{name}: {error}"));
    }

    /// Asks it to read its config again: SIGHUP.
    pub fn ask_to_reload(&self) {
        self.signal(rustix::process::Signal::HUP);
    }

    /// Asks it to end, as a service manager does: SIGTERM.
    pub fn ask_to_end(&self) {
        self.signal(rustix::process::Signal::TERM);
    }

    /// Asks it to end, as Ctrl-C does: SIGINT.
    pub fn interrupt(&self) {
        self.signal(rustix::process::Signal::INT);
    }

    fn signal(&self, signal: rustix::process::Signal) {
        let pid =
            self.child.id().and_then(|pid| i32::try_from(pid).ok()).and_then(rustix::process::Pid::from_raw);
        if let Some(pid) = pid {
            // It may have ended by itself: then there is nobody to ask.
            let _ = rustix::process::kill_process(pid, signal);
        }
    }

    /// Waits until it has ended by itself.
    ///
    /// # Panics
    /// If the process can't be waited for.
    pub async fn ended(&mut self) -> ExitStatus {
        let ended = patiently("the end of the gateway", self.child.wait());
        ended.await.unwrap_or_else(|error| panic!("the gateway can't be waited for: {error}"))
    }

    /// Asks it to end and waits until it has.
    ///
    /// # Panics
    /// If the process can't be waited for.
    pub async fn terminate(&mut self) -> ExitStatus {
        self.ask_to_end();
        self.ended().await
    }
}

/// Gateways of tests that say nothing of an admin listener, not even in a comment, have none: of the default
/// there is one on a machine.
fn without_default_admin(yaml: &str) -> String {
    if yaml.lines().any(|line| line.trim_start_matches("# ").starts_with("admin:")) {
        return yaml.to_owned();
    }
    format!("{yaml}\nadmin: off\n")
}

fn write(path: &Path, text: &str) {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    }
    std::fs::write(path, text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}

#[expect(
    clippy::print_stderr,
    reason = "whoever asks next is told of a broken connection, and not of what ended the gateway"
)]
async fn collect(stderr: ChildStderr, log: Arc<watch::Sender<Log>>) {
    let mut lines = BufReader::new(stderr).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        if line.contains("beyond ORFA_POLL_LIMIT_MS") {
            eprintln!("{line}");
        }
        log.send_modify(|log| log.lines.push(line));
    }
    log.send_modify(|log| log.ended = true);
}

async fn listening(log: &watch::Sender<Log>) -> SocketAddr {
    match patiently("the gateway's log says that it listens", find(log, address)).await {
        Some(address) => address,
        None => panic!("the gateway ended before it listened:\n{}", log.borrow().lines.join("\n")),
    }
}

/// Waits for the first line of which something can be made; `None` once there will be no more lines.
async fn find<T>(log: &watch::Sender<Log>, make: impl Fn(&str) -> Option<T>) -> Option<T> {
    let mut receiver = log.subscribe();
    let mut seen = 0;
    loop {
        {
            let log = receiver.borrow_and_update();
            if let Some(found) = log.lines.iter().skip(seen).find_map(|line| make(line)) {
                return Some(found);
            }
            seen = log.lines.len();
            if log.ended {
                return None;
            }
        }
        receiver.changed().await.ok()?;
    }
}

/// The address in `{"message":"listening","address":"127.0.0.1:8080"}`, wherever the fields stand.
fn address(line: &str) -> Option<SocketAddr> {
    let line: Value = serde_json::from_str(line).ok()?;
    let fields = line.get("fields").unwrap_or(&line);
    let is_listening = fields.get("message")?.as_str()? == "listening";
    is_listening.then(|| fields.get("address")?.as_str()?.parse().ok())?
}

#[cfg(test)]
mod tests;
