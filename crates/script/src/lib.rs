//! The S compiler. Pure: text in, text out.

pub mod map;
pub mod program;

pub use map::SourceMap;
pub use program::{
    Capture, CaptureKind, Cell, Class, Commit, Graph, Group, Handler, Method, Node, Path, Position, Program,
    Reads, Resource, Scope, Service, Site,
};
