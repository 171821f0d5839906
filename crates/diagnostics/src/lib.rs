//! Diagnostics for files that people write: the location, the problem and the remedy.
//!
//! Every reader of such a file reports all of its problems at once, as [`Diagnostic`]s, which it gathers in
//! [`Diagnostics`]. Many readers get only a part of a file, or a value without its text. They report a
//! [`DiagnosticLocation`] in their own terms, such as a JSON Pointer, and the holder of the text resolves it
//! to file, line and column.
//!
//! The modules, from low to high: `line` (lines and columns of a text), `location`, `diagnostic`,
//! `collector`, and `render`, the form with source lines.

mod collector;
mod diagnostic;
mod line;
mod location;
mod render;

pub use collector::Diagnostics;
pub use diagnostic::{Diagnostic, DiagnosticKind, DiagnosticLabel, DiagnosticSeverity};
pub use line::{LineStarts, TextPosition};
pub use location::{DiagnosticLocation, SourceDocument, SourcePosition};
