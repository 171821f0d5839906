//! Builds a C file to a query module of a few hundred bytes.
//!
//! Clang compiles (`compile.rs`), and the object is checked for errors that the linker would ignore
//! (`object.rs`). wasm-ld links at the fixed addresses of a query, and `post_link.rs` converts the result to
//! a guest of the environment: the stack pointer becomes an import, `env` gets its version, and sections
//! without use at run time are removed. `module_check.rs` checks whether a gateway will accept it.
//!
//! The entry point is [`build`].
mod compile;
mod error;
mod module_check;
mod object;
mod post_link;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::Path;

use environments::toolchain::ClangToolchain;
use flate2::{Compression, write::GzEncoder};

use crate::output::exit::CliError;
use crate::output::terminal;
pub(crate) use compile::{ORFA_ABI_H, ORFA_H};
pub(crate) use error::BuildError;

/// The options of a build.
#[derive(Clone, Debug, Default)]
pub(crate) struct BuildOptions {
    /// Further arguments for clang, such as `-I` and `-D`.
    pub(crate) flags: Vec<String>,
    /// The content of the module's `orfa` section. Without it there is no such section, since users wait for
    /// every byte of a module.
    pub(crate) metadata: Option<ModuleMetadata>,
}

/// The content of a module's `orfa` section, as JSON.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub(crate) struct ModuleMetadata {
    /// The source language.
    pub(crate) language: String,
    /// The program's name.
    pub(crate) name: String,
    /// The services that the program uses, each with its methods.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) services: BTreeMap<String, Vec<String>>,
}

impl ModuleMetadata {
    /// Adds an argument of `--declare`: `catalog`, or `catalog:GET+POST`. The default method is GET.
    pub(crate) fn declare(&mut self, declaration: &str) {
        let (service, methods) = declaration.split_once(':').unwrap_or((declaration, "GET"));
        let methods = methods.split('+').map(str::to_uppercase);
        self.services.entry(service.to_owned()).or_default().extend(methods);
    }
}

/// A query module, with its sizes and warnings.
#[derive(Clone, Debug)]
pub(crate) struct BuiltModule {
    /// The module.
    pub(crate) wasm: Vec<u8>,
    /// Its size in bytes.
    pub(crate) raw_size: usize,
    /// Its size in bytes after gzip.
    pub(crate) gzip_size: usize,
    /// The warnings of clang.
    pub(crate) warnings: String,
}

/// Builds a query module from a C file.
///
/// # Errors
/// If the toolchain is missing, the program does not compile, or a gateway would not accept its module. The
/// error contains the reason and the position.
pub(crate) fn build(source: &Path, options: &BuildOptions) -> Result<BuiltModule, BuildError> {
    let tools = ClangToolchain::find().map_err(BuildError::Toolchain)?;
    let folder = tempfile::tempdir().map_err(BuildError::Folder)?;
    let (object, warnings) = compile::compile(&tools, source, &options.flags, folder.path())?;
    let facts = object::inspect(&read_intermediate(&object)?)?;
    let linked = compile::link(&tools, &object, &facts, folder.path())?;
    let wasm = check_and_rewrite(&read_intermediate(&linked)?, options)?;
    Ok(BuiltModule { raw_size: wasm.len(), gzip_size: gzip_size(&wasm)?, wasm, warnings })
}

/// Builds the module of a C source, to be sent at once.
pub(crate) fn build_module(source: &Path) -> Result<Vec<u8>, CliError> {
    let built = build(source, &BuildOptions::default())?;
    terminal::write_stderr(&built.warnings);
    Ok(built.wasm)
}

/// Checks the linked module and converts it to a guest of the C environment.
fn check_and_rewrite(linked: &[u8], options: &BuildOptions) -> Result<Vec<u8>, BuildError> {
    module_check::check_module(linked, environments::C.wasm)?;
    post_link::rewrite(linked, environments::C.name, options.metadata.as_ref())
}

fn read_intermediate(path: &Path) -> Result<Vec<u8>, BuildError> {
    fs::read(path).map_err(BuildError::Folder)
}

fn gzip_size(bytes: &[u8]) -> Result<usize, BuildError> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes).map_err(BuildError::Folder)?;
    Ok(encoder.finish().map_err(BuildError::Folder)?.len())
}
