//! Modules of at most 64 KiB that are expensive to compile, each in its own way.

use std::fmt::Write;

use query_abi::MODULE_BYTES;
use wasm_encoder::{
    CodeSection, ExportKind, ExportSection, Function, FunctionSection, MemorySection, MemoryType, Module,
    TypeSection, ValType,
};

/// The items that every plain module has.
const HEAD: &str = r#"(memory (export "memory") 1) (func (export "orfa") (param i32 i32))"#;

/// A generator of expensive modules, by size.
pub(crate) type ModuleAttack = (&'static str, fn(usize) -> String);

/// The attacks, with their generators.
pub(crate) const ATTACKS: &[ModuleAttack] = &[
    ("many empty functions", |n| format!("{HEAD}{}", "(func)".repeat(n))),
    ("many exported functions", |n| {
        let export = |i| format!("(func (export \"{i:x}\"))");
        format!("{HEAD}{}", (0..n).map(export).collect::<String>())
    }),
    ("many functions in a table", |n| {
        let elements: String = (1..n).fold(String::new(), |mut text, i| {
            let _ = write!(text, " {i}");
            text
        });
        format!("{HEAD}{} (table {n} funcref) (elem (i32.const 0) func {elements})", "(func)".repeat(n))
    }),
    ("many types", |n| {
        let kinds = ["i32", "i64", "f32", "f64"];
        let ty = |i: usize| {
            let digits = (0..8).map(|digit| kinds[i >> (2 * digit) & 3]).collect::<Vec<_>>().join(" ");
            format!("(type (func (param {digits})))")
        };
        format!("{}{HEAD}", (0..n).map(ty).collect::<String>())
    }),
    ("types with many values", |n| {
        let wide = "i32 ".repeat(1000);
        format!(
            "(type $w (func (result {wide}))) {HEAD} (func $wide (type $w) unreachable) (func {} unreachable)",
            "call $wide ".repeat(n)
        )
    }),
    ("blocks with many values", |n| {
        let wide = "i32 ".repeat(1000);
        format!(
            "(type $w (func (param {wide}) (result {wide}))) {HEAD} (func {} {} {})",
            "i32.const 0 ".repeat(1000),
            "block (type $w) end ".repeat(n),
            "drop ".repeat(1000)
        )
    }),
    ("deep blocks", |n| format!("{HEAD}(func {} {})", "block ".repeat(n), "end ".repeat(n))),
    ("deep loops", |n| {
        format!("{HEAD}(func (param i32) {} {})", "loop ".repeat(n), "local.get 0 br_if 0 end ".repeat(n))
    }),
    ("deep loops to the outermost", |n| {
        let ends = (0..n).fold(String::new(), |mut text, i| {
            let _ = write!(text, "local.get 0 br_if {} end ", n - i - 1);
            text
        });
        format!("{HEAD}(func (param i32) {} {ends})", "loop ".repeat(n))
    }),
    ("a huge br_table", |n| {
        format!("{HEAD}(func (param i32) block local.get 0 br_table {} end)", "0 ".repeat(n))
    }),
    ("br_tables with many targets", |n| {
        let (open, close) = ("block ".repeat(100), "end ".repeat(100));
        let targets: String = (0..100).map(|i| format!("{i} ")).collect();
        let table = format!("block local.get 0 br_table {targets} end ");
        format!("{HEAD}(func (param i32) {open} {} {close})", table.repeat(n / 100))
    }),
    ("a br_table above many locals", |n| {
        let locals = n / 8;
        let sets = (0..locals).fold(String::new(), |mut text, i| {
            let _ = write!(text, "local.get {i} drop ");
            text
        });
        let changes = (0..locals).fold(String::new(), |mut text, i| {
            let _ = write!(text, "local.get {i} i32.const 1 i32.add local.set {i} ");
            text
        });
        let local = "i32 ".repeat(locals);
        format!(
            "{HEAD}(func (param i32) (local {local}) loop {sets} {changes} block local.get 0 br_table {} end end)",
            "1 ".repeat(n)
        )
    }),
    ("blocks before many locals", |n| {
        let locals = n / 2;
        let uses = (0..locals).fold(String::new(), |mut text, i| {
            let _ = write!(text, "local.get {i} drop ");
            text
        });
        let local = "i32 ".repeat(locals);
        format!(
            "{HEAD}(func (param i32) (local {local}) {} {uses})",
            "block local.get 0 br_if 0 end ".repeat(n)
        )
    }),
    ("loops around many locals", |n| {
        let locals = n / 2;
        let changes = (0..locals).fold(String::new(), |mut text, i| {
            let _ = write!(text, "local.get {i} i32.const 1 i32.add local.set {i} ");
            text
        });
        let local = "i32 ".repeat(locals);
        format!(
            "{HEAD}(func (param i32) (local {local}) {} {changes} {})",
            "loop ".repeat(n),
            "local.get 0 br_if 0 end ".repeat(n)
        )
    }),
    ("a high operand stack", |n| {
        format!("{HEAD}(func (param i32) {} {})", "local.get 0 i32.load ".repeat(n), "drop ".repeat(n))
    }),
    ("a high operand stack of calls", |n| {
        format!(
            "{HEAD}(func $f (result i32) i32.const 0) (func {} {} drop)",
            "call $f ".repeat(n),
            "i32.add ".repeat(n - 1)
        )
    }),
    ("a long expression", |n| {
        format!("{HEAD}(func (param i32) local.get 0 {} drop)", "local.get 0 i32.mul ".repeat(n))
    }),
    ("many additions of constants", |n| {
        format!("{HEAD}(func (param i32) local.get 0 {} drop)", "i32.const 3 i32.add ".repeat(n))
    }),
    ("many loads and stores", |n| {
        format!("{HEAD}(func (param i32) {})", "local.get 0 local.get 0 i32.load i32.store ".repeat(n))
    }),
    ("many calls of many values", |n| {
        let (params, values) = ("i32 ".repeat(32), "local.get 0 ".repeat(32));
        format!(
            "{HEAD}(func $f (param {params})) (func (param i32) {})",
            format!("{values} call $f ").repeat(n / 32)
        )
    }),
    ("many vectors", |n| {
        format!(
            "{HEAD}(func (param v128) local.get 0 {} drop)",
            "local.get 0 i8x16.swizzle local.get 0 i64x2.mul ".repeat(n)
        )
    }),
    ("many shuffles", |n| {
        let shuffle = "local.get 0 i8x16.shuffle 0 17 2 19 4 21 6 23 8 25 10 27 12 29 14 31 ";
        format!("{HEAD}(func (param v128) local.get 0 {} drop)", shuffle.repeat(n))
    }),
    ("many indirect calls", |n| {
        format!(
            "{HEAD}(table 1 funcref) (type $t (func)) (func {})",
            "i32.const 0 call_indirect (type $t) ".repeat(n)
        )
    }),
    ("many truncations", |n| {
        format!(
            "{HEAD}(func (param f64) {})",
            "local.get 0 i64.trunc_f64_s drop local.get 0 i32.trunc_sat_f64_u drop ".repeat(n)
        )
    }),
    ("many memory operations", |n| {
        format!(
            "{HEAD}(func {})",
            "i32.const 0 i32.const 0 i32.const 0 memory.copy i32.const 0 i32.const 0 i32.const 0 memory.fill "
                .repeat(n)
        )
    }),
    ("many loops", |n| format!("{HEAD}(func {})", "loop end ".repeat(n))),
    ("loops that change many locals", |n| {
        let loops = n / 60;
        let change =
            |i: usize| format!("local.get {} i32.const 1 i32.xor local.tee {} br_if 0 end ", i % 60, i % 60);
        let function = format!(
            "(func (param i32) (local {}) {} {})",
            "i32 ".repeat(60),
            "loop ".repeat(30),
            (0..30).map(change).collect::<String>()
        );
        format!("{HEAD}{}", function.repeat(loops))
    }),
    ("a value across many calls", |n| {
        format!(
            "{HEAD}(func $f (result i32) i32.const 0) (func (result i32) i32.const 0 {})",
            "call $f i32.add ".repeat(n)
        )
    }),
    ("values in use at once", |n| {
        let values = (0..n).map(|i| format!("local.get 0 i32.const {} i32.xor ", i + 64));
        let body = values.collect::<String>() + &"i32.mul ".repeat(n - 1);
        format!("{HEAD}(func (param i32) (result i32) {body})")
    }),
    ("many square roots", |n| {
        format!("{HEAD}(func (param f64) (result f64) local.get 0 {})", "f64.sqrt ".repeat(n))
    }),
    ("many conversions", |n| {
        let convert = "f32.demote_f64 f64.promote_f32 ".repeat(n);
        format!("{HEAD}(func (param f64) (result f64) local.get 0 {convert})")
    }),
    ("many globals", |n| format!("{HEAD}{}", "(global i32 (i32.const 0))".repeat(n))),
    ("many data segments", |n| {
        let data = (0..n).fold(String::new(), |mut text, i| {
            let _ = write!(text, "(data (i32.const {}) \"a\")", i % 60_000);
            text
        });
        format!("{HEAD}{data}")
    }),
    ("many element segments", |n| {
        format!("{HEAD}(table 1 funcref) {}", "(elem (i32.const 0) func 0)".repeat(n))
    }),
    ("data far apart", |_| {
        r#"(memory (export "memory") 256) (func (export "orfa") (param i32 i32))
            (data (i32.const 0) "a") (data (i32.const 16777215) "b")"#
            .to_owned()
    }),
];

/// Builds a module with `count` functions of `locals` locals each. A group of locals is encoded as a number
/// and a type.
pub(crate) fn with_locals(count: usize, locals: u32) -> Vec<u8> {
    let (mut types, mut functions, mut memories) =
        (TypeSection::new(), FunctionSection::new(), MemorySection::new());
    types.ty().function([ValType::I32, ValType::I32], []);
    types.ty().function([], []);
    memories.memory(MemoryType {
        minimum: 1,
        maximum: None,
        memory64: false,
        shared: false,
        page_size_log2: None,
    });
    let (mut exports, mut code) = (ExportSection::new(), CodeSection::new());
    exports.export("memory", ExportKind::Memory, 0).export("orfa", ExportKind::Func, 0);
    for number in 0..=count {
        functions.function(u32::from(number > 0));
        let locals = if number > 0 { vec![(locals, ValType::I32)] } else { Vec::new() };
        let mut function = Function::new(locals);
        function.instructions().end();
        code.function(&function);
    }
    let mut module = Module::new();
    module.section(&types).section(&functions).section(&memories).section(&exports).section(&code);
    module.finish()
}

/// Builds the largest module of an attack that the limit of a program's bytes allows.
pub(crate) fn largest_module((_, text): &ModuleAttack) -> Vec<u8> {
    let encode = |n| wat::parse_str(format!("(module {})", text(n))).unwrap();
    let (few, more) = (encode(256).len(), encode(512).len());
    let mut n = match more - few {
        0 => 256,
        growth => 256 + (MODULE_BYTES.saturating_sub(few)) * 256 / growth,
    };
    loop {
        let wasm = encode(n);
        if wasm.len() <= MODULE_BYTES {
            return wasm;
        }
        n = n * 19 / 20;
    }
}
