//! Diagnostics of texts that violate a rule: codes, places and corrections.
#![allow(missing_docs)]

use diagnostics::DiagnosticSeverity;
use script::{CommitPoint, CompileOptions, ConcurrencyClass, HeaderReads, ScriptProgram, compile};

fn render_with_strictness(source: &str, strict_paths: bool) -> String {
    let diagnostics = match compile(source, "test.sjs", &CompileOptions { strict_paths }) {
        Ok(program) => program.warnings,
        Err(found) => found,
    };
    let shown: Vec<String> = diagnostics.iter().map(|it| it.render("test.sjs", source)).collect();
    shown.join("\n")
}

fn render_diagnostics(source: &str) -> String {
    render_with_strictness(source, false)
}

fn compile_valid(source: &str) -> ScriptProgram {
    compile(source, "test.sjs", &CompileOptions::default())
        .unwrap_or_else(|diagnostics| panic!("{diagnostics:?}"))
}

#[test]
fn rule_1_warns_about_service_state_under_several_paths() {
    insta::assert_snapshot!(render_diagnostics(include_str!("rules/1.sjs")));
    let strict = render_with_strictness(include_str!("rules/1.sjs"), true);
    assert!(strict.starts_with("error[s-state-paths]"), "{strict}");
}

#[test]
fn rule_3_get_is_safe() {
    insta::assert_snapshot!(render_diagnostics(include_str!("rules/3.sjs")));
}

#[test]
fn rule_3_applies_to_head_and_to_aliases() {
    insta::assert_snapshot!(render_diagnostics(include_str!("rules/3-head.sjs")));
}

#[test]
fn rule_6_warns_about_declarations_before_the_commit() {
    insta::assert_snapshot!(render_diagnostics(include_str!("rules/6.sjs")));
}

#[test]
fn rule_6_early_commit_considers_aliases() {
    let commits_early = |body: &str| {
        let program = compile_valid(&format!(
            "service s {{ res '/a' on POST {{ state words = {{ list: [] }}\n res g = 'http://x/@'\n \
             function put(to, what) {{ to.a = what }}\n function same(it) {{ return it }}\n \
             function add(to) {{ to.push(9) }}\n {body} }} }}"
        ));
        matches!(program.services[0].handlers[0].commit, CommitPoint::Early(_))
    };
    for early in [
        "words.a = [1]; var p = g.get(1); respond p",
        "var l = []; words.a = l; l.push(1); var p = g.get(1); respond l.length + p",
        "var l = []; words.a = JSON.parse(JSON.stringify(l)); var p = g.get(1); l.push(p)",
        "var l = [], m = []; words.a = l; var p = g.get(1); m.push(p)",
        "var l = words.list; function grow() { l.push(1) } grow(); var p = g.get(1)",
        "var first = words.list.shift(); var p = g.get(1); first.page = p",
    ] {
        assert!(commits_early(early), "{early}");
    }
    for late in [
        "var l = []; words.a = l; var p = g.get(1); l.push(p)",
        "var l = []; words.list.push(l); var p = g.get(1); l.push(p)",
        "var l = words.list; l.push(1); var p = g.get(1); l.push(p)",
        "var o = { list: [] }; words.a = o; var l = o.list, p = g.get(1); l.push(p)",
        "var l = [], o = { l }; words.a = o; var p = g.get(1); l.push(p)",
        "var l = []; words.a = [0, { l }]; var p = g.get(1); l.push(p)",
        "var l = []; Object.assign(words, { l }); var p = g.get(1); l.push(p)",
        "var l = []; words = { ...words, l }; var p = g.get(1); l.push(p)",
        "var l = []; [words.a, words.b] = [l, 1]; var p = g.get(1); l.push(p)",
        "var l = []; put(words, l); var p = g.get(1); l.push(p)",
        "var l = []; words.a = same(l); var p = g.get(1); l.push(p)",
        "var l = []; words.a = l; var p = g.get(1); add(l)",
        "var l = []; const set = (k) => { words[k] = l }; set('a'); var p = g.get(1); l.push(p)",
        "var l = [[1]]; words.a = l.map((it) => it); var p = g.get(1); l[0].push(p)",
        "var l = (words.a ??= []); l.push(1); var p = g.get(1); l.push(p)",
        "var l = query.list; words.a = l; var p = g.get(1); l.push(p)",
        "var l = words.list; function grow() { l.push(1) } var p = g.get(1); grow()",
        "var l = words.list; const grow = () => more(); function more() { l.push(1) } var p = g.get(1); grow()",
        "var l = words.list; class A { get x() { return l.push(1) } } var p = g.get(1); new A().x",
    ] {
        assert!(!commits_early(late), "{late}");
    }
}

#[test]
fn rule_6_emits_early_commits_after_any_statement() {
    for (body, emitted) in [
        ("state n = 1; g.get()", "$r.initial(0, () => (1));; $r.commit();"),
        ("total++; g.get()", "$c.total++;; $r.commit();"),
        ("respond total++; g.get()", "$r.respond($c.total++);; $r.commit();"),
        ("par { total++ } g.get()", "{ $c.total++; }; $r.commit();"),
        ("pfor(var i in [1]) { var x = i } total++; g.get()", "$c.total++;; $r.commit();"),
    ] {
        let source = format!("service s {{ state total = 0; res g = '/g'; res '/a' on POST {{ {body} }} }}");
        let program = compile_valid(&source);
        assert!(matches!(program.services[0].handlers[0].commit, CommitPoint::Early(_)), "{body}");
        assert!(program.code.contains(emitted), "{body}: {}", program.code);
    }
}

#[test]
fn rule_9_captured_variables_are_copies() {
    insta::assert_snapshot!(render_diagnostics(include_str!("rules/9.sjs")));
}

#[test]
fn rule_9_nested_blocks_use_captured_variables_only_in_functions() {
    insta::assert_snapshot!(render_diagnostics(include_str!("rules/9-block.sjs")));
}

#[test]
fn rule_9_rejects_shadowed_captured_variables() {
    let nested = |outer: &str, inner: &str, last: &str| {
        format!(
            "service s {{ res '/a' on POST {{ {outer}\n res '/b/' + query.x on POST {{ {inner}\n \
             res '/c/' + query.y on GET {{ {last} }} }} }} }}"
        )
    };
    let f = "var x = query.x; function f() { return x }";
    for (outer, inner, last) in [
        (f, "var x = query.y", "respond [f(), x]"),
        (f, "let x = query.y", "respond [x, f()]"),
        (f, "var x = query.y", "respond f()"),
        (f, "function x() { return f() }", "respond x()"),
        // A copied function shadows the variable that is captured from the nearer handler.
        ("function x() { return 1 } function f() { return x() }", "var x = query.y", "respond [f(), x]"),
        // A variable of the capturing handler shadows it too.
        (f, "var y = query.y", "var x = y; respond [f(), x]"),
        (f, "var y = query.y", "if (y) { var x = 1 } respond f()"),
    ] {
        let said = render_diagnostics(&nested(outer, inner, last));
        assert!(
            said.contains("error[s-captured-use]: a nested resource captures `x`, and another `x` hides it"),
            "{last}: {said}"
        );
    }
    for (outer, inner, last) in [
        (f, "var x = query.y", "respond x"),
        (f, "var y = query.y", "respond [f(), y]"),
        (f, "var y = query.y", "let x = y; respond [f(), x]"),
        (f, "var x = query.y; function g() { return x }", "respond g()"),
    ] {
        let said = render_diagnostics(&nested(outer, inner, last));
        assert!(!said.contains("error["), "{inner}; {last}: {said}");
    }
}

#[test]
fn rule_11_notes_hoisted_resources() {
    insta::assert_snapshot!(render_diagnostics(include_str!("rules/11.sjs")));
}

#[test]
fn rules_12_and_13_get_responds_once_on_each_path() {
    insta::assert_snapshot!(render_diagnostics(include_str!("rules/12.sjs")));
}

#[test]
fn rule_14_warns_about_adding_url_text_to_numbers() {
    insta::assert_snapshot!(render_diagnostics(include_str!("rules/14.sjs")));
}

#[test]
fn rule_15_arguments_match_placeholders() {
    insta::assert_snapshot!(render_diagnostics(include_str!("rules/15.sjs")));
}

#[test]
fn rule_17_rejects_calls_that_cannot_be_awaited() {
    insta::assert_snapshot!(render_diagnostics(include_str!("rules/17.sjs")));
}

#[test]
fn rule_17_state_needs_a_known_request() {
    insta::assert_snapshot!(render_diagnostics(include_str!("rules/17-nobody.sjs")));
}

#[test]
fn rule_17_functions_of_any_block_receive_the_request() {
    let source = include_str!("rules/17-functions.sjs");
    assert_eq!(render_diagnostics(source), "");
    insta::assert_snapshot!(compile_valid(source).code);
}

#[test]
fn rule_19_iterations_of_pfor_are_independent() {
    insta::assert_snapshot!(render_diagnostics(include_str!("rules/19.sjs")));
}

#[test]
fn rules_8_and_21_no_code_outside_of_handlers_and_state_is_data() {
    insta::assert_snapshot!(render_diagnostics(include_str!("rules/21.sjs")));
}

#[test]
fn rule_21_requests_cannot_change_variables_of_nested_blocks() {
    let nested = |block: &str| {
        format!("service s {{ res '/a' on POST {{ var x = query.x\n res '/b/' + x {{ {block} }} }} }}")
    };
    for changed in [
        "var k = 0\n on POST { k++; respond x }",
        "let k = 0\n function next() { return ++k }\n on POST { respond [x, next()] }",
        "const k = {}\n on POST { k[x] = 1 }",
    ] {
        let said = render_diagnostics(&nested(changed));
        assert!(said.contains("[s-shared-variable]: `k` is changed by a request"), "{changed}: {said}");
        assert!(said.contains("declare it as state, in the resource: `state k`"), "{changed}: {said}");
    }
    for fine in [
        "const k = 1\n on POST { respond [x, k] }",
        "state k = 0\n on POST { k++; respond x }",
        "on POST { var k = 0; k++; respond [x, k] }",
        "let k = {}; k.a = 1\n on POST { respond [x, k] }",
    ] {
        assert!(!render_diagnostics(&nested(fine)).contains("s-shared-variable"), "{fine}");
    }
}

#[test]
fn rule_22_computed_paths_are_only_allowed_in_handlers() {
    for path in ["'/b' + p", "p", "`/b${p}`", "'/b' + '/c'"] {
        for resource in ["on GET { respond 1 }", "{ on GET { respond 1 } }"] {
            let said = render_diagnostics(&format!("const p = '/p'\n service s {{ res {path} {resource} }}"));
            let text = "error[s-res-path]: the path of a resource outside of handlers must be a literal";
            assert!(said.starts_with(text), "{path}: {said}");
        }
        let inside = format!(
            "const p = '/p'\n service s {{ res '/a' on POST {{ res {path} on GET {{ respond 1 }} }} }}"
        );
        assert!(!render_diagnostics(&inside).contains("s-res-path"), "{path}");
    }
    assert_eq!(render_diagnostics("service s { res `/b` on GET { respond 1 } }"), "");
}

#[test]
fn rule_21_rejects_calls_of_stateful_functions_outside_of_handlers() {
    insta::assert_snapshot!(render_diagnostics(include_str!("rules/21-calls.sjs")));
}

#[test]
fn rule_3_a_pragma_allows_unsafe_calls_in_get() {
    let source = "service s { res '/a' on GET { \"allow unsafe calls in GET\"; res g = 'http://a/'; g.post(1); respond 1 } }";
    assert_eq!(render_diagnostics(source), "");
    for source in [
        "\"allow unsafe calls in GET\"; service s { res '/a' on GET { res g = 'http://a/'; g.post(1); respond 1 } }",
        "service s { \"allow unsafe calls in GET\"; res '/a' on GET { res g = 'http://a/'; g.post(1); respond 1 } }",
    ] {
        assert_eq!(render_diagnostics(source), "", "{source}");
    }
}

#[test]
fn rule_2_merges_resources_of_the_same_path() {
    let program =
        compile_valid("service s { state n = 1\n res '/a' on GET { respond n }\n res '/a' on PUT { n++ } }");
    let [resource] = program.services[0].resources.as_slice() else { panic!("{:?}", program.services) };
    assert_eq!(resource.methods.len(), 2);
    assert_eq!(program.warnings, []);
}

#[test]
fn rule_4_classifies_handlers_by_their_accesses() {
    let classes = |body: &str| {
        let program = compile_valid(&format!(
            "service s {{ state list = [], n = 0, o = {{}}\n function change(l) {{ l.push(1) }}\n function look(l) {{ return l.length }}\n \
             function all() {{ return list }}\n function first(l) {{ return l[0] }}\n \
             function bump() {{ n++ }}\n function grow(l) {{ arguments[0].push(1) }}\n res '/a' on PUT {{ {body} }} }}"
        ));
        program.services[0].handlers[0].class
    };
    for stateless in ["respond 1", "var list = []; list.push(1)", "change([1])"] {
        assert_eq!(classes(stateless), ConcurrencyClass::Stateless, "{stateless}");
    }
    for reader in [
        "respond list",
        "respond list.filter((it) => it.name == query.name).length",
        "var first = list[0]; respond first.name + n",
        "for (const it of list) if (it.a) respond it",
        "respond look(list)",
        "respond all().length + first(list).a",
        "var { a } = o; respond JSON.stringify(a)",
        "list.forEach((it) => console.log(it.a))",
    ] {
        assert_eq!(classes(reader), ConcurrencyClass::Reader, "{reader}");
    }
    for writer in [
        "n++",
        "n = query.n",
        "list.push(1)",
        "var all = list; all.push(1)",
        "var all = list.filter((it) => it.a); all[0].b = 1",
        "list.forEach((it) => { it.seen = true })",
        "for (const it of list) it.seen = true",
        "change(list)",
        "bump()",
        "all().push(1)",
        "first(list).a = 1",
        "const last = () => list; last().pop()",
        "delete o[query.k]",
        "[n] = [1]",
        "unknown(list)",
        "list.sort()",
        "grow(list)",
        "var it = list.find((it) => it.a); it.b++",
    ] {
        assert_eq!(classes(writer), ConcurrencyClass::Writer, "{writer}");
    }
}

#[test]
fn rule_5_groups_cells_that_are_accessed_together() {
    let source = "service s { state a = 1, b = 2, c = 3
      res '/x' on PUT { a = b }
      res '/y' on PUT { b++ }
      res '/z' { state d = 1\n on PUT { d++; c++ } on GET { respond d } } }";
    let service = &compile_valid(source).services[0];
    let groups: Vec<(bool, Vec<usize>)> =
        service.groups.iter().map(|it| (it.shared, it.cells.clone())).collect();
    assert_eq!(groups, [(true, vec![0, 1]), (true, vec![2, 3])]);
}

#[test]
fn rule_11_hoists_nested_resources_without_captures() {
    let source = "service s { res '/a' on POST { var x = 1\n res '/b' on GET { respond 1 }\n res '/c' on GET { respond x } } }";
    let program = compile_valid(source);
    let parents: Vec<_> =
        program.services[0].resources.iter().map(|it| (it.key.as_str(), it.parent)).collect();
    assert_eq!(parents, [("/a", None), ("/b", None), ("/a POST > /c", Some(0))]);
    let [note] = program.warnings.as_slice() else { panic!("{:?}", program.warnings) };
    assert_eq!((note.severity, note.code), (DiagnosticSeverity::Note, Some("s-hoisted")));
}

#[test]
fn rule_13_only_literal_status_codes_set_the_status() {
    let emitted =
        |value: &str| compile_valid(&format!("service s {{ res '/a' on POST {{ respond {value} }} }}")).code;
    assert!(emitted("{ 302: { Location: '/b' } }").contains("$r.answer(302, {Location: '/b'});"));
    assert!(emitted("{ 404: { body: 'no', 'X-A': 1 } }").contains("$r.answer(404, {'X-A': 1}, 'no');"));
    for data in [
        "{ '302': { Location: '/b' } }",
        "{ 302: query.x }",
        "{ 302: {}, a: 1 }",
        "{ 42: {} }",
        "{ [302]: {} }",
    ] {
        assert!(emitted(data).contains("$r.respond("), "{data}");
    }
}

#[test]
fn rule_14_finds_the_request_parts_that_are_read() {
    let reads = |body: &str| {
        let reads = compile_valid(&format!("service s {{ res '/a' on POST {{ {body} }} }}")).services[0]
            .handlers[0]
            .reads;
        (reads.query, reads.headers, reads.body)
    };
    assert_eq!(reads("respond 1"), (false, false, false));
    assert_eq!(reads("respond query.a + query.$path"), (true, false, false));
    assert_eq!(reads("respond query.$headers.host"), (false, true, false));
    assert_eq!(reads("var { $body } = query; respond $body"), (false, false, true));
    assert_eq!(reads("respond query"), (true, true, true));
    assert_eq!(reads("respond query[query.a]"), (true, true, true));
}

#[test]
fn rule_14_finds_the_headers_that_are_read() {
    let reads = |body: &str| {
        let program = compile_valid(&format!("service s {{ res '/a' on POST {{ {body} }} }}"));
        program.services[0].handlers[0].header_reads.clone()
    };
    let named = |names: &[&str]| HeaderReads::Named(names.iter().map(|name| (*name).to_owned()).collect());
    assert_eq!(reads("respond query.a"), named(&[]));
    assert_eq!(
        reads("respond [query.$headers.host, query.$headers['x-a'], query.$headers?.b]"),
        named(&["b", "host", "x-a"])
    );
    assert_eq!(
        reads("var { cookie, 'x-a': a } = query.$headers; respond cookie + a"),
        named(&["cookie", "x-a"])
    );
    for any in [
        "respond query.$headers",
        "respond query.$headers[query.a]",
        "respond [query.$headers.host, query.$headers]",
        "var h = query.$headers; respond h.host",
        "var { $headers } = query; respond $headers.host",
        "var { host, ...others } = query.$headers; respond others",
        "respond JSON.stringify(query)",
        "respond query[query.a]",
    ] {
        assert_eq!(reads(any), HeaderReads::Any, "{any}");
    }
}

#[test]
fn rule_15_placeholders_occur_only_in_literal_text() {
    let emitted = |url: &str, values: &str| {
        let source = format!("service s {{ res '/a' on POST {{ res g = {url}; g.get({values}) }} }}");
        let code = compile_valid(&source).code;
        let (_, rest) = code.split_once("$s.resource(").expect("a resource");
        rest.split_once(");").expect("its end").0.to_owned()
    };
    assert_eq!(emitted("'/a/@?b=@'", "1, 2"), r#"["/a/", "?b=", ""]"#);
    assert_eq!(emitted("'/a@@b'", ""), r#"["/a@b"]"#);
    assert_eq!(emitted("query.url", ""), r"[{v: query.url}]");
    assert_eq!(emitted("'/red/' + query.id + '?count=@'", "1"), r#"["/red/", {v: query.id}, "?count=", ""]"#);
    assert_eq!(emitted("`/red/${query.id}@`", "1"), r#"["/red/", {v: query.id}, "", ""]"#);
    assert_eq!(emitted("1 + 2 + '/@'", "1"), r#"[{v: 1 + 2}, "/", ""]"#);
}

#[test]
fn blocks_that_declare_names_have_a_scope_of_their_own() {
    let block = |path: &str| {
        format!(
            "res '{path}' {{ res far = 'http://far{path}'; const n = 1; on GET {{ respond [n, far.get()] }} }}"
        )
    };
    let code = compile_valid(&format!("service s {{ {} {} }}", block("/a"), block("/b"))).code;
    assert_eq!((code.matches(";(() => {").count(), code.matches("})();").count()), (2, 2), "{code}");
    let plain =
        compile_valid("service s { res '/a' { state n = 1; on GET { const m = n; respond m } } }").code;
    assert!(!plain.contains(";(() => {"), "{plain}");
}
