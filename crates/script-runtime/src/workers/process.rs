//! The process of a worker: starting it, and its CPU time and memory as reported by the system.
//!
//! A process gets a cleared environment, its script's folder as the working directory, no standard input, and
//! one end each of two socket pairs. No other process can impersonate the worker, and the worker has no
//! connection to anything else. Its output is logged line by line.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;

use super::connection::log_line;
use super::worker::ScriptWorker;
use crate::config::{EngineConfig, WorkerEngine};
use crate::work::spawn;

/// The maximum length of a logged line.
const MAX_LINE: u64 = 8 << 10;

/// The last words of V8 before it aborts its process, in Node.js and in Deno.
const HEAP_EXHAUSTED_MESSAGES: [&str; 2] =
    ["JavaScript heap out of memory", "Fatal JavaScript out of memory"];

/// The command that starts workers, without the worker's own arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LaunchCommand {
    program: PathBuf,
    arguments: Vec<OsString>,
    launcher: Option<WorkerLauncher>,
    /// The folder of the state, which no worker may read.
    state: PathBuf,
    /// The limit of the heap in MiB, for engines that have such an option.
    pub(super) heap: Option<u64>,
}

/// The folders of a worker.
pub(super) struct WorkerFolders<'p> {
    /// The worker's own code, readable.
    pub(super) code: &'p Path,
    /// The folder that the worker may write to.
    pub(super) home: &'p Path,
    /// The script's folder, which is the working directory.
    pub(super) folder: &'p Path,
}

/// A worker's ends of its connections.
pub(super) struct WorkerSockets {
    pub(super) main: OwnedFd,
    pub(super) watchdog: OwnedFd,
}

/// Resolves to whether a process reported a full heap before it ended.
pub(super) type HeapExhaustion = JoinHandle<bool>;

/// The gateway's own binary, which sandboxes itself and then becomes a worker: [`crate::exec_sandboxed`]
/// handles the arguments after these.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerLauncher {
    /// The path of the binary.
    pub program: PathBuf,
    /// The first arguments of the binary.
    pub arguments: Vec<OsString>,
}

/// The reason why no worker can be started.
#[derive(Debug, thiserror::Error)]
#[error("the engine `{0}` is not installed or not executable")]
pub struct NoEngine(String);

impl LaunchCommand {
    /// Resolves the engine in the config. Programs are looked up in the gateway's own `PATH`.
    pub(crate) fn from_config(
        engine: &EngineConfig,
        memory: u64,
        launcher: Option<WorkerLauncher>,
        state: PathBuf,
    ) -> Result<Self, NoEngine> {
        let megabytes = (memory >> 20).max(16);
        let has_limit = matches!(engine, EngineConfig::Known(WorkerEngine::Node | WorkerEngine::Deno));
        let (name, arguments) = match engine {
            EngineConfig::Known(WorkerEngine::Node) => ("node", node_arguments(megabytes)),
            EngineConfig::Known(WorkerEngine::Bun) => ("bun", vec!["--no-install".to_owned()]),
            EngineConfig::Known(WorkerEngine::Deno) => {
                let heap = format!("--v8-flags=--max-old-space-size={megabytes}");
                let may = ["--allow-read", "--allow-write", "--allow-net", "--allow-sys", "--allow-run"];
                let mut arguments = vec!["run".to_owned(), "--no-prompt".to_owned(), heap];
                arguments.extend(may.map(str::to_owned));
                ("deno", arguments)
            }
            EngineConfig::Command(command) => match command.split_first() {
                Some((program, arguments)) => (program.as_str(), arguments.to_vec()),
                None => return Err(NoEngine(String::new())),
            },
        };
        let program = find_program(Path::new(name)).ok_or_else(|| NoEngine(name.to_owned()))?;
        let arguments = arguments.into_iter().map(OsString::from).collect();
        Ok(Self { program, arguments, launcher, state, heap: has_limit.then_some(megabytes) })
    }

    /// Starts a worker.
    pub(super) fn spawn(
        &self,
        folders: &WorkerFolders<'_>,
        sockets: WorkerSockets,
        id: u32,
    ) -> io::Result<Child> {
        let WorkerFolders { code, home, folder } = folders;
        let numbers = [sockets.main.as_raw_fd(), sockets.watchdog.as_raw_fd()].map(|fd| fd.to_string());
        let mut command = match &self.launcher {
            Some(launcher) => {
                let mut command = Command::new(&launcher.program);
                command.args(&launcher.arguments).args([*code, *home, *folder, &self.state]);
                command.args(&numbers).arg(&self.program);
                command
            }
            None => Command::new(&self.program),
        };
        command
            .args(&self.arguments)
            .arg(code.join("worker.js"))
            .args(&numbers)
            .arg(id.to_string())
            .current_dir(folder)
            .env_clear()
            .env("HOME", home)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        inherit_sockets(&mut command, sockets);
        command.spawn()
    }
}

/// Lets a process inherit these sockets, under the same numbers as here.
#[expect(unsafe_code, reason = "the code between fork and exec is limited to async-signal-safe calls")]
fn inherit_sockets(command: &mut Command, sockets: WorkerSockets) {
    let keep = move || {
        for socket in [&sockets.main, &sockets.watchdog] {
            rustix::io::fcntl_setfd(socket.as_fd(), rustix::io::FdFlags::empty())?;
        }
        Ok(())
    };
    // SAFETY: the closure runs only in the new process and makes two system calls: it does not allocate and
    // takes no lock.
    unsafe { command.pre_exec(keep) };
}

/// Logs the output of a process until it ends.
pub(super) fn log_output(worker: &Arc<ScriptWorker>, child: &mut Child) -> HeapExhaustion {
    if let Some(out) = child.stdout.take() {
        spawn(log_lines(Arc::clone(worker), out, 1));
    }
    let (worker, err) = (Arc::clone(worker), child.stderr.take());
    spawn(async move {
        match err {
            Some(err) => log_lines(worker, err, 2).await,
            None => false,
        }
    })
}

/// Logs lines; returns whether one of them reports a full heap.
async fn log_lines(worker: Arc<ScriptWorker>, from: impl AsyncRead + Unpin, level: u8) -> bool {
    let (mut from, mut is_full) = (BufReader::new(from), false);
    while let Some(line) = read_line(&mut from).await {
        is_full |= HEAP_EXHAUSTED_MESSAGES.iter().any(|full| line.contains(full));
        log_line(&worker, level, &line);
    }
    is_full
}

#[cfg_attr(not(test), expect(clippy::disallowed_methods, reason = "no more than `LINE` is taken"))]
async fn read_line(from: &mut (impl AsyncBufRead + Unpin)) -> Option<String> {
    let mut line = Vec::new();
    let read = from.take(MAX_LINE).read_until(b'\n', &mut line).await;
    (read.ok()? > 0).then(|| String::from_utf8_lossy(&line).trim_end().to_owned())
}

/// Returns the arguments of Node.js. Its young generation is small by default, which costs a third of the
/// time when bodies of 100 KB are read; raising only its maximum size has no effect.
fn node_arguments(megabytes: u64) -> Vec<String> {
    const YOUNG: u64 = 24;
    let (least, most) = (format!("--min-semi-space-size={YOUNG}"), format!("--max-semi-space-size={YOUNG}"));
    vec![format!("--max-old-space-size={megabytes}"), least, most]
}

/// Locates a program like a shell.
fn find_program(name: &Path) -> Option<PathBuf> {
    if name.components().count() > 1 {
        return std::path::absolute(name).ok().filter(|path| is_executable(path));
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|path| is_executable(path))
}

fn is_executable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    std::fs::metadata(path).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

/// Returns the CPU time of a process; `None` if the system does not provide it.
pub(super) fn cpu_time(pid: u32) -> Option<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name is in parentheses, and may itself contain spaces and parentheses.
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_ascii_whitespace().skip(11).map(str::parse::<u64>);
    let ticks = fields.next()?.ok()? + fields.next()?.ok()?;
    Some(Duration::from_millis(ticks * 1000 / rustix::param::clock_ticks_per_second().max(1)))
}

/// Returns the resident memory of a process, in bytes.
pub(super) fn resident_memory(pid: u32) -> Option<u64> {
    let statm = std::fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
    let pages: u64 = statm.split_ascii_whitespace().nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_endless_line_is_logged_in_parts() {
        let text = [vec![b'x'; MAX_LINE as usize + 1], b"\nnext\n".to_vec()].concat();
        let mut from = &text[..];
        let mut lengths = Vec::new();
        while let Some(line) = read_line(&mut from).await {
            lengths.push(line.len());
        }
        assert_eq!(lengths, [MAX_LINE as usize, 1, 4]);
    }
}
