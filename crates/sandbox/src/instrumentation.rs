//! Rewrites modules so that their guests yield often enough.
//!
//! A guest yields at loops and function entries, but not within an instruction: a single `memory.fill` of all
//! of its memory would block its thread for milliseconds. Before a module is compiled, its `memory.fill` and
//! `memory.copy` are therefore replaced by calls of two functions appended to the module, which do the same
//! in steps of [`STEP_BYTES`] bytes and yield in between. Short operations and those that trap still use the
//! single instruction, so that nothing is written before a trap. `memory.init` is not replaced, as it copies
//! from the module itself, which is short. Neither are table operations, since tables are short as well.
//!
//! Code without loops does not yield either, and 64 KiB of it can touch 16 MiB of memory for the first time,
//! or call the host six thousand times. Modules of clients therefore get checks: calls of an empty function,
//! whose entry is a place to yield. There is one after each [`CHECK_INTERVAL`] instructions and after each
//! call, and functions of the host are called through functions of the module.

use std::borrow::Cow;
use std::convert::Infallible;

use wasm_encoder::reencode::{Error, Reencode, utils};
use wasm_encoder::{
    BlockType, CodeSection, Function, FunctionSection, Instruction, InstructionSink, Module, TypeSection,
    ValType,
};
use wasmparser::{
    CodeSectionReader, CompositeInnerType, CustomSectionReader, FunctionBody, FunctionSectionReader,
    Operator, Parser, Payload, TypeRef, TypeSectionReader,
};

/// The bytes per step: some hundredths of a millisecond, even if the memory is touched for the first time.
const STEP_BYTES: i32 = 64 << 10;
/// The number of instructions of a client's module between two checks: some tenths of a millisecond, even if
/// each touches a page of memory for the first time.
const CHECK_INTERVAL: u32 = 256;
/// The prefix and opcodes of `memory.copy` and `memory.fill`.
const BULK_PREFIX: u8 = 0xfc;
const COPY_OPCODE: u32 = 10;
const FILL_OPCODE: u32 = 11;

/// Returns the module with bulk memory operations in steps. Returns invalid modules unchanged, so that the
/// compiler reports the error.
pub(crate) fn split_bulk_operations(wasm: &[u8]) -> Cow<'_, [u8]> {
    if !may_have_bulk_operations(wasm) {
        return Cow::Borrowed(wasm);
    }
    let rewritten = ModuleCounts::from_module(wasm).map_err(Error::from).and_then(|counts| {
        let mut steps = StepInstrumentation::new(&counts);
        steps.append_bulk_functions();
        steps.rewrite(wasm)
    });
    rewritten.map_or(Cow::Borrowed(wasm), Cow::Owned)
}

/// Returns a client's module with bulk memory operations in steps and with checks. The functions of
/// `environment` are those of another module of WebAssembly; all others that it imports are the host's.
///
/// # Errors
/// If the module can't be parsed.
pub(crate) fn add_yield_checks<'a>(
    wasm: &'a [u8],
    environment: Option<&str>,
) -> Result<Cow<'a, [u8]>, Error<Infallible>> {
    let counts = ModuleCounts::from_module(wasm)?;
    if counts.defined == 0 {
        return Ok(Cow::Borrowed(wasm));
    }
    let mut steps = StepInstrumentation::new(&counts);
    // Without a memory, the bytes are a number such as 1532, and the added functions would be invalid.
    if counts.has_memory && may_have_bulk_operations(wasm) {
        steps.append_bulk_functions();
    }
    steps.append_check_functions(&counts, environment);
    steps.rewrite(wasm).map(Cow::Owned)
}

/// Whether the bytes contain one of the instructions, in any encoding. May be a false positive.
fn may_have_bulk_operations(wasm: &[u8]) -> bool {
    let mut rest = wasm;
    while let Some(at) = rest.iter().position(|byte| *byte == BULK_PREFIX) {
        rest = rest.get(at + 1..).unwrap_or_default();
        if matches!(parse_leb128(rest), Some(COPY_OPCODE | FILL_OPCODE)) {
            return true;
        }
    }
    false
}

/// Parses a number in LEB128 of at most five bytes.
fn parse_leb128(bytes: &[u8]) -> Option<u32> {
    let mut number = 0;
    for (place, byte) in bytes.iter().take(5).enumerate() {
        number |= u32::from(byte & 0x7f) << (7 * place);
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

/// The types and functions of a module.
#[derive(Default)]
struct ModuleCounts<'a> {
    /// The number of parameters of each type, 0 for types other than functions.
    types: Vec<u32>,
    /// The imported functions: the name of the module that each comes from, and its type.
    imports: Vec<(&'a str, u32)>,
    /// The number of functions that the module defines.
    defined: u32,
    /// Whether it has a memory, its own or an imported one.
    has_memory: bool,
}

impl<'a> ModuleCounts<'a> {
    fn from_module(wasm: &'a [u8]) -> wasmparser::Result<Self> {
        let mut counts = Self::default();
        for payload in Parser::new(0).parse_all(wasm) {
            match payload? {
                Payload::TypeSection(section) => {
                    for group in section {
                        counts.types.extend(group?.types().map(|ty| match &ty.composite_type.inner {
                            CompositeInnerType::Func(ty) => ty.params().len() as u32,
                            _ => 0,
                        }));
                    }
                }
                Payload::ImportSection(section) => {
                    for import in section.into_imports() {
                        let import = import?;
                        if let TypeRef::Func(ty) | TypeRef::FuncExact(ty) = import.ty {
                            counts.imports.push((import.module, ty));
                        }
                        counts.has_memory |= matches!(import.ty, TypeRef::Memory(_));
                    }
                }
                Payload::FunctionSection(section) => counts.defined += section.count(),
                Payload::MemorySection(section) => counts.has_memory |= section.count() > 0,
                // Function bodies are not needed.
                Payload::CodeSectionStart { .. } => break,
                _ => {}
            }
        }
        Ok(counts)
    }
}

/// Rewrites a module. Two types and some functions are appended to it.
struct StepInstrumentation {
    /// The index of the first appended type, that of fill and copy. The second one is that of the check.
    types: u32,
    /// The index of the first appended function.
    first_function: u32,
    /// The appended functions, each with the index of its type.
    appended: Vec<(u32, Function)>,
    /// The indices of appended functions.
    fill: u32,
    copy: u32,
    check: Option<u32>,
    /// For each imported function, the appended one that is called in its place.
    wrappers: Vec<Option<u32>>,
}

impl StepInstrumentation {
    fn new(counts: &ModuleCounts<'_>) -> Self {
        let first_function = counts.imports.len() as u32 + counts.defined;
        let types = counts.types.len() as u32;
        let (appended, wrappers) = (Vec::new(), Vec::new());
        Self {
            types,
            first_function,
            appended,
            fill: first_function,
            copy: first_function,
            check: None,
            wrappers,
        }
    }

    fn append_bulk_functions(&mut self) {
        self.fill = self.append_function(self.types, build_fill());
        self.copy = self.append_function(self.types, build_copy());
    }

    fn append_check_functions(&mut self, counts: &ModuleCounts<'_>, environment: Option<&str>) {
        let mut check = Function::new([]);
        check.instructions().end();
        self.check = Some(self.append_function(self.types + 1, check));
        for ((module, ty), index) in counts.imports.iter().zip(0..) {
            let parameters = counts.types.get(*ty as usize).copied().unwrap_or_default();
            let is_host = environment != Some(*module);
            let wrapper = is_host.then(|| self.append_function(*ty, build_wrapper(index, parameters)));
            self.wrappers.push(wrapper);
        }
    }

    /// Appends a function of this type and returns its index.
    fn append_function(&mut self, ty: u32, function: Function) -> u32 {
        self.appended.push((ty, function));
        self.first_function + self.appended.len() as u32 - 1
    }

    fn rewrite(mut self, wasm: &[u8]) -> Result<Vec<u8>, Error<Infallible>> {
        let mut module = Module::new();
        self.parse_core_module(&mut module, Parser::new(0), wasm)?;
        Ok(module.finish())
    }
}

impl Reencode for StepInstrumentation {
    type Error = Infallible;

    fn function_index(&mut self, function: u32) -> Result<u32, Error<Infallible>> {
        Ok(self.wrappers.get(function as usize).copied().flatten().unwrap_or(function))
    }

    fn parse_type_section(
        &mut self,
        types: &mut TypeSection,
        section: TypeSectionReader<'_>,
    ) -> Result<(), Error<Infallible>> {
        utils::parse_type_section(self, types, section)?;
        types.ty().function([ValType::I32; 3], []);
        types.ty().function([], []);
        Ok(())
    }

    fn parse_function_section(
        &mut self,
        functions: &mut FunctionSection,
        section: FunctionSectionReader<'_>,
    ) -> Result<(), Error<Infallible>> {
        utils::parse_function_section(self, functions, section)?;
        self.appended.iter().for_each(|(ty, _)| _ = functions.function(*ty));
        Ok(())
    }

    fn parse_code_section(
        &mut self,
        code: &mut CodeSection,
        section: CodeSectionReader<'_>,
    ) -> Result<(), Error<Infallible>> {
        utils::parse_code_section(self, code, section)?;
        self.appended.iter().for_each(|(_, function)| _ = code.function(function));
        Ok(())
    }

    fn parse_function_body(
        &mut self,
        code: &mut CodeSection,
        body: FunctionBody<'_>,
    ) -> Result<(), Error<Infallible>> {
        let Some(check) = self.check else { return utils::parse_function_body(self, code, body) };
        let mut function = self.new_function_with_parsed_locals(&body)?;
        let mut operators = body.get_operators_reader()?;
        let mut checks = FunctionChecks::default();
        while !operators.eof() {
            let operator = operators.read()?;
            let is_due = checks.is_due_after(&operator);
            function.instruction(&self.instruction(operator)?);
            if is_due {
                function.instruction(&Instruction::Call(check));
            }
        }
        code.function(&function);
        Ok(())
    }

    fn instruction<'a>(&mut self, operator: Operator<'a>) -> Result<Instruction<'a>, Error<Infallible>> {
        match operator {
            Operator::MemoryFill { mem: 0 } => Ok(Instruction::Call(self.fill)),
            Operator::MemoryCopy { dst_mem: 0, src_mem: 0 } => Ok(Instruction::Call(self.copy)),
            _ => utils::instruction(self, operator),
        }
    }

    /// Copies custom sections without parsing them: the compiler ignores malformed ones.
    fn parse_custom_section(
        &mut self,
        module: &mut Module,
        section: CustomSectionReader<'_>,
    ) -> Result<(), Error<Infallible>> {
        module.section(&self.custom_section(section)?);
        Ok(())
    }
}

/// The places of a function's checks. Branches lead to the ends of blocks, and may pass by the checks in
/// them: such a block is followed by another check.
#[derive(Default)]
struct FunctionChecks {
    /// The number of instructions since the last check that no branch passes by.
    instructions_since_check: u32,
    /// Whether there is a check in each open block.
    open_blocks: Vec<bool>,
}

impl FunctionChecks {
    /// Reads an instruction and returns whether a check has to follow it.
    fn is_due_after(&mut self, operator: &Operator<'_>) -> bool {
        self.instructions_since_check += 1;
        let is_passed = match operator {
            Operator::Loop { .. } => {
                self.record_check();
                self.open_blocks.push(false);
                false
            }
            Operator::Block { .. } | Operator::If { .. } | Operator::TryTable { .. } => {
                self.open_blocks.push(false);
                false
            }
            Operator::Else => self.open_blocks.last().copied().unwrap_or_default(),
            // A deep recursion returns through thousands of functions, each with fewer instructions than a
            // run.
            Operator::Call { .. } | Operator::CallIndirect { .. } | Operator::CallRef { .. } => true,
            Operator::End => match self.open_blocks.pop() {
                Some(has_check) => has_check,
                // The end of the function.
                None => return false,
            },
            _ => false,
        };
        let is_due = is_passed || self.instructions_since_check >= CHECK_INTERVAL;
        if is_due {
            self.record_check();
        }
        is_due
    }

    /// Adds a check here. The head of a loop is one, too.
    fn record_check(&mut self) {
        self.instructions_since_check = 0;
        self.open_blocks.last_mut().into_iter().for_each(|has_check| *has_check = true);
    }
}

/// Builds a function that only calls another one.
fn build_wrapper(index: u32, parameters: u32) -> Function {
    let mut function = Function::new([]);
    let mut code = function.instructions();
    (0..parameters).for_each(|parameter| _ = code.local_get(parameter));
    code.call(index).end();
    function
}

/// The parameters of both functions: destination, byte or source, and length.
const DESTINATION: u32 = 0;
const SOURCE: u32 = 1;
const LENGTH: u32 = 2;

fn build_fill() -> Function {
    build_stepped_function(
        &[DESTINATION],
        |code| {
            code.memory_fill(0);
        },
        |code, fill| {
            code.loop_(BlockType::Empty);
            code.local_get(DESTINATION).local_get(SOURCE).i32_const(STEP_BYTES);
            fill(code);
            code.local_get(DESTINATION).i32_const(STEP_BYTES).i32_add().local_set(DESTINATION);
            emit_loop_end(code);
        },
    )
}

fn build_copy() -> Function {
    build_stepped_function(
        &[DESTINATION, SOURCE],
        |code| {
            code.memory_copy(0, 0);
        },
        |code, copy| {
            // Overlapping memory is copied from the end that is overwritten last.
            code.local_get(DESTINATION).local_get(SOURCE).i32_gt_u().if_(BlockType::Empty);
            code.loop_(BlockType::Empty);
            for start in [DESTINATION, SOURCE] {
                code.local_get(start).local_get(LENGTH).i32_add().i32_const(STEP_BYTES).i32_sub();
            }
            code.i32_const(STEP_BYTES);
            copy(code);
            emit_loop_end(code);
            code.else_().loop_(BlockType::Empty);
            code.local_get(DESTINATION).local_get(SOURCE).i32_const(STEP_BYTES);
            copy(code);
            for start in [DESTINATION, SOURCE] {
                code.local_get(start).i32_const(STEP_BYTES).i32_add().local_set(start);
            }
            emit_loop_end(code);
            code.end();
        },
    )
}

/// Ends a loop's body: repeats it until one step or less is left.
fn emit_loop_end(code: &mut InstructionSink<'_>) {
    code.local_get(LENGTH).i32_const(STEP_BYTES).i32_sub().local_tee(LENGTH);
    code.i32_const(STEP_BYTES).i32_gt_u().br_if(0).end();
}

/// Builds a function that runs an operation at once if it is short or exceeds the memory at one of these
/// addresses, and otherwise does all but the last step in a loop before.
fn build_stepped_function(
    addresses: &[u32],
    instruction: fn(&mut InstructionSink<'_>),
    steps: impl FnOnce(&mut InstructionSink<'_>, fn(&mut InstructionSink<'_>)),
) -> Function {
    let mut function = Function::new([]);
    let mut code = function.instructions();
    code.local_get(LENGTH).i32_const(STEP_BYTES).i32_gt_u().if_(BlockType::Empty);
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
    code.local_get(DESTINATION).local_get(SOURCE).local_get(LENGTH);
    instruction(&mut code);
    code.end();
    function
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use wasmtime::{Config, Engine, Instance, Linker, Memory, Store, TypedFunc};

    use super::*;

    const BULK: &str = r#"(module (memory (export "memory") 4)
        (func (export "fill") (param i32 i32 i32) (memory.fill (local.get 0) (local.get 1) (local.get 2)))
        (func (export "copy") (param i32 i32 i32) (memory.copy (local.get 0) (local.get 1) (local.get 2))))"#;

    struct GuestFunction {
        store: Store<()>,
        memory: Memory,
        fill: TypedFunc<(i32, i32, i32), ()>,
        copy: TypedFunc<(i32, i32, i32), ()>,
    }

    fn instantiate_guest(wasm: &[u8]) -> GuestFunction {
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
        GuestFunction { store, memory, fill, copy }
    }

    fn near_steps() -> impl Strategy<Value = i32> {
        let near = (0..5, -2..3).prop_map(|(steps, more): (i32, i32)| steps * STEP_BYTES + more);
        prop_oneof![near, 0..300_000, any::<i32>()]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn steps_have_the_effect_of_a_single_instruction(
            is_fill: bool, to in near_steps(), from in near_steps(), length in near_steps(),
        ) {
            let wasm = wat::parse_str(BULK).unwrap();
            let (stepped, checked) = (split_bulk_operations(&wasm), add_yield_checks(&wasm, None).unwrap());
            prop_assert!(*stepped != *wasm && *checked != *stepped);
            let after = [&wasm[..], &stepped, &checked].map(|wasm| {
                let mut guest = instantiate_guest(wasm);
                let function = if is_fill { &guest.fill } else { &guest.copy };
                let ended = function.call(&mut guest.store, (to, from, length)).is_ok();
                (ended, guest.memory.data(&guest.store).to_vec())
            });
            prop_assert!(after[0] == after[1] && after[0] == after[2], "of {} steps", length / STEP_BYTES);
        }
    }

    /// Returns the number of places where a guest may yield that a call of `run` passes.
    fn count_yields(wasm: &[u8]) -> u32 {
        let mut config = Config::new();
        config.epoch_interruption(true);
        let engine = Engine::new(&config).unwrap();
        let module = wasmtime::Module::from_binary(&engine, wasm).unwrap();
        let mut store = Store::new(&engine, 0);
        store.set_epoch_deadline(1);
        store.epoch_deadline_callback(|mut store| {
            *store.data_mut() += 1;
            Ok(wasmtime::UpdateDeadline::Continue(0))
        });
        let mut linker = Linker::new(&engine);
        linker.func_wrap("host", "f", |_: i32, _: i64| 7_i32).unwrap();
        let instance = linker.instantiate(&mut store, &module).unwrap();
        let run = instance.get_typed_func::<(), ()>(&mut store, "run").unwrap();
        engine.increment_epoch();
        run.call(&mut store, ()).unwrap();
        *store.data()
    }

    /// Returns the yields of a text's module as it is, and as a client's.
    fn count_yields_of_text(text: &str, environment: Option<&str>) -> (u32, u32) {
        let wasm = wat::parse_str(text).unwrap();
        (count_yields(&wasm), count_yields(&add_yield_checks(&wasm, environment).unwrap()))
    }

    #[test]
    fn guests_yield_within_bulk_memory_operations() {
        let fill = format!("(memory.fill (i32.const 0) (i32.const 1) (i32.const {}))", 4 * STEP_BYTES);
        let text = format!(r#"(module (memory 4) (func (export "run") {fill}))"#);
        let wasm = wat::parse_str(&text).unwrap();
        assert!(count_yields(&split_bulk_operations(&wasm)) >= count_yields(&wasm) + 4);
    }

    #[test]
    fn guests_yield_within_long_code_without_loops() {
        let body = |code: &str| format!(r#"(module (func (export "run") {code}))"#);
        let runs = 20_u32;
        let straight = "(drop (i32.const 1))".repeat((runs * CHECK_INTERVAL) as usize / 2);
        let (before, after) = count_yields_of_text(&body(&straight), None);
        assert_eq!((before, after), (1, 1 + runs));
        let (long, times) = ("nop ".repeat(CHECK_INTERVAL as usize), runs as usize);
        for passes_by in [
            format!("(block (br_if 0 (i32.const 1)) {long})"),
            format!("(block (block (br 1) {long}))"),
            format!("(block (block (br_table 0 1 (i32.const 1))) {long})"),
            format!("(if (i32.const 0) (then {long}))"),
            format!("(if (i32.const 0) (then {long}) (else nop))"),
            format!("(if (i32.const 1) (then nop) (else {long}))"),
        ] {
            let (before, after) = count_yields_of_text(&body(&passes_by.repeat(times)), None);
            assert!(before == 1 && after > runs, "{after} yields: {}", &passes_by[..40]);
        }
    }

    #[test]
    fn guests_yield_while_a_deep_recursion_returns() {
        let rest = "nop ".repeat(CHECK_INTERVAL as usize / 2);
        let deeper = "(if (local.get 0) (then (call $f (i32.sub (local.get 0) (i32.const 1)))))";
        let text = format!(
            r#"(module (func $f (param i32) {deeper} {rest}) (func (export "run") (call $f (i32.const 1000))))"#
        );
        let (before, after) = count_yields_of_text(&text, None);
        assert!(after > before + 1000, "{after} yields instead of {before}");
    }

    #[test]
    fn guests_yield_before_each_call_of_the_host() {
        let call = "(drop (call $f (i32.const 1) (i64.const 2)))";
        let indirect = "(drop (call_indirect (type $t) (i32.const 1) (i64.const 2) (i32.const 0)))";
        for call in [call, indirect] {
            let text = format!(
                r#"(module (type $t (func (param i32 i64) (result i32))) (import "host" "f" (func $f (type $t)))
                    (table 1 funcref) (elem (i32.const 0) $f) (export "f" (func $f))
                    (func (export "run") {}))"#,
                call.repeat(30)
            );
            assert_eq!(count_yields_of_text(&text, None), (1, 61), "before and after each call");
            assert_eq!(count_yields_of_text(&text, Some("host")), (1, 31), "after each call");
        }
    }

    #[test]
    fn rewrites_modules_with_malformed_names() {
        let mut wasm = wat::parse_str(BULK).unwrap();
        wasm.extend(b"\0\x08\x04name\x01\xff\xff");
        assert!(wasmtime::Module::from_binary(&Engine::default(), &wasm).is_ok());
        assert!(matches!(split_bulk_operations(&wasm), Cow::Owned(_)));
        assert!(add_yield_checks(&wasm, None).is_ok());
        assert!(add_yield_checks(b"\0asm\x01\0\0\0\xff", None).is_err());
    }

    #[test]
    fn adds_no_bulk_operations_without_a_memory() {
        let wasm = wat::parse_str("(module (func (drop (i32.const 1532))))").unwrap();
        assert!(may_have_bulk_operations(&wasm), "1532 is encoded like `memory.fill`");
        let checked = add_yield_checks(&wasm, None).unwrap();
        assert!(wasmtime::Module::from_binary(&Engine::default(), &checked).is_ok());
    }

    #[test]
    fn adds_no_checks_without_functions() {
        let text = r#"(module (import "host" "f" (func $f)) (export "f" (func $f)))"#;
        let wasm = wat::parse_str(text).unwrap();
        assert_eq!(*add_yield_checks(&wasm, None).unwrap(), *wasm);
    }

    #[test]
    fn leaves_modules_without_bulk_memory_unchanged() {
        for text in [
            "(module)",
            "(module (memory 1) (func (drop (i32.const 0xfc))))",
            "(module (table 1 funcref) (func (table.fill 0 (i32.const 0) (ref.null func) (i32.const 1))))",
        ] {
            let wasm = wat::parse_str(text).unwrap();
            assert!(matches!(split_bulk_operations(&wasm), Cow::Borrowed(_)), "{text}");
        }
        assert!(matches!(split_bulk_operations(b"\0asm\xfc\x0b"), Cow::Borrowed(_)), "not a module");
    }

    #[test]
    fn finds_instructions_in_any_encoding() {
        for bytes in [
            &[BULK_PREFIX, 11][..],
            &[BULK_PREFIX, 0x8b, 0],
            &[BULK_PREFIX, 0x8a, 0x80, 0x80, 0x80, 0],
            &[BULK_PREFIX, BULK_PREFIX, 10],
        ] {
            assert!(may_have_bulk_operations(bytes), "{bytes:?}");
        }
        assert!(!may_have_bulk_operations(&[BULK_PREFIX, 8, BULK_PREFIX, 12, 11, BULK_PREFIX]));
    }
}
