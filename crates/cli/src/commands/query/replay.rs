//! `orfa query replay`: runs a recorded program again in this process, with the recording as its only input.

use std::path::{Path, PathBuf};

use offload::OffloadPool;
use query::{
    ProgramLanguage, QueryRuntime, ReplayEnd, ReplayError, ReplayResult, RunRecording, RuntimeConfig,
};

use crate::commands::call::{self, PreparedProgram, PrintedProblem};
use crate::output::exit::{CliError, CliExitCode};
use crate::output::terminal;

/// Run a recorded program again, with the recording in place of services, clock and randomness.
#[derive(Debug, clap::Args)]
pub(crate) struct ReplayArguments {
    /// The recording, written by `orfa call --record`.
    recording: PathBuf,
    /// The program: the recorded one, or a changed one that makes the same calls.
    #[arg(long, value_name = "FILE")]
    program: PathBuf,
}

pub(crate) async fn run(arguments: &ReplayArguments) -> anyhow::Result<CliExitCode> {
    let recording = read_recording(&arguments.recording)?;
    let program = PreparedProgram::load(&arguments.program)?;
    let memory = RuntimeConfig::default().memory.0.max(recording.memory_limit());
    let config = RuntimeConfig {
        instances: Some(1),
        memory: services::BytesConfig(memory),
        ..RuntimeConfig::default()
    };
    let runtime = QueryRuntime::new(&config, OffloadPool::start(config.offload_config())?)?;
    let changed = !recording.is_recording_of(&program.bytes);
    if changed {
        terminal::write_stderr(
            "orfa: this is not the program that was recorded: it may say something else, as long as it asks for the same\n",
        );
    }
    let replayed = recording.replay(&runtime, program_language(&program), program.bytes.clone()).await;
    let replay = replayed.map_err(|error| replay_error(&error, changed))?;
    Ok(print_replay(replay, &program))
}

/// Prints the response as `orfa call` does.
fn print_replay(replay: ReplayResult, program: &PreparedProgram) -> CliExitCode {
    let as_recorded =
        if replay.is_same_end { "as the recorded run" } else { "otherwise than the recorded run" };
    let ended = format!("orfa: ended at host call {}, {as_recorded}\n", replay.calls);
    let exit = match replay.end {
        ReplayEnd::Answer { status, body, .. } => {
            call::print_body(&body);
            if status.is_client_error() || status.is_server_error() {
                CliExitCode::Failed
            } else {
                CliExitCode::Ok
            }
        }
        ReplayEnd::Problem { code, detail, position: place } => {
            let problem = PrintedProblem::from_replay(code, detail, place, replay.console);
            terminal::write_stderr(&problem.render(program, terminal::width()));
            CliExitCode::Failed
        }
    };
    terminal::write_stderr(&ended);
    exit
}

/// The language of a program.
pub(super) fn program_language(program: &PreparedProgram) -> ProgramLanguage {
    match program.content_type {
        "text/typescript" => ProgramLanguage::Typescript,
        "text/javascript" => ProgramLanguage::Javascript,
        _ => ProgramLanguage::Wasm,
    }
}

/// Reads a recording from a file.
pub(super) fn read_recording(file: &Path) -> Result<RunRecording, CliError> {
    call::parse_recording(&call::read_file(file)?)
}

pub(super) fn replay_error(error: &ReplayError, changed: bool) -> CliError {
    let text = error.to_string();
    let hint = if changed {
        "a changed program has to make the same calls in the same order: record it anew"
    } else {
        "another version of `orfa` than the gateway's, or a changed recording: record it anew"
    };
    match error {
        ReplayError::Diverged(_) => CliError::failed("replay-diverged", text, hint),
        ReplayError::Malformed(_) => {
            CliError::failed("recording-malformed", format!("this is not a recording: {text}"), "")
        }
        ReplayError::Program { code, .. } => CliError::failed(code, text, ""),
    }
}
