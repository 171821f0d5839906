//! S text to a tree: the pre-pass, then oxc on what it made, and the links between the two.
//!
//! Offsets of the tree are those of the encoded text; `OffsetMap` leads back, and nothing is ever told in other terms
//! than the S text's. There is a tree only if there is no error: what comes after need not ask.

use oxc_allocator::Allocator;
use oxc_ast::ast::Program;
use oxc_diagnostics::OxcDiagnostic;
use oxc_parser::Parser;
use oxc_semantic::{Semantic, SemanticBuilder};
use oxc_span::SourceType;

use crate::diagnostic::{self, Diagnostic, Severity};
use crate::prepass::{self, Encoded, OffsetMap};
use crate::syntax::Syntax;

mod javascript;
mod link;
#[cfg(test)]
mod tests;

/// A text that was read.
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
pub(crate) struct Tree<'a> {
    pub(crate) program: &'a Program<'a>,
    pub(crate) semantic: Semantic<'a>,
}

/// Reads a text.
pub(crate) fn parse<'a>(allocator: &'a Allocator, source: &str) -> Parsed<'a> {
    let Encoded { text, map, mut syntax, mut diagnostics, broken } = prepass::encode(source);
    let (source, encoded) = (allocator.alloc_str(source), allocator.alloc_str(&text));
    let mut tree = None;
    if !broken {
        let (read, errors) = read(allocator, encoded, &syntax, &map);
        javascript::explain(&errors, &map, &mut diagnostics);
        tree = read;
    }
    if let Some(tree) = &tree {
        link::link(tree.program, &map, &mut syntax, &mut diagnostics);
    }
    diagnostic::sort(&mut diagnostics);
    let failed = diagnostics.iter().any(|it| it.severity == Severity::Error);
    Parsed { source, encoded, map, syntax, diagnostics, tree: tree.filter(|_| !failed) }
}

fn read<'a>(
    allocator: &'a Allocator,
    encoded: &'a str,
    _syntax: &Syntax,
    _map: &OffsetMap,
) -> (Option<Tree<'a>>, Vec<OxcDiagnostic>) {
    let parsed = Parser::new(allocator, encoded, SourceType::mjs()).parse();
    let mut errors: Vec<OxcDiagnostic> = parsed.diagnostics.errors().cloned().collect();
    if parsed.panicked {
        return (None, errors);
    }
    let program = &*allocator.alloc(parsed.program);
    let built = SemanticBuilder::new().with_check_syntax_error(true).build(program);
    errors.extend(built.diagnostics.errors().cloned());
    (Some(Tree { program, semantic: built.semantic }), errors)
}
