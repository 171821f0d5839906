//! How the workers of scripts are started: by this binary itself, which confines itself and then becomes the engine.
//!
//! It is a verb that nobody types and no help shows.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::process::ExitCode;
use std::sync::OnceLock;

use script_runtime::Launcher;

use crate::exit::Exit;
use crate::terminal;

/// Behind it stand the arguments of the worker.
const VERB: &str = "confined-worker";
/// The binary that runs.
const ITSELF: &str = "/proc/self/exe";

/// What a gateway starts its workers by: the binary that runs, even if another has taken its name since. It stays open, and is
/// started by what is open: in valgrind, what runs is valgrind to the system, but what is opened is this.
pub(crate) fn launcher() -> Launcher {
    static OPEN: OnceLock<Option<File>> = OnceLock::new();
    let open = OPEN.get_or_init(|| File::open(ITSELF).ok());
    let program =
        open.as_ref().map_or_else(|| ITSELF.to_owned(), |file| format!("/proc/self/fd/{}", file.as_raw_fd()));
    Launcher { program: program.into(), arguments: vec![VERB.into()] }
}

/// Becomes a worker if that is asked for; returns if it is not, or if it can't be. Before there is a second thread.
pub(crate) fn become_one() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next().is_none_or(|verb| verb != VERB) {
        return None;
    }
    let error = script_runtime::confined(arguments);
    terminal::complain(&format!("the worker does not start: {error}\n"));
    Some(Exit::Internal.into())
}
