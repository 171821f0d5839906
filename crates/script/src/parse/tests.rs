//! Parser tests: the constructs of a text, its JavaScript, and the diagnostics.
//!
//! Tests of diagnostics compare the full rendered text. A test is named after the rule that the text
//! violates, if there is one.

use diagnostics::LineStarts;
use oxc_allocator::Allocator;

use super::*;
use crate::syntax::SyntaxConstruct;

mod bad;
mod good;

/// Renders all diagnostics of a text.
fn render_diagnostics(source: &str) -> String {
    let allocator = Allocator::default();
    let parsed = parse(&allocator, source);
    for it in &parsed.diagnostics {
        assert!(!it.label.is_empty() && it.hint.is_some(), "the label or the help is missing: {it:?}");
    }
    parsed.diagnostics.iter().map(|it| it.render("shop.sjs", source)).collect::<Vec<_>>().join("\n")
}

/// Returns the codes and positions of a text's diagnostics.
fn diagnostic_codes(source: &str) -> Vec<String> {
    let allocator = Allocator::default();
    let lines = LineStarts::new(source);
    let diagnostics = parse(&allocator, source).diagnostics;
    diagnostics
        .iter()
        .map(|it| format!("{} {}", it.code.unwrap(), lines.position(it.location.span().start)))
        .collect()
}

/// Returns the JavaScript of a text without errors.
fn encode_valid(source: &str) -> String {
    assert_eq!(render_diagnostics(source), "");
    let allocator = Allocator::default();
    parse(&allocator, source).encoded.to_owned()
}

/// Returns the constructs of a text, one a line, indented by nesting.
fn list_constructs(source: &str) -> String {
    let allocator = Allocator::default();
    let parsed = parse(&allocator, source);
    let lines = LineStarts::new(source);
    let line = |(id, construct): (usize, &SyntaxConstruct)| {
        let indent = parsed.syntax.enclosing_constructs(id).count() * 2;
        let (from, to) = (lines.position(construct.span.start), lines.position(construct.span.end));
        let text = source[construct.span.clone()].lines().next().unwrap_or("");
        let linked =
            parsed.syntax.construct_at(construct.encoded_start).is_some_and(|(found, _)| found == id);
        assert!(linked, "{construct:?}");
        format!("{:indent$}{} {from} to {to}: {text}", "", construct.kind.name())
    };
    parsed.syntax.constructs.iter().enumerate().map(line).collect::<Vec<_>>().join("\n")
}

/// Returns a POST handler with these statements.
fn post_handler(statements: &str) -> String {
    format!("service shop {{\n  res '/a' on POST {{\n    {statements}\n  }}\n}}\n")
}
