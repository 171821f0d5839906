//! Compiles bulk memory operations as loops of steps.
//!
//! A guest yields at loops and function entries, but not within an instruction: a single `memory.fill` of all
//! of its memory would block its thread for milliseconds. Before a module is compiled, its `memory.fill` and
//! `memory.copy` are therefore replaced by calls of two functions appended to the module, which do the same
//! in steps of [`STEP`] bytes and yield in between. Short operations and those that trap still use the single
//! instruction, so that nothing is written before a trap. `memory.init` is not replaced, as it copies from
//! the module itself, which is short. Neither are table operations, since tables are short as well.

use std::borrow::Cow;
use std::convert::Infallible;

use wasm_encoder::reencode::{Error, Reencode, utils};
use wasm_encoder::{
    BlockType, CodeSection, Function, FunctionSection, Instruction, InstructionSink, Module, TypeSection,
    ValType,
};
use wasmparser::{
    CodeSectionReader, FunctionSectionReader, Operator, Parser, Payload, TypeRef, TypeSectionReader,
};

/// The bytes per step: some hundredths of a millisecond, even if the memory is touched for the first time.
const STEP: i32 = 64 << 10;
/// The prefix and opcodes of `memory.copy` and `memory.fill`.
const PREFIX: u8 = 0xfc;
const COPY: u32 = 10;
const FILL: u32 = 11;

/// Returns the module with bulk memory operations in steps. Returns invalid modules unchanged, so that the
/// compiler reports the error.
pub(crate) fn in_steps(wasm: &[u8]) -> Cow<'_, [u8]> {
    if !may_have_bulk(wasm) {
        return Cow::Borrowed(wasm);
    }
    let Ok(counts) = Counts::of(wasm) else { return Cow::Borrowed(wasm) };
    let mut module = Module::new();
    match Steps(counts).parse_core_module(&mut module, Parser::new(0), wasm) {
        Ok(()) => Cow::Owned(module.finish()),
        Err(_) => Cow::Borrowed(wasm),
    }
}

/// Whether the bytes contain one of the instructions, in any encoding. May be a false positive.
fn may_have_bulk(wasm: &[u8]) -> bool {
    let mut rest = wasm;
    while let Some(at) = rest.iter().position(|byte| *byte == PREFIX) {
        rest = rest.get(at + 1..).unwrap_or_default();
        if matches!(number(rest), Some(COPY | FILL)) {
            return true;
        }
    }
    false
}

/// Parses a number in LEB128 of at most five bytes.
fn number(bytes: &[u8]) -> Option<u32> {
    let mut number = 0;
    for (place, byte) in bytes.iter().take(5).enumerate() {
        number |= u32::from(byte & 0x7f) << (7 * place);
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

/// The number of types and functions of a module.
struct Counts {
    types: u32,
    functions: u32,
}

impl Counts {
    fn of(wasm: &[u8]) -> wasmparser::Result<Self> {
        let mut counts = Self { types: 0, functions: 0 };
        for payload in Parser::new(0).parse_all(wasm) {
            match payload? {
                Payload::TypeSection(section) => {
                    for group in section {
                        counts.types += u32::try_from(group?.types().len()).unwrap_or(u32::MAX);
                    }
                }
                Payload::ImportSection(section) => {
                    for import in section.into_imports() {
                        counts.functions += u32::from(matches!(import?.ty, TypeRef::Func(_)));
                    }
                }
                Payload::FunctionSection(section) => counts.functions += section.count(),
                // Function bodies are not needed.
                Payload::CodeSectionStart { .. } => break,
                _ => {}
            }
        }
        Ok(counts)
    }

    /// The indices of the appended functions.
    fn fill(&self) -> u32 {
        self.functions
    }

    fn copy(&self) -> u32 {
        self.functions + 1
    }
}

/// Rewrites a module.
struct Steps(Counts);

impl Reencode for Steps {
    type Error = Infallible;

    fn parse_type_section(
        &mut self,
        types: &mut TypeSection,
        section: TypeSectionReader<'_>,
    ) -> Result<(), Error<Infallible>> {
        utils::parse_type_section(self, types, section)?;
        types.ty().function([ValType::I32; 3], []);
        Ok(())
    }

    fn parse_function_section(
        &mut self,
        functions: &mut FunctionSection,
        section: FunctionSectionReader<'_>,
    ) -> Result<(), Error<Infallible>> {
        utils::parse_function_section(self, functions, section)?;
        functions.function(self.0.types).function(self.0.types);
        Ok(())
    }

    fn parse_code_section(
        &mut self,
        code: &mut CodeSection,
        section: CodeSectionReader<'_>,
    ) -> Result<(), Error<Infallible>> {
        utils::parse_code_section(self, code, section)?;
        code.function(&fill()).function(&copy());
        Ok(())
    }

    fn instruction<'a>(&mut self, operator: Operator<'a>) -> Result<Instruction<'a>, Error<Infallible>> {
        match operator {
            Operator::MemoryFill { mem: 0 } => Ok(Instruction::Call(self.0.fill())),
            Operator::MemoryCopy { dst_mem: 0, src_mem: 0 } => Ok(Instruction::Call(self.0.copy())),
            _ => utils::instruction(self, operator),
        }
    }
}

/// The parameters of both functions: destination, byte or source, and length.
const TO: u32 = 0;
const FROM: u32 = 1;
const LENGTH: u32 = 2;

fn fill() -> Function {
    function(
        &[TO],
        |code| {
            code.memory_fill(0);
        },
        |code, fill| {
            code.loop_(BlockType::Empty);
            code.local_get(TO).local_get(FROM).i32_const(STEP);
            fill(code);
            code.local_get(TO).i32_const(STEP).i32_add().local_set(TO);
            repeat(code);
        },
    )
}

fn copy() -> Function {
    function(
        &[TO, FROM],
        |code| {
            code.memory_copy(0, 0);
        },
        |code, copy| {
            // Overlapping memory is copied from the end that is overwritten last.
            code.local_get(TO).local_get(FROM).i32_gt_u().if_(BlockType::Empty);
            code.loop_(BlockType::Empty);
            for start in [TO, FROM] {
                code.local_get(start).local_get(LENGTH).i32_add().i32_const(STEP).i32_sub();
            }
            code.i32_const(STEP);
            copy(code);
            repeat(code);
            code.else_().loop_(BlockType::Empty);
            code.local_get(TO).local_get(FROM).i32_const(STEP);
            copy(code);
            for start in [TO, FROM] {
                code.local_get(start).i32_const(STEP).i32_add().local_set(start);
            }
            repeat(code);
            code.end();
        },
    )
}

/// Ends a loop's body: repeats it until one step or less is left.
fn repeat(code: &mut InstructionSink<'_>) {
    code.local_get(LENGTH).i32_const(STEP).i32_sub().local_tee(LENGTH);
    code.i32_const(STEP).i32_gt_u().br_if(0).end();
}

/// Builds a function that runs an operation at once if it is short or exceeds the memory at one of these
/// addresses, and otherwise does all but the last step in a loop before.
fn function(
    addresses: &[u32],
    instruction: fn(&mut InstructionSink<'_>),
    steps: impl FnOnce(&mut InstructionSink<'_>, fn(&mut InstructionSink<'_>)),
) -> Function {
    let mut function = Function::new([]);
    let mut code = function.instructions();
    code.local_get(LENGTH).i32_const(STEP).i32_gt_u().if_(BlockType::Empty);
    for (number, address) in addresses.iter().enumerate() {
        code.local_get(*address).i64_extend_i32_u().local_get(LENGTH).i64_extend_i32_u().i64_add();
        code.memory_size(0).i64_extend_i32_u().i64_const(16).i64_shl().i64_le_u();
        if number > 0 {
            code.i32_and();
        }
    }
    code.if_(BlockType::Empty);
    steps(&mut code, instruction);
    code.end().end();
    code.local_get(TO).local_get(FROM).local_get(LENGTH);
    instruction(&mut code);
    code.end();
    function
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use wasmtime::{Config, Engine, Instance, Memory, Store, TypedFunc};

    use super::*;

    const BULK: &str = r#"(module (memory (export "memory") 4)
        (func (export "fill") (param i32 i32 i32) (memory.fill (local.get 0) (local.get 1) (local.get 2)))
        (func (export "copy") (param i32 i32 i32) (memory.copy (local.get 0) (local.get 1) (local.get 2))))"#;

    struct Guest {
        store: Store<()>,
        memory: Memory,
        fill: TypedFunc<(i32, i32, i32), ()>,
        copy: TypedFunc<(i32, i32, i32), ()>,
    }

    fn guest(wasm: &[u8]) -> Guest {
        let engine = Engine::new(&Config::new()).unwrap();
        let module = wasmtime::Module::from_binary(&engine, wasm).unwrap();
        let mut store = Store::new(&engine, ());
        let instance = Instance::new(&mut store, &module, &[]).unwrap();
        let memory = instance.get_memory(&mut store, "memory").unwrap();
        for (place, byte) in memory.data_mut(&mut store).iter_mut().enumerate() {
            *byte = (place % 251) as u8;
        }
        let fill = instance.get_typed_func(&mut store, "fill").unwrap();
        let copy = instance.get_typed_func(&mut store, "copy").unwrap();
        Guest { store, memory, fill, copy }
    }

    fn near_steps() -> impl Strategy<Value = i32> {
        let near = (0..5, -2..3).prop_map(|(steps, more): (i32, i32)| steps * STEP + more);
        prop_oneof![near, 0..300_000, any::<i32>()]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn steps_have_the_effect_of_a_single_instruction(
            is_fill: bool, to in near_steps(), from in near_steps(), length in near_steps(),
        ) {
            let wasm = wat::parse_str(BULK).unwrap();
            let stepped = in_steps(&wasm);
            prop_assert!(*stepped != *wasm);
            let after = [&wasm[..], &stepped].map(|wasm| {
                let mut guest = guest(wasm);
                let function = if is_fill { &guest.fill } else { &guest.copy };
                let ended = function.call(&mut guest.store, (to, from, length)).is_ok();
                (ended, guest.memory.data(&guest.store).to_vec())
            });
            prop_assert!(after[0] == after[1], "of {} steps", length / STEP);
        }
    }

    #[test]
    fn guests_yield_within_bulk_memory_operations() {
        let mut config = Config::new();
        config.epoch_interruption(true);
        let engine = Engine::new(&config).unwrap();
        let ends = |wasm: &[u8]| {
            let module = wasmtime::Module::from_binary(&engine, wasm).unwrap();
            let mut store = Store::new(&engine, 0);
            store.set_epoch_deadline(1);
            store.epoch_deadline_callback(|mut store| {
                *store.data_mut() += 1;
                Ok(wasmtime::UpdateDeadline::Continue(0))
            });
            let instance = Instance::new(&mut store, &module, &[]).unwrap();
            let fill = instance.get_typed_func::<(i32, i32, i32), ()>(&mut store, "fill").unwrap();
            engine.increment_epoch();
            fill.call(&mut store, (0, 1, 4 * STEP)).unwrap();
            *store.data()
        };
        let wasm = wat::parse_str(BULK).unwrap();
        assert!(ends(&in_steps(&wasm)) >= ends(&wasm) + 4);
    }

    #[test]
    fn leaves_modules_without_bulk_memory_unchanged() {
        for text in [
            "(module)",
            "(module (memory 1) (func (drop (i32.const 0xfc))))",
            "(module (table 1 funcref) (func (table.fill 0 (i32.const 0) (ref.null func) (i32.const 1))))",
        ] {
            let wasm = wat::parse_str(text).unwrap();
            assert!(matches!(in_steps(&wasm), Cow::Borrowed(_)), "{text}");
        }
        assert!(matches!(in_steps(b"\0asm\xfc\x0b"), Cow::Borrowed(_)), "not a module");
    }

    #[test]
    fn finds_instructions_in_any_encoding() {
        for bytes in [
            &[PREFIX, 11][..],
            &[PREFIX, 0x8b, 0],
            &[PREFIX, 0x8a, 0x80, 0x80, 0x80, 0],
            &[PREFIX, PREFIX, 10],
        ] {
            assert!(may_have_bulk(bytes), "{bytes:?}");
        }
        assert!(!may_have_bulk(&[PREFIX, 8, PREFIX, 12, 11, PREFIX]));
    }
}
