//! A gateway in callgrind, and what it counts.
//!
//! Counting is off until [`Callgrind::begin`]: starting up is most of the work, and tells nothing of requests. The
//! gateway is told what to do by `vgdb`, which comes with valgrind, and each dump is a file in callgrind's format: for
//! each function a line `fn=(1) name`, or `fn=(1)` where the name is known, and then lines of a place and a count;
//! behind `calls=` stands one of another function's.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use benches::process::Orfa;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};
use tempfile::TempDir;
use tokio::process::Command;

/// Dumps are files whose names begin so.
const DUMP: &str = "counts";

/// What a thread calls that does something every millisecond, however many requests come: it doesn't count.
const BY_THE_CLOCK: &str = "std::thread::functions::sleep";
/// `PR_GET_AUXV` of Linux 6.4 and newer.
const GET_AUXV: u64 = 0x4155_5856;

/// A gateway whose instructions are counted.
pub(crate) struct Callgrind {
    orfa: Orfa,
    folder: TempDir,
}

/// What a request takes.
#[derive(Debug, Default)]
pub(crate) struct Cost {
    pub(crate) instructions: u64,
    /// By function, without what it calls.
    pub(crate) functions: BTreeMap<String, u64>,
}

/// Keeps this process, and all that it starts from now on, from two things that valgrind does not bear. One is to ask the
/// kernel itself where the vDSO is: `rustix` does, and valgrind has unmapped it; refused, it reads `/proc/self/auxv`, which is
/// valgrind's. The other are timers with signals, which interrupt guests on their own stacks: callgrind loses count of such
/// signals and ends; refused, guests have the ticker alone. To be called before there is a second thread.
pub(crate) fn prepare() -> Result<()> {
    let asks = SeccompCondition::new(0, SeccompCmpArgLen::Qword, SeccompCmpOp::Eq, GET_AUXV)?;
    let rules = BTreeMap::from([
        (libc::SYS_prctl, vec![SeccompRule::new(vec![asks])?]),
        // However it is called.
        (libc::SYS_timer_create, Vec::new()),
    ]);
    let refuse = SeccompAction::Errno(libc::EINVAL.cast_unsigned());
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refuse, std::env::consts::ARCH.try_into()?)?;
    Ok(seccompiler::apply_filter(&BpfProgram::try_from(filter)?)?)
}

impl Callgrind {
    /// Starts the gateway with a config.
    pub(crate) async fn start(orfa: &Path, config: &str) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let mut command = Command::new("taskset");
        // One core, so that there is one thread for requests, wherever this runs; and no worker of a script interrupts it
        // when it is woken (SCHED_BATCH).
        command.args(["-c", &rustix::thread::sched_getcpu().to_string(), "chrt", "--batch", "0"]);
        command.args(["valgrind", "--tool=callgrind"]);
        command.args(["--instr-atstart=no", "--separate-threads=yes", "--quiet"]);
        command.arg(option("--callgrind-out-file", &folder.path().join(DUMP)));
        command.arg(option("--vgdb-prefix", &folder.path().join("vgdb")));
        command.arg(orfa).env("MIMALLOC_PURGE_DELAY", "-1");
        let orfa = Orfa::start_by(command, config).await.context(
            "the gateway does not start in callgrind: `scripts/setup test` installs what is missing (valgrind, taskset, chrt)",
        )?;
        Ok(Self { orfa, folder })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.orfa.address()
    }

    /// Counts from now on.
    pub(crate) async fn begin(&self) -> Result<()> {
        self.tell(&["instrumentation", "on"]).await
    }

    /// Forgets what was counted.
    pub(crate) async fn zero(&self) -> Result<()> {
        self.tell(&["zero"]).await
    }

    /// What was counted since, by so many requests.
    pub(crate) async fn cost(&self, requests: u64) -> Result<Cost> {
        self.tell(&["dump"]).await?;
        let mut cost = Cost::default();
        for entry in std::fs::read_dir(self.folder.path())? {
            let path = entry?.path();
            if path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with(DUMP)) {
                let dump = std::fs::read_to_string(&path)?;
                if !dump.contains(BY_THE_CLOCK) {
                    cost.add(&dump)?;
                }
                std::fs::remove_file(&path)?;
            }
        }
        ensure!(cost.instructions > 0, "callgrind wrote no counts");
        cost.instructions /= requests;
        cost.functions.values_mut().for_each(|count| *count /= requests);
        Ok(cost)
    }

    async fn tell(&self, words: &[&str]) -> Result<()> {
        let mut command = Command::new("vgdb");
        command.arg(format!("--pid={}", self.orfa.pid()));
        command.arg(option("--vgdb-prefix", &self.folder.path().join("vgdb"))).args(words);
        let told = command.output().await.context("`vgdb` of valgrind does not start")?;
        if !told.status.success() {
            bail!("callgrind can't be told `{}`: {}", words.join(" "), String::from_utf8_lossy(&told.stderr));
        }
        Ok(())
    }
}

fn option(name: &str, file: &Path) -> String {
    format!("{name}={}", file.display())
}

impl Cost {
    /// All functions, the costliest first.
    pub(crate) fn costliest(&self) -> Vec<(&str, u64)> {
        let mut all: Vec<_> = self.functions.iter().map(|(name, count)| (&**name, *count)).collect();
        all.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        all
    }

    /// Adds a dump.
    fn add(&mut self, dump: &str) -> Result<()> {
        let (mut names, mut function, mut is_call) = (HashMap::new(), String::new(), false);
        for line in dump.lines() {
            if let Some(named) = line.strip_prefix("fn=").or_else(|| line.strip_prefix("cfn=")) {
                let (id, name) = named.split_once(' ').unwrap_or((named, ""));
                if !name.is_empty() {
                    names.insert(id, plain(name));
                }
                if line.starts_with("fn=") {
                    function = names.get(id).with_context(|| format!("nothing said who {id} is"))?.clone();
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

/// A function's name without the hash that the compiler puts behind it, and without the depth of a recursion.
fn plain(name: &str) -> String {
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
    fn what_a_function_calls_is_not_its_own() {
        let dump = "events: Ir\n\
            fl=(1) life.rs\nfn=(1) gateway::life::live::h0123456789abcdef\n10 5\n+2 7\n\
            cfn=(2) memcpy'2\ncalls=3 40\n* 100\n* 1\n\
            fn=(2)\n40 100\n\
            totals: 113\n";
        let mut cost = Cost::default();
        cost.add(dump).expect("a dump");
        assert_eq!(cost.instructions, 113);
        assert_eq!(cost.costliest(), [("memcpy", 100), ("gateway::life::live", 13)]);
    }

    #[test]
    fn a_dump_that_is_cut_is_told() {
        assert!(Cost::default().add("fn=(7)\n1 2\n").is_err());
        assert!(Cost::default().add("fn=(7) a\n1 many\n").is_err());
    }
}
