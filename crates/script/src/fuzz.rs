//! Fuzz tests with arbitrary texts, random JavaScript and random S. See `fuzz/src/lib.rs`.
//!
//! Random programs are derived from input bytes, so they share inputs with the arbitrary texts and shrink
//! like them.

use diagnostics::DiagnosticSeverity;
use oxc_allocator::Allocator;
use oxc_parser::{Parser, config::TokensParserConfig};
use oxc_span::SourceType;

use crate::outline;
use crate::parse::{self, lex, prepass};

mod emission;
mod write;

const WORDS: [&str; 76] = [
    "service ",
    "a ",
    "res ",
    "'/a' ",
    "on ",
    "GET ",
    "POST ",
    "FETCH ",
    "{ ",
    "} ",
    "(",
    ")",
    "[",
    "]",
    "state ",
    "x ",
    "= ",
    "1 ",
    "respond ",
    "par ",
    "pfor ",
    "pfor(var i in ",
    "of ",
    "in ",
    "\n",
    ";",
    ",",
    ".",
    "?.",
    ":",
    "?",
    "`",
    "${",
    "}",
    "\\",
    "/",
    "/*",
    "*/",
    "//",
    "'",
    "\"",
    "=> ",
    "function ",
    "class ",
    "if (",
    "else ",
    "do ",
    "while (",
    "for (",
    "return ",
    "++",
    "--",
    "+ ",
    "-",
    "!",
    "async ",
    "await ",
    "yield ",
    "let ",
    "const ",
    "var ",
    "import ",
    "export ",
    "case ",
    "default ",
    "switch (",
    "try ",
    "catch ",
    "static ",
    "extends ",
    "é",
    "\u{2028}",
    "\\u0061",
    "#a ",
    "...",
    "0x1n ",
];

/// Asserts the properties that hold for every text.
fn assert_parse_invariants(source: &str) {
    let allocator = Allocator::default();
    let parsed = parse::parse(&allocator, source);
    let failed = parsed.diagnostics.iter().any(|it| it.severity == DiagnosticSeverity::Error);
    assert_eq!(
        failed,
        parsed.tree.is_none(),
        "there must be a tree if and only if there is no error: {source:?}"
    );
    for it in &parsed.diagnostics {
        assert!(!it.message.is_empty() && !it.label.is_empty() && it.hint.is_some(), "{it:?}");
        for location in it.labels.iter().map(|label| &label.location).chain([&it.location]) {
            assert!(source.get(location.span()).is_some(), "a label is outside of the text: {it:?}");
        }
        assert!(it.render("a.sjs", source).contains(it.code.unwrap()));
    }
    for construct in &parsed.syntax.constructs {
        assert!(source.get(construct.span.clone()).is_some_and(|text| !text.is_empty()), "{construct:?}");
    }
}

#[test]
fn parses_any_text_or_reports_complete_diagnostics() {
    ::fuzz::check(&WORDS, |bytes: &[u8]| assert_parse_invariants(&String::from_utf8_lossy(bytes)));
}

#[test]
fn parses_damaged_programs_or_reports_complete_diagnostics() {
    let good = include_str!("../tests/listings/7.sjs");
    ::fuzz::check(&[], |bytes: &[u8]| {
        let few = &bytes[..bytes.len().min(9)];
        assert_parse_invariants(&String::from_utf8_lossy(&::fuzz::damage_input(good.as_bytes(), few)));
    });
}

#[test]
fn plain_javascript_has_the_tokens_of_oxc_and_no_constructs() {
    let (mut read, mut refused) = (std::cell::Cell::new(0), std::cell::Cell::new(0));
    ::fuzz::check(&[], |bytes: &[u8]| {
        let source = write::javascript(bytes);
        let allocator = Allocator::default();
        let parsed =
            Parser::new(&allocator, &source, SourceType::mjs()).with_config(TokensParserConfig).parse();
        if parsed.diagnostics.has_errors() {
            return refused.set(refused.get() + 1);
        }
        let tokens = parsed.tokens.iter().map(|token| (token.start() as usize, token.end() as usize));
        let theirs: Vec<_> = tokens.filter(|(start, end)| start < end).collect();
        let ours: Vec<_> = lex::lex(&source).tokens.iter().map(|token| (token.start, token.end)).collect();
        assert_eq!(ours, theirs, "{source}");
        assert_eq!(prepass::encode(&source).text, source);
        read.set(read.get() + 1);
    });
    let (read, refused) = (*read.get_mut(), *refused.get_mut());
    assert!(read > refused, "most generated texts must be valid JavaScript: {read} of {}", read + refused);
}

#[test]
fn finds_every_construct_of_a_random_program() {
    ::fuzz::check(&[], |bytes: &[u8]| {
        let (source, expected) = write::program(bytes);
        let encoded = prepass::encode(&source);
        let found: Vec<_> =
            encoded.syntax.constructs.iter().map(|it| (it.kind.name(), it.span.start)).collect();
        let different = (0..found.len().max(expected.len())).find(|&at| found.get(at) != expected.get(at));
        if let Some(at) = different {
            panic!("found {:?}, expected {:?} in\n{source}", found.get(at), expected.get(at));
        }
        assert_eq!(encoded.diagnostics, [], "{source}");
    });
}

#[test]
fn parses_deeply_nested_texts() {
    let levels = [
        "(",
        "[",
        "{",
        "!",
        "a=>",
        "if(a)",
        "`${",
        "a?b:",
        "a=",
        "res '/a'{",
        "par{",
        "async()=>{",
        "-",
        "a+",
        "[a]",
    ];
    for level in levels {
        let source = level.repeat((8 << 10) / level.len());
        let _ = outline(&source);
        let closed: String =
            source.chars().rev().filter_map(|c| "([{".find(c).map(|at| [')', ']', '}'][at])).collect();
        let _ = outline(&format!("{source}a{closed}"));
    }
}

#[test]
fn rejects_texts_over_the_maximum_length() {
    let (constructs, diagnostics) = outline(&" ".repeat((1 << 20) + 1));
    assert!(constructs.is_empty());
    assert_eq!(diagnostics.iter().map(|it| it.code.unwrap()).collect::<Vec<_>>(), ["s-too-large"]);
}
