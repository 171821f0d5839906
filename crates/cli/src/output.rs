//! The output of all verbs: text on the terminal, timelines of calls, files, errors and exit codes.

pub(crate) mod draw;
pub(crate) mod exit;
pub(crate) mod file;
pub(crate) mod terminal;
pub(crate) mod units;
