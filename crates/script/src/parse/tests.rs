//! What a text becomes: its tree, its constructs, and what is wrong with it.

use oxc_allocator::Allocator;

use super::*;
use crate::syntax::ConstructKind;

const LISTINGS: [(&str, &str); 6] = [
    ("1", include_str!("../../tests/listings/1.sjs")),
    ("2", include_str!("../../tests/listings/2.sjs")),
    ("3", include_str!("../../tests/listings/3.sjs")),
    ("4", include_str!("../../tests/listings/4.sjs")),
    ("6", include_str!("../../tests/listings/6.sjs")),
    ("7", include_str!("../../tests/listings/7.sjs")),
];

/// All that is said of a text, as it is printed.
fn told(source: &str) -> String {
    let allocator = Allocator::default();
    let parsed = parse(&allocator, source);
    parsed.diagnostics.iter().map(|it| it.render("a.sjs", source)).collect::<Vec<_>>().join("\n")
}

/// The constructs of a text, one a line, indented as they stand in each other.
fn outline(source: &str) -> String {
    let allocator = Allocator::default();
    let parsed = parse(&allocator, source);
    let lines = crate::line::Lines::new(source);
    let line = |(id, construct): (usize, &crate::syntax::Construct)| {
        let depth = parsed.syntax.around(id).count();
        let (from, to) = (lines.position(construct.span.start), lines.position(construct.span.end));
        format!(
            "{:indent$}{from}-{to} {:?} scope: {}",
            "",
            construct.kind,
            construct.scope.is_some(),
            indent = depth * 2
        )
    };
    parsed.syntax.constructs.iter().enumerate().map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn the_papers_listings_are_read() {
    for (name, source) in LISTINGS {
        assert_eq!(told(source), "", "listing {name}");
        println!("{}", outline(source));
    }
}

#[test]
fn listing_7_as_printed_names_the_block_that_is_open() {
    println!("{}", told(include_str!("../../tests/listings/7-as-printed.sjs")));
    let _ = |kind: ConstructKind| kind;
}
