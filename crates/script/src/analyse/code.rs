//! The tree as the analyses walk it: by parents, by extents, and by the functions that code stands in (`functions`).
//!
//! Numbers of nodes grow in the order of the text, so what stands within a node is a range of numbers.

use std::collections::HashMap;
use std::ops::Range;

use oxc_ast::AstKind;
use oxc_ast::ast::{Argument, Expression};
use oxc_semantic::{NodeId, Semantic};
use oxc_span::{GetSpan, Span};
use oxc_syntax::reference::Reference;
use oxc_syntax::symbol::SymbolId;

use crate::parse::{Parsed, Tree};
use crate::syntax::{Construct, ConstructId, ConstructKind};

pub(crate) use functions::{Called, Role, Routine};
pub(crate) use members::{Members, is_data, is_function};

mod functions;
mod members;

/// An index into `Code::functions`; 0 is the file.
pub(crate) type FunctionId = usize;

/// A text with its tree.
pub(crate) struct Code<'p, 'a> {
    pub(crate) parsed: &'p Parsed<'a>,
    pub(crate) semantic: &'p Semantic<'a>,
    pub(crate) functions: Vec<Routine>,
    /// The function that a symbol always is.
    pub(crate) named: HashMap<SymbolId, FunctionId>,
    pub(crate) members: Members,
    /// The node of each construct's statement.
    pub(crate) statements: Vec<NodeId>,
    constructs: HashMap<NodeId, ConstructId>,
    /// Behind the last node within each.
    ends: Vec<usize>,
    /// The innermost function that each node stands in; a function's own node stands outside of it.
    within: Vec<FunctionId>,
}

impl<'p, 'a> Code<'p, 'a> {
    pub(crate) fn new(parsed: &'p Parsed<'a>, tree: &'p Tree<'a>) -> Self {
        let semantic = &tree.semantic;
        let count = semantic.nodes().len();
        let mut code = Self {
            parsed,
            semantic,
            functions: Vec::new(),
            named: HashMap::new(),
            members: Members::default(),
            statements: vec![NodeId::ROOT; parsed.syntax.constructs.len()],
            constructs: HashMap::new(),
            ends: (1..=count).collect(),
            within: vec![0; count],
        };
        code.measure();
        code.find_constructs();
        code.find_functions();
        code.members = Members::of(&code);
        code
    }

    fn measure(&mut self) {
        for index in (1..self.ends.len()).rev() {
            let parent = self.parent(NodeId::from_usize(index)).index();
            self.ends[parent] = self.ends[parent].max(self.ends[index]);
        }
    }

    fn find_constructs(&mut self) {
        for node in self.semantic.nodes().iter() {
            if !node.kind().is_statement() && !matches!(node.kind(), AstKind::VariableDeclaration(_)) {
                continue;
            }
            let Some((id, construct)) = self.parsed.syntax.at(node.kind().span().start) else { continue };
            // The first is the outermost: a `pfor` without braces begins with its own statement, not the body's.
            if self.statements[id] == NodeId::ROOT && stands_for(node.kind(), construct) {
                self.statements[id] = node.id();
                self.constructs.insert(node.id(), id);
            }
        }
    }

    pub(crate) fn kind(&self, node: NodeId) -> AstKind<'a> {
        self.semantic.nodes().kind(node)
    }

    pub(crate) fn span(&self, node: NodeId) -> Span {
        self.kind(node).span()
    }

    pub(crate) fn parent(&self, node: NodeId) -> NodeId {
        self.semantic.nodes().parent_id(node)
    }

    /// A node's parents, from the inside.
    pub(crate) fn ancestors(&self, node: NodeId) -> impl Iterator<Item = NodeId> + '_ {
        self.semantic.nodes().ancestor_ids(node)
    }

    /// All nodes within one, with it.
    pub(crate) fn inside(&self, node: NodeId) -> impl DoubleEndedIterator<Item = NodeId> + use<> {
        (node.index()..self.ends[node.index()]).map(NodeId::from_usize)
    }

    /// All nodes within one, without these and what stands in them. They are in the order of the text, and none stands
    /// in another.
    pub(crate) fn inside_without<'w>(
        &'w self,
        node: NodeId,
        without: &'w [NodeId],
    ) -> impl Iterator<Item = NodeId> + 'w {
        let (mut out, mut at, end) = (without.iter(), node.index(), self.ends[node.index()]);
        let mut next = out.next();
        std::iter::from_fn(move || {
            while next.is_some_and(|next| next.index() <= at) {
                at = next.map_or(at, |next| at.max(self.ends[next.index()]));
                next = out.next();
            }
            at += 1;
            (at <= end).then(|| NodeId::from_usize(at - 1))
        })
    }

    /// Those of some nodes that stand in no other, in the order of the text.
    pub(crate) fn outermost(&self, nodes: &[NodeId]) -> Vec<NodeId> {
        let mut sorted = nodes.to_vec();
        sorted.sort_unstable();
        let mut end = 0;
        sorted.retain(|node| {
            let is_outermost = node.index() >= end;
            end = end.max(self.ends[node.index()]);
            is_outermost
        });
        sorted
    }

    /// Whether a node is `outer` or stands in it.
    pub(crate) fn is_inside(&self, node: NodeId, outer: NodeId) -> bool {
        (outer.index()..self.ends[outer.index()]).contains(&node.index())
    }

    /// The order in which calls are made: what stands in a call comes before it.
    pub(crate) fn order(&self, node: NodeId) -> (usize, std::cmp::Reverse<usize>) {
        (self.ends[node.index()], std::cmp::Reverse(node.index()))
    }

    pub(crate) fn construct(&self, id: ConstructId) -> &'p Construct {
        &self.parsed.syntax.constructs[id]
    }

    /// The construct that a statement stands for.
    pub(crate) fn construct_at(&self, node: NodeId) -> Option<ConstructId> {
        self.constructs.get(&node).copied()
    }

    /// Whether a statement is a `respond`.
    pub(crate) fn responds(&self, statement: NodeId) -> bool {
        let construct = self.construct_at(statement).map(|id| &self.construct(id).kind);
        matches!(construct, Some(ConstructKind::Respond { .. }))
    }

    /// A place of the tree in the S text.
    pub(crate) fn source(&self, span: Span) -> Range<usize> {
        let start = self.parsed.map.to_source(span.start as usize);
        let end =
            if span.end > span.start { self.parsed.map.to_source(span.end as usize - 1) + 1 } else { start };
        // The last character may be of several bytes.
        let end = (end..self.parsed.source.len())
            .find(|at| self.parsed.source.is_char_boundary(*at))
            .unwrap_or(self.parsed.source.len());
        start..end.max(start)
    }

    /// A node in the S text.
    pub(crate) fn place(&self, node: NodeId) -> Range<usize> {
        self.source(self.span(node))
    }

    /// What stands at a place of the S text.
    pub(crate) fn text(&self, range: Range<usize>) -> &'a str {
        self.parsed.source.get(range).unwrap_or("")
    }

    /// A node's text in the S file.
    pub(crate) fn text_of(&self, node: NodeId) -> &'a str {
        self.text(self.place(node))
    }

    /// The place in S of the first `sign` between two nodes, comments aside.
    pub(crate) fn sign(&self, gap: Range<u32>, sign: u8) -> Option<usize> {
        let is_sign = |at: &u32| self.parsed.encoded.as_bytes().get(*at as usize) == Some(&sign);
        let mut signs = gap.filter(is_sign).filter(|at| !self.semantic.is_inside_comment(*at));
        signs.next().map(|at| self.parsed.map.to_source(at as usize))
    }

    /// The outermost of the parentheses around an expression, or itself.
    pub(crate) fn past_parentheses(&self, mut node: NodeId) -> NodeId {
        while matches!(self.kind(self.parent(node)), AstKind::ParenthesizedExpression(_)) {
            node = self.parent(node);
        }
        node
    }

    pub(crate) fn name(&self, symbol: SymbolId) -> &'p str {
        self.semantic.scoping().symbol_name(symbol)
    }

    /// The symbol that an identifier is.
    pub(crate) fn symbol(&self, node: NodeId) -> Option<SymbolId> {
        match self.kind(node) {
            AstKind::IdentifierReference(name) => {
                self.semantic.scoping().get_reference(name.reference_id.get()?).symbol_id()
            }
            AstKind::BindingIdentifier(name) => name.symbol_id.get(),
            _ => None,
        }
    }

    /// The reference that an identifier is.
    pub(crate) fn reference(&self, node: NodeId) -> Option<&Reference> {
        let AstKind::IdentifierReference(name) = self.kind(node) else { return None };
        Some(self.semantic.scoping().get_reference(name.reference_id.get()?))
    }

    /// Where a symbol is used.
    pub(crate) fn uses(&self, symbol: SymbolId) -> impl Iterator<Item = &Reference> + '_ {
        self.semantic.symbol_references(symbol)
    }

    /// The name that declares a symbol, in S.
    pub(crate) fn declared(&self, symbol: SymbolId) -> Range<usize> {
        self.source(self.semantic.scoping().symbol_span(symbol))
    }

    /// The node that declares a symbol.
    pub(crate) fn declaration(&self, symbol: SymbolId) -> NodeId {
        self.semantic.scoping().symbol_declaration(symbol)
    }
}

/// The symbol that an expression names.
pub(crate) fn identifier(code: &Code<'_, '_>, expression: &Expression<'_>) -> Option<SymbolId> {
    let Expression::Identifier(name) = expression.get_inner_expression() else { return None };
    code.semantic.scoping().get_reference(name.reference_id.get()?).symbol_id()
}

/// The expression of an argument, without `...`.
pub(crate) fn plain<'b, 'a>(argument: &'b Argument<'a>) -> Option<&'b Expression<'a>> {
    argument.as_expression()
}

/// The statements of a function's body.
pub(crate) fn statements(code: &Code<'_, '_>, function: NodeId) -> Vec<NodeId> {
    let body = code.inside(function).find(|node| matches!(code.kind(*node), AstKind::FunctionBody(_)));
    body.map(|body| children(code, body)).unwrap_or_default()
}

/// The statements of a list: what stands directly in a node and is one.
pub(crate) fn children(code: &Code<'_, '_>, list: NodeId) -> Vec<NodeId> {
    let is_statement = |kind: AstKind<'_>| {
        kind.is_statement()
            || matches!(kind, AstKind::VariableDeclaration(_) | AstKind::Function(_) | AstKind::Class(_))
    };
    let nodes = code.inside(list).skip(1);
    nodes.filter(|node| code.parent(*node) == list && is_statement(code.kind(*node))).collect()
}

/// The node within `outer` that has this span, the outermost of several.
pub(crate) fn node_of(code: &Code<'_, '_>, outer: NodeId, span: Span) -> Option<NodeId> {
    code.inside(outer).skip(1).find(|node| code.span(*node) == span)
}

fn stands_for(kind: AstKind<'_>, construct: &Construct) -> bool {
    match construct.kind {
        ConstructKind::Service { .. } | ConstructKind::Res { .. } | ConstructKind::On { .. } => {
            matches!(kind, AstKind::ExpressionStatement(_))
        }
        ConstructKind::State { .. } | ConstructKind::External { .. } => {
            matches!(kind, AstKind::VariableDeclaration(_))
        }
        ConstructKind::Respond { .. } => matches!(kind, AstKind::ThrowStatement(_)),
        ConstructKind::Par => matches!(kind, AstKind::BlockStatement(_)),
        ConstructKind::Pfor { .. } => matches!(kind, AstKind::ForInStatement(_)),
    }
}
