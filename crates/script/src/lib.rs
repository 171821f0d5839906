//! The compiler of S, a language for RESTful services: JavaScript with services, resources and state.
//!
//! The compiler is pure: text in, text out. The numbered rules of the language are in docs/s-language.md.
//!
//! The modules, from low to high: `method`; `diagnostic`, the codes of errors; `program`, the result as pure
//! data; `syntax`, the constructs that S adds to JavaScript; `parse`, which reads a text to its tree;
//! `analyse`, the rules; `emit`, the JavaScript for the workers; and `compile`, which runs them all.

use diagnostics::{Diagnostic, LineStarts};
use oxc_allocator::Allocator;

pub use compile::{CompileOptions, compile};
pub use diagnostics::TextPosition;
pub use method::HandlerMethod;
pub use parse::module_specifiers;
pub use program::inline_plan::{self, InlinePlan};
pub use program::source_map::{MappedSegment, SourceMap};
pub use program::{
    AccessGroup, CaptureKind, CapturedVariable, CellScope, CommitPoint, ConcurrencyClass, DependenceGraph,
    DependenceNode, HeaderReads, NumberedSite, RequestReads, ResourceHandler, ResourcePath, ScriptCell,
    ScriptProgram, ScriptResource, ScriptService,
};
pub use syntax::OutlinedConstruct;

mod analyse;
mod compile;
mod diagnostic;
mod emit;
#[cfg(test)]
mod fuzz;
mod method;
mod parse;
pub mod program;
mod syntax;

/// Returns the constructs of a text, in source order, and all of its syntax errors.
#[must_use]
pub fn outline(source: &str) -> (Vec<OutlinedConstruct>, Vec<Diagnostic>) {
    parse::parser_thread::with_parser_thread(source, |source| {
        let allocator = Allocator::default();
        let parsed = parse::parse(&allocator, source);
        (parsed.syntax.outline(&LineStarts::new(source)), parsed.diagnostics)
    })
    .unwrap_or_else(|| (Vec::new(), vec![parse::parser_thread::too_large_diagnostic()]))
}
