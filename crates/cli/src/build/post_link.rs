//! Converts a linked module to a guest of an environment. Code, types and indices stay as the linker left
//! them; only the other sections change:
//!
//! - The stack pointer is the linker's first global. As an import it is the first global too, so no
//!   instruction has to be rewritten.
//! - Imports from `env` become imports from the environment's versioned name.
//! - The table is imported only if it is used, and only functions that the gateway calls are exported.
//! - Custom sections are removed, and the `orfa` section is added on request.
use query_abi::{CONSTRUCTORS, ENTRY, LINKER_MODULE, SECTION, STACK_POINTER};
use wasm_encoder::reencode::{Reencode, RoundtripReencoder};
use wasm_encoder::{
    CustomSection, ExportSection, GlobalSection, GlobalType, ImportSection, Module, RawSection, ValType,
};
use wasmparser::{FunctionBody, ImportSectionReader, Operator, Parser, Payload, TypeRef};

use super::ModuleMetadata;
use super::error::BuildError;

/// Facts that are needed before the first section is written.
#[derive(Default)]
struct PostLinkPlan {
    /// Whether the linker's first global is the stack pointer.
    has_stack: bool,
    uses_globals: bool,
    uses_table: bool,
}

/// Rewrites a linked module for an environment.
pub(super) fn rewrite(
    linked: &[u8],
    environment: &str,
    metadata: Option<&ModuleMetadata>,
) -> Result<Vec<u8>, BuildError> {
    let plan = PostLinkPlan::from_module(linked)?;
    let mut module = Module::new();
    for payload in Parser::new(0).parse_all(linked) {
        match &payload? {
            Payload::ImportSection(section) => {
                module.section(&rewrite_imports(section, &plan, environment)?);
            }
            Payload::GlobalSection(section) => {
                let globals = rewrite_globals(section, &plan)?;
                if !globals.is_empty() {
                    module.section(&globals);
                }
            }
            Payload::ExportSection(section) => {
                module.section(&rewrite_exports(section)?);
            }
            Payload::CustomSection(_) => {}
            other => {
                if let Some((id, range)) = other.as_section() {
                    let data = linked.get(range).ok_or_else(|| malformed("a section ends too early"))?;
                    module.section(&RawSection { id, data });
                }
            }
        }
    }
    if let Some(metadata) = metadata {
        let text = serde_json::to_vec(metadata).map_err(malformed)?;
        module.section(&CustomSection { name: SECTION.into(), data: text.into() });
    }
    Ok(module.finish())
}

impl PostLinkPlan {
    fn from_module(linked: &[u8]) -> Result<Self, BuildError> {
        let mut plan = Self::default();
        for payload in Parser::new(0).parse_all(linked) {
            match payload? {
                Payload::GlobalSection(section) => {
                    let first = section.into_iter().next().transpose()?;
                    plan.has_stack = first.is_some_and(|global| global.ty.mutable);
                }
                Payload::ElementSection(section) => plan.uses_table |= section.count() > 0,
                Payload::CodeSectionEntry(body) => plan.scan_code(&body)?,
                _ => {}
            }
        }
        Ok(plan)
    }

    fn scan_code(&mut self, body: &FunctionBody<'_>) -> Result<(), BuildError> {
        for operator in body.get_operators_reader()? {
            match operator? {
                Operator::CallIndirect { .. } => self.uses_table = true,
                Operator::GlobalGet { .. } | Operator::GlobalSet { .. } => self.uses_globals = true,
                _ => {}
            }
        }
        Ok(())
    }
}

fn rewrite_imports(
    section: &ImportSectionReader<'_>,
    plan: &PostLinkPlan,
    environment: &str,
) -> Result<ImportSection, BuildError> {
    let mut imports = ImportSection::new();
    for import in section.clone().into_imports() {
        let import = import?;
        if matches!(import.ty, TypeRef::Table(_)) && !plan.uses_table {
            continue;
        }
        let from = if import.module == LINKER_MODULE { environment } else { import.module };
        imports.import(from, import.name, RoundtripReencoder.entity_type(import.ty).map_err(malformed)?);
    }
    if plan.has_stack && plan.uses_globals {
        let stack_pointer = GlobalType { val_type: ValType::I32, mutable: true, shared: false };
        imports.import(environment, STACK_POINTER, stack_pointer);
    }
    Ok(imports)
}

/// Returns the globals without the stack pointer, which is first, and `__data_end`, which code can't
/// reference: the linker puts exported addresses last, as constants.
fn rewrite_globals(
    section: &wasmparser::GlobalSectionReader<'_>,
    plan: &PostLinkPlan,
) -> Result<GlobalSection, BuildError> {
    let mut kept = GlobalSection::new();
    for global in section.clone().into_iter().skip(usize::from(plan.has_stack)) {
        let global = global?;
        if global.ty.mutable {
            let init = RoundtripReencoder.const_expr(global.init_expr).map_err(malformed)?;
            kept.global(RoundtripReencoder.global_type(global.ty).map_err(malformed)?, &init);
        }
    }
    Ok(kept)
}

fn rewrite_exports(section: &wasmparser::ExportSectionReader<'_>) -> Result<ExportSection, BuildError> {
    let mut exports = ExportSection::new();
    for export in section.clone() {
        let export = export?;
        if [ENTRY, CONSTRUCTORS].contains(&export.name) {
            let kind = RoundtripReencoder.export_kind(export.kind).map_err(malformed)?;
            exports.export(export.name, kind, export.index);
        }
    }
    Ok(exports)
}

fn malformed(error: impl ToString) -> BuildError {
    BuildError::Malformed(error.to_string())
}
