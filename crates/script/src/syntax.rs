//! The constructs that S adds to JavaScript: services, resources, handlers and others.
//!
//! Each construct has its range in the S text and the start of the statement that represents it in the
//! encoded text. A walk of oxc's tree looks up the construct of a statement with `SyntaxConstructs::at`.

use std::ops::Range;

use diagnostics::{LineStarts, TextPosition};
use oxc_syntax::scope::ScopeId;
use oxc_syntax::symbol::SymbolId;

use crate::method::HandlerMethod;

pub(crate) mod status;

/// An index into `SyntaxConstructs::constructs`. A construct comes after its ancestors.
pub(crate) type ConstructId = usize;

/// All constructs of a text, in source order.
#[derive(Clone, Debug, Default)]
pub(crate) struct SyntaxConstructs {
    pub(crate) constructs: Vec<SyntaxConstruct>,
}

/// A construct of S in the outline of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutlinedConstruct {
    /// `service`, `resource`, `handler`, `state`, `external`, `respond`, `par` or `pfor`.
    pub kind: &'static str,
    /// The position of its first character.
    pub position: TextPosition,
    /// The number of enclosing constructs.
    pub depth: usize,
}

/// A construct.
#[derive(Clone, Debug)]
pub(crate) struct SyntaxConstruct {
    pub(crate) kind: ConstructKind,
    /// The innermost enclosing construct, regardless of blocks and functions in between.
    pub(crate) parent: Option<ConstructId>,
    /// The full range in the S text. A `state`, `res g =` or `respond` extends to the end of its statement,
    /// without the semicolon.
    pub(crate) span: Range<usize>,
    /// The range of its body in the S text, with the braces. For `pfor` it is the repeated statement, with or
    /// without braces.
    pub(crate) body: Option<Range<usize>>,
    /// The start of its statement in the encoded text.
    pub(crate) encoded_start: u32,
    /// The scope of its body, once the tree has been built: the scope of the function that represents a
    /// service, a resource or a handler, or of a block or loop.
    pub(crate) scope: Option<ScopeId>,
}

/// The kind of a construct.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ConstructKind {
    /// `service NAME { .. }`, encoded as `void function() { .. };`.
    Service { name: ConstructName },
    /// `res PATH { .. }` or `res PATH on METHOD { .. }`, encoded as `void [PATH, function() { .. }];`.
    Res {
        /// The path's expression, in the S text.
        path: Range<usize>,
        /// The path, if it is a literal.
        literal: Option<String>,
        /// Whether its handler follows the path directly, without a block.
        inline: bool,
    },
    /// `on METHOD { .. }`, encoded as `void async function(query, response) { .. };`. Its parent is its
    /// resource.
    On { method: HandlerMethod, method_span: Range<usize> },
    /// `state a = 1, b`, encoded as `let a = 1, b`.
    State { names: Vec<ConstructName> },
    /// `res g = 'http://..'`, encoded as `const g = 'http://..'`.
    External { names: Vec<ConstructName> },
    /// `respond E`, encoded as `throw E`.
    Respond {
        /// The value's expression, in the S text.
        value: Range<usize>,
    },
    /// `par { .. }`, encoded as `{ .. }`.
    Par,
    /// `pfor(var NAME in E) S`, encoded as `for(const NAME in E) S`.
    Pfor { name: ConstructName },
}

/// A name that a construct declares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConstructName {
    pub(crate) text: String,
    /// The range in the S text.
    pub(crate) span: Range<usize>,
    /// oxc's symbol, once the tree has been built. The name of a service has none.
    pub(crate) symbol: Option<SymbolId>,
}

impl ConstructKind {
    /// Returns the kind as shown in an outline.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Service { .. } => "service",
            Self::Res { .. } => "resource",
            Self::On { .. } => "handler",
            Self::State { .. } => "state",
            Self::External { .. } => "external",
            Self::Respond { .. } => "respond",
            Self::Par => "par",
            Self::Pfor { .. } => "pfor",
        }
    }

    /// Whether it can declare state: a service, a resource or a handler.
    pub(crate) fn has_scope(&self) -> bool {
        matches!(self, Self::Service { .. } | Self::Res { .. } | Self::On { .. })
    }
}

impl SyntaxConstructs {
    /// Sets the parent of each construct, by their ranges.
    pub(crate) fn set_parents(&mut self) {
        let mut open: Vec<ConstructId> = Vec::new();
        for id in 0..self.constructs.len() {
            let start = self.constructs[id].span.start;
            while open.last().is_some_and(|&last| self.constructs[last].span.end <= start) {
                open.pop();
            }
            self.constructs[id].parent = open.last().copied();
            open.push(id);
        }
    }

    /// Returns kinds, positions and depths, for callers without the tree.
    pub(crate) fn outline(&self, lines: &LineStarts<'_>) -> Vec<OutlinedConstruct> {
        let outlined = |(id, construct): (ConstructId, &SyntaxConstruct)| OutlinedConstruct {
            kind: construct.kind.name(),
            position: lines.position(construct.span.start),
            depth: self.enclosing_constructs(id).count(),
        };
        self.constructs.iter().enumerate().map(outlined).collect()
    }

    /// Returns the construct whose statement begins at this offset of the encoded text.
    pub(crate) fn construct_at(&self, encoded: u32) -> Option<(ConstructId, &SyntaxConstruct)> {
        let id = self.constructs.binary_search_by_key(&encoded, |construct| construct.encoded_start).ok()?;
        Some((id, &self.constructs[id]))
    }

    /// Returns the constructs nested in one, at any depth, in source order.
    pub(crate) fn nested_constructs(
        &self,
        id: ConstructId,
    ) -> impl Iterator<Item = (ConstructId, &SyntaxConstruct)> {
        let end = self.constructs[id].span.end;
        self.constructs.iter().enumerate().skip(id + 1).take_while(move |(_, it)| it.span.start < end)
    }

    /// Returns the enclosing constructs, innermost first.
    pub(crate) fn enclosing_constructs(
        &self,
        id: ConstructId,
    ) -> impl Iterator<Item = (ConstructId, &SyntaxConstruct)> {
        let with = |id: Option<ConstructId>| id.and_then(|id| Some((id, self.constructs.get(id)?)));
        let first = with(self.constructs.get(id).and_then(|construct| construct.parent));
        std::iter::successors(first, move |(_, construct)| with(construct.parent))
    }

    /// Returns the service that encloses a construct.
    pub(crate) fn enclosing_service(&self, id: ConstructId) -> Option<ConstructId> {
        let is_service =
            |construct: &SyntaxConstruct| matches!(construct.kind, ConstructKind::Service { .. });
        self.enclosing_constructs(id).find(|(_, construct)| is_service(construct)).map(|(id, _)| id)
    }

    /// Returns the handler that encloses a construct.
    #[allow(dead_code, reason = "read by the analysis and the emission")]
    pub(crate) fn enclosing_handler(&self, id: ConstructId) -> Option<ConstructId> {
        let is_handler = |construct: &SyntaxConstruct| matches!(construct.kind, ConstructKind::On { .. });
        self.enclosing_constructs(id).find(|(_, construct)| is_handler(construct)).map(|(id, _)| id)
    }
}
