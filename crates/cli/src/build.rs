//! From a C file to a query module of a few hundred bytes.
//!
//! Clang compiles (`compile.rs`), the object is looked at for what the linker would let pass
//! (`object.rs`), wasm-ld links at the fixed addresses of a query, and `post_link.rs` makes what comes out
//! a guest of the environment: the stack pointer becomes an import, `env` gets its version, and whatever
//! is of no use at run time is left out. `fit.rs` says whether it will be accepted by a gateway.
//!
//! Start at [`build`].
mod compile;
mod error;
mod fit;
mod object;
mod post_link;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::Path;

use environments::toolchain::Toolchain;
use flate2::{Compression, write::GzEncoder};

use crate::exit::Complaint;
use crate::terminal;
pub(crate) use compile::{ORFA_ABI_H, ORFA_H};
pub(crate) use error::BuildError;

/// How to build.
#[derive(Clone, Debug, Default)]
pub(crate) struct Options {
    /// Further arguments for clang, such as `-I` and `-D`.
    pub(crate) flags: Vec<String>,
    /// What the module says about itself in its `orfa` section. Without it there is no such section: a
    /// module's size is what its user waits for.
    pub(crate) metadata: Option<Metadata>,
}

/// The content of a module's `orfa` section, as JSON.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub(crate) struct Metadata {
    /// The source language.
    pub(crate) language: String,
    /// The program's name.
    pub(crate) name: String,
    /// The services that it uses, each with the methods.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) services: BTreeMap<String, Vec<String>>,
}

impl Metadata {
    /// Adds what a `--declare` says: `catalog`, or `catalog:GET+POST`. GET is meant where no method stands.
    pub(crate) fn declare(&mut self, declaration: &str) {
        let (service, methods) = declaration.split_once(':').unwrap_or((declaration, "GET"));
        let methods = methods.split('+').map(str::to_uppercase);
        self.services.entry(service.to_owned()).or_default().extend(methods);
    }
}

/// A query module, and what there is to say about it.
#[derive(Clone, Debug)]
pub(crate) struct Built {
    /// The module.
    pub(crate) wasm: Vec<u8>,
    /// Its size in bytes.
    pub(crate) raw: usize,
    /// Its size in bytes as gzip sends it.
    pub(crate) gzip: usize,
    /// What clang warned about; empty where all is well.
    pub(crate) warnings: String,
}

/// Builds a query module from a C file.
///
/// # Errors
/// When the toolchain is missing, the program does not compile, or its module would not be accepted by
/// a gateway; the error says why and where.
pub(crate) fn build(source: &Path, options: &Options) -> Result<Built, BuildError> {
    let tools = Toolchain::find().map_err(BuildError::Toolchain)?;
    let folder = tempfile::tempdir().map_err(BuildError::Folder)?;
    let (object, warnings) = compile::compile(&tools, source, &options.flags, folder.path())?;
    let facts = object::inspect(&read(&object)?)?;
    let linked = compile::link(&tools, &object, &facts, folder.path())?;
    let wasm = finish(&read(&linked)?, options)?;
    Ok(Built { raw: wasm.len(), gzip: gzip_size(&wasm)?, wasm, warnings })
}

/// The module of a C source, for whoever sends it at once.
pub(crate) fn module(source: &Path) -> Result<Vec<u8>, Complaint> {
    let built = build(source, &Options::default())?;
    terminal::complain(&built.warnings);
    Ok(built.wasm)
}

/// Everything behind the linker: checks what came out and makes it a guest of the C environment.
fn finish(linked: &[u8], options: &Options) -> Result<Vec<u8>, BuildError> {
    fit::check(linked, environments::C.wasm)?;
    post_link::rewrite(linked, environments::C.name, options.metadata.as_ref())
}

fn read(path: &Path) -> Result<Vec<u8>, BuildError> {
    fs::read(path).map_err(BuildError::Folder)
}

fn gzip_size(bytes: &[u8]) -> Result<usize, BuildError> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes).map_err(BuildError::Folder)?;
    Ok(encoder.finish().map_err(BuildError::Folder)?.len())
}
