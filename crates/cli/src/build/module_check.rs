//! Checks whether a linked module fits into the environment: its regions of memory and table, and the
//! functions that it imports. The gateway repeats the checks, since modules come from any source; here the
//! errors are reported early and in terms of the program.
use std::collections::BTreeMap;

use query_abi::{AbiType, ENTRY, ENVIRONMENT_C, HOST_FUNCTIONS, HOST_MODULE, LINKER_MODULE, layout};
use wasmparser::{
    ConstExpr, Data, DataKind, Element, ElementItems, ElementKind, ExternalKind, FuncType, Operator, Parser,
    Payload, TypeRef, ValType,
};

use super::error::BuildError;

/// The linker's symbol for the end of a program's data, zeroed variables included.
pub(super) const DATA_END: &str = "__data_end";
/// The similarity above which a name is suggested.
const MIN_SIMILARITY: f64 = 0.75;

/// The parts of a module that the checks need.
#[derive(Default)]
struct ModuleOutline {
    types: Vec<Option<FuncType>>,
    /// The type index of every function, imported ones first.
    functions: Vec<u32>,
    imports: Vec<(String, String, TypeRef)>,
    exports: BTreeMap<String, (ExternalKind, u32)>,
    globals: Vec<Option<u32>>,
    data_ends: Vec<u64>,
    table_ends: Vec<u64>,
}

/// Checks a linked module against the environment `environment`.
pub(super) fn check_module(linked: &[u8], environment: &[u8]) -> Result<(), BuildError> {
    let module = ModuleOutline::parse(linked)?;
    let environment = ModuleOutline::parse(environment)?.exported_functions();
    for (from, name, ty) in &module.imports {
        if let TypeRef::Func(index) = ty {
            check_function(from, name, module.function_type(*index), &environment)?;
        } else if from != LINKER_MODULE {
            return Err(BuildError::ForeignImport(format!("{from}.{name}")));
        }
    }
    module.check_entry()?;
    module.check_regions()
}

fn check_function(
    from: &str,
    name: &str,
    declared: Option<&FuncType>,
    environment: &BTreeMap<String, FuncType>,
) -> Result<(), BuildError> {
    let promised = match from {
        LINKER_MODULE => environment.get(name).cloned().ok_or_else(|| unknown_function(name, environment))?,
        HOST_MODULE => host_function(name).ok_or_else(|| foreign_import(from, name))?,
        _ => return Err(foreign_import(from, name)),
    };
    if declared == Some(&promised) {
        return Ok(());
    }
    let declared = declared.map_or_else(String::new, format_type);
    Err(BuildError::FunctionSignature { name: name.to_owned(), declared, promised: format_type(&promised) })
}

fn foreign_import(from: &str, name: &str) -> BuildError {
    BuildError::ForeignImport(format!("{from}.{name}"))
}

fn unknown_function(name: &str, environment: &BTreeMap<String, FuncType>) -> BuildError {
    let near = environment.keys().map(|known| (strsim::jaro_winkler(name, known), known));
    let best = near.max_by(|a, b| a.0.total_cmp(&b.0)).filter(|(likeness, _)| *likeness > MIN_SIMILARITY);
    let hint = match name {
        "printf" | "puts" | "putchar" | "fprintf" | "perror" => "; to print, use `orfa_log`".to_owned(),
        "exit" | "_Exit" => "; to give up, use `orfa_fail`".to_owned(),
        _ => best.map_or_else(String::new, |(_, known)| format!("; did you mean `{known}`?")),
    };
    BuildError::UnknownFunction { environment: ENVIRONMENT_C, name: name.to_owned(), hint }
}

fn host_function(name: &str) -> Option<FuncType> {
    let function = HOST_FUNCTIONS.iter().find(|function| function.name == name)?;
    let params = function.params.iter().map(|(_, _, ty)| value_type(*ty));
    Some(FuncType::new(params, function.result.map(|(_, ty)| value_type(ty))))
}

fn value_type(ty: AbiType) -> ValType {
    match ty {
        AbiType::I32 => ValType::I32,
        AbiType::I64 => ValType::I64,
    }
}

fn format_type(ty: &FuncType) -> String {
    let list = |types: &[ValType]| types.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    format!("({}) -> ({})", list(ty.params()), list(ty.results()))
}

impl ModuleOutline {
    fn parse(wasm: &[u8]) -> Result<Self, BuildError> {
        let mut outline = Self::default();
        for payload in Parser::new(0).parse_all(wasm) {
            outline.read_section(payload?)?;
        }
        Ok(outline)
    }

    fn read_section(&mut self, payload: Payload<'_>) -> Result<(), BuildError> {
        match payload {
            Payload::TypeSection(section) => {
                for group in section {
                    let types = group?.into_types();
                    self.types.extend(types.map(|ty| match ty.composite_type.inner {
                        wasmparser::CompositeInnerType::Func(function) => Some(function),
                        _ => None,
                    }));
                }
            }
            Payload::ImportSection(section) => {
                for import in section.into_imports() {
                    let import = import?;
                    if let TypeRef::Func(index) = import.ty {
                        self.functions.push(index);
                    }
                    self.imports.push((import.module.to_owned(), import.name.to_owned(), import.ty));
                }
            }
            Payload::FunctionSection(section) => {
                for index in section {
                    self.functions.push(index?);
                }
            }
            Payload::GlobalSection(section) => {
                for global in section {
                    self.globals.push(constant_value(&global?.init_expr));
                }
            }
            Payload::ExportSection(section) => {
                for export in section {
                    let export = export?;
                    self.exports.insert(export.name.to_owned(), (export.kind, export.index));
                }
            }
            Payload::ElementSection(section) => {
                for element in section {
                    self.table_ends.push(element_end(&element?)?);
                }
            }
            Payload::DataSection(section) => {
                for data in section {
                    self.data_ends.push(data_end(&data?)?);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn function_type(&self, type_index: u32) -> Option<&FuncType> {
        self.types.get(type_index as usize)?.as_ref()
    }

    fn exported_functions(&self) -> BTreeMap<String, FuncType> {
        let functions = self.exports.iter().filter(|(_, (kind, _))| *kind == ExternalKind::Func);
        let typed = functions.filter_map(|(name, (_, index))| {
            let ty = self.function_type(*self.functions.get(*index as usize)?)?;
            Some((name.clone(), ty.clone()))
        });
        typed.collect()
    }

    fn check_entry(&self) -> Result<(), BuildError> {
        let promised = FuncType::new([ValType::I32, ValType::I32], []);
        match self.exported_functions().get(ENTRY) {
            Some(ty) if *ty == promised => Ok(()),
            Some(ty) => Err(BuildError::EntrySignature(format_type(ty))),
            None => Err(BuildError::NoEntry),
        }
    }

    fn check_regions(&self) -> Result<(), BuildError> {
        // Zeroed variables are in no segment, so the linker's end of data counts too.
        let exported = self.exports.get(DATA_END).map(|(_, index)| *index as usize);
        let of_linker = exported.and_then(|index| self.globals.get(index).copied().flatten()).map(u64::from);
        let end = self.data_ends.iter().copied().chain(of_linker).max().unwrap_or(0);
        let limit = u64::from(layout::QUERY_DATA.end);
        if end > limit {
            return Err(BuildError::DataOverrun { over: end - limit, room: layout::QUERY_DATA.len() });
        }
        let end = self.table_ends.iter().copied().max().unwrap_or(0);
        if end > u64::from(layout::QUERY_TABLE.end) {
            return Err(BuildError::TableOverrun { functions: end - u64::from(layout::QUERY_TABLE.start) });
        }
        Ok(())
    }
}

fn data_end(data: &Data<'_>) -> Result<u64, BuildError> {
    let DataKind::Active { memory_index: 0, offset_expr } = &data.kind else {
        return Err(BuildError::Malformed("a data segment is not active".into()));
    };
    Ok(u64::from(constant_value(offset_expr).unwrap_or(0)) + data.data.len() as u64)
}

fn element_end(element: &Element<'_>) -> Result<u64, BuildError> {
    let (ElementKind::Active { offset_expr, .. }, ElementItems::Functions(functions)) =
        (&element.kind, &element.items)
    else {
        return Err(BuildError::Malformed("an element segment is not a list of functions".into()));
    };
    Ok(u64::from(constant_value(offset_expr).unwrap_or(0)) + u64::from(functions.count()))
}

/// The value of an expression that consists of one `i32.const`.
fn constant_value(expression: &ConstExpr<'_>) -> Option<u32> {
    match expression.get_operators_reader().read() {
        Ok(Operator::I32Const { value }) => Some(value.cast_unsigned()),
        _ => None,
    }
}
