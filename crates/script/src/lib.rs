//! The compiler of S, a language for RESTful services: JavaScript with services, resources and state.
//!
//! Pure: text in, text out. It reads a text (`lex`, `prepass`, `parse`), and says what is wrong with it in terms of
//! that text (`diagnostic`, `line`). `syntax` is what it knows of a text beyond JavaScript. The rules of the language,
//! by number, are in docs/s-language.md.

pub use compile::{Options, compile};
pub use diagnostic::{Code, Diagnostic, Label, Severity};
pub use line::Lines;
pub use map::{Segment, SourceMap};
pub use program::{
    Capture, CaptureKind, Cell, Class, Commit, Graph, Group, Handler, Method, Node, Path, Position, Program,
    Reads, Resource, Scope, Service, Site,
};

mod analyse;
mod compile;
mod diagnostic;
mod emit;
mod lex;
mod line;
pub mod map;
mod parse;
mod prepass;
pub mod program;
mod syntax;
