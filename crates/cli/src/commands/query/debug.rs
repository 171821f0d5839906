//! `orfa query debug`: runs a program locally under a debugger of its language, with the input of a
//! recording.
//!
//! A program in C is compiled for this machine together with the C environment and `sdk/c/orfa_mock.c`
//! (`native.rs`). One in JavaScript runs in Node with `sdk/javascript/mock.mjs` (`node.rs`). This module
//! starts it under gdb or `node inspect`, or under the debugger that the command line names.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use tokio::signal::unix::{SignalKind, signal};

use super::{native, node, replay};
use crate::commands::call;
use crate::output::exit::{CliError, CliExitCode};

/// Run a recorded program in a debugger with the input of its recording: C in gdb, JavaScript and TypeScript
/// in Node's.
#[derive(Debug, clap::Args)]
pub(crate) struct DebugArguments {
    /// The recording, written by `orfa call --record`.
    recording: PathBuf,
    /// The program's source: .c, .ts, .js or .mjs.
    #[arg(long, value_name = "FILE")]
    program: PathBuf,
    /// Run it without a debugger.
    #[arg(long, alias = "plain", conflicts_with = "debugger")]
    no_debugger: bool,
    /// Write the native program of a C source to this file instead of running it: `FILE RECORDING` runs it.
    #[arg(short, long, value_name = "FILE", conflicts_with_all = ["no_debugger", "debugger"])]
    out: Option<PathBuf>,
    /// The debugger and its arguments, before the program's own [default: `gdb --args`, `node inspect`].
    #[arg(last = true, value_name = "DEBUGGER")]
    debugger: Vec<OsString>,
}

pub(crate) async fn run(arguments: &DebugArguments) -> anyhow::Result<CliExitCode> {
    replay::read_recording(&arguments.recording)?;
    let folder = tempfile::tempdir()?;
    if arguments.program.extension().is_some_and(|extension| extension == "c") {
        let program = arguments.out.clone().unwrap_or_else(|| folder.path().join("query"));
        native::build(&arguments.program, folder.path(), &program)?;
        return match &arguments.out {
            Some(_) => Ok(CliExitCode::Ok),
            None => run_debugger(
                arguments,
                &["gdb", "--args"],
                &[],
                &[program.into(), arguments.recording.clone().into()],
            ),
        };
    }
    if arguments.out.is_some() {
        let message = format!("{} needs no native program", arguments.program.display());
        return Err(CliError::usage("nothing-to-write", message, "`--out` is for programs in C").into());
    }
    let program = call::PreparedProgram::load(&arguments.program)?;
    let of_node = node::node_arguments(&program, &arguments.recording, folder.path())?;
    run_debugger(arguments, &["node", "inspect"], &["node"], &of_node)
}

/// Runs the debugger to its end. Interrupts are left to the debugger.
fn run_debugger(
    arguments: &DebugArguments,
    usual: &[&str],
    plain: &[&str],
    program: &[OsString],
) -> anyhow::Result<CliExitCode> {
    let named = |words: &[&str]| words.iter().map(Into::into).collect();
    let mut words: Vec<OsString> = match arguments {
        DebugArguments { no_debugger: true, .. } => named(plain),
        DebugArguments { debugger, .. } if debugger.is_empty() => named(usual),
        DebugArguments { debugger, .. } => debugger.clone(),
    };
    words.extend_from_slice(program);
    let _interrupts = signal(SignalKind::interrupt())?;
    let Some((tool, rest)) = words.split_first() else { return Ok(CliExitCode::Ok) };
    let status =
        Command::new(tool).args(rest).status().map_err(|error| missing_debugger(Path::new(tool), &error))?;
    Ok(if status.success() { CliExitCode::Ok } else { CliExitCode::Failed })
}

fn missing_debugger(tool: &Path, error: &std::io::Error) -> CliError {
    let message = format!("{} can't be run: {error}", tool.display());
    CliError::failed(
        "debugger-missing",
        message,
        "install it, or name another one after `--`; `--no-debugger` needs none",
    )
}
