//! How the workers of scripts are started: by this binary itself, which confines itself and then becomes the engine.
//!
//! It is a verb that nobody types and no help shows.

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
    Launcher { program: ITSELF.into(), arguments: vec![VERB.into()] }
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
