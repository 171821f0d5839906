//! Hostile texts: large ones, deeply nested ones, and names that collide with the compiler's.
#![allow(missing_docs)]

use script::{CompileOptions, ScriptProgram, compile};

fn compile_valid(source: &str) -> ScriptProgram {
    compile(source, "test.sjs", &CompileOptions::default()).unwrap_or_else(|diagnostics| {
        let said: Vec<String> = diagnostics.iter().map(|it| it.render("test.sjs", source)).collect();
        panic!("{}", said.join("\n"))
    })
}

/// Returns a handler with these statements.
fn post_handler(statements: &str) -> String {
    format!("service s {{ res '/a' on POST {{ res g = 'http://g/@'\n{statements}\n}} }}")
}

fn repeat_indexed(count: usize, one: impl Fn(usize) -> String) -> String {
    (0..count).map(one).collect()
}

#[test]
fn rejects_large_texts_with_the_limit() {
    let diagnostics = compile(&" ".repeat((1 << 20) + 1), "test.sjs", &CompileOptions::default())
        .expect_err("the text is too large");
    let [only] = diagnostics.as_slice() else { panic!("{diagnostics:?}") };
    assert_eq!((only.code, only.message.as_str()), (Some("s-too-large"), "a file has at most 1024 KiB"));
    assert!(only.hint.is_some());
}

/// Guards against superlinear growth, which would make this test run for minutes.
#[test]
fn compiles_a_thousand_of_each_construct() {
    const CONSTRUCT_COUNT: usize = 1000;
    let texts = [
        post_handler(&format!(
            "par {{ {} }}",
            repeat_indexed(CONSTRUCT_COUNT, |i| format!("var a{i} = g.get({i})\n"))
        )),
        post_handler(&format!(
            "par {{ var a0 = 1\n{} }}",
            repeat_indexed(CONSTRUCT_COUNT, |i| format!("var a{} = g.get(a{i})\n", i + 1))
        )),
        post_handler(&format!(
            "par {{ var {} last }}",
            repeat_indexed(CONSTRUCT_COUNT, |i| format!("a{i} = g.get({i}), "))
        )),
        post_handler(&format!("par {{ {} }}", "g.post(1)\n".repeat(CONSTRUCT_COUNT))),
        post_handler(&format!(
            "par {{ var x = {}1{} }}",
            "g.get(".repeat(CONSTRUCT_COUNT / 4),
            ")".repeat(CONSTRUCT_COUNT / 4)
        )),
        post_handler(&format!(
            "{}{}",
            "par { g.get(1)\n".repeat(CONSTRUCT_COUNT / 4),
            "}".repeat(CONSTRUCT_COUNT / 4)
        )),
        post_handler(&format!(
            "var o = []\npfor(var i in query.l) {{ {} }}",
            "o[i] = g.get(i)\n".repeat(CONSTRUCT_COUNT)
        )),
        post_handler(&format!(
            "{} function f{CONSTRUCT_COUNT}() {{ return g.get(1) }} f0()",
            repeat_indexed(CONSTRUCT_COUNT, |i| format!("function f{i}() {{ return f{}() }}\n", i + 1))
        )),
        format!(
            "service s {{ {} }}",
            repeat_indexed(CONSTRUCT_COUNT, |i| format!(
                "res '/a{i}' {{ state n = {i}\non PUT {{ n++ }} }}\n"
            ))
        ),
        repeat_indexed(CONSTRUCT_COUNT, |i| {
            format!("service s{i} {{ res '/a' on GET {{ respond {i} }} }}\n")
        }),
    ];
    for text in texts {
        assert!(compile_valid(&text).code.len() > text.len() / 2);
    }
}

#[test]
fn colliding_view_names_are_made_unique() {
    let service = &compile_valid(
        "service s { state a = 1, a$2 = 5\nres '/x' on POST { state a = 2\na$2++; a++; respond [a, a$2] } }",
    )
    .services[0];
    let views: Vec<&str> = service.cells.iter().map(|cell| cell.view.as_str()).collect();
    assert_eq!(views, ["a", "a$2", "a$3"]);
}

#[test]
fn using_and_eval_are_not_moved_into_functions() {
    for statement in ["using x = g.get(1), y = g.get(2)", "eval('a = 1')"] {
        let program = compile_valid(&post_handler(&format!(
            "par {{ var a = g.get(3)\n{statement}\nvar b = g.get(4) }}"
        )));
        let graph = &program.graphs[0];
        assert!(program.code.contains(statement.split('=').next().expect("a part")), "{}", program.code);
        assert_eq!(graph.edges.len(), 2, "{}", graph.to_text());
        assert!(!program.code.contains("$r.par("), "{}", program.code);
    }
}
