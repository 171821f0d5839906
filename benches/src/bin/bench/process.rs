//! Servers pinned to a core, their log in a file, where nobody has to read it while they are measured.

use std::fs::File;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use benches::process::{Usage, usage};
use tempfile::TempDir;

/// Where no service is: for programs that call none.
pub(crate) const NOBODY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 9);
/// The core of the servers. The load has the other one.
const SERVER_CORE: &str = "0";

/// A running server.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    child: Child,
    _folder: TempDir,
}

impl Server {
    /// Starts the floor.
    pub(crate) fn floor(binary: &Path) -> Result<Self> {
        let address = free()?;
        Self::start(
            Command::new("taskset").args(["-c", SERVER_CORE]).arg(binary).arg(address.to_string()),
            address,
        )
    }

    /// Starts the gateway with a query route as an operator has it, access log on. `slow` is the address
    /// of the one service that programs may call.
    pub(crate) fn orfa(binary: &Path, cores: &str, slow: SocketAddr) -> Result<Self> {
        let address = free()?;
        let folder = tempfile::tempdir()?;
        let config = folder.path().join("orfa.yaml");
        let yaml = format!(
            "listen: {address}\nservices: {{ slow: {{ url: 'http://{slow}' }} }}\n\
             routes:\n  - path: /query\n    query:\n      services: [slow]\n      \
             limits: {{ cpu: 50ms, deadline: 5s, memory: 16MiB, calls: 200 }}\n"
        );
        std::fs::write(&config, yaml)?;
        let mut command = Command::new("taskset");
        command.args(["-c", cores]).arg(binary).args(["serve", "--config"]).arg(&config);
        let mut server = Self::start(&mut command, address)?;
        server._folder = folder;
        Ok(server)
    }

    fn start(command: &mut Command, address: SocketAddr) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let log = File::create(folder.path().join("log"))?;
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn();
        let child = child.context("`taskset` (package util-linux) or the server does not start")?;
        let mut server = Self { address, child, _folder: folder };
        server.wait()?;
        Ok(server)
    }

    /// Waits until it takes connections.
    fn wait(&mut self) -> Result<()> {
        let end = Instant::now() + Duration::from_secs(20);
        while TcpStream::connect(self.address).is_err() {
            if let Some(status) = self.child.try_wait()? {
                bail!("the server ended at once: {status}");
            }
            if Instant::now() > end {
                bail!("the server does not listen on {}", self.address);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// What it has used so far.
    pub(crate) fn usage(&self) -> Result<Usage> {
        usage(self.child.id())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It is gone already where this fails.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn free() -> Result<SocketAddr> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}
