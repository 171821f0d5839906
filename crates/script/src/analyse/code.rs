//! The syntax tree, with parents, extents, and the enclosing functions (`functions`).
//!
//! Node numbers are in source order, so the nodes within a node are a range of numbers.

use std::collections::HashMap;
use std::ops::Range;

use oxc_ast::AstKind;
use oxc_ast::ast::{Argument, Expression};
use oxc_semantic::{NodeId, Semantic};
use oxc_span::{GetSpan, Span};
use oxc_syntax::reference::Reference;
use oxc_syntax::symbol::SymbolId;

use crate::parse::{ParsedScript, SyntaxTree};
use crate::syntax::{ConstructId, ConstructKind, SyntaxConstruct};

pub(crate) use functions::{CallForm, CodeFunction, FunctionRole};
pub(crate) use members::{CodeMembers, is_data, is_function};

mod functions;
mod members;

/// An index into `CodeText::functions`. 0 is the file.
pub(crate) type FunctionId = usize;

/// A text with its tree.
pub(crate) struct CodeText<'p, 'a> {
    pub(crate) parsed: &'p ParsedScript<'a>,
    pub(crate) semantic: &'p Semantic<'a>,
    pub(crate) functions: Vec<CodeFunction>,
    /// The functions of symbols that are never reassigned.
    pub(crate) functions_by_symbol: HashMap<SymbolId, FunctionId>,
    pub(crate) members: CodeMembers,
    /// The node of each construct's statement.
    pub(crate) statements: Vec<NodeId>,
    constructs: HashMap<NodeId, ConstructId>,
    /// The index after the last descendant of each node.
    ends: Vec<usize>,
    /// The innermost function that contains each node. A function's own node is outside of it.
    innermost_functions: Vec<FunctionId>,
}

impl<'p, 'a> CodeText<'p, 'a> {
    pub(crate) fn new(parsed: &'p ParsedScript<'a>, tree: &'p SyntaxTree<'a>) -> Self {
        let semantic = &tree.semantic;
        let count = semantic.nodes().len();
        let mut code = Self {
            parsed,
            semantic,
            functions: Vec::new(),
            functions_by_symbol: HashMap::new(),
            members: CodeMembers::default(),
            statements: vec![NodeId::ROOT; parsed.syntax.constructs.len()],
            constructs: HashMap::new(),
            ends: (1..=count).collect(),
            innermost_functions: vec![0; count],
        };
        code.compute_subtree_ends();
        code.find_constructs();
        code.find_functions();
        code.members = CodeMembers::from_code(&code);
        code
    }

    fn compute_subtree_ends(&mut self) {
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
            let Some((id, construct)) = self.parsed.syntax.construct_at(node.kind().span().start) else {
                continue;
            };
            // The first is the outermost: a `pfor` without braces begins with its own statement, not the
            // body's.
            if self.statements[id] == NodeId::ROOT && represents_construct(node.kind(), construct) {
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

    /// Returns the ancestors of a node, innermost first.
    pub(crate) fn ancestors(&self, node: NodeId) -> impl Iterator<Item = NodeId> + '_ {
        self.semantic.nodes().ancestor_ids(node)
    }

    /// Returns all nodes within a node, including itself.
    pub(crate) fn subtree_nodes(&self, node: NodeId) -> impl DoubleEndedIterator<Item = NodeId> + use<> {
        (node.index()..self.ends[node.index()]).map(NodeId::from_usize)
    }

    /// Returns all nodes within a node, except those in `without` and their descendants. `without` must be in
    /// source order and not nested.
    pub(crate) fn subtree_excluding<'w>(
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

    /// Returns the nodes that are not nested in another of them, in source order.
    pub(crate) fn outermost_nodes(&self, nodes: &[NodeId]) -> Vec<NodeId> {
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

    /// Whether a node is `outer` or nested in it.
    pub(crate) fn is_inside(&self, node: NodeId, outer: NodeId) -> bool {
        (outer.index()..self.ends[outer.index()]).contains(&node.index())
    }

    /// Returns the sort key for evaluation order: nested calls come first.
    pub(crate) fn evaluation_order(&self, node: NodeId) -> (usize, std::cmp::Reverse<usize>) {
        (self.ends[node.index()], std::cmp::Reverse(node.index()))
    }

    pub(crate) fn construct(&self, id: ConstructId) -> &'p SyntaxConstruct {
        &self.parsed.syntax.constructs[id]
    }

    /// Returns the construct that a statement represents.
    pub(crate) fn construct_at(&self, node: NodeId) -> Option<ConstructId> {
        self.constructs.get(&node).copied()
    }

    /// Whether a statement is a `respond`.
    pub(crate) fn is_respond(&self, statement: NodeId) -> bool {
        let construct = self.construct_at(statement).map(|id| &self.construct(id).kind);
        matches!(construct, Some(ConstructKind::Respond { .. }))
    }

    /// Converts a span of the tree to the S text.
    pub(crate) fn source_range(&self, span: Span) -> Range<usize> {
        let start = self.parsed.map.to_source(span.start as usize);
        let end =
            if span.end > span.start { self.parsed.map.to_source(span.end as usize - 1) + 1 } else { start };
        // The last character may have several bytes.
        let end = (end..self.parsed.source.len())
            .find(|at| self.parsed.source.is_char_boundary(*at))
            .unwrap_or(self.parsed.source.len());
        start..end.max(start)
    }

    /// Returns the range of a node in the S text.
    pub(crate) fn node_range(&self, node: NodeId) -> Range<usize> {
        self.source_range(self.span(node))
    }

    /// Returns the S text of a range.
    pub(crate) fn source_text(&self, range: Range<usize>) -> &'a str {
        self.parsed.source.get(range).unwrap_or("")
    }

    /// Returns the S text of a node.
    pub(crate) fn node_text(&self, node: NodeId) -> &'a str {
        self.source_text(self.node_range(node))
    }

    /// Returns the offset in the S text of the first `sign` in a gap between two nodes, outside of comments.
    pub(crate) fn find_sign(&self, gap: Range<u32>, sign: u8) -> Option<usize> {
        let is_sign = |at: &u32| self.parsed.encoded.as_bytes().get(*at as usize) == Some(&sign);
        let mut signs = gap.filter(is_sign).filter(|at| !self.semantic.is_inside_comment(*at));
        signs.next().map(|at| self.parsed.map.to_source(at as usize))
    }

    /// Returns the outermost of the parentheses around an expression, or the expression itself.
    pub(crate) fn skip_parentheses(&self, mut node: NodeId) -> NodeId {
        while matches!(self.kind(self.parent(node)), AstKind::ParenthesizedExpression(_)) {
            node = self.parent(node);
        }
        node
    }

    pub(crate) fn name(&self, symbol: SymbolId) -> &'p str {
        self.semantic.scoping().symbol_name(symbol)
    }

    /// Returns the symbol of an identifier.
    pub(crate) fn symbol(&self, node: NodeId) -> Option<SymbolId> {
        match self.kind(node) {
            AstKind::IdentifierReference(name) => {
                self.semantic.scoping().get_reference(name.reference_id.get()?).symbol_id()
            }
            AstKind::BindingIdentifier(name) => name.symbol_id.get(),
            _ => None,
        }
    }

    /// Returns the reference of an identifier.
    pub(crate) fn reference(&self, node: NodeId) -> Option<&Reference> {
        let AstKind::IdentifierReference(name) = self.kind(node) else { return None };
        Some(self.semantic.scoping().get_reference(name.reference_id.get()?))
    }

    /// Returns the references to a symbol.
    pub(crate) fn symbol_references(&self, symbol: SymbolId) -> impl Iterator<Item = &Reference> + '_ {
        self.semantic.symbol_references(symbol)
    }

    /// Returns the range in the S text of the name in a symbol's declaration.
    pub(crate) fn declaration_range(&self, symbol: SymbolId) -> Range<usize> {
        self.source_range(self.semantic.scoping().symbol_span(symbol))
    }

    /// Returns the node that declares a symbol.
    pub(crate) fn declaration(&self, symbol: SymbolId) -> NodeId {
        self.semantic.scoping().symbol_declaration(symbol)
    }
}

/// Returns the symbol that an expression refers to.
pub(crate) fn identifier_symbol(code: &CodeText<'_, '_>, expression: &Expression<'_>) -> Option<SymbolId> {
    let Expression::Identifier(name) = expression.get_inner_expression() else { return None };
    code.semantic.scoping().get_reference(name.reference_id.get()?).symbol_id()
}

/// Returns the expression of an argument, or `None` for `...`.
pub(crate) fn argument_expression<'b, 'a>(argument: &'b Argument<'a>) -> Option<&'b Expression<'a>> {
    argument.as_expression()
}

/// Returns the statements of a function's body.
pub(crate) fn body_statements(code: &CodeText<'_, '_>, function: NodeId) -> Vec<NodeId> {
    let body = code.subtree_nodes(function).find(|node| matches!(code.kind(*node), AstKind::FunctionBody(_)));
    body.map(|body| child_statements(code, body)).unwrap_or_default()
}

/// Returns the statements that are direct children of a node.
pub(crate) fn child_statements(code: &CodeText<'_, '_>, list: NodeId) -> Vec<NodeId> {
    let is_statement = |kind: AstKind<'_>| {
        kind.is_statement()
            || matches!(kind, AstKind::VariableDeclaration(_) | AstKind::Function(_) | AstKind::Class(_))
    };
    let nodes = code.subtree_nodes(list).skip(1);
    nodes.filter(|node| code.parent(*node) == list && is_statement(code.kind(*node))).collect()
}

/// Returns the outermost node within `outer` that has this span.
pub(crate) fn find_node_by_span(code: &CodeText<'_, '_>, outer: NodeId, span: Span) -> Option<NodeId> {
    code.subtree_nodes(outer).skip(1).find(|node| code.span(*node) == span)
}

fn represents_construct(kind: AstKind<'_>, construct: &SyntaxConstruct) -> bool {
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
