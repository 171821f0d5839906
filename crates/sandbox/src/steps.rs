//! Bulk memory in steps.
//!
//! A guest yields at the heads of loops and functions, and not within an instruction: one `memory.fill` of all of its memory keeps
//! its thread for milliseconds. So before a module is compiled, its `memory.fill` and `memory.copy` become calls of two
//! functions at its end, which do the same in steps of [`STEP`] bytes and yield between them. What is short, and what traps, is
//! the one instruction still, so that nothing is written before a trap. `memory.init` copies from the module itself, which is
//! short, and tables are.

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

/// How many bytes are written in one step: some hundredths of a millisecond, with memory that is touched for the first time.
const STEP: i32 = 64 << 10;
/// `memory.copy` and `memory.fill`, behind their prefix.
const PREFIX: u8 = 0xfc;
const COPY: u32 = 10;
const FILL: u32 = 11;

/// A module whose bulk memory is done in steps. What is no module is given back as it is, for the compiler to say what is wrong.
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

/// Whether the bytes of one of the instructions are anywhere, in any of their spellings.
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

/// The number that bytes begin with, in LEB128 of at most five.
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

/// How many types and functions a module has.
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
                // Functions' bodies are not looked at here.
                Payload::CodeSectionStart { .. } => break,
                _ => {}
            }
        }
        Ok(counts)
    }

    /// The functions that are added: their numbers.
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

/// The parameters of both functions: where to, which byte or where from, and how many.
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
            // What overlaps is copied from the end that is written over last.
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

/// Ends a loop's body: once more, unless what is left is one step or less.
fn repeat(code: &mut InstructionSink<'_>) {
    code.local_get(LENGTH).i32_const(STEP).i32_sub().local_tee(LENGTH);
    code.i32_const(STEP).i32_gt_u().br_if(0).end();
}

/// A function that does at once what is short or goes beyond the memory from one of these addresses, and else all but the last
/// step before that.
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
        fn steps_write_what_one_instruction_writes_or_trap_alike(
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
    fn a_guest_yields_within_bulk_memory() {
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
    fn a_module_without_bulk_memory_stays_as_it_is() {
        for text in [
            "(module)",
            "(module (memory 1) (func (drop (i32.const 0xfc))))",
            "(module (table 1 funcref) (func (table.fill 0 (i32.const 0) (ref.null func) (i32.const 1))))",
        ] {
            let wasm = wat::parse_str(text).unwrap();
            assert!(matches!(in_steps(&wasm), Cow::Borrowed(_)), "{text}");
        }
        assert!(matches!(in_steps(b"\0asm\xfc\x0b"), Cow::Borrowed(_)), "no module");
    }

    #[test]
    fn an_instruction_is_found_however_its_number_is_spelt() {
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
