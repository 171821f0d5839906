//! Checks a module before it is compiled.
//!
//! A query module shares memory, table and stack with its environment, so its segments must be within the
//! query's regions; the linker does not check that. A violation would harm only the query's own instance, so
//! the check serves its author, with an error that identifies the item. Before that, wasmparser validates the
//! module, with the engine's features.

mod cost;
#[cfg(test)]
pub(crate) mod hostile;

use std::ops::Range;
use std::time::Duration;

use crate::problem::ModuleRefusal;
use query_abi::{
    ALLOC, AbiType, CONSTRUCTORS, ENTRY, ENVIRONMENT_C, HOST_FUNCTIONS, HOST_MODULE, HostFunction, MEMORY,
    layout,
};
use wasmparser::{
    BinaryReaderError, DataKind, ElementItems, ElementKind, ExternalKind, FuncType, FuncValidator,
    FuncValidatorAllocations, FunctionBody, Import, Operator, Parser, Payload, TypeRef, ValType,
    ValidPayload, Validator, WasmFeatures, WasmModuleResources,
};

/// The properties of a valid module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ModuleFacts {
    /// Whether it shares the memory of the C environment, instead of having its own.
    pub(crate) uses_environment: bool,
}

/// Estimates the CPU time to compile a module. Fast enough for a serving thread.
///
/// # Errors
/// If compiling would take too long, or the module can't be parsed.
pub(crate) fn estimate_compile_cost(wasm: &[u8]) -> Result<Duration, ModuleRefusal> {
    if Parser::is_component(wasm) {
        return Err(ModuleRefusal::Component);
    }
    cost::estimate_cost(wasm)
}

/// Checks a module. `has_export` returns whether the C environment exports a name.
///
/// # Errors
/// The first item that does not fit.
pub(crate) fn check_module(
    wasm: &[u8],
    has_export: &dyn Fn(&str) -> bool,
) -> Result<ModuleFacts, ModuleRefusal> {
    estimate_compile_cost(wasm)?;
    validate_module(wasm)?;
    let mut module = ModuleShape::default();
    for payload in Parser::new(0).parse_all(wasm) {
        module.read_payload(payload.map_err(malformed_error)?, has_export)?;
    }
    module.finish()
}

fn malformed_error(error: wasmparser::BinaryReaderError) -> ModuleRefusal {
    ModuleRefusal::Malformed(error.to_string())
}

fn validate_module(wasm: &[u8]) -> Result<(), ModuleRefusal> {
    let off = WasmFeatures::THREADS
        | WasmFeatures::RELAXED_SIMD
        | WasmFeatures::MEMORY64
        | WasmFeatures::MULTI_MEMORY;
    let features = WasmFeatures::default() - off;
    let (mut validator, mut room) =
        (Validator::new_with_features(features), FuncValidatorAllocations::default());
    for payload in Parser::new(0).parse_all(wasm) {
        if let ValidPayload::Func(function, body) =
            validator.payload(&payload.map_err(malformed_error)?).map_err(malformed_error)?
        {
            let mut function = function.into_validator(room);
            let height = validate_body(&mut function, &body).map_err(malformed_error)?;
            cost::check_height(height)?;
            room = function.into_allocations();
        }
    }
    Ok(())
}

/// Validates a function and returns the maximum height of its operand stack.
fn validate_body<T: WasmModuleResources>(
    function: &mut FuncValidator<T>,
    body: &FunctionBody<'_>,
) -> Result<u32, BinaryReaderError> {
    function.read_locals(&mut body.get_binary_reader())?;
    let (mut operators, mut height) = (body.get_operators_reader()?, 0);
    while !operators.eof() {
        let at = operators.original_position();
        operators.visit_operator(&mut function.visitor(at))??;
        height = height.max(function.operand_stack_height());
    }
    operators.finish()?;
    Ok(height)
}

/// The parts of a module that have been read so far.
#[derive(Default)]
struct ModuleShape {
    types: Vec<Option<FuncType>>,
    functions: Vec<u32>,
    uses_environment: bool,
    has_own_memory: bool,
    has_own_table: bool,
    exports_memory: bool,
    alloc: Option<u32>,
    entry: Option<u32>,
    constructors: Option<u32>,
    data: Vec<DataSegment>,
    elements: Vec<DataSegment>,
    offset_error: Option<ModuleRefusal>,
}

struct DataSegment {
    index: u32,
    range: Range<u64>,
}

impl ModuleShape {
    fn read_payload(
        &mut self,
        payload: Payload<'_>,
        has_export: &dyn Fn(&str) -> bool,
    ) -> Result<(), ModuleRefusal> {
        match payload {
            Payload::TypeSection(section) => {
                for group in section {
                    let group = group.map_err(malformed_error)?;
                    self.types.extend(group.into_types().map(|ty| match ty.composite_type.inner {
                        wasmparser::CompositeInnerType::Func(ty) => Some(ty),
                        _ => None,
                    }));
                }
            }
            Payload::ImportSection(section) => {
                for import in section.into_imports() {
                    self.check_import(&import.map_err(malformed_error)?, has_export)?;
                }
            }
            Payload::FunctionSection(section) => {
                for ty in section {
                    self.functions.push(ty.map_err(malformed_error)?);
                }
            }
            Payload::MemorySection(section) => self.has_own_memory |= section.count() > 0,
            Payload::TableSection(section) => self.has_own_table |= section.count() > 0,
            Payload::ExportSection(section) => {
                for export in section {
                    let export = export.map_err(malformed_error)?;
                    match (export.name, export.kind) {
                        (MEMORY, ExternalKind::Memory) => self.exports_memory = true,
                        (ALLOC, ExternalKind::Func) => self.alloc = Some(export.index),
                        (ENTRY, ExternalKind::Func) => self.entry = Some(export.index),
                        (CONSTRUCTORS, ExternalKind::Func) => self.constructors = Some(export.index),
                        _ => {}
                    }
                }
            }
            Payload::ElementSection(section) => {
                for (index, element) in (0..).zip(section) {
                    self.add_element(index, element.map_err(malformed_error)?)?;
                }
            }
            Payload::DataSection(section) => {
                for (index, data) in (0..).zip(section) {
                    self.add_data(index, data.map_err(malformed_error)?);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn check_import(
        &mut self,
        import: &Import<'_>,
        has_export: &dyn Fn(&str) -> bool,
    ) -> Result<(), ModuleRefusal> {
        if let TypeRef::Func(ty) = import.ty {
            self.functions.push(ty);
        }
        let known = match import.module {
            HOST_MODULE => self.is_host_function(import)?,
            ENVIRONMENT_C => {
                self.uses_environment = true;
                has_export(import.name)
            }
            other if other.starts_with("env:") => return Err(ModuleRefusal::Environment(other.into())),
            _ => false,
        };
        let missing = || ModuleRefusal::Import { module: import.module.into(), name: import.name.into() };
        known.then_some(()).ok_or_else(missing)
    }

    /// Whether the host has a function of this name. An error if its type differs.
    fn is_host_function(&self, import: &Import<'_>) -> Result<bool, ModuleRefusal> {
        let Some(function) = HOST_FUNCTIONS.iter().find(|function| function.name == import.name) else {
            return Ok(false);
        };
        let imported = match import.ty {
            TypeRef::Func(ty) => self.types.get(ty as usize).and_then(Option::as_ref),
            _ => None,
        };
        if imported.is_some_and(|ty| has_type(ty, function)) {
            return Ok(true);
        }
        Err(ModuleRefusal::ImportType { module: import.module.into(), name: import.name.into() })
    }

    fn add_element(&mut self, index: u32, element: wasmparser::Element<'_>) -> Result<(), ModuleRefusal> {
        let ElementKind::Active { offset_expr, .. } = element.kind else { return Ok(()) };
        let count = match element.items {
            ElementItems::Functions(functions) => functions.count(),
            ElementItems::Expressions(_, expressions) => expressions.count(),
        };
        match constant_offset(&offset_expr) {
            Some(start) => self.elements.push(DataSegment { index, range: start..start + u64::from(count) }),
            None => {
                self.offset_error =
                    self.offset_error.take().or(Some(ModuleRefusal::Offset { what: "element", index }))
            }
        }
        Ok(())
    }

    fn add_data(&mut self, index: u32, data: wasmparser::Data<'_>) {
        let DataKind::Active { offset_expr, .. } = data.kind else { return };
        match constant_offset(&offset_expr) {
            Some(start) => {
                self.data.push(DataSegment { index, range: start..start + data.data.len() as u64 })
            }
            None => {
                self.offset_error =
                    self.offset_error.take().or(Some(ModuleRefusal::Offset { what: "data", index }))
            }
        }
    }

    fn finish(self) -> Result<ModuleFacts, ModuleRefusal> {
        if self.uses_environment {
            self.check_shared()?;
        } else {
            self.check_plain()?;
        }
        let entry = self.entry.ok_or(ModuleRefusal::NoEntry)?;
        self.check_type(ENTRY, entry, (&[ValType::I32, ValType::I32], &[]), "(i32, i32)")?;
        if let Some(constructors) = self.constructors {
            self.check_type(CONSTRUCTORS, constructors, (&[], &[]), "()")?;
        }
        Ok(ModuleFacts { uses_environment: self.uses_environment })
    }

    /// Checks a module with its own memory, which the host has to be able to access.
    fn check_plain(&self) -> Result<(), ModuleRefusal> {
        if !self.has_own_memory {
            return Err(ModuleRefusal::NoMemory);
        }
        if !self.exports_memory {
            return Err(ModuleRefusal::HiddenMemory);
        }
        match self.alloc {
            Some(alloc) => self.check_type(ALLOC, alloc, (&[ValType::I32], &[ValType::I32]), "(i32) -> i32"),
            None => Ok(()),
        }
    }

    /// Checks a module that shares its environment's memory and table.
    fn check_shared(&self) -> Result<(), ModuleRefusal> {
        if self.has_own_memory {
            return Err(ModuleRefusal::OwnMemory);
        }
        if self.has_own_table {
            return Err(ModuleRefusal::OwnTable);
        }
        if let Some(refusal) = &self.offset_error {
            return Err(refusal.clone());
        }
        if let Some(DataSegment { index, range }) = find_outside(&self.data, &layout::QUERY_DATA) {
            return Err(ModuleRefusal::DataRegion { index: *index, start: range.start, end: range.end });
        }
        if let Some(DataSegment { index, range }) = find_outside(&self.elements, &layout::QUERY_TABLE) {
            return Err(ModuleRefusal::TableRegion { index: *index, start: range.start, end: range.end });
        }
        Ok(())
    }

    fn check_type(
        &self,
        name: &'static str,
        function: u32,
        (params, results): (&[ValType], &[ValType]),
        expected: &'static str,
    ) -> Result<(), ModuleRefusal> {
        let ty = self.functions.get(function as usize).and_then(|ty| self.types.get(*ty as usize));
        let Some(Some(ty)) = ty else { return Err(ModuleRefusal::NoEntry) };
        if ty.params() == params && ty.results() == results {
            return Ok(());
        }
        Err(ModuleRefusal::Signature { name, found: ty.to_string(), expected })
    }
}

fn has_type(ty: &FuncType, function: &HostFunction) -> bool {
    let core = |ty: AbiType| match ty {
        AbiType::I32 => ValType::I32,
        AbiType::I64 => ValType::I64,
    };
    let params = function.params.iter().map(|(_, _, ty)| core(*ty));
    let results = function.result.iter().map(|(_, ty)| core(*ty));
    params.eq(ty.params().iter().copied()) && results.eq(ty.results().iter().copied())
}

fn find_outside<'a>(segments: &'a [DataSegment], region: &Range<u32>) -> Option<&'a DataSegment> {
    let fits = |range: &Range<u64>| range.start >= region.start.into() && range.end <= region.end.into();
    segments.iter().find(|segment| !segment.range.is_empty() && !fits(&segment.range))
}

fn constant_offset(expression: &wasmparser::ConstExpr<'_>) -> Option<u64> {
    let mut operators = expression.get_operators_reader();
    match (operators.read().ok()?, operators.read().ok()?) {
        (Operator::I32Const { value }, Operator::End) => Some(u64::from(value.cast_unsigned())),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
