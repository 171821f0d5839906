//! How `orfa` ends: the exit codes, and the complaint that a user can do something about.

use std::process::ExitCode;

use crate::terminal;

/// What the shell gets to see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Exit {
    /// It went well.
    Ok = 0,
    /// The call failed, or the program could not be built.
    Failed = 1,
    /// The command line or the config is wrong (`EX_USAGE` of sysexits.h).
    Usage = 64,
    /// Something that is not the user's fault (`EX_SOFTWARE`).
    Internal = 70,
}

/// What was wrong, and what to do about it.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub(crate) struct Complaint {
    pub(crate) exit: Exit,
    /// Stable, in kebab-case.
    pub(crate) code: &'static str,
    pub(crate) message: String,
    /// Empty where there is nothing to say.
    pub(crate) hint: String,
}

impl Complaint {
    pub(crate) fn usage(code: &'static str, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { exit: Exit::Usage, code, message: message.into(), hint: hint.into() }
    }

    pub(crate) fn failed(code: &'static str, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { exit: Exit::Failed, ..Self::usage(code, message, hint) }
    }

    pub(crate) fn internal(code: &'static str, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { exit: Exit::Internal, ..Self::usage(code, message, hint) }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// The end of a verb, its error told if it has one.
pub(crate) fn finish(end: anyhow::Result<Exit>) -> ExitCode {
    end.unwrap_or_else(|error| {
        terminal::complain(&describe(&error));
        error.downcast_ref::<Complaint>().map_or(Exit::Internal, |complaint| complaint.exit)
    })
    .into()
}

/// An error in plain words: what, its code, what to do.
pub(crate) fn describe(error: &anyhow::Error) -> String {
    match error.downcast_ref::<Complaint>() {
        None => format!("orfa: {error:#}\n"),
        Some(Complaint { code, message, hint, .. }) if hint.is_empty() => {
            format!("orfa: {message} ({code})\n")
        }
        Some(Complaint { code, message, hint, .. }) => {
            format!("orfa: {message} ({code})\n  hint: {hint}\n")
        }
    }
}
