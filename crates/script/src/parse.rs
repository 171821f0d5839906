//! S text to a tree: the pre-pass, then oxc on what it made, and the links between the two.
//!
//! Offsets of the tree are those of the encoded text; `OffsetMap` leads back, and nothing is ever told in other terms
//! than the S text's. There is a tree only if there is no error: what comes after need not ask.

use std::ops::Range;

use oxc_allocator::Allocator;
use oxc_ast::ast::Program;
use oxc_diagnostics::OxcDiagnostic;
use oxc_parser::Parser;
use oxc_semantic::{Semantic, SemanticBuilder};
use oxc_span::SourceType;

use crate::diagnostic::{self, Diagnostic, Severity};
use crate::prepass::{self, Encoded, OffsetMap};
use crate::syntax::Syntax;

mod check;
mod javascript;
mod link;
#[cfg(test)]
mod tests;

/// A text that was read.
#[allow(dead_code, reason = "the analysis and the emission, which read it, come next")]
pub(crate) struct Parsed<'a> {
    /// The S text.
    pub(crate) source: &'a str,
    /// JavaScript of the same shape; what the tree's spans are of.
    pub(crate) encoded: &'a str,
    pub(crate) map: OffsetMap,
    pub(crate) syntax: Syntax,
    /// All that is wrong, in the text's order.
    pub(crate) diagnostics: Vec<Diagnostic>,
    /// None if there is an error.
    pub(crate) tree: Option<Tree<'a>>,
}

/// The encoded text as oxc has it.
#[allow(dead_code, reason = "the analysis and the emission, which read it, come next")]
pub(crate) struct Tree<'a> {
    pub(crate) program: &'a Program<'a>,
    pub(crate) semantic: Semantic<'a>,
}

/// How many mistakes of JavaScript are looked for.
const MISTAKES: usize = 20;

/// Reads a text.
pub(crate) fn parse<'a>(allocator: &'a Allocator, source: &str) -> Parsed<'a> {
    let Encoded { text, map, mut syntax, mut diagnostics, broken } = prepass::encode(source);
    let (source, encoded) = (allocator.alloc_str(source), allocator.alloc_str(&text));
    let mut tree = None;
    if !broken {
        let (read, errors) = read(allocator, encoded, &syntax, &map);
        javascript::explain(source, &errors, &map, &mut diagnostics);
        tree = read;
    }
    if let Some(tree) = &tree {
        link::link(tree.program, &map, &mut syntax, &mut diagnostics);
        check::check(&syntax, &mut diagnostics);
    }
    diagnostic::sort(&mut diagnostics);
    let failed = diagnostics.iter().any(|it| it.severity == Severity::Error);
    Parsed { source, encoded, map, syntax, diagnostics, tree: tree.filter(|_| !failed) }
}

/// oxc gives up at the first mistake that it can't get over. Then the block of S that has it is left out, and the rest
/// read again, so that one run tells of a mistake in each handler.
fn read<'a>(
    allocator: &'a Allocator,
    encoded: &'a str,
    syntax: &Syntax,
    map: &OffsetMap,
) -> (Option<Tree<'a>>, Vec<OxcDiagnostic>) {
    let (mut text, mut errors) = (encoded, Vec::new());
    for _ in 0..MISTAKES {
        let parsed = Parser::new(allocator, text, SourceType::mjs()).parse();
        errors.extend(parsed.diagnostics.errors().cloned());
        if !parsed.panicked {
            let program = &*allocator.alloc(parsed.program);
            let built =
                SemanticBuilder::new().with_build_nodes(true).with_check_syntax_error(true).build(program);
            errors.extend(built.diagnostics.errors().cloned());
            return (Some(Tree { program, semantic: built.semantic }), errors);
        }
        let place = errors.last().and_then(|error| error.labels.first()).map(|label| label.span().start);
        let Some(without) = place.and_then(|place| without_block(text, place, syntax, map)) else { break };
        text = allocator.alloc_str(&without);
    }
    (None, errors)
}

/// The text with blanks in the innermost block of S around a place; none if nothing would change.
fn without_block(text: &str, place: u32, syntax: &Syntax, map: &OffsetMap) -> Option<String> {
    let place = map.to_source(place as usize);
    let inner = |body: &Range<usize>| body.start + 1..body.end.saturating_sub(1);
    let bodies = syntax.constructs.iter().filter(|construct| construct.kind.has_scope());
    let around = bodies.filter_map(|construct| construct.body.as_ref()).map(inner);
    let body = around.rev().find(|body| body.start <= place && place <= body.end)?;
    let range = map.to_encoded(body.start)..map.to_encoded(body.end);
    let block = text.get(range.clone())?;
    if block.bytes().all(|byte| byte.is_ascii_whitespace()) {
        return None;
    }
    let blanks: String = block.bytes().map(|byte| if byte == b'\n' { '\n' } else { ' ' }).collect();
    Some([&text[..range.start], &blanks, &text[range.end..]].concat())
}
