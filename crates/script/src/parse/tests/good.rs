//! Tests of valid texts.

use super::*;
use crate::syntax::ConstructKind;

const LISTINGS: [(&str, &str); 6] = [
    ("1", include_str!("../../../tests/listings/1.sjs")),
    ("2", include_str!("../../../tests/listings/2.sjs")),
    ("3", include_str!("../../../tests/listings/3.sjs")),
    ("4", include_str!("../../../tests/listings/4.sjs")),
    ("6", include_str!("../../../tests/listings/6.sjs")),
    ("7", include_str!("../../../tests/listings/7.sjs")),
];

#[test]
fn parses_the_listings_of_the_paper() {
    let all = LISTINGS.map(|(name, source)| {
        assert_eq!(render_diagnostics(source), "", "listing {name}");
        format!("listing {name}\n{}", list_constructs(source))
    });
    insta::assert_snapshot!(all.join("\n\n"));
}

#[test]
fn encodes_constructs_as_javascript_of_the_same_shape() {
    let source = "import { sum } from 'sums'
service shop {
  state total = 0, last
  res '/total' on GET { respond total }
  res '/add/' + 1 {
    state n
    on PUT { total += sum(query.a, query.b) }
    on DELETE { total = 0; respond null }
  }
  res '/all' on POST {
    res g = 'http://example.org/@', h = '/total'
    par { g.put(1); h.get() }
    pfor(var i in query.list) g.put(i)
    pfor (var j in query.list) { par { g.put(j) } }
  }
}
";
    insta::assert_snapshot!(encode_valid(source));
    insta::assert_snapshot!(
        "encodes_constructs_as_javascript_of_the_same_shape_constructs",
        list_constructs(source)
    );
}

#[test]
fn accepts_all_line_endings() {
    for (name, source) in LISTINGS {
        for end in ["\r\n", "\r"] {
            let other = source.replace('\n', end);
            assert_eq!(render_diagnostics(&other), "", "listing {name}");
            let places = |text: &str| crate::outline(text).0;
            assert_eq!(places(&other), places(source), "listing {name}");
        }
    }
}

#[test]
fn members_named_respond_do_not_make_it_a_name() {
    let source = post_handler(
        "class A { respond = 1; respond() { return this.respond } }\n    respond [{ respond: 1 }]",
    );
    assert!(encode_valid(&source).contains("throw [{ respond: 1 }]"));
}

#[test]
fn links_names_and_scopes_to_the_tree() {
    let source = "service a { state n = 0\n res '/x' on PUT { n++; { let n = 1; n++ } } }";
    let allocator = Allocator::default();
    let parsed = parse(&allocator, source);
    let tree = parsed.tree.expect("the text is valid");
    let ConstructKind::State { names } = &parsed.syntax.constructs[1].kind else { panic!("a state") };
    let symbol = names[0].symbol.expect("the name is linked");
    let scoping = tree.semantic.scoping();
    assert_eq!(scoping.symbol_name(symbol), "n");
    assert_eq!(scoping.get_resolved_reference_ids(symbol).len(), 1, "the inner `n` is a different symbol");
    assert_eq!(Some(scoping.symbol_scope_id(symbol)), parsed.syntax.constructs[0].scope);
    let reference = scoping.get_resolved_references(symbol).next().expect("one");
    let span = parsed.map.span_to_source(tree.semantic.reference_span(reference));
    assert_eq!((span.start, &source[span]), (43, "n"));
    assert_eq!(parsed.map.to_encoded(43), parsed.encoded.find("n++").expect("the text contains it"));
}

#[test]
fn files_with_the_words_as_names_are_unchanged() {
    let source = include_str!("../../../tests/words.js");
    assert_eq!(encode_valid(source), source);
    assert_eq!(list_constructs(source), "");
}

#[test]
fn words_used_as_names_stay_names_in_services() {
    let kept = post_handler(
        "const respond = query.list, par = [respond]\n    respond [0]\n    respond (1)\n    par\n    {}",
    );
    assert!(encode_valid(&kept).contains("respond [0]\n    respond (1)\n    par\n    {}"));
    let taken = post_handler("respond [0]\n    par\n    { query }");
    assert!(encode_valid(&taken).contains("throw [0]\n    { query }"), "{}", encode_valid(&taken));
}

#[test]
fn respond_accepts_any_expression() {
    let values = [
        "1",
        "-1",
        "+1",
        "!a",
        "~a",
        "'a'",
        "`a`",
        "`${a}`",
        "[]",
        "[1]",
        "{}",
        "{ a: 1 }",
        "(a + b) * 2",
        "/a/.test(b)",
        "/[/]/g",
        "a ? b : c",
        "typeof a",
        "void 0",
        "null",
        "this",
        "function() { return 1 }()",
        "new Date",
        "a => a",
        "async () => a",
        "class {}.name",
        "await a",
        "a, b",
        "a\n      .b",
    ];
    for value in values {
        let source = post_handler(&format!("if (a)\n      respond {value}\n    else respond {value};"));
        let found = list_constructs(&source);
        assert_eq!(found.matches("respond ").count(), 4, "{value}: {found}");
        if value != "a => a" && value != "async () => a" {
            assert_eq!(render_diagnostics(&source), "", "{value}");
        }
    }
}

#[test]
fn status_responses_are_objects_and_not_blocks() {
    let source = post_handler("respond { 302 : { Location : '/a' } } ; id / 2 / 1");
    assert!(encode_valid(&source).contains("throw { 302 : { Location : '/a' } }"));
    let source = post_handler("respond\n{ a: 1 }");
    assert_eq!(diagnostic_codes(&source), ["s-respond-value 3:5"]);
}

#[test]
fn paths_can_be_any_expression_without_parentheses() {
    let paths = [
        "'/a'",
        "\"/a\"",
        "`/a`",
        "`/a/${id}`",
        "'/red/'+id",
        "'/a/' + ids[0].name + '/b'",
        "base + '/x'",
        "path",
        "path()",
        "paths.a",
        "new Path('/a')",
        "'/' + { a: 1 }.a",
        "'/' + function() { return 1 }()",
        "`/a/`+id",
        "[a, b].join('/')",
        "'/on/' + on",
        "'/a'\n    + id",
    ];
    for path in paths {
        for body in [
            "on GET { respond 1 }",
            "{ on GET { respond 1 } on PUT { } }",
            "\n    {\n on GET\n    { respond 1 } }",
        ] {
            let ambiguous = path.starts_with(['`', '[']) && body.starts_with('\n');
            if ambiguous {
                continue;
            }
            let source = post_handler(&format!("res {path} {body}\n    res g = {path}"));
            assert_eq!(render_diagnostics(&source), "", "{source}");
            let found = list_constructs(&source);
            assert_eq!(found.matches("resource").count(), 2, "{source}\n{found}");
            assert_eq!(found.matches("external").count(), 1, "{source}\n{found}");
        }
    }
}

#[test]
fn semicolons_are_optional_as_in_javascript() {
    let source = "service a { state x = 1; state y\n res '/a' on GET { respond x };res '/b' on GET { respond y } res '/c' { on GET { respond 1 }; on PUT {} } }; service b {}";
    assert_eq!(render_diagnostics(source), "");
    assert_eq!(list_constructs(source).matches("handler").count(), 4);
}

#[test]
fn handlers_are_functions_with_their_own_scope() {
    let source = post_handler(
        "var a = 1; var a = 2; if (a) return; function f() { return query } let b = await f(); respond b",
    );
    assert_eq!(render_diagnostics(&source), "");
}

#[test]
fn accepts_comments_anywhere() {
    let source = "#!/usr/bin/env orfa
// first
service /* a */ shop /* b */ { // c
  res /* d */ '/a' // e
  on /* f */ GET /* g */ { /* h */ respond /* i */ 1 /* j */ } // k
  res '/b' /* l */ { /* m */ on PUT // n
  { pfor /* o */ (var /* p */ i in query) /* q */ par /* r */ { } } }
}";
    assert_eq!(render_diagnostics(source), "");
    assert_eq!(list_constructs(source).lines().count(), 8);
}
