//! How the workers of scripts are started: by this binary itself, which confines itself and then becomes the engine.
//!
//! It is a verb that nobody types and no help shows.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::ExitCode;

use script_runtime::Launcher;

use crate::exit::Exit;
use crate::terminal;

/// Behind it stand the arguments of the worker.
const VERB: &str = "confined-worker";
/// The binary that runs, even if another has taken its name since.
const ITSELF: &str = "/proc/self/exe";

/// What a gateway starts its workers by.
pub(crate) fn launcher() -> Launcher {
    // In valgrind what runs is valgrind, to the system: there it is started by its name.
    let elsewhere = std::env::current_exe().ok().filter(|named| is_other(named));
    Launcher { program: elsewhere.unwrap_or(ITSELF.into()), arguments: vec![VERB.into()] }
}

/// Whether a file is there, and is not the one that runs.
fn is_other(named: &Path) -> bool {
    let which = |path: &Path| std::fs::metadata(path).map(|file| (file.dev(), file.ino()));
    matches!((which(named), which(Path::new(ITSELF))), (Ok(named), Ok(itself)) if named != itself)
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
