//! What of a text is S rather than JavaScript: services, resources, handlers, and the other constructs.
//!
//! Each construct knows its place in the S text and where the statement that stands for it begins in the encoded one.
//! A walk of oxc's tree asks at each statement whether it is one (`Syntax::at`).

use std::ops::Range;

use oxc_syntax::scope::ScopeId;
use oxc_syntax::symbol::SymbolId;

use crate::line::{Lines, Position};
use crate::method::Method;

/// An index of a construct in `Syntax::constructs`. A construct comes after those around it.
pub(crate) type ConstructId = usize;

/// All of a text's constructs, in its order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Syntax {
    pub(crate) constructs: Vec<Construct>,
}

/// A construct of S, as an outline of a file shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outlined {
    /// `service`, `resource`, `handler`, `state`, `external`, `respond`, `par` or `pfor`.
    pub kind: &'static str,
    /// Where it begins.
    pub position: Position,
    /// How many constructs are around it.
    pub depth: usize,
}

/// A construct.
#[derive(Clone, Debug)]
pub(crate) struct Construct {
    pub(crate) kind: ConstructKind,
    /// The construct around it, however many blocks and functions lie between.
    pub(crate) parent: Option<ConstructId>,
    /// All of it, in S. A `state`, `res g =` or `respond` goes up to its statement's end, without the semicolon.
    pub(crate) span: Range<usize>,
    /// Its braces and what lies between, in S; what `pfor` repeats, braces or not. None without a body.
    pub(crate) body: Option<Range<usize>>,
    /// Where its statement begins in the encoded text.
    pub(crate) encoded: u32,
    /// The scope of its body, when the tree is there: of the function that stands for a service, a resource or a
    /// handler, of a block or a loop.
    pub(crate) scope: Option<ScopeId>,
}

/// What a construct is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ConstructKind {
    /// `service NAME { .. }`, which is `void function() { .. };`.
    Service { name: Name },
    /// `res PATH { .. }` or `res PATH on METHOD { .. }`, which is `void [PATH, function() { .. }];`.
    Res {
        /// The path's expression, in S.
        path: Range<usize>,
        /// The path, if it is a literal.
        literal: Option<String>,
        /// It has its handler beside the path, not in a block.
        inline: bool,
    },
    /// `on METHOD { .. }`, which is `void async function(query, response) { .. };`. Its parent is its resource.
    On { method: Method, method_span: Range<usize> },
    /// `state a = 1, b`, which is `let a = 1, b`.
    State { names: Vec<Name> },
    /// `res g = 'http://..'`, which is `const g = 'http://..'`.
    External { names: Vec<Name> },
    /// `respond E`, which is `throw E`.
    Respond {
        /// The value's expression, in S.
        value: Range<usize>,
    },
    /// `par { .. }`, which is `{ .. }`.
    Par,
    /// `pfor(var NAME in E) S`, which is `for(const NAME in E) S`.
    Pfor { name: Name },
}

/// A name that a construct declares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Name {
    pub(crate) text: String,
    /// In S.
    pub(crate) span: Range<usize>,
    /// What it is to oxc, when the tree is there. A service's name is none.
    pub(crate) symbol: Option<SymbolId>,
}

impl ConstructKind {
    /// What an outline calls it.
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

    /// Whether state may stand in it: services, resources, handlers.
    pub(crate) fn has_scope(&self) -> bool {
        matches!(self, Self::Service { .. } | Self::Res { .. } | Self::On { .. })
    }
}

impl Syntax {
    /// Says of each construct which one is around it, by their places.
    pub(crate) fn nest(&mut self) {
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

    /// Kinds, places and depths, for those who don't have the tree.
    pub(crate) fn outline(&self, lines: &Lines<'_>) -> Vec<Outlined> {
        let outlined = |(id, construct): (ConstructId, &Construct)| Outlined {
            kind: construct.kind.name(),
            position: lines.position(construct.span.start),
            depth: self.around(id).count(),
        };
        self.constructs.iter().enumerate().map(outlined).collect()
    }

    /// The construct whose statement begins here in the encoded text.
    pub(crate) fn at(&self, encoded: u32) -> Option<(ConstructId, &Construct)> {
        let id = self.constructs.binary_search_by_key(&encoded, |construct| construct.encoded).ok()?;
        Some((id, &self.constructs[id]))
    }

    /// The constructs in one, however deep, in the order of the text.
    pub(crate) fn within(&self, id: ConstructId) -> impl Iterator<Item = (ConstructId, &Construct)> {
        let end = self.constructs[id].span.end;
        self.constructs.iter().enumerate().skip(id + 1).take_while(move |(_, it)| it.span.start < end)
    }

    /// The constructs around one, from the inside, without itself.
    pub(crate) fn around(&self, id: ConstructId) -> impl Iterator<Item = (ConstructId, &Construct)> {
        let with = |id: Option<ConstructId>| id.and_then(|id| Some((id, self.constructs.get(id)?)));
        let first = with(self.constructs.get(id).and_then(|construct| construct.parent));
        std::iter::successors(first, move |(_, construct)| with(construct.parent))
    }

    /// The service that a construct stands in.
    pub(crate) fn service_of(&self, id: ConstructId) -> Option<ConstructId> {
        let is_service = |construct: &Construct| matches!(construct.kind, ConstructKind::Service { .. });
        self.around(id).find(|(_, construct)| is_service(construct)).map(|(id, _)| id)
    }

    /// The handler that a construct stands in.
    #[allow(dead_code, reason = "the analysis and the emission, which read it, come next")]
    pub(crate) fn handler_of(&self, id: ConstructId) -> Option<ConstructId> {
        let is_handler = |construct: &Construct| matches!(construct.kind, ConstructKind::On { .. });
        self.around(id).find(|(_, construct)| is_handler(construct)).map(|(id, _)| id)
    }
}
