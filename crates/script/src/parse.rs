//! The parser: from a text to its tree and its constructs.
//!
//! `lex` finds the tokens, `prepass` encodes the constructs of S as JavaScript, `javascript` reports the
//! errors of oxc, which parses the result, `link` finds the constructs in the tree, and `check` checks them.
//! `parser_thread` provides the stack for all of this, and for `modules`, which finds the imports of a file.
//!
//! Offsets in the tree refer to the encoded text. `OffsetMap` converts them, and all diagnostics refer to the
//! S text. A tree exists only for a text without errors, so later passes need not check for them.

use std::ops::Range;

use diagnostics::{Diagnostic, DiagnosticSeverity};
use oxc_allocator::Allocator;
use oxc_ast::ast::Program;
use oxc_diagnostics::OxcDiagnostic;
use oxc_parser::Parser;
use oxc_semantic::{Semantic, SemanticBuilder};
use oxc_span::SourceType;

use crate::diagnostic::{self};
use crate::syntax::SyntaxConstructs;
use prepass::{EncodedText, OffsetMap};

pub use modules::module_specifiers;

mod check;
mod javascript;
pub(crate) mod lex;
mod link;
mod modules;
pub(crate) mod parser_thread;
pub(crate) mod prepass;
#[cfg(test)]
mod tests;

/// A parsed text.
#[allow(dead_code, reason = "read by the analysis and the emission")]
pub(crate) struct ParsedScript<'a> {
    /// The S text.
    pub(crate) source: &'a str,
    /// The JavaScript of the same shape that the tree's spans refer to.
    pub(crate) encoded: &'a str,
    pub(crate) map: OffsetMap,
    pub(crate) syntax: SyntaxConstructs,
    /// All diagnostics, in source order.
    pub(crate) diagnostics: Vec<Diagnostic>,
    /// The tree. `None` if there is an error.
    pub(crate) tree: Option<SyntaxTree<'a>>,
}

/// The tree of the encoded text, as parsed by oxc.
#[allow(dead_code, reason = "read by the analysis and the emission")]
pub(crate) struct SyntaxTree<'a> {
    pub(crate) program: &'a Program<'a>,
    pub(crate) semantic: Semantic<'a>,
}

/// The maximum number of JavaScript syntax errors to report.
const MAX_SYNTAX_ERRORS: usize = 20;

/// Parses a text.
pub(crate) fn parse<'a>(allocator: &'a Allocator, source: &str) -> ParsedScript<'a> {
    let EncodedText { text, map, mut syntax, mut diagnostics, is_broken: broken } = prepass::encode(source);
    let (source, encoded) = (allocator.alloc_str(source), allocator.alloc_str(&text));
    let mut tree = None;
    if !broken {
        let (read, errors) = parse_with_recovery(allocator, encoded, &syntax, &map);
        javascript::add_syntax_errors(source, &errors, &map, &mut diagnostics);
        tree = read;
    }
    if let Some(tree) = &tree {
        link::link(tree.program, &map, &mut syntax, &mut diagnostics);
        check::check(&syntax, &mut diagnostics);
    }
    diagnostic::sort_diagnostics(&mut diagnostics);
    let failed = diagnostics.iter().any(|it| it.severity == DiagnosticSeverity::Error);
    ParsedScript { source, encoded, map, syntax, diagnostics, tree: tree.filter(|_| !failed) }
}

/// Parses the encoded text. oxc stops at the first error that it cannot recover from. Then the innermost
/// block of S that contains it is blanked out and the rest is parsed again, so that one run reports an error
/// in each handler.
fn parse_with_recovery<'a>(
    allocator: &'a Allocator,
    encoded: &'a str,
    syntax: &SyntaxConstructs,
    map: &OffsetMap,
) -> (Option<SyntaxTree<'a>>, Vec<OxcDiagnostic>) {
    let (mut text, mut errors) = (encoded, Vec::new());
    for _ in 0..MAX_SYNTAX_ERRORS {
        let parsed = Parser::new(allocator, text, SourceType::mjs()).parse();
        errors.extend(parsed.diagnostics.errors().cloned());
        if !parsed.panicked {
            let program = &*allocator.alloc(parsed.program);
            let built =
                SemanticBuilder::new().with_build_nodes(true).with_check_syntax_error(true).build(program);
            errors.extend(built.diagnostics.errors().cloned());
            return (Some(SyntaxTree { program, semantic: built.semantic }), errors);
        }
        let place = errors.last().and_then(|error| error.labels.first()).map(|label| label.span().start);
        let Some(without) = place.and_then(|place| blank_out_block(text, place, syntax, map)) else { break };
        text = allocator.alloc_str(&without);
    }
    (None, errors)
}

/// Blanks out the innermost block of S around an offset. Returns `None` if the text would not change.
fn blank_out_block(text: &str, place: u32, syntax: &SyntaxConstructs, map: &OffsetMap) -> Option<String> {
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
