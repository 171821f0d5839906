//! The build verb on valid and invalid programs. These tests run clang, as every build of this workspace
//! does.
use std::path::{Path, PathBuf};

use query_abi::{CONSTRUCTORS, ENVIRONMENT_C, SECTION, STACK_POINTER, TABLE};
use wasmparser::{ExternalKind, Parser, Payload, TypeRef};

use super::{BuildError, BuildOptions, BuiltModule, ModuleMetadata, build, check_and_rewrite, object};

/// The maximum size of an example's module, in bytes, plain and after gzip.
const EXAMPLE_RAW: usize = 1200;
const EXAMPLE_GZIP: usize = 800;

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../sdk/c/examples").join(name)
}

/// Builds a program from its text.
fn build_text(text: &str) -> Result<BuiltModule, BuildError> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let source = folder.path().join("program.c");
    std::fs::write(&source, text).expect("a writable folder");
    build(&source, &BuildOptions::default())
}

fn build_error(text: &str) -> BuildError {
    build_text(text).expect_err("the program must be refused")
}

/// An import: its module, its name, and whether it is a function.
type ModuleImport = (String, String, bool);

/// Returns the imports and exports of a module, and the names of its custom sections.
fn module_outline(wasm: &[u8]) -> (Vec<ModuleImport>, Vec<String>, Vec<String>) {
    let (mut imports, mut exports, mut sections) = (vec![], vec![], vec![]);
    for payload in Parser::new(0).parse_all(wasm) {
        match payload.expect("a well-formed module") {
            Payload::ImportSection(section) => {
                for import in section.into_imports().map(|import| import.expect("an import")) {
                    let is_function = matches!(import.ty, TypeRef::Func(_));
                    imports.push((import.module.to_owned(), import.name.to_owned(), is_function));
                }
            }
            Payload::ExportSection(section) => {
                for export in section.into_iter().map(|export| export.expect("an export")) {
                    assert_eq!(export.kind, ExternalKind::Func);
                    exports.push(export.name.to_owned());
                }
            }
            Payload::CustomSection(section) => sections.push(section.name().to_owned()),
            _ => {}
        }
    }
    (imports, exports, sections)
}

fn imports_of(wasm: &[u8]) -> Vec<String> {
    module_outline(wasm).0.into_iter().map(|(_, name, _)| name).collect()
}

#[test]
fn examples_are_small_and_import_only_from_the_environment() {
    for name in ["second.c", "notify_admins.c", "orders.c"] {
        let built = build(&example(name), &BuildOptions::default()).expect(name);
        println!("{name}: {} bytes, {} with gzip", built.raw_size, built.gzip_size);
        assert_eq!(built.warnings, "", "{name}");
        assert!(
            built.raw_size <= EXAMPLE_RAW && built.gzip_size <= EXAMPLE_GZIP,
            "{name}: {} {}",
            built.raw_size,
            built.gzip_size
        );
        wasmparser::validate(&built.wasm).expect(name);
        let (imports, exports, sections) = module_outline(&built.wasm);
        assert!(imports.iter().all(|(module, ..)| module == ENVIRONMENT_C), "{imports:?}");
        assert_eq!(exports, ["orfa"], "{name}");
        assert_eq!(sections, [""; 0], "{name}");
    }
}

#[test]
fn imports_only_functions_in_use() {
    let built = build_text("void orfa(const void *input, int len) {}").expect("the smallest program");
    assert_eq!(imports_of(&built.wasm), ["memory"]);
    assert!(built.raw_size < 80, "{}", built.raw_size);
}

#[test]
fn imports_stack_pointer_and_table() {
    let built = build_text(
        "#include <orfa.h>\n#include <stdlib.h>\n#include <string.h>\n\
         static int compare(const void *a, const void *b) { return memcmp(a, b, 4); }\n\
         void orfa(const void *input, int len) {\n\
             int copy[8]; memcpy(copy, input, 32); qsort(copy, 8, 4, compare); orfa_done(copy, 32); }",
    )
    .expect("a program with a callback");
    wasmparser::validate(&built.wasm).expect("a valid module");
    let imports = imports_of(&built.wasm);
    assert!(
        imports.contains(&STACK_POINTER.to_owned()) && imports.contains(&TABLE.to_owned()),
        "{imports:?}"
    );
}

#[test]
fn exports_constructors_if_present() {
    let built = build_text(
        "#include <orfa.h>\nstatic volatile int ready;\n\
         __attribute__((constructor)) static void start(void) { ready = 1; }\n\
         void orfa(const void *input, int len) { orfa_status(ready ? 200 : 500); }",
    )
    .expect("a program with a constructor");
    assert!(module_outline(&built.wasm).1.contains(&CONSTRUCTORS.to_owned()));
}

#[test]
fn writes_metadata_only_on_request() {
    let mut metadata =
        ModuleMetadata { language: "c".into(), name: "second".into(), ..ModuleMetadata::default() };
    metadata.declare("profile");
    metadata.declare("order:get+post");
    let options = BuildOptions { metadata: Some(metadata), ..BuildOptions::default() };
    let built = build(&example("second.c"), &options).expect("second.c");
    assert_eq!(module_outline(&built.wasm).2, [SECTION]);
    let text = r#"{"language":"c","name":"second","services":{"order":["GET","POST"],"profile":["GET"]}}"#;
    assert!(built.wasm.ends_with(text.as_bytes()));
}

#[test]
fn rejects_undefined_data_by_name() {
    let error = build_error(
        "extern int rate; int *orfa_x; void orfa(const void *i, int l) { orfa_x = &rate; *orfa_x = l; }",
    );
    assert_eq!(error.code(), "data-undefined");
    assert!(error.to_string().contains("undefined data rate:"), "{error}");
    let error = build_error("#include <stdio.h>\nvoid orfa(const void *i, int l) { fputs(\"x\", stderr); }");
    assert!(error.to_string().contains("stderr") && error.to_string().contains("orfa_log"), "{error}");
}

#[test]
fn reports_excess_data_in_bytes() {
    let zeroed = build_error(
        "static char big[65536 + 100]; char *p; void orfa(const void *i, int l) { p = big; big[l] = 1; }",
    );
    assert_eq!(zeroed.code(), "data-overrun");
    assert!(zeroed.to_string().contains("104 bytes too large"), "{zeroed}");
    let error = build_error(
        "char *p; static char big[70000] = {1}; void orfa(const void *i, int l) { p = big; big[l] = 1; }",
    );
    assert_eq!(error.code(), "data-overrun");
}

#[test]
fn suggests_the_nearest_environment_function() {
    let error = build_error("int orfa_lenght(int); void orfa(const void *i, int l) { orfa_lenght(l); }");
    assert_eq!(error.code(), "function-unknown");
    assert!(error.to_string().contains("did you mean `orfa_len`?"), "{error}");
    let error = build_error("#include <stdio.h>\nvoid orfa(const void *i, int l) { printf(\"%d\", l); }");
    assert!(error.to_string().contains("orfa_log"), "{error}");
}

#[test]
fn rejects_functions_declared_with_other_types() {
    let error = build_error(
        "double orfa_len(double); double x; void orfa(const void *i, int l) { x = orfa_len(x); }",
    );
    assert_eq!(error.code(), "function-signature");
    assert!(
        error.to_string().contains("(f64) -> (f64)") && error.to_string().contains("(i32) -> (i32)"),
        "{error}"
    );
}

#[test]
fn rejects_imports_from_other_modules() {
    let error = build_error(
        "__attribute__((import_module(\"wasi\"), import_name(\"fd_write\"))) int out(int);\n\
         void orfa(const void *i, int l) { out(l); }",
    );
    assert_eq!((error.code(), error.to_string().contains("wasi.fd_write")), ("import-foreign", true));
}

#[test]
fn requires_the_entry_point_with_its_signature() {
    assert_eq!(build_error("int answer(void) { return 42; }").code(), "entry-missing");
    let error = build_error("int orfa(void) { return 42; }");
    assert_eq!((error.code(), error.to_string().contains("() -> (i32)")), ("entry-signature", true));
}

#[test]
fn reports_compiler_errors() {
    let error = build_error("void orfa(const void *input, int len) { return 1 }");
    assert_eq!(error.code(), "compile-failed");
    assert!(error.to_string().contains("program.c:1:"), "{error}");
}

#[test]
fn distinguishes_other_languages_and_missing_files() {
    let code = |name: &str| build(Path::new(name), &BuildOptions::default()).expect_err("no C file").code();
    assert_eq!(code("second.ts"), "source-language");
    assert_eq!(code("nowhere/to/be/found.c"), "source-unreadable");
}

#[test]
fn truncated_objects_and_modules_never_panic() {
    let wasm = build(&example("second.c"), &BuildOptions::default()).expect("second.c").wasm;
    for len in 0..wasm.len() {
        assert!(object::inspect(&wasm[..len]).is_err(), "{len}");
        assert!(check_and_rewrite(&wasm[..len], &BuildOptions::default()).is_err(), "{len}");
    }
    assert_eq!(object::inspect(&wasm).expect_err("a module is not an object").code(), "module-malformed");
}
