//! A gateway under callgrind, and its instruction counts.
//!
//! Counting is disabled until [`CallgrindGateway::start_counting`]: starting up takes most of the
//! instructions, and is irrelevant for requests. The gateway is controlled with `vgdb`, which is part of
//! valgrind. Each dump is a file in callgrind's format: for each function a line `fn=(1) name`, or `fn=(1)`
//! if the name is known, followed by lines with a position and a count. A line after `calls=` has the count
//! of a called function.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use benches::process::OrfaProcess;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};
use tempfile::TempDir;
use tokio::process::Command;

/// The prefix of the dumps' names.
const DUMP_PREFIX: &str = "counts";

/// A function of threads with periodic work, which does not depend on the number of requests and is not
/// counted.
const PERIODIC_FUNCTION: &str = "std::thread::functions::sleep";
/// `PR_GET_AUXV` of Linux 6.4 and newer.
const GET_AUXV: u64 = 0x4155_5856;

/// A gateway whose instructions are counted.
pub(crate) struct CallgrindGateway {
    orfa: OrfaProcess,
    folder: TempDir,
}

/// The cost of a request.
#[derive(Debug, Default)]
pub(crate) struct RequestInstructions {
    pub(crate) instructions: u64,
    /// The exclusive count of each function.
    pub(crate) functions: BTreeMap<String, u64>,
}

/// Protects this process and its children from two calls that valgrind does not support. The first one asks
/// the kernel for the address of the vDSO: `rustix` does so, but valgrind has unmapped it. If the call is
/// refused, `rustix` reads `/proc/self/auxv`, which valgrind provides. The second one creates timers with
/// signals, which interrupt guests on their own stacks: callgrind loses track of such signals and aborts. If
/// they are refused, guests use the ticker only. Must be called before there is a second thread.
pub(crate) fn block_unsupported_calls() -> Result<()> {
    let asks = SeccompCondition::new(0, SeccompCmpArgLen::Qword, SeccompCmpOp::Eq, GET_AUXV)?;
    let rules = BTreeMap::from([
        (libc::SYS_prctl, vec![SeccompRule::new(vec![asks])?]),
        // Refused for all arguments.
        (libc::SYS_timer_create, Vec::new()),
    ]);
    let refuse = SeccompAction::Errno(libc::EINVAL.cast_unsigned());
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refuse, std::env::consts::ARCH.try_into()?)?;
    Ok(seccompiler::apply_filter(&BpfProgram::try_from(filter)?)?)
}

impl CallgrindGateway {
    /// Starts the gateway with a config.
    pub(crate) async fn start(orfa: &Path, config: &str) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let mut command = Command::new("taskset");
        // One core, so that there is one thread for requests on any machine. With SCHED_BATCH a worker of a
        // script does not preempt the gateway when it is woken.
        command.args(["-c", &rustix::thread::sched_getcpu().to_string(), "chrt", "--batch", "0"]);
        command.args(["valgrind", "--tool=callgrind"]);
        command.args(["--instr-atstart=no", "--separate-threads=yes", "--quiet"]);
        command.arg(format_option("--callgrind-out-file", &folder.path().join(DUMP_PREFIX)));
        command.arg(format_option("--vgdb-prefix", &folder.path().join("vgdb")));
        command.arg(orfa).env("MIMALLOC_PURGE_DELAY", "-1");
        let orfa = OrfaProcess::start_with_command(command, config).await.context(
            "the gateway does not start in callgrind: `scripts/setup test` installs missing tools (valgrind, taskset, chrt)",
        )?;
        Ok(Self { orfa, folder })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.orfa.address()
    }

    /// Starts counting.
    pub(crate) async fn start_counting(&self) -> Result<()> {
        self.send_command(&["instrumentation", "on"]).await
    }

    /// Resets the counts.
    pub(crate) async fn reset_counts(&self) -> Result<()> {
        self.send_command(&["zero"]).await
    }

    /// The counts since the last reset, divided by the number of requests.
    pub(crate) async fn request_cost(&self, requests: u64) -> Result<RequestInstructions> {
        self.send_command(&["dump"]).await?;
        let mut cost = RequestInstructions::default();
        for entry in std::fs::read_dir(self.folder.path())? {
            let path = entry?.path();
            if path
                .file_name()
                .and_then(|name| name.to_str())
                .is_some_and(|name| name.starts_with(DUMP_PREFIX))
            {
                let dump = std::fs::read_to_string(&path)?;
                if !dump.contains(PERIODIC_FUNCTION) {
                    cost.add_dump(&dump)?;
                }
                std::fs::remove_file(&path)?;
            }
        }
        ensure!(cost.instructions > 0, "callgrind wrote no counts");
        cost.instructions /= requests;
        cost.functions.values_mut().for_each(|count| *count /= requests);
        Ok(cost)
    }

    async fn send_command(&self, words: &[&str]) -> Result<()> {
        let mut command = Command::new("vgdb");
        command.arg(format!("--pid={}", self.orfa.pid()));
        command.arg(format_option("--vgdb-prefix", &self.folder.path().join("vgdb"))).args(words);
        let output = command.output().await.context("`vgdb` of valgrind does not start")?;
        if !output.status.success() {
            bail!(
                "the callgrind command `{}` failed: {}",
                words.join(" "),
                String::from_utf8_lossy(&output.stderr)
            );
        }
        Ok(())
    }
}

fn format_option(name: &str, file: &Path) -> String {
    format!("{name}={}", file.display())
}

impl RequestInstructions {
    /// All functions, the most expensive first.
    pub(crate) fn costliest(&self) -> Vec<(&str, u64)> {
        let mut all: Vec<_> = self.functions.iter().map(|(name, count)| (&**name, *count)).collect();
        all.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        all
    }

    /// Adds a dump.
    fn add_dump(&mut self, dump: &str) -> Result<()> {
        let (mut names, mut function, mut is_call) = (HashMap::new(), String::new(), false);
        for line in dump.lines() {
            if let Some(named) = line.strip_prefix("fn=").or_else(|| line.strip_prefix("cfn=")) {
                let (id, name) = named.split_once(' ').unwrap_or((named, ""));
                if !name.is_empty() {
                    names.insert(id, strip_suffixes(name));
                }
                if line.starts_with("fn=") {
                    function =
                        names.get(id).with_context(|| format!("the function {id} has no name"))?.clone();
                }
            } else if line.starts_with("calls=") {
                is_call = true;
            } else if line.starts_with(|first: char| first.is_ascii_digit() || "+-*".contains(first)) {
                let count = line.split(' ').nth(1).unwrap_or("0");
                let count: u64 = count.parse().with_context(|| format!("no count: {line}"))?;
                if !std::mem::take(&mut is_call) {
                    self.instructions += count;
                    *self.functions.entry(function.clone()).or_default() += count;
                }
            }
        }
        Ok(())
    }
}

/// A function's name without the compiler's hash suffix, and without the depth of recursion.
fn strip_suffixes(name: &str) -> String {
    let name = name
        .rsplit_once('\'')
        .filter(|(_, depth)| depth.parse::<u32>().is_ok())
        .map_or(name, |(name, _)| name);
    let is_hash = |hash: &str| {
        hash.len() == 17 && hash.starts_with('h') && hash[1..].bytes().all(|byte| byte.is_ascii_hexdigit())
    };
    name.rsplit_once("::").filter(|(_, hash)| is_hash(hash)).map_or(name, |(name, _)| name).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_exclude_called_functions() {
        let dump = "events: Ir\n\
            fl=(1) life.rs\nfn=(1) gateway::life::live::h0123456789abcdef\n10 5\n+2 7\n\
            cfn=(2) memcpy'2\ncalls=3 40\n* 100\n* 1\n\
            fn=(2)\n40 100\n\
            totals: 113\n";
        let mut cost = RequestInstructions::default();
        cost.add_dump(dump).expect("a dump");
        assert_eq!(cost.instructions, 113);
        assert_eq!(cost.costliest(), [("memcpy", 100), ("gateway::life::live", 13)]);
    }

    #[test]
    fn reports_truncated_dumps() {
        assert!(RequestInstructions::default().add_dump("fn=(7)\n1 2\n").is_err());
        assert!(RequestInstructions::default().add_dump("fn=(7) a\n1 many\n").is_err());
    }
}
