//! Tests the meaning of compiled programs on Node.js, with simulated resources and a simulated clock.
#![allow(missing_docs)]

use std::cell::RefCell;

use proptest::collection::vec;
use proptest::prelude::any;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Value, json};

use meaning::node::{NodeProcess, compile_valid};
use meaning::write::HandlerGenerator;

mod meaning {
    pub(crate) mod node;
    pub(crate) mod write;
}

/// Returns the sequential version of a program.
fn sequential_version(source: &str) -> String {
    source.replace("par {", "{").replace("pfor(", "/* S: sequential */ pfor(")
}

/// Runs random programs with `par` and `pfor`, and compares the results with those of their sequential
/// versions.
fn compare_with_sequential(engine: NodeProcess, cases: u32) {
    let node = RefCell::new(engine);
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let result = TestRunner::new(config).run(&(vec(any::<u8>(), 0..=160), any::<u32>()), |(bytes, seed)| {
        let source = HandlerGenerator::program(&bytes);
        let mut node = node.borrow_mut();
        let script_program = compile_valid(&source);
        let other = compile_valid(&sequential_version(&source));
        let parallel = node.run(&script_program, 0, seed, &json!({}));
        let expected = node.run(&other, 0, seed.wrapping_add(1), &json!({}));
        assert_eq!(parallel, expected, "{source}\n{}", script_program.code);
        Ok(())
    });
    if let Err(failure) = result {
        panic!("{failure}");
    }
}

#[test]
fn par_and_pfor_match_sequential_execution() {
    compare_with_sequential(NodeProcess::start(), 400);
}

#[test]
fn par_and_pfor_match_sequential_execution_on_bun() {
    match NodeProcess::bun() {
        Some(bun) => compare_with_sequential(bun, 100),
        None => eprintln!("Bun is not installed: `scripts/setup script` installs it"),
    }
}

#[test]
fn the_calls_of_a_par_overlap() {
    let source = "service s { res '/a' on POST { res a = 'http://a/@', b = 'http://b/@'
      par { var x = a.get(1); var y = b.get(x); var z = a.get(2)
        respond x + y + z } } }";
    let program = compile_valid(source);
    let graph = &program.graphs[0];
    assert_eq!(
        graph.edges.iter().map(|(from, to, why)| (*from, *to, why.as_str())).collect::<Vec<_>>(),
        [(0, 1, "x"), (1, 3, "y"), (2, 3, "z")]
    );
    assert_eq!(NodeProcess::start().run(&program, 0, 1, &json!({}))["error"], Value::Null);
}

/// Returns the graph of a handler's only `par`: each step with its dependencies.
fn par_graph(declared: &str, statements: &str) -> Vec<(String, Vec<usize>)> {
    let source = format!(
        "service s {{ res '/a' on POST {{ res a = 'http://a/@', b = 'http://b/@'\n{declared}\npar {{ {statements} }} }} }}"
    );
    let program = compile_valid(&source);
    let graph = &program.graphs[0];
    let needs = |index| graph.edges.iter().filter(move |(_, to, _)| *to == index).map(|(from, _, _)| *from);
    graph.nodes.iter().enumerate().map(|(index, node)| (node.label.clone(), needs(index).collect())).collect()
}

fn expected_steps(expected: &[(&str, &[usize])]) -> Vec<(String, Vec<usize>)> {
    expected.iter().map(|(label, needs)| ((*label).to_owned(), needs.to_vec())).collect()
}

#[test]
fn rule_18_splits_declarations_into_steps() {
    let shown = par_graph("", "var x = a.get(1), y = b.get(2), z = a.get(x)\nrespond x + y + z");
    let expected: [(&str, &[usize]); 4] = [
        ("var x = a.get(1)", &[]),
        ("var y = b.get(2)", &[]),
        ("var z = a.get(x)", &[0]),
        ("respond x + y + z", &[1, 2]),
    ];
    assert_eq!(shown, expected_steps(&expected));
}

#[test]
fn rule_18_patterns_and_variables_without_calls_are_steps() {
    let shown = par_graph(
        "",
        "let n = 1, { p, q: [r] } = a.get(n), [s] = b.get(2), t\nt = a.get(r)\nrespond [p, s, t]",
    );
    let expected: [(&str, &[usize]); 6] = [
        ("let n = 1", &[]),
        ("let { p, q: [r] } = a.get(n)", &[0]),
        ("let [s] = b.get(2)", &[]),
        ("let t", &[]),
        ("t = a.get(r)", &[1, 3]),
        ("respond [p, s, t]", &[2, 4]),
    ];
    assert_eq!(shown, expected_steps(&expected));
}

#[test]
fn rule_18_unsafe_calls_of_one_resource_keep_their_order_within_a_declaration() {
    let shown = par_graph("", "const x = a.post(1), y = b.post(2), z = a.put(3)");
    let expected: [(&str, &[usize]); 3] =
        [("const x = a.post(1)", &[]), ("const y = b.post(2)", &[]), ("const z = a.put(3)", &[0])];
    assert_eq!(shown, expected_steps(&expected));
}

#[test]
fn rule_18_use_before_declaration_throws_in_par() {
    let mut node = NodeProcess::start();
    for statements in [
        "let x = y, y = a.get(1), z = b.get(2)",
        "let x = a.get(y), y = b.get(1), z = b.get(2)",
        "const f = () => y; const x = f(); let y = a.get(1), z = b.get(2)",
        "let x = x + a.get(1), z = b.get(2)",
        "let { x = y, y } = a.get(1), z = b.get(2)",
        "const x = a.get(1), z = b.get(2); x = 3",
        "class A extends B {}; class B {}; let z = b.get(2), x = a.get(1)",
        "x = 1; let x = a.get(1), z = b.get(2)",
    ] {
        let source = format!(
            "service s {{ res '/a' on POST {{ res a = 'http://a/@', b = 'http://b/@'\npar {{ {statements} }} respond 1 }} }}"
        );
        let answer = node.run(&compile_valid(&source), 0, 1, &json!({}));
        let error = answer["error"].as_str().unwrap_or("");
        assert!(
            error.starts_with("ReferenceError") || error.starts_with("TypeError"),
            "{statements}: {answer}"
        );
        assert_eq!(
            answer,
            node.run(&compile_valid(&sequential_version(&source)), 0, 1, &json!({})),
            "{statements}"
        );
    }
}

#[test]
fn rule_18_recursive_functions_do_not_prevent_parallel_calls() {
    let shown = par_graph("", "const f = (n) => n ? f(n - 1) : 0, x = a.get(1), y = b.get(2)");
    assert_eq!(
        shown[1..],
        expected_steps(&[("", &[]), ("const x = a.get(1)", &[]), ("const y = b.get(2)", &[])])[1..]
    );
}

#[test]
fn rule_19_repeats_bodies_without_braces() {
    let mut node = NodeProcess::start();
    let puts = |answer: &Value| answer["calls"]["http://a/@"].as_array().map_or(0, Vec::len);
    for (body, expected, count) in [
        ("if (i % 2) out[i] = a.get(i) * 0 + i; else out[i] = 'even'", json!(["even", 1, "even"]), 0),
        ("if (i == 5) a.put(i); else pfor(var k in l) a.put(k); out[0] = 1", json!([1]), 9),
        ("pfor(var k in l) a.put(k);", json!([]), 9),
        ("try { null.x } catch { out[i] = a.get(i) * 0 + i } finally { i }", json!([0, 1, 2]), 0),
        ("for (var k = 0; k < 2; k++) if (k) continue; else a.put(k);", json!([]), 3),
    ] {
        let source = format!(
            "service s {{ res '/a' on POST {{ res a = 'http://a/@'\nvar out = [], l = [1, 2, 3]\npfor(var i in l) {body}\nrespond out }} }}"
        );
        let answer = node.run(&compile_valid(&source), 0, 1, &json!({}));
        let sequential = node.run(&compile_valid(&sequential_version(&source)), 0, 1, &json!({}));
        for answer in [answer, sequential] {
            assert_eq!((&answer["answers"], puts(&answer)), (&json!([expected]), count), "{body}: {answer}");
        }
    }
}

#[test]
fn functions_that_use_state_keep_arguments_and_constructors() {
    let source = "service s { state n = 10
      function count(a) { const all = () => arguments.length; return all() + n + (function () { return arguments.length })() }
      function Item(x) { this.x = x + n }
      res '/a' on POST { respond [count(1, 2), count(), [5].map(count), new Item(3).x, new (Item)(4).x, new Item instanceof Item] } }";
    let answer = NodeProcess::start().run(&compile_valid(source), 0, 1, &json!({}));
    assert_eq!(answer["answers"], json!([[12, 10, [13], 13, 14, true]]), "{answer}");
}

#[test]
fn functions_of_a_resource_call_resources_and_use_its_state() {
    let source = "service s { res own = 'http://x/@'
      res '/a' {
        state n = 10
        function even(k) { return k ? odd(k - 1) : own.get(0) }
        const odd = (k) => k ? even(k - 1) : -1
        const sum = function self(k) { return k ? self(k - 1) + n : 0 }
        function count() { return arguments.length + n }
        function bump() { n += 5 }
        async function all(list) { var out = []; pfor(var i in list) { out[i] = await list[i] } return out }
        on POST {
          function inner(k) { function deeper() { return even(k) } return deeper() }
          bump()
          respond [even(3), even /* ( */ (even(3) + 1) === own.get(0), even(even(3) + 2), even(even(0)) === even(own.get(0)), inner(2) === own.get(0), sum(2), count(1, 2), [7].map(count), await all([later(1)])]
          function later(k) { return (function it(k) { return k ? it(k - 1) : odd(k) })(k) }
        } } }";
    let answer = NodeProcess::start().run(&compile_valid(source), 0, 1, &json!({}));
    assert_eq!(answer["answers"], json!([[-1, true, -1, true, true, 30, 17, [18], [-1]]]), "{answer}");
}

#[test]
fn functions_of_a_nested_resource_use_captured_variables() {
    let source = "service s { state hits = 0
      res '/a' on POST {
        var x = Number(query.x)
        res own = 'http://x/@'
        function help() { return x + 1 }
        function same() { return 'outer' }
        function outer() { return same() }
        res '/b/' + x {
          state n = first()
          function first() { return help() * 2 }
          function same() { return 'inner' + x }
          const load = (k) => k ? again(k - 1) : own.get(k)
          function again(k) { return load(k) }
          function bump() { n++; return ++hits }
          class Item { value() { return x * 2 } }
          on POST { respond [bump(), n, same(), outer(), load(2) === own.get(0), new Item().value()] }
        } } }";
    let program = compile_valid(source);
    let mut node = NodeProcess::start();
    let value = node.run(&program, 0, 1, &json!({ "x": "3" }));
    let captured = &value["answers"][0]["captured"];
    assert_eq!(captured["x"], 3, "{value}");
    let answer = node.run_nested(&program, 1, 1, &json!({}), captured);
    assert_eq!(answer["error"], Value::Null, "{}", program.code);
    assert_eq!(answer["answers"], json!([[1, 9, "inner3", "outer", true, 6]]), "{answer}");
}

/// Returns a handler that runs a statement. `head` and `declared` declare its variables.
fn statement_handler(head: &str, declared: &str, statement: &str) -> String {
    format!(
        "service s {{ {head}\n res '/a' on POST {{ {declared}\n var result\n{statement}\n;respond result\n }} }}"
    )
}

#[test]
fn plain_javascript_keeps_its_meaning_on_variables_and_state() {
    const VALUES: &str = "a = 1, b = [1, 2], c = { x: 1, y: [3] }";
    let mut node = NodeProcess::start();
    let cases: Vec<&str> = include_str!("meaning/statements.js").split("//: ").skip(1).collect();
    assert!(cases.len() > 20, "{}", cases.len());
    for case in cases {
        let (name, statement) = case.split_once('\n').expect("a name and a statement");
        let plain = format!(
            "(async ($s) => {{\"use strict\"; $s.handler(0, async function (query, response, $r) {{ let {VALUES}; var result\n\
             {statement}\n;$r.respond(result) }}) }})"
        );
        let mut expected = compile_valid("service s { res '/a' on POST {} }");
        expected.code = plain;
        let expected = node.run(&expected, 0, 0, &json!({}));
        assert_eq!(expected["error"], Value::Null, "{name}");
        assert_ne!(expected["answers"], json!(["undefined"]), "{name}");
        let sources = [
            statement_handler("", &format!("let {VALUES}"), statement),
            statement_handler(&format!("state {VALUES}"), "", statement),
            statement_handler("", &format!("state {VALUES}"), statement),
            statement_handler(
                "",
                &format!("let {VALUES}; res unused = '/a'"),
                &format!("par {{ {statement}\n }}"),
            ),
        ];
        for source in sources {
            let program = compile_valid(&source);
            let answer = node.run(&program, 0, 0, &json!({}));
            assert_eq!(
                answer["answers"], expected["answers"],
                "{name}: {}\n{}",
                answer["error"], program.code
            );
        }
    }
}
