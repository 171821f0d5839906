//! `cargo xtask check`: the checks that CI runs before the tests, fast ones first.

use std::process::Command;
use std::time::Instant;

use anyhow::{Context, bail};

use crate::{CheckFindings, errors, files, generate, layering, licences, names, prose, style};

/// Links to private items resolve in this documentation, which includes them.
const RUSTDOC_FLAGS: &str = "-D warnings -A rustdoc::private_intra_doc_links";

/// A check of this workspace.
type WorkspaceCheck = fn() -> anyhow::Result<CheckFindings>;

/// Runs all checks. Findings do not stop the next check; a failing tool does.
pub(crate) fn run_all() -> anyhow::Result<CheckFindings> {
    let checks: [(&str, WorkspaceCheck); 7] = [
        ("layering", layering::run),
        ("licences", licences::run),
        ("style", style::run),
        ("prose", prose::run),
        ("names", names::run),
        ("errors", errors::run),
        ("generated files", generate::compare_files),
    ];
    run_cargo("formatting", &["fmt", "--all", "--check"], None)?;
    let mut findings = CheckFindings::new();
    for (name, check) in checks {
        findings.extend(run_timed(name, check)?);
    }
    run_cargo(
        "lints",
        &["clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"],
        None,
    )?;
    let documentation =
        ["doc", "--workspace", "--no-deps", "--document-private-items", "--locked", "--quiet"];
    run_cargo("documentation", &documentation, Some(("RUSTDOCFLAGS", RUSTDOC_FLAGS)))?;
    Ok(findings)
}

fn run_timed<T>(name: &str, work: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<T> {
    println!("check: {name}");
    let started = Instant::now();
    let result = work().with_context(|| name.to_owned())?;
    let took = started.elapsed().as_secs();
    if took > 0 {
        println!("check: {name}: {took} s");
    }
    Ok(result)
}

fn run_cargo(name: &str, arguments: &[&str], variable: Option<(&str, &str)>) -> anyhow::Result<()> {
    run_timed(name, || {
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.args(arguments).envs(variable);
        let status = cargo.current_dir(files::repository_root()).status()?;
        if !status.success() {
            bail!("`cargo {}` ended with {status}", arguments.join(" "));
        }
        Ok(())
    })
}
