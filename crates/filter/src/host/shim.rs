//! The allocation shim: a small module next to each instance, through which host functions allocate memory in
//! the module.
//!
//! A host function that returns bytes to the module has to call the module's allocator first. From the host
//! that would be a nested callback, on a stack of its own. Instead such a function is split into two halves,
//! and Wasm code calls the allocator:
//!
//! ```text
//! (func (export "proxy_get_property") (param i32 i32 i32 i32) (result i32)
//!     ;; call the first half: the number of bytes to give, or a status if there are none
//!     ;; call the allocator, through a table that the host has filled
//!     ;; call the second half with the address, until it returns a status
//! )
//! ```
//!
//! The second half copies a part at a time, and the loop around it is in Wasm so that it yields at the tick.
//!
//! `host/memory.rs` implements the halves, `host/link.rs` lists the functions.

use wasm_encoder::{
    BlockType, CodeSection, EntityType, ExportKind, ExportSection, Function, FunctionSection, ImportSection,
    InstructionSink, Module, RefType, TableSection, TableType, TypeSection, ValType,
};

/// The namespace of the first halves.
pub(crate) const BEGIN: &str = "orfa:begin";
/// The namespace and the name of the second half.
pub(crate) const FINISH: (&str, &str) = ("orfa:finish", "finish");
/// The table with one entry, the allocator.
pub(crate) const ALLOCATOR: &str = "allocator";

/// The result of a second half that has to be called again. No status has this value.
pub(crate) const CALL_AGAIN: u32 = u32::MAX;

/// A host function that returns bytes to the module: its name and the number of its parameters.
pub(crate) type GivingFunction = (&'static str, u32);

/// Encodes the result of a first half: a number of bytes, or a status if there are none.
pub(crate) fn encode_outcome(length: u32, status: u32) -> u64 {
    u64::from(length) << 32 | u64::from(status)
}

/// Generates the shim module for these functions.
pub(crate) fn encode_shim(functions: &[GivingFunction]) -> Vec<u8> {
    // Type 0 is the type of the allocator and of the second half. Two types per function follow: the first
    // half's and the function's own.
    let (mut types, mut imports) = (TypeSection::new(), ImportSection::new());
    types.ty().function([ValType::I32], [ValType::I32]);
    imports.import(FINISH.0, FINISH.1, EntityType::Function(0));
    let (mut defined, mut exports, mut code) =
        (FunctionSection::new(), ExportSection::new(), CodeSection::new());
    let mut tables = TableSection::new();
    let (element_type, table64, shared) = (RefType::FUNCREF, false, false);
    tables.table(TableType { element_type, table64, shared, minimum: 1, maximum: Some(1) });
    exports.export(ALLOCATOR, ExportKind::Table, 0);
    let count = functions.len() as u32;
    for ((name, parameters), index) in functions.iter().zip(0..) {
        let list = vec![ValType::I32; *parameters as usize];
        types.ty().function(list.iter().copied(), [ValType::I64]);
        types.ty().function(list, [ValType::I32]);
        imports.import(BEGIN, name, EntityType::Function(1 + 2 * index));
        defined.function(2 + 2 * index);
        exports.export(name, ExportKind::Func, 1 + count + index);
        code.function(&encode_function(1 + index, *parameters));
    }
    let mut module = Module::new();
    module
        .section(&types)
        .section(&imports)
        .section(&defined)
        .section(&tables)
        .section(&exports)
        .section(&code);
    module.finish()
}

/// Generates a function around the first half with this index.
fn encode_function(begin: u32, parameters: u32) -> Function {
    let (outcome, length, address, status) = (parameters, parameters + 1, parameters + 2, parameters + 3);
    let mut function = Function::new([(1, ValType::I64), (3, ValType::I32)]);
    let mut code: InstructionSink<'_> = function.instructions();
    (0..parameters).for_each(|index| _ = code.local_get(index));
    code.call(begin).local_tee(outcome).i64_const(32).i64_shr_u().i32_wrap_i64().local_tee(length).i32_eqz();
    code.if_(BlockType::Result(ValType::I32)).local_get(outcome).i32_wrap_i64().else_();
    code.local_get(length).i32_const(0).call_indirect(0, 0).local_set(address);
    code.loop_(BlockType::Empty).local_get(address).call(0).local_tee(status);
    code.i32_const(CALL_AGAIN.cast_signed()).i32_eq().br_if(0).end();
    code.local_get(status).end().end();
    function
}
