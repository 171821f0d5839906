//! Starts the workers of scripts: this binary confines itself and then executes the script engine.
//!
//! The verb is internal, and the help doesn't show it.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::process::ExitCode;
use std::sync::OnceLock;

use script_runtime::WorkerLauncher;

use crate::output::exit::CliExitCode;
use crate::output::terminal;

/// The internal verb, which is followed by the arguments of the worker.
const WORKER_VERB: &str = "confined-worker";
/// The path of the running binary.
const OWN_EXECUTABLE: &str = "/proc/self/exe";

/// Returns the launcher of workers: the running binary, even if its file has been replaced. The file stays
/// open, and workers are started through its descriptor: under valgrind, the running binary is valgrind, but
/// the opened file is this one.
pub(crate) fn launcher() -> WorkerLauncher {
    static EXECUTABLE: OnceLock<Option<File>> = OnceLock::new();
    let open = EXECUTABLE.get_or_init(|| File::open(OWN_EXECUTABLE).ok());
    let program = open
        .as_ref()
        .map_or_else(|| OWN_EXECUTABLE.to_owned(), |file| format!("/proc/self/fd/{}", file.as_raw_fd()));
    WorkerLauncher { program: program.into(), arguments: vec![WORKER_VERB.into()] }
}

/// Becomes a worker if the arguments request it. Returns if they don't, or on failure. It must be called
/// before a second thread exists.
pub(crate) fn run_worker() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next().is_none_or(|verb| verb != WORKER_VERB) {
        return None;
    }
    let error = script_runtime::exec_sandboxed(arguments);
    terminal::write_stderr(&format!("the worker can't be started: {error}\n"));
    Some(CliExitCode::Internal.into())
}
