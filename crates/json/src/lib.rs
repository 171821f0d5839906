//! JSON text as slices: only the requested parts are parsed.
//!
//! A [`JsonDocument`] is a text that was checked completely (RFC 8259), with an index of its tokens and its
//! longer containers that is built at the same time. A [`JsonNode`] is a value in it, represented by its
//! position in the text. Access to a member or an item skips the text before it. Numbers keep their original
//! text, members keep their order, and duplicate names are preserved. Slices share the document's memory. A
//! [`JsonPath`] selects several values, [`GroupedItems`] finds items by key, and a [`JsonTree`] is a value
//! composed of such texts. A [`PartialChecker`] validates a text that is too long to be held in memory.
//!
//! The modules, from low to high: `error`, `string` (escapes) and `pointer` (RFC 6901); `document` (the index
//! of a text, and its values) and `checker`; `path`, `join` and `tree`.
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod checker;
mod document;
mod error;
mod join;
mod path;
pub mod pointer;
mod string;
mod tree;

pub use checker::PartialChecker;
pub use document::{
    AmbiguousValue, ArrayItems, JsonDocument, JsonNode, JsonNumber, KeyPattern, MemberName, NodeId,
    ObjectMembers, PassedValue, ValueKind,
};
pub use error::{DEPTH, JsonError};
pub use join::{GroupedItems, JoinKey, JoinKeyKinds};
pub use path::{JsonPath, JsonPathStep, NotArray, NotPath};
pub use tree::{JsonTree, RepeatedObject, TreeMember, TreePieces};
