//! Fuzz tests of the emitter: every text either compiles to valid JavaScript or has complete diagnostics.

use oxc_allocator::Allocator;
use oxc_parser::Parser;
use oxc_semantic::{Semantic, SemanticBuilder};
use oxc_span::SourceType;
use std::collections::BTreeSet;

use super::{WORDS, write};
use crate::{CompileOptions, LineStarts, ScriptProgram, compile, parse};

/// Globals that only the emitted code uses.
const BUILT_IN: [&str; 4] = ["Array", "ArrayBuffer", "Number", "Object"];

/// Compiles a text, and checks the program for consistency.
fn compile_checked(source: &str) -> Option<ScriptProgram> {
    match compile(source, "a.sjs", &CompileOptions::default()) {
        Ok(program) => {
            check_program(source, &program);
            Some(program)
        }
        Err(diagnostics) => {
            assert!(!diagnostics.is_empty(), "{source}");
            for it in &diagnostics {
                assert!(!it.message.is_empty() && !it.label.is_empty() && it.hint.is_some(), "{it:?}");
                assert!(it.render("a.sjs", source).contains(it.code.unwrap()));
            }
            None
        }
    }
}

fn check_program(source: &str, program: &ScriptProgram) {
    let allocator = Allocator::default();
    let parsed = Parser::new(&allocator, &program.code, SourceType::script()).parse();
    let errors: Vec<_> = parsed.diagnostics.errors().collect();
    assert!(errors.is_empty(), "{errors:?}\n{source}\n---\n{}", program.code);
    let semantic = SemanticBuilder::new().build(&parsed.program).semantic;
    let declared_nowhere = undeclared_names(source);
    for name in global_names(&semantic) {
        let is_known = BUILT_IN.contains(&&*name) || declared_nowhere.contains(&name);
        assert!(is_known, "`{name}` is not in scope\n{source}\n---\n{}", program.code);
    }
    for site in &program.sites {
        assert!(site.position.line > 0 && site.position.column > 0, "{site:?}");
    }
    for service in &program.services {
        for handler in &service.handlers {
            assert!(handler.cells.iter().all(|cell| *cell < service.cells.len()), "{handler:?}");
            assert!(handler.resource < service.resources.len(), "{handler:?}");
            let groups = handler.cells.iter().map(|cell| service.cells[*cell].group);
            assert!(
                groups.eq(handler.cells.iter().map(|_| handler.group.unwrap_or_default())),
                "{handler:?}"
            );
        }
    }
    let lines = source.lines().count().max(1);
    for (number, line) in program.code.lines().enumerate() {
        let line_number = u32::try_from(number + 1).unwrap_or(u32::MAX);
        for column in 1..=u32::try_from(line.len()).unwrap_or(0).min(200) {
            let original = program.map.original_position(line_number, column);
            assert!(original.is_none_or(|it| it.line as usize <= lines), "{original:?}");
        }
    }
    for graph in &program.graphs {
        assert!(graph.edges.iter().all(|(from, to, _)| from < to && *to < graph.nodes.len()), "{graph:?}");
        assert!(!graph.to_text().is_empty() && graph.to_svg().ends_with("</svg>\n"));
    }
    assert!(LineStarts::new(source).position(source.len()).line > 0);
}

/// Returns the names that a text uses without a declaration.
fn undeclared_names(source: &str) -> BTreeSet<String> {
    let allocator = Allocator::default();
    let parsed = parse::parse(&allocator, source);
    parsed.tree.iter().flat_map(|tree| global_names(&tree.semantic)).collect()
}

fn global_names(semantic: &Semantic<'_>) -> Vec<String> {
    semantic.scoping().root_unresolved_references().keys().map(ToString::to_string).collect()
}

#[test]
fn compiles_any_text_or_reports_complete_diagnostics() {
    ::fuzz::check(&WORDS, |bytes: &[u8]| {
        compile_checked(&String::from_utf8_lossy(bytes));
    });
}

#[test]
fn compiles_random_programs_or_reports_complete_diagnostics() {
    let compiled_too = std::cell::Cell::new(0);
    ::fuzz::check(&[], |bytes: &[u8]| {
        let is_compiled = compile_checked(&write::program(bytes).0).is_some();
        compiled_too.set(compiled_too.get() + u32::from(is_compiled));
    });
    println!("{} of {}", compiled_too.get(), 2 * ::fuzz::MAX_INPUTS);
}

#[test]
fn random_javascript_in_a_handler_stays_javascript() {
    let compiled_too = std::cell::Cell::new(0);
    ::fuzz::check(&[], |bytes: &[u8]| {
        let body = write::javascript(bytes);
        let source = format!(
            "service s {{ state a = 1, b = []\n res '/a' on POST {{ res get = '/b', g = '/c'\n {body}\n }} }}"
        );
        compiled_too.set(compiled_too.get() + u32::from(compile_checked(&source).is_some()));
    });
    println!("{} of {}", compiled_too.get(), 2 * ::fuzz::MAX_INPUTS);
}

#[test]
fn functions_of_every_block_compile_with_their_variables_in_scope() {
    let compiled_too = std::cell::Cell::new(0);
    ::fuzz::check(&[], |bytes: &[u8]| {
        let is_compiled = compile_checked(&write::functions(bytes)).is_some();
        compiled_too.set(compiled_too.get() + u32::from(is_compiled));
    });
    println!("{} of {}", compiled_too.get(), 2 * ::fuzz::MAX_INPUTS);
}

#[test]
fn last_statement_of_a_resource_is_terminated() {
    for block in [
        "on GET { respond 1 } f()",
        "on GET { respond 1 } a = {}",
        "on GET { respond 1 } f() // the last\n",
        "",
    ] {
        let top = format!("service s {{ function f() {{}} var a; res '/a' {{ {block} }} f() }}");
        let nested = format!(
            "service s {{ function f() {{}} var a; res '/a' on GET {{ res '/b' {{ {block} }} respond 1 }} f() }}"
        );
        for source in [top, nested] {
            compile_checked(&source);
        }
    }
}

#[test]
fn any_members_of_a_status_response_compile() {
    for members in [
        "body",
        "body, Location: '/b'",
        "Location: '/b', body: (1, body)",
        "'body': body",
        "body: 1, body",
        "['body']: body",
        "...{ a: 1 }, body",
        "body: { body }",
        "get Location() { return '/b' }, body",
        "async a() {}, *b() {}, set c(x) {}",
        "",
    ] {
        let source = format!(
            "service s {{ res '/a' on POST {{ state body = 1\n respond {{ 404: {{ {members} }} }} }} }}"
        );
        compile_checked(&source).unwrap_or_else(|| panic!("{source}"));
    }
}

#[test]
fn compiles_damaged_programs_or_reports_complete_diagnostics() {
    let all = [
        include_str!("../../tests/listings/3.sjs"),
        include_str!("../../tests/listings/4.sjs"),
        include_str!("../../tests/listings/6.sjs"),
        include_str!("../../tests/listings/7.sjs"),
    ];
    for good in all {
        compile_checked(good).unwrap_or_else(|| panic!("{good}"));
        ::fuzz::check(&[], |bytes: &[u8]| {
            let few = &bytes[..bytes.len().min(9)];
            compile_checked(&String::from_utf8_lossy(&::fuzz::damage_input(good.as_bytes(), few)));
        });
    }
}
