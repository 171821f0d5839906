//! Servers pinned to a core. Their log is written to a file, so that no process has to read it during a
//! measurement.

use std::fs::File;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use benches::process::{ProcessUsage, child_pids, peak_rss, usage_of_tree};
use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, setrlimit};
use tempfile::TempDir;

/// An address without a service, for programs that make no calls.
pub(crate) const UNUSED_ADDRESS: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 9);
/// The core of the servers. The load has the other one.
pub(crate) const SERVER_CORE: &str = "0";
/// The core of the load, and of the services behind the servers.
pub(crate) const LOAD_CORE: &str = "1";
/// The gateway's config, in its folder.
const CONFIG_FILE: &str = "orfa.yaml";
/// The timeout for starting and ending.
const PROCESS_TIMEOUT: Duration = Duration::from_secs(20);

/// A running server.
pub(crate) struct ServerProcess {
    pub(crate) address: SocketAddr,
    child: Child,
    command: Command,
    folder: TempDir,
}

impl ServerProcess {
    /// Starts the bare server.
    pub(crate) fn start_floor(binary: &Path) -> Result<Self> {
        Self::start_plain(SERVER_CORE, binary)
    }

    /// Starts the service with minimal cost on the core of the load.
    pub(crate) fn start_upstream(binary: &Path) -> Result<Self> {
        Self::start_upstream_on(LOAD_CORE, binary)
    }

    /// Starts the service with minimal cost on these cores.
    pub(crate) fn start_upstream_on(cores: &str, binary: &Path) -> Result<Self> {
        Self::start_plain(cores, binary)
    }

    /// Starts a server that takes its address as its only argument.
    fn start_plain(core: &str, binary: &Path) -> Result<Self> {
        Self::start(|address, _| {
            let mut command = pinned_command(core, binary);
            command.arg(address.to_string());
            Ok(command)
        })
    }

    /// Starts the gateway with a typical query route and the access log enabled. `slow` is the address of the
    /// only service that programs may call.
    pub(crate) fn start_orfa(binary: &Path, cores: &str, slow: SocketAddr) -> Result<Self> {
        Self::start_gateway(binary, cores, &query_route(slow))
    }

    /// Starts the gateway with a config without `listen`.
    pub(crate) fn start_gateway(binary: &Path, cores: &str, yaml: &str) -> Result<Self> {
        Self::start_gateway_within(PROCESS_TIMEOUT, binary, cores, yaml)
    }

    /// Like `gateway`, with a timeout for a config that takes long to load.
    pub(crate) fn start_gateway_within(
        patience: Duration,
        binary: &Path,
        cores: &str,
        yaml: &str,
    ) -> Result<Self> {
        Self::start_within(patience, |address, folder| {
            let config = folder.join(CONFIG_FILE);
            std::fs::write(&config, format!("listen: {address}\n{yaml}"))?;
            let mut command = pinned_command(cores, binary);
            command.args(["serve", "--config"]).arg(&config);
            Ok(command)
        })
    }

    /// Starts a server on a free port, with a folder for its files, and waits until it accepts connections.
    pub(crate) fn start(command: impl FnOnce(SocketAddr, &Path) -> Result<Command>) -> Result<Self> {
        Self::start_within(PROCESS_TIMEOUT, command)
    }

    /// Like `start`, with a timeout for a server that takes long to start.
    pub(crate) fn start_within(
        patience: Duration,
        command: impl FnOnce(SocketAddr, &Path) -> Result<Command>,
    ) -> Result<Self> {
        let (address, folder) = (free_address()?, tempfile::tempdir()?);
        let mut command = command(address, folder.path())?;
        let log = File::create(folder.path().join("log"))?;
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let child = command.spawn().context("`taskset` (package util-linux) or the server does not start")?;
        let mut server = Self { address, child, command, folder };
        server.wait_until_ready(patience)?;
        Ok(server)
    }

    /// Waits until the server accepts connections.
    fn wait_until_ready(&mut self, patience: Duration) -> Result<()> {
        let end = Instant::now() + patience;
        while TcpStream::connect(self.address).is_err() {
            if let Some(status) = self.child.try_wait()? {
                bail!("the server ended at once: {status}\n{}", self.log());
            }
            if Instant::now() > end {
                bail!("the server does not listen on {}\n{}", self.address, self.log());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// Replaces the config of the gateway.
    pub(crate) fn rewrite(&self, yaml: &str) -> Result<()> {
        // Uses a rename, as a careful operator does: a partially written config would be invalid.
        let (config, new) = (self.folder.path().join(CONFIG_FILE), self.folder.path().join("new.yaml"));
        std::fs::write(&new, format!("listen: {}\n{yaml}", self.address))?;
        Ok(std::fs::rename(new, config)?)
    }

    /// Sends a signal.
    pub(crate) fn signal(&self, signal: Signal) -> Result<()> {
        let pid = Pid::from_raw(self.child.id().cast_signed()).context("no process")?;
        Ok(kill_process(pid, signal)?)
    }

    /// Starts a successor and waits until the predecessor has ended by itself.
    pub(crate) async fn start_successor(&mut self) -> Result<()> {
        let mut before = std::mem::replace(&mut self.child, self.command.spawn()?);
        let end = Instant::now() + PROCESS_TIMEOUT;
        while before.try_wait()?.is_none() {
            if let Some(status) = self.child.try_wait()? {
                let _ = before.kill();
                bail!("the successor ended: {status}\n{}", self.log());
            }
            if Instant::now() > end {
                let _ = before.kill();
                bail!("the one before did not end within {} s", PROCESS_TIMEOUT.as_secs());
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    }

    /// Confines all threads to these cores.
    pub(crate) fn pin_to_cores(&self, cores: &str) -> Result<()> {
        let pid = self.child.id().to_string();
        let output =
            Command::new("taskset").args(["--all-tasks", "--cpu-list", "--pid", cores, &pid]).output()?;
        ensure!(output.status.success(), "taskset: {}", String::from_utf8_lossy(&output.stderr));
        Ok(())
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The resource usage so far, including child processes.
    pub(crate) fn usage(&self) -> Result<ProcessUsage> {
        usage_of_tree(self.child.id())
    }

    /// The peak of the resident memory in bytes.
    pub(crate) fn peak_rss(&self) -> Result<u64> {
        peak_rss(self.child.id())
    }

    /// The beginning of the log, which contains errors of the start.
    fn log(&self) -> String {
        let log = std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
        log.lines().take(20).collect::<Vec<_>>().join("\n")
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        // The workers of a master would outlive it. An error means that the process is gone already.
        let workers = child_pids(self.child.id()).unwrap_or_default();
        let _ = self.child.kill();
        let workers = workers.into_iter().filter_map(|pid| Pid::from_raw(pid.cast_signed()));
        workers.for_each(|pid| _ = kill_process(pid, Signal::KILL));
        let _ = self.child.wait();
    }
}

/// A query route whose programs may call the service at this address.
pub(crate) fn query_route(slow: SocketAddr) -> String {
    format!(
        "services: {{ slow: {{ url: 'http://{slow}' }} }}\n\
         routes:\n  - path: /query\n    query:\n      services: [slow]\n      modes: [code, instance]\n      \
         limits: {{ cpu: 50ms, timeout: 5s, memory: 16MiB, calls: 200 }}\n"
    )
}

/// A command pinned to a core.
pub(crate) fn pinned_command(core: &str, binary: &Path) -> Command {
    let mut command = Command::new("taskset");
    command.args(["-c", core]).arg(binary);
    command
}

/// Raises the limit of open files for this process and its children.
pub(crate) fn allow_open_files(wanted: u64) -> Result<()> {
    let limit = getrlimit(Resource::Nofile);
    let (current, maximum) = (limit.current.unwrap_or(u64::MAX), limit.maximum.unwrap_or(u64::MAX));
    ensure!(maximum >= wanted, "the hard limit of open files is {maximum}, and {wanted} are needed");
    setrlimit(Resource::Nofile, Rlimit { current: Some(current.max(wanted)), maximum: limit.maximum })?;
    Ok(())
}

fn free_address() -> Result<SocketAddr> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}
