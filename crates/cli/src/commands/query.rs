//! `orfa query`: builds and signs programs, and replays their recordings.

pub(crate) mod debug;
mod native;
mod node;
pub(crate) mod replay;
pub(crate) mod sign;

use std::path::{Path, PathBuf};

use crate::build::{self, BuildOptions, BuiltModule, ModuleMetadata};
use crate::output::exit::{CliError, CliExitCode};
use crate::output::{terminal, units};

#[derive(Debug, clap::Subcommand)]
pub(crate) enum QueryCommand {
    Build(QueryBuildArguments),
    Replay(replay::ReplayArguments),
    Debug(debug::DebugArguments),
    Sign(sign::SignArguments),
}

/// Build a C program to a query module: compiler, linker and post-link step in one.
#[derive(Debug, clap::Args)]
pub(crate) struct QueryBuildArguments {
    /// The C source.
    source: PathBuf,
    /// The output file [default: beside the source, ending in .wasm].
    #[arg(short, long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Declare in the module that it uses this service, with these methods.
    #[arg(long, value_name = "SERVICE[:GET+POST]")]
    declare: Vec<String>,
    /// Further arguments for clang.
    #[arg(last = true, value_name = "CLANG ARGUMENTS")]
    flags: Vec<String>,
}

pub(crate) fn build(arguments: &QueryBuildArguments) -> anyhow::Result<CliExitCode> {
    let QueryBuildArguments { source, out, declare, flags } = arguments;
    let options = BuildOptions { flags: flags.clone(), metadata: declared_metadata(source, declare) };
    let built = build::build(source, &options).map_err(CliError::from)?;
    let out = out.clone().unwrap_or_else(|| source.with_extension("wasm"));
    std::fs::write(&out, &built.wasm).map_err(|error| {
        let message = format!("{} can't be written: {error}", out.display());
        CliError::failed("not-written", message, "`-o FILE` writes it elsewhere")
    })?;
    terminal::write_stderr(&built.warnings);
    terminal::write_stdout(&format_sizes(&out, &built));
    Ok(CliExitCode::Ok)
}

/// The module's metadata, if there are declarations.
fn declared_metadata(source: &Path, declare: &[String]) -> Option<ModuleMetadata> {
    let name = source.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let mut metadata = ModuleMetadata { language: "c".to_owned(), name, ..ModuleMetadata::default() };
    declare.iter().for_each(|declaration| metadata.declare(declaration));
    (!declare.is_empty()).then_some(metadata)
}

fn format_sizes(out: &Path, built: &BuiltModule) -> String {
    let [raw, gzip] = [built.raw_size, built.gzip_size].map(|size| units::format_bytes(size as u64));
    format!("{}: {raw}, {gzip} with gzip\n", out.display())
}
