//! `cargo xtask VERB`: the checks that keep the house as ARCHITECTURE.md says it is.
//!
//! Each check is a function from what is there to a list of findings, so that its tests can hand it a bad
//! example. `check.rs` runs them all, with formatting and lints: it is what CI runs before the tests.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command line talks")]

mod arrows;
mod check;
mod errors;
mod files;
mod generate;
mod licences;
mod metadata;
mod style;

use std::process::ExitCode;

use anyhow::bail;

const HELP: &str = "\
cargo xtask VERB
  check               everything below, formatting and lints: what CI runs before the tests
  arrows              which crate may depend on which, and who may open a connection
  licences            every dependency's licence is one that the house accepts
  style               how files begin, how long they are, nothing of the machine they were written on
  errors              docs/errors.md has every error code of the sources, and no other
  generate [--check]  writes what is made from the sources; with --check it compares only";

/// What a check found: a sentence each, empty where all is well.
type Findings = Vec<String>;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match run(&words) {
        Ok(findings) if findings.is_empty() => ExitCode::SUCCESS,
        Ok(findings) => {
            findings.iter().for_each(|finding| eprintln!("  {finding}"));
            eprintln!("xtask: {} to mend", findings.len());
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(words: &[&str]) -> anyhow::Result<Findings> {
    match words {
        ["check"] => check::all(),
        ["arrows"] => arrows::run(),
        ["licences"] => licences::run(),
        ["style"] => style::run(),
        ["errors"] => errors::run(),
        ["generate"] => generate::write(),
        ["generate", "--check"] => generate::compare(),
        [] | ["help" | "--help" | "-h"] => {
            println!("{HELP}");
            Ok(Findings::new())
        }
        _ => bail!("there is no verb `{}`\n{HELP}", words.join(" ")),
    }
}
