//! The compiler of S, a language for RESTful services: JavaScript with services, resources and state.
//!
//! The compiler is pure: text in, text out. It reads a source text (`lex`, `prepass`, `parse`) and reports
//! errors in terms of that text (`diagnostic`, `line`). `syntax` holds the constructs that S adds to
//! JavaScript. The numbered rules of the language are in docs/s-language.md.

use oxc_allocator::Allocator;

pub use compile::{CompileOptions, compile};
pub use diagnostic::{DiagnosticCode, DiagnosticLabel, DiagnosticSeverity, ScriptDiagnostic};
pub use inline_plan::InlinePlan;
pub use line::{LineStarts, TextPosition};
pub use map::{MappedSegment, SourceMap};
pub use method::HandlerMethod;
pub use modules::module_specifiers;
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
mod graph;
pub mod inline_plan;
mod lex;
mod line;
pub mod map;
mod method;
mod modules;
mod parse;
mod parser_thread;
mod prepass;
pub mod program;
mod status;
mod syntax;

/// Returns the constructs of a text, in source order, and all of its syntax errors.
#[must_use]
pub fn outline(source: &str) -> (Vec<OutlinedConstruct>, Vec<ScriptDiagnostic>) {
    parser_thread::with_parser_thread(source, |source| {
        let allocator = Allocator::default();
        let parsed = parse::parse(&allocator, source);
        (parsed.syntax.outline(&LineStarts::new(source)), parsed.diagnostics)
    })
    .unwrap_or_else(|| (Vec::new(), vec![ScriptDiagnostic::too_large()]))
}
