//! Bounds the cost of compiling a module before any of it is compiled.
//!
//! The compiler can't be interrupted, and takes far longer for some modules than their size suggests. A group
//! of 50,000 locals takes four bytes, but each local is a variable in the compiler; a loop takes four bytes,
//! but needs a value for each variable that changes in it; loops, calls and branches of a function take
//! quadratic time. One pass over the bytes therefore counts the expensive items, and modules with too high a
//! total are rejected. The prices were measured one at a time with the modules of `hostile.rs` and the engine
//! as built for tests, which is slower than in a release build. They are meant to ensure that no module with
//! a cost below [`MAX_COST`] takes many times longer.

use std::collections::BTreeSet;
use std::time::Duration;

use query_abi::MODULE_BYTES;
use wasmparser::{
    BinaryReaderError, CompositeInnerType, ElementItems, ExternalKind, FunctionBody, Operator, Parser,
    Payload, TypeSectionReader,
};

use super::{ModuleRefusal, malformed_error};

/// The maximum number of functions, types, exports, segments and so on, for each kind.
const MAX_ITEMS: u64 = 2_000;
/// The maximum number of parameters and results of a type, or of its fields.
const MAX_VALUES: u64 = 32;
/// The maximum number of locals in all functions together, without parameters.
const MAX_LOCALS: u64 = 64 << 10;
/// The maximum nesting of blocks (a C switch takes one per case), and of loops.
const MAX_DEPTH: u64 = 1_500;
const MAX_LOOP_DEPTH: u64 = 32;
/// The maximum height of the operand stack, whose values are all in use at once.
const MAX_HEIGHT: u64 = 1_000;
/// The maximum of blocks and branches times variables, summed over all functions. The compiler has a table of
/// this size.
const MAX_FLOW: u64 = 4 << 20;
/// The maximum cost of a module of up to [`MODULE_BYTES`].
const MAX_COST: Duration = Duration::from_millis(1_500);
/// The cost that each further byte allows, in nanoseconds: twice that of compiled C. Only the operator's
/// `program` limit admits such modules.
const COST_OF_BYTE: u64 = 10_000;

/// Prices in nanoseconds.
mod price {
    pub(super) const FUNCTION: u64 = 120_000;
    /// For each function that is exported or in a table, which needs a second entry.
    pub(super) const ENTRY: u64 = 120_000;
    pub(super) const TYPE: u64 = 200_000;
    pub(super) const LOCAL: u64 = 100;
    pub(super) const OPERATOR: u64 = 4_000;
    /// Arithmetic that the optimiser rewrites.
    pub(super) const ARITHMETIC: u64 = 30_000;
    /// Arithmetic whose result may have to be canonicalised.
    pub(super) const FLOAT: u64 = 45_000;
    pub(super) const CALL: u64 = 10_000;
    pub(super) const INDIRECT_CALL: u64 = 70_000;
    pub(super) const BLOCK: u64 = 25_000;
    pub(super) const LOOP: u64 = 65_000;
    pub(super) const TARGET: u64 = 3_000;
    /// For each variable that changes in a loop.
    pub(super) const LOOP_VARIABLE: u64 = 40_000;
    /// For each variable, per block or branch, and per target of a table.
    pub(super) const FLOW: u64 = 160;
    pub(super) const TABLE_FLOW: u64 = 900;
}

/// The square roots of prices with a quadratic part. A function's are summed, and the square of the sum is
/// added to its price.
mod pairs {
    pub(super) const LOOP: u64 = 11;
    pub(super) const CALL: u64 = 6;
    pub(super) const BLOCK: u64 = 3;
    /// For each variable that is written, as all of them may be in use at once.
    pub(super) const VARIABLE: u64 = 7;
}

/// Estimates the CPU time to compile a module. The module need not be valid, since validation is included in
/// the prices. Takes a fraction of a millisecond for 64 KiB.
///
/// # Errors
/// The first number that is too large, or a parse error.
pub(crate) fn estimate_cost(wasm: &[u8]) -> Result<Duration, ModuleRefusal> {
    let more = wasm.len().saturating_sub(MODULE_BYTES) as u64;
    let most = to_nanos(MAX_COST).saturating_add(more.saturating_mul(COST_OF_BYTE));
    let mut cost = CompileCost { max_nanos: most, ..CompileCost::default() };
    for payload in Parser::new(0).parse_all(wasm) {
        cost.add_payload(payload.map_err(malformed_error)?)?;
    }
    Ok(Duration::from_nanos(cost.nanos))
}

/// Checks the height of a function's operand stack.
///
/// # Errors
/// If it is too high.
pub(super) fn check_height(height: u32) -> Result<(), ModuleRefusal> {
    check_bound("values on the operand stack", u64::from(height), MAX_HEIGHT)
}

/// The cost of a module, for the part that has been read.
#[derive(Default)]
struct CompileCost {
    nanos: u64,
    /// The maximum cost.
    max_nanos: u64,
    /// The number of parameters of each type.
    types: Vec<u64>,
    /// The types of the functions that the module defines.
    functions: Vec<u32>,
    /// The number of function bodies that have been read.
    bodies: usize,
    locals: u64,
    flow: u64,
}

impl CompileCost {
    fn add_payload(&mut self, payload: Payload<'_>) -> Result<(), ModuleRefusal> {
        match payload {
            Payload::TypeSection(section) => self.add_types(section),
            Payload::ImportSection(section) => {
                let count = section.into_imports().count() as u64;
                // Functions of the host are called through functions that are added to the module.
                self.add_items("imports", count, price::TYPE + price::FUNCTION)
            }
            Payload::FunctionSection(section) => {
                self.add_items("functions", u64::from(section.count()), price::FUNCTION)?;
                self.functions = section.into_iter().collect::<Result<_, _>>().map_err(malformed_error)?;
                Ok(())
            }
            Payload::TableSection(section) => self.add_items("tables", u64::from(section.count()), 0),
            Payload::TagSection(section) => self.add_items("tags", u64::from(section.count()), 0),
            Payload::GlobalSection(section) => self.add_items("globals", u64::from(section.count()), 0),
            Payload::ExportSection(section) => {
                self.add_items("exports", u64::from(section.count()), 0)?;
                let is_function = |export: wasmparser::Export<'_>| export.kind == ExternalKind::Func;
                let functions =
                    section.into_iter().filter_map(Result::ok).filter(|export| is_function(*export));
                self.add_cost(functions.count() as u64, price::ENTRY)
            }
            Payload::ElementSection(section) => {
                self.add_items("element segments", u64::from(section.count()), 0)?;
                for element in section {
                    let count = match element.map_err(malformed_error)?.items {
                        ElementItems::Functions(functions) => functions.count(),
                        ElementItems::Expressions(_, expressions) => expressions.count(),
                    };
                    self.add_cost(u64::from(count), price::ENTRY)?;
                }
                Ok(())
            }
            Payload::DataSection(section) => self.add_items("data segments", u64::from(section.count()), 0),
            Payload::CodeSectionStart { count, .. } => self.add_items("functions", u64::from(count), 0),
            Payload::CodeSectionEntry(body) => self.add_function(&body),
            _ => Ok(()),
        }
    }

    fn add_types(&mut self, section: TypeSectionReader<'_>) -> Result<(), ModuleRefusal> {
        for group in section {
            for ty in group.map_err(malformed_error)?.into_types() {
                let (params, values) = match ty.composite_type.inner {
                    CompositeInnerType::Func(ty) => {
                        (ty.params().len(), ty.params().len() + ty.results().len())
                    }
                    CompositeInnerType::Struct(ty) => (0, ty.fields.len()),
                    CompositeInnerType::Array(_) | CompositeInnerType::Cont(_) => (0, 1),
                };
                check_bound("values in one type", values as u64, MAX_VALUES)?;
                self.types.push(params as u64);
                self.add_items("types", self.types.len() as u64, 0)?;
                self.add_cost(1, price::TYPE)?;
            }
        }
        Ok(())
    }

    fn add_function(&mut self, body: &FunctionBody<'_>) -> Result<(), ModuleRefusal> {
        let ty = self.functions.get(self.bodies);
        let params = ty.and_then(|ty| self.types.get(*ty as usize)).copied().unwrap_or_default();
        self.bodies += 1;
        let locals = count_locals(body).map_err(malformed_error)?;
        self.locals = self.locals.saturating_add(locals);
        check_bound("locals", self.locals, MAX_LOCALS)?;
        self.add_cost(locals, price::LOCAL)?;
        let mut cost = FunctionCost { variables: locals + params, ..FunctionCost::default() };
        let mut operators = body.get_operators_reader().map_err(malformed_error)?;
        while !operators.eof() {
            cost.add_operator(&operators.read().map_err(malformed_error)?)?;
            if cost.nanos > self.max_nanos {
                break;
            }
        }
        self.flow = self.flow.saturating_add(cost.edges.saturating_mul(cost.variables));
        check_bound("branches times locals", self.flow, MAX_FLOW)?;
        self.add_cost(1, cost.total_cost())
    }

    fn add_items(&mut self, what: &'static str, count: u64, price: u64) -> Result<(), ModuleRefusal> {
        check_bound(what, count, MAX_ITEMS)?;
        self.add_cost(count, price)
    }

    fn add_cost(&mut self, count: u64, price: u64) -> Result<(), ModuleRefusal> {
        self.nanos = self.nanos.saturating_add(count.saturating_mul(price));
        if self.nanos > self.max_nanos { Err(ModuleRefusal::CompileCost) } else { Ok(()) }
    }
}

/// The cost of a function, for the part that has been read.
#[derive(Default)]
struct FunctionCost {
    nanos: u64,
    pairs: u64,
    /// The edges of the control flow graph, from a block to the next and from a branch to its target.
    edges: u64,
    /// The edges to targets of branch tables.
    targets: u64,
    /// The number of parameters and locals, and the number of writes to them.
    variables: u64,
    writes: u64,
    /// The open blocks. For loops, the variables that change in them.
    open_blocks: Vec<Option<BTreeSet<u32>>>,
    loops: u64,
}

impl FunctionCost {
    fn add_operator(&mut self, operator: &Operator<'_>) -> Result<(), ModuleRefusal> {
        let price = match operator {
            Operator::Block { .. } | Operator::If { .. } | Operator::TryTable { .. } => {
                self.open_blocks.push(None);
                self.add_branch(2)
            }
            Operator::Loop { .. } => {
                self.open_blocks.push(Some(BTreeSet::new()));
                self.loops += 1;
                check_bound("nested loops", self.loops, MAX_LOOP_DEPTH)?;
                self.pairs += pairs::LOOP;
                self.add_branch(2);
                price::LOOP
            }
            Operator::End => {
                self.end_block();
                // A check may be added after a block (`Sandbox::compile_untrusted`).
                price::OPERATOR + self.add_call(price::CALL)
            }
            Operator::Else => self.add_branch(1) + self.add_call(price::CALL),
            Operator::Br { .. }
            | Operator::BrIf { .. }
            | Operator::BrOnNull { .. }
            | Operator::BrOnNonNull { .. }
            | Operator::BrOnCast { .. }
            | Operator::BrOnCastFail { .. } => self.add_branch(1),
            Operator::BrTable { targets } => {
                let count = u64::from(targets.len()) + 1;
                self.targets += count;
                self.add_branch(count);
                price::BLOCK + count * price::TARGET
            }
            Operator::Return | Operator::Unreachable => self.add_branch(0),
            Operator::LocalSet { local_index } | Operator::LocalTee { local_index } => {
                self.writes += 1;
                self.change_variable(*local_index);
                price::OPERATOR
            }
            Operator::ReturnCall { .. } => self.add_call(price::CALL),
            Operator::ReturnCallIndirect { .. } | Operator::ReturnCallRef { .. } => {
                self.add_call(price::INDIRECT_CALL)
            }
            // A check is added after a call.
            Operator::Call { .. } => self.add_call(price::CALL) + self.add_call(price::CALL),
            Operator::CallIndirect { .. } | Operator::CallRef { .. } => {
                self.add_call(price::INDIRECT_CALL) + self.add_call(price::CALL)
            }
            operator => plain_price(operator, self),
        };
        self.nanos = self.nanos.saturating_add(price);
        check_bound("nested blocks", self.open_blocks.len() as u64, MAX_DEPTH)
    }

    fn add_branch(&mut self, edges: u64) -> u64 {
        self.edges += edges;
        self.pairs += pairs::BLOCK;
        price::BLOCK
    }

    fn add_call(&mut self, price: u64) -> u64 {
        self.pairs += pairs::CALL;
        price
    }

    /// Records that a variable changes in the innermost loop.
    fn change_variable(&mut self, variable: u32) {
        if let Some(changed) = self.open_blocks.iter_mut().rev().flatten().next()
            && changed.insert(variable)
        {
            self.nanos = self.nanos.saturating_add(price::LOOP_VARIABLE);
        }
    }

    /// Variables that change in a loop change in the enclosing loops as well.
    fn end_block(&mut self) {
        if let Some(Some(changed)) = self.open_blocks.pop() {
            self.loops -= 1;
            changed.into_iter().for_each(|variable| self.change_variable(variable));
        }
    }

    fn total_cost(&self) -> u64 {
        let flow = (self.edges.saturating_mul(price::FLOW))
            .saturating_add(self.targets.saturating_mul(price::TABLE_FLOW))
            .saturating_mul(self.variables);
        let pairs = self.pairs + self.writes.min(self.variables) * pairs::VARIABLE;
        self.nanos.saturating_add(flow).saturating_add(pairs.saturating_mul(pairs))
    }
}

/// Returns the price of an operator without further effects.
fn plain_price(operator: &Operator<'_>, function: &mut FunctionCost) -> u64 {
    match operator {
        Operator::F32Eq
        | Operator::F32Ne
        | Operator::F32Lt
        | Operator::F32Gt
        | Operator::F32Le
        | Operator::F32Ge
        | Operator::F64Eq
        | Operator::F64Ne
        | Operator::F64Lt
        | Operator::F64Gt
        | Operator::F64Le
        | Operator::F64Ge
        | Operator::F32Abs
        | Operator::F32Neg
        | Operator::F32Ceil
        | Operator::F32Floor
        | Operator::F32Trunc
        | Operator::F32Nearest
        | Operator::F32Sqrt
        | Operator::F32Add
        | Operator::F32Sub
        | Operator::F32Mul
        | Operator::F32Div
        | Operator::F32Min
        | Operator::F32Max
        | Operator::F32Copysign
        | Operator::F64Abs
        | Operator::F64Neg
        | Operator::F64Ceil
        | Operator::F64Floor
        | Operator::F64Trunc
        | Operator::F64Nearest
        | Operator::F64Sqrt
        | Operator::F64Add
        | Operator::F64Sub
        | Operator::F64Mul
        | Operator::F64Div
        | Operator::F64Min
        | Operator::F64Max
        | Operator::F64Copysign
        | Operator::F32ConvertI32S
        | Operator::F32ConvertI32U
        | Operator::F32ConvertI64S
        | Operator::F32ConvertI64U
        | Operator::F32DemoteF64
        | Operator::F64ConvertI32S
        | Operator::F64ConvertI32U
        | Operator::F64ConvertI64S
        | Operator::F64ConvertI64U
        | Operator::F64PromoteF32
        | Operator::I32TruncF32S
        | Operator::I32TruncF32U
        | Operator::I32TruncF64S
        | Operator::I32TruncF64U
        | Operator::I64TruncF32S
        | Operator::I64TruncF32U
        | Operator::I64TruncF64S
        | Operator::I64TruncF64U
        | Operator::I32TruncSatF32S
        | Operator::I32TruncSatF32U
        | Operator::I32TruncSatF64S
        | Operator::I32TruncSatF64U
        | Operator::I64TruncSatF32S
        | Operator::I64TruncSatF32U
        | Operator::I64TruncSatF64S
        | Operator::I64TruncSatF64U
        | Operator::F32x4Eq
        | Operator::F32x4Ne
        | Operator::F32x4Lt
        | Operator::F32x4Gt
        | Operator::F32x4Le
        | Operator::F32x4Ge
        | Operator::F64x2Eq
        | Operator::F64x2Ne
        | Operator::F64x2Lt
        | Operator::F64x2Gt
        | Operator::F64x2Le
        | Operator::F64x2Ge
        | Operator::F32x4Ceil
        | Operator::F32x4Floor
        | Operator::F32x4Trunc
        | Operator::F32x4Nearest
        | Operator::F32x4Abs
        | Operator::F32x4Neg
        | Operator::F32x4Sqrt
        | Operator::F32x4Add
        | Operator::F32x4Sub
        | Operator::F32x4Mul
        | Operator::F32x4Div
        | Operator::F32x4Min
        | Operator::F32x4Max
        | Operator::F32x4PMin
        | Operator::F32x4PMax
        | Operator::F64x2Ceil
        | Operator::F64x2Floor
        | Operator::F64x2Trunc
        | Operator::F64x2Nearest
        | Operator::F64x2Abs
        | Operator::F64x2Neg
        | Operator::F64x2Sqrt
        | Operator::F64x2Add
        | Operator::F64x2Sub
        | Operator::F64x2Mul
        | Operator::F64x2Div
        | Operator::F64x2Min
        | Operator::F64x2Max
        | Operator::F64x2PMin
        | Operator::F64x2PMax
        | Operator::F32x4ConvertI32x4S
        | Operator::F32x4ConvertI32x4U
        | Operator::F64x2ConvertLowI32x4S
        | Operator::F64x2ConvertLowI32x4U
        | Operator::F32x4DemoteF64x2Zero
        | Operator::F64x2PromoteLowF32x4 => price::FLOAT,
        Operator::I32Add
        | Operator::I32Sub
        | Operator::I32Mul
        | Operator::I32DivS
        | Operator::I32DivU
        | Operator::I32RemS
        | Operator::I32RemU
        | Operator::I32And
        | Operator::I32Or
        | Operator::I32Xor
        | Operator::I32Shl
        | Operator::I32ShrS
        | Operator::I32ShrU
        | Operator::I32Rotl
        | Operator::I32Rotr
        | Operator::I64Add
        | Operator::I64Sub
        | Operator::I64Mul
        | Operator::I64DivS
        | Operator::I64DivU
        | Operator::I64RemS
        | Operator::I64RemU
        | Operator::I64And
        | Operator::I64Or
        | Operator::I64Xor
        | Operator::I64Shl
        | Operator::I64ShrS
        | Operator::I64ShrU
        | Operator::I64Rotl
        | Operator::I64Rotr
        | Operator::I64Add128
        | Operator::I64Sub128
        | Operator::I64MulWideS
        | Operator::I64MulWideU => price::ARITHMETIC,
        Operator::MemorySize { .. }
        | Operator::MemoryGrow { .. }
        | Operator::MemoryInit { .. }
        | Operator::MemoryCopy { .. }
        | Operator::MemoryFill { .. }
        | Operator::TableInit { .. }
        | Operator::TableCopy { .. }
        | Operator::TableFill { .. }
        | Operator::TableGet { .. }
        | Operator::TableSet { .. }
        | Operator::TableGrow { .. }
        | Operator::TableSize { .. } => function.add_call(price::INDIRECT_CALL),
        _ => price::OPERATOR,
    }
}

fn count_locals(body: &FunctionBody<'_>) -> Result<u64, BinaryReaderError> {
    let groups = body.get_locals_reader()?.into_iter();
    groups.map(|group| group.map(|(count, _)| u64::from(count))).sum()
}

fn check_bound(what: &'static str, found: u64, limit: u64) -> Result<(), ModuleRefusal> {
    if found > limit { Err(ModuleRefusal::Complexity { what, found, limit }) } else { Ok(()) }
}

fn to_nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
