//! What a text becomes: its constructs, its JavaScript, and what is said of its mistakes.
//!
//! Tests of mistakes compare all that is printed, and are named for the rule that is broken, where there is one.

use oxc_allocator::Allocator;

use super::*;
use crate::line::Lines;
use crate::syntax::Construct;

mod bad;
mod good;

/// All that is said of a text, as it is printed.
fn told(source: &str) -> String {
    let allocator = Allocator::default();
    let parsed = parse(&allocator, source);
    for it in &parsed.diagnostics {
        assert!(!it.primary.text.is_empty() && !it.help.is_empty(), "no label or no help: {it:?}");
    }
    parsed.diagnostics.iter().map(|it| it.render("shop.sjs", source)).collect::<Vec<_>>().join("\n")
}

/// The codes and places of a text's mistakes.
fn mistakes(source: &str) -> Vec<String> {
    let allocator = Allocator::default();
    let lines = Lines::new(source);
    let found = parse(&allocator, source).diagnostics;
    found.iter().map(|it| format!("{} {}", it.code.code(), lines.position(it.primary.span.start))).collect()
}

/// The JavaScript of a text that has no mistake.
fn encoded(source: &str) -> String {
    assert_eq!(told(source), "");
    let allocator = Allocator::default();
    parse(&allocator, source).encoded.to_owned()
}

/// The constructs of a text, one a line, indented as they stand in each other.
fn constructs(source: &str) -> String {
    let allocator = Allocator::default();
    let parsed = parse(&allocator, source);
    let lines = Lines::new(source);
    let line = |(id, construct): (usize, &Construct)| {
        let indent = parsed.syntax.around(id).count() * 2;
        let (from, to) = (lines.position(construct.span.start), lines.position(construct.span.end));
        let text = source[construct.span.clone()].lines().next().unwrap_or("");
        let linked = parsed.syntax.at(construct.encoded).is_some_and(|(found, _)| found == id);
        assert!(linked, "{construct:?}");
        format!("{:indent$}{} {from} to {to}: {text}", "", construct.kind.name())
    };
    parsed.syntax.constructs.iter().enumerate().map(line).collect::<Vec<_>>().join("\n")
}

/// A handler for POST with these statements.
fn handler(statements: &str) -> String {
    format!("service shop {{\n  res '/a' on POST {{\n    {statements}\n  }}\n}}\n")
}
