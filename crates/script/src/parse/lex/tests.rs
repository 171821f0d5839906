//! Compares the tokens of plain JavaScript with those of oxc's parser, which must be the same.

use std::path::Path;

use oxc_allocator::Allocator;
use oxc_parser::{Parser, config::TokensParserConfig};
use oxc_span::SourceType;

use super::*;

/// Returns the bounds of oxc's tokens, or `None` if the text is not valid JavaScript of this kind.
fn oxc_tokens(source: &str, kind: SourceType) -> Option<Vec<(usize, usize)>> {
    let allocator = Allocator::default();
    let parsed = Parser::new(&allocator, source, kind).with_config(TokensParserConfig).parse();
    let tokens = parsed.tokens.iter().map(|token| (token.start() as usize, token.end() as usize));
    (!parsed.diagnostics.has_errors()).then(|| tokens.filter(|(start, end)| start < end).collect())
}

/// Asserts that the tokens are the same, and that no part of the text is treated as S.
fn assert_same_tokens(source: &str) {
    let theirs = oxc_tokens(source, SourceType::mjs()).or_else(|| oxc_tokens(source, SourceType::cjs()));
    let theirs = theirs.unwrap_or_else(|| panic!("this is not valid JavaScript: {source}"));
    let ours: Vec<_> = lex(source).tokens.iter().map(|token| (token.start, token.end)).collect();
    let different = (0..theirs.len().max(ours.len())).find(|&at| theirs.get(at) != ours.get(at));
    let text =
        |bounds: Option<&(usize, usize)>| bounds.map_or("nothing", |&(start, end)| &source[start..end]);
    if let Some(at) = different {
        let position = diagnostics::LineStarts::new(source)
            .position(theirs.get(at).map_or(source.len(), |token| token.0));
        panic!(
            "{position}: oxc has `{}`, this lexer `{}`\n{source}",
            text(theirs.get(at)),
            text(ours.get(at))
        );
    }
    assert_eq!(crate::parse::prepass::encode(source).text, source);
}

#[test]
fn javascript_of_this_repository_has_the_tokens_of_oxc() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let folders = [
        "sdk/javascript",
        "sdk/javascript/test",
        "environments/javascript",
        "tests/e2e/tests/clients",
        "benches/programs",
    ];
    let mut read = 0;
    for folder in folders {
        for file in std::fs::read_dir(root.join(folder)).expect("the folder exists") {
            let path = file.expect("a file").path();
            if path.extension().is_some_and(|ending| ending == "js" || ending == "mjs") {
                assert_same_tokens(&std::fs::read_to_string(&path).expect("the file is readable"));
                read += 1;
            }
        }
    }
    assert!(read > 10, "{read} files");
}

#[test]
fn a_slash_divides_or_opens_a_regular_expression() {
    let texts = [
        "a / b / c",
        "a\n/ b / c",
        "(a) / b / c",
        "[a] / b / c",
        "a++ / b / c",
        "a.if / b / c",
        "this / b / c",
        "if (a) /b/.c",
        "while (a) /b/.c",
        "for (;;) /b/.c",
        "a = /b/",
        "a = b ? /c/ : /d/",
        "(/a/)",
        "[/a/, /b/]",
        "{} /a/.b",
        "a: /b/.c",
        "a: {} /b/.c",
        "x = {} / a / b",
        "x = function() {} / a / b",
        "function f() {} /a/.b",
        "x = class {} / a / b",
        "class A {} /a/.b",
        "x = class extends class {} {} / a / b",
        "class A extends {}.b {} /a/.b",
        "x = () => {}\n/a/.b",
        "`${{}}` / a / b",
        "`${a}` / b / c",
        "`${`${a / b}`}` / c / d",
        "`${{ a: `}` }}`",
        "async function f() { await /a/ }",
        "function* f() { yield /a/ }",
        "function* f() { yield\n/a/ }",
        "function f() { return /a/ }",
        "function f() { return\n/a/ }",
        "typeof /a/",
        "a in /b/",
        "for (a of /b/) ;",
        "for (const of of /b/) of / 2 / 3",
        "switch (a) { case /b/: /c/.d; default: /e/ }",
        "switch (a) {} /b/.c",
        "do /a/.b; while (c) /d/.e",
        "if (a) {} else /b/.c",
        "try {} catch {} /a/.b",
        "try {} catch (e) {} /a/.b",
        "x = { if() {} } / a / b",
        "x = { get: 1 / 2 / 3, set: /a/ }",
        "x = { ...a / b / c }",
        "x = { a() { /b/ } }",
        "class A { a = 1 / 2 / 3; b = /c/ }",
        "class A { a\n/* */ b() {} }",
        "class A { static { /a/ } }",
        "class A { a = () => {}\n['b'] = /c/ }",
        "class A { async *[/a/]() { /b/ } }",
        "x = a ? {} / b / c : d",
        "export default function() {} /a/.b",
        "export default class {} /a/.b",
        "export default {} / a / b",
        "import a from 'b'\n/c/.d",
        "export { a }\n/b/.c\nvar a",
        "let { a } = b\n/c/g",
        "a\n++\n/b/.c",
        "/[/]/ / /\\//",
        "a ?.5 / b : /c/",
        "a?.b / c / d",
        "a\n?.b\n/c/d",
        "x = async function() {} / a / b",
        "async () => {}\n/a/.b",
        "label: for (;;) { break label\n/a/.b }",
        "for (;;) { continue\n/a/.b }",
        "throw /a/",
        "new.target",
        "x = y => ({}) / a / b",
        "x = (y) => { } \n /a/g",
        "({}) / a / b",
        "var a = 1\n/b/g",
        "a = b\n{ /c/.d }",
        "!/a/ / /b/",
    ];
    for text in texts.iter().filter(|text| **text != "new.target") {
        assert_same_tokens(text);
    }
}

#[test]
fn tokenizes_non_ascii_texts() {
    for text in [
        "é = ä.ü",
        "\u{feff}a",
        "a\u{2028}b",
        "'\u{2029}'",
        "\\u0061bc = \\u{62}",
        "𝒳𝒴 = `é${ä}ü`",
        "// é\na",
    ] {
        assert_same_tokens(text);
    }
}
