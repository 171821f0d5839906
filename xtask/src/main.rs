//! `cargo xtask VERB`: checks that the repository follows ARCHITECTURE.md.
//!
//! Each check is a function from its input to a list of findings, so that tests can pass it a bad example.
//! `check.rs` runs them all, together with formatting and lints, as CI does before the tests.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command line talks")]

mod check;
mod errors;
mod files;
mod generate;
mod layering;
mod licences;
mod metadata;
mod names;
mod prose;
mod style;
mod vocabulary;

use std::process::ExitCode;

use anyhow::bail;

const HELP: &str = "\
cargo xtask VERB
  check               everything below, formatting and lints: what CI runs before the tests
  layering            the dependencies of each crate, the crates that open connections, and the top-level
                      modules of each crate: at most 12, without cycles
  licences            every dependency has an accepted licence
  style               opening comments and length of files, no paths of local machines
  prose               measures of comments, line widths and commit subjects, with their targets
  names               measures of type names and of cycles among modules, with their targets
  errors              docs/errors.md has every error code of the sources, and no other
  generate [--check]  writes generated files; with --check it only compares them";

/// The findings of a check, one sentence each; empty if there are none.
type CheckFindings = Vec<String>;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match run(&words) {
        Ok(findings) if findings.is_empty() => ExitCode::SUCCESS,
        Ok(findings) => {
            findings.iter().for_each(|finding| eprintln!("  {finding}"));
            eprintln!("xtask: {} findings", findings.len());
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(words: &[&str]) -> anyhow::Result<CheckFindings> {
    match words {
        ["check"] => check::run_all(),
        ["layering"] => layering::run(),
        ["licences"] => licences::run(),
        ["style"] => style::run(),
        ["errors"] => errors::run(),
        ["names"] => names::run(),
        ["prose"] => prose::run(),
        ["generate"] => generate::write_outdated(),
        ["generate", "--check"] => generate::compare_files(),
        [] | ["help" | "--help" | "-h"] => {
            println!("{HELP}");
            Ok(CheckFindings::new())
        }
        _ => bail!("there is no verb `{}`\n{HELP}", words.join(" ")),
    }
}
