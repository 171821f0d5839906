//! The scripts of a config, read and compiled when the config is loaded.
//!
//! An error in a script is reported as a config mistake at its position in the script, and a reload keeps the
//! active config. Warnings are only logged, and `orfa check` prints them.

use std::path::PathBuf;

use diagnostics::{Diagnostic, DiagnosticSeverity, LineStarts};
use script::ScriptProgram;
use script_runtime::ScriptOptions;

use crate::config::{GatewayConfig, read_file};

/// A script that was compiled.
#[derive(Debug)]
pub struct CompiledScript {
    /// The index of its route.
    pub(crate) route: usize,
    /// The path to the file.
    pub file: PathBuf,
    /// The source text.
    pub text: String,
    /// The compiled program.
    pub program: ScriptProgram,
}

/// Reads and compiles the scripts in a config.
///
/// # Errors
/// Returns a mistake for each file that can't be read and for each error in a script.
pub fn read_scripts(config: &GatewayConfig) -> Result<Vec<CompiledScript>, Vec<Diagnostic>> {
    let (mut scripts, mut mistakes) = (Vec::new(), Vec::new());
    for (route, script) in config.routes.iter().enumerate().filter_map(|(index, route)| {
        let script = route.script.as_ref()?.options();
        Some((index, script))
    }) {
        match compile_script(config, route, &script) {
            Ok(script) => scripts.push(script),
            Err(diagnostics) => mistakes.extend(diagnostics),
        }
    }
    if mistakes.is_empty() { Ok(scripts) } else { Err(mistakes) }
}

fn compile_script(
    config: &GatewayConfig,
    route: usize,
    options: &ScriptOptions,
) -> Result<CompiledScript, Vec<Diagnostic>> {
    let file = config.source.folder().join(&options.file);
    let text = read_file(&file).map_err(|error| {
        let message = format!("the script {} can't be read: {error}", options.file.display());
        let hint = "name a file in S, relative to the config".to_owned();
        vec![config.source.mistake(&format!("/routes/{route}/script"), message, Some(hint))]
    })?;
    let name = options.file.display().to_string();
    match script::compile(&text, &name, &script::CompileOptions { strict_paths: options.strict_paths }) {
        Ok(program) => Ok(CompiledScript { route, file, text, program }),
        Err(diagnostics) => {
            let errors =
                diagnostics.into_iter().filter(|diagnostic| diagnostic.severity == DiagnosticSeverity::Error);
            Err(errors.map(|found| found.resolve_span(file.display().to_string(), &text)).collect())
        }
    }
}

/// Logs the warnings.
pub(crate) fn log_warnings(scripts: &[CompiledScript]) {
    for script in scripts {
        for diagnostic in
            script.program.warnings.iter().filter(|found| found.severity == DiagnosticSeverity::Warning)
        {
            let position = LineStarts::new(&script.text).position(diagnostic.location.span().start);
            let at = format!("{}:{position}", script.program.name);
            tracing::warn!(target: "script", at, code = diagnostic.code, "{}", diagnostic.message);
        }
    }
}
