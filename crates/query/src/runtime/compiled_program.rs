//! A program that is ready to run: checked, compiled once per owner and content hash, and shared between
//! requests.

use std::sync::Arc;
use std::time::Duration;

use query_abi::{CONSTRUCTORS, ENTRY, HOST_MODULE};
use sandbox::{Extern, ExternType, Module, ModuleExport};

use super::engine_shards::ShardedCode;
use super::environment::CEnvironment;
use crate::problem::{ModuleRefusal, QueryError};
use crate::program::ProgramLanguage;
use crate::typescript;

/// A compiled program, which can run any number of times.
#[derive(Clone)]
pub(crate) enum CompiledProgram {
    /// A query module for the C environment.
    C(Arc<ShardedCode<CProgram>>),
    /// JavaScript source, types stripped.
    Javascript(Arc<str>),
    /// A module with its own memory.
    Plain(Arc<ShardedCode<Module>>),
}

impl CompiledProgram {
    /// Returns the name of the program's environment, if it has one.
    pub(crate) fn environment(&self) -> Option<&'static str> {
        match self {
            Self::C(_) => Some(query_abi::ENVIRONMENT_C),
            Self::Javascript(_) => Some(query_abi::ENVIRONMENT_JAVASCRIPT),
            Self::Plain(_) => None,
        }
    }

    /// Returns the program's class as a number: C, JavaScript, plain.
    pub(crate) fn class_index(&self) -> u8 {
        match self {
            Self::C(_) => 0,
            Self::Javascript(_) => 1,
            Self::Plain(_) => 2,
        }
    }

    /// Returns the shard to run in for a thread of shard `own`, and whether to replicate the program to `own`
    /// now. JavaScript runs in any shard.
    pub(crate) fn shard_to_run(&self, own: usize) -> (usize, bool) {
        match self {
            Self::C(program) => program.shard_to_run(own),
            Self::Javascript(_) => (own, false),
            Self::Plain(module) => module.shard_to_run(own),
        }
    }

    /// Returns the compiled module, if there is one.
    pub(crate) fn module(&self) -> Option<&Module> {
        match self {
            Self::C(program) => program.home_code().map(|program| &program.module),
            Self::Javascript(_) => None,
            Self::Plain(module) => module.home_code(),
        }
    }
}

/// A query module with its resolved imports.
pub(crate) struct CProgram {
    pub(crate) module: Module,
    pub(crate) imports: Vec<ImportOrigin>,
    pub(crate) constructors: Option<ModuleExport>,
    pub(crate) entry: ModuleExport,
}

/// The origin of an import.
pub(crate) enum ImportOrigin {
    Environment(ModuleExport),
    Host(String),
}

/// Returns source text for the JavaScript environment. TypeScript types are replaced by spaces, so that lines
/// and columns stay the same as in the author's source.
///
/// The CPU time of the thread that strips types is passed to `elsewhere`.
pub(crate) fn to_javascript(
    language: ProgramLanguage,
    source: &[u8],
    elsewhere: impl FnOnce(Duration),
) -> Result<Arc<str>, QueryError> {
    let text = std::str::from_utf8(source).map_err(|_| QueryError::NotText)?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if language == ProgramLanguage::Javascript {
        return Ok(text.into());
    }
    let (stripped, took) = typescript::strip_timed(text);
    elsewhere(took);
    let stripped = stripped.map_err(|error| QueryError::Syntax {
        message: error.message,
        hint: error.hint,
        line: error.line,
        column: error.column,
    })?;
    Ok(stripped.into())
}

/// Resolves a query module's imports in the environment.
pub(crate) fn link_imports(environment: &CEnvironment, module: Module) -> Result<CProgram, QueryError> {
    let imports =
        module.imports().map(|import| resolve_import(environment, &import)).collect::<Result<_, _>>()?;
    let has_constructors = module.get_export(CONSTRUCTORS).is_some_and(|export| export.func().is_some());
    let constructors = has_constructors.then(|| module.get_export_index(CONSTRUCTORS)).flatten();
    let entry = module.get_export_index(ENTRY).ok_or(ModuleRefusal::NoEntry)?;
    Ok(CProgram { module, imports, constructors, entry })
}

fn resolve_import(
    environment: &CEnvironment,
    import: &sandbox::ImportType<'_>,
) -> Result<ImportOrigin, ModuleRefusal> {
    let (module, name) = (import.module(), import.name());
    if module == HOST_MODULE {
        return Ok(ImportOrigin::Host(name.into()));
    }
    let missing = || ModuleRefusal::Import { module: module.into(), name: name.into() };
    let (export, ty) = environment.export(name).ok_or_else(missing)?;
    if !is_compatible_type(&import.ty(), ty) {
        return Err(ModuleRefusal::ImportType { module: module.into(), name: name.into() });
    }
    Ok(ImportOrigin::Environment(export))
}

/// Whether an export satisfies an import. Function types have to be equal; the engine checks the sizes of
/// memories and tables.
fn is_compatible_type(import: &ExternType, export: &ExternType) -> bool {
    match (import, export) {
        (ExternType::Func(a), ExternType::Func(b)) => a.matches(b),
        (ExternType::Global(a), ExternType::Global(b)) => {
            let same = a.content().matches(b.content()) && b.content().matches(a.content());
            same && a.mutability() == b.mutability()
        }
        (ExternType::Memory(a), ExternType::Memory(b)) => a.minimum() <= b.minimum() && a.maximum().is_none(),
        (ExternType::Table(a), ExternType::Table(b)) => {
            let same = a.element().matches(b.element()) && b.element().matches(a.element());
            same && a.minimum() <= b.minimum() && a.maximum().is_none()
        }
        _ => false,
    }
}

/// The externs of a program's imports in one store.
pub(crate) type ImportExterns = Vec<Extern>;
