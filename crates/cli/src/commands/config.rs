//! `orfa config`: the JSON Schema for editors and other tools. Also the reports of config mistakes and
//! warnings that all verbs share.

use std::fmt::Write;

use diagnostics::Diagnostic;

use crate::output::exit::CliExitCode;
use crate::output::{terminal, units};

#[derive(Debug, clap::Subcommand)]
pub(crate) enum ConfigCommand {
    /// Print the JSON Schema of orfa.yaml.
    Schema,
}

pub(crate) fn print_schema() -> anyhow::Result<CliExitCode> {
    let schema = serde_json::to_string_pretty(&gateway::config::schema())?;
    terminal::write_stdout(&format!("{schema}\n"));
    Ok(CliExitCode::Ok)
}

/// Reports the mistakes on standard error.
pub(crate) fn report_mistakes(mistakes: &[Diagnostic]) -> CliExitCode {
    terminal::write_stderr(&format_mistakes(mistakes));
    CliExitCode::Usage
}

/// Prints the warnings about a config on standard error.
pub(crate) fn print_warnings(warnings: &[Diagnostic]) {
    for warning in warnings {
        terminal::write_stderr(&format!("warning: {warning}\n"));
    }
}

/// Logs the warnings about a config.
pub(crate) fn log_warnings(warnings: &[Diagnostic]) {
    for warning in warnings {
        tracing::warn!(%warning, "warning about the config");
    }
}

/// Formats one line per mistake, and their number.
fn format_mistakes(mistakes: &[Diagnostic]) -> String {
    let mut text = String::new();
    for mistake in mistakes {
        let _ = writeln!(text, "{mistake}");
    }
    let _ = writeln!(text, "the config has {}", units::format_count(mistakes.len(), "error"));
    text
}
