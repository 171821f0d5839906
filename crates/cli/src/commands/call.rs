//! `orfa call PROGRAM`: sends a query and prints its response.
//!
//! `program.rs` reads or builds the program, `exchange.rs` sends it and counts the bytes on the socket,
//! `problem.rs` renders problem documents, and `timing.rs` reads the gateway's measurements.

mod exchange;
mod pretty;
mod problem;
mod program;
mod timing;

#[cfg(test)]
mod tests;

use std::io::{IsTerminal, Read, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use query::{RecordingError, RunRecording};

use crate::output::exit::{CliError, CliExitCode};
use crate::output::{draw, terminal, units};
pub(crate) use exchange::{ProgramCallRequest, ProgramCallResponse};
pub(crate) use problem::PrintedProblem;
pub(crate) use program::{PreparedProgram, read_file};

/// The default address of `orfa dev`.
pub(crate) const DEFAULT_URL: &str = "http://localhost:8080/query";

/// Send a program to a gateway and print the response.
#[derive(Debug, clap::Args)]
pub(crate) struct CallArguments {
    /// The program: .ts, .js, .mjs and .wasm are sent unchanged, .c is built first.
    program: PathBuf,
    /// The input, usually JSON; `-` reads standard input.
    #[arg(long, conflicts_with = "input_file")]
    input: Option<String>,
    /// A file with the input.
    #[arg(long)]
    input_file: Option<PathBuf>,
    /// The query route.
    #[arg(long, env = "ORFA_URL", default_value = DEFAULT_URL)]
    url: String,
    /// A header of the request: 'Authorization: Bearer abc'.
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE")]
    headers: Vec<String>,
    /// Limits for the program: 'cpu=50, calls=10' (in ms, bytes, counts).
    #[arg(long, value_name = "LIMITS")]
    limit: Option<String>,
    /// Record the run, and write the recording to this file instead of printing the response.
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// Report bytes, times and the upstream calls on standard error.
    #[arg(short, long)]
    verbose: bool,
}

pub(crate) async fn run(arguments: &CallArguments) -> anyhow::Result<CliExitCode> {
    let program = PreparedProgram::load(&arguments.program)?;
    let question = ProgramCallRequest {
        url: arguments.url.clone(),
        program: program.bytes.clone(),
        content_type: program.content_type,
        input: read_input(arguments)?,
        headers: request_headers(arguments)?,
    };
    let answer = question.send().await?;
    if arguments.verbose {
        terminal::write_stderr(&format_report(&question, &answer, terminal::width()));
    }
    match &arguments.record {
        Some(file) => write_recording(file, &answer, &program),
        None => Ok(print_response(&answer, &program)),
    }
}

/// Writes the recording in the response to a file.
fn write_recording(
    file: &Path,
    answer: &ProgramCallResponse,
    program: &PreparedProgram,
) -> anyhow::Result<CliExitCode> {
    if problem::PrintedProblem::from_response(answer).is_some() {
        return Ok(print_response(answer, program));
    }
    let recording = parse_recording(&answer.body)?;
    write_file(file, &answer.body)?;
    terminal::write_stderr(&format!("{}: {}\n", file.display(), recording.summary()));
    Ok(CliExitCode::Ok)
}

/// Parses a recording.
pub(crate) fn parse_recording(bytes: &[u8]) -> Result<RunRecording, CliError> {
    RunRecording::parse(bytes).map_err(|error| recording_error(&error))
}

/// Returns the error for an invalid recording, with a hint.
fn recording_error(error: &RecordingError) -> CliError {
    let text = error.to_string();
    match error {
        RecordingError::Version(_) => CliError::failed(
            "recording-version",
            text,
            "record it again, or use the `orfa` version of the gateway that recorded it",
        ),
        RecordingError::Short { .. } => {
            CliError::failed("recording-short", text, "record it again: the file is incomplete")
        }
        RecordingError::Malformed(_) => {
            CliError::failed("recording-malformed", text, "`orfa call --record FILE` creates one")
        }
    }
}

/// Writes a file that the command line names.
pub(crate) fn write_file(file: &Path, bytes: &[u8]) -> Result<(), CliError> {
    std::fs::write(file, bytes).map_err(|error| {
        let message = format!("{} can't be written: {error}", file.display());
        CliError::failed("not-written", message, "")
    })
}

/// Prints the response, or the problem document.
pub(crate) fn print_response(answer: &ProgramCallResponse, program: &PreparedProgram) -> CliExitCode {
    if let Some(problem) = problem::PrintedProblem::from_response(answer) {
        terminal::write_stderr(&problem.render(program, terminal::width()));
        return CliExitCode::Failed;
    }
    print_body(&answer.body);
    if answer.status.is_client_error() || answer.status.is_server_error() {
        terminal::write_stderr(&format!("orfa: the response has status {}\n", answer.status));
        return CliExitCode::Failed;
    }
    CliExitCode::Ok
}

/// Prints JSON in lines on a terminal, and the exact bytes otherwise. A closed pipe is not an error.
pub(crate) fn print_body(body: &[u8]) {
    let mut out = std::io::stdout();
    if out.is_terminal() {
        let pretty = pretty::format_json(body);
        terminal::write_stdout(pretty.as_deref().unwrap_or(&String::from_utf8_lossy(body)));
        terminal::write_stdout("\n");
    } else {
        let _ = out.write_all(body).and_then(|()| out.flush());
    }
}

/// The report of `-v`.
fn format_report(question: &ProgramCallRequest, answer: &ProgramCallResponse, width: usize) -> String {
    let status = answer.status.as_u16();
    let timing = timing::CallTiming::from_headers(&answer.headers);
    let measured: String = timing
        .measurements
        .iter()
        .map(|(name, time)| format!("  {name} {}", units::format_milliseconds(*time)))
        .collect();
    format!(
        "POST {}  {}  {}\n  sent {} (input {}, program {}), received {}\n{}{}",
        question.url,
        terminal::paint(draw::status_style(status), &status.to_string()),
        units::format_milliseconds(answer.duration),
        units::format_bytes(answer.bytes_sent),
        units::format_bytes(question.input.as_ref().map_or(0, Bytes::len) as u64),
        units::format_bytes(question.program.len() as u64),
        units::format_bytes(answer.bytes_received),
        if measured.is_empty() { String::new() } else { format!("{measured}\n") },
        draw::draw_timeline(&timing.calls, timing.total(), width),
    )
}

fn read_input(arguments: &CallArguments) -> anyhow::Result<Option<Bytes>> {
    match (arguments.input.as_deref(), &arguments.input_file) {
        (Some("-"), _) => {
            let mut bytes = Vec::new();
            std::io::stdin().read_to_end(&mut bytes).context("can't read the standard input")?;
            Ok(Some(bytes.into()))
        }
        (Some(text), _) => Ok(Some(Bytes::copy_from_slice(text.as_bytes()))),
        (None, Some(file)) => Ok(Some(read_file(file)?.into())),
        (None, None) => Ok(None),
    }
}

fn request_headers(arguments: &CallArguments) -> anyhow::Result<HeaderMap> {
    let mut headers = HeaderMap::new();
    for line in &arguments.headers {
        let (name, value) = parse_header(line)?;
        headers.append(name, value);
    }
    if let Some(limit) = &arguments.limit {
        let (_, value) = parse_header(&format!("ORFA-Limit: {limit}"))?;
        headers.insert("orfa-limit", value);
    }
    if arguments.record.is_some() {
        headers.insert("orfa-debug", HeaderValue::from_static("?1"));
    }
    if arguments.verbose {
        headers.append("prefer", HeaderValue::from_static("calls"));
    }
    Ok(headers)
}

pub(crate) fn parse_header(line: &str) -> anyhow::Result<(HeaderName, HeaderValue)> {
    let wrong = || {
        let message = format!("`{line}` is not a header");
        CliError::usage("bad-header", message, "write it as 'Name: value', in plain ASCII")
    };
    let (name, value) = line.split_once(':').ok_or_else(wrong)?;
    Ok((name.trim().parse().map_err(|_| wrong())?, value.trim().parse().map_err(|_| wrong())?))
}
