//! Recipes: the handlers that only call resources and compose the responses, which the gateway runs without a
//! worker.
#![allow(missing_docs)]

use script::inline_plan::{InlineOperation, ObjectEntry, UrlPiece, ValuePart};
use script::{CompileOptions, HandlerMethod, InlinePlan, compile};

fn compile_inline_plan(body: &str) -> Option<InlinePlan> {
    let source = format!(
        "const limit = 3; service s {{ res top = 'http://top/@'; res '/a' on GET {{\n\
         res user = 'http://u/@', items = 'http://i/?of=@', own = '/b?n=@'\n{body}\n}} }}"
    );
    let program = compile(&source, "s.sjs", &CompileOptions::default());
    let program = program.unwrap_or_else(|diagnostics| panic!("{source}\n{diagnostics:#?}"));
    program.services[0].handlers[0].recipe.clone()
}

fn step_dependencies(body: &str) -> Vec<Vec<usize>> {
    let recipe = compile_inline_plan(body).unwrap_or_else(|| panic!("no recipe: {body}"));
    recipe.steps.into_iter().map(|step| step.after).collect()
}

#[test]
fn composing_two_responses_is_two_concurrent_calls_and_an_object() {
    let recipe = compile_inline_plan("par { respond { ...user.get(query.id), items: items.get(query.id) } }")
        .expect("one");
    let calls: Vec<_> = recipe.steps.iter().map(|step| (&step.after, &step.what)).collect();
    let url = |before: &str, after: &str| {
        let hole = UrlPiece::Encoded(ValuePart::Query("id".into()));
        vec![UrlPiece::Text(before.into()), hole, UrlPiece::Text(after.into())]
    };
    let call = |site, url| InlineOperation::Call { site, method: HandlerMethod::Get, url, passes: false };
    let first = (&vec![], &call(3, url("http://u/", "")));
    assert_eq!(calls, [first, (&vec![], &call(4, url("http://i/?of=", "")))]);
    let entries = vec![ObjectEntry::Spread(0), ObjectEntry::Named("items".into(), ValuePart::Step(1))];
    assert_eq!(recipe.answer, ValuePart::Object(entries));
}

#[test]
fn calls_are_sequential_and_in_par_follow_their_inputs() {
    let body = "var a = user.get(1); var b = items.get(a.id), c = top.get(3)\nrespond [a, b, c]";
    assert_eq!(step_dependencies(body), [vec![], vec![0], vec![1], vec![2]]);
    assert_eq!(step_dependencies(&format!("par {{ {body} }}")), [vec![], vec![0], vec![1], vec![]]);
    let around = "var a, b; a = user.get(1); par { b = user.get(2); var c = user.get(3) } respond [a, b, c, user.get(4)]";
    assert_eq!(step_dependencies(around), [vec![], vec![0], vec![0], vec![1, 2]]);
}

#[test]
fn bare_calls_are_passed_through_and_constants_need_no_call() {
    let passed = compile_inline_plan("respond user.get(query.id)").expect("one");
    assert!(matches!(passed.steps[0].what, InlineOperation::Call { passes: true, .. }));
    let plan = compile_inline_plan("var u = user.get(query.id); respond u").expect("one");
    assert!(matches!(plan.steps[0].what, InlineOperation::Call { passes: false, .. }));
    assert_eq!(compile_inline_plan("respond 'hello'").expect("one").steps, []);
}

#[test]
fn values_in_a_url_are_steps_at_the_declaration() {
    let recipe =
        compile_inline_plan("var u = user.get(1); res g = 'http://g/' + u.name + '?n=@'; respond [g.get(2)]");
    let steps = recipe.expect("one").steps;
    assert_eq!(steps[1].what, InlineOperation::Member(0, "name".into()));
    assert_eq!(steps[2].what, InlineOperation::Text(ValuePart::Step(1)));
    let InlineOperation::Call { url, .. } = &steps[3].what else { panic!("{steps:?}") };
    assert_eq!(url[1], UrlPiece::Step(2));
}

#[test]
fn other_forms_have_no_recipe() {
    for body in [
        "if (query.a) respond 1; else respond 2",
        "respond user.get(1) + 1",
        "respond { a: `${query.id}` }",
        "respond { a: user.get(limit) }",
        "respond { a: 1.5 }",
        "respond { 1: user.get(1) }",
        "respond { '7a': user.get(1) }",
        "respond { 'a\"b': user.get(1) }",
        "respond { __proto__: user.get(1) }",
        "respond { toJSON: user.get(1) }",
        "respond { 404: { body: user.get(1) } }",
        "respond { ['a' + 1]: user.get(1) }",
        "respond { get a() { return 1 } }",
        "respond { ...{ a: user.get(1) } }",
        "respond { ...query }",
        "respond [...user.get(1)]",
        "respond [, user.get(1)]",
        "respond query",
        "respond query.$headers",
        "respond query.__proto__",
        "respond query?.id",
        "respond undefined",
        "respond user.get(1).constructor",
        "respond user.get(1)?.name",
        "respond user.get(1).name.toString()",
        "respond user.get(1)[0]",
        "respond own.get(1)",
        "respond { a: own.get(1) }",
        "var a = { b: user.get(1) }; respond a",
        "var { a } = user.get(1); respond a",
        "var query = user.get(1); respond query.a",
        "respond a; var a = user.get(1)",
        "try { respond user.get(1) } catch { respond 2 }",
        "respond user.get(1); console.log(1)",
        "console.log(1); respond user.get(1)",
        "response.status = 201; respond user.get(1)",
        "par { respond 1; user.get(2) }",
        "for (const a of [1]) user.get(a); respond 1",
        "user.get(1)",
        "const a = user.get(1); { a } respond a",
        "var url = user.get(1); res far = url; respond far.get()",
    ] {
        assert_eq!(compile_inline_plan(body), None, "{body}");
    }
    let deep = format!("respond {}1{}", "[".repeat(40), "]".repeat(40));
    assert_eq!(compile_inline_plan(&deep), None);
}

#[test]
fn state_unsafe_calls_and_nested_resources_have_no_recipe() {
    for source in [
        "service s { state n = 1; res '/a' on GET { respond n } }",
        "service s { res '/a' on POST { res g = 'http://g/'; respond g.post() } }",
        "service s { res '/a' on POST { res '/b/' + query.n on GET { respond 'b' } } }",
    ] {
        let program = compile(source, "s.sjs", &CompileOptions::default()).expect("a program");
        assert!(program.services[0].handlers.iter().all(|handler| handler.recipe.is_none()), "{source}");
    }
}
