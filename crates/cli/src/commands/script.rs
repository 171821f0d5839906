//! `orfa script`: diagnostics and output of the compiler of S.
//!
//! `diagnostics.rs` formats diagnostics, `handler_plan.rs` the execution of handlers.

mod diagnostics;
mod handler_plan;

use std::path::{Path, PathBuf};

use ::diagnostics::{Diagnostic, DiagnosticSeverity};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use script::ScriptProgram;
use serde_json::json;

use crate::output::exit::{CliError, CliExitCode};
use crate::output::file::{write_and_report, write_error};
use crate::output::{terminal, units};

#[derive(Debug, clap::Subcommand)]
pub(crate) enum ScriptCommand {
    Check(CheckArguments),
    Build(BuildArguments),
    Graph(GraphArguments),
}

/// A file in S, with the options to read it.
#[derive(Debug, clap::Args)]
pub(crate) struct ScriptSourceArguments {
    /// The script.
    file: PathBuf,
    /// Treat service-level state under two paths as an error, as the paper on the language does.
    #[arg(long)]
    strict_paths: bool,
}

/// Report every error and warning in a script, and how each of its handlers will run.
#[derive(Debug, clap::Args)]
pub(crate) struct CheckArguments {
    #[command(flatten)]
    source: ScriptSourceArguments,
    /// Report it as JSON.
    #[arg(long)]
    json: bool,
}

/// Print the JavaScript that a script compiles to, and report on standard error how each of its handlers will
/// run.
#[derive(Debug, clap::Args)]
pub(crate) struct BuildArguments {
    #[command(flatten)]
    source: ScriptSourceArguments,
    /// Write it into this folder instead.
    #[arg(short, long, value_name = "FOLDER")]
    out: Option<PathBuf>,
    /// Add a source map: inline, or in a separate file with `--out`.
    #[arg(long)]
    source_map: bool,
}

/// Show the dependencies within each `par` of a script.
#[derive(Debug, clap::Args)]
pub(crate) struct GraphArguments {
    #[command(flatten)]
    source: ScriptSourceArguments,
    /// Draw them as SVG to this file; several graphs are written to numbered files.
    #[arg(short, long, value_name = "FILE")]
    out: Option<PathBuf>,
}

pub(crate) fn check(arguments: &CheckArguments) -> anyhow::Result<CliExitCode> {
    let result = CompileResult::from_source(&arguments.source)?;
    if arguments.json {
        let plan = result.program.as_ref().map(handler_plan::plan_json);
        let values: Vec<_> = result
            .diagnostics
            .iter()
            .map(|diagnostic| diagnostics::diagnostic_json(diagnostic, &result.text))
            .collect();
        let value = json!({ "file": result.name, "diagnostics": values, "services": plan });
        terminal::write_stdout(&format!("{value:#}\n"));
        return Ok(result.exit_code());
    }
    result.print_diagnostics();
    if let Some(program) = &result.program {
        terminal::write_stdout(&handler_plan::format_plan(program));
    }
    Ok(result.exit_code())
}

pub(crate) fn build(arguments: &BuildArguments) -> anyhow::Result<CliExitCode> {
    let result = CompileResult::from_source(&arguments.source)?;
    result.print_diagnostics();
    let Some(program) = &result.program else { return Ok(result.exit_code()) };
    // Standard output is reserved for the program.
    terminal::write_stderr(&handler_plan::format_plan(program));
    let map = arguments.source_map.then(|| program.map.to_v3_json(&result.name, &result.text));
    let mut code = format!("{}\n", program.code.trim_end());
    let Some(folder) = &arguments.out else {
        if let Some(map) = map {
            let map = BASE64_STANDARD.encode(map);
            code.push_str(&format!("//# sourceMappingURL=data:application/json;base64,{map}\n"));
        }
        terminal::write_stdout(&code);
        return Ok(CliExitCode::Ok);
    };
    let file = folder.join(arguments.source.file.with_extension("js").file_name().unwrap_or_default());
    std::fs::create_dir_all(folder).map_err(|error| write_error(folder, &error))?;
    if let Some(map) = map {
        let beside = file.with_extension("js.map");
        code.push_str(&format!(
            "//# sourceMappingURL={}\n",
            beside.file_name().unwrap_or_default().to_string_lossy()
        ));
        write_and_report(&beside, &map)?;
    }
    write_and_report(&file, &code)?;
    Ok(CliExitCode::Ok)
}

pub(crate) fn graph(arguments: &GraphArguments) -> anyhow::Result<CliExitCode> {
    let result = CompileResult::from_source(&arguments.source)?;
    result.print_diagnostics();
    let Some(program) = &result.program else { return Ok(result.exit_code()) };
    if program.graphs.is_empty() {
        terminal::write_stdout(&format!("{} has no `par`\n", result.name));
    }
    for (index, graph) in program.graphs.iter().enumerate() {
        match &arguments.out {
            None => terminal::write_stdout(&graph.to_text()),
            Some(file) => {
                write_and_report(&numbered_path(file, index, program.graphs.len()), &graph.to_svg())?
            }
        }
    }
    Ok(CliExitCode::Ok)
}

/// The result of compiling a file.
struct CompileResult {
    name: String,
    text: String,
    program: Option<ScriptProgram>,
    diagnostics: Vec<Diagnostic>,
}

impl CompileResult {
    fn from_source(source: &ScriptSourceArguments) -> Result<Self, CliError> {
        let ScriptSourceArguments { file, strict_paths } = source;
        let name = file.display().to_string();
        let text = std::fs::read_to_string(file).map_err(|error| {
            CliError::usage("no-such-file", format!("{name} can't be read: {error}"), "name a file in S")
        })?;
        let script_program =
            script::compile(&text, &name, &script::CompileOptions { strict_paths: *strict_paths });
        Ok(match script_program {
            Ok(mut program) => {
                let found = std::mem::take(&mut program.warnings);
                Self { name, text, program: Some(program), diagnostics: found }
            }
            Err(found) => Self { name, text, program: None, diagnostics: found },
        })
    }

    fn exit_code(&self) -> CliExitCode {
        if self.program.is_some() { CliExitCode::Ok } else { CliExitCode::Usage }
    }

    /// Prints the diagnostics and the number of errors.
    fn print_diagnostics(&self) {
        for diagnostic in &self.diagnostics {
            terminal::write_stderr(&diagnostics::format_diagnostic(diagnostic, &self.name, &self.text));
        }
        let errors =
            self.diagnostics.iter().filter(|found| found.severity == DiagnosticSeverity::Error).count();
        if self.program.is_none() {
            terminal::write_stderr(&format!("{} has {}\n", self.name, units::format_count(errors, "error")));
        }
    }
}

/// Prints the warnings of a script in a config.
pub(crate) fn print_warnings(script: &gateway::build::script_routes::CompiledScript) {
    let name = script.file.display().to_string();
    for diagnostic in &script.program.warnings {
        terminal::write_stderr(&diagnostics::format_diagnostic(diagnostic, &name, &script.text));
    }
}

/// Returns `graph.svg`, or `graph-2.svg` if there are several.
fn numbered_path(file: &Path, index: usize, all: usize) -> PathBuf {
    if all == 1 {
        return file.to_owned();
    }
    let stem = file.file_stem().unwrap_or_default().to_string_lossy();
    let ending = file.extension().map_or_else(String::new, |ending| format!(".{}", ending.to_string_lossy()));
    file.with_file_name(format!("{stem}-{}{ending}", index + 1))
}
