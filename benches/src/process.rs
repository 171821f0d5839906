//! The gateway as an operator runs it: `orfa serve` with a config of its own, and its resource usage.
//!
//! Its log, including the access log, is discarded except for the last lines, which contain the reason if it
//! ends early.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::{Child, ChildStderr, Command};

/// The number of log lines that are kept, for the error if a gateway does not start.
const LOG_TAIL_LINES: usize = 20;

/// A running gateway. It is killed when dropped.
#[derive(Debug)]
pub struct OrfaProcess {
    address: SocketAddr,
    pid: u32,
    child: Child,
    _folder: TempDir,
}

/// The resource usage of a process so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessUsage {
    /// CPU time, user and system, of all threads. The system counts it in steps of 10 ms.
    pub cpu: Duration,
    /// The resident memory in bytes.
    pub rss: u64,
}

impl OrfaProcess {
    /// Starts `BINARY serve` with this config, which must contain `listen: 127.0.0.1:0`, and returns when it
    /// accepts requests.
    ///
    /// # Errors
    /// Fails if it does not start, with the end of its log.
    pub async fn start(binary: &Path, yaml: &str) -> Result<Self> {
        Self::start_with_command(Command::new(binary), yaml).await
    }

    /// Like `start`, with another command that runs the gateway with the arguments.
    ///
    /// # Errors
    /// Fails if it does not start, with the end of its log.
    pub async fn start_with_command(mut command: Command, yaml: &str) -> Result<Self> {
        let folder = tempfile::tempdir().context("no folder for the config")?;
        let config = folder.path().join("orfa.yaml");
        std::fs::write(&config, yaml).context("the config can't be written")?;
        let child = command
            .args(["serve", "--config"])
            .arg(&config)
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn();
        let mut child = child.with_context(|| format!("{command:?} does not start"))?;
        let pid = child.id().context("the gateway ended at once")?;
        let log = child.stderr.take().context("the gateway has no log")?;
        let address = wait_for_address(log).await?;
        Ok(Self { address, pid, child, _folder: folder })
    }

    /// The address that it listens on.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Terminates the gateway and waits for its end.
    ///
    /// # Errors
    /// Fails if it has ended already, or ends with an error.
    pub async fn terminate(mut self) -> Result<()> {
        let pid = rustix::process::Pid::from_raw(self.pid.cast_signed()).context("the gateway has no pid")?;
        rustix::process::kill_process(pid, rustix::process::Signal::TERM)?;
        let status = self.child.wait().await?;
        ensure!(status.success(), "the gateway ended with {status}");
        Ok(())
    }

    /// The resource usage so far.
    ///
    /// # Errors
    /// Fails if the process is gone, or the system is not Linux.
    pub fn usage(&self) -> Result<ProcessUsage> {
        process_usage(self.pid)
    }
}

/// The path of the gateway: the given one, or else the build next to the current executable.
///
/// # Errors
/// Fails if it does not exist, with the commands that build it.
pub fn find_gateway(named: Option<PathBuf>) -> Result<PathBuf> {
    let beside = || Ok::<_, std::io::Error>(std::env::current_exe()?.with_file_name("orfa"));
    let path = named.map_or_else(beside, Ok)?;
    if !path.is_file() {
        bail!(
            "{} is not there; `cargo build --release -p orfa` builds release/orfa, `make dist` dist/orfa",
            path.display()
        );
    }
    Ok(path)
}

/// The resource usage of a process so far, from `/proc`.
///
/// # Errors
/// Fails if the process is gone, or the system is not Linux.
pub fn process_usage(pid: u32) -> Result<ProcessUsage> {
    let read = |file: &str| {
        let path = format!("/proc/{pid}/{file}");
        std::fs::read_to_string(&path).with_context(|| format!("{path} can't be read"))
    };
    let cpu = cpu_time(&read("stat")?).context("/proc/PID/stat has no times")?;
    let rss = status_bytes(&read("status")?, "VmRSS:").context("/proc/PID/status has no VmRSS")?;
    Ok(ProcessUsage { cpu, rss })
}

/// The peak of the resident memory of a process in bytes.
///
/// # Errors
/// Fails if the process is gone, or the system is not Linux.
pub fn peak_rss(pid: u32) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    status_bytes(&status, "VmHWM:").context("/proc/PID/status has no VmHWM")
}

/// The number of minor page faults of a process so far.
///
/// # Errors
/// Fails if the process is gone, or the system is not Linux.
pub fn page_faults(pid: u32) -> Result<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    stat_fields(&stat)
        .and_then(|mut fields| fields.nth(7)?.parse().ok())
        .context("/proc/PID/stat has no faults")
}

/// The resource usage of a process and all its descendants, such as a master and its workers. Shared memory
/// counts for each of them.
///
/// # Errors
/// Fails if the process is gone, or the system is not Linux.
pub fn usage_of_tree(pid: u32) -> Result<ProcessUsage> {
    child_pids(pid)?.into_iter().try_fold(process_usage(pid)?, |sum, pid| {
        let child = usage_of_tree(pid)?;
        Ok(ProcessUsage { cpu: sum.cpu + child.cpu, rss: sum.rss + child.rss })
    })
}

/// The direct children of a process.
///
/// # Errors
/// Fails if the process is gone, or the system is not Linux.
pub fn child_pids(pid: u32) -> std::io::Result<Vec<u32>> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task"))?;
    // A thread that has ended meanwhile is skipped.
    let children =
        tasks.flatten().filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
    Ok(children.flat_map(|pids| parse_numbers(&pids)).collect())
}

fn parse_numbers(text: &str) -> Vec<u32> {
    text.split_whitespace().filter_map(|number| number.parse().ok()).collect()
}

/// The fields from the third one on. The second one is a name in parentheses that may contain spaces.
fn stat_fields(stat: &str) -> Option<impl Iterator<Item = &str>> {
    Some(stat.rsplit_once(')')?.1.split_whitespace())
}

/// The CPU time, from the 14th and 15th field.
fn cpu_time(stat: &str) -> Option<Duration> {
    let mut fields = stat_fields(stat)?.skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    let per_second = rustix::param::clock_ticks_per_second().max(1);
    Some(Duration::from_nanos((user + system) * (1_000_000_000 / per_second)))
}

/// The value of a line of `/proc/PID/status`, in bytes.
fn status_bytes(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kib * 1024)
}

/// Reads the log up to the line with the address, and leaves the rest to a background task.
async fn wait_for_address(log: ChildStderr) -> Result<SocketAddr> {
    let mut log = BufReader::new(log);
    let (mut line, mut last) = (String::new(), VecDeque::new());
    while log.read_line(&mut line).await? > 0 {
        if let Some(address) = parse_address(&line) {
            tokio::spawn(discard_log(log));
            return Ok(address);
        }
        if last.len() == LOG_TAIL_LINES {
            last.pop_front();
        }
        last.push_back(std::mem::take(&mut line));
    }
    bail!("the gateway ended before it listened:\n{}", last.into_iter().collect::<String>())
}

async fn discard_log(mut log: BufReader<ChildStderr>) {
    let mut buffer = vec![0; 64 << 10];
    while log.read(&mut buffer).await.is_ok_and(|length| length > 0) {}
}

fn parse_address(line: &str) -> Option<SocketAddr> {
    let line: Value = serde_json::from_str(line).ok()?;
    let is_listening = line.get("message")?.as_str()? == "listening";
    is_listening.then(|| line.get("address")?.as_str()?.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_names_may_contain_spaces_and_parentheses() {
        let stat = "7 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 150 50 0 0";
        let per_second = rustix::param::clock_ticks_per_second();
        let expected = Duration::from_nanos(200 * (1_000_000_000 / per_second));
        assert_eq!(cpu_time(stat), Some(expected));
    }

    #[test]
    fn reads_own_memory_usage() {
        let usage = process_usage(std::process::id()).expect("our own usage");
        assert!(usage.rss > 100_000, "{usage:?}");
    }

    #[test]
    fn usage_includes_child_processes() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("a child");
        let (usage, all) = (process_usage(std::process::id()), usage_of_tree(std::process::id()));
        let _ = child.kill();
        let _ = child.wait();
        let (own, all) = (usage.expect("our own usage"), all.expect("that of all"));
        assert!(all.rss > own.rss, "{all:?} {own:?}");
    }

    #[test]
    fn finds_the_address_in_the_log() {
        let line = r#"{"level":"INFO","message":"listening","address":"127.0.0.1:1234"}"#;
        assert_eq!(parse_address(line), "127.0.0.1:1234".parse().ok());
        assert_eq!(parse_address("not JSON"), None);
    }
}
