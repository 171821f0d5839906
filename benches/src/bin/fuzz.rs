//! `fuzz`: builds the targets of `fuzz/src/targets.rs` with libFuzzer and the address sanitizer, and runs
//! each for a while.
//!
//! The tests of a crate are built as usual, except for `fuzz/rustc`, which adds the instrumentation. Its
//! nightly flags are accepted by the stable compiler with `RUSTC_BOOTSTRAP=1`. libFuzzer's results stay in
//! `target/fuzz`, so that a run continues where the last one ended: inputs in `corpus/`, findings in
//! `findings/`, logs in `logs/`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result, anyhow, bail, ensure};
use benches::scoreboard::{self, BetterDirection, HeadlineScore};
use clap::Parser;
use fuzz::{FuzzTarget, QUARANTINE_MB, RSS_MB, TARGETS};
use serde::{Deserialize, Serialize};

/// Run the fuzz targets.
#[derive(Debug, Parser)]
struct FuzzArguments {
    /// The time for each target in seconds.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Only these targets, by name, separated by commas.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// The number of targets that run at the same time. A target has one thread.
    #[arg(long, default_value_t = 1)]
    jobs: usize,
    /// List the targets without running them.
    #[arg(long)]
    list: bool,
    /// Write the results to benches/results/ and keep those of other targets.
    #[arg(long)]
    update: bool,
}

/// The results of a target.
#[derive(Debug, Serialize, Deserialize)]
struct FuzzRow {
    target: String,
    package: String,
    seconds: u64,
    /// The number of calls of the oracle.
    executions: u64,
    /// The number of edges of the code that were reached, and of features (edges with hit counts).
    edges: u64,
    features: u64,
    peak_rss_mb: u64,
    /// The number of inputs that caused a panic or exceeded a limit: libFuzzer stops at the first one.
    findings: usize,
}

fn main() -> Result<ExitCode> {
    let FuzzArguments { seconds, only, jobs, list, update } = FuzzArguments::parse();
    if let Some(unknown) = only.iter().find(|name| TARGETS.iter().all(|target| target.name != **name)) {
        bail!("no target is called `{unknown}`; `--list` lists them");
    }
    let is_wanted = |target: &&FuzzTarget| only.is_empty() || only.iter().any(|name| name == target.name);
    let targets: Vec<&'static FuzzTarget> = TARGETS.iter().filter(is_wanted).collect();
    if list {
        targets.iter().for_each(|target| anstream::println!("{:<20} {}", target.name, target.package));
        return Ok(ExitCode::SUCCESS);
    }
    let folder = FuzzFolders::new()?;
    let binaries = folder.build(&targets)?;
    let rest = Mutex::new(targets.into_iter());
    let work = || {
        let mut rows = Vec::new();
        loop {
            let target = rest.lock().unwrap_or_else(PoisonError::into_inner).next();
            let Some(target) = target else { return anyhow::Ok(rows) };
            let binary = binaries.get(target.package).context("a target without a binary")?;
            let row = folder.run(target, binary, seconds)?;
            anstream::println!(
                "{:<20} {:>10} executions, {:>6} edges, {:>6} features, {:>5} MB, {} findings",
                row.target,
                row.executions,
                row.edges,
                row.features,
                row.peak_rss_mb,
                row.findings
            );
            rows.push(row);
        }
    };
    let rows = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..jobs.max(1)).map(|_| scope.spawn(work)).collect();
        let mut rows = Vec::new();
        for worker in workers {
            rows.extend(worker.join().map_err(|_panic| anyhow!("a target's thread ended"))??);
        }
        anyhow::Ok(rows)
    })?;
    let findings: usize = rows.iter().map(|row| row.findings).sum();
    if update {
        let rows = merge_earlier(rows)?;
        scoreboard::write_rows("fuzz", &rows)?;
        scoreboard::record(scores(&rows))?;
    }
    Ok(if findings == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Merges these rows with the last results of other targets, in the order of [`TARGETS`].
fn merge_earlier(rows: Vec<FuzzRow>) -> Result<Vec<FuzzRow>> {
    let earlier: Vec<FuzzRow> = scoreboard::earlier_rows("fuzz")?;
    let mut by_name: BTreeMap<String, FuzzRow> =
        earlier.into_iter().chain(rows).map(|row| (row.target.clone(), row)).collect();
    Ok(TARGETS.iter().filter_map(|target| by_name.remove(target.name)).collect())
}

/// The figures of the scoreboard.
fn scores(rows: &[FuzzRow]) -> [(String, HeadlineScore); 2] {
    let shortest = rows.iter().map(|row| row.seconds).min().unwrap_or_default();
    let score = |value: f64, unit: &str, target: f64, against: &str| HeadlineScore {
        value,
        unit: unit.to_owned(),
        better: BetterDirection::Higher,
        target: Some(target),
        against: against.to_owned(),
        spread: 0.0,
    };
    let minutes = shortest as f64 / 60.0;
    [
        (
            "fuzz.targets".to_owned(),
            score(rows.len() as f64, "targets", 15.0, "five structured, ten of the wire"),
        ),
        ("fuzz.minutes_each".to_owned(), score(minutes, "min", 10.0, "ten minutes a target")),
    ]
}

/// The folders of the build and of the results.
struct FuzzFolders {
    root: PathBuf,
    target: PathBuf,
}

impl FuzzFolders {
    fn new() -> Result<Self> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize()?;
        let target = match std::env::var_os("CARGO_TARGET_DIR") {
            Some(folder) => std::path::absolute(folder)?,
            None => root.join("target"),
        };
        Ok(Self { root, target: target.join("fuzz") })
    }

    fn create_folder(&self, kind: &str, target: &FuzzTarget) -> Result<PathBuf> {
        let folder = self.target.join(kind).join(target.name);
        fs::create_dir_all(&folder).with_context(|| format!("{} can't be made", folder.display()))?;
        Ok(folder)
    }

    /// Builds the tests of the targets' crates in one invocation, so that they share dependencies. Returns
    /// the binary of each.
    fn build(&self, targets: &[&'static FuzzTarget]) -> Result<BTreeMap<&'static str, PathBuf>> {
        let packages: BTreeSet<&'static str> = targets.iter().map(|target| target.package).collect();
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.current_dir(&self.root).args(["test", "--profile", "fuzz", "--locked", "--lib", "--no-run"]);
        cargo.args(["--features", "fuzz/libfuzzer", "--message-format", "json-render-diagnostics"]);
        packages.iter().for_each(|package| _ = cargo.args(["--package", package]));
        cargo.arg("--target-dir").arg(&self.target);
        cargo.env("RUSTC_BOOTSTRAP", "1").env("RUSTC_WRAPPER", self.root.join("fuzz").join("rustc"));
        let built = cargo.stderr(Stdio::inherit()).output().context("cargo can't be run")?;
        ensure!(built.status.success(), "the targets can't be built");
        let printed = String::from_utf8_lossy(&built.stdout);
        let executable = |line: &str| {
            let message: serde_json::Value = serde_json::from_str(line).ok()?;
            let name = message.pointer("/target/name")?.as_str()?;
            let package = packages.iter().find(|package| package.replace('-', "_") == name)?;
            Some((*package, PathBuf::from(message.get("executable")?.as_str()?)))
        };
        Ok(printed.lines().filter_map(executable).collect())
    }

    /// Runs a target.
    fn run(&self, target: &'static FuzzTarget, binary: &Path, seconds: u64) -> Result<FuzzRow> {
        let corpus = self.create_folder("corpus", target)?;
        let findings = self.create_folder("findings", target)?;
        let log = self.create_folder("logs", target)?.join("log");
        let seeds = self.root.join("fuzz").join("corpus").join(target.name);
        let before = count_files(&findings);
        let mut arguments = vec![
            format!("-max_total_time={seconds}"),
            format!("-timeout={}", target.timeout),
            format!("-rss_limit_mb={RSS_MB}"),
            format!("-malloc_limit_mb={}", target.malloc_mb),
            format!("-max_len={}", target.length),
            format!("-artifact_prefix={}/", findings.display()),
            "-print_final_stats=1".to_owned(),
            corpus.display().to_string(),
        ];
        if seeds.is_dir() {
            arguments.push(seeds.display().to_string());
        }
        let output = File::create(&log).with_context(|| format!("{} can't be made", log.display()))?;
        // The threads of pools have a low priority. Without `nice` here they would starve within an input's
        // timeout on a machine without an idle core.
        let mut command = Command::new("nice");
        command
            .args(["-n", "18"])
            .arg(binary)
            .args(["--exact", target.test, "--nocapture"])
            .env("FUZZ_ARGUMENTS", arguments.join(" "));
        command.env("ASAN_OPTIONS", format!("detect_leaks=0:quarantine_size_mb={QUARANTINE_MB}"));
        // The stack size of a main thread, since frames are larger with the sanitizer.
        command.env("RUST_MIN_STACK", (8 << 20).to_string());
        command.stdout(output.try_clone()?).stderr(output);
        let status = command.status().with_context(|| format!("{} can't be run", binary.display()))?;
        let text = String::from_utf8_lossy(&fs::read(&log)?).into_owned();
        let found = count_files(&findings).saturating_sub(before);
        if !status.success() {
            anstream::println!("{}: {}", target.name, failure_reason(&text, &log));
        }
        let stat = |name: &str| last_number_after(&text, &format!("stat::{name}:")).unwrap_or_default();
        Ok(FuzzRow {
            target: target.name.to_owned(),
            package: target.package.to_owned(),
            seconds,
            executions: stat("number_of_executed_units")
                .max(last_number_after(&text, "\n#").unwrap_or_default()),
            edges: last_number_after(&text, " cov:").unwrap_or_default(),
            features: last_number_after(&text, " ft:").unwrap_or_default(),
            peak_rss_mb: stat("peak_rss_mb").max(last_number_after(&text, " rss:").unwrap_or_default()),
            findings: found.max(usize::from(!status.success())),
        })
    }
}

/// The number of files in a folder.
fn count_files(folder: &Path) -> usize {
    fs::read_dir(folder).map_or(0, Iterator::count)
}

/// The number after the last occurrence of a text.
fn last_number_after(text: &str, what: &str) -> Option<u64> {
    let rest = text.rsplit_once(what)?.1.trim_start();
    rest.split(|letter: char| !letter.is_ascii_digit()).next()?.parse().ok()
}

/// The reason for which a target stopped: the panic message, or libFuzzer's error.
fn failure_reason(text: &str, log: &Path) -> String {
    let is_reason = |line: &&str| {
        line.contains("panicked at") || line.starts_with("SUMMARY:") || line.contains("ERROR: ")
    };
    let lines: Vec<&str> = text.lines().collect();
    let reason = lines.iter().position(is_reason).map(|at| lines[at..].iter().take(3).copied());
    let reason = reason.map_or_else(String::new, |lines| lines.collect::<Vec<_>>().join("\n  "));
    format!("{reason}\n  (all of it: {})", log.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uses_the_last_number() {
        let text =
            "#2 INITED cov: 7 ft: 8 rss: 30Mb\n#4 NEW cov: 12 ft: 13\nstat::peak_rss_mb:              183\n";
        assert_eq!(last_number_after(text, " cov:"), Some(12));
        assert_eq!(last_number_after(text, "stat::peak_rss_mb:"), Some(183));
        assert_eq!(last_number_after(text, "stat::gone:"), None);
    }

    #[test]
    fn names_of_targets_are_unique() {
        for target in TARGETS {
            assert_eq!(
                TARGETS.iter().filter(|other| other.name == target.name).count(),
                1,
                "{}",
                target.name
            );
        }
    }
}
