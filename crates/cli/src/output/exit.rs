//! The exit codes of `orfa`, and its user-facing errors.

use std::process::ExitCode;

use crate::output::terminal;

/// The exit codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum CliExitCode {
    /// Success.
    Ok = 0,
    /// The call failed, or the program could not be built.
    Failed = 1,
    /// A mistake in the command line or the config (`EX_USAGE` of sysexits.h).
    Usage = 64,
    /// An error that the user did not cause (`EX_SOFTWARE`).
    Internal = 70,
}

/// A user-facing error with a hint.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub(crate) struct CliError {
    pub(crate) exit: CliExitCode,
    /// A stable identifier in kebab-case.
    pub(crate) code: &'static str,
    pub(crate) message: String,
    /// Empty if there is no hint.
    pub(crate) hint: String,
}

impl CliError {
    pub(crate) fn usage(code: &'static str, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { exit: CliExitCode::Usage, code, message: message.into(), hint: hint.into() }
    }

    pub(crate) fn failed(code: &'static str, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { exit: CliExitCode::Failed, ..Self::usage(code, message, hint) }
    }

    pub(crate) fn internal(code: &'static str, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { exit: CliExitCode::Internal, ..Self::usage(code, message, hint) }
    }
}

impl From<CliExitCode> for ExitCode {
    fn from(exit: CliExitCode) -> Self {
        Self::from(exit as u8)
    }
}

/// Maps the result of a verb to its exit code, and prints its error.
pub(crate) fn report_result(end: anyhow::Result<CliExitCode>) -> ExitCode {
    end.unwrap_or_else(|error| {
        terminal::write_stderr(&describe_error(&error));
        error.downcast_ref::<CliError>().map_or(CliExitCode::Internal, |complaint| complaint.exit)
    })
    .into()
}

/// Describes an error: the message, its code, the hint.
pub(crate) fn describe_error(error: &anyhow::Error) -> String {
    match error.downcast_ref::<CliError>() {
        None => format!("orfa: {error:#}\n"),
        Some(CliError { code, message, hint, .. }) if hint.is_empty() => {
            format!("orfa: {message} ({code})\n")
        }
        Some(CliError { code, message, hint, .. }) => {
            format!("orfa: {message} ({code})\n  hint: {hint}\n")
        }
    }
}
